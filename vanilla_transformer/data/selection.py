"""Choose pairs: clean the training pairs, and hold out pairs for validation and test.

Texts are compared in NFC and with single spaces, by 64-bit hashes, so that millions of
pairs need only arrays of numbers. In one of 20,000 data sets of forty million texts, two different
texts have the same hash; their pairs then count as sharing a text.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np

from ..errors import RequestError
from ..machine.progress import progress
from ..ranges import COUNT
from ..storage.reading import counted
from .cache import Tables, cached
from .dataset import reading_report, text_blocks
from .doubts import KINDS, doubtful

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_FAULTS = ("duplicates", "copies", "odd_ratios")
_DOUBTS = [kind for kind in KINDS if kind != "equal"]  # equal pairs are counted as copies
_MOST_HELD_OUT = 1000  # pairs; enough to measure BLEU to about one point
_MOST_BYTES = 4000  # of a held-out text, which then has no more tokens than `translate` accepts


def hold_out(dataset: Dataset, count: int | None = None) -> tuple[Dataset, Dataset, Dataset]:
    """Split pairs into training, validation and test pairs that have no text in common.

    A pair is held out only if both of its texts occur nowhere else on either side, so that no other
    pair has to be dropped from training, and if neither has more than 4,000 bytes in UTF-8. The
    choice depends on the texts alone, not on the order of the pairs or the seed of the training.

    Args:
        dataset: Data set with the columns `source` and `target`, as from `load_pairs`.
        count: Number of validation pairs, and of test pairs. None for a twentieth of all pairs, at
            most 1,000, or fewer if too few pairs can be held out.

    Returns:
        Training, validation and test pairs; the last two are not in their original order.

    Raises:
        ValueError: `count` is not a whole number from 1, or too few pairs can be held out.
    """
    if count is not None:
        COUNT.check(count=count)
    wanted = min(len(dataset) // 20, _MOST_HELD_OUT) if count is None else count
    key = [dataset._fingerprint, wanted, _MOST_BYTES]
    split, report = cached("split", key, _split_tables(dataset, wanted))
    held_out = report["held_out"]
    if count is not None and held_out < count:
        few = f"only {held_out} of {len(dataset)} with unique texts of at most {_MOST_BYTES} bytes"
        raise RequestError(f"got {counted(count, 'pair')} to hold out, but there are {few}.")
    if held_out:
        logger.info("Held out for validation: %s, and as many for test.", counted(held_out, "pair"))
    bounds = [0, held_out, 2 * held_out, len(split)]
    validation, test, train = (split.select(range(*part)) for part in pairwise(bounds))
    return train, validation, test


def pair_report(dataset: Dataset) -> dict[str, int]:
    """Count the pairs, and those that are duplicate, untranslated or of very unequal lengths.

    Args:
        dataset: Data set of `load_pairs`, or of `clean_pairs` for the counts before cleaning.

    Returns:
        `read`: pairs; `malformed`: lines that are not pairs, of which `empty` have an empty side;
        and faulty pairs, each counted once, under the first of these that applies:
        `duplicates`: an earlier pair has the same two texts;
        `copies`: the target is the source;
        `odd_ratios`: one side is more than 3 times as long as the other and over 30 bytes longer,
        in UTF-8, after source lengths are scaled to the total length of the targets.
    """
    report = reading_report(dataset)
    return report["pairs"] if "pairs" in report else _faults(dataset)[1]


def clean_pairs(
    dataset: Dataset,
    languages: tuple[str, str] = ("source", "target"),
    *,
    show_progress: bool = False,
) -> Dataset:
    """Leave out the faulty pairs that `pair_report` counts, and the pairs that are `doubtful`.

    Args:
        dataset: Data set of `load_pairs`.
        languages: Languages of source and target. Their identification takes some 0.2 ms a pair.
        show_progress: Draw a progress bar.

    Raises:
        ValueError: No pair is left.
    """

    def tables() -> Tables:
        import pyarrow as pa

        rest, report = _faults(dataset)
        counts, kept = np.zeros(len(KINDS) + 1, dtype=np.int64), 0
        work: dict[str, Any] = {"what": "Cleaning", "unit": "pairs", "total": len(dataset)}
        with progress(**work, shown=show_progress) as bar:
            for table in text_blocks(dataset, with_marks=True):
                sources, targets = (table[side].to_pylist() for side in ("source", "target"))
                kinds = doubtful(sources, targets, languages)
                is_good = (kinds == 0) & (rest[: len(table)] == 0)
                yield table.filter(pa.array(is_good)).combine_chunks()
                rest, kept = rest[len(table) :], kept + int(is_good.sum())
                counts += np.bincount(kinds, minlength=len(counts))
                bar.update(len(table))
        found = dict(zip(KINDS, counts[1:].tolist(), strict=True))
        report.update({kind: found[kind] for kind in _DOUBTS})
        if not kept:
            raise RequestError(f"no pair is left to train on: {describe_report(report)}.")
        return {"pairs": report}

    return cached("clean", [dataset._fingerprint, *languages], tables())[0]


def shared_pairs(dataset: Dataset, other: Dataset) -> int:
    """Count the pairs of one data set that also occur, with the same two texts, in another one.

    Args:
        dataset: Data set whose pairs are counted, as from `load_pairs`.
        other: Data set to look in, such as the training pairs.
    """
    pairs, others = (_pair_hashes(_hashes_and_lengths(pairs)[0]) for pairs in (dataset, other))
    return int(np.isin(pairs, others, kind="sort").sum())


def _pair_hashes(hashes: np.ndarray) -> np.ndarray:
    """Return one hash per pair, (N,), from the hashes of its sides, (2, N)."""
    return hashes[0] * np.uint64(0x9E3779B97F4A7C15) + hashes[1]


def describe_report(report: dict[str, int]) -> str:
    """Describe the counts of `pair_report` in words."""
    doubts = "".join(f", {report[kind]} {KINDS[kind]}" for kind in _DOUBTS if report.get(kind))
    return (
        f"{counted(report['read'], 'pair')} read, {counted(report['malformed'], 'malformed line')} "
        f"({report['empty']} with an empty side), {counted(report['duplicates'], 'duplicate')}, "
        f"{report['copies']} with two equal sides, {report['odd_ratios']} with odd lengths"
        f"{doubts}"
    )


def _faults(dataset: Dataset) -> tuple[np.ndarray, dict[str, int]]:
    """Return each pair's fault, 0: none, n: `_FAULTS[n - 1]`; and the counts of `pair_report`."""
    hashes, lengths = _hashes_and_lengths(dataset)
    stretched = lengths[0] * (lengths[1].sum() / lengths[0].sum())
    longer, shorter = np.maximum(stretched, lengths[1]), np.minimum(stretched, lengths[1])
    repeated = np.ones(len(dataset), bool)
    _, first = np.unique(_pair_hashes(hashes), return_index=True)
    repeated[first] = False
    odd = (longer > 3 * shorter) & (longer > shorter + 30)
    faults = np.select([repeated, hashes[0] == hashes[1], odd], [1, 2, 3]).astype(np.int8)
    counts = np.bincount(faults, minlength=len(_FAULTS) + 1)[1:].tolist()
    lines = {name: reading_report(dataset).get(name, 0) for name in ("malformed", "empty")}
    return faults, {"read": len(dataset), **lines, **dict(zip(_FAULTS, counts, strict=True))}


def _split_tables(dataset: Dataset, wanted: int) -> Tables:
    """Yield validation, test and training pairs, one after the other."""
    import pyarrow as pa

    hashes, lengths = _hashes_and_lengths(dataset)
    ordered = np.sort(hashes, axis=None)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    # The default, kind="table", may overflow with these numbers in NumPy 2.0.
    occurs_elsewhere = np.isin(hashes, repeated, kind="sort").any(axis=0)
    rows = np.flatnonzero(~(occurs_elsewhere | (lengths.max(axis=0) > _MOST_BYTES)))
    rows = rows[np.argsort(hashes[0][rows])]
    count = min(wanted, min(len(rows), len(dataset) - 1) // 2)  # leave at least one training pair
    # Test pairs are the first rows, so that a smaller test set is part of a larger one.
    held_out = np.concatenate([rows[count : 2 * count], rows[:count]])
    trained = np.ones(len(dataset), bool)
    trained[held_out] = False
    yield from text_blocks(dataset.select(held_out), with_marks=True)
    for table in text_blocks(dataset, with_marks=True):
        yield table.filter(pa.array(trained[: len(table)])).combine_chunks()
        trained = trained[len(table) :]
    return {"held_out": count}


def compared(text: str) -> str:
    """Normalize a text for comparison with others: NFC and single spaces."""
    return " ".join(normalize("NFC", text).split())


def _hashes_and_lengths(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes, uint64, and UTF-8 lengths of all sources and targets, (2, N) each."""
    import pyarrow.compute as pc
    from pandas.util import hash_array

    hashes, lengths = [], []
    for table in text_blocks(dataset):
        composed = [pc.utf8_normalize(column, "NFC") for column in table.columns]
        spaced = [pc.replace_substring_regex(column, r"[\s\p{Z}]+", " ") for column in composed]
        folded = map(pc.utf8_trim_whitespace, spaced)
        objects = [text.to_numpy().astype(object) for text in folded]
        hashes.append([hash_array(texts, categorize=False) for texts in objects])
        lengths.append([pc.binary_length(column).to_numpy() for column in table.columns])
    return np.concatenate(hashes, axis=1), np.concatenate(lengths, axis=1)
