"""Split words at random: subword regularisation like BPE-dropout (Provilkov et al., 2020).

A model that reads a word sometimes whole and sometimes in parts learns what the parts mean, which
helps if there are few pairs. The paper does not do this, and it is off by default.

The original skips merges at random while it encodes. Here each text is encoded once, and in every
batch each BPE merge of its tokens is undone with some probability, the last one first. This needs
token ids only, so the cache of tokenised pairs stays in use. The draw depends on the seed, the
epoch and the batch alone, so a resumed run sees the same tokens as one that never stopped.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import RequestError
from ..ranges import Range
from ..target_tokenizer import target_tokenizer
from .batches import TokenBatchSampler
from .dataset import Features


class BpeDropout:
    """Random splitting of tokens: each becomes the two tokens from which BPE merged it.

    Args:
        tokenizer: Byte-pair encoding with a `tokenizer.json`, as from `train_tokenizer`; labels are
            ids of its `target_tokenizer`.
        probability: Probability of undoing a merge. 0 leaves all tokens whole; 1 undoes every
            merge, which leaves single bytes with our tokenizer.
        seed: Seed of the draws.
        max_length: Most tokens of a text; one that would exceed it is not split. None for no limit.

    Raises:
        ValueError: A probability that is not from 0 to 1, or a tokenizer without merges.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        probability: float,
        *,
        seed: int = 0,
        max_length: int | None = None,
    ) -> None:
        Range(0, 1, whole=False).check(bpe_dropout=probability)
        self.parts = [_parts(tokenizer), _parts(target_tokenizer(tokenizer))]
        if all((parts < 0).all() for parts in self.parts):
            raise RequestError("the tokenizer has no merges to undo; set bpe_dropout=0.")
        self.probability, self.seed, self.max_length = probability, seed, max_length

    def __call__(self, features: Features, *, epoch: int = 0) -> list[dict[str, np.ndarray]]:
        """Return `input_ids` and `labels` of the same texts with some tokens split.

        Args:
            features: `input_ids` and `labels` of each pair, and `attention_mask` if some ids are
                padding, which is left out; other columns are dropped.
            epoch: Number that changes the draw; the same epoch splits the same batch alike.
        """
        names = ("input_ids", "labels")
        sides = [[np.asarray(feature[name], np.int64) for feature in features] for name in names]
        if "attention_mask" in features[0]:
            masks = (np.asarray(feature["attention_mask"], bool) for feature in features)
            sides[0] = [row[mask] for row, mask in zip(sides[0], masks, strict=True)]
        # One generator for both sides: a text that is on both is split differently on each.
        batch = zlib.crc32(np.concatenate([row for side in sides for row in side]).data)
        rng = np.random.default_rng([self.seed, epoch, batch])
        both = zip(sides, self.parts, strict=True)
        split = [self._taken_apart(side, parts, rng) for side, parts in both]
        return [dict(zip(names, pair, strict=True)) for pair in zip(*split, strict=True)]

    def _taken_apart(
        self, rows: list[np.ndarray], parts: np.ndarray, rng: np.random.Generator
    ) -> list[np.ndarray]:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids, row_of = np.concatenate(rows), np.repeat(np.arange(len(rows)), lengths)
        new = (ids >= 0) & (ids < len(parts))  # padding such as -100 is not a token
        while True:
            candidates = np.flatnonzero(new)
            candidates = candidates[parts[ids[candidates], 0] >= 0]
            undone = candidates[rng.random(len(candidates)) < self.probability]
            if not len(undone):
                break
            copies = np.ones(len(ids), np.int64)
            copies[undone] = 2
            second = np.cumsum(copies)[undone] - 1
            left, right = parts[ids[undone]].T
            ids, row_of = np.repeat(ids, copies), np.repeat(row_of, copies)
            ids[second - 1], ids[second] = left, right
            # Only the new parts may be split again; tokens kept in this round stay.
            new = np.zeros(len(ids), bool)
            new[second - 1] = new[second] = True
        split = np.split(ids, np.cumsum(np.bincount(row_of, minlength=len(rows)))[:-1])
        limit = np.inf if self.max_length is None else self.max_length
        return [row if len(it) > limit else it for row, it in zip(rows, split, strict=True)]


@dataclass(frozen=True)
class BpeDropoutCollator:
    """Collator of training pairs that splits tokens differently in each epoch of `sampler`."""

    collate: Callable[[list[dict[str, np.ndarray]]], dict[str, torch.Tensor]]
    bpe_dropout: BpeDropout
    sampler: TokenBatchSampler

    def __call__(self, features: Features) -> dict[str, torch.Tensor]:
        """Split tokens at random, then `collate` the rows, which may be longer than before."""
        return self.collate(self.bpe_dropout(features, epoch=self.sampler.epoch))


def _parts(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Return the two ids that each id was merged from, -1 for none: (V, 2)."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    model = {} if backend is None else json.loads(backend.to_str())["model"]
    marks = [model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix")]
    if model.get("type") != "BPE" or any(marks):
        kind = model.get("type") or type(tokenizer).__name__
        raise RequestError(f"bpe_dropout needs a BPE tokenizer, not {kind}; set bpe_dropout=0.")
    vocabulary = model["vocab"]
    parts = np.full((max(vocabulary.values(), default=-1) + 1, 2), -1, np.int64)
    for left, right in reversed(model["merges"]):  # of two merges to one token, the earlier counts
        merged = vocabulary.get(left + right)
        if merged is not None:
            parts[merged] = vocabulary[left], vocabulary[right]
    return parts
