"""What makes training on a CPU fast: attention, products, dropout and memory that win there.

All of it is set for the time of a training and put back, also after an error.
"""

import contextlib
import ctypes
import functools
import logging
import os
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..beam_search import eager_may_replace
from ..storage.environment import cpu_flags

logger = logging.getLogger(__name__)

# Largest error by the largest entry of a product. float32 stays below 1e-5, bfloat16 and TF32 do
# not stay below 1e-3.
_FLOAT32_ERROR = 1e-4
# Of glibc's malloc.h, and of its manual: larger blocks are always fetched from the kernel.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 2**25


_DROPOUT = nn.Dropout.forward  # torch's own; where somebody patched it, it stays


class FastDropout(nn.Dropout):
    """nn.Dropout with masks from 16 random bits a number, on a CPU, in training.

    torch draws its masks there by one thread and one float at a time, a tenth of a training step.
    p is rounded to a multiple of 2^-16; the scale is that of the rounded p, so that the expectation
    is exact. The bits come from torch's default generator, whose state checkpoints hold.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Zeros with probability p, the rest scaled by 1 / (1 - p)."""
        dropped = round(self.p * 2**16)
        plain = not self.training or x.device.type != "cpu" or torch.compiler.is_compiling()
        if plain or not 0 < dropped < 2**16:
            return super().forward(x)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        # A product with bools takes up to three times as long as one with the same bytes.
        return (x * kept.view(torch.uint8)).mul_(2**16 / (2**16 - dropped))


class FastDropoutOfSums(FastDropout):
    """Dropout on the sums of embeddings and positions, which autocast makes its own dtype first.

    All residual connections that follow have that dtype then.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As `FastDropout`."""
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        return super().forward(x)


@contextlib.contextmanager
def cpu_training_settings(
    model: PreTrainedModel, *, matmul_precision: str | None = None
) -> Iterator[None]:
    """On a CPU: eager attention, the fast float32 products, cheap dropout masks, kept memory.

    Only `sdpa` becomes `eager`, and only plain dropout is replaced: what a user has made of either
    is trained as it is. Under bfloat16 autocast the residual connections of both stacks are
    bfloat16 too, parameters and their gradients float32 as ever: products would otherwise convert
    each of their inputs.

    Args:
        model: on another device it is left as it is.
        matmul_precision: as for `torch.set_float32_matmul_precision`; None leaves it.
    """
    if model.device.type != "cpu":
        yield
        return
    precision = torch.get_float32_matmul_precision()
    attention = model.config._attn_implementation
    trained = "eager" if eager_may_replace(model) else attention
    logger.info("Training on the CPU with %d threads.", torch.get_num_threads())
    logger.debug(
        "%s attention (was %s), float32 matmul precision %s (was %s), dropout masks of 16 random "
        "bits; freed memory is kept for the next update.",
        trained,
        attention,
        matmul_precision or precision,
        precision,
    )
    try:
        if trained != attention:
            model.set_attn_implementation(trained)
        torch.set_float32_matmul_precision(matmul_precision or precision)
        _set_fast_dropout(model)
        with _kept_memory():
            yield
    finally:
        _set_plain_dropout(model)
        torch.set_float32_matmul_precision(precision)
        if trained != attention:
            model.set_attn_implementation(attention)


@contextlib.contextmanager
def as_its_user_made_it(model: nn.Module) -> Iterator[None]:
    """Take off a model in training our dropout and accelerate's autocast, for a while."""
    replaced = [module for module in model.modules() if isinstance(module, FastDropout)]
    autocast = model.__dict__.get("forward") if "_original_forward" in model.__dict__ else None
    _set_plain_dropout(model)
    if autocast is not None:
        model.forward = model.__dict__["_original_forward"]
    try:
        yield
    finally:
        if replaced:
            _set_fast_dropout(model)
        if autocast is not None:
            model.forward = autocast


def _set_fast_dropout(model: nn.Module) -> None:
    """Let plain dropout draw its masks fast; p stays, and so do hooks."""
    if nn.Dropout.forward is not _DROPOUT:
        return
    for module in model.modules():
        # Section 5.4: both stacks drop out of the sums of embeddings and positions.
        if hasattr(module, "embed_positions") and type(module.dropout) is nn.Dropout:
            module.dropout.__class__ = FastDropoutOfSums
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = FastDropout


def _set_plain_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FastDropout):
            module.__class__ = nn.Dropout  # type: ignore[assignment]  # which it was before


@contextlib.contextmanager
def _kept_memory() -> Iterator[None]:
    """Lets glibc keep what an update frees, which it gives back and fetches again otherwise.

    Every page that is fetched is zeroed by the kernel first, up to a quarter of the time of an
    update. What the user has set by MALLOC_TRIM_THRESHOLD_ or MALLOC_MMAP_THRESHOLD_ is left.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None or {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys():
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        # Where glibc's own thresholds, which grow with what is freed, end up.
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)


@functools.cache
def fast_float32_products() -> str:
    """Precision "medium" where oneDNN's products are faster and stay float32, else "highest".

    "medium" leaves the choice of the library to oneDNN. On AMD's processors that is as fast as
    torch's default, MKL, with AVX2, and twice as fast with AVX-512; elsewhere the default stays.
    The answer depends on the processor alone, not on its speed in this hour, so that a run that is
    repeated computes the same. Where the processor has units for bfloat16, oneDNN may compute in
    that, which is another precision than was asked for: the error of a fixed product tells.
    """
    if cpu_flags().get("vendor_id") != "AuthenticAMD":
        return "highest"
    generator = torch.Generator().manual_seed(0)
    # So large that oneDNN takes it: smaller ones are left to the default under "medium" too.
    x, weight = (torch.randn(rows, 512, generator=generator) for rows in (512, 1024))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        product = nn.functional.linear(x, weight)
    finally:
        torch.set_float32_matmul_precision(before)
    exact = x.double() @ weight.double().t()
    error = ((product - exact).abs().max() / exact.abs().max()).item()
    return "medium" if error <= _FLOAT32_ERROR else "highest"
