"""Translation of many texts (Section 6.1): batches of similar length, results in order."""

from __future__ import annotations

import logging
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import closing
from itertools import islice
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import (
    Translation,
    encode,
    generate_ids,
    generation_option,
    prefix_ids,
    translations_of,
)
from ..errors import RequestError
from ..machine.cpu_threads import free_threads
from ..machine.progress import progress as progress_of
from ..machine.signals import interruption
from ..ranges import COUNT
from ..texts.unknown import unknown_characters, unknown_tokens

logger = logging.getLogger(__name__)

WINDOW = 2048  # sentences in memory at a time
MOST_SENTENCES = 256  # per batch
FIRST_WINDOW = 64  # sentences; few, so that the first results of a long file come soon


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    **options: Any,
) -> Generator[str]:
    """Translate many sentences quickly, in order and in bounded memory.

    Args:
        model: A sequence-to-sequence model; its mode (training or evaluation) is restored.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings, even an endless one. A blank one gives an empty
            translation.
        **options: Other arguments of `translate_nbest`.

    Returns:
        An iterator over one translation per sentence, which reads nothing before its first step.

    Raises:
        ValueError: See `translate_nbest`.
    """
    if generation_option(model, options, "num_return_sequences") > 1:
        raise RequestError("Got num_return_sequences > 1; call translate_nbest for several.")
    if options.get("most_tokens") is not None:
        raise RequestError("translate does not take most_tokens; call translate_nbest.")
    nbest = translate_nbest(model, tokenizer, sentences, **options)
    return (translations[0].text for translations in nbest)


def translate_nbest(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    tokens_at_once: int = 16_384,
    window: int = WINDOW,
    group: Callable[[Iterable[str]], Generator[list[str]]] | None = None,
    first: int = 1,
    progress: bool = False,
    most_tokens: int | None = None,
    **generation_kwargs: Any,
) -> Generator[list[Translation]]:
    """Translate many sentences like `translate`, with several translations of each.

    Reads a window of sentences, decodes it in batches of similar length, and yields the
    translations in source order before it reads the next window. Windows grow from 64 sentences to
    `window`, so that first results come soon.

    Args:
        model: See `translate`.
        tokenizer: See `translate`.
        sentences: See `translate`.
        tokens_at_once: Budget of a batch: sentences x beams x longest source. A longer source is
            decoded alone.
        window: Maximum number of sentences in memory at a time.
        group: Function that splits the sentences into windows itself. None: as described above.
        first: Number of the first sentence, for errors.
        progress: Whether to show a progress bar.
        most_tokens: For servers: maximum number of tokens of a sentence. A longer sentence, or one
            that cannot be translated, gets a translation with an `error`, and the others are
            translated. None: such a sentence raises the error.
        **generation_kwargs: Arguments of `model.generate`, such as `num_beams`. Without
            `max_new_tokens` or `max_length` a translation has at most 50 tokens more than its
            source (Section 6.1), whatever limit the generation config has.
            `num_return_sequences` is n; a short limit on the length may leave fewer translations.
            The paper's search also has `prefix`, a text that each translation begins with, and
            `return_alignments`, for the `alignment` of each.

    Yields:
        A list for each sentence, the best translation first. A blank sentence has one empty
        translation with score 0.

    Raises:
        ValueError: An argument is out of range, an element is not a string, or a sentence is longer
            than 4096 tokens or the model's table of positions.
    """
    if isinstance(sentences, (str, bytes, Mapping)):
        raise RequestError(f"Got a {type(sentences).__name__}; give an iterable of texts: [text].")
    COUNT.check(window=window, tokens_at_once=tokens_at_once)
    total = len(sentences) if isinstance(sentences, Sized) else None
    windows = _windows(sentences, window) if group is None else group(sentences)
    budget = tokens_at_once // generation_option(model, generation_kwargs, "num_beams")
    if (prefix := generation_kwargs.get("prefix")) is not None:
        generation_kwargs["prefix"] = prefix_ids(tokenizer, prefix)
    blank = Translation("", 0.0, [] if generation_kwargs.get("return_alignments") else None)
    done, device, warning = 0, input_device(model), None
    with (
        progress_of(what="Translating", unit="sentences", total=total, shown=progress) as bar,
        free_threads() as threads,
        closing(windows),
    ):
        for texts in windows:
            sources, errors = _encoded(model, tokenizer, texts, first + done, most_tokens)
            if not (warning or errors):
                warning = unknown_tokens(tokenizer, texts, sources)
                if warning := warning or unknown_characters(tokenizer, texts):
                    logger.warning("%s.", warning)
            results = [[blank._replace(error=errors.get(index))] for index in range(len(texts))]
            filled = [index for index, source in enumerate(sources) if source]
            bar.update(len(texts) - len(filled))
            lengths = [len(sources[index]) for index in filled]
            for batch in length_sorted_batches(lengths, budget):
                indices = [filled[position] for position in batch]
                rows = [sources[index] for index in indices]
                if device.type == "cpu":
                    threads.adapt()
                with interruption.step():
                    ids, mask = pad_ids(rows, tokenizer.pad_token_id, device)
                    found = generate_ids(model, ids, mask, **generation_kwargs)
                    given = zip((texts[index] for index in indices), rows, strict=True)
                    translated = translations_of(model, tokenizer, given, found)
                    for index, translations in zip(indices, translated, strict=True):
                        results[index] = translations
                bar.update(len(batch))
            done += len(texts)
            yield from results


def _encoded(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    first: int,
    most_tokens: int | None,
) -> tuple[list[list[int]], dict[int, str]]:
    """Return the ids of each text, and the errors of texts without ids, by index.

    Args:
        model: See `translate`.
        tokenizer: See `translate`.
        texts: Texts that will share batches.
        first: Number of the first text in an error that is raised.
        most_tokens: See `translate_nbest`; None: errors are raised.
    """
    if most_tokens is None:
        return encode(model, tokenizer, texts, first), {}
    sources, errors = [], {}
    for index, text in enumerate(texts):
        try:
            (ids,) = encode(model, tokenizer, [text], None, most_tokens=most_tokens)
        except RequestError as error:
            ids, errors[index] = [], str(error)
        sources.append(ids)
    return sources, errors


def _windows(sentences: Iterable[str], window: int) -> Generator[list[str]]:
    """Group the sentences into windows that double in size up to `window`."""
    source = iter(sentences)
    size = min(window, FIRST_WINDOW)
    while texts := list(islice(source, size)):
        yield texts
        size = min(window, 2 * size)


def length_sorted_batches(
    lengths: Sequence[int], max_tokens: int, max_sentences: int = MOST_SENTENCES
) -> Iterator[list[int]]:
    """Group indices into batches of similar length, longest first, by a budget of padded tokens.

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
    """Return the device for inputs: the CPU if accelerate has offloaded parameters to `meta`."""
    return torch.device("cpu") if model.device.type == "meta" else model.device


def pad_ids(
    rows: Sequence[Collection[int]], value: int, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows on the right with a value; return the batch and its mask, both (B, longest)."""
    tensors = [torch.as_tensor(row, dtype=torch.int64) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=value)
    mask = pad_sequence([torch.ones_like(row) for row in tensors], batch_first=True)
    return ids.to(device), mask.to(device)
