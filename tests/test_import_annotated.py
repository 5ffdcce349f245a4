"""The import from the Annotated Transformer, compared with a forward pass written here."""

import math
import re

import pytest
import torch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert.importers.annotated import import_annotated

SOURCE_SIZE, TARGET_SIZE, WIDTH, HEADS = 31, 35, 16, 4
ENCODER_LAYERS, DECODER_LAYERS, INNER = 2, 3, 24


def make_state(*, embedding_std=None, seed=0):
    """Return tensors under its names, initialized as there (Glorot, also for embeddings)."""
    torch.manual_seed(seed)
    state = {}

    def matrix(name, rows, columns, *, bias=True):
        state[f"{name}.weight"] = torch.nn.init.xavier_uniform_(torch.empty(rows, columns))
        if bias:
            state[f"{name}.bias"] = torch.randn(rows) * 0.3

    def norm(name):
        state[f"{name}.a_2"] = 1 + torch.randn(WIDTH) * 0.3
        state[f"{name}.b_2"] = torch.randn(WIDTH) * 0.3

    stacks = (
        ("encoder", ENCODER_LAYERS, ("self_attn",)),
        ("decoder", DECODER_LAYERS, ("self_attn", "src_attn")),
    )
    for stack, layers, attentions in stacks:
        for layer in (f"{stack}.layers.{i}" for i in range(layers)):
            for attention in attentions:
                for number in range(4):
                    matrix(f"{layer}.{attention}.linears.{number}", WIDTH, WIDTH)
            matrix(f"{layer}.feed_forward.w_1", INNER, WIDTH)
            matrix(f"{layer}.feed_forward.w_2", WIDTH, INNER)
            for number in range(len(attentions) + 1):
                norm(f"{layer}.sublayer.{number}.norm")
        norm(f"{stack}.norm")
    for side, size in (("src", SOURCE_SIZE), ("tgt", TARGET_SIZE)):
        matrix(f"{side}_embed.0.lut", size, WIDTH, bias=False)
        if embedding_std:
            state[f"{side}_embed.0.lut.weight"] = torch.randn(size, WIDTH) * embedding_std
        state[f"{side}_embed.1.pe"] = positions(50)[None]
    matrix("generator.proj", TARGET_SIZE, WIDTH)
    return state


def positions(length):
    table = torch.zeros(length, WIDTH)
    rates = torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
    angles = torch.arange(length)[:, None] * rates
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return table


def norm(state, name, x):
    """Normalize with the unbiased deviation, and epsilon outside the root."""
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return state[f"{name}.a_2"] * (x - mean) / (deviation + 1e-6) + state[f"{name}.b_2"]


def linear(state, name, x):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def attention(state, name, x, memory, allowed):
    query, key, value = (
        linear(state, f"{name}.linears.{number}", states)
        .view(x.size(0), -1, HEADS, WIDTH // HEADS)
        .transpose(1, 2)
        for number, states in enumerate((x, memory, memory))
    )
    scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
    scores = scores.masked_fill(allowed.unsqueeze(1) == 0, -1e9)
    heads = scores.softmax(-1) @ value
    heads = heads.transpose(1, 2).reshape(x.size(0), -1, WIDTH)
    return linear(state, f"{name}.linears.3", heads)


def feed_forward(state, name, x):
    return linear(state, f"{name}.w_2", linear(state, f"{name}.w_1", x).relu())


def log_probabilities(state, source, mask, target):
    def embed(side, ids):
        table = state[f"{side}_embed.0.lut.weight"]
        return table[ids] * math.sqrt(WIDTH) + positions(ids.size(1)).to(table.dtype)

    allowed = mask[:, None]
    x = embed("src", source)
    for layer in (f"encoder.layers.{i}" for i in range(ENCODER_LAYERS)):
        y = norm(state, f"{layer}.sublayer.0.norm", x)
        x = x + attention(state, f"{layer}.self_attn", y, y, allowed)
        y = norm(state, f"{layer}.sublayer.1.norm", x)
        x = x + feed_forward(state, f"{layer}.feed_forward", y)
    memory = norm(state, "encoder.norm", x)
    causal = torch.ones(1, target.size(1), target.size(1)).tril()
    x = embed("tgt", target)
    for layer in (f"decoder.layers.{i}" for i in range(DECODER_LAYERS)):
        y = norm(state, f"{layer}.sublayer.0.norm", x)
        x = x + attention(state, f"{layer}.self_attn", y, y, causal)
        y = norm(state, f"{layer}.sublayer.1.norm", x)
        x = x + attention(state, f"{layer}.src_attn", y, memory, allowed)
        y = norm(state, f"{layer}.sublayer.2.norm", x)
        x = x + feed_forward(state, f"{layer}.feed_forward", y)
    x = norm(state, "decoder.norm", x)
    return linear(state, "generator.proj", x).log_softmax(-1)


def make_batch():
    torch.manual_seed(1)
    source = torch.randint(4, SOURCE_SIZE, (3, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    target = torch.randint(4, TARGET_SIZE, (3, 7))
    target[:, 0] = 0
    return source.masked_fill(mask == 0, 2), mask, target


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("embedding_std", [None, 0.25, 0.01])
def test_imported_log_probabilities_equal_the_equations(tmp_path, embedding_std, prefix):
    state = make_state(embedding_std=embedding_std)
    torch.save({f"{prefix}{name}": tensor for name, tensor in state.items()}, tmp_path / "a.pt")
    import_annotated(tmp_path / "a.pt", tmp_path / "ours", heads=HEADS)
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "ours")
    batch = make_batch()
    with torch.no_grad():
        expected = log_probabilities(state, *batch)
        found = ours(*batch).logits.log_softmax(-1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    state = make_state()
    name = next(iter(state))
    state[name].flatten()[0] = torch.nan
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=rf"{re.escape(name)} .*a\.pt holds NaN or infinity"):
        import_annotated(tmp_path / "a.pt", tmp_path / "ours", heads=HEADS)
    assert not (tmp_path / "ours").exists()


def test_only_the_position_of_epsilon_differs(tmp_path):
    """In double precision, where rounding hides nothing, the difference is about epsilon."""
    state = make_state()
    torch.save(state, tmp_path / "a.pt")
    ours = import_annotated(tmp_path / "a.pt", heads=HEADS).model.double()
    batch = make_batch()
    with torch.no_grad():
        expected = log_probabilities({k: v.double() for k, v in state.items()}, *batch)
        difference = (ours(*batch).logits.log_softmax(-1) - expected).abs().max().item()
    assert 1e-9 < difference < 1e-5


def test_generation_starts_from_the_start_symbol(tmp_path):
    torch.save(make_state(), tmp_path / "a.pt")
    ours = import_annotated(tmp_path / "a.pt", heads=HEADS).model
    source, mask, _ = make_batch()
    ids = ours.generate(source, attention_mask=mask, max_new_tokens=8)
    assert (ids[:, 0] == 0).all()
    assert not set(ids[:, 1:].flatten().tolist()) & {0, 3}
    assert ours.generation_config.suppress_tokens == [0, 2, 3]


def test_annotated_vocabularies_give_the_ids_of_the_model(tmp_path):
    torch.save(make_state(), tmp_path / "a.pt")
    special = ["<s>", "</s>", "<blank>", "<unk>"]
    for side, size in (("source", SOURCE_SIZE), ("target", TARGET_SIZE)):
        words = [f"{side}{number}" for number in range(size - 4)]
        (tmp_path / f"{side}.txt").write_text("\n".join([*special, *words]))
    vocabularies = {f"{side}_vocab": tmp_path / f"{side}.txt" for side in ("source", "target")}
    imported = import_annotated(tmp_path / "a.pt", heads=HEADS, **vocabularies)
    assert imported.tokenizer("source1 no").input_ids == [0, 5, 3, 1]
    assert imported.target_tokenizer("target1").input_ids == [0, 5, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.update({"src_embed.1.pe": torch.zeros(1, 50, WIDTH)}),
            r"src_embed\.1\.pe holds positions that are not the sinusoids",
        )
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path, change, message):
    state = make_state()
    change(state)
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=message):
        import_annotated(tmp_path / "a.pt", tmp_path / "ours", heads=HEADS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt"]


def test_block_import_annotated(documented_command, tmp_path):
    torch.save(make_state(), tmp_path / "multi30k_model_final.pt")
    for name, size in (("source", SOURCE_SIZE), ("target", TARGET_SIZE)):
        (tmp_path / f"{name}.txt").write_text("".join(f"word{n}\n" for n in range(size)))
    documented_command("import_annotated")
    VanillaTransformerForConditionalGeneration.from_pretrained("runs/annotated")
