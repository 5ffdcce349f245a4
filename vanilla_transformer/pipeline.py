"""From text to text with a trained model (Section 6.1): many sentences, or a Hugging Face pipeline.

`translate` serves files, streams and evaluation: batches of similar length, results in order.
`VanillaTransformerTranslationPipeline` serves everyone who knows `transformers.pipeline`; version 5
of that library has no translation pipeline of its own.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, Pipeline, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY

from .batch_translation import generate_ids, generation_option
from .beam_search import longest_sequence
from .prepacking import release
from .target_tokenizer import source_tokenizer, target_ids, target_tokenizer

TASK = "translate"  # the library refuses the name "translation"
FIRST_WINDOW = 64  # sentences; the first results of a long file come soon


class Translation(NamedTuple):
    """One translation of a sentence."""

    text: str
    score: (
        float | None
    )  # log P / ((5 + L) / 6)^alpha; where `generate` has searched, its own or None


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


def pad_ids(rows: Sequence[Sequence[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
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
    max_wait: float | None = None,
    progress: bool = False,
    **generation_kwargs: object,
) -> Iterator[str]:
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
        max_wait: Seconds after which a silent source is taken to be waiting for an answer: what has
            arrived is translated (standard input). Reads in a thread. None waits for whole windows
            and is repeatable to the last bit.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`, `num_beams` for one.

    Returns:
        An iterator over one translation per sentence. Nothing is read before it is asked.

    Raises:
        ValueError: An argument is out of range, an element is not a string, or a sentence is longer
            than the model's table of positions.
    """
    if generation_option(model, generation_kwargs, "num_return_sequences") > 1:
        raise ValueError(
            "Got num_return_sequences > 1, but translate yields one translation per sentence; "
            "translate_nbest gives several."
        )
    options = {"batch_tokens": batch_tokens, "max_sentences": max_sentences, "window": window}
    options |= {"max_wait": max_wait, "progress": progress, **generation_kwargs}
    return _firsts(translate_nbest(model, tokenizer, sentences, **options))


def translate_nbest(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    batch_tokens: int = 16_384,
    max_sentences: int = 256,
    window: int = 2048,
    max_wait: float | None = None,
    progress: bool = False,
    **generation_kwargs: object,
) -> Iterator[list[Translation]]:
    """Translates as `translate` does, and yields the best translations of each sentence.

    Args:
        model: See `translate`, for this and the other arguments.
        tokenizer: Its tokenizer.
        sentences: Any iterable of strings.
        batch_tokens: Budget of a batch.
        max_sentences: Most sentences of a batch.
        window: Most sentences held at a time.
        max_wait: Seconds after which a silent source is answered.
        progress: Whether to show a progress bar.
        **generation_kwargs: Arguments of `model.generate`; `num_return_sequences` translations
            are asked for. A short limit on the length may leave fewer.

    Returns:
        An iterator over a list for each sentence, the best translation first; a blank sentence has
        one, empty, with score 0.

    Raises:
        ValueError: See `translate`.
    """
    if isinstance(sentences, (str, bytes)):
        raise ValueError("Got one string; translate takes an iterable of them: [text].")
    bounds = {"batch_tokens": batch_tokens, "max_sentences": max_sentences, "window": window}
    for name, value in bounds.items():
        if value < 1:
            raise ValueError(f"Got {name}={value}; it must be at least 1.")
    budget = batch_tokens // generation_option(model, generation_kwargs, "num_beams")
    windows = _windows(sentences, window, max_wait)
    total = len(sentences) if isinstance(sentences, Sized) else None
    bar = tqdm(total=total, unit="sentence", disable=not progress)
    return _stream(model, tokenizer, windows, budget, max_sentences, bar, generation_kwargs)


class VanillaTransformerTranslationPipeline(Pipeline):
    """`pipeline("translate", model=...)`: text in, `[{"translation_text": ...}]` out.

    Takes a string, a list, a generator or a data set of strings, `batch_size`, and the arguments of
    `generate`. A list of strings with one translation each gives a list of dicts; otherwise every
    input gives a list of its `num_return_sequences` dicts, the best first. With
    `return_scores=True` each dict has a `score` too. Blank text is not shown to the model.
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def __call__(self, inputs: object, **kwargs: object) -> object:
        """Translates; see the class.

        Args:
            inputs: A string, a sequence or data set of strings, or any iterator over strings.
            **kwargs: `batch_size`, `num_workers`, `return_scores`, and the arguments of `generate`.

        Returns:
            A list for a string or a sequence; an iterator for a data set or an iterator.

        Raises:
            ValueError: An input is not a string, or is longer than the positions' table; or there
                are no scores, since the arguments need `generate`.
        """
        if isinstance(inputs, (str, Mapping, Dataset)) or not isinstance(inputs, Iterable):
            return super().__call__(inputs, **kwargs)
        if not isinstance(inputs, Sequence):
            return super().__call__((text for text in inputs), **kwargs)
        if len(inputs) == 0:  # on which the library fails with an IndexError
            return []
        results = super().__call__(list(inputs), **kwargs)
        return [result[0] for result in results] if all(len(r) == 1 for r in results) else results

    def _sanitize_parameters(
        self, return_scores: bool | None = None, **generation_kwargs: object
    ) -> tuple[dict, dict, dict]:
        scores = {} if return_scores is None else {"return_scores": return_scores}
        return {}, {**scores, **generation_kwargs}, scores

    def preprocess(self, text: str) -> dict[str, torch.Tensor]:
        """Tokenizes one text: ids and mask, (1, S), and whether there is anything to translate."""
        (ids,) = _encode(self.model, self.tokenizer, [text])
        row = torch.tensor([ids or [self.tokenizer.pad_token_id]])
        return {
            "input_ids": row,
            "attention_mask": torch.ones_like(row),
            "has_text": torch.tensor([bool(ids)]),
        }

    def _forward(
        self,
        inputs: dict[str, torch.Tensor],
        *,
        return_scores: bool = False,
        **generation_kwargs: object,
    ) -> dict[str, torch.Tensor]:
        ids, mask, has_text = inputs["input_ids"], inputs["attention_mask"], inputs["has_text"]
        rows = has_text.nonzero().squeeze(1)
        count = generation_option(self.model, generation_kwargs, "num_return_sequences")
        output = ids.new_full((len(ids), count, 1), self.tokenizer.pad_token_id)
        scores = torch.zeros(len(ids), count, dtype=torch.float64, device=ids.device)
        if rows.numel():
            found, found_scores = generate_ids(
                self.model, ids[rows], mask[rows], **generation_kwargs
            )
            if return_scores and found_scores is None:
                raise ValueError(
                    "Got return_scores with a model or arguments that the paper's search does not "
                    f"have ({', '.join(generation_kwargs) or type(self.model).__name__}); leave "
                    "one of them out, or ask generate for its own: num_beams=N, "
                    "return_dict_in_generate=True, output_scores=True."
                )
            output = found.new_full((len(ids), *found.shape[1:]), self.tokenizer.pad_token_id)
            output[rows] = found
            if found_scores is not None:
                scores[rows] = found_scores.double()
        return {"output_ids": output, "scores": scores}  # (B, n, T), (B, n)

    def postprocess(
        self, outputs: dict[str, torch.Tensor], *, return_scores: bool = False
    ) -> list[dict[str, str | float]]:
        """Makes text of the ids of one input, (1, n, T), and numbers of its scores, (1, n)."""
        texts = _texts(self.tokenizer, outputs["output_ids"][0])
        results: list[dict[str, str | float]] = [{"translation_text": text} for text in texts]
        if return_scores:
            for result, score in zip(results, outputs["scores"][0].tolist(), strict=True):
                result["score"] = score
        return results


def register_pipeline() -> None:
    """Makes `pipeline("translate", ...)` known to transformers; a second call changes nothing."""
    if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=VanillaTransformerTranslationPipeline,
            pt_model=AutoModelForSeq2SeqLM,
            type="text",
        )


def _encode(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], first: int = 1
) -> list[list[int]]:
    """Ids of each text, none for a blank one; errors count the texts from `first`."""
    for number, text in enumerate(texts, start=first):
        if not isinstance(text, str):
            raise ValueError(
                f"Input {number} is of type {type(text).__name__}, not a string; of a data "
                "set give the text column, with transformers.pipelines.pt_utils.KeyDataset for one."
            )
    encoded: list[list[int]] = [[] for _ in texts]
    wanted = [index for index, text in enumerate(texts) if text.strip()]
    if wanted:
        # verbose=False: its warning about long inputs is not true of sinusoids.
        ids = tokenizer([texts[index] for index in wanted], verbose=False)["input_ids"]
        for index, row in zip(wanted, ids, strict=True):
            encoded[index] = row
    table = longest_sequence(model)
    for number, row in enumerate(encoded, start=first):
        if table is not None and len(row) > table:
            raise ValueError(
                f"Input {number} has {len(row)} tokens, but the model's positions end at "
                f"{table} (max_position_embeddings); split it into shorter sentences."
            )
    return encoded


def _firsts(found: Iterator[list[Translation]]) -> Iterator[str]:
    with closing(found):
        for translations in found:
            yield translations[0].text


def _stream(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    windows: Iterator[list[str]],
    budget: int,
    max_sentences: int,
    bar: tqdm,
    generation_kwargs: dict[str, object],
) -> Iterator[list[Translation]]:
    """Translations of each window in its own order, decoded in the order of length."""
    done = 0
    with bar, closing(windows):
        for texts in windows:
            sources = _encode(model, tokenizer, texts, first=done + 1)
            results = [[Translation("", 0.0)] for _ in texts]
            filled = [index for index, source in enumerate(sources) if source]
            bar.update(len(texts) - len(filled))
            lengths = [len(sources[index]) for index in filled]
            for batch in length_sorted_batches(lengths, budget, max_sentences):
                indices = [filled[position] for position in batch]
                ids, mask = pad_ids([sources[index] for index in indices], tokenizer.pad_token_id)
                found, scores = generate_ids(
                    model, ids.to(model.device), mask.to(model.device), **generation_kwargs
                )
                for index, translations in zip(
                    indices, _translations(tokenizer, found, scores), strict=True
                ):
                    results[index] = translations
                bar.update(len(batch))
            if model.training:  # its weights will change, and their packed copies be of no use
                release(model)
            done += len(texts)
            yield from results


def _translations(
    tokenizer: PreTrainedTokenizerBase, ids: torch.Tensor, scores: torch.Tensor | None
) -> Iterator[list[Translation]]:
    """Translations of each source, from ids, (B, n, T), and scores, (B, n)."""
    texts = _texts(tokenizer, ids.flatten(0, 1))
    count = ids.size(1)
    for index in range(ids.size(0)):
        values = [None] * count if scores is None else scores[index].tolist()
        found = map(Translation, texts[index * count : (index + 1) * count], values)
        # A score of minus infinity marks a place for which there was no translation.
        yield [item for item in found if item.score is None or item.score > -math.inf] or [
            Translation("", -math.inf)
        ]


def _texts(tokenizer: PreTrainedTokenizerBase, ids: torch.Tensor) -> list[str]:
    """Texts of target ids, (rows, T), without special tokens and otherwise untouched."""
    return target_tokenizer(tokenizer).batch_decode(
        ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _windows(sentences: Iterable[str], window: int, max_wait: float | None) -> Iterator[list[str]]:
    """Cuts the sentences into windows that double in size up to `window`."""
    source = iter(sentences) if max_wait is None else None
    arrivals = None if max_wait is None else _Arrivals(sentences, window, max_wait)
    size = min(window, FIRST_WINDOW)
    try:
        while texts := list(islice(source, size)) if arrivals is None else arrivals.take(size):
            yield texts
            size = min(window, 2 * size)
    finally:
        if arrivals is not None:
            arrivals.stop()


class _Arrivals:
    """Sentences as they arrive: a thread waits for them, so that the reader need not."""

    def __init__(self, sentences: Iterable[str], capacity: int, max_wait: float) -> None:
        self.max_wait = max_wait
        self.ended = False
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self.queue: queue.Queue[tuple[object, bool]] = queue.Queue(maxsize=capacity)
        # A daemon: nothing can interrupt a thread that waits for a terminal.
        threading.Thread(target=self._read, args=(sentences,), daemon=True).start()

    def take(self, size: int) -> list[object]:
        """At least one sentence and up to `size`; none at the end."""
        taken: list[object] = []
        while len(taken) < size and not self.ended:
            try:
                item, more = self.queue.get(timeout=self.max_wait if taken else None)
            except queue.Empty:  # silence: somebody may be waiting for an answer
                break
            if more:
                taken.append(item)
            self.ended = not more
        if not taken and self.error is not None:
            raise self.error
        return taken

    def stop(self) -> None:
        """Lets the thread end as soon as its source lets it."""
        self.stopped.set()

    def _read(self, sentences: Iterable[str]) -> None:
        try:
            for sentence in sentences:
                if not self._put(sentence, True):
                    return
        except BaseException as error:  # it belongs to the thread that takes, which raises it
            self.error = error
        self._put(None, False)

    def _put(self, item: object, more: bool) -> bool:
        while not self.stopped.is_set():
            try:
                self.queue.put((item, more), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False


__all__ = [
    "Translation",
    "VanillaTransformerTranslationPipeline",
    "register_pipeline",
    "source_tokenizer",
    "target_ids",
    "target_tokenizer",
    "translate",
    "translate_nbest",
]
