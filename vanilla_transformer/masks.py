# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Masks made once for all layers: they hide ids of -100 in targets, and padding in sources.

Shapes: B batch, S source length, T target length.
"""

import torch
from torch import nn
from transformers.utils import is_tracing

from .loss import IGNORED


def mask_gaps(
    ids: torch.Tensor, mask: torch.Tensor | None, *, filler: int, cached: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Fill gaps (-100) in target ids, (B, T), and return the ids and a mask that hides the gaps.

    The mask, (B, cached + T), covers the cached positions too. A 4-D mask stays as it is.
    """
    is_gap = ids == IGNORED
    # Causal attention without a mask is faster, but a traced graph cannot branch on data.
    if ids.is_meta or not (is_tracing(ids) or is_gap.any()):
        return ids, mask
    text = nn.functional.pad(~is_gap, (cached, 0), value=True)
    if mask is None:
        mask = text
    elif mask.shape == text.shape:  # other shapes are refused later
        mask = mask.bool() & text
    return ids.masked_fill(is_gap, filler), mask


def mask_for_all_layers(
    mask: torch.Tensor | None, attends: str, dtype: torch.dtype
) -> torch.Tensor | None:
    """Convert a padding mask, (B, S), to an additive mask for attention scores, (B, 1, 1, S).

    It is 0 at tokens and the most negative number at padding, in the dtype of autocast or else
    the given one. Rows begin at multiples of 8 numbers. A GPU's kernels take this mask as it is,
    where every layer would convert one of bools. Other masks, and those for attention other than
    `eager` and `sdpa`, stay as they are.
    """
    if mask is None or mask.dim() != 2 or attends not in ("eager", "sdpa"):
        return mask
    rows, length = mask.shape
    if torch.is_autocast_enabled(mask.device.type):
        dtype = torch.get_autocast_dtype(mask.device.type)
    width = length if is_tracing(mask) else -(-length // 8) * 8  # no rounding in a traced graph
    added = torch.zeros(rows, width, dtype=dtype, device=mask.device)[:, :length]
    return added.masked_fill_(mask == 0, torch.finfo(dtype).min)[:, None, None]
