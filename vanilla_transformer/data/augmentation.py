"""Make further training pairs of a few: two joined, and the opposite direction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from .cache import Tables, cached
from .dataset import MADE, pair_corpora, text_blocks

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

logger = logging.getLogger(__name__)

# Numbers in the column `made`; 0 is a pair as it was given, and their sum is both.
JOINED, OPPOSITE = 1, 2
_TURNS = 4  # that each pair is joined with as many others


def augmented_pairs(
    dataset: Dataset, *, join: bool = False, opposite: str | None = None
) -> Dataset:
    """Return pairs, and others that are made of them.

    Args:
        dataset: Data set with the columns `source` and `target`, as from `load_pairs`. It is held
            in memory.
        join: Add pairs that are joined by a space with another one of their corpus, four times
            each, as half of the tokens (Nguyen et al., 2021, "Data augmentation by concatenation
            for low-resource translation").
        opposite: Language of the sources. Then pairs with their sides exchanged are added, as a
            third of the pairs, whose source begins with `<2LANGUAGE> ` (Johnson et al., 2017,
            "Google's multilingual neural machine translation system"). A source without it asks
            for the direction of the pairs, also if both sides have one language.

    Returns:
        Each pair several times, and those made of it, so that these shares come about. The column
        `made` tells them apart.
    """
    if not join and opposite is None:
        return dataset
    key = [dataset._fingerprint, join, opposite]
    made, _ = cached("augmented", key, _tables(dataset, join, opposite))
    logger.info("%d training pairs, with those made of the %d.", len(made), len(dataset))
    return made


def _tables(dataset: Dataset, join: bool, opposite: str | None) -> Tables:
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = pa.concat_tables(text_blocks(dataset, with_marks=True))
    pairs = pairs.append_column(MADE, pa.repeat(pa.scalar(0, pa.int32()), len(pairs)))
    corpora = pair_corpora(dataset)
    if corpora is None:
        corpora = np.zeros(len(pairs), int)
    random = np.random.default_rng(0)  # for every seed of a training: runs differ in one thing only

    def made(table: pa.Table, source: pa.Array, target: pa.Array, how: int) -> pa.Table:
        kind = pc.add(table[MADE], pa.scalar(how, pa.int32()))
        columns = {"source": source, "target": target, MADE: kind}
        return pa.table({name: columns.get(name, table[name]) for name in table.column_names})

    for turn in range(_TURNS if join else 2):
        forward = [pairs]
        if join:  # as many tokens as two copies of the pairs
            others = pairs.take(_others(corpora, random.permutation(len(pairs))))
            source, target = (
                pc.binary_join_element_wise(pairs[side], others[side], " ")
                for side in ("source", "target")
            )
            joined = made(pairs, source, target, JOINED)
            forward = [pairs, pairs, joined]
        yield from forward
        if opposite is not None and turn % 2:
            for table in forward:
                tagged = pc.binary_join_element_wise(f"<2{opposite}>", table["target"], " ")
                yield made(table, tagged, table["source"], OPPOSITE)
    return {}


def _others(corpora: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the pair for each to be joined with: of its corpus, and in a random order there."""
    others = np.empty_like(order)
    others[np.argsort(corpora, kind="stable")] = order[np.argsort(corpora[order], kind="stable")]
    return others
