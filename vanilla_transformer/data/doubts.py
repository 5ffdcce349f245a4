"""Find pairs that are probably not translations: swapped, another language, placeholders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import RequestError, quoted
from ..storage.reading import counted
from .languages import identified

# Kinds of doubtful pairs in words, by their keys in reports. The first that applies counts.
KINDS = {
    "placeholders": "with a placeholder instead of a text",
    "equal": "with two equal sides",
    "swapped": "with the two sides swapped",
    "foreign": "with a side in another language",
}
_REPEATED = 5  # a placeholder is paired with at least this many different texts
_REPEATED_SHARE = 0.03  # the same, as a share of all pairs; the larger number counts
_NO_WORDS = 0.15  # a text whose language is less probable may be a placeholder
_CERTAIN = 3.0  # log odds from which a text is certainly in one of the two languages
_OTHER = 0.99  # a text is doubtful if another language has at least this probability
_LONG = 20  # characters needed to identify the language of a text for certain
_WARNED = 0.02  # share of doubtful pairs above which a warning is logged
_REFUSED = 0.5  # share of doubtful pairs above which the input is refused


def doubtful(
    sources: Sequence[str], targets: Sequence[str], languages: tuple[str, str]
) -> np.ndarray:
    """Return the kind of doubt about each pair, 0 for none.

    Args:
        sources: Source texts.
        targets: Target texts.
        languages: Their languages. With other names of the sides, only pairs of equal texts are
            found.

    Returns:
        (N,), 0 for an ordinary pair, else the number of a kind, from 1, in the order of `KINDS`.
    """
    kinds = np.zeros(len(sources), dtype=np.int8)
    source, target = identified(sources, languages), identified(targets, languages)
    if source is not None and target is not None:
        for texts, evidence, sign in ((sources, source, 1), (targets, target, -1)):
            is_long = np.array([len(text) >= _LONG for text in texts], dtype=bool)
            is_opposite = sign * evidence.odds <= -_CERTAIN
            is_foreign = is_long & (is_opposite | (evidence.elsewhere >= _OTHER))
            kinds[is_foreign & evidence.is_whole] = 4
        swapped = (source.odds < 0) & (target.odds > 0)
        kinds[swapped & (target.odds - source.odds >= 2 * _CERTAIN)] = 3
    kinds[[one == other for one, other in zip(sources, targets, strict=True)]] = 2
    if source is not None and target is not None:
        kinds[_placeholders(sources, targets, source.shares[:, 0])] = 1
        kinds[_placeholders(targets, sources, target.shares[:, 1])] = 1
    return kinds


def _placeholders(texts: Sequence[str], beside: Sequence[str], shares: np.ndarray) -> np.ndarray:
    """Return a mask of placeholders, (N,): texts without words, paired with many others."""
    least = max(_REPEATED, _REPEATED_SHARE * len(texts))
    others = defaultdict(set)
    for text, other in zip(texts, beside, strict=True):
        others[text].add(other)
    repeats = np.array([len(others[text]) >= least for text in texts], dtype=bool)
    return repeats & (shares < _NO_WORDS)


def doubts_of(
    sources: Sequence[str], targets: Sequence[str], languages: tuple[str, str], name: str
) -> dict[str, Any]:
    """Describe the doubtful pairs of a sample.

    Returns:
        `pairs`, how many were inspected; `counts` of doubtful pairs by kind; `text`, a sentence
        with an example of each kind, or ""; and `is_warning`, whether the text is a warning.
    """
    kinds = doubtful(sources, targets, languages)
    counts, parts = {}, []
    for number, (kind, words) in enumerate(KINDS.items(), start=1):
        if count := int((kinds == number).sum()):
            first = int(np.argmax(kinds == number))
            example = f"{quoted(sources[first])} -> {quoted(targets[first])}"
            parts.append(f"{count} {words}, such as {example}")
            counts[kind] = count
    text = f"Of {counted(len(kinds), 'inspected pair')} of {name}: {'; '.join(parts)}."
    is_warning = sum(counts.values()) > _WARNED * len(kinds)
    report = {"pairs": len(kinds), "counts": counts, "is_warning": is_warning}
    return {**report, "text": text if parts else ""}


def refuse_doubtful(doubts: dict[str, Any], languages: tuple[str, str]) -> None:
    """Refuse an input if most of its pairs are not translations of each other.

    Args:
        doubts: Result of `doubts_of`.
        languages: Languages of source and target.

    Raises:
        ValueError: More than half of the pairs of a sample are doubtful.
    """
    wrong = {kind: count for kind, count in doubts["counts"].items() if kind != "equal"}
    if sum(wrong.values()) <= _REFUSED * doubts["pairs"]:
        return
    remedy = "Repair the file, give its languages (--pair), or name the columns to read it as it is"
    if max(wrong, key=lambda kind: wrong[kind]) == "swapped":
        turned = "-".join(languages[::-1])
        remedy = f"Turn the two columns or files around, or give --pair {turned}"
    raise RequestError(f"{doubts['text']} {remedy}.")
