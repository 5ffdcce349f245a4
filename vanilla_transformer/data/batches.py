"""Batches by token budget, sentences of similar length together (Section 5.1).

"Sentence pairs were batched together by approximate sequence length. Each training batch contained
a set of sentence pairs containing approximately 25000 source tokens and 25000 target tokens."

Tokens are counted with their padding, because padded positions are what memory and time are spent
on: a batch of n pairs costs n times its longest side. Pairs are therefore sorted by their longer
side, which leaves no plan with fewer batches, and within equal longer sides by the difference of
the two, back and forth, so that the shorter sides agree as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral

import numpy as np
from torch.utils.data import Sampler

from ..errors import RequestError


class TokenBatchSampler(Sampler[list[int]]):
    """Yields batches of example numbers, each within a budget of padded tokens per side.

    The batches of an epoch are a function of (lengths, settings, seed, epoch) alone: skipping the
    first k batches of an epoch leaves exactly the rest of it, which is how training resumes. Each
    epoch draws new batches (equal lengths are shuffled, and the boundaries between batches move)
    in a new order; their number never changes.

    Every example comes exactly once in an epoch. Several processes share the batches of one, which
    accelerate deals to them in turn: all hold about as many tokens, so that none waits long.

    There is no attribute `batch_size`, on purpose: accelerate drops every batch of another size
    when a batch sampler has one.

    Args:
        source_lengths: tokens of each source, `</s>` included.
        target_lengths: tokens of each target, `</s>` included.
        max_tokens: budget of padded tokens per batch, for source and target each. One update of
            the paper (25000) is `max_tokens` times the batches of an update.
        seed: of the shuffling.
        shuffle: False gives the same batches in every epoch, the longest first.
        max_sentences: upper bound of the pairs in a batch.

    Raises:
        ValueError: lengths that do not match or are not positive, an example beyond the budget, or
            a setting that is too small.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        max_sentences: int | None = None,
    ) -> None:
        for name, value, least in (
            ("max_tokens", max_tokens, 1),
            ("max_sentences", 1 if max_sentences is None else max_sentences, 1),
            ("seed", seed, 0),
        ):
            if type(value) is bool or not isinstance(value, Integral) or value < least:
                raise RequestError(f"got {name}={value}; allowed are integers from {least}.")
        source, target = np.asarray(source_lengths), np.asarray(target_lengths)
        _check_lengths(source, target, max_tokens=max_tokens)
        self.source_lengths = source.astype(np.int32, copy=False)
        self.target_lengths = target.astype(np.int32, copy=False)
        self.max_tokens = max_tokens
        self.max_sentences = max_sentences
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._length = self._constant_length()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        order, bounds = self._plan()
        count = len(self)
        batches: Iterable[int]
        if self.shuffle:
            batches = self._generator(stream=1).permutation(count)
        else:
            batches = range(count - 1, -1, -1)
        for batch in batches:
            yield order[bounds[batch] : bounds[batch + 1]].tolist()

    @property
    def sampler(self) -> TokenBatchSampler:
        """Itself: under this name accelerate looks for `set_epoch` when it has wrapped us."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches the next iteration yields."""
        self.epoch = epoch

    def _generator(self, *, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch, stream])

    def _constant_length(self) -> int:
        """Batches of every epoch: the fewest possible, and one for the moving bounds."""
        longest = np.sort(np.maximum(self.source_lengths, self.target_lengths))
        fewest = len(self._bounds(longest)) - 1
        return min(fewest + self.shuffle, len(longest))

    def _plan(self) -> tuple[np.ndarray, np.ndarray]:
        """Order of the examples, and the bounds in it of `len(self)` batches, shortest first."""
        longest = np.maximum(self.source_lengths, self.target_lengths)
        count = len(longest)
        # Back and forth: where one longest side ends with a large difference, the next begins so.
        key = self.source_lengths.astype(np.int64)
        key -= self.target_lengths
        np.negative(key, out=key, where=longest % 2 == 1)
        # |difference| < longest, so no key reaches those of the next longest side.
        key += longest * (2 * np.int64(longest.max()))
        order, first_size = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64), 1.0
        if self.shuffle:
            # Examples of the same two lengths change places and no others do.
            rng = self._generator(stream=0)
            rng.shuffle(order)
            first_size = rng.uniform(0.25, 1.0)
        # Key and place in one integer: a plain sort is then stable, and several times faster than
        # argsort on millions of examples. In place, as hundreds of millions need memory.
        key = key[order]
        bits = count.bit_length()
        key <<= bits
        key |= np.arange(count, dtype=order.dtype)
        key.sort()
        key &= (1 << bits) - 1
        order = order[key]
        del key
        bounds = self._bounds(longest[order], first_size=first_size)
        if len(bounds) - 1 > self._length:  # no batch is left for bounds that move
            bounds = self._bounds(longest[order])
        return order, _split_batches(bounds, count=self._length)

    def _bounds(self, longest: np.ndarray, *, first_size: float = 1.0) -> np.ndarray:
        """Bounds of batches as large as the budget allows, filled from the longest example down.

        A share `first_size` of the first batch moves all bounds after it, at the price of at most
        one more batch: filling up is optimal for whatever is left.
        """
        bounds = [len(longest)]
        while bounds[-1] > 0:
            size = self.max_tokens // int(longest[bounds[-1] - 1])
            if self.max_sentences is not None:
                size = min(size, self.max_sentences)
            if len(bounds) == 1:
                size = max(1, int(size * first_size))
            bounds.append(max(0, bounds[-1] - size))
        return np.array(bounds[::-1])


def _split_batches(bounds: np.ndarray, *, count: int) -> np.ndarray:
    """Halve the batches with the most examples until there are `count`."""
    while len(bounds) - 1 < count:
        sizes = np.diff(bounds)
        largest = int(sizes.argmax())
        bounds = np.insert(bounds, largest + 1, bounds[largest] + sizes[largest] // 2)
    return bounds


def _check_lengths(source: np.ndarray, target: np.ndarray, *, max_tokens: int) -> None:
    if source.ndim != 1 or source.shape != target.shape or not len(source):
        raise RequestError(
            f"got lengths of shapes {source.shape} and {target.shape}; needed are one source and "
            "one target length per pair, of at least one pair."
        )
    if source.dtype.kind not in "iu" or target.dtype.kind not in "iu":
        raise RequestError(
            f"got lengths of {source.dtype} and {target.dtype}; needed are whole numbers of tokens."
        )
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    if shorter.min() < 1:
        raise RequestError(
            f"got length 0 or less for example {int(shorter.argmin())}; leave it out."
        )
    if longer.max() > max_tokens:
        example = int(longer.argmax())
        raise RequestError(
            f"example {example} has {source[example]} source and {target[example]} target tokens; "
            f"allowed are max_tokens={max_tokens}. Raise max_tokens or lower the maximum lengths."
        )
