"""The import from fairseq, compared with FSMT of transformers; pre-norm is written out here."""

import argparse
import functools
from collections import OrderedDict

import numpy as np
import pytest
import torch
from test_import_fsmt import make_fsmt as fsmt_of
from transformers import AutoTokenizer
from written_out import Layout, assert_logits, make_batch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.importers.fairseq import import_fairseq, read_dictionary
from vanilla_transformer.target_tokenizer import target_tokenizer

WORDS = ["the", "do@@", "gs", "run", ".", "caf\u00e9", "madeupword0000"]
SIZE = 4 + len(WORDS)
OPTIONS = {
    **{"arch": "transformer_wmt_en_de", "source_lang": "en", "target_lang": "de"},
    **{"encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_embed_dim": 20},
    **{"decoder_ffn_embed_dim": 28, "encoder_attention_heads": 4, "decoder_attention_heads": 2},
    **{"encoder_embed_dim": 16, "decoder_embed_dim": 16, "dropout": 0.2, "relu_dropout": 0.1},
    **{"max_source_positions": 40, "max_target_positions": 30, "share_all_embeddings": False},
}


def make_fsmt(*, tied=False, target_size=SIZE, scaled=True, activation="relu"):
    options = {"src_vocab_size": SIZE, "tgt_vocab_size": target_size, "scale_embedding": scaled}
    options |= {"tie_word_embeddings": tied, "activation_function": activation}
    return fsmt_of(**options)


def fairseq_tensors(fsmt):
    """Return the tensors under fairseq's names, with the other tensors of its checkpoints."""
    tensors = OrderedDict(
        (name.removeprefix("model."), tensor.clone())
        for name, tensor in fsmt.state_dict().items()
        if "embed_positions" not in name
    )
    for stack in ("encoder", "decoder"):
        tensors[f"{stack}.version"] = torch.tensor([3.0])
        tensors[f"{stack}.embed_positions._float_tensor"] = torch.zeros(1)
    return tensors


def save_checkpoint(path, tensors, *, modern=True, **options):
    path.parent.mkdir(exist_ok=True)
    options = argparse.Namespace(**{**OPTIONS, **options})
    if modern:
        task = {"_name": "translation", "source_lang": "en", "target_lang": "de"}
        config = {"args": None, "cfg": {"_name": None, "model": options, "task": task}}
    else:
        config = {"args": options}
    extra = {"epoch": 3, "best": np.float64(4.2), "train_iterator": {"epoch": np.int64(3)}}
    torch.save({**config, "model": tensors, "extra_state": extra}, path)
    return path


def save_dictionaries(folder, *languages):
    for language in languages:
        lines = [f"{word} {9 - number}" for number, word in enumerate(WORDS)]
        (folder / f"dict.{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def assert_equal_logits(fsmt, ours):
    assert_logits(ours, make_batch(SIZE), lambda *batch: fsmt(*batch, use_cache=False).logits)


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"target_size": 13}, {}),
        ({"tied": True}, {"share_all_embeddings": True}),
        ({"scaled": False}, {"no_scale_embedding": True}),
        ({"activation": "gelu"}, {"activation_fn": "gelu"}),
        ({"activation": "gelu_new"}, {"activation_fn": "gelu_accurate"}),
    ],
    ids=str,
)
def test_imported_logits_equal_those_of_fairseq(tmp_path, sizes, options, modern):
    fsmt = make_fsmt(**sizes)
    tensors = fairseq_tensors(fsmt)
    if sizes.get("tied"):
        del tensors["decoder.output_projection.weight"]
    path = save_checkpoint(tmp_path / "run" / "best.pt", tensors, modern=modern, **options)
    ours = import_fairseq(path).model
    assert_equal_logits(fsmt, ours)
    assert (ours.lm_head.weight is ours.model.decoder.embed_tokens.weight) == bool(
        sizes.get("tied")
    )
    assert ours.config.dropout == 0.2
    assert ours.config.activation_dropout == 0.1
    assert ours.config.max_position_embeddings == 30  # of the side that has fewer


def test_names_of_the_users_own_are_noted_and_tensors_decide(tmp_path):
    own = {"arch": "my_transformer_base", "task": "my_translation"}
    tensors = fairseq_tensors(make_fsmt())
    imported = import_fairseq(save_checkpoint(tmp_path / "a.pt", tensors, **own))
    assert_equal_logits(make_fsmt(), imported.model)
    note = imported.notes[0]
    assert note.endswith("on the model: arch='my_transformer_base', task='my_translation'.")
    language_model = {name: it for name, it in tensors.items() if "encoder" not in name}
    path = save_checkpoint(tmp_path / "b.pt", language_model, arch="transformer_lm_big")
    with pytest.raises(ValueError, match="missing: encoder"):
        import_fairseq(path)


def test_tensor_names_of_early_fairseq_versions_are_read(tmp_path):
    fsmt = make_fsmt()
    tensors = fairseq_tensors(fsmt)
    numbers = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    for name in list(tensors):
        for norm, number in numbers.items():
            if norm in name:
                number = 1 if name.startswith("encoder") and number == 2 else number
                tensors[name.replace(norm, f"layer_norms.{number}")] = tensors.pop(name)
        if "q_proj" in name:
            parts = [tensors.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            tensors[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    tensors["decoder.embed_out"] = tensors.pop("decoder.output_projection.weight")
    for stack in ("encoder", "decoder"):
        positions = fsmt.get_submodule(f"model.{stack}.embed_positions").weight
        tensors[f"{stack}.embed_positions.weights"] = positions.clone()
    path = save_checkpoint(tmp_path / "old.pt", tensors, modern=False)
    assert_equal_logits(fsmt, import_fairseq(path).model)


# ------------------------------------------------------ pre-norm and learned positions, written out


LAYERS = {"encoder": 2, "decoder": 3}
LAYOUT = Layout(
    layers={stack: f"{stack}.layers.{{}}" for stack in LAYERS},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")},
    projections=("q_proj", "k_proj", "v_proj", "out_proj"),
    feed_forward=("fc1", "fc2"),
    norms={
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    },
)


def prenorm_logits(tensors, source, mask, target):
    """Compute the logits of a model with pre-norm layers and learned positions."""

    def embed(stack, ids):
        real = ids != 1
        positions = real.cumsum(1) * real + 1  # padding has a row of its own
        table = tensors[f"{stack}.embed_positions.weight"]
        return 4 * tensors[f"{stack}.embed_tokens.weight"][ids] + table[positions]

    x = LAYOUT.states(
        *(tensors, embed("encoder", source), mask, embed("decoder", target)),
        counts=LAYERS,
        heads={"encoder": 4, "decoder": 2},
        norm_first=True,
    )
    return x @ tensors["decoder.output_projection.weight"].t()


def test_prenorm_with_learned_positions_gives_equal_logits(tmp_path):
    tensors, options = fairseq_tensors(make_fsmt()), {}
    for stack, rows in (("encoder", 42), ("decoder", 32)):
        tensors[f"{stack}.layer_norm.weight"] = 1 + torch.randn(16) * 0.3
        tensors[f"{stack}.layer_norm.bias"] = torch.randn(16) * 0.3
        tensors[f"{stack}.embed_positions.weight"] = torch.randn(rows, 16)
        del tensors[f"{stack}.embed_positions._float_tensor"]
        options |= {f"{stack}_normalize_before": True, f"{stack}_learned_pos": True}
    imported = import_fairseq(save_checkpoint(tmp_path / "a.pt", tensors, **options))
    model = imported.model
    assert any("positions; only the first 30 are used." in note for note in imported.notes)
    assert_logits(model, make_batch(SIZE), functools.partial(prenorm_logits, tensors))
    assert model.config.max_position_embeddings == 30  # the shorter of both tables


# --------------------------------------------------------------------- dictionaries and generation


def test_tokenizer_gives_the_ids_of_the_dictionary(tmp_path):
    path = save_checkpoint(tmp_path / "data" / "a.pt", fairseq_tensors(make_fsmt()))
    save_dictionaries(path.parent, "en", "de")
    imported = import_fairseq(path, tmp_path / "ours")
    assert target_tokenizer(imported.tokenizer) is imported.tokenizer
    assert not imported.notes
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert read_dictionary(path.parent / "dict.en.txt") == ["<s>", "<pad>", "</s>", "<unk>", *WORDS]
    text = "the  do@@ gs\trun \u2003caf\u00e9 fly ."
    ids = [4, 5, 6, 7, 9, 3, 8, 2]  # by hand: words from 4, unknown 3, the end 2
    assert tokenizer(text).input_ids == ids
    assert tokenizer(text_target=text).input_ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the dogs run caf\u00e9 ."
    assert tokenizer.decode([2], skip_special_tokens=True) == ""
    # fairseq looks these up like any word.
    assert tokenizer("the </s> the</s>").input_ids == [4, 2, 3, 2]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (1, 2)


def test_words_that_overwrite_earlier_ones_have_their_ids(tmp_path):
    """As fairseq reads them: a text's "<unk>" is 4 and "the" 6, and an unknown word still 3."""
    path = save_checkpoint(tmp_path / "data" / "a.pt", fairseq_tensors(make_fsmt()))
    text = "<unk> 9 #fairseq:overwrite\nthe 8\nthe 7 #fairseq:overwrite\na 6\nb 5\nc 4\nd 3\n"
    for language in ("en", "de"):
        (path.parent / f"dict.{language}.txt").write_text(text)
    import_fairseq(path, tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer("<unk> the fly a").input_ids == [4, 6, 3, 7, 2]
    assert (tokenizer.unk_token_id, tokenizer.eos_token_id) == (3, 2)
    assert tokenizer.decode([4, 6, 3, 7, 2], skip_special_tokens=True) == "<unk> the a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 3\n", r"dict\.de\.txt has size 5, but the model needs 11"),
        ("the\n", r"line 1, is not a token and count"),
        ("the 3\n" * 7, "holds 'the' twice"),
    ],
)
def test_dictionaries_that_do_not_fit_are_refused(tmp_path, text, message):
    path = save_checkpoint(tmp_path / "data" / "a.pt", fairseq_tensors(make_fsmt()))
    save_dictionaries(path.parent, "en")
    (path.parent / "dict.de.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        import_fairseq(path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_block_import_fairseq(documented_command, tmp_path):
    path = tmp_path / "wmt16" / "checkpoint_best.pt"
    save_checkpoint(path, fairseq_tensors(make_fsmt()))
    save_dictionaries(path.parent, "en", "de")
    documented_command("import_fairseq")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/wmt16-en-de")
    assert AutoTokenizer.from_pretrained("runs/wmt16-en-de")("the").input_ids == [4, 2]
