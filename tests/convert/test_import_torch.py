"""The import of models around torch.nn.Transformer, made with the real one."""

import itertools
import math
import random
import re

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer
from written_out import assert_logits, make_batch, perturb, sinusoids

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.convert.importers.torch import import_torch
from vanilla_transformer.convert.importers.vocabulary import both_tokenizers, word_tokenizer
from vanilla_transformer.target_tokenizer import target_tokenizer
from vanilla_transformer.texts.targets import target_ids

SOURCE_SIZE, TARGET_SIZE = 33, 37
IDS = {"unk_token_id": 0, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
GIVEN = {"heads": 4, **IDS}


class PositionalEncoding(nn.Module):
    """Sinusoids in a buffer, computed in single precision as in PyTorch's tutorials."""

    def __init__(self, d_model, length=50):
        super().__init__()
        self.register_buffer("pos_embedding", sinusoids(length, d_model)[:, None])

    def forward(self, x):
        return x + self.pos_embedding[: x.size(1), 0]


class TokenEmbedding(nn.Module):
    def __init__(self, size, d_model):
        super().__init__()
        self.embedding = nn.Embedding(size, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, ids):
        return self.embedding(ids) * self.scale


class Seq2Seq(nn.Module):
    """The model of PyTorch's tutorial on translation, but with the batch first."""

    def __init__(self, *, target_size=TARGET_SIZE, learned=False, output_bias=True, **options):
        super().__init__()
        settings = {"d_model": 16, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 3}
        settings |= {"dim_feedforward": 24, "dropout": 0.0, "batch_first": True, **options}
        width = settings["d_model"]
        self.transformer = nn.Transformer(**settings)
        self.generator = nn.Linear(width, target_size, bias=output_bias)
        self.src_tok_emb = TokenEmbedding(SOURCE_SIZE, width)
        self.tgt_tok_emb = TokenEmbedding(target_size, width)
        self.positional_encoding = PositionalEncoding(width)
        if learned:
            with torch.no_grad():
                self.positional_encoding.pos_embedding.normal_()

    def forward(self, source, mask, target):
        embedded = [
            self.positional_encoding(table(ids))
            for table, ids in ((self.src_tok_emb, source), (self.tgt_tok_emb, target))
        ]
        padding = mask == 0
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1)) != 0
        states = self.transformer(
            *embedded,
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.generator(states)


def make_model(**options):
    torch.manual_seed(0)
    return perturb(Seq2Seq(**options))


def save(model, path, **renamed):
    state = model.state_dict()
    for old, new in renamed.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    torch.save(state, path)
    return path


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, {}),
        ({"norm_first": True}, {"norm_first": True}),
        ({"activation": "gelu"}, {"activation": "gelu"}),
        ({"layer_norm_eps": 1e-3}, {"layer_norm_eps": 1e-3}),
        ({"bias": False}, {}),
        ({"output_bias": False}, {}),
        ({"learned": True}, {}),
        ({"learned": True, "d_model": 15, "nhead": 5}, {"heads": 5}),
        ({"target_size": SOURCE_SIZE}, {}),
    ],
    ids=str,
)
def test_imported_logits_equal_those_of_torch(tmp_path, options, given):
    theirs = make_model(**options)
    path = save(theirs, tmp_path / "model.pt")
    ours = import_torch(path, **GIVEN | given).model
    assert_logits(ours, make_batch(SOURCE_SIZE), theirs)
    assert ours.config.position_encoding == ("learned" if "learned" in options else "sinusoidal")


class TwoTables(Seq2Seq):
    """A model with one table of learned positions for the source and one for the target."""

    def __init__(self, **options):
        super().__init__(**options)
        del self.positional_encoding
        self.src_position_embedding = nn.Embedding(50, 16)
        self.trg_position_embedding = nn.Embedding(50, 16)

    def forward(self, source, mask, target):
        tables = iter((self.src_position_embedding, self.trg_position_embedding))
        self.__dict__["positional_encoding"] = lambda x: x + next(tables).weight[: x.size(1)]
        return super().forward(source, mask, target)


def test_stacks_may_have_separate_learned_positions(tmp_path):
    torch.manual_seed(0)
    theirs = TwoTables().eval()
    state = theirs.state_dict()
    torch.save(state, tmp_path / "model.pt")
    ours = import_torch(tmp_path / "model.pt", **GIVEN).model
    assert_logits(ours, make_batch(SOURCE_SIZE), theirs)
    assert ours.config.max_position_embeddings == 50
    name = "trg_position_embedding.weight"
    torch.save({**state, name: state[name][:40]}, tmp_path / "model.pt")
    imported = import_torch(tmp_path / "model.pt", **GIVEN)
    assert "have 50 and 40 learned positions; only the first 40 are used" in imported.notes[0]
    assert imported.model.config.max_position_embeddings == 40
    state["other_position_embedding.weight"] = state.pop(name)
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="at most one per stack"):
        import_torch(tmp_path / "model.pt", **GIVEN)


def test_given_names_find_the_tables(tmp_path):
    theirs = make_model()
    renamed = {"src_tok_emb.embedding": "a", "tgt_tok_emb.embedding": "b", "generator": "c"}
    path = save(theirs, tmp_path / "model.pt", transformer="net.core", **renamed)
    with pytest.raises(ValueError, match=r"source-embedding was not .*one of c\.weight, a\.weight"):
        import_torch(path, **GIVEN)
    names = {"source_embedding": "a.weight", "target_embedding": "b.weight"}
    model = import_torch(path, generator="c.weight", **names, **GIVEN).model
    assert_logits(model, make_batch(SOURCE_SIZE), theirs)


def test_unscaled_embeddings_and_tied_tables(tmp_path):
    theirs = make_model(output_bias=False)
    theirs.generator.weight = theirs.tgt_tok_emb.embedding.weight
    path = save(theirs, tmp_path / "model.pt")
    tied = import_torch(path, **GIVEN).model
    assert tied.lm_head.weight is tied.model.decoder.embed_tokens.weight
    assert tied.model.encoder.embed_tokens.weight is not tied.lm_head.weight
    for table in (theirs.src_tok_emb, theirs.tgt_tok_emb):
        table.scale = 1.0
    unscaled = import_torch(path, unscaled=True, **GIVEN).model
    assert_logits(unscaled, make_batch(SOURCE_SIZE), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_model_in_half_precision_is_rounded_no_further(tmp_path, dtype, unscaled):
    theirs = make_model(d_model=24).to(dtype)  # whose root no power of two is
    path = save(theirs, tmp_path / "model.pt")
    model = import_torch(path, unscaled=unscaled, **GIVEN).model
    assert model.dtype == (torch.float32 if unscaled else dtype)
    table = theirs.src_tok_emb.embedding.weight.double()
    found = model.model.encoder.embed_tokens.weight.double()
    factor = math.sqrt(model.config.d_model) if unscaled else 1
    assert (found * factor - table).abs().max() < 1e-6


def test_vocabularies_give_word_tokenizers(tmp_path):
    path = save(make_model(), tmp_path / "model.pt")
    special = ["<unk>", "<pad>", "<bos>", "<eos>"]
    for name, size in (("source", SOURCE_SIZE), ("target", TARGET_SIZE)):
        words = [f"{name}{number}" for number in range(size - 4)]
        (tmp_path / f"{name}.txt").write_text("\n".join([*special, *words]) + "\n")
    vocabularies = {f"{side}_vocab": tmp_path / f"{side}.txt" for side in ("source", "target")}
    imported = import_torch(path, tmp_path / "ours", **GIVEN, **vocabularies)
    assert not imported.notes
    source = AutoTokenizer.from_pretrained(tmp_path / "ours")
    target = target_tokenizer(source)
    assert source("source3 what source0").input_ids == [2, 7, 0, 4, 3]
    assert target.decode([2, 5, 4, 3], skip_special_tokens=True) == "target1 target0"
    with pytest.raises(ValueError, match=r"source\.txt has size 33, but the model needs 37"):
        import_torch(path, **GIVEN, source_vocab=tmp_path / "source.txt")


SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
# How a word becomes pieces, and how its authors join the pieces of a text.
JOINING = {
    "subword-nmt": (
        lambda parts: [*(f"{part}@@" for part in parts[:-1]), parts[-1]],
        lambda text: re.sub(r"@@ |@@ ?$", "", text),
    ),
    "SentencePiece": (
        lambda parts: [f"\u2581{parts[0]}", *parts[1:]],
        lambda text: text.replace(" ", "").replace("\u2581", " ").removeprefix(" "),
    ),
    "words": (lambda parts: ["".join(parts)], lambda text: text),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", JOINING)
def test_word_tokenizer_joins_pieces_as_their_authors_do(kind, seed):
    """A few tokens may look like those of others, such as @@ alone."""
    draw, (cut, join) = random.Random(seed), JOINING[kind]

    def pieces():
        parts = ("".join(draw.choices("aBü.", k=2)) for _ in range(draw.randint(1, 4)))
        return cut([*parts])

    texts = [[piece for _ in range(draw.randint(1, 5)) for piece in pieces()] for _ in range(20)]
    known = [piece for text in texts for piece in text]
    strange = {"subword-nmt": ["\u2581x"], "SentencePiece": ["x@@", "@@"], "words": ["@@", "@x"]}
    tokens = list(dict.fromkeys([*SPECIAL.values(), *known, *strange[kind]]))
    tokenizer = word_tokenizer(tokens, SPECIAL, "$A eos", origin="a test")
    for text in [*texts, ["a"], [], known[:1] + strange[kind][:1]]:
        ids = [tokens.index(piece) if piece in tokens else 3 for piece in text]
        assert tokenizer(" ".join(text)).input_ids == [*ids, 2]
        text = [piece for piece in text if piece in tokens]
        found = tokenizer.decode([*ids, 2], skip_special_tokens=True)
        assert found == join(" ".join(text))


def test_of_two_signs_that_of_more_tokens_joins():
    """In a tie, U+2581, which no text has."""
    for joining, spaced in itertools.product(range(4), repeat=2):
        pieces = [*(f"{n}@@" for n in range(joining)), *(f"\u2581{n}" for n in range(spaced)), "@@"]
        tokens = [*SPECIAL.values(), *pieces, "a@@", "\u2581b"]
        tokenizer = word_tokenizer(tokens, SPECIAL, "$A", origin="a test")
        found = tokenizer.decode(tokenizer("a@@ \u2581b").input_ids)
        assert found == ("a\u2581b" if joining > spaced else "a@@ b")


@pytest.mark.parametrize("target_words", ["abc", "abd", "acb"])
@pytest.mark.parametrize(
    "templates", [*itertools.product(("$A", "$A eos", "bos $A eos"), repeat=2)]
)
def test_sides_share_a_tokenizer_only_if_all_texts_have_equal_ids(target_words, templates):
    special = ["<unk>", "<pad>", "<bos>", "<eos>"]
    vocabularies = ([*special, *"abc"], [*special, *target_words])
    sizes = {"vocab_size": 7, "decoder_vocab_size": 7, "share_encoder_decoder_embeddings": False}
    config = VanillaTransformerConfig(**sizes, **IDS)
    source = both_tokenizers(vocabularies, config, templates, origins=("one", "two"))
    target = target_tokenizer(source)
    assert (target is source) == (target_words == "abc" and len({*templates}) == 1)
    for tokenizer, words, template in zip((source, target), vocabularies, templates, strict=True):
        layout = {"bos": [2], "eos": [3], "$A": [words.index("a"), words.index("b"), 0]}
        expected = [number for part in template.split() for number in layout[part]]
        assert tokenizer("a b x").input_ids == expected


@pytest.mark.parametrize("shared", ["bos_token_id", "pad_token_id"])
def test_an_end_symbol_with_a_second_role_ends_translations(tmp_path, shared):
    path = save(make_model(), tmp_path / "model.pt")
    model = import_torch(path, **GIVEN | {shared: 3}).model
    assert 3 not in model.generation_config.suppress_tokens
    with torch.no_grad():
        model.lm_head.bias[3] = 1e3
    source, mask, _ = make_batch(SOURCE_SIZE)
    assert model.generate(source, attention_mask=mask).size(1) == 2  # start and end
    assert beam_search(model, source, mask).sequences[:, 0].tolist() == [[3]] * 3


def test_labels_begin_with_no_start_symbol_even_if_it_is_the_end_symbol(tmp_path):
    path = save(make_model(target_size=SOURCE_SIZE), tmp_path / "model.pt")
    words = [f"w{number}" for number in range(4, SOURCE_SIZE)]
    words = ["<unk>", "<pad>", "unused", "</s>", *words]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    given = {**GIVEN, "bos_token_id": 3, "source_vocab": tmp_path / "words.txt"}
    imported = import_torch(path, **given)
    assert imported.tokenizer("w4").input_ids == [3, 4, 3]
    assert target_ids(imported.model, imported.tokenizer, ["w4", ""]) == [[4, 3], [3]]
    special = {"pad": "<pad>", "bos": "</s>", "eos": "</s>", "unk": "<unk>"}
    without_start = word_tokenizer(words, special, "$A eos", origin="a test")
    assert target_ids(imported.model, without_start, ["w4", ""]) == [[4, 3], [3]]


def test_block_import_torch(documented_command, tmp_path):
    save(make_model(nhead=8), tmp_path / "transformer.pt")
    for name, size in (("source", SOURCE_SIZE), ("target", TARGET_SIZE)):
        (tmp_path / f"{name}.txt").write_text("".join(f"word{n}\n" for n in range(size)))
    documented_command("import_torch")
    model = VanillaTransformerForConditionalGeneration.from_pretrained("runs/mine")
    assert model.config.encoder_attention_heads == 8
