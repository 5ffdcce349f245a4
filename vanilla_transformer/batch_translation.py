# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Translation of one batch of texts (Section 6.1): tokenize, search and decode.

Models of this package are decoded by `beam_search`; other models, and arguments of `generate` that
it lacks (sampling, assistants, penalties on repetition, ...), go to `model.generate`.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteriaList

from .beam_search import BeamSearchOutput, adds_prompt, beam_search, evaluation_mode, length_limits
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .errors import RequestError, quoted
from .generation_limits import longest_sequence
from .ranges import NUM_BEAMS, Range
from .search_settings import SAVED, SearchSettings, settings_of_other_searches
from .target_tokenizer import target_tokenizer
from .word_alignment import word_alignment
from .written_forms import written_forms

# Key in the generation config: the value of `sureness` below which a translation is doubtful.
DOUBTFUL_BELOW = "doubtful_below"
# Longest source. With four beams it fills the default budget of a batch. Decoding takes a step
# for each token, and attention grows with the square of the length.
MAX_SOURCE_TOKENS = 4096
_SEARCH_ALONE = ("prefix", "return_alignments")  # arguments that `generate` does not have
SEARCH_OPTIONS = {*SAVED, "max_new_tokens", "max_length", *_SEARCH_ALONE}  # for beam_search


def encode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    first: int | None = 1,
    *,
    truncation: bool = False,
    most_tokens: int | None = None,
) -> list[list[int]]:
    """Normalize texts like training sources and return their token ids; [] for a blank text.

    Error messages count the texts from `first`; None: there is a single text. A text that is longer
    than the model or `most_tokens` allows raises an error, or is cut with `truncation`.
    """
    for index, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except (AttributeError, UnicodeEncodeError):
            what = f"{_name(first, index)} is {quoted(text)}"
            raise RequestError(f"{what}; give a string that UTF-8 can encode.") from None
    texts = [*map(written_forms(tokenizer).source_of, texts)]
    # verbose=False: the warning about long inputs does not hold for sinusoids.
    ids = tokenizer(texts, verbose=False)["input_ids"] if texts else []
    nothing = tokenizer("", verbose=False)["input_ids"]
    limit = min(filter(None, (most_tokens, longest_sequence(model), MAX_SOURCE_TOKENS)))
    pairs = zip(texts, ids, strict=True)
    encoded = [[] if row == nothing or not text.strip() else row for text, row in pairs]
    for index, row in enumerate(encoded):
        if len(row) > limit and truncation:
            encoded[index] = [*row[: limit - 1], row[-1]]  # keep the end token
        elif len(row) > limit:
            what = f"{_name(first, index)} has {len(row)} tokens"
            raise RequestError(f"{what}; at most {limit} are translated at once: split the text.")
    return encoded


def _name(first: int | None, index: int) -> str:
    return "The text" if first is None else f"Input {first + index}"


def prefix_ids(tokenizer: PreTrainedTokenizerBase, prefix: str) -> list[int]:
    """Return the target ids of a text that translations should begin with."""
    target = target_tokenizer(tokenizer)
    ids = list(target(text_target=prefix, add_special_tokens=False)["input_ids"])
    if target.unk_token_id in ids:
        raise RequestError(f"The prefix {quoted(prefix)} has words that the tokenizer lacks.")
    return ids


def decode(
    tokenizer: PreTrainedTokenizerBase, ids: torch.Tensor, *, clean_up: bool = False
) -> list[str]:
    """Decode target ids, (rows, T), without special tokens; `clean_up` tidies spaces."""
    return target_tokenizer(tokenizer).batch_decode(
        ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=clean_up
    )


class Translation(NamedTuple):
    """One translation of a sentence."""

    text: str
    # log P / ((5 + L) / 6)^alpha; if `generate` decodes, its own score or None
    score: float | None
    # (source word, target word), both counted from 0, words separated by white space
    alignment: list[tuple[int, int]] | None = None
    token_score: float | None = None  # log P / L, the mean per token
    # whether `sureness` is below the model's threshold; None if it has none
    doubtful: bool | None = None
    error: str | None = None  # why there is no translation, if errors are returned


def translations_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Iterable[tuple[str, Sequence[int]]],
    found: BeamSearchOutput,
    *,
    clean_up: bool = False,
) -> Iterator[list[Translation]]:
    """Yield each source's translations from a search's output; a source is (raw text, ids).

    A short length limit may leave fewer than n translations.
    """
    texts = iter(decode(tokenizer, found.sequences.flatten(0, 1), clean_up=clean_up))
    forms = written_forms(tokenizer)
    least = getattr(model.generation_config, DOUBTFUL_BELOW, None)
    for row, (typed, source_ids) in enumerate(sources):
        source, translations = forms.source_of(typed), []
        for place, ids in enumerate(found.sequences[row].tolist()):
            text = next(texts)
            score = None if found.scores is None else found.scores[row, place].item()
            if score == -math.inf and place > 0:  # a missing translation
                continue
            links = of_token = doubtful = None
            if found.alignments is not None:
                weights = found.alignments[row, place]
                links = word_alignment(tokenizer, (source, source_ids), (text, ids), weights)
            if found.token_scores is not None:
                of_token = found.token_scores[row, place].item()
                if least is not None:
                    doubtful = sureness(source, source_ids, of_token) < least
            text = forms.translation_of(typed, text)
            translations.append(Translation(text, score, links, of_token, doubtful))
        yield translations


def sureness(source: str, ids: Sequence[int], token_score: float) -> float:
    """Return how sure a model is of a translation, from its mean log-probability per token.

    It is lower where the source is split into small pieces, as text in another language is.
    """
    return token_score + 3 * math.log(max(1, len(source)) / max(1, len(ids) - 1))


# ------------------------------------------------------ which search decodes a batch


def _limit_by_source(limits: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Return a stopping criterion for `generate` with a length limit per translation, (B,).

    Deviation: the authors' code adds the 50 tokens to the longest source of the batch, so that a
    translation may depend on its neighbours; the paper says "input length".
    """

    def is_done(ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        rows_per_source = ids.size(0) // limits.size(0)  # the rows of a source are consecutive
        return limits.repeat_interleave(rows_per_source) <= ids.size(1) - 1

    return is_done


def generate_ids(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    **generation_kwargs: Any,
) -> BeamSearchOutput:
    """Decode a batch with the paper's search if it supports the call, else with `generate`.

    Args:
        model: A sequence-to-sequence model that can generate.
        input_ids: Source ids, (B, S).
        attention_mask: 1 at tokens and 0 at padding, (B, S).
        **generation_kwargs: Arguments of `generate`; None counts as not given. Without a bound on
            the length, each translation may have its source's length + 50 tokens. Also `prefix`,
            target ids that each translation begins with, and `return_alignments`; an error if the
            paper's search, which alone has them, cannot be used.

    Returns:
        The `num_return_sequences` best hypotheses of each source. `generate` gives no lengths, and
        its own scores only if `return_dict_in_generate` and `output_scores` are set.
    """
    options = {name: value for name, value in generation_kwargs.items() if value is not None}
    obstacles = beyond_paper_search(model, options)
    if not obstacles:
        if "prefix" in options:
            options["prefix"] = [options["prefix"]] * input_ids.size(0)
        return beam_search(model, input_ids, attention_mask, **_search_options(options))
    for name in _SEARCH_ALONE:
        if options.pop(name, False):
            raise only_paper_search_has(name, model, options)
    given = options.get("generation_config")
    limits = ("max_new_tokens", "max_length")
    if "max_length" in options:
        # Otherwise the bound in the model's own generation config would win over the caller's.
        options.setdefault("max_new_tokens", None)
    elif all(options.get(name) is getattr(given, name, None) is None for name in limits):
        most = length_limits(model, attention_mask, SearchSettings())  # (B,)
        options["max_new_tokens"] = int(most.max())
        criteria = options.get("stopping_criteria") or []
        options["stopping_criteria"] = StoppingCriteriaList([*criteria, _limit_by_source(most)])
    with evaluation_mode(model), torch.inference_mode():
        try:
            output = model.generate(  # type: ignore[operator]  # a method of GenerationMixin
                input_ids=input_ids, attention_mask=attention_mask, **options
            )
        except (ImportError, NotImplementedError, TypeError, ValueError) as error:
            raise RequestError(f"generate failed with {', '.join(obstacles)}: {error}") from error
    sequences = getattr(output, "sequences", output)
    sequences = sequences.view(input_ids.size(0), -1, sequences.size(-1))[..., 1:]  # (B, n, T)
    scores = getattr(output, "sequences_scores", None)  # only from a beam search
    scores = None if scores is None else scores.view(sequences.shape[:2])
    return BeamSearchOutput(sequences, scores)


def only_paper_search_has(
    name: str, model: PreTrainedModel, options: Mapping[str, Any]
) -> RequestError:
    """Return the error for an argument of `beam_search` alone, in a call that needs `generate`."""
    what = f"Got {name}, which only the paper's search supports"
    beside = ", ".join(beyond_paper_search(model, options))
    return RequestError(f"{what}, and {beside}, which it does not; leave one of them out.")


def beyond_paper_search(model: PreTrainedModel, options: Mapping[str, Any]) -> list[str]:
    """List what prevents `beam_search`: the model, arguments or generation config settings.

    Arguments and settings that change nothing, such as None, are supported.
    """
    beyond = [] if _is_ours(model) else [type(model).__name__]
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        beyond.append("a model on several devices")
    others = {name: value for name, value in options.items() if name not in SEARCH_OPTIONS}
    configs = (model.generation_config, options.get("generation_config"))
    saved = [name for config in configs if config for name in settings_of_other_searches(config)]
    by_config = (f"{name} of the generation config" for name in saved)
    return [*beyond, *settings_of_other_searches(others), *by_config]


def _is_ours(model: Any) -> bool:
    """Return whether the model is ours or a subclass, even if compiled or with an adapter."""
    model = getattr(model, "_orig_mod", model)  # set by torch.compile
    if getattr(model, "active_peft_config", None) is not None and not adds_prompt(model):
        model = model.get_base_model()
    # By name, since a model loaded with its code from the Hub has another class of this name.
    names = {f"{kind.__module__.split('.')[-1]}.{kind.__name__}" for kind in type(model).__mro__}
    own = f"modeling_{VanillaTransformerConfig.model_type}"
    return f"{own}.VanillaTransformerForConditionalGeneration" in names


def _search_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert arguments of `generate` to those of `beam_search`."""
    search = {name: value for name, value in options.items() if name in SEARCH_OPTIONS}
    longest = search.pop("max_length", None)
    if longest is not None:  # max_length includes the start symbol
        Range(2).check(max_length=longest)
        search.setdefault("max_new_tokens", longest - 1)
    if search.get("max_new_tokens") is not None:
        search["max_extra_tokens"] = None
    return search


def generation_option(model: PreTrainedModel, options: Mapping[str, Any], name: str) -> int:
    """Return the value of `num_beams` or `num_return_sequences` that a call will use."""
    default = 1 if beyond_paper_search(model, options) else getattr(SearchSettings, name)
    configs = (options.get("generation_config"), model.generation_config)
    values = (options.get(name), *(getattr(config, name, None) for config in configs))
    value = next((value for value in values if value is not None), default)
    NUM_BEAMS.check(**{name: value})
    return value
