"""Words in ever new pieces: subword regularisation after BPE-dropout (Provilkov et al., 2020).

A model that reads a word now whole and now in parts learns what the parts mean. The paper has no
such thing, and it is off unless asked for; it is for those who have few pairs.

The original skips merges at random while it encodes. Here a text is encoded once, and in every
batch each merge that made one of its pieces is undone with some probability, the last one first.
Token ids are enough for that: the cache of tokenised pairs remains, and nothing but the seed, the
epoch and the batch decides the draw, so that a resumed run sees what it would have seen.
"""

import json
import zlib
from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import RequestError
from .batches import TokenBatchSampler
from .dataset import Features


class BpeDropout:
    """Takes the pieces of tokenised pairs apart at random.

    Args:
        tokenizer: byte-pair encoding with a `tokenizer.json`, as `train_tokenizer` makes it.
        probability: of undoing a merge; 0 leaves all pieces (tokens of the vocabulary) whole, 1
            leaves what no merge made, with our tokenizer single bytes.
        seed: of the draws.
        max_length: of a row; one that would become longer stays whole. None for no bound.

    Raises:
        ValueError: the probability is not from 0 to 1, there is no tokenizer, or its pieces are
            not made by merges of pairs.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        probability: float,
        *,
        seed: int = 0,
        max_length: int | None = None,
    ) -> None:
        if not 0 <= probability <= 1:
            raise RequestError(f"bpe_dropout: got {probability}; it is a probability, from 0 to 1.")
        self.parts = _parts(tokenizer)
        self.probability = probability
        self.seed = seed
        self.max_length = max_length

    def __call__(self, features: Features, *, epoch: int = 0) -> list[dict[str, np.ndarray]]:
        """The same pairs in other pieces: `input_ids` and `labels` that decode to the same texts.

        Args:
            features: `input_ids` and `labels` of each pair; other columns are not kept.
            epoch: changes the draw; the same one gives the same pieces of the same pairs.
        """
        columns = {}
        for name in ("input_ids", "labels"):
            rows = [np.asarray(feature[name], dtype=np.int64) for feature in features]
            columns[name] = self._taken_apart(rows, epoch)
        return [
            dict(zip(columns, pair, strict=True)) for pair in zip(*columns.values(), strict=True)
        ]

    def _taken_apart(self, rows: list[np.ndarray], epoch: int) -> list[np.ndarray]:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids, row_of = np.concatenate(rows), np.repeat(np.arange(len(rows)), lengths)
        rng = np.random.default_rng([self.seed, epoch, zlib.crc32(ids.data)])
        new = (ids >= 0) & (ids < len(self.parts))  # a filler such as -100 is no piece
        while True:
            candidates = np.flatnonzero(new)
            candidates = candidates[self.parts[ids[candidates], 0] >= 0]
            undone = candidates[rng.random(len(candidates)) < self.probability]
            if not len(undone):
                break
            copies = np.ones(len(ids), np.int64)
            copies[undone] = 2
            second = np.cumsum(copies)[undone] - 1
            left, right = self.parts[ids[undone]].T
            ids, row_of = np.repeat(ids, copies), np.repeat(row_of, copies)
            ids[second - 1], ids[second] = left, right
            # What a merge had joined can be taken apart in its turn; what was kept whole stays so.
            new = np.zeros(len(ids), bool)
            new[second - 1] = new[second] = True
        split = np.split(ids, np.cumsum(np.bincount(row_of, minlength=len(rows)))[:-1])
        limit = self.max_length
        return [
            whole if limit is not None and len(parts) > limit else parts
            for whole, parts in zip(rows, split, strict=True)
        ]


class BpeDropoutCollator:
    """A collator of training pairs whose pieces are other ones in every epoch of `sampler`."""

    def __init__(
        self,
        collate: Callable[[list[dict[str, np.ndarray]]], dict[str, torch.Tensor]],
        bpe_dropout: BpeDropout,
        sampler: TokenBatchSampler,
    ) -> None:
        self.collate = collate
        self.bpe_dropout = bpe_dropout
        self.sampler = sampler

    def __call__(self, features: Features) -> dict[str, torch.Tensor]:
        """As `collate`, of other pieces; shapes are those of the longer rows."""
        return self.collate(self.bpe_dropout(features, epoch=self.sampler.epoch))


def _parts(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """For each id the two that its piece was merged from, or -1 twice: (V, 2)."""
    if tokenizer is None:
        raise RequestError("bpe_dropout needs the tokenizer of the pairs: give processing_class.")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    model = {} if backend is None else json.loads(backend.to_str())["model"]
    marks = [model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix")]
    if model.get("type") != "BPE" or any(marks):
        kind = model.get("type") or type(tokenizer).__name__
        raise RequestError(
            f"bpe_dropout: got a tokenizer of the kind {kind}; it takes the merges of byte-pair "
            "encoding apart, as train_tokenizer learns them. Set bpe_dropout to 0."
        )
    vocabulary = model["vocab"]
    parts = np.full((max(vocabulary.values(), default=-1) + 1, 2), -1, np.int64)
    for left, right in reversed(model["merges"]):  # of two ways to a piece the earlier one is taken
        merged = vocabulary.get(left + right)
        if merged is not None:
            parts[merged] = vocabulary[left], vocabulary[right]
    return parts
