"""Batches by token budget: properties that every plan has, for any lengths."""

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.batches import TokenBatchSampler


def random_lengths(count, *, seed=0, longest=60):
    rng = np.random.default_rng(seed)
    source = np.clip(rng.lognormal(2.5, 0.5, count), 1, longest).astype(int)
    target = np.clip(source * rng.normal(1.0, 0.25, count), 1, longest).astype(int)
    return source, target


def epoch_of(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


def fewest_batches(source, target, max_tokens):
    """Return the smallest number of batches: fill them from the longest pair down."""
    left, count = sorted(np.maximum(source, target)), 0
    while left:
        left = left[: -(max_tokens // left[-1])]
        count += 1
    return count


lengths_and_settings = st.tuples(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120),
    st.integers(40, 300),
    st.booleans(),
    st.integers(0, 5),
)


@given(lengths_and_settings)
@example(([(40, 40)] + [(1, 1)] * 4, 40, True, 0))  # 1 + 4 sentences; the 4 are halved
@settings(deadline=None, max_examples=150)
def test_batches_keep_the_budget_and_hold_every_example_once(case):
    pairs, max_tokens, shuffle, seed = case
    source, target = np.array(pairs).T
    sampler = TokenBatchSampler(source, target, max_tokens=max_tokens, seed=seed, shuffle=shuffle)
    for epoch in range(3):
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        for batch in batches:
            assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens
        assert sorted(example for batch in batches for example in batch) == [*range(len(pairs))]
    fewest = fewest_batches(source, target, max_tokens)
    assert len(sampler) in (fewest, fewest + shuffle)


def test_seed_and_epoch_decide_the_batches():
    source, target = random_lengths(2000)
    one, two = (TokenBatchSampler(source, target, max_tokens=500, seed=3) for _ in range(2))
    assert epoch_of(one, 4) == epoch_of(one, 4) == epoch_of(two, 4)
    assert epoch_of(one, 4) != epoch_of(one, 5)
    other_seed = TokenBatchSampler(source, target, max_tokens=500, seed=4)
    assert epoch_of(one, 4) != epoch_of(other_seed, 4)


def test_batches_of_two_epochs_differ_in_composition():
    source, target = random_lengths(2000)
    sampler = TokenBatchSampler(source, target, max_tokens=500)
    first, second = (set(map(frozenset, epoch_of(sampler, epoch))) for epoch in (0, 1))
    assert len(first & second) < 0.1 * len(first)


def test_long_sentences_get_other_neighbours_too():
    """A pair of unique length cannot swap with another; the bounds of its batch move instead."""
    source = target = np.arange(1, 301)
    sampler = TokenBatchSampler(source, target, max_tokens=3000)
    neighbours = set()
    for epoch in range(6):
        neighbours |= {tuple(sorted(batch)) for batch in epoch_of(sampler, epoch) if 250 in batch}
    assert len(neighbours) > 1


def test_batches_come_in_random_order():
    source, target = random_lengths(3000)
    sampler = TokenBatchSampler(source, target, max_tokens=300)
    means = np.array([target[batch].mean() for batch in sampler])
    neighbours = np.corrcoef(means[:-1], means[1:])[0, 1]
    assert abs(neighbours) < 0.2


def test_without_shuffling_epochs_are_equal_and_the_longest_come_first():
    source, target = random_lengths(500)
    sampler = TokenBatchSampler(source, target, max_tokens=300, shuffle=False)
    batches = epoch_of(sampler, 0)
    assert batches == epoch_of(sampler, 1)
    longest = [np.maximum(source, target)[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize("processes", [2, 3, 30])
def test_accelerate_deals_batches_to_processes_in_turn(processes):
    source, target = random_lengths(1000)
    sampler = TokenBatchSampler(source, target, max_tokens=380, seed=1)
    sampler.set_epoch(2)
    batches = list(sampler)
    count = -(-len(batches) // processes)
    assert 30 < len(batches) < count * processes
    for rank in range(processes):
        dealt = list(BatchSamplerShard(sampler, processes, rank))
        own = batches[rank::processes]
        assert len(dealt) == len(BatchSamplerShard(sampler, processes, rank)) == count
        assert dealt[: len(own)] == own
        assert len(own) == count - (0 < len(batches) % processes <= rank)
        rest = SkipBatchSampler(BatchSamplerShard(sampler, processes, rank), skip_batches=1)
        assert list(rest) == dealt[1:]


def test_example_longer_than_the_budget_is_named():
    with pytest.raises(ValueError, match=r"example 1 has 5 source and 9 target.*max_tokens=8"):
        TokenBatchSampler([5, 5, 5], [5, 9, 5], max_tokens=8)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([], [], r"shapes \(0,\)"),
        ([1, 2], [1], r"shapes \(2,\) and \(1,\)"),
        ([3, 0], [3, 3], "example 1 has 0 source .*allowed are 1 to"),
        ([3, 3], [3, -1], "example 1 has 3 source and -1 target"),
        ([3, 2.5], [3, 3], "of float64 and int64; give two whole numbers"),
        ([3, 3], [3, float("nan")], "of int64 and float64"),
        ([[3, 3]], [[3, 3]], r"shapes \(1, 2\)"),
    ],
)
def test_invalid_lengths_are_refused(source, target, message):
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler(source, target, max_tokens=10)


# -------------------------------------------------------------------------------- several corpora


def corpora_of(*sizes, seed=0):
    """Return lengths of corpora of these sizes, each with longer sentences than the one before."""
    source, target = random_lengths(sum(sizes), seed=seed)
    corpora = np.repeat(np.arange(len(sizes)), sizes)
    return source, np.minimum(target * (1 + corpora), 60), corpora


@given(
    st.lists(st.tuples(st.integers(1, 90), st.floats(0.1, 10)), min_size=1, max_size=4),
    st.integers(60, 400),
    st.booleans(),
    st.integers(0, 5),
)
@settings(deadline=None, max_examples=150)
def test_weighted_batches_keep_the_budget_and_their_number(corpora, max_tokens, shuffle, seed):
    sizes, weights = zip(*corpora, strict=True)
    source, target, corpora = corpora_of(*sizes, seed=seed)
    sampler = TokenBatchSampler(
        source, target, max_tokens=max_tokens, seed=seed, shuffle=shuffle,
        corpora=corpora, weights=weights,
    )  # fmt: skip
    for epoch in range(3):
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert all(batches)
        for batch in batches:
            assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens
        assert batches == epoch_of(sampler, epoch)


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [((1000, 20_000), (4, 1)), ((150, 9000), (4, 1)), ((3000, 3000, 400), (1, 2, 0.5))],
)
def test_weights_are_the_shares_of_the_target_tokens(sizes, weights):
    source, target, corpora = corpora_of(*sizes)
    sampler = TokenBatchSampler(
        source, target, max_tokens=500, corpora=corpora, weights=weights, seed=1
    )
    drawn = np.zeros(len(source), int)
    for epoch in range(200):  # of the longest corpus, an epoch draws a hundredth
        once = np.bincount(np.concatenate(epoch_of(sampler, epoch)), minlength=len(source))
        drawn += once
        # No pair comes back before the others of its corpus have had their turn.
        assert all(np.ptp(drawn[corpora == corpus]) <= 1 for corpus in range(len(sizes)))
        if sizes != (150, 9000):  # too few for an epoch of twenty batches
            assert once.max() == 1
    tokens = np.bincount(corpora, weights=drawn * target)  # whole pairs: of 50, a half is 1 %
    assert tokens / tokens.sum() == pytest.approx(np.array(weights) / sum(weights), rel=0.01)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 10)), min_size=2, max_size=4),
    st.integers(60, 400),
)
@settings(deadline=None, max_examples=50)
def test_tiny_corpora_have_their_shares_too(corpora, max_tokens):
    """Rounding the draws of an epoch moves no share by a tenth; `share` tells what it moves."""
    sizes, weights = zip(*corpora, strict=True)
    source, target, corpora = corpora_of(*sizes)
    sampler = TokenBatchSampler(
        source, target, max_tokens=max_tokens, corpora=corpora, weights=weights
    )
    drawn = np.concatenate([np.concatenate(epoch_of(sampler, epoch)) for epoch in range(40)])
    pairs = np.bincount(corpora[drawn]) / len(drawn)
    tokens = np.bincount(corpora[drawn], weights=target[drawn]) / target[drawn].sum()
    for corpus, weight in enumerate(weights):
        told = sampler.share(corpora == corpus)
        assert told == pytest.approx((tokens[corpus], pairs[corpus]), rel=0.03)
        assert told[0] == pytest.approx(weight / sum(weights), rel=0.1)


@pytest.mark.parametrize(
    ("weights", "corpora", "message"),
    [
        ([1, 2, 3], [0, 0, 1], r"the weights \[1, 2, 3\] for corpora of \[2, 1, 0\] pairs"),
        ([1], [0, 0, 1], "each corpus needs pairs and a weight"),
        ([1, 2], [0, 1], r"corpora of \[1, 1\] pairs"),
        ([1, 2], None, r"corpora of \[0, 0\] pairs"),
        ([1, 0], [0, 0, 1], r"the weights \[1, 0\]"),
        ([1, float("nan")], [0, 0, 1], r"the weights \[1, nan\]"),
    ],
)
def test_weights_that_do_not_fit_the_corpora_are_refused(weights, corpora, message):
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler([3] * 3, [3] * 3, max_tokens=9, corpora=corpora, weights=weights)


def test_packed_sort_equals_a_sort_of_tuples():
    """Long pairs, for which products of lengths grow large."""
    source, target = random_lengths(100_000, longest=5000)
    source[:3] = [5000, 4999, 2500]
    sampler = TokenBatchSampler(source, target, max_tokens=25_000, shuffle=False)
    order = [example for batch in reversed(list(sampler)) for example in batch]
    longest = np.maximum(source, target)
    difference = np.where(longest % 2 == 0, source - target, target - source)
    assert order == np.lexsort((np.arange(len(source)), difference, longest)).tolist()
