# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of a model's inputs, where the result would otherwise be wrong in silence.

Types, most shapes and ids outside of the vocabulary are errors of torch. As in transformers, any
value of a mask but 0 counts as 1; to read them would stall a device.
"""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

import torch
from torch import Tensor
from transformers import GenerationConfig, __version__
from transformers.utils import is_tracing

from .errors import RequestError


class Flags(TypedDict, total=False):
    """Outputs that a forward may be asked for; transformers looks here whether it can be."""

    output_attentions: bool | None
    output_hidden_states: bool | None


_LOOKED_UP = re.compile(r"""\bkwargs(?:\.(?:get|pop)\(|\[)\s*["'](\w+)["']""")
# Arguments that transformers itself, or the model as a whole, reads before the attention gets them.
READ_ON_THE_WAY = {*Flags.__annotations__, "use_cache", "num_items_in_batch"}
# `generate` hands these on too, whether or not its search has a use for them.
READ_ON_THE_WAY |= {"tokenizer", "assistant_tokenizer", "assistant_model"}


def check_read(names: Iterable[str], reader: Callable[..., object]) -> None:
    """Refuse arguments of a forward that nothing on the way to the attention has read.

    The attention function, `reader`, reads its parameters and what its source looks up in kwargs.
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


def check_mask(mask: Tensor | None, rows: int, length: int | None, name: str) -> None:
    """Refuse a mask that is neither (B, T) nor of four dimensions; T may be unknown, None."""
    if mask is None or is_tracing(mask) or mask.dim() == 4:
        return
    shape = tuple(mask.shape)
    if len(shape) != 2 or shape != (rows, length or shape[1]):
        allowed = f"({rows}, {length or 'tokens'}), including the tokens in a cache"
        raise RequestError(f"{name} has the shape {shape}; allowed is {allowed}.")


def check_generation(
    settings: GenerationConfig, call: Mapping[str, object], *, is_own: bool
) -> None:
    """Refuse what `generate` cannot do: `call` has its arguments, `settings` all that hold.

    With a static cache it makes the mask of a prefix four-dimensional, and positions cannot be
    counted from that. If the model's own config (`is_own`) suppresses all ends, nothing could end.
    """
    for name in ("guidance_scale", "prefill_chunk_size"):
        if (value := getattr(settings, name, None)) not in (None, 1):
            raise RequestError(
                f"Got {name}={value}, which is for decoder-only models; leave it out."
            )
    ids, mask = call.get("decoder_input_ids"), call.get("decoder_attention_mask")
    if isinstance(ids, Tensor) and (ids == -100).any():
        raise RequestError(
            "decoder_input_ids has gaps, -100, which generate cannot skip; move the padding "
            "of beginnings to the left, and give a decoder_attention_mask."
        )
    caches = [call.get("cache"), call.get("past_key_values"), settings.cache_implementation]
    is_static = any(getattr(cache, "is_compileable", "static" in str(cache)) for cache in caches)
    if isinstance(mask, Tensor) and is_static and not mask.all():
        raise RequestError(
            "decoder_attention_mask has padding, which a static cache does not support; call "
            "generate with another cache, or with beginnings of equal length."
        )
    if is_own and call.get("suppress_tokens") is None:
        check_ends(settings.suppress_tokens, settings.eos_token_id)


def check_ends(suppressed: object, ends: int | Sequence[int] | Tensor | None) -> None:
    """Refuse a generation config that suppresses all the ids that end a sentence."""
    ends = torch.as_tensor([] if ends is None else ends).flatten().tolist()
    if ends and isinstance(suppressed, (list, tuple)) and set(ends) <= set(suppressed):
        raise RequestError(
            f"The generation config's suppress_tokens={list(suppressed)} hold the end of a "
            f"sentence, {list(ends)}, so that none could end; set them to "
            f"{sorted({*suppressed} - {*ends})}. A single call may suppress the end."
        )
