"""The import from OpenNMT-py, compared with a forward pass written here."""

import argparse
import functools
import math

import pytest
import torch
from transformers import AutoTokenizer
from written_out import Layout, assert_logits, layer_norm, make_batch, sinusoids

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.importers.opennmt import import_opennmt
from vanilla_transformer.target_tokenizer import target_tokenizer

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE = [*SPECIAL, "the", "do@@", "gs", "run", "."]
TARGET = [*SPECIAL, "die", "Hun@@", "de", "laufen", ".", "und"]
WIDTH, INNER, HEADS = 16, 24, 4
LAYERS = {"encoder": 2, "decoder": 3}
LAYOUT = Layout(
    layers={"encoder": "encoder.transformer.{}", "decoder": "decoder.transformer_layers.{}"},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "context_attn")},
    projections=("linear_query", "linear_keys", "linear_values", "final_linear"),
    feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
    },
)
OPTIONS = {
    **{"encoder_type": "transformer", "decoder_type": "transformer", "heads": HEADS},
    **{"position_encoding": True, "max_relative_positions": 0, "copy_attn": False},
    **{"dropout": [0.1], "attention_dropout": [0.2], "pos_ffn_activation_fn": "relu"},
    **{"self_attn_type": "scaled-dot", "layer_norm": "standard"},
}


def make_state(*, bias=True, concatenated=False, tied=False):
    """Return tensors of model and generator under OpenNMT-py's names."""
    state = LAYOUT.tensors(LAYERS, WIDTH, INNER, bias=bias)
    for stack, tokens in (("encoder", SOURCE), ("decoder", TARGET)):
        prefix = f"{stack}.embeddings.make_embedding"
        state[f"{prefix}.emb_luts.0.weight"] = torch.randn(len(tokens), WIDTH) * 0.3
        state[f"{prefix}.pe.pe"] = positions(50, concatenated)[:, None]
    generator = {"0.weight": torch.randn(len(TARGET), WIDTH), "0.bias": torch.randn(len(TARGET))}
    if tied:
        generator["0.weight"] = state["decoder.embeddings.make_embedding.emb_luts.0.weight"]
    return state, generator


def positions(length, concatenated=False):
    half = WIDTH // 2
    if concatenated:  # as in the authors' code
        rates = torch.exp(torch.arange(half) * -(math.log(10000.0) / (half - 1)))
        angles = torch.arange(length)[:, None] * rates
        return torch.cat((angles.sin(), angles.cos()), dim=1)
    return sinusoids(length, WIDTH)


def save_checkpoint(path, state, generator, *, vocab=None, **options):
    path.parent.mkdir(exist_ok=True)
    if vocab is None:
        vocab = {"src": SOURCE, "tgt": TARGET, "data_task": "seq2seq"}
    options = argparse.Namespace(**{**OPTIONS, **options})
    content = {"model": state, "generator": generator, "vocab": vocab, "opt": options}
    torch.save({**content, "optim": None}, path)
    return path


def logits(state, generator, source, mask, target, *, concatenated=False, norm_eps=1e-6):
    def embed(side, ids):
        table = state[f"{side}.embeddings.make_embedding.emb_luts.0.weight"]
        return table[ids] * math.sqrt(WIDTH) + positions(ids.size(1), concatenated)

    x = LAYOUT.states(
        *(state, embed("encoder", source), mask, embed("decoder", target)),
        counts=LAYERS,
        heads=dict.fromkeys(LAYERS, HEADS),
        norm_first=True,
        norm=functools.partial(layer_norm, eps=norm_eps),
    )
    return x @ generator["0.weight"].T + generator["0.bias"]


@pytest.mark.parametrize("options", [{}, {"norm_eps": 0.01}], ids=str)
@pytest.mark.parametrize(
    "dialect", [{}, {"bias": False}, {"concatenated": True}, {"tied": True}], ids=str
)
def test_imported_logits_equal_the_equations(tmp_path, dialect, options):
    state, generator = make_state(**dialect)
    names = {name.removeprefix("0."): tensor for name, tensor in generator.items()}
    path = save_checkpoint(tmp_path / "a.pt", state, names if dialect else generator, **options)
    ours = import_opennmt(path).model
    options = {**options, "concatenated": "concatenated" in dialect}
    expected = functools.partial(logits, state, generator, **options)
    assert_logits(ours, make_batch(len(SOURCE), len(TARGET)), expected)
    tied = ours.lm_head.weight is ours.model.decoder.embed_tokens.weight
    assert tied == ("tied" in dialect)
    assert (ours.config.dropout, ours.config.attention_dropout) == (0.1, 0.2)


def test_vocabularies_give_tokenizers(tmp_path):
    path = save_checkpoint(tmp_path / "a.pt", *make_state())
    import_opennmt(path, tmp_path / "ours")
    source = AutoTokenizer.from_pretrained(tmp_path / "ours")
    target = target_tokenizer(source)
    batch = source(["the do@@ gs fly .", "run"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[4, 5, 6, 0, 8], [7, 1, 1, 1, 1]]  # no end in sources
    assert target("und .").input_ids == [9, 8, 3]
    assert target.decode([2, 4, 5, 6, 3], skip_special_tokens=True) == "die Hunde"


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({"src": "x"}, "vocab has no lists of tokens"),
        ({"src": SOURCE, "tgt": TARGET[:-1]}, "has size 9, but the model needs 10"),
        ({"src": SOURCE, "tgt": TARGET[4:]}, "the tgt list in vocab has no token '<unk>'"),
        ({"src": [*SOURCE[1:], "x"], "tgt": TARGET}, r"'<blank>' \(pad\) has id 0 in .*, but 1 in"),
    ],
    ids=str,
)
def test_vocabularies_that_do_not_fit_are_refused(tmp_path, vocab, message):
    path = save_checkpoint(tmp_path / "a.pt", *make_state(), vocab=vocab)
    with pytest.raises(ValueError, match=message):
        import_opennmt(path, tmp_path / "ours")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt"]


def test_block_import_opennmt(documented_command, tmp_path):
    save_checkpoint(tmp_path / "model_step_100000.pt", *make_state())
    documented_command("import_opennmt")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/opennmt")
