# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Checks of a model's inputs where the result would otherwise be silently wrong.

torch itself refuses wrong types, most wrong shapes and ids outside of the vocabulary. As in
transformers, any value of a mask but 0 counts as 1: reading them would synchronize a GPU.
"""

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from transformers import GenerationConfig, __version__
from transformers.utils import is_tracing

from .errors import RequestError


class Flags(TypedDict, total=False):
    """Optional outputs of `forward`; transformers looks them up in this class."""

    output_attentions: bool | None
    output_hidden_states: bool | None


# Options that are read before the attention, and options that `generate` always passes on.
READ_ON_THE_WAY = {*Flags.__annotations__, "use_cache", "num_items_in_batch"}
READ_ON_THE_WAY |= {"tokenizer", "assistant_tokenizer", "assistant_model"}


def check_read(options: Mapping[str, Any], attend: Callable, mask: Tensor | None) -> None:
    """Refuse options that should change the result, but that the attention function ignores."""
    void = {"dropout": options["dropout"] == 0, "is_causal": mask is not None}
    given = [name for name in options if options[name] is not None and not void.get(name)]
    names = tuple(name for name in given if name not in READ_ON_THE_WAY)
    if unread := _unread(names, attend, bool(options["is_causal"])):
        what = f"Got {', '.join(unread)}, which neither the model nor its attention "
        what += f"{getattr(attend, '__name__', attend)} reads; leave it out. If you did not give it"
        raise RequestError(f"{what}: is transformers {__version__} newer than this code?")


@torch.compiler.assume_constant_result  # torch.compile cannot read source
def _unread(names: tuple[str, ...], attend: Callable, is_causal: bool) -> tuple[str, ...]:
    find = _unread_by if getattr(attend, "__hash__", None) else _unread_by.__wrapped__
    return find(attend, names, is_causal)


@functools.lru_cache  # reading source takes longer than attending
def _unread_by(attend: Callable, names: tuple[str, ...], is_causal: bool) -> tuple[str, ...]:
    """Return the names that an attention function neither takes as parameters nor reads."""
    parameters, source = list(inspect.signature(attend).parameters.values()), ""
    read = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    with contextlib.suppress(OSError, TypeError):  # built-in functions have no source
        source = re.sub("#.*", "", inspect.getsource(attend))
    rest = next((p.name for p in parameters if p.kind == p.VAR_KEYWORD), "")
    looked_up = re.findall(rf"""\b{rest}(?:\.(?:get|pop)\(|\[)\s*["'](\w+)["']""", source)
    in_module = rf"""\b{parameters[0].name}(?:\.|,\s*["'])(scaling|dropout|is_causal)\b"""
    read |= {*looked_up, *re.findall(in_module, source)}
    if not source or len(re.findall(rf"\b{rest}\b", source)) > 1 + len(looked_up):
        read |= {"scaling", "dropout", "is_causal"}  # unknown, or passed to another function
    # Without a mask, Eq. 1 attends to all positions, as do functions that never mention "causal".
    says = "causal" in source.replace(getattr(attend, "__name__", "def"), "")
    if str(attend.__module__).startswith(__package__) or not (is_causal or says):
        read.add("is_causal")
    return tuple(name for name in names if name not in read)


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
    """Refuse arguments that `generate` does not support; `settings` are the model's if `is_own`.

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
