"""Choose pairs: clean the training pairs, and hold out pairs for validation and test.

Texts are compared without white space at their ends, by 64-bit hashes, so that millions of pairs
need only arrays of numbers. In one of 20,000 data sets of forty million texts, two different texts
have the same hash; their pairs then count as sharing a text.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RequestError
from ..ranges import COUNT
from .cache import ArrowFile, cached
from .dataset import BLOCK, reading_report, text_blocks

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

logger = logging.getLogger(__name__)

_FAULTS = ("duplicates", "copies", "odd_ratios")
_MOST_HELD_OUT = 1000  # enough to know BLEU to about one point
_LONGEST_HELD_OUT = 4000  # bytes, so that no text has more tokens than are translated at once


def hold_out(
    dataset: Dataset, count: int | None = None, *, cache_dir: str | os.PathLike | None = None
) -> tuple[Dataset, Dataset, Dataset]:
    """Split pairs into training, validation and test pairs that have no text in common.

    A pair is held out only if both of its texts occur nowhere else on either side, so that no other
    pair has to be dropped from training, and if neither has more than 4,000 bytes in UTF-8. The
    choice depends on the texts alone, not on the order of the pairs or the seed of the training.

    Args:
        dataset: data set with the columns `source` and `target`, as from `load_pairs`.
        count: number of validation pairs, and of test pairs. None for a twentieth of all pairs, at
            most 1,000, or fewer if too few pairs can be held out.
        cache_dir: folder of the caches. None is the cache folder of `datasets`.

    Returns:
        Training, validation and test pairs; the last two are not in their original order.

    Raises:
        ValueError: `count` is no whole number from 1, or too few pairs can be held out.
    """
    if count is not None:
        COUNT.check(count=count)
    wanted = min(len(dataset) // 20, _MOST_HELD_OUT) if count is None else count
    split, report = cached(
        "split",
        [dataset._fingerprint, wanted, _LONGEST_HELD_OUT],
        lambda path: _write_split(path, dataset, wanted),
        cache_dir=cache_dir,
    )
    held_out = report["held_out"]
    if count is not None and held_out < count:
        raise RequestError(
            f"got {count} pairs to hold out for validation and as many for test, but only "
            f"{held_out} of {len(dataset)} pairs can be used for each: both texts of a pair must "
            f"occur once and have at most {_LONGEST_HELD_OUT} bytes, and a pair must be left to "
            "train on. Hold out fewer, remove duplicates, or give files of validation and test "
            "pairs."
        )
    if held_out:
        logger.info("Held out %d pairs for validation and as many for test.", held_out)
    bounds = [0, held_out, 2 * held_out, len(split)]
    validation, test, train = (split.select(range(*part)) for part in pairwise(bounds))
    return train, validation, test


def pair_report(dataset: Dataset, *, cache_dir: str | os.PathLike | None = None) -> dict[str, int]:
    """Count the pairs and the faulty pairs of a data set.

    Args:
        dataset: data set of `load_pairs`, or of `clean_pairs` for the counts before cleaning.
        cache_dir: folder of the caches. None is the cache folder of `datasets`.

    Returns:
        `read`: pairs; `malformed`: lines that are not pairs, of which `empty` have an empty side;
        and faulty pairs, each counted once, under the first of these that applies:
        `duplicates`: an earlier pair has the same two texts;
        `copies`: the target is the source;
        `odd_ratios`: one side is more than 3 times as long as the other and over 30 bytes longer,
        in UTF-8, after source lengths are scaled to the total length of the targets.
    """
    report = reading_report(dataset)
    if "pairs" in report:
        return report["pairs"]
    _, faults = _faults(dataset, cache_dir)
    counts = {name: faults[name] for name in _FAULTS}
    return {
        "read": len(dataset),
        "malformed": report["malformed"],
        "empty": report["empty"],
        **counts,
    }


def clean_pairs(dataset: Dataset, *, cache_dir: str | os.PathLike | None = None) -> Dataset:
    """Leave out the duplicates, copies and odd ratios that `pair_report` counts.

    Args:
        dataset: data set of `load_pairs`.
        cache_dir: folder of the caches. None is the cache folder of `datasets`.

    Raises:
        ValueError: no pair is left.
    """
    faults, _ = _faults(dataset, cache_dir)
    report = pair_report(dataset, cache_dir=cache_dir)

    def write(path: Path) -> dict[str, Any]:
        kept = faults.with_format("numpy")["fault"][:] == 0
        if not kept.any():
            raise RequestError(f"no pair is left to train on: {describe_report(report)}.")
        with ArrowFile(path, _schema()) as file:
            _write_rows(file, dataset, kept)
        return {"rows": int(kept.sum()), "pairs": report}

    return cached("clean", [dataset._fingerprint], write, cache_dir=cache_dir)[0]


def shared_pairs(
    dataset: Dataset, other: Dataset, *, cache_dir: str | os.PathLike | None = None
) -> int:
    """Count the pairs of one data set that are also in another one, with both texts the same.

    Args:
        dataset: data set whose pairs are counted, as from `load_pairs`.
        other: data set to look in, such as the training pairs.
        cache_dir: folder of the caches. None is the cache folder of `datasets`.
    """

    def write(path: Path) -> dict[str, Any]:
        import pyarrow as pa

        pairs, others = _pair_hashes(*_hashes(dataset)), _pair_hashes(*_hashes(other))
        found = np.isin(pairs, others, kind="sort")
        with ArrowFile(path, pa.schema([("shared", pa.bool_())])) as file:
            file.write([pa.array(found, pa.bool_())])
        return {"rows": len(dataset), "shared": int(found.sum())}

    key = [dataset._fingerprint, other._fingerprint]
    return cached("shared", key, write, cache_dir=cache_dir)[1]["shared"]


def _pair_hashes(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return sources * np.uint64(0x9E3779B97F4A7C15) + targets


def describe_report(report: dict[str, int]) -> str:
    """Return a report of `pair_report` in words."""
    return (
        f"{report['read']} pairs read, {report['malformed']} malformed lines "
        f"({report['empty']} with an empty side), {report['duplicates']} duplicates, "
        f"{report['copies']} copies of the source, {report['odd_ratios']} odd ratios of length"
    )


def _faults(
    dataset: Dataset, cache_dir: str | os.PathLike | None
) -> tuple[Dataset, dict[str, Any]]:
    """Return a column `fault`, 0 or the fault's number from 1 per pair, and the counts."""
    return cached(
        "faults",
        [dataset._fingerprint],
        lambda path: _write_faults(path, dataset),
        cache_dir=cache_dir,
    )


def _write_faults(path: Path, dataset: Dataset) -> dict[str, Any]:
    import pyarrow as pa

    sources, targets = _hashes(dataset)
    lengths = _lengths(dataset)
    stretched = lengths[0] * (lengths[1].sum() / lengths[0].sum())
    longer, shorter = np.maximum(stretched, lengths[1]), np.minimum(stretched, lengths[1])
    repeated = np.ones(len(dataset), bool)
    _, first = np.unique(_pair_hashes(sources, targets), return_index=True)
    repeated[first] = False
    faults = np.select(
        [repeated, sources == targets, (longer > 3 * shorter) & (longer > shorter + 30)], [1, 2, 3]
    )
    with ArrowFile(path, pa.schema([("fault", pa.int8())])) as file:
        file.write([pa.array(faults, pa.int8())])
    counts = np.bincount(faults, minlength=len(_FAULTS) + 1)[1:].tolist()
    return {"rows": len(dataset), **dict(zip(_FAULTS, counts, strict=True))}


def _write_split(path: Path, dataset: Dataset, wanted: int) -> dict[str, Any]:
    """Write validation, test and training pairs to one file, one after the other."""
    sources, targets = _hashes(dataset)
    ordered = np.sort(np.concatenate([sources, targets]))
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    # The other kind, a table, overflows with these numbers in NumPy 2.0.
    there = [np.isin(hashes, repeated, kind="sort") for hashes in (sources, targets)]
    too_long = np.maximum(*_lengths(dataset)) > _LONGEST_HELD_OUT
    rows = np.flatnonzero(~(there[0] | there[1] | too_long))
    rows = rows[np.argsort(sources[rows])]
    count = min(wanted, min(len(rows), len(dataset) - 1) // 2)  # at least one is trained on
    # Test pairs are the first rows, so that a smaller test set is part of a larger one.
    held_out = np.concatenate([rows[count : 2 * count], rows[:count]])
    trained = np.ones(len(dataset), bool)
    trained[held_out] = False
    with ArrowFile(path, _schema()) as file:
        if count:
            table = dataset.select_columns(["source", "target"]).with_format("arrow")
            file.write(_columns(table[held_out.tolist()]))
        _write_rows(file, dataset, trained)
    return {"rows": len(dataset), "held_out": count}


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    return pa.schema([("source", pa.string()), ("target", pa.string())])


def _write_rows(file: ArrowFile, dataset: Dataset, chosen: np.ndarray) -> None:
    """Write the pairs where `chosen` (N,) is true, in their order."""
    import pyarrow as pa

    for start, table in zip(range(0, len(dataset), BLOCK), text_blocks(dataset), strict=True):
        file.write(_columns(table.filter(pa.array(chosen[start : start + BLOCK]))))


def _columns(table: pyarrow.Table) -> list[pyarrow.Array]:
    return [column.cast("string").combine_chunks() for column in table.columns]


def _lengths(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes in UTF-8 of all sources and of all targets, (N,) each."""
    import pyarrow.compute as pc

    return _of_texts(dataset, lambda column: pc.binary_length(column).to_numpy())


def _hashes(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return hashes of all sources and of all targets, uint64 (N,) each."""
    import pyarrow.compute as pc
    from pandas.util import hash_array

    def hashes(column: pyarrow.ChunkedArray) -> np.ndarray:
        texts = pc.utf8_trim_whitespace(column).to_numpy().astype(object)
        return hash_array(texts, categorize=False)

    return _of_texts(dataset, hashes)


def _of_texts(
    dataset: Dataset, measure: Callable[[pyarrow.ChunkedArray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a function finds for all sources and for all targets, (N,) each."""
    sources, targets = zip(
        *([measure(column) for column in table.columns] for table in text_blocks(dataset)),
        strict=True,
    )
    return np.concatenate(sources), np.concatenate(targets)
