# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of a model's inputs: errors that say what was got and what is allowed.

Names, types and shapes are always checked. Values are checked on a CPU only, since reading them
would stall any other device; on other devices, a mask counts as 1 wherever it is not 0. Only
`check_generation` reads a mask on any device, once in a call of `generate`. Types, shapes and
values are not checked while a graph is traced.

Shapes: B sentences in a batch, T tokens in the longest, d = d_model.
"""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

import torch
from torch import Tensor
from transformers import GenerationConfig, __version__

from .errors import RequestError


class Flags(TypedDict, total=False):
    """Outputs that a forward may be asked for; transformers looks here whether it can be."""

    output_attentions: bool | None
    output_hidden_states: bool | None


_LOOKED_UP = re.compile(r"""\bkwargs(?:\.(?:get|pop)\(|\[)\s*["'](\w+)["']""")
# Arguments that transformers itself, or the model as a whole, reads before the attention gets them.
READ_ON_THE_WAY = {*Flags.__annotations__, "use_cache", "num_items_in_batch"}


def check_read(names: Iterable[str], reader: Callable[..., object]) -> None:
    """Refuse arguments of a forward that nothing on the way to the attention has read.

    Args:
        names: Names of the arguments that are left.
        reader: The attention function. It reads its parameters by name, and what its source looks
            up in `kwargs`.
    """
    unread = [name for name in names if name not in READ_ON_THE_WAY]
    if not unread:
        return
    parameters = inspect.signature(reader).parameters.values()
    read = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    with contextlib.suppress(OSError, TypeError):  # has no source
        read |= set(_LOOKED_UP.findall(inspect.getsource(reader)))
    unread = [name for name in unread if name not in read]
    if unread:
        raise RequestError(
            f"Got {', '.join(unread)}, which neither the model nor its attention, "
            f"{getattr(reader, '__name__', reader)}, reads; leave it out. If you did not give it, "
            f"another library did: is transformers {__version__} newer than this code?"
        )


def check_one_input(ids: Tensor | None, embeds: Tensor | None, name: str) -> None:
    """Refuse both ids and embeddings, and neither of them."""
    if (ids is None) == (embeds is None):
        got = "neither" if ids is None else "both"
        raise RequestError(f"{name} got {got} of input_ids and inputs_embeds; give one.")


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


def check_generation(
    settings: GenerationConfig, call: Mapping[str, object], *, is_own: bool
) -> None:
    """Refuse a masked prefix with a static cache, and a config that suppresses every end.

    With a static cache `generate` makes the mask of a prefix four-dimensional, and positions cannot
    be counted from that. Without an end no sentence would be complete.

    Args:
        settings: The model's generation config, with the call's arguments.
        call: The call's arguments.
        is_own: Whether the generation config is the model's own, not the call's.
    """
    mask = call.get("decoder_attention_mask")
    if isinstance(mask, Tensor) and settings.cache_implementation == "static" and not mask.all():
        raise RequestError(
            "decoder_attention_mask has padding, which a static cache does not support; call "
            "generate with another cache, or with beginnings of equal length."
        )
    if is_own and call.get("suppress_tokens") is None:
        check_ends(settings.suppress_tokens, settings.eos_token_id)


def check_ends(suppressed: object, ends: int | Sequence[int] | None) -> None:
    """Refuse a generation config that suppresses all the ids that end a sentence.

    A config that got the tokenizer's `eos_token_id` after the model was made may have done so.
    """
    ends = [ends] if isinstance(ends, int) else ends
    if ends and isinstance(suppressed, (list, tuple)) and set(ends) <= set(suppressed):
        raise RequestError(
            f"The generation config's suppress_tokens={list(suppressed)} hold the end of a "
            f"sentence, {list(ends)}, so that none could end. Give the config the tokenizer's ids "
            "before you make the model, or set model.generation_config.suppress_tokens = "
            "model.config.ids_outside_of_text(). A single call may suppress the end."
        )


def _checked_tensor(value: object, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RequestError(f"{name} is of type {type(value).__name__}; give a torch.Tensor.")
    return value


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


__all__ = [
    "READ_ON_THE_WAY",
    "Flags",
    "check_ends",
    "check_generation",
    "check_ids",
    "check_mask",
    "check_one_input",
    "check_read",
    "check_states",
]
