# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of what a model is called with: one error that says what was got and what is allowed.

Types and shapes are always looked at. Values are looked at on a CPU alone, since looking makes any
other device wait; there a mask is read as 1 wherever it is not 0. While a graph is traced, nothing
is checked.

Shapes: B sentences of a batch, T tokens of the longest, d = d_model.
"""

import torch
from torch import Tensor

from .errors import RequestError


def check_ids(
    ids: Tensor | None, vocab_size: int, name: str, *, ignored: int | None = None
) -> None:
    """Refuse what is not (B, T) integers below `vocab_size`; `ignored` is one that is no id."""
    if _is_traced():
        return
    ids = _checked_tensor(ids, name)
    if ids.dtype not in (torch.int64, torch.int32):
        raise RequestError(
            f"{name} is of {ids.dtype}; allowed are int64 and int32: give the tokenizer's ids."
        )
    if ids.dim() != 2 or not ids.numel():
        raise RequestError(
            f"{name} has the shape {tuple(ids.shape)}; allowed is (sentences, tokens), at least "
            "one of each: ids[None] makes a batch of one sentence, and one without tokens is to be "
            "left out."
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
    """Refuse what is not (B, T, d) floats; with `rows`, B must be that, or one of both be 1."""
    if _is_traced():
        return
    _checked_tensor(states, name)
    shape = tuple(states.shape)
    if not states.is_floating_point() or len(shape) != 3 or shape[2] != d_model or 0 in shape:
        raise RequestError(
            f"{name} is of {states.dtype} and has the shape {shape}; allowed are floats of the "
            f"shape (sentences, tokens, d_model={d_model}), at least one of each."
        )
    if rows is not None and shape[0] != rows and 1 not in (shape[0], rows):
        raise RequestError(
            f"{name} holds {shape[0]} sentences, but there are {rows} targets; give as many."
        )


def check_mask(mask: Tensor | None, rows: int, length: int | None, name: str) -> None:
    """Refuse what is neither (B, T) ones and zeros nor (B, 1, T, T), which the host takes as it is.

    Args:
        mask: 1 at tokens and 0 at padding; None: no padding.
        rows: B.
        length: T; None where it is not known without waiting.
        name: for the error.
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
            "token and 0 for each place of padding, those of a cache included."
        )
    if mask.device.type == "cpu" and not ((mask == 0) | (mask == 1)).all():
        raise RequestError(
            f"{name} holds other numbers than 1 (a token) and 0 (padding); give the tokenizer's "
            "mask. One to be added to scores has four dimensions."
        )


def _checked_tensor(value: object, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RequestError(f"{name} is of type {type(value).__name__}; give a torch.Tensor.")
    return value


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


__all__ = ["check_ids", "check_mask", "check_states"]
