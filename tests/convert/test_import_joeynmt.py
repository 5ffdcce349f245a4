"""The import from Joey NMT, compared with the equations of its code."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
import written_out
import yaml
from torch import nn
from transformers import AutoTokenizer
from written_out import Layout, assert_logits, make_batch, sinusoids

from vanilla_transformer.convert.importers.joeynmt import import_joeynmt
from vanilla_transformer.target_tokenizer import target_tokenizer

SOURCE = ["<unk>", "<pad>", "<s>", "</s>", "the", "do@@", "gs", "run", "."]
TARGET = ["<unk>", "<pad>", "<s>", "</s>", "die", "Hun@@", "de", "laufen", ".", "und"]
WIDTH, INNER, LAYERS, HEADS = 16, 24, {"encoder": 2, "decoder": 3}, {"encoder": 4, "decoder": 2}


def settings(*, layer_norm="post", tied=False, scale=True, activation="relu", **stack):
    def one(name):
        return {
            **{"type": "transformer", "num_layers": LAYERS[name], "num_heads": HEADS[name]},
            "embeddings": {"embedding_dim": WIDTH, "scale": scale},
            **{"hidden_size": WIDTH, "ff_size": INNER, "dropout": 0.1, "layer_norm": layer_norm},
            **{"activation": activation, **stack},
        }

    symbols = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
    return {
        "name": "tiny",
        "data": {"special_symbols": {f"{role}_id": value for role, value in symbols.items()}},
        "model": {
            **{"tied_embeddings": tied, "tied_softmax": tied},
            **{name: one(name) for name in LAYERS},
        },
    }


LAYOUT = Layout(
    layers={stack: f"{stack}.layers.{{}}" for stack in LAYERS},
    attentions={"encoder": ("src_src_att",), "decoder": ("trg_trg_att", "src_trg_att")},
    projections=("q_layer", "k_layer", "v_layer", "output_layer"),
    feed_forward=("feed_forward.pwff_layer.0", "feed_forward.pwff_layer.3"),
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("x_layer_norm", "dec_layer_norm", "feed_forward.layer_norm"),
    },
)


def make_state(*, layer_norm="post", tied=False):
    """Return tensors under Joey NMT's names."""
    state = LAYOUT.tensors(LAYERS, WIDTH, INNER, last_norm=layer_norm == "pre")
    for stack in LAYERS:
        state[f"{stack}.pe.pe"] = sinusoids(50, WIDTH)[None]
    sizes = {"src": len(SOURCE), "trg": len(SOURCE if tied else TARGET)}
    for side, size in sizes.items():
        state[f"{side}_embed.lut.weight"] = torch.randn(size, WIDTH)
    state["decoder.output_layer.weight"] = torch.randn(sizes["trg"], WIDTH)
    if tied:
        state["trg_embed.lut.weight"] = state["src_embed.lut.weight"]
        state["decoder.output_layer.weight"] = state["src_embed.lut.weight"]
    return state


def save_directory(folder, state, config, *, tied=False):
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for side, tokens in (("src", SOURCE), ("trg", SOURCE if tied else TARGET)):
        (folder / f"{side}_vocab.txt").write_text("\n".join(tokens) + "\n")
    # What Joey NMT stores besides the weights.
    extra = {"steps": 7, "best_ckpt_score": np.float64(3.5), "optimizer_state": {"state": {}}}
    torch.save({"model_state": state, **extra}, folder / "best.ckpt")
    return folder


def joey_logits(state, source, mask, target, *, layer_norm, scale, activation):
    function = {"relu": torch.relu, "gelu": nn.functional.gelu, "swish": nn.functional.silu}

    def embed(side, ids):
        table = state[f"{side}_embed.lut.weight"] * (math.sqrt(WIDTH) if scale else 1.0)
        return table[ids] + sinusoids(ids.size(1), WIDTH)

    x = LAYOUT.states(
        *(state, embed("src", source), mask, embed("trg", target)),
        counts=LAYERS,
        heads=HEADS,
        norm_first=layer_norm == "pre",
        norm=functools.partial(written_out.layer_norm, eps=1e-6),
        activation=function[activation],
    )
    return x @ state["decoder.output_layer.weight"].T


DIALECTS = [
    {"layer_norm": "post", "scale": True, "activation": "relu", "tied": False},
    {"layer_norm": "pre", "scale": True, "activation": "swish", "tied": True},
    {"layer_norm": "pre", "scale": False, "activation": "gelu", "tied": True},
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_imported_logits_equal_the_equations_of_joeynmt(tmp_path, dialect):
    options = dict(dialect)
    tied = options.pop("tied")
    state = make_state(layer_norm=options["layer_norm"], tied=tied)
    config = settings(tied=tied, **options)
    folder = save_directory(tmp_path / "joey", state, config, tied=tied)
    ours = import_joeynmt(folder).model
    assert_logits(ours, make_batch(len(SOURCE)), functools.partial(joey_logits, state, **options))
    target = ours.model.decoder.embed_tokens.weight
    assert (ours.lm_head.weight is target) == (tied and options["scale"])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scales", [*itertools.product([True, False, None], repeat=2)])
def test_both_tables_are_scaled_alike(tmp_path, tied, scales):
    """Joey's default is no scale; one table for both sides has that of the encoder."""
    state, config = make_state(tied=tied), settings(tied=tied)
    for stack, scale in zip(LAYERS, scales, strict=True):
        config["model"][stack]["embeddings"] = {} if scale is None else {"scale": scale}
    folder = save_directory(tmp_path / "joey", state, config, tied=tied)
    if not tied and bool(scales[0]) != bool(scales[1]):
        with pytest.raises(ValueError, match=r"has embeddings\.scale=.*need the same value"):
            import_joeynmt(folder)
        return
    ours, options = import_joeynmt(folder).model, {"layer_norm": "post", "activation": "relu"}
    expected = functools.partial(joey_logits, state, scale=bool(scales[0]), **options)
    assert_logits(ours, make_batch(len(SOURCE)), expected)


def test_stacks_without_sizes_have_those_of_joeynmt(tmp_path, monkeypatch):
    """Encoder and decoder differ, and no tensor tells the number of heads."""
    for sizes, encoder, decoder in ((LAYERS, 8, 4), (HEADS, 4, 8)):
        monkeypatch.setitem(sizes, "encoder", encoder)
        monkeypatch.setitem(sizes, "decoder", decoder)
    config, state = settings(), make_state()
    for stack in LAYERS:
        del config["model"][stack]["num_layers"], config["model"][stack]["num_heads"]
    ours = import_joeynmt(save_directory(tmp_path / "joey", state, config)).model
    options = {"layer_norm": "post", "scale": True, "activation": "relu"}
    assert_logits(ours, make_batch(len(SOURCE)), functools.partial(joey_logits, state, **options))


def test_vocabularies_give_tokenizers(tmp_path):
    folder = save_directory(tmp_path / "joey", make_state(), settings())
    import_joeynmt(folder, tmp_path / "ours")
    source = AutoTokenizer.from_pretrained(tmp_path / "ours")
    target = target_tokenizer(source)
    batch = source(["the do@@ gs run fast .", "run"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[4, 5, 6, 7, 0, 8, 3], [7, 3, 1, 1, 1, 1, 1]]
    assert target.decode([2, 4, 5, 6, 7, 3], skip_special_tokens=True) == "die Hunde laufen"


def test_default_layer_norm_is_pre_norm_and_needs_last_norms(tmp_path):
    """Without them Joey builds a pre-norm encoder without a last norm, and a post-norm decoder."""
    config = settings()
    for name in LAYERS:
        del config["model"][name]["layer_norm"]
    folder = save_directory(tmp_path / "pre", make_state(layer_norm="pre"), config)
    assert import_joeynmt(folder).model.config.norm_first
    folder = save_directory(tmp_path / "joey", make_state(), config)
    with pytest.raises(ValueError, match="the pre-norm encoder has no final norm"):
        import_joeynmt(folder)


def test_the_best_checkpoint_of_a_folder_is_taken(tmp_path):
    state = make_state()
    folder = save_directory(tmp_path / "joey", state, settings())
    bias = state["encoder.layers.0.src_src_att.q_layer.bias"]
    (folder / "best.ckpt").unlink()
    for rank, name in enumerate(("latest.ckpt", "avg_best.ckpt", "best.ckpt")):
        bias.fill_(rank)
        torch.save({"model_state": state}, folder / name)
        model = import_joeynmt(folder).model
        assert (model.model.encoder.layers[0].self_attn.q_proj.bias == rank).all()
