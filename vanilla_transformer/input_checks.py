# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of a model's inputs where the result would otherwise be silently wrong.

torch itself refuses wrong types, most wrong shapes and ids outside of the vocabulary. As in
transformers, any value of a mask but 0 counts as 1: reading masks would synchronize a GPU.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils import is_tracing

from .errors import RequestError


class Flags(TypedDict, total=False):
    """Optional outputs of `forward`; transformers looks them up in this class."""

    output_attentions: bool | None
    output_hidden_states: bool | None


# Options that are read before the attention, and options that `generate` always passes on.
READ_ON_THE_WAY = {*Flags.__annotations__, "use_cache", "num_items_in_batch"}
READ_ON_THE_WAY |= {"tokenizer", "assistant_tokenizer", "assistant_model"}


def check_read(options: Mapping[str, Any], attend: Callable) -> None:
    """Refuse options that nothing reads; a user's attention function with **kwargs reads any."""
    given = [name for name in options if options[name] is not None and name not in READ_ON_THE_WAY]
    if given and (unread := _unread(tuple(given), attend)):
        fn, names = getattr(attend, "__name__", attend), ", ".join(unread)
        raise RequestError(f"Neither the model nor its attention {fn} reads {names}; leave it out.")


@torch.compiler.assume_constant_result  # torch.compile cannot read signatures
def _unread(names: tuple[str, ...], attend: Callable) -> list[str]:
    """Return the names that an attention function does not read."""
    if str(attend.__module__).split(".")[0] not in ("transformers", __name__.split(".")[0]):
        return []  # Python itself refuses a keyword that it does not take
    known = inspect.signature(attend).parameters
    return [it for it in names if it not in known or known[it].kind.name == "VAR_KEYWORD"]


def check_masked(implementation: str) -> None:
    """Refuse an attention without a mask function, for which transformers makes no masks."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS._global_mapping:  # keys() cannot compile
        what = "has no mask function, so it would see padding and later tokens"
        call = f"transformers.AttentionMaskInterface.register({implementation!r}, eager_mask)"
        raise RequestError(f"Attention {implementation!r} {what}; call {call}, from masking_utils.")


def check_mask(mask: Tensor | None, rows: int, length: int | None, name: str) -> None:
    """Refuse a mask that is neither (B, T) nor 4-D; T is None if unknown."""
    if mask is None or is_tracing(mask) or mask.dim() == 4:
        return
    shape = tuple(mask.shape)
    if len(shape) != 2 or shape != (rows, length or shape[1]):
        allowed = f"({rows}, {length or 'tokens'}), including the tokens in a cache"
        raise RequestError(f"{name} has the shape {shape}; allowed is {allowed}.")


def check_generation(
    settings: GenerationConfig, call: Mapping[str, object], *, is_own: bool
) -> None:
    """Refuse what `generate` does not support; `is_own`: `settings` are the model's, not a call's.

    A static cache makes a prefix's mask four-dimensional; positions cannot be counted from that.
    """
    for name in ("guidance_scale", "prefill_chunk_size"):
        if (value := getattr(settings, name, None)) not in (None, 1):
            what = f"Got {name}={value}"
            raise RequestError(f"{what}, which is for decoder-only models; leave it out.")
    ids, mask = call.get("decoder_input_ids"), call.get("decoder_attention_mask")
    if isinstance(ids, Tensor) and (ids == -100).any():
        remedy = "pad on the left, and give decoder_attention_mask."
        raise RequestError(f"decoder_input_ids contains -100; {remedy}")
    caches = [call.get("cache"), call.get("past_key_values"), settings.cache_implementation]
    is_static = any(getattr(cache, "is_compileable", "static" in str(cache)) for cache in caches)
    if isinstance(mask, Tensor) and is_static and not mask.all():
        what = "decoder_attention_mask has padding, which a static cache does not support"
        raise RequestError(f"{what}; use another cache, or prefixes of equal length.")
    if is_own and call.get("suppress_tokens") is None:
        check_ends(settings.suppress_tokens, settings.eos_token_id)


def check_ends(suppressed: object, ends: int | Sequence[int] | Tensor | None) -> None:
    """Refuse a generation config that suppresses all the ids that end a sentence."""
    ends = torch.as_tensor([] if ends is None else ends).flatten().tolist()
    if ends and isinstance(suppressed, (list, tuple)) and set(ends) <= set(suppressed):
        what = f"suppress_tokens={list(suppressed)} of the generation config suppresses {ends}"
        others = sorted({*suppressed} - {*ends})
        raise RequestError(f"{what}, so no sentence could end; set suppress_tokens={others}.")
