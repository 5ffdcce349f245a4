"""Translating: order, batches, lengths, the Hugging Face pipeline."""

import copy
import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from opus_models import save_opus
from tiny_models import tiny_config, with_end, word_level
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    FSMTTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.pipelines.pt_utils import KeyDataset
from wandering_model import make_model

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    pretrained,
)
from vanilla_transformer.batch_translation import (
    beyond_paper_search,
    decode,
    encode,
    generate_ids,
    prefix_ids,
)
from vanilla_transformer.beam_search import beam_search, evaluation_mode
from vanilla_transformer.convert.exporters.stock import to_stock
from vanilla_transformer.convert.importers.vocabulary import word_tokenizer
from vanilla_transformer.errors import RequestError
from vanilla_transformer.evaluation import log_probabilities
from vanilla_transformer.evaluation.models import perplexity
from vanilla_transformer.pipeline import VanillaTransformerTranslationPipeline
from vanilla_transformer.publish.remote_code import embed_code
from vanilla_transformer.ranges import EXTRA_TOKENS
from vanilla_transformer.target_tokenizer import source_tokenizer
from vanilla_transformer.translation import translate, translate_nbest
from vanilla_transformer.translation.many_texts import length_sorted_batches
from vanilla_transformer.word_alignment import special_ids, word_alignment, word_numbers
from vanilla_transformer.written_forms import WrittenForms

TEXTS = ["a", "one two three", "", "x" * 40, "Grün, 你好 😀!", "  ", "one two three", "the last"]


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(len(tokenizer))


@pytest.fixture(scope="module")
def run_directory(tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    config = tiny_config(len(tokenizer))
    VanillaTransformerForConditionalGeneration(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def one_by_one(model, tokenizer, texts, **options):
    """Translate without batches or windows: the reference for most tests here."""
    results = []
    for text in texts:
        if not text.strip():
            results.append("")
            continue
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        bounds = {"max_new_tokens": ids.size(1) + EXTRA_TOKENS, "max_extra_tokens": None}
        found = beam_search(model, ids, **{**bounds, **options})
        results.append(tokenizer.decode(found.sequences[0, 0], skip_special_tokens=True))
    return results


# ---------------------------------------------------------------------------------- translate


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3}, {}])
def test_translations_equal_those_of_one_sentence_at_a_time(model, tokenizer, options):
    expected = one_by_one(model, tokenizer, TEXTS, **options)
    assert len(set(expected)) > 4, "the model must tell the sentences apart"
    assert list(translate(model, tokenizer, TEXTS, **options)) == expected
    small = translate(model, tokenizer, TEXTS, tokens_at_once=40, window=3, **options)
    assert list(small) == expected


@pytest.mark.parametrize(
    ("options", "beams"), [({"num_beams": 1}, 1), ({"num_beams": 3}, 3), ({}, 4)]
)
def test_batches_are_filled_to_a_budget_of_all_beams(model, tokenizer, monkeypatch, options, beams):
    shapes = []

    def decode(model, ids, mask, **options):
        shapes.append(ids.shape)
        return generate_ids(model, ids, mask, **options)

    monkeypatch.setattr("vanilla_transformer.translation.many_texts.generate_ids", decode)
    texts = ["x" * (1 + n % 13) for n in range(60)]
    list(translate(model, tokenizer, texts, tokens_at_once=160, max_new_tokens=1, **options))
    assert len(shapes) > 3
    for rows, longest in shapes[:-1]:
        assert rows * beams * longest <= 160 < (rows + 1) * beams * longest


def test_batches_hold_every_index_once_within_the_budget():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        lengths = torch.randint(0, 40, (30,), generator=generator).tolist()
        batches = list(length_sorted_batches(lengths, 60, 7))
        assert sorted(index for batch in batches for index in batch) == list(range(30))
        for batch in batches:
            assert len(batch) <= 7
            assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60


def test_translating_restores_training_mode_and_gradients(tokenizer):
    model = make_model(len(tokenizer)).train()
    model.model.encoder.eval()
    modes = [module.training for module in model.modules()]
    results = translate(model, tokenizer, ["one", "two"], num_beams=1, max_new_tokens=3, window=1)
    next(results)
    assert [module.training for module in model.modules()] == modes, "between two results as well"
    list(results)
    assert [module.training for module in model.modules()] == modes
    ids = torch.tensor([[5, 6, 2]])
    model(input_ids=ids, labels=ids).loss.backward()
    with pytest.raises(RuntimeError), evaluation_mode(model):
        raise RuntimeError
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ("one string", {}, "Got a str; give an iterable of texts"),
        (["a"], {"num_return_sequences": 2, "num_beams": 2}, "num_return_sequences"),
        (["a"], {"max_length": 1}, "max_length=1; it must be .* at least 2"),
    ],
)
def test_wrong_arguments_are_named(model, tokenizer, sentences, options, message):
    with pytest.raises(ValueError, match=message):
        list(translate(model, tokenizer, sentences, **options))


def test_words_are_decoded_without_a_clean_up_of_spaces():
    text = "a , b n't ."
    tokens = word_level(text.split())
    assert decode(tokens, torch.tensor([tokens(text)["input_ids"]])) == [text]


def test_no_more_than_a_window_of_texts_is_read_ahead(model, tokenizer):
    read = []
    blank = (read.append(n) or "" for n in range(500))
    for done, _ in enumerate(translate(model, tokenizer, blank, window=100)):
        assert len(read) <= done + 100


@pytest.mark.parametrize("limit", ["of the memory", "of the positions"])
def test_text_over_a_limit_on_the_length_is_named(tokenizer, limit, monkeypatch):
    table = {"position_encoding": "learned", "max_position_embeddings": 20}
    if limit == "of the memory":
        table = {}
        monkeypatch.setattr("vanilla_transformer.batch_translation.MAX_SOURCE_TOKENS", 20)
    model = make_model(len(tokenizer), **table)
    assert len(list(translate(model, tokenizer, ["x" * 19], num_beams=1))) == 1
    with pytest.raises(ValueError, match="Input 66 has 21 tokens; at most 20 are"):
        list(translate(model, tokenizer, ["x"] * 65 + ["x" * 20], num_beams=1))
    pipe = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)
    with pytest.raises(ValueError, match="has 21 tokens; at most 20 are"):
        pipe("x" * 20)


def test_callers_length_limit_is_kept(model, tokenizer):
    for options, bound in (({"max_new_tokens": 3}, 3), ({"max_length": 3}, 2)):
        (text,) = translate(model, tokenizer, ["a text"], num_beams=1, **options)
        assert [text] == one_by_one(model, tokenizer, ["a text"], num_beams=1, max_new_tokens=bound)
    ids = torch.tensor([[5, 2]])  # the caller's limit replaces the default one
    endless = {"num_beams": 1, "suppress_tokens": [0, 1, 2, 3]}
    bound = EXTRA_TOKENS + 20
    found = generate_ids(model, ids, torch.ones_like(ids), max_new_tokens=bound, **endless)
    assert found.sequences.size(-1) == bound


# --------------------------------------------------------------------------- which search decodes


def test_bad_words_of_a_call_go_to_generate(model, tokenizer):
    """Those of a generation config are suppressed, if each is one id."""
    assert beyond_paper_search(model, {"bad_words_ids": [[5]]}) == ["bad_words_ids"]
    several = copy.deepcopy(model)
    for words, beyond in (([[5]], []), ([[5, 6]], ["bad_words_ids of the generation config"])):
        several.generation_config.bad_words_ids = words
        assert beyond_paper_search(several, {}) == beyond


def test_an_offloaded_model_translates_and_scores_like_the_model(tokenizer):
    model = make_model(len(tokenizer))
    pairs = [("a dog", "b"), ("two men", "cd")]

    def answers():
        scores = [found.log_probability for found in log_probabilities(model, tokenizer, pairs)]
        loss = perplexity(model, [[4, 2]], [[5, 6, 2]])
        return list(translate(model, tokenizer, ["a dog"], max_new_tokens=5)), scores, loss

    expected = answers()
    cpu_offload(model, "cpu")
    assert model.device.type == "meta"
    texts, scores, loss = answers()
    assert texts == expected[0]
    assert scores == pytest.approx(expected[1])
    assert loss == pytest.approx(expected[2])


def test_compiled_model_is_searched_like_the_model(model, tokenizer):
    compiled = torch.compile(model, backend="eager")
    options = {"return_alignments": True, "max_new_tokens": 3}
    with torch.compiler.set_stance("force_eager"):
        found = list(translate_nbest(compiled, tokenizer, TEXTS[:3], **options))
    expected = list(translate_nbest(model, tokenizer, TEXTS[:3], **options))
    assert [one.text for (one,) in found] == [one.text for (one,) in expected]
    assert [one.score for (one,) in found] == pytest.approx([one.score for (one,) in expected])


def test_other_models_are_decoded_with_generate(tokenizer, model):
    marian = to_stock(VanillaTransformerForConditionalGeneration(model.config))
    inputs = tokenizer("one two", return_tensors="pt")
    ids = marian.generate(**inputs, max_new_tokens=inputs["input_ids"].size(1) + 50)
    expected = tokenizer.decode(ids[0], skip_special_tokens=True)
    assert list(translate(marian, tokenizer, ["one two"])) == [expected]


ENDLESS = {"suppress_tokens": [0, 1, 2, 3], "repetition_penalty": 1.1}  # left to `generate`


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_limits_each_translation_by_its_own_source(model, beams):
    mask = (torch.arange(9) < torch.tensor([2, 9, 5])[:, None]).long()
    options = {"num_beams": beams, "num_return_sequences": beams}
    found = generate_ids(model, 5 * mask, mask, **options, **ENDLESS).sequences
    lengths = mask.sum(dim=1, keepdim=True) + EXTRA_TOKENS
    assert torch.equal((found != 0).sum(dim=2), lengths.expand(3, beams))


def test_generate_obeys_a_calls_own_limits(model):
    """Whatever the generation config says, and beside the limit by the source."""
    marian = to_stock(VanillaTransformerForConditionalGeneration(model.config))
    marian.generation_config.max_new_tokens = 2
    ids = torch.tensor([[5, 6, 2]])
    stop = [lambda ids, _: torch.full((len(ids),), ids.size(1) >= 4)]
    for limit, size in (({"max_length": 6}, 5), ({"stopping_criteria": stop}, 3)):
        found = generate_ids(marian, ids, torch.ones_like(ids), num_beams=1, **ENDLESS, **limit)
        assert found.sequences.size(-1) == size


@pytest.mark.parametrize(
    ("pieces", "ids", "numbers"),
    [
        # U+0120, a byte-level vocabulary's sign for a space, is a letter of Maltese.
        (["\u2581\u0120o", "\u0120", "\u2581\u017c\u0120"], [4, 5, 6, 5], [0, 0, 1, 1]),
        # a-b, a, c and an unknown word, the last two after separate space pieces; </s>, padding.
        (
            ["\u2581a", "b", "\u2581", "c"],
            [4, 5, 4, 6, 7, 6, 3, 2, 0],
            [0, 0, 1, None, 2, None, 3, None, None],
        ),
        (["w5", "w6"], [4, 3, 5, 3, 3, 4], [0, 1, 2, 3, 4, 5]),  # whole words
        (["he@@", "llo", "w"], [4, 5, 3, 6], [0, 1, 2, 3]),  # prepared texts stay as they are
        (["w5", "BRANDX"], [4, 5, 4], [0, 1, 2]),
    ],
)
def test_pieces_unknown_and_added_words_belong_to_their_words(pieces, ids, numbers):
    tokens = word_level([token for token in pieces if token != "BRANDX"])
    tokens.add_tokens(["BRANDX"])
    if any("\u2581" in token for token in pieces):
        tokens.backend_tokenizer.decoder = decoders.Metaspace()
    text = tokens.decode([index for index in ids if index not in (0, 2)])
    assert word_numbers(tokens, text, ids) == numbers
    known = [None if i == 3 else number for i, number in zip(ids, numbers, strict=True)]
    left = sorted({number for number in known if number is not None})
    expected = [None if number is None else left.index(number) for number in known]
    text = tokens.decode(ids, skip_special_tokens=True)
    assert word_numbers(tokens, text, ids, unknown_words=False) == expected


SPECIALS = {"special_tokens": ["<unk>"], "show_progress": False, "vocab_size": 60}
KINDS = {  # of tokenizers: model, its trainer, pre-tokenizer, decoder
    "bytes": (
        models.BPE(),
        trainers.BpeTrainer(**SPECIALS),
        pre_tokenizers.ByteLevel(),
        decoders.ByteLevel(),
    ),
    "unigram": (
        models.Unigram(),
        trainers.UnigramTrainer(**SPECIALS, unk_token="<unk>"),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
    ),
    "word pieces": (
        models.WordPiece(),
        trainers.WordPieceTrainer(**SPECIALS),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
    ),
    "marked ends": (
        models.BPE(end_of_word_suffix="</w>"),
        trainers.BpeTrainer(**SPECIALS, end_of_word_suffix="</w>"),
        pre_tokenizers.WhitespaceSplit(),
        decoders.BPEDecoder(),
    ),
}
SPELLED = ["we played unhappily at home . don't we ?", "naïve café", "Größe, größer!"]
SPELLED += ["you  said “no”", "caf\ufffd au \ufffd lait", "你好\uff0c世界 再见"]


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_of_the_text_that_ids_spell_however_they_are_marked(kind):
    model, trainer, pre_tokenizer, decoder = KINDS[kind]
    backend = Tokenizer(model)
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoder
    backend.train_from_iterator(SPELLED, trainer)
    tokens = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    assert len(tokens(" ".join(SPELLED))["input_ids"]) > len(" ".join(SPELLED).split())
    for text in SPELLED:
        ids = tokens(text)["input_ids"]
        words = (spelled := tokens.decode(ids, clean_up_tokenization_spaces=False)).split()
        numbers = word_numbers(tokens, spelled, ids)
        assert max(n for n in numbers if n is not None) == len(words) - 1
        for number, word in enumerate(words):
            own = [index for index, each in zip(ids, numbers, strict=True) if each == number]
            assert tokens.decode(own, clean_up_tokenization_spaces=False).strip() == word


GIVEN = [  # with what normalizers leave out, split, join or replace
    "Hello \u200b my friend .",
    "He is \u00ad tired.",
    "I\ufeffam tired\u202e.",
    "it\u00b4s fine now",
    "10 ½ km",
    "Hello , world ! I am tired .",
    "Preis: 5€/kg ist gut",
    "a👍b c 👍 d",
    "a </s> b <unk> c",
    "DON'T  shout",
    "你好\uff0c世界。 再见",
]


@pytest.mark.parametrize("name", ["opus", "fsmt", "everyday-en-de", "everyday-en-zh"])
def test_words_are_those_of_the_text_as_given(name, tmp_path):
    if name == "opus":
        known = ["".join(filter(str.isascii, text)) for text in GIVEN]
        save_opus(tmp_path / name, known * 20, known, vocab_size=80)
        tokens = AutoTokenizer.from_pretrained(tmp_path / name)
    elif name == "fsmt":
        pytest.importorskip("sacremoses", reason="comes with the extra import")
        tokens = of_letters(tmp_path)
    else:
        tokens = AutoTokenizer.from_pretrained(pretrained(name))
    not_text = special_ids(tokens) - {tokens.unk_token_id}
    for text in GIVEN:
        ids, words = tokens(text)["input_ids"], text.split()
        numbers = word_numbers(source_tokenizer(tokens), text, ids)
        found = [number for number in numbers if number is not None]
        assert found == sorted(found), text
        has_text = {n for n, word in enumerate(words) if {*tokens(word)["input_ids"]} - not_text}
        assert {*found} == has_text, text


def of_letters(folder):
    """Return a tokenizer of FSMT that knows letters, with or without the end of a word."""
    letters = sorted({*"".join(GIVEN).replace(" ", "")} - {*"€👍你"})
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
    for name in ("vocab-src.json", "vocab-tgt.json"):
        (folder / name).write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("")
    (folder / "tokenizer_config.json").write_text(json.dumps({"langs": ["en", "de"]}))
    return FSMTTokenizer.from_pretrained(folder)


def test_bytes_of_a_character_belong_to_its_word():
    vocab = {"<unk>": 0, "\u2581a": 1, "b": 2, "\u2581": 3}
    vocab |= {f"<0x{byte:02X}>": 4 + n for n, byte in enumerate("ä\u3000".encode())}
    backend = Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token="<unk>"))
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps)
    tokens = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    ids = [1, 4, 5, 6, 8, 8, 2, 1]  # aä, an ideographic space, b a
    assert tokens.decode(ids).split() == ["aä", "b", "a"]
    assert word_numbers(tokens, tokens.decode(ids), ids) == [0, 0, 0, None, None, None, 1, 2]


def test_ids_beyond_the_tokenizer_belong_to_no_word(tokenizer):
    text, ids = "a dog", tokenizer("a dog")["input_ids"]
    beyond = len(tokenizer) + 5  # a table padded to a multiple of 8 or 64 has such rows
    expected = word_numbers(tokenizer, text, ids)
    assert word_numbers(tokenizer, text, [*ids[:-1], beyond]) == expected


def test_alignment_links_to_the_strongest_token_that_is_a_word(tokenizer):
    source, target = ((text, tokenizer(text)["input_ids"]) for text in ("ab c", "x yz"))
    weights = torch.zeros(len(target[1]) + 2, len(source[1]) + 1)  # with padding on both sides
    weights[:, 4] = weights[:, 5] = 9.0  # </s> and padding have the largest weights
    weights[0, 3] = 1.0  # x: c
    weights[1, 0] = 5.0  # the space is not a word
    weights[2, 0], weights[2, 1] = 0.4, 0.3  # y: a, of the first word
    weights[3, 1] = 1.0  # z: b, the same word
    assert word_alignment(tokenizer, source, target, weights) == [(0, 1), (1, 0)]
    assert word_alignment(tokenizer, ("", [2]), target, weights) == []


PREFIX = "x y"


@pytest.fixture(scope="module")
def searched(model, tokenizer):
    """Return what the search finds for each of `TEXTS` alone: 2 texts, their scores and links."""
    start = tokenizer(PREFIX, add_special_tokens=False)["input_ids"]
    expected = []
    for text in TEXTS:
        if not text.strip():
            expected.append([("", 0.0, [], None)])
            continue
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        options = {"num_beams": 2, "num_return_sequences": 2, "return_alignments": True}
        found = beam_search(model, ids, prefix=[start], **options)
        expected.append(
            [
                (
                    words,
                    pytest.approx(found.scores[0, n].item()),
                    word_alignment(
                        tokenizer,
                        (text, ids[0].tolist()),
                        (words, found.sequences[0, n].tolist()),
                        found.alignments[0, n],
                    ),
                    pytest.approx(found.token_scores[0, n].item()),
                )
                for n, words in enumerate(
                    tokenizer.batch_decode(found.sequences[0], skip_special_tokens=True)
                )
            ]
        )
    return expected


def test_prefixes_and_alignments_equal_those_of_the_search(model, tokenizer, searched):
    options = {"num_beams": 2, "num_return_sequences": 2, "return_alignments": True}
    found = list(translate_nbest(model, tokenizer, TEXTS, prefix=PREFIX, **options))
    assert [[(*one[:4],) for one in several] for several in found] == searched
    assert all(one.text.startswith(PREFIX) for several in found for one in several if one.text)
    assert len({tuple(one.alignment) for several in found for one in several}) > 3
    firsts = [several[0][0] for several in searched]
    assert list(translate(model, tokenizer, TEXTS, prefix=PREFIX, num_beams=2)) == firsts


def test_a_prefix_with_an_unknown_word_is_refused():
    special = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    words = word_tokenizer([*special.values(), "a", "b"], special, "$A eos", origin="a test")
    assert prefix_ids(words, "b a") == [5, 4]
    with pytest.raises(RequestError, match="The prefix 'b c' has words that the tokenizer lacks"):
        prefix_ids(words, "b c")


@pytest.mark.parametrize("asked", [{"prefix": "a"}, {"return_alignments": True}])
def test_prefix_and_alignments_are_rejected_when_generate_decodes(model, tokenizer, asked):
    named = rf"Got {next(iter(asked))}, which .* no_repeat_ngram_size, which it does not; leave"
    with pytest.raises(ValueError, match=named):
        list(translate(model, tokenizer, ["one"], num_beams=2, no_repeat_ngram_size=2, **asked))


# ------------------------------------------------------------------------------- the pipeline


def test_a_run_directory_translates_in_one_line(run_directory, tokenizer):
    pipe = pipeline("translate", model=str(run_directory), device="cpu")
    assert isinstance(pipe, VanillaTransformerTranslationPipeline)
    model = AutoModelForSeq2SeqLM.from_pretrained(run_directory)
    (expected,) = one_by_one(model, tokenizer, ["a sentence"])
    assert pipe("a sentence") == [{"translation_text": expected}]


@pytest.fixture(scope="module")
def pipe(model, tokenizer):
    return VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_all_input_types_give_the_same_translations(pipe, model, tokenizer, batch_size):
    datasets = pytest.importorskip("datasets", reason="comes with the extra train")
    rows = datasets.Dataset.from_dict({"source": TEXTS})
    options = {"num_beams": 2, "max_new_tokens": 5}
    texts = translate(model, tokenizer, TEXTS, **options)
    expected = [{"translation_text": text} for text in texts]
    assert [pipe(text, **options)[0] for text in TEXTS] == expected
    options["batch_size"] = batch_size
    lazy = (iter(TEXTS), (text for text in TEXTS), KeyDataset(rows, "source"), np.array(TEXTS))
    for inputs in (TEXTS, tuple(TEXTS), rows["source"]):
        assert pipe(inputs, **options) == expected
    for inputs in lazy:
        assert list(pipe(inputs, **options)) == [[one] for one in expected]
    assert pipe(np.str_(TEXTS[1]), num_beams=2, max_new_tokens=5) == [expected[1]]
    assert pipe([]) == pipe(()) == []


def test_generation_arguments_pass_through(pipe, model, tokenizer):
    several = pipe(["one", ""], num_beams=3, num_return_sequences=3, batch_size=2)
    assert [*map(len, several)] == [3, 3]
    ids = tokenizer("one", return_tensors="pt")["input_ids"]
    found = beam_search(model, ids, num_beams=3, num_return_sequences=3)
    expected = tokenizer.batch_decode(found.sequences[0], skip_special_tokens=True)
    assert [result["translation_text"] for result in several[0]] == expected
    assert several[1] == [{"translation_text": ""}] * 3
    few = {"prefix": "xq", "max_new_tokens": 2, "num_beams": 3, "num_return_sequences": 3}
    (told,) = translate_nbest(model, tokenizer, ["one"], **few)
    assert [result["translation_text"] for result in pipe("one", **few)] == [t.text for t in told]
    assert len(told) < 3
    short = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1, max_new_tokens=2)
    assert short("one") == pipe("one", max_new_tokens=2)
    with pytest.raises(ValueError, match="num_beans"):
        pipe("one", num_beans=2)


def test_blank_text_is_not_passed_to_the_model(pipe, model, monkeypatch):
    monkeypatch.setattr(type(model), "generate", lambda *_, **__: pytest.fail("was called"))
    assert pipe("") == pipe(" \n") == [{"translation_text": ""}]
    assert pipe(["", ""], batch_size=2) == [{"translation_text": ""}] * 2
    several = pipe([""], num_beams=3, num_return_sequences=3)
    assert several == [[{"translation_text": ""}] * 3]


def test_blank_text_beside_real_text_stays_blank_if_0_is_a_word():
    """So does text that the tokenizer drops."""
    tokens = Tokenizer(
        models.WordLevel({"a": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "<pad>": 4}, unk_token="<unk>")
    )
    tokens.normalizer = normalizers.Replace("\u200b", "")
    model = make_model(5, pad_token_id=4, bos_token_id=1, unk_token_id=3)
    pipe = VanillaTransformerTranslationPipeline(model, with_end(tokens), device=-1)
    real, *blank = pipe(["a", "", "\u200b"], batch_size=3, min_new_tokens=2)
    assert blank == [{"translation_text": ""}] * 2
    assert real not in blank


def test_habits_of_the_translation_pipeline_of_transformers_4(model):
    """Ids instead of texts, cut sources, tidied spaces, and languages, in a call or from the start.

    Its own results were written down with transformers 4.57.6.
    """
    tokenizer = word_level(["a", "b", "n't", "."])
    forms = WrittenForms(languages=("en", "de"), are_sentences=True)
    forms.to_tokenizer(tokenizer)
    model = make_model(len(tokenizer), max_position_embeddings=6, position_encoding="learned")
    pipe = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1)
    (found,) = pipe("a b", return_tensors=True)
    assert list(found) == ["translation_token_ids"]
    text = tokenizer.decode(found["translation_token_ids"], skip_special_tokens=True)
    assert pipe("a b") == [{"translation_text": text}]
    assert pipe("a b", src_lang="en_XX", tgt_lang="deu_Latn") == pipe(["a b"])
    with pytest.raises(ValueError, match="Got tgt_lang=fr, but the model translates en to de"):
        pipe("a b", tgt_lang="fr")
    long, cut = "a b a b a b a b", "a b a b a"
    with pytest.raises(ValueError, match="The text has 9 tokens; at most 6 are"):
        pipe(long)
    assert pipe(long, truncation=True) == pipe(cut)
    assert encode(model, tokenizer, [long, cut, "a b"], truncation=True) == encode(
        model, tokenizer, [cut, cut, "a b"]
    )
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(["a", "n't", "."])])
    assert decode(tokenizer, ids) == ["a n't ."]
    assert decode(tokenizer, ids, clean_up=True) == ["an't."]


def test_what_a_pipeline_is_made_with_holds_in_each_call(model, tokenizer):
    make = partial(VanillaTransformerTranslationPipeline, model, tokenizer, device=-1)
    text = "One. Two."
    whole, parts = (make()(text, split_sentences=it) for it in (False, True))
    assert whole != parts
    assert make(split_sentences=True)(text) == parts
    assert make(split_sentences=True)(text, split_sentences=False) == whole
    ids = make(return_tensors=True, max_new_tokens=2)("one")
    assert ids[0]["translation_token_ids"].tolist()


def test_pipeline_returns_scores_on_request(pipe, model, tokenizer):
    ids = tokenizer("one", return_tensors="pt")["input_ids"]
    found = beam_search(model, ids, num_return_sequences=2)
    options = {"num_return_sequences": 2, "return_scores": True, "batch_size": 2}
    one, blank = pipe(["one", ""], **options)
    assert [result["score"] for result in one] == pytest.approx(found.scores[0].tolist())
    assert [result["score"] for result in blank] == [0.0, 0.0]
    assert "score" not in pipe("one")[0]
    scoring = VanillaTransformerTranslationPipeline(model, tokenizer, device=-1, return_scores=True)
    assert "score" in scoring("one")[0]
    assert scoring("one", return_scores=False) == pipe("one")
    named = r"return_scores, which .* no_repeat_ngram_size, which it does not; leave"
    with pytest.raises(ValueError, match=named):
        pipe("one", return_scores=True, num_beams=2, no_repeat_ngram_size=2)
    asked = {"return_dict_in_generate": True, "output_scores": True, "num_beams": 2}
    two = pipe("one", return_scores=True, num_return_sequences=2, no_repeat_ngram_size=2, **asked)
    assert 0 > two[0]["score"] > two[1]["score"]


def test_pipeline_returns_alignments_and_accepts_a_prefix(pipe, searched):
    options = {"num_beams": 2, "num_return_sequences": 2, "prefix": PREFIX, "batch_size": 3}
    found = pipe(TEXTS, return_alignments=True, return_scores=True, **options)
    rows = [[tuple(one.values()) for one in several] for several in found]
    expected = [[(text, links, score) for text, score, links, _ in several] for several in searched]
    for got, wanted in zip(rows, expected, strict=True):
        assert [(text, links, score) for text, score, links in got][: len(wanted)] == wanted
    assert set(found[0][0]) == {"translation_text", "score", "alignment"}


def test_saved_pipeline_and_model_with_code_load_the_packages_classes(run_directory, tmp_path):
    """The installed classes are used instead of the copied code; other code stays named."""
    pipeline("translate", model=str(run_directory)).save_pretrained(tmp_path / "saved")
    shutil.copytree(run_directory, tmp_path / "coded")
    embed_code(tmp_path / "coded")
    expected = pipeline("translate", model=str(run_directory))("a sentence")
    for name in ("saved", "coded"):
        pipe = pipeline("translate", model=str(tmp_path / name))
        assert type(pipe) is VanillaTransformerTranslationPipeline
        assert pipe("a sentence") == expected
    content = json.loads((tmp_path / "coded" / "config.json").read_text())
    content["custom_pipelines"]["other"] = {"impl": "other.Pipeline"}
    content["auto_map"]["AutoModelForSequenceClassification"] = "other.Model"
    kept = VanillaTransformerConfig.from_dict(content)
    assert list(kept.custom_pipelines) == ["other"]
    assert list(kept.auto_map) == ["AutoModelForSequenceClassification"]
    reference = "configuration_vanilla_transformer.VanillaTransformerConfig"
    remote = get_class_from_dynamic_module(reference, tmp_path / "coded")
    assert "translate" in remote.from_pretrained(tmp_path / "coded").custom_pipelines
