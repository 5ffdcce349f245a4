"""The import from the Annotated Transformer, compared with a forward pass written here."""

import functools
import math

import pytest
import torch
from transformers import AutoTokenizer
from written_out import Layout, assert_logits, make_batch, sinusoids

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.importers.annotated import import_annotated

SOURCE_SIZE, TARGET_SIZE, WIDTH, HEADS = 31, 35, 16, 4
LAYERS = {"encoder": 2, "decoder": 3}
LAYOUT = Layout(
    layers={stack: f"{stack}.layers.{{}}" for stack in LAYERS},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "src_attn")},
    projections=tuple(f"linears.{number}" for number in range(4)),
    feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
    norms={
        stack: tuple(f"sublayer.{number}.norm" for number in range(count))
        for stack, count in (("encoder", 2), ("decoder", 3))
    },
    last_norm="{}.norm",
)


def make_state(*, embedding_std=None):
    """Return tensors under its names, initialized as there (Glorot, also for embeddings)."""
    state = {}
    for name, tensor in LAYOUT.tensors(LAYERS, WIDTH, 24).items():
        renamed = name.replace("norm.weight", "norm.a_2").replace("norm.bias", "norm.b_2")
        state[renamed] = tensor
    for side, size in (("src", SOURCE_SIZE), ("tgt", TARGET_SIZE)):
        table = torch.randn(size, WIDTH) * (embedding_std or 1)
        state[f"{side}_embed.0.lut.weight"] = table
        if embedding_std is None:
            torch.nn.init.xavier_uniform_(table)
        state[f"{side}_embed.1.pe"] = sinusoids(50, WIDTH)[None]
    state["generator.proj.weight"] = torch.randn(TARGET_SIZE, WIDTH) * 0.3
    state["generator.proj.bias"] = torch.randn(TARGET_SIZE) * 0.3
    return state


def norm(state, name, x):
    """Normalize with the unbiased deviation, and epsilon outside the root."""
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return state[f"{name}.a_2"] * (x - mean) / (deviation + 1e-6) + state[f"{name}.b_2"]


def logits(state, source, mask, target):
    def embed(side, ids):
        table = state[f"{side}_embed.0.lut.weight"]
        return table[ids] * math.sqrt(WIDTH) + sinusoids(ids.size(1), WIDTH).to(table.dtype)

    x = LAYOUT.states(
        *(state, embed("src", source), mask, embed("tgt", target)),
        counts=LAYERS,
        heads=dict.fromkeys(LAYERS, HEADS),
        norm_first=True,
        norm=norm,
    )
    return x @ state["generator.proj.weight"].T + state["generator.proj.bias"]


@pytest.mark.parametrize("embedding_std", [None, 0.25, 0.01])
def test_imported_logits_equal_the_equations(tmp_path, embedding_std):
    state = make_state(embedding_std=embedding_std)
    torch.save(state, tmp_path / "a.pt")
    ours = import_annotated(tmp_path / "a.pt", heads=HEADS).model
    batch = make_batch(SOURCE_SIZE, TARGET_SIZE, pad=2, start=0)
    assert_logits(ours, batch, functools.partial(logits, state))


def test_block_import_annotated(documented_command, tmp_path):
    torch.save(make_state(), tmp_path / "multi30k_model_final.pt")
    for name, size in (("source", SOURCE_SIZE), ("target", TARGET_SIZE)):
        (tmp_path / f"{name}.txt").write_text("".join(f"word{n}\n" for n in range(size)))
    documented_command("import_annotated")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/annotated")
    source = AutoTokenizer.from_pretrained("runs/annotated")
    assert source("word5 no").input_ids == [0, 5, 3, 1]
