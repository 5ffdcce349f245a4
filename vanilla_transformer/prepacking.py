# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Linear layers whose weights lie as oneDNN's kernels read them, for the few rows of one position.

A decoding step multiplies a handful of rows by every weight of the decoder. The library that torch
calls for that rearranges the weight each time, or does badly without; laid out once, the same
product takes a quarter to two thirds of the time. The two operators are private to torch (they are
what its compiler emits): this file alone knows them, and does without where they are missing.
"""

import functools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

SMALLEST = 2**18  # entries of a weight; for smaller ones the call costs more than it gains
_ROWS = 32  # for which oneDNN is asked to lay the weights out; it serves any number


class _Packed(NamedTuple):
    identity: tuple[object, ...]
    places: Tensor  # of the sample, counted through the whole weight
    sample: Tensor  # entries of every row and column: what `.data` changes, no counter tells
    weight: Tensor  # in a layout that oneDNN alone can read


_PACKED: WeakKeyDictionary[nn.Linear, _Packed] = WeakKeyDictionary()


@contextmanager
def packed_linears(*roots: nn.Module) -> Iterator[None]:
    """Within it, plain linear layers below the roots compute with packed weights.

    Only what computes alike and gains is replaced: exact `nn.Linear` modules without gradients, not
    too small, in a dtype that the hardware computes in. The copies are kept for the next time, made
    again when their weights have changed, and freed with their modules or by `release`.
    """
    replaced = []
    try:
        if _can_pack():
            for root in roots:
                for module in root.modules():
                    if type(module) is nn.Linear and not _is_hooked(module):
                        weight = _packed_weight(module)
                        if weight is not None:
                            module.forward = functools.partial(_linear, weight, module.bias)
                            replaced.append(module)
        yield
    finally:
        for module in replaced:
            module.__dict__.pop("forward", None)


def release(model: nn.Module) -> None:
    """Frees the copies of a model's weights."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _PACKED.pop(module, None)


def _can_pack() -> bool:
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


def _is_hooked(module: nn.Module) -> bool:
    """Whether others act on it: a forward of its own (accelerate), or one that makes its weight."""
    return "forward" in module.__dict__ or bool(module._forward_pre_hooks)


def _packed_weight(module: nn.Linear) -> Tensor | None:
    """The module's weight as oneDNN reads it; None where that is of no use."""
    weight = module.weight
    if weight.device.type != "cpu" or weight.numel() < SMALLEST:
        return None
    if not weight.is_contiguous() or weight.is_inference():
        return None
    native = {
        torch.float32: lambda: True,
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
    }
    if weight.dtype not in native or not native[weight.dtype]():
        return None
    identity = (weight.data_ptr(), weight._version, weight.dtype, weight.shape)
    known = _PACKED.get(module)
    if (
        known is None
        or known.identity != identity
        or not torch.equal(weight.take(known.places), known.sample)
    ):
        rows, columns = weight.shape
        diagonal = torch.arange(max(rows, columns))  # as long as the longer side, and wound around
        places = diagonal % rows * columns + diagonal % columns
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
        known = _PACKED[module] = _Packed(identity, places, weight.take(places), packed)
    return known.weight


def _linear(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
