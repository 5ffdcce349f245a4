"""A decoder layer in few calls: what its modules compute, and only where nobody acts on them."""

import copy

import pytest
import torch
from torch import nn
from wandering_model import make_model, make_sources

from vanilla_transformer import prepacking
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.fused_layer import FusedLayer, is_fusable
from vanilla_transformer.incremental import PlainLayer
from vanilla_transformer.layer_memory import FoldedSource, GrowingRows, LayerMemory

pytestmark = pytest.mark.skipif(
    not torch.inference_mode()(prepacking._can_pack)(), reason="oneDNN packs nothing here"
)

KINDS = {
    "paper": {},
    "norm first": {"norm_first": True},
    "GELU": {"activation_function": "gelu"},
    "narrow keys": {"d_k": 4, "d_v": 8},
    "narrow values": {"d_k": 16, "d_v": 4},
}


@pytest.mark.parametrize("smallest", [0, 2**18], ids=["packed", "small"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aligns", [False, True])
@pytest.mark.parametrize("folds", [False, True])
def test_a_fused_layer_computes_what_its_modules_do(smallest, kind, aligns, folds, monkeypatch):
    monkeypatch.setattr(prepacking, "SMALLEST", smallest)
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
    """Three positions of 1, 4 and 2 hypotheses, by both ways."""
    source = torch.randn(3, 5, 16)
    sides = []
    for kind_of in (PlainLayer, FusedLayer):
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
def test_a_source_is_folded_where_that_is_smaller_than_the_weights(batch, length, folds):
    # Keys of 2 heads at 8 positions and W^Q are 16 * 16 numbers each, and so are the others.
    layer = make_model().float().model.decoder.layers[0]
    assert FoldedSource.is_smaller(layer.cross_attn, torch.empty(batch, 2, length, 8)) is folds


@pytest.mark.parametrize("lengths", [[4, 4], [2, 4], [6]])
def test_search_over_folded_sources_finds_what_it_finds_without(lengths, monkeypatch):
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


class Other(nn.Linear):
    """Not a plain linear layer: it may compute anything."""


def subclass(layer):
    layer.feed_forward.fc1 = Other(16, 32)


def adapter(layer):
    layer.self_attn.v_proj = nn.Sequential(layer.self_attn.v_proj)


def hook(layer):
    layer.cross_attn_norm.register_forward_hook(lambda module, arguments, output: output * 2)


def hook_of_the_layer(layer):
    layer.self_attn.register_forward_pre_hook(lambda module, arguments: None)


def own_forward(layer):
    layer.feed_forward.forward = lambda x: x


def no_bias(layer):
    layer.cross_attn.out_proj.bias = None


@pytest.mark.parametrize(
    "change", [subclass, adapter, hook, hook_of_the_layer, own_forward, no_bias]
)
def test_what_might_compute_otherwise_is_called(change, monkeypatch):
    monkeypatch.setattr(prepacking, "SMALLEST", 0)
    model, batch = make_model().float(), make_sources([4, 7])
    plain = beam_search(model, *batch, num_return_sequences=4)
    change(model.model.decoder.layers[0])
    with torch.inference_mode():
        fusable = [is_fusable(layer) for layer in model.model.decoder.layers]
    assert fusable == [False, True]
    found = beam_search(model, *batch, num_return_sequences=4)
    expected = beam_search(model, *batch, num_return_sequences=4, prepack=False)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0)
    if change not in (adapter, hook_of_the_layer, no_bias):  # these compute the same
        assert not torch.equal(found.scores, plain.scores), "the change had no effect"


def test_an_activation_that_others_act_on_is_called():
    model, batch = make_model().float(), make_sources([4, 7])
    calls = []
    activation = model.model.decoder.layers[0].feed_forward.activation
    activation.register_forward_hook(lambda module, arguments, output: calls.append(1))
    beam_search(model, *batch, max_new_tokens=3, suppress_tokens=[2])
    assert len(calls) == 3


def test_changed_weights_are_seen(monkeypatch):
    monkeypatch.setattr(prepacking, "SMALLEST", 0)
    model, batch = make_model().float(), make_sources([4, 7])
    options = {"num_return_sequences": 4, "max_new_tokens": 4}
    beam_search(model, *batch, **options)
    for name, parameter in model.model.decoder.layers[0].named_parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)  # which no counter sees
        found = beam_search(model, *batch, **options)
        expected = beam_search(copy.deepcopy(model), *batch, **options, prepack=False)
        assert torch.equal(found.sequences, expected.sequences), name
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_layers_in_other_precisions_are_called(dtype):
    model = make_model().to(dtype)
    with torch.inference_mode():
        assert not is_fusable(model.model.decoder.layers[0])
