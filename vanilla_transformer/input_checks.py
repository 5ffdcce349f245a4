# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of a model's inputs: errors that say what was got and what is allowed.

Types and shapes are always checked. Values are checked on a CPU only, since reading them would
stall any other device; on other devices, a mask counts as 1 wherever it is not 0. Only
`check_prefix_mask` reads a mask on any device, once in a call of `generate`. Nothing is checked
while a graph is traced.

Shapes: B sentences in a batch, T tokens in the longest, d = d_model.
"""

import torch
from torch import Tensor

from .errors import RequestError


def check_ids(
    ids: Tensor | None, vocab_size: int, name: str, *, ignored: int | None = None
) -> None:
    """Refuse ids that are not (B, T) integers below `vocab_size`; the id `ignored` is allowed."""
    if _is_traced():
        return
    ids = _checked_tensor(ids, name)
    if ids.dtype not in (torch.int64, torch.int32):
        raise RequestError(
            f"{name} is of type {ids.dtype}; allowed are int64 and int32: give the tokenizer's ids."
        )
    if ids.dim() != 2 or not ids.numel():
        raise RequestError(
            f"{name} has the shape {tuple(ids.shape)}; allowed is (sentences, tokens), at least "
            "one of each. Use ids[None] for a single sentence, and leave out a sentence without "
            "tokens."
        )
    if ids.device.type != "cpu":
        return
    looked_at = ids if ignored is None else ids.where(ids != ignored, 0)
    lowest, highest = (bound.item() for bound in looked_at.aminmax())
    if lowest < 0 or highest >= vocab_size:
        got, allowed = f"ids from {lowest} to {highest}", f"0 to {vocab_size - 1}"
        raise RequestError(
            f"{name} holds {got}; allowed are {allowed}. Was another tokenizer used?"
        )


def check_states(states: Tensor, d_model: int, name: str, *, rows: int | None = None) -> None:
    """Refuse states that are not (B, T, d) floats; B must equal `rows`, or one of them be 1."""
    if _is_traced():
        return
    _checked_tensor(states, name)
    shape = tuple(states.shape)
    if not states.is_floating_point() or len(shape) != 3 or shape[2] != d_model or 0 in shape:
        raise RequestError(
            f"{name} is of type {states.dtype} and has the shape {shape}; allowed are floats of "
            f"the shape (sentences, tokens, d_model={d_model}), at least one of each."
        )
    if rows is not None and shape[0] != rows and 1 not in (shape[0], rows):
        raise RequestError(
            f"{name} holds {shape[0]} sentences, but there are {rows} targets; give one for each."
        )


def check_mask(mask: Tensor | None, rows: int, length: int | None, name: str) -> None:
    """Refuse a mask that is not (B, T) ones and zeros. One of four dimensions is not checked.

    Args:
        mask: 1 at tokens and 0 at padding; None: no padding.
        rows: B.
        length: T; None if it is not known without waiting for the device.
        name: The mask's name in the error.
    """
    if mask is None or _is_traced():
        return
    _checked_tensor(mask, name)
    if mask.dim() == 4:
        return
    shape = tuple(mask.shape)
    if len(shape) != 2 or shape != (rows, shape[1] if length is None else length):
        raise RequestError(
            f"{name} has the shape {shape}; allowed is ({rows}, {length or 'tokens'}): 1 for each "
            "token and 0 for padding, including the tokens in a cache."
        )
    if mask.device.type == "cpu" and not ((mask == 0) | (mask == 1)).all():
        raise RequestError(
            f"{name} holds other numbers than 1 (a token) and 0 (padding); give the tokenizer's "
            "mask. A mask that is added to the scores must have four dimensions."
        )


def check_prefix_mask(mask: Tensor | None, cache: str | None) -> None:
    """Refuse padding in the beginning of a translation, given to `generate` with a static cache.

    `generate` then makes the mask four-dimensional, and positions cannot be counted from that.
    """
    if mask is not None and cache == "static" and not mask.all():
        raise RequestError(
            "decoder_attention_mask has padding, which a static cache does not support; call "
            "generate with another cache, or with beginnings of equal length."
        )


def _checked_tensor(value: object, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RequestError(f"{name} is of type {type(value).__name__}; give a torch.Tensor.")
    return value


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


__all__ = ["check_ids", "check_mask", "check_prefix_mask", "check_states"]
