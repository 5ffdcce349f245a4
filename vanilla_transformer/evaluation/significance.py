"""Comparison of systems by sacreBLEU's paired bootstrap test."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from ..storage.metrics import MEASURES, TRANSLATION_MEASURES
from .scores import References, measure_metric, reference_streams

if TYPE_CHECKING:
    from sacrebleu.significance import Result

ALPHA = 0.05  # a smaller p-value counts as a difference
# Resampling fewer sentences says little about sentences outside the test set.
FEWEST_SENTENCES = 100


class SystemScore(NamedTuple):
    """A system's score by one measure, in percent."""

    score: float
    p_value: float | None  # probability that chance alone makes so large a difference


def paired_bootstrap(
    systems: Sequence[Sequence[str]],
    references: References,
    *,
    target_language: str,
    measures: Sequence[str] = TRANSLATION_MEASURES,
    num_samples: int = 1000,
) -> tuple[list[dict[str, SystemScore]], dict[str, str]]:
    """Test by paired bootstrap whether systems differ from the first one (Koehn, 2004).

    The test is sacreBLEU's, with its seed: 12345, or the environment variable `SACREBLEU_SEED`.

    Args:
        systems: The translations of each system.
        references: One reference for each sentence, or several for each.
        target_language: Code of the language; see `corpus_scores`.
        measures: Names from `MEASURES`.
        num_samples: Number of bootstrap samples.

    Returns:
        The scores of each system by measure, and the signature of each measure. P-values are None
        for the first system, and for a score that equals the first system's, where sacreBLEU would
        report its smallest p-value.
    """
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]]
    named = [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)]
    streams = reference_streams(references)
    rows: list[dict[str, SystemScore]] = [{} for _ in systems]
    signatures = {}
    for name in measures:  # one at a time: sacreBLEU names all kinds of BLEU alike
        metric = {name: measure_metric(name, target_language)}
        test = PairedTest(named, metric, streams, test_type="bs", n_samples=num_samples)
        signed, found = test()
        signatures[name] = str(*signed.values())
        _, column = found.values()  # the first has the systems' names
        results = cast("list[Result]", column)
        for row, result in zip(rows, results, strict=True):
            equal = result.score == results[0].score
            row[name] = SystemScore(float(result.score), None if equal else result.p_value)
    return rows, signatures


def most_different(
    systems: Sequence[Sequence[str]], references: References, *, count: int = 20
) -> list[tuple[int, list[float]]]:
    """Find the sentences on which the quality of the systems' translations differs most.

    Args:
        systems: The translations of each system.
        references: One reference for each sentence, or several for each.
        count: Maximum number of sentences to return.

    Returns:
        Index, and sentence-level chrF of each system's translation, widest spread first. Sentences
        on which all systems score the same are left out.
    """
    metric, streams = measure_metric("chrf", ""), reference_streams(references)
    found = []
    for index, translations in enumerate(zip(*systems, strict=True)):
        texts = [stream[index] for stream in streams]
        scores = [metric.sentence_score(text, texts).score for text in translations]
        if max(scores) > min(scores):
            found.append((index, scores))
    return sorted(found, key=lambda item: min(item[1]) - max(item[1]))[:count]


def verdict(base: dict[str, SystemScore], row: dict[str, SystemScore], num_sentences: int) -> str:
    """Describe for each measure whether a system is significantly better than another.

    Args:
        base: Scores of the first system, from `paired_bootstrap`.
        row: Scores of the system tested against it.
        num_sentences: Size of the test set.
    """
    found = []
    for name, (score, p_value) in row.items():
        difference = score - base[name].score
        words = "no significant difference"
        if p_value is not None and p_value < ALPHA:
            is_better = (difference > 0) != MEASURES[name].lower_is_better
            words = "better" if is_better else "worse"
        chance = "" if p_value is None else f" (p = {p_value:.3f})"
        found.append(f"{difference:+.1f} {MEASURES[name].label}{chance}, {words}")
    few = f" Too few sentences: take {FEWEST_SENTENCES} or more."
    return f"{'; '.join(found)}.{few if num_sentences < FEWEST_SENTENCES else ''}"
