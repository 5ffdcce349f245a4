"""Fast settings for training, mainly on a CPU: attention, matmuls, dropout and memory.

They apply during training and are undone after it, also after an error; only glibc's thresholds
do not adapt again (see `_kept_memory`).
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

from ..beam_search import returned_attention_weights
from ..machine.cpu_threads import usable_cores
from ..machine.environment import processor_facts

logger = logging.getLogger(__name__)

# Largest error of a float32 matmul, relative to its largest entry. float32 stays below 1e-5;
# bfloat16 and TF32 exceed 1e-3.
_FLOAT32_ERROR = 1e-4
# From glibc's malloc.h and manual: blocks above the largest threshold come from the kernel.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 2**25


_DROPOUT = nn.Dropout.forward  # torch's own; a patched one is not replaced


class FastDropout(nn.Dropout):
    """nn.Dropout that draws its masks faster on a CPU, from 16 random bits per number.

    torch draws masks in one thread, one float at a time, which takes a tenth of a training step. p
    is rounded to a multiple of 2^-16; the scale uses the rounded p, so that the expectation is
    exact. The bits come from torch's default generator, whose state is in every checkpoint.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Zero each number with probability p; scale the rest by 1 / (1 - p)."""
        dropped = round(self.p * 2**16)
        plain = not self.training or x.device.type != "cpu" or torch.compiler.is_compiling()
        if plain or not 0 < dropped < 2**16:
            return super().forward(x)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        # Multiplying by bools takes up to three times as long as by the same bytes as uint8.
        return (x * kept.view(torch.uint8)).mul_(2**16 / (2**16 - dropped))


class FastDropoutOfSums(FastDropout):
    """Dropout on the sums of embeddings and positions, after a cast to bfloat16.

    All residual connections that follow then have that dtype.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Under bfloat16 autocast, cast x to bfloat16; then apply `FastDropout`."""
        dtype = torch.get_autocast_dtype(device := x.device.type)
        if dtype == torch.bfloat16 and torch.is_autocast_enabled(device):
            x = x.to(dtype)
        return super().forward(x)


@contextlib.contextmanager
def cpu_training_settings(model: PreTrainedModel) -> Iterator[None]:
    """On a CPU, use eager attention, fast float32 matmuls, fast dropout and memory reuse.

    Only `sdpa` becomes `eager`, and only plain dropout is replaced; a user's own attention or
    dropout is kept. Under bfloat16 autocast, on a GPU too, the residual connections of both stacks
    become bfloat16, because matmuls would otherwise convert each input; parameters and gradients
    stay float32.

    Args:
        model: The model to train. On devices other than CPUs and GPUs nothing changes.
    """
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    with contextlib.ExitStack() as settings:
        if model.device.type == "cpu":
            message = "Training on the CPU: %d thread(s), %d usable core(s)."
            logger.info(message, threads, usable_cores())
            settings.enter_context(returned_attention_weights(model))  # eager attention is faster
            settings.enter_context(_kept_memory())
            settings.callback(torch.set_float32_matmul_precision, precision)
            torch.set_float32_matmul_precision(fast_float32_matmuls())
        if model.device.type in ("cpu", "cuda"):
            settings.callback(_set_plain_dropout, model)
            _set_fast_dropout(model)
        yield


@contextlib.contextmanager
def without_training_changes(model: nn.Module) -> Iterator[None]:
    """Remove our dropout and accelerate's autocast from a model until the block ends."""
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
    """Replace plain dropout by the fast one; p and hooks stay."""
    if nn.Dropout.forward is not _DROPOUT:
        return
    for name, module in model.named_modules():
        if type(module) is nn.Dropout:
            # Section 5.4: dropout on the sums of embeddings and positions, in both stacks.
            of_sums = name.endswith(("encoder.dropout", "decoder.dropout"))
            module.__class__ = FastDropoutOfSums if of_sums else FastDropout


def _set_plain_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FastDropout):
            module.__class__ = nn.Dropout  # type: ignore[assignment]  # the class it had before


@contextlib.contextmanager
def _kept_memory() -> Iterator[None]:
    """Make glibc keep the memory that an update frees instead of returning it to the kernel.

    The kernel zeroes every page that it hands out again, which takes up to a quarter of an update.
    If the user has set MALLOC_TRIM_THRESHOLD_ or MALLOC_MMAP_THRESHOLD_, nothing changes.
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
        # glibc cannot go back to adaptive thresholds; these are the largest that they would reach.
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)


@functools.cache
def fast_float32_matmuls() -> str:
    """Return "medium" if oneDNN's matmuls are faster and still float32, else "highest".

    "medium" lets torch use oneDNN. On AMD processors with AVX2 that is as fast as torch's
    default, MKL, and with AVX-512 twice as fast; on other processors the default stays. The answer
    depends only on the processor, not on its current speed, so that a repeated run computes the
    same. On processors with bfloat16 units oneDNN may compute in bfloat16, which is not the
    precision asked for; the error of a fixed matmul shows whether it does.
    """
    if processor_facts().get("vendor_id") != "AuthenticAMD":
        return "highest"
    generator = torch.Generator().manual_seed(0)
    # Large enough for oneDNN: even under "medium" smaller matmuls go to the default library.
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
