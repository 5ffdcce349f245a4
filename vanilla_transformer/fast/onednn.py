"""Linear layers with weights pre-packed in oneDNN's layout, for searches on a CPU.

A decoding step multiplies a handful of rows by every weight of the decoder. The library that torch
calls for this rearranges the weight each time, or is slow because it does not; on AMD's AVX-512 it
has half of oneDNN's speed for any number of rows. With a weight packed once, the same matmul takes
a quarter to two thirds of the time. The operators are private to torch
(its compiler emits them). Only this file uses them; without them, it leaves the matmul to torch.

A packed copy is used only as long as its parameters are unchanged. Before it begins, a search
compares all of them with fingerprints, since a write through `.data` or NumPy does not raise their
version counter. The comparison notices any single write. A write that leaves the sum of every row
as it was can escape it, such as two entries of a row that trade places, or two columns if many
entries are equal. After such a write call `release(model)`.
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

from ..machine.environment import processor_facts
from .unmodified import TemporaryForward, change_of

# MKL, which computes torch's own matmuls, is slow with AMD's AVX-512: packing always pays there.
_ALWAYS = (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
    and processor_facts().get("vendor_id") == "AuthenticAMD"
)
SMALLEST = 2**12 if _ALWAYS else 2**18  # entries; with smaller weights, packing saves no time
MOST_ROWS = math.inf if _ALWAYS else 192  # rows of an input; with more, packing saves no time
# Minimum of rows times entries: a call of oneDNN costs ten microseconds more than one of MKL.
LEAST_WORK = 2**20 if _ALWAYS else 0
_ROWS = 32  # rows of an input that the layout is optimized for; any number works
_WORDS = (torch.int64, torch.int32, torch.int16)  # a row is viewed as the widest that divides it


class _Seen(NamedTuple):
    """A fingerprint of a parameter, to detect changes."""

    identity: tuple[object, ...]
    sums: Tensor  # of each row's bits as integers: a single write to any entry changes one sum
    sample: Tensor  # entries of every row and column: swapped columns do not change the sums


class PackedLinear(NamedTuple):
    """x W^T + b of a linear layer, or of several with the same input, outputs concatenated.

    A ReLU or a residual that follows is computed in the same call.
    """

    weight: Tensor | None  # (outputs, inputs), or None if the packed one is always faster
    packed: Tensor | None  # in oneDNN's own layout; None if the weight is too small
    bias: Tensor | None  # (outputs,)

    def __call__(self, x: Tensor) -> Tensor:
        """Compute x W^T + b: (..., inputs) -> (..., outputs)."""
        weight = self._weight_for(x)
        if weight is not None:
            return nn.functional.linear(x, weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def relu(self, x: Tensor) -> Tensor:
        """Compute max(0, x W^T + b)."""
        if self._weight_for(x) is not None:
            return self(x).relu_()
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "relu", [], "")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """Compute residual + x W^T + b: (..., outputs)."""
        if self._weight_for(x) is not None:
            return self(x).add_(residual)
        add = torch.ops.mkldnn._linear_pointwise.binary
        return add(x, residual, self.packed, self.bias, "add")

    def _weight_for(self, x: Tensor) -> Tensor | None:
        """Return the plain weight; None if the packed one is faster, or the only one."""
        is_plain = self.packed is None or self.weight is None or not _pays(x, self.weight)
        return self.weight if is_plain else None


class _Copy(NamedTuple):
    """A layer's `PackedLinear`, with fingerprints of the parameters that it was made from."""

    product: PackedLinear
    seen: list[_Seen]


class _Packing(TemporaryForward):
    """A linear layer's `forward` that packs the weight at the first call for which that pays."""

    def __init__(self, module: nn.Linear) -> None:
        self.module = module
        self.product: PackedLinear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        # A custom encoder may switch autocast on or change the dtype of its states.
        weight = self.module.weight
        if not (_pays(x, weight) and _can_pack() and x.dtype == weight.dtype):
            return nn.functional.linear(x, weight, self.module.bias)
        if self.product is None:
            self.product = packed_linear(self.module)
        return self.product(x)


_PACKED: WeakKeyDictionary[nn.Module, _Copy] = WeakKeyDictionary()


@contextmanager
def packed_linears(*roots: nn.Module) -> Iterator[None]:
    """Make plain linear layers inside the given modules use packed weights.

    This applies to `packable` layers that are not too small. The copies are kept for the next
    search, made again if weights have changed, and freed with their modules or by `release`.
    """
    replaced = []
    try:
        can_pack = _can_pack()
        for module in (module for root in roots if can_pack for module in root.modules()):
            # An enclosing block, or one in another thread, may have replaced `forward` already.
            if (
                "forward" not in module.__dict__
                and _is_unmodified(module)
                and module.weight.numel() >= SMALLEST
            ):
                module.__dict__["forward"] = _Packing(module)
                replaced.append(module)
        yield
    finally:
        for module in replaced:
            module.__dict__.pop("forward", None)


def packable(module: nn.Module) -> bool:
    """Return whether a module is a plain linear layer that can compute with packed weights.

    It must be an unmodified `nn.Linear`, without gradients, in a dtype that the hardware supports.
    """
    return _can_pack() and _is_unmodified(module)


def _is_unmodified(module: nn.Module) -> TypeGuard[nn.Linear]:
    if type(module) is not nn.Linear or change_of(module):
        return False
    weight = module.weight
    if weight.device.type != "cpu":
        return False
    for parameter in module.parameters():
        if not parameter.is_contiguous() or parameter.is_inference():
            return False
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bf16


def packed_linear(layer: nn.Linear) -> PackedLinear:
    """Return the `PackedLinear` of a packable layer; reuse its packed copy if it has one."""
    weight, packed = layer.weight, None
    if weight.numel() >= SMALLEST:
        packed = _copy(layer, [weight], lambda: (weight, None)).packed
    return PackedLinear(weight, packed, layer.bias)


def packed_together(
    owner: nn.Module, layers: Sequence[nn.Linear], arrange: Callable[[list[Tensor]], Tensor]
) -> PackedLinear:
    """Return one `PackedLinear` for packable layers with biases and the same input.

    Args:
        owner: The module that stores the copy of the weights; a module has at most one copy.
        layers: The layers.
        arrange: Function that joins the weights, and likewise the biases, in the desired order.
    """
    weights: list[Tensor] = [part.weight for part in layers]
    biases: list[Tensor] = [part.bias for part in layers]
    return _copy(owner, weights + biases, lambda: (arrange(weights), arrange(biases)))


def _copy(
    owner: nn.Module, parameters: Sequence[Tensor], make: Callable[[], tuple[Tensor, Tensor | None]]
) -> PackedLinear:
    """Return the owner's `PackedLinear`, or a new one if the parameters have changed."""
    known = _PACKED.get(owner)
    if known is None or not _are_unchanged(parameters, known.seen):
        weight, bias = make()
        if weight.numel() < SMALLEST:
            product = PackedLinear(weight, None, bias)
        else:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
            product = PackedLinear(weight if weight.numel() < LEAST_WORK else None, packed, bias)
        known = _PACKED[owner] = _Copy(product, [_see(parameter) for parameter in parameters])
    return known.product


def release(model: nn.Module) -> None:
    """Free the packed copies of a model's weights."""
    for module in model.modules():
        _PACKED.pop(module, None)


def _pays(x: Tensor, weight: Tensor) -> bool:
    """Return whether x W^T is faster with a packed W."""
    rows = x.numel() // weight.size(-1)
    return rows <= MOST_ROWS and rows * weight.numel() >= LEAST_WORK


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


def _see(parameter: Tensor) -> _Seen:
    identity = (parameter.data_ptr(), parameter._version, parameter.dtype, parameter.shape)
    return _Seen(identity, _sums_of_bits(parameter), _sample(parameter).clone())


def _are_unchanged(parameters: Sequence[Tensor], seen: Sequence[_Seen]) -> bool:
    return all(
        now.identity == known.identity
        and torch.equal(now.sample, known.sample)
        and torch.equal(now.sums, known.sums)
        for now, known in zip(map(_see, parameters), seen, strict=True)
    )


def _sums_of_bits(parameter: Tensor) -> Tensor:
    """Sum each row's bits as integers with overflow, which is exact, unlike a sum of floats."""
    size = parameter.element_size()
    # A parameter may be a view that begins anywhere in a larger tensor.
    widths = (parameter.size(-1) * size, parameter.storage_offset() * size)
    word = next(kind for kind in _WORDS if all(width % kind.itemsize == 0 for width in widths))
    return parameter.detach().view(word).sum(-1, dtype=word)


def _sample(parameter: Tensor) -> Tensor:
    """Return a view of equally spaced entries that covers every row and every column."""
    columns = parameter.size(-1)
    shorter = min(parameter.numel() // columns, columns)
    # A spacing without a common factor with the number of columns reaches every column.
    distance = next(step for step in range(shorter, 0, -1) if math.gcd(step, columns) == 1)
    return parameter.detach().flatten()[::distance]
