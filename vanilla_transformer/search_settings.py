# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Settings of every search (Section 6.1): defaults, ranges, and where values come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from .errors import RequestError, quoted
from .ranges import COUNT_OR_ZERO, EXTRA_TOKENS, LENGTH_PENALTY, NUM_BEAMS, Range

if TYPE_CHECKING:
    from transformers import GenerationConfig

# Settings that a generation config may hold.
SAVED = ("num_beams", "length_penalty", "early_stopping", "num_return_sequences", "suppress_tokens")
# Settings that our beam search reads, or that do not change its result: caches, outputs, numbers
# for sampling and assisted decoding, which are off. Settings not listed here need `generate`.
_READ_OR_WITHOUT_EFFECT = {
    *(*SAVED, "max_new_tokens", "max_length", "diversity_penalty"),
    *("bos_token_id", "pad_token_id", "transformers_version", "_from_model_config"),
    *("use_cache", "cache_config", "cache_implementation", "max_cache_len", "low_memory"),
    *("compile_config", "disable_compile", "prefill_chunk_size", "continuous_batching_config"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores"),
    *("return_dict_in_generate", "remove_invalid_values", "renormalize_logits"),
    *("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff"),
    *("eta_cutoff", "num_assistant_tokens", "num_assistant_tokens_schedule", "is_assistant"),
    *("assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind"),
    *("assistant_ensemble_weight", "max_matching_ngram_size", "speculation_type"),
}


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search; the defaults are the paper's.

    Args:
        num_beams: Unfinished hypotheses kept at each position; 1 is greedy search.
        length_penalty: Alpha; 0 prefers short translations, larger values longer ones.
        early_stopping: Whether a sentence is also done when `num_beams` of its hypotheses have
            finished, each of them among the `num_beams` best of its position. This is the rule of
            fairseq, CTranslate2 and transformers. It is much faster with a large alpha, where
            the paper's rule waits for long hypotheses.
        num_return_sequences: n. The search continues at least until n hypotheses are finished or
            the limit is reached. A larger n only appends hypotheses to the list.
        suppress_tokens: Ids that are never produced; None: padding, start and unknown.
        max_extra_tokens: How many more tokens than its source a translation may have; None: no such
            limit.
        max_new_tokens: Maximum number of tokens of any translation; None: no such limit.
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    early_stopping: bool = False
    num_return_sequences: int = 1
    suppress_tokens: Sequence[int] | None = None
    max_extra_tokens: int | None = EXTRA_TOKENS
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        NUM_BEAMS.check(num_beams=self.num_beams)
        LENGTH_PENALTY.check(length_penalty=self.length_penalty)
        if not isinstance(self.early_stopping, bool):
            given = quoted(self.early_stopping)
            raise RequestError(f"Got early_stopping={given}; it must be true or false.")
        Range(1, self.num_beams).check(num_return_sequences=self.num_return_sequences)
        if self.max_extra_tokens is None and self.max_new_tokens is None:
            raise RequestError("Got neither max_extra_tokens nor max_new_tokens; give a limit.")
        if self.max_extra_tokens is not None:
            COUNT_OR_ZERO.check(max_extra_tokens=self.max_extra_tokens)
        if self.max_new_tokens is not None:
            Range(1).check(max_new_tokens=self.max_new_tokens)


def search_settings(
    generation_config: GenerationConfig | None,
    *,
    max_extra_tokens: int | None = EXTRA_TOKENS,
    **call: Any,
) -> SearchSettings:
    """Return the settings of a search: from the call, else the generation config, else the paper.

    The generation config's limits on the length are not read, because transformers writes its
    default of 20 tokens there. In a call, None means not given, except for `max_extra_tokens`.
    """
    chosen: dict[str, Any] = {name: getattr(generation_config, name, None) for name in SAVED}
    chosen |= {name: value for name, value in call.items() if value is not None}
    if chosen["early_stopping"] == "never":  # transformers' name for the paper's rule
        chosen["early_stopping"] = False
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return SearchSettings(**chosen, max_extra_tokens=max_extra_tokens)


def settings_of_other_searches(settings: Mapping[str, Any] | GenerationConfig) -> list[str]:
    """Return the names of settings that affect the result and that the paper's search lacks.

    Args:
        settings: Arguments of `generate`, or a generation config; bad words of one id do not count.
    """
    if not isinstance(settings, Mapping):
        words, names = settings.bad_words_ids or (), type(settings)().to_dict()
        read = "bad_words_ids" if all(len(word) == 1 for word in words) else None
        own = ("decoder_start_token_id", "eos_token_id", "forced_eos_token_id", read)
        settings = {name: getattr(settings, name, None) for name in names if name not in own}
    if settings.get("max_time") is not None:
        raise RequestError("Got max_time, which would cut translations silently; leave it out.")
    return [
        name
        for name, value in settings.items()
        if name not in _READ_OR_WITHOUT_EFFECT and not _is_neutral(name, value)
    ]


def _is_neutral(name: str, value: Any) -> bool:
    """Return whether a setting of `generate` has no effect with this value."""
    if name.endswith("_penalty") or name in ("num_beam_groups", "guidance_scale"):
        return value in (None, 1)
    is_void = isinstance(value, (int, float, Sequence, Mapping)) and not value
    # 0 is a valid id, and unknown names are refused whatever their values are.
    return value is None or (is_void and not name.endswith("_token_id") and name in _known())


@lru_cache
def _known() -> set[str]:
    """Return the names of all settings and arguments of `generate`."""
    from transformers import GenerationConfig, GenerationMixin

    return {*GenerationConfig().to_dict(), *signature(GenerationMixin.generate).parameters}
