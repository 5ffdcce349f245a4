"""Comparison of systems by sacreBLEU's paired bootstrap, with a verdict in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..errors import RequestError
from .scores import bleu_metric, check_pairs, chrf_metric

if TYPE_CHECKING:
    from sacrebleu.significance import Result

ALPHA = 0.05  # a smaller p-value counts as a difference
# Resampling fewer sentences says little about sentences outside the test set.
FEWEST_SENTENCES = 100


class SystemScores(TypedDict):
    """Scores of a system in percent, and p-values of its differences from the first system."""

    bleu: float
    bleu_p_value: float | None  # probability of so large a difference by chance
    chrf: float
    chrf_p_value: float | None


def paired_bootstrap(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    target_language: str,
    num_samples: int = 1000,
) -> tuple[list[SystemScores], dict[str, str]]:
    """Test by paired bootstrap whether systems differ from the first one (Koehn, 2004).

    The test is sacreBLEU's, with its seed: 12345, or the environment variable `SACREBLEU_SEED`.

    Args:
        systems: The translations of each system.
        references: One reference for each sentence.
        target_language: Code of the language; see `bleu_score`.
        num_samples: Number of bootstrap samples.

    Returns:
        The scores of each system, and a dict with `bleu_signature` and `chrf_signature`. P-values
        are None for the first system, and for a score that equals the first system's.

    Raises:
        ValueError: There are fewer than two systems, or lists are empty or differ in length.
    """
    if len(systems) < 2:
        raise RequestError(f"Got {len(systems)} system(s); a comparison needs two or more.")
    for hypotheses in systems:
        check_pairs(hypotheses, references)
    metrics = {"bleu": bleu_metric(target_language), "chrf": chrf_metric()}
    from sacrebleu.significance import PairedTest, Result

    test = PairedTest(
        [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)],
        metrics,
        [list(references)],
        test_type="bs",
        n_samples=num_samples,
    )
    signatures, found = test()
    # By position, after the systems' column: sacreBLEU has its own names for the metrics.
    _, bleu, chrf = (
        [cell for cell in column if isinstance(cell, Result)] for column in found.values()
    )
    rows: list[SystemScores] = [
        {
            "bleu": float(in_bleu.score),
            "bleu_p_value": _p_value(in_bleu, bleu[0]),
            "chrf": float(in_chrf.score),
            "chrf_p_value": _p_value(in_chrf, chrf[0]),
        }
        for in_bleu, in_chrf in zip(bleu, chrf, strict=True)
    ]
    texts = zip(metrics, signatures.values(), strict=True)
    return rows, {f"{metric}_signature": str(signature) for metric, signature in texts}


def _p_value(result: Result, first: Result) -> float | None:
    """Return sacreBLEU's p-value; None for equal scores, where sacreBLEU reports its smallest."""
    if result.p_value is None or result.score == first.score:
        return None
    return float(result.p_value)


def most_different(
    systems: Sequence[Sequence[str]], references: Sequence[str], *, count: int = 20
) -> list[tuple[int, list[float]]]:
    """Find the sentences on which the quality of the systems' translations differs most.

    Args:
        systems: The translations of each system.
        references: One reference for each sentence.
        count: Maximum number of sentences to return.

    Returns:
        Index, and sentence-level chrF of each system's translation, widest spread first. Sentences
        on which all systems score the same are left out.
    """
    for hypotheses in systems:
        check_pairs(hypotheses, references)
    metric = chrf_metric()
    found = []
    for index, translations in enumerate(zip(*systems, strict=True)):
        if len(set(translations)) > 1:
            scores = [
                metric.sentence_score(text, [references[index]]).score for text in translations
            ]
            found.append((index, scores))
    found = [(index, scores) for index, scores in found if max(scores) > min(scores)]
    return sorted(found, key=lambda item: min(item[1]) - max(item[1]))[:count]


def verdict(
    names: tuple[str, str], rows: tuple[SystemScores, SystemScores], num_sentences: int
) -> str:
    """Say in one sentence whether a system is better than another.

    Args:
        names: Names of the first system and of the system tested against it.
        rows: Scores of both, from `paired_bootstrap`.
        num_sentences: Size of the test set.
    """
    (first, other), (base, row) = names, rows
    differences = {
        "BLEU": (row["bleu"] - base["bleu"], row["bleu_p_value"]),
        "chrF": (row["chrf"] - base["chrf"], row["chrf_p_value"]),
    }
    numbers = ", ".join(
        f"{difference:+.1f} {label}"
        if p_value is None
        else f"{difference:+.1f} {label} (p = {p_value:.3f})"
        for label, (difference, p_value) in differences.items()
    )
    if num_sentences < FEWEST_SENTENCES:
        return (
            f"{num_sentences} sentence(s) are too few to tell {other} from {first}: {numbers}; "
            f"take {FEWEST_SENTENCES} or more."
        )
    better = {
        label: difference > 0
        for label, (difference, p_value) in differences.items()
        if p_value is not None and p_value < ALPHA
    }
    if not better:
        return (
            f"There is no difference between {other} and {first} that {num_sentences} sentences "
            f"can show: {numbers}."
        )
    if len(set(better.values())) == 2:
        return f"BLEU and chrF contradict each other on {other} and {first}: {numbers}."
    (label, is_better), *agreeing = better.items()
    found = f"{other} is {'better' if is_better else 'worse'} than {first}"
    if agreeing:
        return f"{found}: {numbers}."
    return f"{found} by {label} alone: {numbers}; take more sentences."
