# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""`generate` of transformers: its cache, its padding, and the paper's limit on the length (6.1).

A limit replaces the paper's only if the user sets it. `Seq2SeqTrainer` fills the generation config
with all defaults of transformers, also a `max_length` of 20, which must not cut translations short.
It also pads predictions to that config's `max_new_tokens`, so a new model's config sets none.
"""

from typing import Any

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.generation import GenerationConfig, GenerationMixin
from transformers.modeling_outputs import Seq2SeqLMOutput

from .input_checks import check_generation
from .ranges import EXTRA_TOKENS

CACHE_NAMES = ("cache", "past_key_values")  # transformers 5.24 renamed the cache
_FIELDS = Seq2SeqLMOutput.__dataclass_fields__  # transformers may rename the cache here too
CACHE = next((name for name in _FIELDS if "Cache" in str(_FIELDS[name].type)), CACHE_NAMES[0])
HOSTS_LENGTH = 20  # transformers' default `max_length`


def one_cache(
    cache: Cache | None, past_key_values: Cache | None, *, make: bool | None = False
) -> EncoderDecoderCache | None:
    """Return the cache, passed under either of two names; if both, the one that is not empty.

    For a learned prompt, PEFT gives `past_key_values` beside the `cache` of `generate`, which is
    empty at the first token only. With `make`, a cache is made if none is given.
    """
    if past_key_values is not None and (cache is None or not cache.get_seq_length()):
        cache = past_key_values
    if cache is None and make:
        cache = DynamicCache()
    if cache is None or isinstance(cache, EncoderDecoderCache):
        return cache
    return EncoderDecoderCache(cache, DynamicCache())


def longest_sequence(model: PreTrainedModel) -> int | None:
    """Return the size of the model's table of positions; None if its positions are unlimited."""
    config: Any = model.config
    stock = getattr(config, "model_type", None) in ("marian", "pegasus")
    has_table = stock or getattr(config, "position_encoding", None) == "learned"
    return config.max_position_embeddings if has_table else None


class LimitedGenerationMixin(GenerationMixin):
    """`generate` with the paper's length limit; it refuses arguments that it does not support."""

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """Record whether the call sets a length limit, for `_prepare_generated_length`."""
        prepared, rest = super()._prepare_generation_config(generation_config, **kwargs)  # type: ignore[misc]  # untyped in transformers
        own: Any = self.generation_config
        limits = [
            name
            for name in ("max_new_tokens", "max_length")
            if kwargs.get(name) is not None
            # A copy of the model's own config, as pipelines pass it, sets no limit.
            or getattr(generation_config, name, None) not in (None, getattr(own, name))
        ]
        prepared.bounded_by_call = bool(limits)  # type: ignore[attr-defined]  # our own attribute
        if limits == ["max_length"]:
            prepared.max_new_tokens = None
        rest.pop("labels", None)  # from Seq2SeqTrainer, with predict_with_generate
        begun = one_cache(kwargs.get("cache"), kwargs.get("past_key_values"))
        ids = kwargs.get("decoder_input_ids")
        if begun is not None and begun.get_seq_length() and ids is not None:
            # Otherwise transformers takes all ids for new ones, after those in the cache.
            rest.setdefault("decoder_attention_mask", torch.ones_like(ids))
        check_generation(prepared, kwargs, is_own=generation_config is None)
        return prepared, rest

    def _beam_search(self, *args: Any, generation_config: GenerationConfig, **kwargs: Any) -> Any:  # type: ignore[override]
        """Pad rows after their end; transformers mistakes a padding id of 0 for no padding."""
        padding: Any = generation_config._pad_token_tensor
        if padding is not None:
            generation_config._pad_token_tensor = torch.full_like(padding, -1)  # not a token's id
        output: Any = super()._beam_search(*args, generation_config=generation_config, **kwargs)  # type: ignore[misc]  # untyped in transformers
        sequences = getattr(output, "sequences", output)
        if padding is not None:
            sequences.masked_fill_(sequences < 0, padding)
        return output

    def _prepare_generated_length(
        self, generation_config: GenerationConfig, *args: Any, **kwargs: Any
    ) -> GenerationConfig:
        """Limit length by default to the longest source + 50 tokens, or min_length if more."""
        most = generation_config.max_new_tokens
        own: Any = self.generation_config
        # A max_length counts as set, unless Seq2SeqTrainer filled in all defaults: then settings
        # that nobody sets, such as typical_p, are not None.
        is_filled_in = own.max_length == HOSTS_LENGTH and own.typical_p is not None
        limited = most is not None or kwargs["has_default_max_length"] or is_filled_in
        if limited and not getattr(generation_config, "bounded_by_call", False):
            # Deviation: `generate` also ends at max_position_embeddings, 1,024 by default.
            if most is None:
                most = self.config.max_position_embeddings + 1 - kwargs["input_ids_length"]  # type: ignore[attr-defined]  # of the model
            least = max(generation_config.min_new_tokens or 0, generation_config.min_length or 0)
            longest = max(kwargs["inputs_tensor"].shape[1] + EXTRA_TOKENS, least)
            generation_config.max_new_tokens = min(most, longest)
            kwargs["has_default_max_length"] = True  # no warning about the config's max_length
        return super()._prepare_generated_length(generation_config, *args, **kwargs)  # type: ignore[misc]  # untyped in transformers
