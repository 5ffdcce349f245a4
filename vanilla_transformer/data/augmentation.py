"""Data augmentation: joined pairs, reversed direction, and noisy sources."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from .cache import Tables, cached
from .dataset import BLOCK, MADE, pair_corpora, text_blocks
from .informal_variants import informal_pair

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

logger = logging.getLogger(__name__)

# Bits of the column `made`, which says how a pair was made; 0 is an original pair.
JOINED, OPPOSITE, NOISY = 1, 2, 4
_TURNS = 4  # passes over the pairs with `join` or `noise`, each with other random choices


def augmented_pairs(
    dataset: Dataset,
    *,
    join: bool = False,
    opposite: str | None = None,
    noise: float = 0.0,
    languages: tuple[str, str] = ("", ""),
) -> Dataset:
    """Return training pairs together with pairs that are made from them.

    Args:
        dataset: Data set with the columns `source` and `target`, as from `load_pairs`. It is held
            in memory.
        join: Also join each pair, by a space, with random other pairs of its corpus, four times;
            joined pairs then hold half of the tokens (Nguyen et al., 2021, "Data augmentation by
            concatenation for low-resource translation").
        opposite: Language of the sources. If given, pairs with exchanged sides are added, a third
            of all pairs, and their source begins with `<2LANGUAGE> ` (Johnson et al., 2017,
            "Google's multilingual neural machine translation system"). A source without this tag
            asks for the original direction, even if both sides have the same language.
        noise: Share of the pairs whose source is made informal (`informal_pair`), chosen anew in
            each of four copies of the pairs. A source that begins with `<` stays as it is,
            because nobody types tags. This is done before batches are planned by length: a source
            in capitals, which has three times as many tokens, would pad its whole batch to them.
        languages: Codes of source and target, which decide how `noise` changes the case.

    Returns:
        Each pair several times, and the pairs made from it, in numbers that give these shares. The
        column `made` says how each pair was made.
    """
    if not join and opposite is None and not noise:
        return dataset
    key = [dataset._fingerprint, join, opposite, noise, languages]
    made, _ = cached("augmented", key, _tables(dataset, join, opposite, noise, languages))
    logger.info("Augmented the training pairs from %d to %d.", len(dataset), len(made))
    return made


def _tables(
    dataset: Dataset, join: bool, opposite: str | None, noise: float, languages: tuple[str, str]
) -> Tables:
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = pa.concat_tables(text_blocks(dataset, with_marks=True))
    pairs = pairs.append_column(MADE, pa.repeat(pa.scalar(0, pa.int32()), len(pairs)))
    corpora = pair_corpora(dataset)
    if corpora is None:
        corpora = np.zeros(len(pairs), int)
    # Fixed seeds, so that runs with different training seeds use the same pairs.
    random, typed = np.random.default_rng(0), Random(0)

    def made(table: pa.Table, source: pa.Array, target: pa.Array, how: int) -> pa.Table:
        kind = pc.add(table[MADE], pa.scalar(how, pa.int32()))
        columns = {"source": source, "target": target, MADE: kind}
        return pa.table({name: columns.get(name, table[name]) for name in table.column_names})

    for turn in range(_TURNS if join or noise else 2):
        forward = [pairs]
        if join:  # all pairs twice, so that half of the tokens are in joined pairs
            others = pairs.take(_others(corpora, random.permutation(len(pairs))))
            source, target = (
                pc.binary_join_element_wise(pairs[side], others[side], " ")
                for side in ("source", "target")
            )
            joined = made(pairs, source, target, JOINED)
            forward = [pairs, pairs, joined]
        for table in forward:
            yield from _with_noise(table, noise, languages, typed)
        if opposite is not None and turn % 2:
            for table in forward:
                turned = made(table, table["target"], table["source"], OPPOSITE)
                for block in _with_noise(turned, noise, languages[::-1], typed):
                    tagged = pc.binary_join_element_wise(f"<2{opposite}>", block["source"], " ")
                    yield made(block, tagged, block["target"], 0)
    return {}


def _with_noise(
    pairs: pa.Table, share: float, languages: tuple[str, str], random: Random
) -> Iterator[pa.Table]:
    """Yield the pairs in blocks; a share of them has an informal source and the mark `NOISY`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not share:
        yield pairs
        return
    untagged = np.flatnonzero(pc.invert(pc.starts_with(pairs["source"], "<"))).tolist()
    chosen = {*random.sample(untagged, min(len(untagged), round(share * len(pairs))))}
    for start in range(0, len(pairs), BLOCK):
        block = pairs.slice(start, BLOCK).to_pydict()
        for row, pair in enumerate(zip(block["source"], block["target"], strict=True)):
            if start + row in chosen:
                block["source"][row], block["target"][row] = informal_pair(*pair, languages, random)
                block[MADE][row] += NOISY
        yield pa.table(block, pairs.schema)


def _others(corpora: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return, for each pair, the index of a random pair of the same corpus to join to it."""
    others = np.empty_like(order)
    others[np.argsort(corpora, kind="stable")] = order[np.argsort(corpora[order], kind="stable")]
    return others
