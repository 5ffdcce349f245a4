"""A decoder layer in few calls: equal to its modules, and not used where modules have hooks."""

import copy

import pytest
import torch
from slow_path import only_where_onednn_packs, without_fast_path
from torch import nn
from wandering_model import make_model, make_sources

from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.fast import onednn
from vanilla_transformer.fast.incremental_decoding import (
    FoldedSource,
    FusedLayer,
    GrowingRows,
    LayerMemory,
    ModuleLayer,
    is_fusable,
)
from vanilla_transformer.fast.unmodified import is_unmodified

pytestmark = only_where_onednn_packs

KINDS = {
    "paper": {},
    "norm first": {"norm_first": True},
    "GELU": {"activation_function": "gelu"},
    "narrow keys": {"d_k": 4, "d_v": 8},
    "narrow values": {"d_k": 16, "d_v": 4},
}


@pytest.fixture(params=[0, 2**18], ids=["packed", "small"])
def smallest(request, monkeypatch):
    monkeypatch.setattr(onednn, "SMALLEST", request.param)
    monkeypatch.setattr(onednn, "LEAST_WORK", 0)


@pytest.mark.usefixtures("smallest")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aligns", [False, True])
@pytest.mark.parametrize("folds", [False, True])
def test_fused_layer_equals_its_modules(kind, aligns, folds, monkeypatch):
    monkeypatch.setattr(FoldedSource, "is_smaller", lambda cross, keys: folds)
    layer = make_model(**KINDS[kind]).float().model.decoder.layers[1]
    torch.manual_seed(0)
    for parameter in layer.parameters():  # biases and norms too
        parameter.data += 0.1 * torch.randn_like(parameter)
    with torch.inference_mode():
        assert is_fusable(layer)
        fused = compare(layer, aligns)
    assert (fused.memory.folded is not None) is folds


def compare(layer, aligns):
    """Compare three positions of 1, 4 and 2 hypotheses, computed both ways."""
    source = torch.randn(3, 5, 16)
    sides = []
    for kind_of in (ModuleLayer, FusedLayer):
        alignments = GrowingRows(2) if aligns else None
        sides.append((kind_of(layer, LayerMemory(layer, source, 2)), alignments))
    source_mask = torch.zeros(3, 1, 1, 5).masked_fill(torch.rand(3, 1, 1, 5) < 0.3, -1e4)
    written = 0
    for width in (1, 4, 2):
        x, written = torch.randn(3, width, 16), written + width
        mask = torch.zeros(3, 1, width, written).masked_fill(
            torch.rand(3, 1, width, written) < 0.3, -1e4
        )
        plain, fused = (run(x.clone(), mask, source_mask, alignments) for run, alignments in sides)
        torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-5)
    if aligns:
        torch.testing.assert_close(sides[1][1].view(), sides[0][1].view())
    return sides[1][0]


@pytest.mark.parametrize(("batch", "length", "folds"), [(1, 8, True), (1, 9, False), (2, 4, True)])
def test_source_is_folded_if_smaller_than_the_weights(batch, length, folds):
    # At 8 positions, folded keys have 2 heads * 8 * 16 numbers, as many as W^Q; so have values.
    layer = make_model().float().model.decoder.layers[0]
    assert FoldedSource.is_smaller(layer.cross_attn, torch.empty(batch, 2, length, 8)) is folds


@pytest.mark.parametrize("lengths", [[4, 4], [2, 4], [6]])
def test_search_over_folded_sources_finds_the_same(lengths, monkeypatch):
    folded, keep = [], FoldedSource.keep
    monkeypatch.setattr(FoldedSource, "keep", lambda *a: (folded.append(a[1].numel()), keep(*a)))
    model, batch = make_model().float(), make_sources(lengths)
    options = {"num_return_sequences": 4, "return_alignments": True}
    found = beam_search(model, *batch, **options)
    expected = beam_search(model, *batch, **options, prepack=False)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.alignments, expected.alignments, atol=1e-5, rtol=0)
    layers = len(model.model.decoder.layers)
    assert folded == [left for left in reversed(range(len(lengths))) for _ in range(layers)]


@pytest.mark.usefixtures("smallest")
def test_fused_layer_sees_changed_weights():
    model, batch = make_model().float(), make_sources([4, 7])
    options = {"num_return_sequences": 4, "max_new_tokens": 4}
    beam_search(model, *batch, **options)
    for name, parameter in model.model.decoder.layers[0].named_parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)  # does not raise the version counter
        found = beam_search(model, *batch, **options)
        expected = beam_search(copy.deepcopy(model), *batch, **options, prepack=False)
        assert torch.equal(found.sequences, expected.sequences), name
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("self_attn_norm", nn.Identity()),
        ("feed_forward", nn.Identity()),
        ("dropout", nn.LayerNorm(16)),
        ("feed_forward.dropout", nn.LayerNorm(32)),
        ("cross_attn.q_proj", nn.Identity()),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_modules_that_a_user_has_exchanged_are_called(name, other):
    model, batch = make_model().float(), make_sources([4, 7])
    layer = model.model.decoder.layers[0]
    options = {"num_return_sequences": 4, "max_new_tokens": 4}
    unchanged = beam_search(model, *batch, **options).scores
    layer.set_submodule(name, other)
    with torch.inference_mode():
        assert is_unmodified(model)
        assert not is_fusable(layer)
    found = beam_search(model, *batch, **options)
    with without_fast_path():
        expected = beam_search(model, *batch, **options)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0)
    assert (found.scores - unchanged).abs().max() > 1e-3
