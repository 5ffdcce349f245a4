"""Evaluate models: perplexity (Table 3), a translated and scored test set (Section 6.1).

`trainer_metrics` gives the same scores to a stock `Seq2SeqTrainer` as its `compute_metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm.auto import tqdm

from ..batch_translation import encode, length_sorted_batches, pad_ids, translate
from ..beam_search import evaluation_mode
from ..errors import RequestError
from ..storage.metrics import Perplexity, TestTexts
from ..target_tokenizer import target_ids, target_tokenizer
from .scores import bleu_metric, check_pairs, corpus_scores, scores_by_kind

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

WINDOW = 2048  # sentence pairs that are held as ids at a time
IGNORED = -100  # labels that are padding


def negative_log_likelihoods(
    model: PreTrainedModel,
    dataset: Iterable[Mapping[str, Sequence[int]]],
    *,
    batch_tokens: int = 4096,
    max_sentences: int = 256,
    progress: bool = False,
) -> Iterator[tuple[float, int]]:
    """Yield the summed negative log-likelihood and the number of target tokens of each batch.

    Teacher-forced plain cross-entropy: no label smoothing, no dropout. The arguments and errors are
    those of `perplexity`.
    """
    examples = enumerate(dataset)
    with tqdm(unit="pair", disable=not progress) as bar:
        while window := list(islice(examples, WINDOW)):
            sources = [_ids(example, "input_ids", number) for number, example in window]
            targets = [_ids(example, "labels", number) for number, example in window]
            targets = [labels[labels != IGNORED] for labels in targets]
            lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
            for batch in length_sorted_batches(lengths, batch_tokens, max_sentences):
                yield _negative_log_likelihood(
                    model, [sources[index] for index in batch], [targets[index] for index in batch]
                )
                bar.update(len(batch))


def perplexity(
    model: PreTrainedModel,
    dataset: Iterable[Mapping[str, Sequence[int]]],
    *,
    batch_tokens: int = 4096,
    max_sentences: int = 256,
    progress: bool = False,
) -> Perplexity:
    """Compute the perplexity per target token: exp of the mean negative log-likelihood.

    The mean is over the tokens of the whole set, `</s>` counted, in float64, so the batches do not
    matter. The unit is the model's own token (the paper's too: "per-wordpiece", Table 3), so
    perplexities of different vocabularies cannot be compared.

    Args:
        model: A sequence-to-sequence model; on return in the mode (training or not) it was in.
        dataset: Examples with `input_ids` and `labels`, both ending in `</s>`; read once, a window
            at a time.
        batch_tokens: Budget of a batch: sentences x longest side. A longer pair goes alone.
        max_sentences: Most sentences of a batch.
        progress: Whether to show a progress bar.

    Returns:
        `perplexity`, `negative_log_likelihood` in nats per token, `target_tokens`.

    Raises:
        ValueError: There is no target token, the likelihood is not finite, or an example has no
            source, or something else than ids.
    """
    total, tokens = 0.0, 0
    for loss, count in negative_log_likelihoods(
        model, dataset, batch_tokens=batch_tokens, max_sentences=max_sentences, progress=progress
    ):
        total, tokens = total + loss, tokens + count
    if tokens == 0:
        raise RequestError("Got no target tokens; there is nothing to measure.")
    mean = total / tokens
    # exp overflows beyond 709 nats; a model that bad is as broken as one that gives NaN.
    if not mean < 700:
        raise RequestError(
            f"The mean negative log-likelihood is {mean}; the model's weights or inputs are broken."
        )
    return {"perplexity": math.exp(mean), "negative_log_likelihood": mean, "target_tokens": tokens}


def evaluate_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str,
    kinds: Sequence[str] | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
    **generation_kwargs: Any,
) -> TestTexts:
    """Translate a test set; score the translations, the model and the untranslated sources.

    Args:
        model: A sequence-to-sequence model.
        tokenizer: Its tokenizer.
        sources: Sentences to translate.
        references: One reference each.
        target_language: Code of the references' language; see `bleu_score`.
        kinds: A label for each pair, to report its kind apart.
        lowercase: Whether BLEU and chrF ignore case.
        tokenize: SacreBLEU's name of a tokenizer, instead of the language's own.
        batch_tokens: Budget of a batch; see `translate`.
        progress: Whether to show progress bars.
        **generation_kwargs: Arguments of `model.generate`, `num_beams` for one.

    Returns:
        The keys of `corpus_scores` and `perplexity`; `copy_baseline`, the `corpus_scores` of the
        untranslated sources; with kinds `by_kind`, for each `exact_match`, `copy_exact_match` and
        `num_sentences`; and `hypotheses`, a list, everything else being fit for a JSON of metrics.

    Raises:
        ValueError: The lists are empty or differ in length, a sentence is longer than `translate`
            takes, or `tokenize` is not installed.
    """
    check_pairs(sources, references)
    options: dict[str, Any] = {
        "target_language": target_language,
        "lowercase": lowercase,
        "tokenize": tokenize,
    }
    # Before the long work: a source may be too long, what the scores need may not be installed, and
    # kinds may not fit.
    copies = corpus_scores(sources, references, **options)
    copies_by_kind = scores_by_kind(sources, references, kinds) if kinds is not None else {}
    for start in range(0, len(sources), WINDOW):
        encode(model, tokenizer, list(sources[start : start + WINDOW]), first=start + 1)
    decoding: dict[str, Any] = {"batch_tokens": batch_tokens, "progress": progress}
    hypotheses = list(translate(model, tokenizer, sources, **decoding, **generation_kwargs))
    result: TestTexts = {
        **corpus_scores(hypotheses, references, **options),
        **perplexity(model, _tokenized(model, tokenizer, sources, references), **decoding),
        "copy_baseline": copies,
    }
    if kinds is not None:
        by_kind = result["by_kind"] = scores_by_kind(hypotheses, references, kinds)
        for kind, scores in by_kind.items():
            scores["copy_exact_match"] = copies_by_kind[kind]["exact_match"]
    result["hypotheses"] = hypotheses
    return result


def decode_ids(tokenizer: PreTrainedTokenizerBase, ids: object) -> list[str]:
    """Decode rows of ids as a Trainer gives them: padded with -100, with `<pad>`, or both.

    A negative id is no token, and the tokenizer overflows on it.
    """
    rows = np.asarray(ids)
    rows = np.where(rows < 0, tokenizer.pad_token_id, rows)
    return target_tokenizer(tokenizer).batch_decode(
        rows.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def trainer_metrics(
    tokenizer: PreTrainedTokenizerBase, *, target_language: str, tokenize: str | None = None
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Make the `compute_metrics` of a `Seq2SeqTrainer` with `predict_with_generate`.

    Args:
        tokenizer: The tokenizer that made the labels.
        target_language: Code of the references' language; see `bleu_score`.
        tokenize: SacreBLEU's name of a tokenizer, instead of the language's own.

    Returns:
        A function from predictions to `bleu`, `chrf` and `exact_match` in percent.

    Raises:
        ValueError: `tokenize` is not installed.
    """
    bleu_metric(target_language, tokenize=tokenize)  # an error now rather than after an epoch

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        predicted = prediction.predictions
        scores = corpus_scores(
            decode_ids(tokenizer, predicted[0] if isinstance(predicted, tuple) else predicted),
            decode_ids(tokenizer, prediction.label_ids),
            target_language=target_language,
            tokenize=tokenize,
        )
        return {
            "bleu": scores["bleu"],
            "chrf": scores["chrf"],
            "exact_match": scores["exact_match"],
        }

    return compute


def _ids(example: Mapping[str, Sequence[int]], name: str, number: int) -> np.ndarray:
    """The ids of one side of an example, (T,)."""
    try:
        ids = np.asarray(example.get(name))
    except (ValueError, TypeError):  # rows of different lengths
        ids = np.asarray(None)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise RequestError(
            f"Example {number} has {name} that are no list of whole numbers; give token ids."
        )
    if name == "input_ids" and not ids.size:
        raise RequestError(f"Example {number} has no source token; leave it out.")
    return ids


@torch.inference_mode()
def _negative_log_likelihood(
    model: PreTrainedModel, sources: list[np.ndarray], targets: list[np.ndarray]
) -> tuple[float, int]:
    """Return the sum in nats of one batch and its number of target tokens."""
    tokens = sum(map(len, targets))
    if tokens == 0:
        return 0.0, 0
    ids, mask = pad_ids(sources, model.config.pad_token_id)
    labels, _ = pad_ids(targets, IGNORED)
    own = model.config.model_type == "vanilla_transformer"
    with evaluation_mode(model):
        loss = model(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            labels=labels.to(model.device),
            # No (B, T, V) logits, which only our own models can do without.
            **({"return_logits": False} if own else {}),
        ).loss
    return loss.item() * tokens, tokens


def _tokenized(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[str],
) -> Iterator[dict[str, list[int]]]:
    """Yield the ids of the pairs; tokenize a window at a time."""
    for start in range(0, len(sources), WINDOW):
        inputs = tokenizer(list(sources[start : start + WINDOW]), verbose=False)["input_ids"]
        labels = target_ids(model, tokenizer, references[start : start + WINDOW])
        for row, label in zip(inputs, labels, strict=True):
            yield {"input_ids": row, "labels": label}
