# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Many sentences from text to text (Section 6.1): batches of similar length, results in order.

Models of this package are decoded by `beam_search`; other models, and arguments of `generate` that
it does not have (sampling, assistants, penalties on repetition, ...), go to `model.generate`.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from itertools import islice
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
    EXTRA_TOKENS,
    beam_search,
    default_beams,
    evaluation_mode,
    longest_sequence,
    with_start,
)
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .errors import RequestError, quoted
from .ranges import COUNT, NUM_BEAMS, Range
from .target_tokenizer import target_tokenizer
from .word_alignment import word_alignment

# Of one source: what the default budget holds for four beams, and a text of that many tokens.
# Decoding takes a step for each token, and attention the square of their number.
MAX_SOURCE_TOKENS, MAX_SOURCE_CHARACTERS = 4096, 65_536
FIRST_WINDOW = 64  # sentences; the first results of a long file come soon
# Arguments of `generate` that the paper's search has too; and those values of others that it means.
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
_NO_CHANGE = {"do_sample": False, "use_cache": True}
# Settings of a generation config that change what a beam search finds, and ours does not have.
_FOREIGN = (
    "do_sample",
    "min_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "encoder_no_repeat_ngram_size",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "renormalize_logits",
    "stop_strings",
    "max_time",
    "guidance_scale",
    "watermarking_config",
)
_FOREIGN_FACTORS = ("repetition_penalty", "encoder_repetition_penalty")  # 1 changes nothing


class Translation(NamedTuple):
    """One translation of a sentence."""

    text: str
    # log P / ((5 + L) / 6)^alpha; where `generate` has searched, its own or None
    score: float | None


class AlignedTranslation(NamedTuple):
    """One translation of a sentence, and of which words its words were made."""

    text: str
    score: float | None
    # (word of the source, word of the translation), both from 0, as white space parts them
    alignment: list[tuple[int, int]]


class Decoded(NamedTuple):
    """What a search made of a batch."""

    sequences: torch.Tensor  # target ids with the start symbol, (B, n, T)
    scores: torch.Tensor | None  # (B, n)
    alignments: torch.Tensor | None  # attention of each target token to the source's, (B, n, T, S)


def length_sorted_batches(
    lengths: Sequence[int], max_tokens: int, max_sentences: int
) -> Iterator[list[int]]:
    """Groups the indices of similar lengths, longest first, within a budget of padded tokens.

    A length beyond the budget makes a batch alone. The longest come first, so that too large a
    budget fails at once rather than late.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        size = max(1, min(max_sentences, max_tokens // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad_ids(rows: Sequence[Collection[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One batch of rows, filled on the right with the value, and its mask: both (B, longest)."""
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
    window: int = 2048,
    progress: bool = False,
    **generation_kwargs: Any,
) -> Generator[str]:
    """Translates many sentences: fast, in order, and within bounded memory.

    Reads a window of sentences, decodes it in batches of similar length, and yields its
    translations in the order of the sources before it reads on. Windows grow from 64 sentences to
    `window`, so that first results come soon. A blank sentence gives an empty one.

    Args:
        model: A sequence-to-sequence model; on return in the mode (training or not) it was in.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings, an endless one too.
        batch_tokens: Budget of a batch: sentences x beams x longest source. A longer source is
            decoded alone.
        max_sentences: Most sentences of a batch.
        window: Most sentences held at a time.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`, `num_beams` for one.

    Returns:
        An iterator over one translation per sentence. Nothing is read before it is asked.

    Raises:
        ValueError: An argument is out of range, an element is not a string, or a sentence is longer
            than 4096 tokens, 65,536 characters or the model's table of positions.
    """
    _check_model(model, tokenizer)
    if generation_option(model, generation_kwargs, "num_return_sequences") > 1:
        raise RequestError(
            "Got num_return_sequences > 1, but translate yields one translation per sentence; "
            "translate_nbest gives several."
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
    window: int = 2048,
    progress: bool = False,
    **generation_kwargs: Any,
) -> Generator[list[Translation | AlignedTranslation]]:
    """Translates as `translate` does, and yields the best translations of each sentence.

    Args:
        model: See `translate`, for this and the other arguments.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings.
        batch_tokens: Budget of a batch.
        max_sentences: Most sentences of a batch.
        window: Most sentences held at a time.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`; `num_return_sequences` translations
            are asked for. A short limit on the length may leave fewer. Of the paper's search also
            `prefix`, a text with which each translation begins, and `return_alignments`.

    Returns:
        An iterator over a list for each sentence, the best translation first; a blank sentence has
        one, empty, with score 0. With `return_alignments` they are `AlignedTranslation`s.

    Raises:
        ValueError: See `translate`.
    """
    _check_model(model, tokenizer)
    if isinstance(sentences, (str, bytes, bytearray)):
        raise RequestError("Got one string; translate takes an iterable of them: [text].")
    # What has places alone, such as a data set of torch, is an iterable as well.
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
    """Translate as `translate_nbest` does, lists of sentences as they are handed over.

    The translations of a list are yielded before the next one is asked for.

    Args:
        model: See `translate`, for this and the other arguments.
        tokenizer: Its tokenizer.
        windows: An iterator over lists of sentences.
        batch_tokens: Budget of a batch.
        max_sentences: Most sentences of a batch.
        total: Number of sentences, for the progress bar; None if nobody knows.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`.

    Returns:
        An iterator over a list of translations for each sentence.

    Raises:
        ValueError: See `translate`.
    """
    COUNT.check(batch_tokens=batch_tokens, max_sentences=max_sentences)
    budget = batch_tokens // generation_option(model, generation_kwargs, "num_beams")
    bar = tqdm(total=total, unit="sentence", disable=not progress)
    if (prefix := generation_kwargs.get("prefix")) is not None:
        generation_kwargs["prefix"] = prefix_ids(tokenizer, prefix)
    return _stream(model, tokenizer, windows, budget, max_sentences, bar, generation_kwargs)


def encode(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], first: int = 1
) -> list[list[int]]:
    """Ids of each text, none for a blank one; errors count the texts from `first`."""
    check_texts(texts, first)
    encoded: list[list[int]] = [[] for _ in texts]
    wanted = [index for index, text in enumerate(texts) if text.strip()]
    if wanted:
        # verbose=False: its warning about long inputs is not true of sinusoids.
        ids = tokenizer([texts[index] for index in wanted], verbose=False)["input_ids"]
        for index, row in zip(wanted, ids, strict=True):
            encoded[index] = row
    limit = longest_source(model)
    for number, row in enumerate(encoded, start=first):
        if len(row) > limit:
            reason = f"{limit} are the most that are translated at once"
            if limit == longest_sequence(model):
                reason = f"the model's positions end at {limit} (max_position_embeddings)"
            raise RequestError(
                f"Input {number} has {len(row)} tokens, but {reason}; split it into shorter "
                "sentences."
            )
    return encoded


def prefix_ids(tokenizer: PreTrainedTokenizerBase, prefix: object) -> list[int]:
    """Target ids of a text with which translations are to begin.

    Raises:
        ValueError: It is not a string.
    """
    check_texts([prefix])
    ids = target_tokenizer(tokenizer)(text_target=prefix, add_special_tokens=False)["input_ids"]
    return list(ids)


def longest_source(model: PreTrainedModel) -> int:
    """Tokens that one source may have: `MAX_SOURCE_TOKENS`, or fewer where positions end sooner."""
    return min(MAX_SOURCE_TOKENS, longest_sequence(model) or MAX_SOURCE_TOKENS)


def check_texts(texts: Iterable[object], first: int = 1) -> None:
    """Refuse what is no text; errors count from `first`.

    Raises:
        ValueError: Something is not a string, longer than 65,536 characters, or holds half of one.
    """
    for number, text in enumerate(texts, start=first):
        if isinstance(text, (bytes, bytearray)):
            raise RequestError(
                f"Input {number} is of type {type(text).__name__}, not a string; decode it: "
                "text.decode('utf-8')."
            )
        if not isinstance(text, str):
            raise RequestError(
                f"Input {number} is of type {type(text).__name__}, not a string; of a data "
                "set give the text column, with transformers.pipelines.pt_utils.KeyDataset for one."
            )
        if len(text) > MAX_SOURCE_CHARACTERS:
            raise RequestError(
                f"Input {number} has {len(text)} characters, but {MAX_SOURCE_CHARACTERS} are the "
                "most that are translated at once; split it into sentences."
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(
                f"Input {number} holds a lone surrogate, U+{ord(text[error.start]):04X} at "
                f"character {error.start + 1}, which is half of a character; read the text again "
                "with its own encoding, or replace it: text.encode('utf-8', 'replace').decode()."
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
    """Translations of each window in its own order, decoded in the order of length."""
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
                found = generate_ids(
                    model, ids.to(model.device), mask.to(model.device), **generation_kwargs
                )
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
    """Translations of each source, given as its ids."""
    texts = iter(decode(tokenizer, found.sequences.flatten(0, 1)))
    for row, source in enumerate(sources):
        own = []
        for place, ids in enumerate(found.sequences[row].tolist()):
            text, score, links = next(texts), None, None
            if found.scores is not None:
                score = found.scores[row, place].item()
            if found.alignments is not None:  # of the tokens behind the start symbol
                weights = found.alignments[row, place]
                links = word_alignment(tokenizer, source, ids[1:], weights)
            # A score of minus infinity marks a place for which there was no translation.
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
    """Texts of target ids, (rows, T), without special tokens and otherwise untouched."""
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
    """Ends each translation at a limit of its own, whatever else is in its batch.

    Deviation: the authors' code adds the 50 tokens to the longest source of the batch, so that a
    translation may depend on its neighbours; the paper says "input length".
    """

    def __init__(self, limits: torch.Tensor) -> None:
        """Takes the largest number of tokens after the start symbol for each source, (B,)."""
        self.limits = limits

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: object
    ) -> torch.BoolTensor:
        """Which rows have reached their limit; several rows in succession belong to one source."""
        rows_per_source = input_ids.size(0) // self.limits.size(0)
        limits = self.limits.repeat_interleave(rows_per_source)
        return limits <= input_ids.size(1) - 1  # type: ignore[return-value]


def generate_ids(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    **generation_kwargs: Any,
) -> Decoded:
    """Decodes one batch: the one place that calls a search.

    It is the paper's, for models of this package and arguments that it has; otherwise `generate`.

    Args:
        model: A sequence-to-sequence model that can generate.
        input_ids: Source ids, (B, S).
        attention_mask: 1 at tokens and 0 at padding, (B, S).
        **generation_kwargs: Arguments of `generate`; None is as good as not given. Without a bound
            on the length among them, each translation ends at its source's length + 50 tokens.
            `prefix`, target ids with which each translation begins, and `return_alignments` are of
            the paper's search alone.

    Returns:
        What was found, n = `num_return_sequences` of each source. Scores are the paper's, or those
        of `generate` where `return_dict_in_generate` and `output_scores` ask it for them.

    Raises:
        ValueError: Only the paper's search has what was asked for, and it cannot be used.
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
            raise RequestError(
                f"Got {name}, which the paper's search has, with a model or arguments that it does "
                f"not have ({', '.join(options) or type(model).__name__}); leave one of them out."
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
    sequences = sequences.view(input_ids.size(0), -1, sequences.size(-1))  # (B, n, T)
    scores = getattr(output, "sequences_scores", None)  # of beams alone
    scores = None if scores is None else scores.view(sequences.shape[:2])
    return Decoded(sequences, scores, None)


def uses_paper_search(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Whether these arguments of `generate` leave the search to `beam_search`."""
    if not _is_ours(model) or len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return False
    if any(
        name not in SEARCH_OPTIONS and _NO_CHANGE.get(name) is not value
        for name, value in options.items()
    ):
        return False
    config = model.generation_config
    return not any(getattr(config, name, None) for name in _FOREIGN) and not any(
        getattr(config, name, None) not in (None, 1) for name in _FOREIGN_FACTORS
    )


def _is_ours(model: Any) -> bool:
    """Whether it is a model of this package, a subclass of it, or one with adapters of PEFT's."""
    adapters = getattr(model, "active_peft_config", None)
    if adapters is not None and not adapters.is_prompt_learning:  # a prompt is `generate`'s to add
        model = model.get_base_model()
    # By name: a model that came with its code from the Hub is of a class of its own.
    names = {f"{kind.__module__.split('.')[-1]}.{kind.__name__}" for kind in type(model).__mro__}
    own = f"modeling_{VanillaTransformerConfig.model_type}"
    return f"{own}.VanillaTransformerForConditionalGeneration" in names


def _search_options(model: PreTrainedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `beam_search` for those of `generate`."""
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
    """A whole-number option of `generate` as the call will see it.

    Where nobody sets it, it is 1, but for the beams of the paper's search, 4.

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
    """Whether the caller bounds the length of the output."""
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
