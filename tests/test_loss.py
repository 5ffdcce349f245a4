from functools import partial

import pytest
import torch
from stock_updates import assert_same_update, examples, one_batch, trainer_update
from torch.nn import functional as F

from vanilla_transformer.loss import _ChunkedCrossEntropy, smoothed_cross_entropy

each_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-6)], ids=str
)


def sample(tokens=37, width=12, vocab_size=53, *, dtype=torch.float64, ignored=(0, 5, 36)):
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocab_size, width, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, vocab_size, (tokens,))
    labels[list(ignored)] = -100
    return hidden, weight, labels


def plain(hidden, weight, labels, *, label_smoothing=0.0):
    return F.cross_entropy(hidden @ weight.T, labels, label_smoothing=label_smoothing)


def value_and_gradients(loss, *tensors):
    return [loss.detach(), *torch.autograd.grad(loss, tensors)]


def compared(ours, expected, *tensors):
    """Return pairs of values, and of gradients, of two losses."""
    found = (value_and_gradients(loss, *tensors) for loss in (ours, expected))
    return zip(*found, strict=True)


@pytest.mark.parametrize("chunk_size", [8, 1000])
def test_chunks_mask_ignored_labels_themselves(chunk_size):
    """As a GPU needs it; on a CPU rows without a label are removed before."""
    hidden, weight, labels = sample()
    expected = plain(hidden, weight, labels, label_smoothing=0.3)
    count = (labels != -100).sum()
    wanted = (True, True)
    ours = _ChunkedCrossEntropy.apply(hidden, weight, labels, count, 0.3, chunk_size, wanted)
    for a, b in compared(ours, expected, hidden, weight):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@each_precision
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk_size", [1, 8, 37, 1000])
def test_value_and_gradient_equal_the_plain_formula(dtype, tolerance, label_smoothing, chunk_size):
    hidden, weight, labels = sample(dtype=dtype)
    ours = smoothed_cross_entropy(
        hidden, weight, labels, label_smoothing=label_smoothing, chunk_size=chunk_size
    )
    expected = plain(hidden, weight, labels, label_smoothing=label_smoothing)
    for a, b in compared(ours, expected, hidden, weight):
        assert a.dtype == b.dtype
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@each_precision
@pytest.mark.parametrize("chunk_size", [8, 1000])
@pytest.mark.parametrize("num_items", [None, 101])
def test_loss_from_logits_equals_loss_from_hidden_states(dtype, tolerance, chunk_size, num_items):
    hidden, weight, labels = sample(dtype=dtype)
    options = {"label_smoothing": 0.1, "chunk_size": chunk_size, "num_items": num_items}
    expected = smoothed_cross_entropy(hidden, weight, labels, **options)
    ours = smoothed_cross_entropy(hidden @ weight.T, None, labels, **options)
    mean, count = plain(hidden, weight, labels, label_smoothing=0.1), (labels != -100).sum()
    torch.testing.assert_close(ours, mean * count / (num_items or count))
    for a, b in compared(ours, expected, hidden, weight):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("frozen", ["hidden", "weight", "both"])
def test_frozen_inputs_get_no_gradient(frozen):
    hidden, weight, labels = sample()
    _, grad_hidden, grad_weight = value_and_gradients(plain(hidden, weight, labels), hidden, weight)
    hidden.requires_grad_(frozen == "weight")
    weight.requires_grad_(frozen == "hidden")
    loss = smoothed_cross_entropy(hidden, weight, labels)
    torch.testing.assert_close(loss.detach(), plain(hidden, weight, labels).detach())
    assert loss.requires_grad == (frozen != "both")
    if frozen != "both":
        loss.backward()
    for tensor, expected in ((hidden, grad_hidden), (weight, grad_weight)):
        if tensor.requires_grad:
            torch.testing.assert_close(tensor.grad, expected, rtol=1e-10, atol=1e-10)
        else:
            assert tensor.grad is None


def test_without_labels_loss_and_gradients_are_zero():
    hidden, weight, labels = sample()
    for states, golds in ((hidden, torch.full_like(labels, -100)), (hidden[:0], labels[:0])):
        for items in (None, 0, torch.tensor(0)):
            options = {"num_items": items}
            loss = smoothed_cross_entropy(states, weight, golds, label_smoothing=0.1, **options)
            value, grad_hidden, grad_weight = value_and_gradients(loss, hidden, weight)
            assert value == smoothed_cross_entropy(states @ weight.T, None, golds, **options) == 0
            assert not grad_hidden.any()
            assert not grad_weight.any()


def test_large_logits_do_not_overflow():
    hidden, weight, labels = sample(dtype=torch.float32)
    loss = smoothed_cross_entropy(1e4 * hidden, weight, labels, label_smoothing=0.1)
    assert all(x.isfinite().all() for x in value_and_gradients(loss, hidden, weight))


@pytest.mark.parametrize("mode", ["autocast", "bfloat16"])
def test_loss_in_bfloat16_sums_in_float32(mode):
    hidden, weight, labels = sample(tokens=200, dtype=torch.float32, ignored=())
    expected = value_and_gradients(
        plain(hidden, weight, labels, label_smoothing=0.1), hidden, weight
    )
    if mode == "bfloat16":
        hidden, weight = (x.detach().bfloat16().requires_grad_() for x in (hidden, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode == "autocast"):
        loss = smoothed_cross_entropy(hidden, weight, labels, label_smoothing=0.1)
    assert loss.dtype == torch.float32
    for a, b in zip(value_and_gradients(loss, hidden, weight), expected, strict=True):
        # bfloat16 has 8 bits: logits of size 10 are off by 0.02
        assert (a.float() - b).abs().max() <= 0.03 * b.abs().max()
    assert hidden.dtype == weight.dtype


def test_second_derivatives_are_an_error_of_torch_and_never_zero():
    """Of the loss from logits they exist; a constant in their place would be a silent mistake."""
    hidden, weight, labels = sample(tokens=6, width=3, vocab_size=5, ignored=(2,))
    loss = smoothed_cross_entropy(hidden, weight, labels)
    first = torch.autograd.grad(loss, (hidden, weight), create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (loss + sum((gradient**2).sum() for gradient in first)).backward()
    with pytest.raises(RuntimeError, match=r"functorch transforms .* must override"):
        torch.func.grad(smoothed_cross_entropy)(hidden.detach(), weight.detach(), labels)
    penalties = []
    for function in (
        lambda h, w: smoothed_cross_entropy(h @ w.T, None, labels),
        partial(plain, labels=labels),
    ):
        first = torch.autograd.grad(function(hidden, weight), (hidden, weight), create_graph=True)
        penalty = sum((gradient**2).sum() for gradient in first)
        penalties.append(torch.autograd.grad(penalty, (hidden, weight)))
    torch.testing.assert_close(*penalties, rtol=0, atol=1e-12)


def test_scale_of_a_gradscaler_fits_a_model_in_float16():
    hidden, weight, labels = sample(tokens=200, dtype=torch.float32, ignored=())
    expected = value_and_gradients(plain(hidden, weight, labels), hidden, weight)
    hidden, weight = (x.detach().half().requires_grad_() for x in (hidden, weight))
    # 200 tokens of a large update: without the scale, float16 would hold few digits of a gradient.
    loss = smoothed_cross_entropy(hidden, weight, labels, num_items=10**6) * 2.0**16
    for a, b in zip(value_and_gradients(loss, hidden, weight), expected, strict=True):
        # float16 has 11 bits
        a = a.float() / 2**16 * 10**6 / 200
        assert (a - b).abs().max() <= 0.004 * b.abs().max()


def test_loss_compiles_as_one_graph():
    hidden, weight, labels = sample()
    compiled = torch.compile(smoothed_cross_entropy, backend="aot_eager", fullgraph=True)
    ours = compiled(hidden, weight, labels, label_smoothing=0.1, chunk_size=16)
    expected = plain(hidden, weight, labels, label_smoothing=0.1)
    for a, b in compared(ours, expected, hidden, weight):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# ------------------------------------------------- the model's loss, with batches accumulated


@pytest.mark.parametrize(("batch_size", "accumulation"), [(8, 1), (2, 4)])
def test_accumulation_in_seq2seq_trainer_equals_one_batch(tmp_path, batch_size, accumulation):
    update = trainer_update(tmp_path, batch_size=batch_size, accumulation=accumulation)
    assert_same_update(update, one_batch(examples()))
