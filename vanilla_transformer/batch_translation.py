# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Translation of many texts (Section 6.1): batches of similar length, results in order.

Models of this package are decoded by `beam_search`; other models, and arguments of `generate` that
it lacks (sampling, assistants, penalties on repetition, ...), go to `model.generate`.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from itertools import count, islice, repeat
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from .beam_search import (
    adds_prompt,
    beam_search,
    default_beams,
    evaluation_mode,
    other_searches,
    with_start,
)
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .errors import RequestError, quoted
from .generation_limits import longest_sequence
from .ranges import COUNT, EXTRA_TOKENS, NUM_BEAMS, Range
from .target_tokenizer import target_tokenizer
from .word_alignment import word_alignment

# Limits of one source. With four beams, 4096 tokens fill the default budget of a batch; a text may
# have 16 characters for each. Decoding takes a step for each token, and attention grows with the
# square of the length.
MAX_SOURCE_TOKENS, MAX_SOURCE_CHARACTERS = 4096, 65_536
WINDOW = 2048  # sentences in memory at a time
FIRST_WINDOW = 64  # sentences; few, so that the first results of a long file come soon
# Arguments that the paper's search supports.
SEARCH_OPTIONS = {
    "num_beams",
    "length_penalty",
    "early_stopping",
    "num_return_sequences",
    "suppress_tokens",
    "max_new_tokens",
    "max_length",
    "prefix",
    "return_alignments",
}
# Those of them that `generate` does not have.
_SEARCH_ALONE = ("prefix", "return_alignments")
# Values of other arguments that change nothing in the search.
_NO_CHANGE = {"do_sample": False, "use_cache": True}
# Settings of a generation config that change what a beam search finds, and that ours lacks.
_FOREIGN = (
    "min_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "encoder_no_repeat_ngram_size",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "renormalize_logits",
    "stop_strings",
    "max_time",
    "guidance_scale",
    "watermarking_config",
)
_FOREIGN_IDS = ("forced_bos_token_id", "forced_eos_token_id")  # 0 is an id too
_FOREIGN_FACTORS = ("repetition_penalty", "encoder_repetition_penalty")  # 1 changes nothing


class Translation(NamedTuple):
    """One translation of a sentence."""

    text: str
    # log P / ((5 + L) / 6)^alpha; if `generate` decodes, its own score or None
    score: float | None


class AlignedTranslation(NamedTuple):
    """One translation of a sentence, with its word alignment."""

    text: str
    score: float | None
    # (source word, target word), both counted from 0, words separated by white space
    alignment: list[tuple[int, int]]


class Decoded(NamedTuple):
    """The hypotheses that a search found for a batch."""

    sequences: torch.Tensor  # target ids with the start symbol, (B, n, T + 1)
    scores: torch.Tensor | None  # (B, n)
    alignments: torch.Tensor | None  # each target token's attention to the source, (B, n, T, S)


def length_sorted_batches(
    lengths: Sequence[int], max_tokens: int, max_sentences: int
) -> Iterator[list[int]]:
    """Batch the indices of similar lengths, longest first, within a budget of padded tokens.

    A length beyond the budget gets a batch of its own. The longest come first, so that a budget too
    large for the memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        size = max(1, min(max_sentences, max_tokens // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device for inputs; parameters that accelerate has offloaded are on `meta`."""
    return torch.device("cpu") if model.device.type == "meta" else model.device


def pad_ids(rows: Sequence[Collection[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows on the right with the value; return the batch and its mask, both (B, longest)."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), value)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.as_tensor(row)
    mask = (torch.arange(ids.size(1)) < lengths[:, None]).long()
    return ids, mask


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    batch_tokens: int = 16_384,
    max_sentences: int = 256,
    window: int = WINDOW,
    progress: bool = False,
    **generation_kwargs: Any,
) -> Generator[str]:
    """Translate many sentences, fast, in order and within bounded memory.

    Reads a window of sentences, decodes it in batches of similar length, and yields the
    translations in source order before it reads the next window. Windows grow from 64 sentences to
    `window`, so that first results come soon. A blank sentence gives an empty translation.

    Args:
        model: A sequence-to-sequence model; its mode (training or evaluation) is restored.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings, even an endless one.
        batch_tokens: Budget of a batch: sentences x beams x longest source. A longer source is
            decoded alone.
        max_sentences: Most sentences in a batch.
        window: Most sentences in memory at a time.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`, such as `num_beams`. Without
            `max_new_tokens` or `max_length` a translation has at most 50 tokens more than its
            source (Section 6.1), whatever limit the generation config has.

    Returns:
        An iterator over one translation per sentence, which reads nothing before its first step.

    Raises:
        ValueError: An argument is out of range, an element is not a string, or a sentence is longer
            than 4096 tokens, 65,536 characters or the model's table of positions.
    """
    _check_model(model, tokenizer)
    if generation_option(model, generation_kwargs, "num_return_sequences") > 1:
        raise RequestError(
            "Got num_return_sequences > 1, but translate yields one translation per sentence; "
            "use translate_nbest for several."
        )
    found = translate_nbest(
        model,
        tokenizer,
        sentences,
        batch_tokens=batch_tokens,
        max_sentences=max_sentences,
        window=window,
        progress=progress,
        **generation_kwargs,
    )
    return _firsts(found)


def translate_nbest(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    batch_tokens: int = 16_384,
    max_sentences: int = 256,
    window: int = WINDOW,
    progress: bool = False,
    **generation_kwargs: Any,
) -> Generator[list[Translation | AlignedTranslation]]:
    """Translate as `translate` does, and yield the n best translations of each sentence.

    Args:
        model: See `translate`, for this and the other arguments.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings.
        batch_tokens: Budget of a batch.
        max_sentences: Most sentences in a batch.
        window: Most sentences in memory at a time.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`. `num_return_sequences` is n; a short
            limit on the length may leave fewer translations. The paper's search also has `prefix`,
            a text that each translation begins with, and `return_alignments`.

    Returns:
        An iterator over a list for each sentence, the best translation first. A blank sentence has
        one empty translation with score 0. `return_alignments` makes them `AlignedTranslation`s.

    Raises:
        ValueError: See `translate`.
    """
    _check_model(model, tokenizer)
    if isinstance(sentences, (str, bytes, bytearray)):
        raise RequestError("Got one string; translate takes an iterable of them: [text].")
    # An object with `__getitem__` only, such as torch's data sets, is iterable too.
    iterable = hasattr(sentences, "__iter__") or hasattr(sentences, "__getitem__")
    if isinstance(sentences, Mapping) or not iterable:
        raise RequestError(
            f"Got sentences of type {type(sentences).__name__}; translate takes an iterable of "
            "strings, such as a list."
        )
    COUNT.check(window=window)
    return translate_windows(
        model,
        tokenizer,
        _windows(sentences, window),
        batch_tokens=batch_tokens,
        max_sentences=max_sentences,
        total=len(sentences) if isinstance(sentences, Sized) else None,
        progress=progress,
        **generation_kwargs,
    )


def translate_windows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    windows: Generator[list[str]],
    *,
    batch_tokens: int = 16_384,
    max_sentences: int = 256,
    total: int | None = None,
    progress: bool = False,
    **generation_kwargs: Any,
) -> Generator[list[Translation | AlignedTranslation]]:
    """Translate lists of sentences as `translate_nbest` does, one list at a time.

    The translations of a list are yielded before the next list is read.

    Args:
        model: See `translate`, for this and the other arguments.
        tokenizer: Its tokenizer.
        windows: A generator of lists of sentences, which is closed at the end.
        batch_tokens: Budget of a batch.
        max_sentences: Most sentences in a batch.
        total: Number of sentences, for the progress bar; None if unknown.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`.

    Returns:
        An iterator over a list of translations for each sentence.

    Raises:
        ValueError: See `translate`.
    """
    COUNT.check(batch_tokens=batch_tokens, max_sentences=max_sentences)
    budget = batch_tokens // generation_option(model, generation_kwargs, "num_beams")
    if (prefix := generation_kwargs.get("prefix")) is not None:
        generation_kwargs["prefix"] = prefix_ids(tokenizer, prefix)
    bar = tqdm(total=total, unit="sentence", disable=not progress)
    return _stream(model, tokenizer, windows, budget, max_sentences, bar, generation_kwargs)


def encode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    first: int | None = 1,
) -> list[list[int]]:
    """Return the ids of each text, none for a blank one.

    Errors count the texts from `first`; None: it is the only one.
    """
    check_texts(texts, first)
    encoded: list[list[int]] = [[] for _ in texts]
    wanted = [index for index, text in enumerate(texts) if text.strip()]
    if wanted:
        # verbose=False: the warning about long inputs does not hold for sinusoids.
        ids = tokenizer([texts[index] for index in wanted], verbose=False)["input_ids"]
        for index, row in zip(wanted, ids, strict=True):
            encoded[index] = row
    limit = longest_source(model)
    for name, row in zip(_names(first), encoded, strict=False):
        if len(row) > limit:
            reason = f"{limit} are the most that are translated at once"
            if limit == longest_sequence(model):
                reason = f"the model's positions end at {limit} (max_position_embeddings)"
            raise RequestError(
                f"{name} has {len(row)} tokens, but {reason}; split it into shorter sentences."
            )
    return encoded


def prefix_ids(tokenizer: PreTrainedTokenizerBase, prefix: object) -> list[int]:
    """Return the target ids of a text that translations should begin with.

    Raises:
        ValueError: It is no valid text.
    """
    if not isinstance(prefix, str):
        raise RequestError(f"Got prefix={quoted(prefix)}; it must be a string.")
    _check_text(prefix, "The prefix")
    ids = target_tokenizer(tokenizer)(text_target=prefix, add_special_tokens=False)["input_ids"]
    return list(ids)


def longest_source(model: PreTrainedModel) -> int:
    """Return the most tokens of a source: `MAX_SOURCE_TOKENS`, or fewer if positions end sooner."""
    return min(MAX_SOURCE_TOKENS, longest_sequence(model) or MAX_SOURCE_TOKENS)


def check_texts(texts: Iterable[object], first: int | None = 1) -> None:
    """Refuse inputs that are no valid text; errors count them from `first`.

    Raises:
        ValueError: An input is no string, exceeds 65,536 characters, or holds half a character.
    """
    for name, text in zip(_names(first), texts, strict=False):
        _check_text(text, name)


def _names(first: int | None) -> Iterator[str]:
    """Yield names of texts for errors."""
    return repeat("The text") if first is None else (f"Input {number}" for number in count(first))


def _check_text(text: object, name: str) -> None:
    if isinstance(text, (bytes, bytearray)):
        raise RequestError(
            f"{name} is of type {type(text).__name__}, not a string; decode it: "
            "text.decode('utf-8')."
        )
    if not isinstance(text, str):
        raise RequestError(
            f"{name} is of type {type(text).__name__}, not a string; for a data set, give its text "
            "column, e.g. with transformers.pipelines.pt_utils.KeyDataset."
        )
    if len(text) > MAX_SOURCE_CHARACTERS:
        raise RequestError(
            f"{name} has {len(text)} characters, but {MAX_SOURCE_CHARACTERS} are the most that are "
            "translated at once; split it into sentences."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{name} holds a lone surrogate, U+{ord(text[error.start]):04X} at character "
            f"{error.start + 1}, which is half of a character; read the text with the right "
            "encoding, or replace it: text.encode('utf-8', 'replace').decode()."
        ) from None


def _check_model(model: object, tokenizer: object) -> None:
    """Refuse names instead of objects, and a model and tokenizer in the wrong order."""
    if isinstance(tokenizer, str) or not hasattr(model, "generate"):
        raise RequestError(
            f"Got a {type(model).__name__} and a {type(tokenizer).__name__}; give a model and its "
            "tokenizer, as AutoModelForSeq2SeqLM and AutoTokenizer load them."
        )


def _firsts(found: Generator[list[Translation | AlignedTranslation]]) -> Generator[str]:
    with closing(found):
        for translations in found:
            yield translations[0].text


def _stream(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    windows: Generator[list[str]],
    budget: int,
    max_sentences: int,
    bar: tqdm,
    generation_kwargs: dict[str, Any],
) -> Generator[list[Translation | AlignedTranslation]]:
    """Yield the translations of each window in source order; decode them in order of length."""
    done = 0
    with bar, closing(windows):
        for texts in windows:
            sources = encode(model, tokenizer, texts, first=done + 1)
            aligned = generation_kwargs.get("return_alignments")
            results = [[_translation("", 0.0, [] if aligned else None)] for _ in texts]
            filled = [index for index, source in enumerate(sources) if source]
            bar.update(len(texts) - len(filled))
            lengths = [len(sources[index]) for index in filled]
            for batch in length_sorted_batches(lengths, budget, max_sentences):
                indices = [filled[position] for position in batch]
                rows = [sources[index] for index in indices]
                ids, mask = pad_ids(rows, tokenizer.pad_token_id)
                device = input_device(model)
                found = generate_ids(model, ids.to(device), mask.to(device), **generation_kwargs)
                for index, translations in zip(
                    indices, _translations(tokenizer, rows, found), strict=True
                ):
                    results[index] = translations
                bar.update(len(batch))
            done += len(texts)
            yield from results


def _translations(
    tokenizer: PreTrainedTokenizerBase, sources: Sequence[Sequence[int]], found: Decoded
) -> Iterator[list[Translation | AlignedTranslation]]:
    """Yield the translations of each source; `sources` holds their ids."""
    texts = iter(decode(tokenizer, found.sequences.flatten(0, 1)))
    for row, source in enumerate(sources):
        own = []
        for place, ids in enumerate(found.sequences[row].tolist()):
            text, score, links = next(texts), None, None
            if found.scores is not None:
                score = found.scores[row, place].item()
            if found.alignments is not None:  # for the tokens after the start symbol
                weights = found.alignments[row, place]
                links = word_alignment(tokenizer, source, ids[1:], weights)
            # A score of -inf marks a missing translation.
            if score != -math.inf or place == 0:
                own.append(_translation(text if score != -math.inf else "", score, links))
        yield own


def _translation(
    text: str, score: float | None, links: list[tuple[int, int]] | None
) -> Translation | AlignedTranslation:
    if links is None:
        return Translation(text, score)
    return AlignedTranslation(text, score, links)


def decode(tokenizer: PreTrainedTokenizerBase, ids: torch.Tensor) -> list[str]:
    """Decode target ids, (rows, T), without special tokens and without any clean-up."""
    return target_tokenizer(tokenizer).batch_decode(
        ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _windows(sentences: Iterable[str], window: int) -> Generator[list[str]]:
    """Cut the sentences into windows that double in size up to `window`."""
    source = iter(sentences)
    size = min(window, FIRST_WINDOW)
    while texts := list(islice(source, size)):
        yield texts
        size = min(window, 2 * size)


# ------------------------------------------------------ which search decodes a batch


class SourceLengthLimit(StoppingCriteria):
    """Limit on the length of each translation, whatever else is in its batch.

    Deviation: the authors' code adds the 50 tokens to the longest source of the batch, so that a
    translation may depend on its neighbours; the paper says "input length".
    """

    def __init__(self, limits: torch.Tensor) -> None:
        """Take the largest number of tokens after the start symbol for each source, (B,)."""
        self.limits = limits

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: object
    ) -> torch.BoolTensor:
        """Return which rows have reached their limit; the rows of a source are consecutive."""
        rows_per_source = input_ids.size(0) // self.limits.size(0)
        limits = self.limits.repeat_interleave(rows_per_source)
        return limits <= input_ids.size(1) - 1  # type: ignore[return-value]  # a BoolTensor


def generate_ids(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    **generation_kwargs: Any,
) -> Decoded:
    """Decode one batch with the paper's search if it supports model and arguments, or `generate`.

    Args:
        model: A sequence-to-sequence model that can generate.
        input_ids: Source ids, (B, S).
        attention_mask: 1 at tokens and 0 at padding, (B, S).
        **generation_kwargs: Arguments of `generate`; None counts as not given. Without a bound on
            the length, each translation may have its source's length + 50 tokens. Only the paper's
            search has `prefix`, target ids that each translation begins with, and
            `return_alignments`.

    Returns:
        n = `num_return_sequences` hypotheses of each source. Scores are the paper's, or those of
        `generate` if `return_dict_in_generate` and `output_scores` are set.

    Raises:
        ValueError: An argument needs the paper's search, which cannot be used.
    """
    options = {name: value for name, value in generation_kwargs.items() if value is not None}
    if uses_paper_search(model, options):
        search = _search_options(model, options)
        if "prefix" in search:
            search["prefix"] = [search["prefix"]] * input_ids.size(0)
        found = beam_search(model, input_ids, attention_mask, **search)
        return Decoded(with_start(model, found.sequences), found.scores, found.alignments)
    for name in _SEARCH_ALONE:
        if options.pop(name, False):
            beside = ", ".join(beyond_paper_search(model, options))
            raise RequestError(
                f"Got {name}, which only the paper's search has, with what that search does not "
                f"support ({beside}); leave one of them out."
            )
    if "max_length" in options:
        # Otherwise the bound in the model's own generation config would win over the caller's.
        options.setdefault("max_new_tokens", None)
    elif not _bounds_length(options):
        limits = attention_mask.sum(dim=1) + EXTRA_TOKENS  # (B,)
        longest = longest_sequence(model)
        limits = limits if longest is None else limits.clamp(max=longest)
        options["max_new_tokens"] = int(limits.max())
        criteria = options.get("stopping_criteria") or []
        options["stopping_criteria"] = StoppingCriteriaList([*criteria, SourceLengthLimit(limits)])
    with evaluation_mode(model), torch.inference_mode():
        output = model.generate(  # type: ignore[operator]  # GenerationMixin's
            input_ids=input_ids, attention_mask=attention_mask, **options
        )
    sequences = getattr(output, "sequences", output)
    sequences = sequences.view(input_ids.size(0), -1, sequences.size(-1))  # (B, n, T + 1)
    scores = getattr(output, "sequences_scores", None)  # only from a beam search
    scores = None if scores is None else scores.view(sequences.shape[:2])
    return Decoded(sequences, scores, None)


def uses_paper_search(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Return whether `beam_search` supports the model and these arguments of `generate`."""
    return next(beyond_paper_search(model, options), None) is None


def beyond_paper_search(model: PreTrainedModel, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `beam_search` does not support: the model, arguments, its generation config.

    Arguments of None count as not given.
    """
    if not _is_ours(model):
        yield type(model).__name__
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        yield "a model on several devices"
    for name, value in options.items():
        if name not in SEARCH_OPTIONS and value is not None and _NO_CHANGE.get(name) is not value:
            yield name
    config = model.generation_config
    foreign = other_searches(config)
    foreign += [name for name in _FOREIGN if getattr(config, name, None)]
    foreign += [name for name in _FOREIGN_IDS if getattr(config, name, None) is not None]
    foreign += [name for name in _FOREIGN_FACTORS if getattr(config, name, None) not in (None, 1)]
    yield from (f"{name} of the generation config" for name in foreign)


def _is_ours(model: Any) -> bool:
    """Return whether this is the package's model or a subclass, also if compiled or adapted."""
    model = getattr(model, "_orig_mod", model)  # by torch.compile
    if getattr(model, "active_peft_config", None) is not None and not adds_prompt(model):
        model = model.get_base_model()
    # By name, since a model loaded with its code from the Hub has another class of this name.
    names = {f"{kind.__module__.split('.')[-1]}.{kind.__name__}" for kind in type(model).__mro__}
    own = f"modeling_{VanillaTransformerConfig.model_type}"
    return f"{own}.VanillaTransformerForConditionalGeneration" in names


def _search_options(model: PreTrainedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert arguments of `generate` to those of `beam_search`."""
    found = {name: value for name, value in options.items() if name in SEARCH_OPTIONS}
    found["num_return_sequences"] = generation_option(model, options, "num_return_sequences")
    bound = found.pop("max_length", None)
    if bound is not None:
        if bound not in Range(2):
            raise RequestError(
                f"Got max_length={quoted(bound)}; it counts the start symbol: give 2 or more."
            )
        found.setdefault("max_new_tokens", bound - 1)
    if "max_new_tokens" in found:
        found["max_extra_tokens"] = None
    return found


def generation_option(model: PreTrainedModel, options: Mapping[str, Any], name: str) -> int:
    """Return the value that a whole-number option of `generate` has in the call.

    If it is set nowhere, it is 1, or 4 for `num_beams` of the paper's search.

    Raises:
        ValueError: It is out of range.
    """
    configs = (options.get("generation_config"), model.generation_config)
    values = (options.get(name), *(getattr(config, name, None) for config in configs))
    value = next((value for value in values if value is not None), 1)
    if values == (None, None, None) and name == "num_beams" and uses_paper_search(model, options):
        value = default_beams(model)
    (NUM_BEAMS if name == "num_beams" else COUNT).check(**{name: value})
    return value


def _bounds_length(options: Mapping[str, Any]) -> bool:
    """Return whether the caller bounds the length of the output."""
    config = options.get("generation_config")
    bounds = [options.get("max_new_tokens")]
    if isinstance(config, GenerationConfig):
        bounds += [config.max_new_tokens, config.max_length]
    return any(bound is not None for bound in bounds)


__all__ = [
    "AlignedTranslation",
    "Translation",
    "generate_ids",
    "translate",
    "translate_nbest",
    "translate_windows",
]
