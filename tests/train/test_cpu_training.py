"""Settings for training on a CPU: cheap dropout masks, matrix products; all are restored."""

from contextlib import nullcontext

import pytest
import torch
from tiny_trainers import tiny_model
from torch import nn

from vanilla_transformer.fast import is_unmodified
from vanilla_transformer.train import cpu_settings as cpu_training
from vanilla_transformer.train.cpu_settings import (
    FastDropout,
    cpu_training_settings,
    fast_float32_matmuls,
    without_training_changes,
)


def dropped_from(p, shape=(200, 301)):
    return FastDropout(p)(torch.ones(shape)) == 0


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_share_of_zeros_is_p(p):
    torch.manual_seed(0)
    zeros = dropped_from(p, (1_000_000,)).double()
    four_deviations = 4 * (p * (1 - p) / 1_000_000) ** 0.5
    assert abs(zeros.mean().item() - p) < four_deviations + 2**-17
    # Four numbers share one draw: their shares must be equal, and they must be independent.
    places = zeros.view(-1, 4)
    assert (places.mean(0) - p).abs().max() < 2 * four_deviations
    assert (places.T.corrcoef() - torch.eye(4)).abs().max() < 4 / 250_000**0.5


def test_neighbours_in_all_directions_are_independent():
    torch.manual_seed(0)
    zeros = dropped_from(0.3, (700, 701)).double()
    for down, right in ((1, 0), (0, 1), (0, 4)):
        shifted, kept = zeros[down:, right:], zeros[: 700 - down, : 701 - right]
        pair = torch.stack((shifted.flatten(), kept.flatten()))
        assert pair.corrcoef()[0, 1].abs() < 4 / 700


@pytest.mark.parametrize("p", [0.1, 0.25, 0.999])
def test_expectation_is_exact_for_the_rounded_p(p):
    torch.manual_seed(0)
    kept = FastDropout(p)(torch.ones(100_000)).unique()
    rounded = round(p * 2**16) / 2**16
    assert kept.tolist() == pytest.approx([0.0, 1 / (1 - rounded)], rel=1e-6)


def test_gradient_uses_the_mask_of_the_forward_pass():
    x = torch.randn(5, 7, 3, requires_grad=True)
    y = FastDropout(0.4)(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), x.detach() * x.grad)
    assert {*x.grad.unique().tolist()} == set(FastDropout(0.4)(torch.ones(1000)).unique().tolist())


@pytest.mark.parametrize("shape", [(1,), (3, 5), (0, 4), (2, 3, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_dtype_and_layout_are_kept(shape, dtype):
    x = torch.ones(shape, dtype=dtype)
    for given in (x, x.transpose(0, -1)):
        y = FastDropout(0.5)(given)
        assert (y.shape, y.dtype) == (given.shape, dtype)
        assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_the_seed_and_a_saved_state_decide_the_mask():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = dropped_from(0.5), dropped_from(0.5)
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    assert torch.equal(dropped_from(0.5), first)
    torch.set_rng_state(state)
    assert torch.equal(dropped_from(0.5), first)


def test_dropout_is_off_in_evaluation_and_exact_for_p_of_zero_and_one():
    x = torch.randn(50)
    assert torch.equal(FastDropout(0.5).eval()(x), x)
    assert torch.equal(FastDropout(0.0)(x), x)
    assert not FastDropout(1.0)(x).any()


def test_other_devices_and_compilers_get_plain_dropout():
    assert FastDropout(0.5)(torch.ones(3, device="meta")).shape == (3,)
    compiled = torch.compile(FastDropout(0.5), backend="aot_eager", fullgraph=True)
    assert set(compiled(torch.ones(100)).tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("fails", [False, True])
def test_all_settings_are_restored(fails, monkeypatch):
    monkeypatch.setattr(cpu_training, "fast_float32_matmuls", lambda: "medium")
    model = tiny_model()
    kinds = [type(module) for module in model.modules()]
    keys = list(model.state_dict())
    attention, precision = model.config._attn_implementation, torch.get_float32_matmul_precision()

    with (
        pytest.raises(RuntimeError, match="on purpose") if fails else nullcontext(),
        cpu_training_settings(model),
    ):
        assert model.config._attn_implementation == "eager"
        assert torch.get_float32_matmul_precision() == "medium"
        fast = [module for module in model.modules() if isinstance(module, FastDropout)]
        assert len(fast) == kinds.count(nn.Dropout) > 0
        assert list(model.state_dict()) == keys
        if fails:
            raise RuntimeError("on purpose")
    assert [type(module) for module in model.modules()] == kinds
    assert model.config._attn_implementation == attention
    assert torch.get_float32_matmul_precision() == precision


def test_decoding_within_training_uses_the_users_model():
    model = tiny_model()
    with cpu_training_settings(model):
        # As accelerate does under mixed precision.
        model._original_forward = model.forward
        model.forward = autocast = lambda *args, **kwargs: None
        with without_training_changes(model):
            assert is_unmodified(model)
        assert model.forward is autocast
        assert isinstance(model.model.encoder.dropout, FastDropout)
        assert not is_unmodified(model)


def test_settings_change_no_loss_and_no_gradient_without_dropout():
    model, ids = tiny_model(dropout=0.0).train(), torch.randint(4, 23, (3, 6))
    found = []
    for settings in (nullcontext(), cpu_training_settings(model)):
        model.zero_grad()
        with settings:
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norms", ["of a CPU", "of a GPU"])
def test_bfloat16_residuals_give_gradients_close_to_float32(norms, monkeypatch):
    if norms == "of a GPU":  # autocast makes them float32 there
        norm = nn.functional.layer_norm
        monkeypatch.setattr(nn.functional, "layer_norm", lambda x, *args: norm(x.float(), *args))
    model, ids = tiny_model(dropout=0.0).train(), torch.randint(4, 23, (3, 6))
    dtypes, found = [], []
    layer = model.model.decoder.layers[0]
    watch = layer.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    for autocast in (False, True):
        model.zero_grad()
        with cpu_training_settings(model), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=ids, labels=ids)
    watch.remove()
    assert dtypes == [torch.float32, torch.bfloat16, torch.float32]  # off again afterwards
    exact, rounded = found
    assert (rounded - exact).norm() <= 0.03 * exact.norm()


@pytest.mark.parametrize(
    ("vendor", "dtype", "expected"),
    [
        ("AuthenticAMD", torch.float64, "medium"),
        ("AuthenticAMD", torch.bfloat16, "highest"),  # such products are no float32
        ("GenuineIntel", torch.float64, "highest"),
        (None, torch.float64, "highest"),
    ],
)
def test_products_are_left_to_onednn_on_amd_in_float32(monkeypatch, vendor, dtype, expected):
    linear = nn.functional.linear

    def made_up(x, weight):
        assert torch.get_float32_matmul_precision() == "medium"
        return linear(x.to(dtype), weight.to(dtype)).float()

    monkeypatch.setattr(cpu_training.nn.functional, "linear", made_up)
    monkeypatch.setattr(cpu_training, "processor_facts", lambda: {"vendor_id": vendor})
    assert fast_float32_matmuls.__wrapped__() == expected
