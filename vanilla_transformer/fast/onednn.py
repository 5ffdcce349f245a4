"""Linear layers with weights pre-packed in oneDNN's layout, for decoding steps with few rows.

A decoding step multiplies a handful of rows by every weight of the decoder. The library that torch
calls for that rearranges the weight each time, or does badly without; packed once, the same product
takes a quarter to two thirds of the time. The operators are private to torch (its compiler emits
them): only this file uses them, and does without where they are missing.

A packed copy is used only while its parameters hold what they held when it was made. A search looks
at all of them before it begins, since a write through `.data` or NumPy moves no version counter.
"""

import functools
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..storage.environment import cpu_flags
from .plain import TemporaryForward, change_of

# torch's own products, by MKL, make little of AMD's AVX-512: there the packed weight always wins.
_ALWAYS = (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
    and cpu_flags().get("vendor_id") == "AuthenticAMD"
)
SMALLEST = 2**17 if _ALWAYS else 2**18  # entries; for smaller weights a call costs what it gains
MOST_ROWS = math.inf if _ALWAYS else 192  # of an input; more gain nothing from the packed weight
_ROWS = 32  # for which oneDNN is asked to lay the weights out; it serves any number
_WORDS = (torch.int64, torch.int32, torch.int16)  # the widest that fits: one pass at full speed


class _Seen(NamedTuple):
    """A parameter as it was: what tells that it has changed."""

    identity: tuple[object, ...]
    sums: Tensor  # of the bits of each row, as whole numbers: a write to any entry changes one
    sample: Tensor  # entries of every row and column: exchanged columns leave the sums


class PackedLinear(NamedTuple):
    """x W^T + b of a linear layer, or of several that have one input, their outputs in a row.

    What follows at once, a ReLU or a residual, is done in the same call.
    """

    weight: Tensor | None  # (outputs, inputs), or None where there is only the packed one
    packed: Tensor | None  # in a layout that oneDNN alone can read, or None where it is too small
    bias: Tensor | None  # (outputs,)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        weight = self._weight_for(x)
        if weight is not None:
            return nn.functional.linear(x, weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def relu(self, x: Tensor) -> Tensor:
        """max(0, x W^T + b)."""
        if self._weight_for(x) is not None:
            return self(x).relu_()
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "relu", [], "")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """A residual, (..., outputs), + x W^T + b."""
        if self._weight_for(x) is not None:
            return self(x).add_(residual)
        add = torch.ops.mkldnn._linear_pointwise.binary
        return add(x, residual, self.packed, self.bias, "add")

    def _weight_for(self, x: Tensor) -> Tensor | None:
        """The weight to multiply by; None where the packed one is better, or the only one."""
        return self.weight if self.packed is None or _has_many_rows(x) else None


class _Copy(NamedTuple):
    """What is kept with a module: a product, and the parameters that it was made of."""

    product: PackedLinear
    seen: list[_Seen]


class _Packing(TemporaryForward):
    """A linear layer's forward that packs its weight when it is first called with few rows."""

    def __init__(self, module: nn.Linear) -> None:
        self.module = module
        self.product: PackedLinear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if _has_many_rows(x):
            return nn.functional.linear(x, self.module.weight, self.module.bias)
        if self.product is None:
            self.product = packed_linear(self.module)
        return self.product(x)


_PACKED: WeakKeyDictionary[nn.Module, _Copy] = WeakKeyDictionary()


@contextmanager
def packed_linears(*roots: nn.Module) -> Iterator[None]:
    """Within it, plain linear layers below the roots compute with packed weights.

    Only what computes alike and gains is replaced: `packable` layers that are not too small. The
    copies of those that are called are kept for the next time, made again when their weights have
    changed, and freed with their modules or by `release`.
    """
    replaced = []
    try:
        can_pack = _can_pack()
        for module in (module for root in roots if can_pack for module in root.modules()):
            # Another block, around this one or of another thread, may pack it already.
            if (
                "forward" not in module.__dict__
                and _is_plain(module)
                and module.weight.numel() >= SMALLEST
            ):
                module.__dict__["forward"] = _Packing(module)
                replaced.append(module)
        yield
    finally:
        for module in replaced:
            module.__dict__.pop("forward", None)


def packable(module: nn.Module) -> bool:
    """Whether it is a plain linear layer with a weight that oneDNN computes with, as it does.

    Exact `nn.Linear` modules that nobody acts on, without gradients, in a dtype that the hardware
    computes in.
    """
    return _can_pack() and _is_plain(module)


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    if type(module) is not nn.Linear or change_of(module):
        return False
    weight = module.weight
    if weight.device.type != "cpu":
        return False
    if not weight.is_contiguous() or weight.is_inference():
        return False
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bf16


def packed_linear(layer: nn.Linear) -> PackedLinear:
    """The product of a packable layer."""
    weight, packed = layer.weight, None
    if weight.numel() >= SMALLEST:
        packed = _copy(layer, [weight], lambda: (weight, None)).packed
    return PackedLinear(weight, packed, layer.bias)


def packed_together(
    owner: nn.Module, layers: Sequence[nn.Linear], arrange: Callable[[list[Tensor]], Tensor]
) -> PackedLinear:
    """One product for packable layers with biases that have one input.

    Args:
        owner: With which the copy of the weights is kept; a module owns one.
        layers: The layers.
        arrange: Joins their weights, and their biases, into one of the order that is wanted.
    """
    weights: list[Tensor] = [part.weight for part in layers]
    biases: list[Tensor] = [part.bias for part in layers]
    return _copy(owner, weights + biases, lambda: (arrange(weights), arrange(biases)))


def _copy(
    owner: nn.Module, parameters: Sequence[Tensor], make: Callable[[], tuple[Tensor, Tensor | None]]
) -> PackedLinear:
    """The product of a new weight and bias, or of those made before from the same parameters."""
    known = _PACKED.get(owner)
    if known is None or not _are_unchanged(parameters, known.seen):
        weight, bias = make()
        if weight.numel() < SMALLEST:
            product = PackedLinear(weight, None, bias)
        else:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
            product = PackedLinear(None, packed, bias)
        known = _PACKED[owner] = _Copy(product, [_see(parameter) for parameter in parameters])
    return known.product


def release(model: nn.Module) -> None:
    """Frees the copies of a model's weights."""
    for module in model.modules():
        _PACKED.pop(module, None)


def _has_many_rows(x: Tensor) -> bool:
    return x.numel() > MOST_ROWS * x.size(-1)


def _can_pack() -> bool:
    return (
        not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and _has_operators()
    )


@functools.cache
def _has_operators() -> bool:
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _identity(parameter: Tensor) -> tuple[object, ...]:
    return (parameter.data_ptr(), parameter._version, parameter.dtype, parameter.shape)


def _see(parameter: Tensor) -> _Seen:
    return _Seen(_identity(parameter), _sums_of_bits(parameter), _sample(parameter).clone())


def _are_unchanged(parameters: Sequence[Tensor], seen: Sequence[_Seen]) -> bool:
    return all(
        _identity(parameter) == known.identity
        and torch.equal(_sample(parameter), known.sample)
        and torch.equal(_sums_of_bits(parameter), known.sums)
        for parameter, known in zip(parameters, seen, strict=True)
    )


def _sums_of_bits(parameter: Tensor) -> Tensor:
    """Sums of each row's bits, read as whole numbers that wrap around: exact, unlike floats'."""
    width = parameter.size(-1) * parameter.element_size()
    word = next(kind for kind in _WORDS if width % kind.itemsize == 0)
    return parameter.detach().view(word).sum(-1, dtype=word)


def _sample(parameter: Tensor) -> Tensor:
    """Entries at equal distances, some of every row and some of every column; a view."""
    columns = parameter.size(-1)
    shorter = min(parameter.numel() // columns, columns)
    # A distance that has no factor in common with the columns comes to each of them in turn.
    distance = next(step for step in range(shorter, 0, -1) if math.gcd(step, columns) == 1)
    return parameter.detach().flatten()[::distance]
