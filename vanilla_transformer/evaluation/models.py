"""Evaluation of models: perplexity (Table 3), test sets (Section 6.1), log P(target | source).

Shapes: B pairs in a batch, T target length, V vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from ..batch_translation import decode, encode, generation_option
from ..beam_search import evaluation_mode
from ..errors import NotFiniteError, RequestError
from ..machine.progress import progress as progress_of
from ..machine.signals import interruption
from ..storage.metrics import TRANSLATION_MEASURES, Scores, TestTexts
from ..texts.targets import target_ids
from ..translation.many_texts import WINDOW, input_device, length_sorted_batches, pad_ids, translate
from .scores import References, corpus_scores, first_references, measure_metric


def perplexity(
    model: PreTrainedModel,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    tokens_at_once: int = 4096,
    progress: bool = False,
) -> Scores:
    """Compute the perplexity per target token: exp of the mean negative log-likelihood.

    The mean is over all tokens of the set, including `</s>`, in float64, so it does not depend on
    the batches. The tokens are those of the model's vocabulary, as in the paper ("per-wordpiece",
    Table 3), so perplexities with different vocabularies cannot be compared.

    Args:
        model: A sequence-to-sequence model. Its mode (training or evaluation) is restored.
        sources: The ids of each source, without padding.
        targets: The ids of each target, without padding.
        tokens_at_once: Budget of a batch: pairs x tokens of the longest side. A longer pair goes
            alone.
        progress: Whether to show a progress bar.

    Returns:
        `perplexity`, `negative_log_likelihood` in nats per token, `target_tokens`.

    Raises:
        ValueError: There is no target token, a source has no token, or the likelihood is not
            finite.
    """
    if not all(sources):  # an empty source would get a likelihood too
        raise RequestError("A source has no token; leave it out.")
    tokens = sum(map(len, targets))
    if tokens == 0:
        raise RequestError("Got no target tokens; there is nothing to measure.")
    mean = -sum(_scored(model, sources, targets, tokens_at_once, progress=progress)) / tokens
    return {"perplexity": math.exp(mean), "negative_log_likelihood": mean, "target_tokens": tokens}


def score_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: References,
    *,
    target_language: str,
    measures: Sequence[str] = TRANSLATION_MEASURES,
    tokens_at_once: int = 4096,
    progress: bool = False,
    num_beams: int | None = None,
    **generation_kwargs: Any,
) -> TestTexts:
    """Translate a test set; return scores of the translations, perplexity and copy baseline.

    Args:
        model: A sequence-to-sequence model.
        tokenizer: Its tokenizer.
        sources: Sentences to translate.
        references: One reference for each, or several; the perplexity is that of the first.
        target_language: Code of the references' language; see `corpus_scores`.
        measures: Names from `MEASURES`.
        tokens_at_once: Maximum number of tokens in a batch; see `translate`.
        progress: Whether to show progress bars.
        num_beams: Beams of the search. None means the model's own.
        **generation_kwargs: Other arguments of `model.generate`.

    Returns:
        The keys of `corpus_scores` and `perplexity`; `num_beams`; `copy_baseline`, the
        `corpus_scores` of the untranslated sources; and the texts: `sources`, `hypotheses`,
        `references`.

    Raises:
        ValueError: The lists are empty or differ in length, or a sentence is longer than
            `translate` accepts.
    """
    # Fail before translating if a package is missing, pairs do not match or a text is too long.
    scoring: dict[str, Any] = {"target_language": target_language, "measures": measures}
    copies = corpus_scores(sources, references, **scoring)
    end = tokenizer("", verbose=False)["input_ids"]  # what the model reads of a blank source
    ids = [row or end for row in encode(model, tokenizer, list(sources))]
    labels = target_ids(model, tokenizer, first_references(references))
    decoding: dict[str, Any] = {"tokens_at_once": tokens_at_once, "progress": progress}
    search = {"num_beams": num_beams, **generation_kwargs}
    hypotheses = list(translate(model, tokenizer, sources, **decoding, **search))
    return {
        **corpus_scores(hypotheses, references, **scoring),
        **perplexity(model, ids, labels, **decoding),
        "copy_baseline": copies,
        "num_beams": generation_option(model, search, "num_beams"),
        "sources": list(sources),
        "references": references,
        "hypotheses": hypotheses,
    }


def decode_ids(tokenizer: PreTrainedTokenizerBase, ids: object) -> list[str]:
    """Decode rows of ids from a Trainer, whatever pads them: -100, `<pad>` or both.

    Negative ids are replaced, because the tokenizer overflows on them.
    """
    rows = np.asarray(ids)
    rows = np.where(rows < 0, tokenizer.pad_token_id, rows)
    return decode(tokenizer, torch.from_numpy(rows))


def compute_metrics(
    tokenizer: PreTrainedTokenizerBase,
    *,
    target_language: str,
    measures: Sequence[str] = TRANSLATION_MEASURES,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return a `compute_metrics` function for a `Seq2SeqTrainer` with `predict_with_generate`.

    Args:
        tokenizer: The tokenizer that made the labels.
        target_language: Code of the references' language; see `corpus_scores`.
        measures: Names from `MEASURES`.

    Returns:
        A function from predictions to the score of each measure in percent.

    Raises:
        ValueError: A measure is unknown, or needs a package that is not installed.
    """
    scoring: dict[str, Any] = {"target_language": target_language, "measures": measures}
    for name in measures:  # fail now rather than after an epoch
        measure_metric(name, target_language)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        predicted, labels = prediction.predictions, prediction.label_ids
        predicted = predicted[0] if isinstance(predicted, tuple) else predicted
        texts, references = (decode_ids(tokenizer, ids) for ids in (predicted, labels))
        scores: Mapping[str, Any] = corpus_scores(texts, references, **scoring)
        return {name: scores[name] for name in measures}

    return compute


# ------------------------------------------------------------------ log-probabilities of pairs


class Likelihood(NamedTuple):
    """The log-probability of one given translation, and its length."""

    log_probability: float  # log P(target, </s> | source), natural logarithm
    target_tokens: int  # with </s>


def log_probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Iterable[tuple[str, str]],
    *,
    tokens_at_once: int = 4096,
) -> Iterator[Likelihood]:
    """Yield the log-probability of each translation, in order and within bounded memory.

    It is the sum over the target's tokens and `</s>`, without label smoothing or dropout: what beam
    search divides by its length penalty.

    Args:
        model: A sequence-to-sequence model. Its mode (training or evaluation) is restored.
        tokenizer: Its tokenizer.
        pairs: Any iterable of (source, target), read one window at a time.
        tokens_at_once: Budget of a batch: pairs x tokens of the longest side. A longer pair goes
            alone.

    Returns:
        An iterator with one `Likelihood` per pair. It reads nothing before you ask for the first.

    Raises:
        ValueError: `pair_ids` refuses a pair, or a log-probability is not finite.
    """
    remaining, done = iter(pairs), 0
    while window := list(islice(remaining, WINDOW)):
        sources, targets = pair_ids(model, tokenizer, window, first=done + 1)
        done += len(window)
        found = _scored(model, sources, targets, tokens_at_once)
        for value, target in zip(found, targets, strict=True):
            yield Likelihood(value, len(target))


def pair_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    *,
    first: int = 1,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return source and target ids of pairs; `first` is the first one's number in error messages.

    Raises:
        ValueError: A source is blank or has more tokens than can be translated, or a side is
            longer than the model's table of positions.
    """
    sources = encode(model, tokenizer, [source for source, _ in pairs], first=first)
    for number, ids in enumerate(sources, start=first):
        if not ids:  # an empty source would get a likelihood too
            raise RequestError(f"Pair {number} has a blank source; leave it out.")
    targets = target_ids(model, tokenizer, [target for _, target in pairs], first=first)
    return sources, targets


def _scored(
    model: PreTrainedModel,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    tokens_at_once: int,
    *,
    progress: bool = False,
) -> list[float]:
    """Return the log-probability of each target, computed in batches of similar lengths."""
    found: dict[int, float] = {}
    lengths = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
    with progress_of(what="Scoring", unit="pairs", total=len(lengths), shown=progress) as bar:
        for batch in length_sorted_batches(lengths, tokens_at_once):
            parts = [[side[index] for index in batch] for side in (sources, targets)]
            with interruption.step():
                found |= zip(batch, _log_probabilities(model, *parts), strict=True)
            bar.update(len(batch))
    if broken := [value for value in found.values() if not math.isfinite(value)]:
        raise NotFiniteError(f"A log-probability is {broken[0]}: the model's weights are broken.")
    return [found[index] for index in range(len(lengths))]


@torch.inference_mode()
def _log_probabilities(
    model: PreTrainedModel, sources: list[list[int]], targets: list[list[int]]
) -> list[float]:
    """Return the log-probability of each target, the sum over its tokens."""
    pad, device = model.config.pad_token_id, input_device(model)
    ids, mask = pad_ids(sources, pad, device)
    shifted = [[model.config.decoder_start_token_id, *row[:-1]] for row in targets]
    inputs, _ = pad_ids(shifted, pad, device)
    with evaluation_mode(model):
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs).logits
    rows = []
    for row, target in zip(logits, targets, strict=True):  # row by row: no second (B, T, V) tensor
        row = row[: len(target)].to(torch.promote_types(row.dtype, torch.float32))
        gold = torch.tensor(target, device=row.device)[:, None]
        rows.append(row.log_softmax(-1).gather(-1, gold).flatten())
    tokens = torch.cat(rows).cpu().double()
    return [row.sum().item() for row in tokens.split([len(target) for target in targets])]
