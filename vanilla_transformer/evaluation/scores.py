"""Scores of translations, or of any other output, against references, computed offline.

Every measure is a metric of sacreBLEU, or derived from its base class, and comes with a signature;
compare only scores with the same signature.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..errors import RequestError, quoted
from ..storage.extras import require
from ..storage.metrics import (
    MEASURES,
    NUM_SAMPLES,
    TRANSLATION_MEASURES,
    RunWarning,
    Sample,
    Scores,
    TestTexts,
    check_measures,
)

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

# One reference for each output, or several for each.
References: TypeAlias = Sequence[str] | Sequence[Sequence[str]]

logger = logging.getLogger(__name__)

# sacreBLEU's tokenizers by ISO 15924 script. Other scripts use 13a, the default of sacreBLEU and
# WMT, which would take a whole clause for one word in scripts without spaces. Five of these
# scripts can only be split into characters.
BLEU_TOKENIZERS = {
    "Jpan": "ja-mecab",
    "Kore": "ko-mecab",
    **dict.fromkeys(("Hans", "Hant"), "zh"),
    **dict.fromkeys(("Thai", "Laoo", "Khmr", "Mymr", "Tibt"), "char"),
}


def bleu_tokenizer(language: str) -> str:
    """Return sacreBLEU's tokenizer for a language: "de" or "de_AT" -> "13a", "Chinese" -> "zh"."""
    from ..data.languages import script_of

    return BLEU_TOKENIZERS.get(script_of(language), "13a")


@functools.cache
def installed_bleu_tokenizer(language: str) -> str:
    """Return `bleu_tokenizer(language)`; if it is not installed, warn once and return "char"."""
    from sacrebleu.metrics import BLEU

    name = bleu_tokenizer(language)
    try:
        BLEU(tokenize=name)
    except RuntimeError:  # MeCab and its dictionaries are extras of sacreBLEU
        message = "BLEU is computed on characters: tokenizer %r needs pip install 'sacrebleu[%s]'."
        logger.warning(message, name, name[:2])
        return "char"
    return name


def measure_metric(name: str, target_language: str) -> "Metric":
    """Return the sacreBLEU `Metric` that computes a measure, given its name in `MEASURES`.

    Raises:
        ValueError: There is no such metric, or a package that it needs is not installed.
    """
    check_measures([name])
    require("Evaluation", "sacrebleu")
    from sacrebleu.metrics import BLEU, CHRF

    from . import metrics

    if name == "bleu":
        return BLEU(tokenize=installed_bleu_tokenizer(target_language))

    derived = {
        "exact_match": metrics.ExactMatch,
        "wer": metrics.TokenErrorRate,
        "cer": metrics.CharacterErrorRate,
        "tokenized_bleu": metrics.TokenizedBLEU,
        "compound_bleu": metrics.CompoundBLEU,
    }
    return CHRF() if name == "chrf" else derived[name](target_language)


def reference_streams(references: References) -> list[list[Any]]:
    """Transpose references: a list of all first ones, and so on, with None for missing ones.

    Args:
        references: One text for each output, or a sequence of texts for each.
    """
    rows = ([row] if isinstance(row, str) else row for row in references)
    return [list(stream) for stream in zip_longest(*rows)]


def corpus_scores(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_language: str,
    measures: Sequence[str] = TRANSLATION_MEASURES,
) -> Scores:
    """Score a set of translations by the chosen measures.

    Warns if all translations are the same or empty, and the references are not.

    Args:
        hypotheses: Translations, detokenized.
        references: One reference for each, or several: BLEU counts n-grams of all of them, and the
            other measures take the closest.
        target_language: Language code, which selects BLEU's tokenizer; see
            `installed_bleu_tokenizer`.
        measures: Names from `MEASURES`.

    Returns:
        For each measure its score in percent and, as `NAME_signature`, how it is computed; and the
        number of sentences, `num_sentences`.

    Raises:
        ValueError: The lists are empty or differ in length, a text has no reference, or a measure
            is unknown or needs a package that is not installed.
    """
    metrics = {name: measure_metric(name, target_language) for name in measures}
    check_pairs(hypotheses, references)
    streams = reference_streams(references)
    scores: dict[str, float | int | str] = {}
    for name, metric in metrics.items():
        scores[name] = float(metric.corpus_score(list(hypotheses), streams).score)
        scores[f"{name}_signature"] = str(metric.get_signature())
    if problem := _all_alike(hypotheses, streams[0]):
        logger.warning("%s: normal early in training; else check pairs and learning rate.", problem)
    return cast("Scores", {**scores, "num_sentences": len(hypotheses)})


def _all_alike(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """Return a warning if all translations, but not all references, are the same or empty."""
    if len({*hypotheses} - {""}) > 1 or len({*references}) <= 1:
        return None
    same = f"the same or empty: {quoted(max(hypotheses))}" if any(hypotheses) else "empty"
    return f"All {len(hypotheses)} translations are {same}"


def useless_outputs(results: Mapping[str, TestTexts]) -> list[RunWarning]:
    """Return a warning for each test set whose translations are useless, such as all alike.

    All its translations are alike or empty, none scores at all, or the sources themselves would
    score better by the first metric.
    """
    found = []
    for name, result in results.items():
        first = next(filter(MEASURES.__contains__, result))
        measure, scores = MEASURES[first], cast("Mapping[str, Any]", result)
        score, copied = scores[first], scores["copy_baseline"][first]
        problem = _all_alike(result["hypotheses"], first_references(result["references"]))
        is_useless = score != measure.best(score, copied) or score == 0 < measure.best(0, 1)
        if problem is None and is_useless:
            problem = f"{measure.label} is {score:.1f}; the untranslated sources have {copied:.1f}"
        if problem is not None:
            found.append(RunWarning(kind="outputs", text=f"{problem} ({name} set)."))
    return found


def first_references(references: References) -> list[str]:
    """Return the first reference of each text."""
    return [row if isinstance(row, str) else row[0] for row in references]


def choose_samples(
    results: Mapping[str, TestTexts], count: int = NUM_SAMPLES
) -> dict[str, list[Sample]]:
    """Choose the first translations of each test set, or else of the validation set.

    Args:
        results: `sources`, `references` and `hypotheses` of each test set.
        count: Samples per test set; at least as many as a model card shows.

    Returns:
        Samples of each test set: `source`, `reference` and `translation`, each on one line.
    """
    chosen = {}
    for name in [name for name in results if name != "validation"] or list(results):
        result = results[name]
        sides = (result["sources"], first_references(result["references"]), result["hypotheses"])
        lines = ([" ".join(text.split()) for text in texts] for texts in zip(*sides, strict=True))
        chosen[name] = [
            Sample(source=source, reference=reference, translation=translation)
            for source, reference, translation in islice(lines, max(count, NUM_SAMPLES))
        ]
    return chosen


def without_texts(results: Mapping[str, TestTexts]) -> dict[str, Scores]:
    """Return the scores of test sets without their sentences."""
    texts = ("sources", "references", "hypotheses")
    return {
        name: cast("Scores", {key: value for key, value in result.items() if key not in texts})
        for name, result in results.items()
    }


def check_pairs(hypotheses: Sequence[str], references: References) -> None:
    """Raise ValueError if there are no texts to score, or a text has no reference."""
    if len(hypotheses) != len(references):
        counts = f"translations (or sources): {len(hypotheses)}, references: {len(references)}"
        raise RequestError(f"Got {counts}; give each sentence one reference or a list.")
    if len(references) == 0:
        raise RequestError("Got no sentences; there is nothing to score.")
