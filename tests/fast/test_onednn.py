"""Packed weights: same results, repacked when weights change, and modules restored afterwards."""

import copy
import gc
import weakref

import pytest
import torch
from slow_path import only_where_onednn_packs
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from wandering_model import make_model, make_sources

from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.fast import onednn
from vanilla_transformer.fast.onednn import packed_linear, packed_linears, packed_together, release

pytestmark = only_where_onednn_packs


@pytest.fixture(autouse=True)
def _pack_small_layers_too(monkeypatch):
    monkeypatch.setattr(onednn, "SMALLEST", 0)
    monkeypatch.setattr(onednn, "LEAST_WORK", 0)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Linear(24, 40)


def is_packed(module):
    return "forward" in module.__dict__


@torch.inference_mode()
def packed_output(module, x):
    with packed_linears(module):
        assert is_packed(module)
        return module(x)


@pytest.mark.parametrize("rows", [(1,), (4,), (2, 3), (33,), (200,), (0,)])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_layers_equal_plain_ones(rows, bias):
    layer, x = nn.Linear(24, 40, bias=bias), torch.randn(*rows, 24)
    torch.testing.assert_close(packed_output(layer, x), layer(x), atol=1e-5, rtol=1e-5)


def test_a_small_product_is_left_to_torch(layer, monkeypatch):
    monkeypatch.setattr(onednn, "LEAST_WORK", 3 * layer.weight.numel())
    for rows, packed in ((1, []), (2, []), (3, [3] * 3), (4, [4] * 3)):
        x = torch.randn(rows, 24)
        with Products() as products, torch.inference_mode():
            together = packed_together(nn.Sequential(layer), [layer], torch.cat)
            for found in (packed_output(layer, x), packed_linear(layer)(x), together(x)):
                torch.testing.assert_close(found, layer(x), atol=1e-5, rtol=1e-5)
        assert products.rows == packed


def test_parameters_in_one_flat_tensor_and_strided_biases_are_searched_as_well():
    model, batch = make_model(encoder_ffn_dim=33, decoder_ffn_dim=33).float(), make_sources([9, 3])
    expected = beam_search(model, *batch)
    flat = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(flat.detach(), model.parameters())  # views at any offset
    assert torch.equal(beam_search(model, *batch).sequences, expected.sequences)
    layer = model.model.decoder.layers[0].feed_forward.fc2
    layer.bias = nn.Parameter(layer.bias.detach().repeat_interleave(2)[::2])
    assert torch.equal(beam_search(model, *batch).sequences, expected.sequences)


class Products(TorchDispatchMode):
    """Records the rows of each product with packed weights."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.name().startswith("mkldnn::_linear_pointwise"):
            self.rows.append(args[0].numel() // args[0].size(-1))
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize(("beams", "rows"), [(2, [1, 2, 2]), (1, [1, 1, 1])])
@pytest.mark.parametrize(("length", "products_of_a_layer"), [(9, 6), (3, 4)])
def test_beam_search_uses_packed_layers(beams, rows, length, products_of_a_layer):
    model = make_model().float()
    options = {"num_beams": beams, "max_new_tokens": 3, "suppress_tokens": [2]}
    with Products() as products:
        beam_search(model, *make_sources([length]), **options)
    # Source: 2 layers of q, k, v, out, fc1 and fc2, and keys and values for 2 decoder layers.
    assert products.rows[:16] == [length] * 16
    # At each of 3 positions: 2 layers of q with k and v, out, q, out, fc1 and fc2, and the softmax.
    # Short sources have the second q and out folded into them.
    each = 2 * products_of_a_layer + 1
    assert products.rows[16:] == [row for row in rows for _ in range(each)]
    with Products() as products:
        beam_search(model, *make_sources([length]), prepack=False, **options)
    assert not products.rows


def test_an_encoder_that_chooses_its_precision_is_searched():
    model, batch = make_model().float(), make_sources([9, 3])
    forward = model.model.encoder.forward

    def in_bfloat16(*args, **kwargs):
        with torch.autocast("cpu", torch.bfloat16):
            return forward(*args, **kwargs)

    model.model.encoder.forward = in_bfloat16
    expected = beam_search(model, *batch, prepack=False)
    assert torch.equal(beam_search(model, *batch).sequences, expected.sequences)


@pytest.mark.parametrize("smallest", [0, 2**18], ids=["packed", "small"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("rows", [(1,), (2, 3), (300,)])
def test_packed_products_fuse_relu_and_residual(smallest, layers, rows, monkeypatch):
    monkeypatch.setattr(onednn, "SMALLEST", smallest)
    monkeypatch.setattr(onednn, "LEAST_WORK", 0)
    torch.manual_seed(0)
    parts = [nn.Linear(24, width) for width in (40, 8, 16)[:layers]]
    x = torch.randn(*rows, 24)
    with torch.inference_mode():
        if layers == 1:
            product = packed_linear(parts[0])
        else:
            product = packed_together(nn.Sequential(*parts), parts, torch.cat)
        expected = torch.cat([part(x) for part in parts], dim=-1)
        residual = torch.randn_like(expected)
        kept = residual.clone()
        for found, wanted in [
            (product(x), expected),
            (product.relu(x), expected.relu()),
            (product.plus(x, residual), residual + expected),
        ]:
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert torch.equal(residual, kept)


def change_in_place(layer):
    with torch.no_grad():
        layer.weight[3, 5] += 1


def change_data_entry(layer):
    layer.weight.data[3, 5] += 1


def exchange_data_columns(layer):
    layer.weight.data[:, [2, 8]] = layer.weight.data[:, [8, 2]]  # keeps the sums of rows


def replace_parameter(layer):
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))


def load(layer):
    layer.load_state_dict(nn.Linear(24, 40).state_dict())


def cast_and_back(layer):
    layer.half().float()


def step(**options):
    def train(layer):
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, **options)
        layer(torch.ones(2, 24)).sum().backward()
        optimizer.step()

    return train


@pytest.mark.parametrize(
    "change",
    [
        *(change_in_place, change_data_entry, exchange_data_columns, replace_parameter),
        *(load, cast_and_back, step(fused=True), step(foreach=True), step(foreach=False)),
    ],
)
def test_changed_weights_are_packed_again(layer, change):
    x = torch.randn(4, 24)
    before = packed_output(layer, x)
    change(layer)
    after = packed_output(layer, x)
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, layer(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), [(24, 40), (40, 24), (24, 24), (7, 40)])
def test_changes_of_any_row_or_column_are_noticed(inputs, outputs):
    layer, x = nn.Linear(inputs, outputs), torch.randn(2, inputs)
    columns = [(slice(None), column) for column in range(inputs)]
    for place in [*range(outputs), *columns]:
        packed_output(layer, x)
        layer.weight.data[place] += 1
        torch.testing.assert_close(packed_output(layer, x), layer(x), atol=1e-4, rtol=1e-4)


def test_packed_copies_are_freed_with_the_module_or_by_release():
    layer = nn.Linear(24, 40)  # not the fixture, which pytest keeps alive
    packed_output(layer, torch.ones(1, 24))
    assert layer in onednn._PACKED
    release(nn.Sequential(layer))
    assert layer not in onednn._PACKED
    packed_output(layer, torch.ones(1, 24))
    kept = weakref.ref(onednn._PACKED[layer].product.packed)
    assert kept() is not None
    del layer
    gc.collect()
    assert kept() is None


def test_packed_linears_restores_the_modules(layer):
    with torch.inference_mode(), packed_linears(layer):
        assert is_packed(layer)
    assert not is_packed(layer)
    with pytest.raises(RuntimeError, match="stop"), torch.inference_mode(), packed_linears(layer):
        raise RuntimeError("stop")
    assert not is_packed(layer)
    copy.deepcopy(layer)


class Other(nn.Linear):
    """Not a plain linear layer: it may compute anything."""


def hooked():
    layer = nn.Linear(24, 40)
    layer.register_forward_pre_hook(lambda module, arguments: None)
    return layer


def owned():
    layer = nn.Linear(24, 40)
    layer.forward = lambda x: x  # as accelerate's hooks do
    return layer


@torch.inference_mode()
def made_for_inference():
    return nn.Linear(24, 40)  # inference tensors have no version counter


@pytest.mark.parametrize(
    "module",
    [
        *(Other(24, 40), hooked(), owned(), made_for_inference()),
        *(nn.Linear(24, 40).double(), nn.Linear(24, 40).half()),
    ],
    ids=["subclass", "hooked", "owned", "inference", "float64", "float16"],
)
def test_layers_that_may_compute_otherwise_are_not_packed(module):
    own = module.forward
    with torch.inference_mode(), packed_linears(module):
        assert module.forward == own
    assert module.forward == own


def test_nothing_is_packed_with_gradients_or_autocast(layer):
    with packed_linears(layer):
        assert not is_packed(layer)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), packed_linears(layer):
        assert not is_packed(layer)
