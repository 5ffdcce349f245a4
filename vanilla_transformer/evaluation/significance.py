"""Comparison of systems by sacreBLEU's paired bootstrap, with a verdict in one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..storage.metrics import MEASURES, TRANSLATION_MEASURES
from .scores import References, check_pairs, measure_metric, reference_streams

if TYPE_CHECKING:
    from sacrebleu.significance import Result

ALPHA = 0.05  # a smaller p-value counts as a difference
# Resampling fewer sentences says little about sentences outside the test set.
FEWEST_SENTENCES = 100


class SystemScore(NamedTuple):
    """A system's score by one measure, in percent."""

    score: float
    p_value: float | None  # probability of so large a difference from the first system by chance


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
        for the first system, and for a score that equals the first system's.

    Raises:
        ValueError: Lists are empty or differ in length.
    """
    for hypotheses in systems:
        check_pairs(hypotheses, references)
    from sacrebleu.significance import PairedTest, Result

    rows: list[dict[str, SystemScore]] = [{} for _ in systems]
    signatures = {}
    for name in measures:  # one at a time: sacreBLEU has one name for all kinds of BLEU
        test = PairedTest(
            [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)],
            {name: measure_metric(name, target_language)},
            reference_streams(references),
            test_type="bs",
            n_samples=num_samples,
        )
        signed, found = test()
        signatures[name] = str(*signed.values())
        _, column = found.values()  # the first has the systems' names
        results = [cell for cell in column if isinstance(cell, Result)]
        for row, result in zip(rows, results, strict=True):
            row[name] = SystemScore(float(result.score), _p_value(result, results[0]))
    return rows, signatures


def _p_value(result: "Result", first: "Result") -> float | None:
    """Return sacreBLEU's p-value; None for equal scores, where sacreBLEU reports its smallest."""
    if result.p_value is None or result.score == first.score:
        return None
    return float(result.p_value)


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
        if len(set(translations)) > 1:
            texts = [stream[index] for stream in streams]
            scores = [metric.sentence_score(text, texts).score for text in translations]
            found.append((index, scores))
    found = [(index, scores) for index, scores in found if max(scores) > min(scores)]
    return sorted(found, key=lambda item: min(item[1]) - max(item[1]))[:count]


def verdict(
    names: tuple[str, str],
    rows: tuple[dict[str, SystemScore], dict[str, SystemScore]],
    num_sentences: int,
) -> str:
    """Say in one sentence whether a system is better than another.

    Args:
        names: Names of the first system and of the system tested against it.
        rows: Scores of both, from `paired_bootstrap`.
        num_sentences: Size of the test set.
    """
    (first, other), (base, row) = names, rows
    numbers, better = [], {}
    for name, (score, p_value) in row.items():
        label, difference = MEASURES[name].label, score - base[name].score
        chance = "" if p_value is None else f" (p = {p_value:.3f})"
        numbers.append(f"{difference:+.1f} {label}{chance}")
        if p_value is not None and p_value < ALPHA:
            better[label] = (difference > 0) != MEASURES[name].lower_is_better
    differences = ", ".join(numbers)
    if num_sentences < FEWEST_SENTENCES:
        return (
            f"{num_sentences} sentence(s) are too few to tell {other} from {first}: {differences}; "
            f"take {FEWEST_SENTENCES} or more."
        )
    if not better:
        return (
            f"There is no difference between {other} and {first} that {num_sentences} sentences "
            f"can show: {differences}."
        )
    if len({*better.values()}) == 2:
        labels = " and ".join(better)
        return f"{labels} contradict each other on {other} and {first}: {differences}."
    found = f"{other} is {'better' if all(better.values()) else 'worse'} than {first}"
    if len(better) == len(row):
        return f"{found}: {differences}."
    return f"{found} by {' and '.join(better)} alone: {differences}; take more sentences."
