"""Batches by token budget, sentences of similar length together (Section 5.1).

"Sentence pairs were batched together by approximate sequence length. Each training batch contained
a set of sentence pairs containing approximately 25000 source tokens and 25000 target tokens."

Tokens are counted with their padding, because padding costs memory and time too: a batch of n pairs
costs n times its longest side. Pairs are therefore sorted by their longer side, which gives the
fewest batches possible. Pairs with equal longer sides are sorted by the difference of their sides,
up and down in turn, so that the shorter sides are similar too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from ..errors import RequestError
from ..ranges import COUNT, Range

# Fewest batches in an epoch of weighted corpora, so that one more batch hardly changes the shares.
_FEWEST_BATCHES = 20
MOST_SHAPES = 12  # limit on batch shapes in training; a lower one means more padding
# Fewest examples of a corpus in an epoch: rounding then changes its share by about 1/20 at most.
_FEWEST_DRAWS = 10


class TokenBatchSampler(Sampler[list[int]]):
    """Sampler of batches of row numbers, each within a budget of padded tokens per side.

    The batches of an epoch depend on (lengths, settings, seed, epoch) alone, so that training
    resumes by skipping the first k batches. Each epoch draws new batches (equal lengths are
    shuffled, and the boundaries between batches move) in a new order; their number never changes.

    Every example occurs exactly once in an epoch. With weights of corpora an epoch is shorter: it
    draws one corpus whole (several times if it would otherwise have too few batches or too few
    examples of another corpus), and a part of each other corpus, with examples of all lengths. The
    next epoch draws the examples that follow these in order of length, so that none is repeated
    before all others of its corpus were drawn. With several processes, accelerate deals out the
    batches in turn: all have about the same number of tokens, so that no process waits long.

    There is no attribute `batch_size` on purpose: if a batch sampler has one, accelerate drops
    every batch of another size.

    Args:
        source_lengths: Tokens of each source, `</s>` included.
        target_lengths: Tokens of each target, `</s>` included.
        max_tokens: Budget of padded tokens per batch, for source and target each. The paper's 25000
            tokens per update are `max_tokens` times the batches per update.
        seed: Seed of the shuffling.
        shuffle: False gives the longest batch first, and without weights the same batches in every
            epoch.
        corpora: Number of each example's corpus, from 0; needed with `weights`.
        weights: Weight of each corpus: its share of the target tokens is its weight divided by the
            sum of all weights. None: each example is drawn once per epoch.
        few_shapes: Whether batches will be padded to one of a few lengths, the attribute `lengths`.
            False makes that None: each batch is padded to its longest example.

    Raises:
        ValueError: Lengths that do not match or are not positive, an example beyond the budget, a
            setting that is too small, or weights that are not those of the corpora.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        corpora: Sequence[int] | np.ndarray | None = None,
        weights: Sequence[float] | None = None,
        few_shapes: bool = False,
    ) -> None:
        COUNT.check(max_tokens=max_tokens)
        Range(0).check(seed=seed)
        source, target = np.asarray(source_lengths), np.asarray(target_lengths)
        check_lengths(source, target, max_tokens=max_tokens)
        self.source_lengths = source.astype(np.int32, copy=False)
        self.target_lengths = target.astype(np.int32, copy=False)
        self.max_tokens = max_tokens
        self.lengths = few_lengths(np.maximum(source, target)) if few_shapes else None
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        # Of each weighted corpus, the examples in order of length and how many an epoch draws.
        self._corpora: list[tuple[np.ndarray, int]] = []
        if weights is not None:
            self._corpora = self._weighted([] if corpora is None else corpora, weights)
        self._length = self._constant_length()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        order, bounds = self._plan()
        count = len(self)
        batches = np.arange(count)[::-1]
        if self.shuffle:
            batches = self._generator(stream=1).permutation(count)
        for batch in batches:
            yield order[bounds[batch] : bounds[batch + 1]].tolist()

    @property
    def sampler(self) -> TokenBatchSampler:
        """The sampler itself: a wrapper of accelerate looks for `set_epoch` under this name."""
        return self

    def share(self, chosen: np.ndarray) -> tuple[float, float]:
        """Return the shares of an epoch's target tokens and of its pairs that are in `chosen`.

        Args:
            chosen: Whether each example counts, (N,).
        """
        pairs = np.ones(len(self.target_lengths))
        for examples, count in self._corpora:
            pairs[examples] = count / len(examples)
        tokens = pairs * self.target_lengths
        return tokens[chosen].sum() / tokens.sum(), pairs[chosen].sum() / pairs.sum()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches the next iteration yields."""
        self.epoch = epoch

    def _generator(self, *, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch, stream])

    def _longest(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return each example's tokens on its longer side, rounded up to one of `lengths`."""
        longest = np.maximum(source, target)
        if self.lengths is None:
            return longest
        return np.array(self.lengths)[np.searchsorted(self.lengths, longest)]

    def _constant_length(self) -> int:
        """Return the number of batches per epoch: the fewest, plus one if boundaries vary."""
        longest = self._longest(self.source_lengths, self.target_lengths)
        if self._corpora:
            # An upper bound: of all values of `starts`, these draw the longest examples.
            longest = longest[self._drawn([len(examples) - 1 for examples, _ in self._corpora])]
        longest = np.sort(longest)
        fewest = len(self._bounds(longest)) - 1
        return min(fewest + (self.shuffle and self.lengths is None), len(longest))

    def _weighted(
        self, corpora: Sequence[int] | np.ndarray, weights: Sequence[float]
    ) -> list[tuple[np.ndarray, int]]:
        """Return each corpus's examples sorted by length, and how many of them an epoch draws."""
        numbers = np.asarray(corpora, dtype=np.int64)
        sizes = np.bincount(numbers, minlength=len(weights))
        shares = np.array(weights) / sum(weights)
        fit = len(shares) == len(sizes) and len(numbers) == len(self.target_lengths)
        if not (fit and sizes.all() and (shares > 0).all()):
            given = f"the weights {[*weights]} for corpora of {sizes.tolist()} pairs"
            raise RequestError(f"got {given}; each corpus needs pairs and a weight above 0.")
        tokens = np.bincount(numbers, weights=self.target_lengths)
        draws = shares * sizes / tokens  # examples of each corpus per target token of an epoch
        fewest = min(tokens.sum(), _FEWEST_BATCHES * self.max_tokens)
        epoch = max((tokens / shares).min(), fewest, (_FEWEST_DRAWS / draws).max())
        draws = np.rint(epoch * draws).astype(int).tolist()
        order = np.argsort(np.maximum(self.source_lengths, self.target_lengths), kind="stable")
        return [(order[numbers[order] == corpus], count) for corpus, count in enumerate(draws)]

    def _drawn(self, starts: Iterable[int]) -> np.ndarray:
        """Return the examples that an epoch draws: corpus after corpus, each sorted by length.

        Args:
            starts: How many examples of each corpus earlier epochs have drawn.
        """
        drawn = []
        for (examples, count), start in zip(self._corpora, starts, strict=True):
            places = np.arange(count) * len(examples) + start % len(examples)
            drawn.append(examples[places // count])
        return np.concatenate(drawn)

    def _plan(self) -> tuple[np.ndarray, np.ndarray]:
        """Plan an epoch: its examples, shortest first, and where each batch begins and ends."""
        source_lengths, target_lengths = self.source_lengths, self.target_lengths
        drawn = None
        if self._corpora:
            drawn = self._drawn([self.epoch * count for _, count in self._corpora])
            source_lengths, target_lengths = source_lengths[drawn], target_lengths[drawn]
        longest = self._longest(source_lengths, target_lengths)
        # Length differences rise at even `longest`, fall at odd ones: neighbours stay similar.
        difference = source_lengths - target_lengths
        difference = np.where(longest % 2, -difference, difference) * (self.lengths is None)
        order, first_size = np.arange(len(longest)), 1.0
        if self.shuffle:
            # The sort below is stable, so only examples of equal (padded) lengths stay shuffled.
            rng = self._generator(stream=0)
            rng.shuffle(order)
            first_size = rng.uniform(0.25, 1.0) if self.lengths is None else 1.0
        order = order[np.lexsort((difference[order], longest[order]))]
        bounds = self._bounds(longest[order], first_size=first_size)
        if len(bounds) - 1 > self._length:  # moving the bounds took one batch too many
            bounds = self._bounds(longest[order])
        bounds = _split_batches(bounds, count=self._length)
        return (order if drawn is None else drawn[order]), bounds

    def _bounds(self, longest: np.ndarray, *, first_size: float = 1.0) -> np.ndarray:
        """Return the boundaries of batches that are each as large as the budget allows.

        Filling only a share `first_size` of the first batch moves all later bounds and adds at most
        one batch, because filling up is optimal for the rest.
        """
        bounds = [len(longest)]
        while bounds[-1] > 0:
            size = self.max_tokens // int(longest[bounds[-1] - 1])
            if len(bounds) == 1:
                size = max(1, int(size * first_size))
            bounds.append(max(0, bounds[-1] - size))
        return np.array(bounds[::-1])


def _split_batches(bounds: np.ndarray, *, count: int) -> np.ndarray:
    """Halve the batch with the most examples, repeatedly, until there are `count` batches."""
    while len(bounds) - 1 < count:
        sizes = np.diff(bounds)
        largest = int(sizes.argmax())
        bounds = np.insert(bounds, largest + 1, bounds[largest] + sizes[largest] // 2)
    return bounds


def check_lengths(source: np.ndarray, target: np.ndarray, *, max_tokens: int | None = None) -> None:
    """Refuse token counts that are not positive whole numbers or that exceed a limit.

    Args:
        source: Tokens of each source.
        target: Tokens of each target.
        max_tokens: The limit of either side, if there is one.
    """
    integers = source.dtype.kind in "iu" and target.dtype.kind in "iu"
    if source.ndim != 1 or source.shape != target.shape or not len(source) or not integers:
        shapes = f"{source.shape} and {target.shape}, of {source.dtype} and {target.dtype}"
        raise RequestError(f"got lengths of shapes {shapes}; give two whole numbers for each pair.")
    limit = np.inf if max_tokens is None else max_tokens
    fits = (np.minimum(source, target) >= 1) & (np.maximum(source, target) <= limit)
    if not fits.all():
        example = int(fits.argmin())
        allowed = "1 or more" if max_tokens is None else f"1 to max_tokens={max_tokens}"
        sizes = f"{source[example]} source and {target[example]} target tokens"
        raise RequestError(f"example {example} has {sizes}; allowed are {allowed}.")


def check_repeatable(dataset: Any) -> None:
    """Refuse to resume from a stream without `set_epoch`, which cannot repeat a given epoch."""
    if not hasattr(dataset, "set_epoch"):
        raise RequestError("cannot resume a stream without set_epoch; try ignore_data_skip=True.")


def few_lengths(longest: np.ndarray) -> list[int]:
    """Choose lengths to pad rows to: at most `MOST_SHAPES`, ascending, with the least padding.

    Args:
        longest: Length of the longer side of each pair, (N,).
    """
    lengths = np.unique(longest)
    # If there are many, take an evenly spread sample that includes the longest.
    lengths = lengths[:: -(len(lengths) // 512 + 1)][::-1]
    rows = np.sort(longest).searchsorted(lengths, side="right")  # number of rows at most that long
    # Tokens of the rows between two lengths, padded to the second.
    added = (rows - rows[:, None]) * lengths + np.where(np.tri(len(lengths)), np.inf, 0)
    fewest, ends = rows * lengths.astype(float), []
    for _ in range(min(MOST_SHAPES, len(lengths)) - 1):
        tokens = fewest[:, None] + added
        ends.append(tokens.argmin(0))
        fewest = tokens.min(0)
    chosen = [len(lengths) - 1]
    for end in reversed(ends):
        chosen.append(end[chosen[-1]])
    return lengths[chosen[::-1]].tolist()


class Stream:
    """Batches of a streamed data set, epoch after epoch, which can resume within an epoch.

    A pass is what the trainer calls an epoch. Batches after its last whole update are left out,
    because their gradients would be added to those of the next update.

    Args:
        loader: The batches, as prepared by accelerate.
        per_update: Batches per update.

    Attributes:
        epoch: Number of the pass, from 0.
        batches: Number of batches of this pass that were handed out.
    """

    def __init__(self, loader: Any, *, per_update: int) -> None:
        self.loader, self.per_update = loader, per_update
        self.epoch = self.batches = self._first = self._skipped = 0
        self._restore: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet while self is copied or unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def resume(self, epoch: int, batches: int, restore: Callable[[], None]) -> None:
        """Begin in pass number `epoch`, after its first `batches` batches.

        Args:
            epoch: Number of the pass.
            batches: Batches that were already trained on.
            restore: Function that restores the checkpoint's random state; called once those batches
                are skipped.
        """
        self.epoch, self._first = epoch, epoch
        self._skipped, self._restore = batches, restore

    def set_epoch(self, epoch: int) -> None:
        """Choose the next pass by its number since training was started or resumed."""
        self.epoch, self.batches = self._first + epoch, 0
        self.loader.set_epoch(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass, or the rest of the pass in which the training stopped."""
        updates = self._updates()
        if self._restore is not None:
            restore, self._restore = self._restore, None
            for update in islice(updates, self._skipped // self.per_update):
                self.batches += len(update)
            if self.batches < self._skipped:
                seen = f"batch {self.batches} of {self._skipped}"
                raise RequestError(f"the stream ended after {seen}; give the same pairs as before.")
            begun = [*islice(updates, 1)]
            restore()
            if not begun:  # the training stopped between two passes
                self._first += 1
                self.set_epoch(0)
                updates = self._updates()
            updates = chain(begun, updates)
        for update in updates:
            for batch in update:
                self.batches += 1
                yield batch
        if self.epoch == self.batches == 0:
            raise RequestError(f"an update needs {self.per_update} batches; the stream has fewer.")

    def _updates(self) -> Iterator[list[Any]]:
        batches = iter(self.loader)
        while len(update := list(islice(batches, self.per_update))) == self.per_update:
            yield update
