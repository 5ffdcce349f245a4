"""How good a translation model is: BLEU, chrF, exact match and perplexity (Section 6.1, Table 3).

Scores that tokenize carry sacreBLEU's signature, without which they cannot be compared. Everything
works without a network. `Bleu`, `Chrf`, `ExactMatch` and `Perplexity` are the same numbers as
metrics of Hugging Face's `evaluate`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from tqdm.auto import tqdm

from ..batch_translation import length_sorted_batches, pad_ids, translate
from ..beam_search import evaluation_mode
from ..target_tokenizer import target_ids, target_tokenizer

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU
    from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

METRICS = ("Bleu", "Chrf", "ExactMatch", "Perplexity")
WINDOW = 2048  # sentence pairs that are held as ids at a time
IGNORED = -100  # labels that are padding
# Languages without spaces between words, by ISO 639-1 and 639-3; 13a, the default of sacreBLEU and
# WMT, would take a whole clause of theirs for one word.
BLEU_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
}


def bleu_tokenizer(language: str) -> str:
    """SacreBLEU's tokenizer for a target language: "de" or "de_AT" -> "13a", "zh-Hans" -> "zh"."""
    return BLEU_TOKENIZERS.get(language.replace("_", "-").split("-")[0].lower(), "13a")


@functools.cache
def installed_bleu_tokenizer(language: str) -> str:
    """`bleu_tokenizer`, or "char" where that one is not installed, which is logged once."""
    name = bleu_tokenizer(language)
    try:
        _bleu_metric(language, tokenize=name)
    except ValueError as error:
        logging.getLogger(__name__).warning("%s Without it BLEU is that of characters.", error)
        return "char"
    return name


def bleu_score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, float | str]:
    """Corpus BLEU in percent, `bleu`, and its signature, `bleu_signature`.

    Args:
        hypotheses: Translations, detokenized.
        references: One reference each.
        target_language: Code of the language, which chooses the tokenizer, if it is installed.
        lowercase: Whether to ignore case.
        tokenize: SacreBLEU's name of a tokenizer, instead of the language's own.

    Raises:
        ValueError: The lists are empty or differ in length, or `tokenize` is not installed.
    """
    _check_pairs(hypotheses, references)
    metric = _bleu_metric(target_language, lowercase=lowercase, tokenize=tokenize)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return {"bleu": score, "bleu_signature": str(metric.get_signature())}


def chrf_score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> dict[str, float | str]:
    """Corpus chrF2 in percent, `chrf`, and its signature, `chrf_signature`."""
    _check_pairs(hypotheses, references)
    _require("sacrebleu")
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=lowercase)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return {"chrf": score, "chrf_signature": str(metric.get_signature())}


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Share of translations that equal their reference character by character, in percent."""
    _check_pairs(hypotheses, references)
    equal = sum(ours == theirs for ours, theirs in zip(hypotheses, references, strict=True))
    return 100.0 * equal / len(references)


def tokenized_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str,
    lowercase: bool = True,
) -> dict[str, float | str]:
    """BLEU on Moses tokens, lower-cased: what much literature reports, on Multi30k above all.

    Comparable with that literature only, not with `bleu_score`: the tokens differ. Both sides are
    lower-cased and tokenized by sacremoses, without normalizing punctuation or escaping.

    Returns:
        `tokenized_bleu` in percent and `tokenized_bleu_signature`.

    Raises:
        ValueError: The lists are empty or differ in length.
    """
    _check_pairs(hypotheses, references)
    _require("sacremoses")
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=target_language.replace("_", "-").split("-")[0].lower())

    def tokens(text: str) -> str:
        return moses.tokenize(text.lower() if lowercase else text, return_str=True, escape=False)

    metric = _bleu_metric(target_language, lowercase=lowercase, tokenize="none", force=True)
    ours, theirs = ([tokens(text) for text in side] for side in (hypotheses, references))
    score = metric.corpus_score(ours, [theirs]).score
    moses_version = f"sacremoses-{version('sacremoses')}-{moses.lang}"
    return {
        "tokenized_bleu": score,
        "tokenized_bleu_signature": f"{metric.get_signature()}|moses:{moses_version}",
    }


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, float | str | int]:
    """All scores of a set of translations; arguments and errors are those of `bleu_score`.

    Returns:
        `bleu`, `chrf`, `exact_match` in percent, `bleu_signature`, `chrf_signature`, and the number
        of sentences, `num_sentences`.
    """
    options = {"target_language": target_language, "lowercase": lowercase, "tokenize": tokenize}
    return {
        **bleu_score(hypotheses, references, **options),
        **chrf_score(hypotheses, references, lowercase=lowercase),
        "exact_match": exact_match(hypotheses, references),
        "num_sentences": len(references),
    }


def scores_by_kind(
    hypotheses: Sequence[str], references: Sequence[str], kinds: Sequence[str]
) -> dict[str, dict[str, float | int]]:
    """Exact match in percent and number of sentences of each kind, kinds in alphabetical order."""
    _check_pairs(hypotheses, references)
    if len(kinds) != len(references):
        raise ValueError(f"Got {len(kinds)} kinds for {len(references)} references; give one each.")
    members: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        members.setdefault(kind, []).append(index)
    return {
        kind: {
            "exact_match": exact_match(
                *([side[index] for index in members[kind]] for side in (hypotheses, references))
            ),
            "num_sentences": len(members[kind]),
        }
        for kind in sorted(members)
    }


def negative_log_likelihoods(
    model: PreTrainedModel,
    dataset: Iterable[Mapping[str, Sequence[int]]],
    *,
    batch_tokens: int = 4096,
    max_sentences: int = 256,
    progress: bool = False,
) -> Iterator[tuple[float, int]]:
    """Summed negative log-likelihood and number of target tokens, batch by batch, teacher-forced.

    Plain cross-entropy: no label smoothing, no dropout. The arguments are those of `perplexity`.
    """
    examples = iter(dataset)
    with tqdm(unit="pair", disable=not progress) as bar:
        while window := list(islice(examples, WINDOW)):
            sources = [example["input_ids"] for example in window]
            targets = [[i for i in example["labels"] if i != IGNORED] for example in window]
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
) -> dict[str, float | int]:
    """Perplexity per target token, `</s>` counted: exp of the mean negative log-likelihood.

    The mean is over the tokens of the whole set, in float64, so the batches do not matter. The unit
    is the model's own token (the paper's too: "per-wordpiece", Table 3), so perplexities of
    different vocabularies cannot be compared.

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
        ValueError: There is no target token, or the likelihood is not finite.
    """
    total, tokens = 0.0, 0
    for loss, count in negative_log_likelihoods(
        model, dataset, batch_tokens=batch_tokens, max_sentences=max_sentences, progress=progress
    ):
        total, tokens = total + loss, tokens + count
    return _perplexity(total, tokens)


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
    **generation_kwargs: object,
) -> dict[str, object]:
    """Translates a test set and scores the translations, the model and the copy of the sources.

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
        ValueError: The lists are empty or differ in length, a sentence is longer than the model's
            learned positions, or `tokenize` is not installed.
    """
    _check_pairs(sources, references)
    options = {"target_language": target_language, "lowercase": lowercase, "tokenize": tokenize}
    # Before the long work: what the scores need may not be installed, and kinds may not fit.
    copies = corpus_scores(sources, references, **options)
    copies_by_kind = scores_by_kind(sources, references, kinds) if kinds is not None else {}
    decoding = {"batch_tokens": batch_tokens, "progress": progress}
    hypotheses = list(translate(model, tokenizer, sources, **decoding, **generation_kwargs))
    result: dict[str, object] = {
        **corpus_scores(hypotheses, references, **options),
        **perplexity(model, _tokenized(model, tokenizer, sources, references), **decoding),
        "copy_baseline": copies,
    }
    if kinds is not None:
        result["by_kind"] = scores_by_kind(hypotheses, references, kinds)
        for kind, scores in result["by_kind"].items():
            scores["copy_exact_match"] = copies_by_kind[kind]["exact_match"]
    result["hypotheses"] = hypotheses
    return result


def decode_ids(tokenizer: PreTrainedTokenizerBase, ids: object) -> list[str]:
    """Texts of rows of ids as a Trainer hands them out: padded with -100, with `<pad>`, or both.

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
    """The `compute_metrics` of a `Seq2SeqTrainer` with `predict_with_generate`.

    Args:
        tokenizer: The tokenizer that made the labels.
        target_language: Code of the references' language; see `bleu_score`.
        tokenize: SacreBLEU's name of a tokenizer, instead of the language's own.

    Returns:
        A function from predictions to `bleu`, `chrf` and `exact_match` in percent.

    Raises:
        ValueError: `tokenize` is not installed.
    """
    _bleu_metric(target_language, tokenize=tokenize)  # an error now rather than after an epoch

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        predicted = prediction.predictions
        scores = corpus_scores(
            decode_ids(tokenizer, predicted[0] if isinstance(predicted, tuple) else predicted),
            decode_ids(tokenizer, prediction.label_ids),
            target_language=target_language,
            tokenize=tokenize,
        )
        return {name: scores[name] for name in ("bleu", "chrf", "exact_match")}

    return compute


def _check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(
            f"Got {len(hypotheses)} translations (or sources) and {len(references)} references; "
            "give one reference each."
        )
    if len(references) == 0:
        raise ValueError("Got no sentences; there is nothing to score.")


def _require(package: str) -> None:
    """Fails with the line that installs what is missing."""
    try:
        __import__(package)
    except ImportError as error:
        raise ImportError(
            f"Evaluation needs the package {package}: pip install {package} (all that training and "
            "evaluation need: pip install 'vanilla-transformer[train]')."
        ) from error


def _bleu_metric(
    target_language: str, *, tokenize: str | None, lowercase: bool = False, force: bool = False
) -> BLEU:
    _require("sacrebleu")
    from sacrebleu.metrics import BLEU

    name = tokenize or installed_bleu_tokenizer(target_language)
    if name not in BLEU.TOKENIZERS:
        raise ValueError(
            f"Got tokenize={name!r}; sacreBLEU has {', '.join(sorted(BLEU.TOKENIZERS))}."
        )
    try:
        return BLEU(tokenize=name, lowercase=lowercase, force=force)
    except RuntimeError as error:  # MeCab and its dictionaries are extras of sacreBLEU
        raise ValueError(
            f"BLEU's tokenizer {name!r} is not installed: pip install 'sacrebleu[{name[:2]}]'."
        ) from error


@torch.inference_mode()
def _negative_log_likelihood(
    model: PreTrainedModel, sources: list[Sequence[int]], targets: list[Sequence[int]]
) -> tuple[float, int]:
    """Of one batch: the sum in nats, and the number of target tokens."""
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


def _perplexity(total: float, tokens: int) -> dict[str, float | int]:
    if tokens == 0:
        raise ValueError("Got no target tokens; there is nothing to measure.")
    mean = total / tokens
    # exp overflows beyond 709 nats; a model that bad is as broken as one that gives NaN.
    if not mean < 700:
        raise ValueError(
            f"The mean negative log-likelihood is {mean}; the model's weights or inputs are broken."
        )
    return {"perplexity": math.exp(mean), "negative_log_likelihood": mean, "target_tokens": tokens}


def _tokenized(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[str],
) -> Iterator[dict[str, list[int]]]:
    """Ids of the pairs, a window at a time."""
    for start in range(0, len(sources), WINDOW):
        inputs = tokenizer(list(sources[start : start + WINDOW]), verbose=False)["input_ids"]
        labels = target_ids(model, tokenizer, references[start : start + WINDOW])
        for row, label in zip(inputs, labels, strict=True):
            yield {"input_ids": row, "labels": label}


# ------------------------------------------------- the same numbers as metrics of `evaluate`


def __getattr__(name: str) -> type:
    """Makes the metric classes on demand: importing `evaluate` takes seconds."""
    if name in METRICS:
        return _metric_classes()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _metric_classes() -> dict[str, type]:
    """The metric classes; instances work offline, in `add_batch`, `compute` and `combine`.

    Options go to the constructor, because `evaluate.combine` hands those of `compute` to every
    metric. `Perplexity` takes what `negative_log_likelihoods` yields.
    """
    texts = {"predictions": "string", "references": "string"}
    sums = {"negative_log_likelihoods": "float64", "token_counts": "int64"}

    def share(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Share of predictions that equal their reference, in percent."""
        return {"exact_match": exact_match(predictions, references)}

    def per_token(losses: Sequence[float], counts: Sequence[int]) -> dict[str, float | int]:
        """Perplexity per target token from summed negative log-likelihoods."""
        return _perplexity(math.fsum(losses), sum(counts))

    return {
        "Bleu": _metric_class("Bleu", texts, bleu_score),
        "Chrf": _metric_class("Chrf", texts, chrf_score),
        "ExactMatch": _metric_class("ExactMatch", texts, share),
        "Perplexity": _metric_class("Perplexity", sums, per_token),
    }


def _metric_class(name: str, inputs: dict[str, str], score: Callable[..., dict]) -> type:
    """A metric that collects columns of these names and types, and gives them to the score."""
    _require("evaluate")
    import evaluate
    from datasets import Features, Value

    columns = Features({column: Value(kind) for column, kind in inputs.items()})
    signature = inspect.signature(score)
    option_names = [o.name for o in signature.parameters.values() if o.kind is o.KEYWORD_ONLY]

    class ScoreMetric(evaluate.Metric):
        def __init__(self, **options: object) -> None:
            given = [option for option in option_names if option in options]
            self.options = {option: options.pop(option) for option in given}
            signature.bind(*inputs, **self.options)  # TypeError names an option that is missing
            super().__init__(**options)

        def _info(self) -> evaluate.MetricInfo:
            return evaluate.MetricInfo(
                description=score.__doc__ or "", citation="", features=columns,
                inputs_description=f"Columns {', '.join(inputs)}; options {option_names}.",
            )  # fmt: skip

        def _compute(self, **data: Sequence) -> dict[str, float | str | int]:
            return score(*(data[column] for column in inputs), **self.options)

    ScoreMetric.__name__ = ScoreMetric.__qualname__ = name
    ScoreMetric.__doc__ = score.__doc__
    return ScoreMetric
