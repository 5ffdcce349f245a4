"""The import from OpenNMT-py, compared with a forward pass written here."""

import argparse
import math

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.importers.opennmt import import_opennmt
from vanilla_transformer.target_tokenizer import target_tokenizer

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE = [*SPECIAL, "the", "do@@", "gs", "run", "."]
TARGET = [*SPECIAL, "die", "Hun@@", "de", "laufen", ".", "und"]
WIDTH, INNER, HEADS = 16, 24, 4
LAYERS = {"encoder.transformer": 2, "decoder.transformer_layers": 3}
OPTIONS = {
    **{"encoder_type": "transformer", "decoder_type": "transformer", "heads": HEADS},
    **{"position_encoding": True, "max_relative_positions": 0, "copy_attn": False},
    **{"dropout": [0.1], "attention_dropout": [0.2], "pos_ffn_activation_fn": "relu"},
    **{"self_attn_type": "scaled-dot", "layer_norm": "standard"},
}


def make_state(*, bias=True, concatenated=False, tied=False):
    """Return tensors of model and generator under OpenNMT-py's names."""
    torch.manual_seed(0)
    state = {}

    def linear(name, rows, columns, *, bias=True):
        state[f"{name}.weight"] = nn.init.xavier_uniform_(torch.empty(rows, columns))
        if bias:
            state[f"{name}.bias"] = torch.randn(rows) * 0.3

    def norm(name):
        state[f"{name}.weight"] = 1 + torch.randn(WIDTH) * 0.3
        state[f"{name}.bias"] = torch.randn(WIDTH) * 0.3

    for stack, attentions, norms in (
        ("encoder.transformer", ("self_attn",), ("layer_norm",)),
        (
            "decoder.transformer_layers",
            ("self_attn", "context_attn"),
            ("layer_norm_1", "layer_norm_2"),
        ),
    ):
        for layer in (f"{stack}.{i}" for i in range(LAYERS[stack])):
            for attention in attentions:
                for part in ("linear_keys", "linear_values", "linear_query", "final_linear"):
                    linear(f"{layer}.{attention}.{part}", WIDTH, WIDTH, bias=bias)
            linear(f"{layer}.feed_forward.w_1", INNER, WIDTH)
            linear(f"{layer}.feed_forward.w_2", WIDTH, INNER)
            for name in (*norms, "feed_forward.layer_norm"):
                norm(f"{layer}.{name}")
        side = stack.split(".")[0]
        norm(f"{side}.layer_norm")
        tokens = SOURCE if side == "encoder" else TARGET
        prefix = f"{side}.embeddings.make_embedding"
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
    rates = torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def save_checkpoint(path, state, generator, *, vocab=None, **options):
    path.parent.mkdir(exist_ok=True)
    if vocab is None:
        vocab = {"src": SOURCE, "tgt": TARGET, "data_task": "seq2seq"}
    options = argparse.Namespace(**{**OPTIONS, **options})
    content = {"model": state, "generator": generator, "vocab": vocab, "opt": options}
    torch.save({**content, "optim": None}, path)
    return path


def logits(state, generator, source, mask, target, *, concatenated=False, norm_eps=1e-6):
    def norm(name, x):
        weights = (state[f"{name}.weight"], state[f"{name}.bias"])
        return nn.functional.layer_norm(x, (WIDTH,), *weights, eps=norm_eps)

    def linear(name, x):
        return nn.functional.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def attend(name, x, memory, allowed):
        query, key, value = (
            linear(f"{name}.linear_{part}", states).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part, states in (("query", x), ("keys", memory), ("values", memory))
        )
        scores = (query / math.sqrt(WIDTH // HEADS)) @ key.transpose(2, 3)
        weights = scores.masked_fill(~allowed[:, None], -1e18).softmax(-1)
        return linear(f"{name}.final_linear", (weights @ value).transpose(1, 2).flatten(2))

    def feed_forward(layer, x):
        inner = linear(
            f"{layer}.feed_forward.w_1", norm(f"{layer}.feed_forward.layer_norm", x)
        ).relu()
        return linear(f"{layer}.feed_forward.w_2", inner) + x

    def embed(side, ids):
        table = state[f"{side}.embeddings.make_embedding.emb_luts.0.weight"]
        return table[ids] * math.sqrt(WIDTH) + positions(ids.size(1), concatenated)

    real, x = mask.bool()[:, None], embed("encoder", source)
    for layer in (f"encoder.transformer.{i}" for i in range(2)):
        y = norm(f"{layer}.layer_norm", x)
        x = feed_forward(layer, attend(f"{layer}.self_attn", y, y, real) + x)
    memory = norm("encoder.layer_norm", x)
    causal = torch.ones(1, target.size(1), target.size(1), dtype=torch.bool).tril()
    x = embed("decoder", target)
    for layer in (f"decoder.transformer_layers.{i}" for i in range(3)):
        y = norm(f"{layer}.layer_norm_1", x)
        x = attend(f"{layer}.self_attn", y, y, causal) + x
        y = norm(f"{layer}.layer_norm_2", x)
        x = feed_forward(layer, attend(f"{layer}.context_attn", y, memory, real) + x)
    x = norm("decoder.layer_norm", x)
    return x @ generator["0.weight"].T + generator["0.bias"]


def make_batch():
    torch.manual_seed(1)
    source = torch.randint(4, len(SOURCE), (3, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    target = torch.randint(4, len(TARGET), (3, 7))
    target[:, 0] = 2
    return source.masked_fill(mask == 0, 1), mask, target


@pytest.mark.parametrize("options", [{}, {"norm_eps": 0.01}], ids=str)
@pytest.mark.parametrize(
    "dialect", [{}, {"bias": False}, {"concatenated": True}, {"tied": True}], ids=str
)
def test_imported_logits_equal_the_equations(tmp_path, dialect, options):
    state, generator = make_state(**dialect)
    names = {name.removeprefix("0."): tensor for name, tensor in generator.items()}
    path = save_checkpoint(tmp_path / "a.pt", state, names if dialect else generator, **options)
    import_opennmt(path, tmp_path / "ours")
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    batch = make_batch()
    with torch.no_grad():
        concatenated = "concatenated" in dialect
        expected = logits(state, generator, *batch, concatenated=concatenated, **options)
        torch.testing.assert_close(ours(*batch).logits, expected, atol=1e-5, rtol=0)
    tied = ours.lm_head.weight is ours.model.decoder.embed_tokens.weight
    assert tied == ("tied" in dialect)
    assert (ours.config.dropout, ours.config.attention_dropout) == (0.1, 0.2)


def test_vocabularies_give_tokenizers_and_the_start_symbol(tmp_path):
    path = save_checkpoint(tmp_path / "a.pt", *make_state())
    import_opennmt(path, tmp_path / "ours")
    source = AutoTokenizer.from_pretrained(tmp_path / "ours")
    target = target_tokenizer(source)
    batch = source(["the do@@ gs fly .", "run"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[4, 5, 6, 0, 8], [7, 1, 1, 1, 1]]  # no end in sources
    assert target("und .").input_ids == [9, 8, 3]
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    ids = ours.generate(**batch, max_new_tokens=6)
    assert (ids[:, 0] == 2).all()
    assert not set(ids[:, 1:].flatten().tolist()) & {0, 2}
    assert target.decode([2, 4, 5, 6, 3], skip_special_tokens=True) == "die Hunde"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_type": "brnn"}, "encoder_type='brnn'"),
        ({"max_relative_positions": 20}, "max_relative_positions=20.*allowed: 0"),
        ({"copy_attn": True}, "copy_attn=True"),
        ({"layer_norm": "rms"}, "layer_norm='rms'.*allowed: 'standard'"),
        ({"pos_ffn_activation_fn": "gated-gelu"}, "'gated-gelu'"),
        ({"heads": "x"}, "heads is 'x'; it must be a number"),
        ({"dropout": []}, "dropout is a list; it must be a number"),
        ({"vocab": {"src": "x"}}, "vocab holds no lists of tokens"),
        ({"vocab": {"src": SOURCE, "tgt": TARGET[:-1]}}, "holds 9 tokens, but the model has 10"),
        ({"vocab": {"src": SOURCE, "tgt": TARGET[4:]}}, "holds no '<unk>'"),
        ({"vocab": {"src": [*SOURCE[1:], "x"], "tgt": TARGET}}, "'<blank>' has two ids"),
    ],
    ids=str,
)
def test_unsupported_settings_are_refused_with_the_reason(tmp_path, options, message):
    path = save_checkpoint(tmp_path / "a.pt", *make_state(), **options)
    with pytest.raises(ValueError, match=message):
        import_opennmt(path, tmp_path / "ours")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (
            "encoder.embeddings.make_embedding.pe.pe",
            torch.zeros(50, 1, WIDTH),
            "positions that are not sinusoids",
        )
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path, name, tensor, message):
    state, generator = make_state()
    state[name] = tensor
    path = save_checkpoint(tmp_path / "a.pt", state, generator)
    with pytest.raises(ValueError, match=message):
        import_opennmt(path, tmp_path / "ours")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt"]


def test_torch_files_of_other_content_are_refused(tmp_path):
    torch.save({"model": {}}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="it holds no generator, opt, vocab"):
        import_opennmt(tmp_path / "a.pt")


def test_block_import_opennmt(documented_command, tmp_path):
    save_checkpoint(tmp_path / "model_step_100000.pt", *make_state())
    documented_command("import_opennmt")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/opennmt")
