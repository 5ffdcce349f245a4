"""A trained float32 model translates a sentence alone as it does in any batch.

The random models of other tests compute in float64, where scores are never this close. Here two
hypotheses may be so close that rounding in a larger matrix product changes their order; only that
is allowed.
"""

import numpy as np
import pytest

from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.translation.many_texts import pad_ids, translate_nbest

CLOSE = 1e-5  # scores within which two hypotheses count as equally good


@pytest.fixture(scope="module")
def model(everyday):
    return everyday.model


@pytest.fixture(scope="module")
def texts(everyday):
    """Return texts of one to three sentences."""
    return [" ".join(everyday.sentences[n : n + 1 + n // 2 % 3]) for n in range(0, 96, 2)]


@pytest.fixture(scope="module")
def sources(everyday, texts):
    return everyday.tokenizer(texts)["input_ids"]


@pytest.fixture(scope="module")
def alone(model, sources):
    """Return what a search for each sentence alone finds: ids and scores, best first."""
    return [search(model, [source])[0] for source in sources]


def search(model, rows, beams=4):
    inputs = (ids.to(model.device) for ids in pad_ids(rows, 0))
    found = beam_search(model, *inputs, num_beams=beams, num_return_sequences=beams)
    return [
        [(tuple(ids[:length].tolist()), score) for ids, length, score in zip(*parts, strict=True)]
        for parts in zip(found.sequences, found.lengths, found.scores.tolist(), strict=True)
    ]


def assert_same(found, expected):
    """Check for the same best translation and score; another one must score the same."""
    (best, score, *_), (other, other_score) = found[0], expected[0]
    assert score == pytest.approx(other_score, abs=CLOSE)
    if best != other:
        assert dict(expected)[best] == pytest.approx(other_score, abs=CLOSE)


def test_translations_end_and_vary(alone):
    """Otherwise the other tests would prove little."""
    best = [hypotheses[0][0] for hypotheses in alone]
    assert len(set(best)) > 40
    assert len({len(ids) for ids in best}) > 8
    assert all(ids[-1] == 2 for ids in best)


@pytest.mark.parametrize(("size", "order"), [(2, 0), (7, 1), (7, 2), (48, 3)])
def test_translations_do_not_depend_on_batch_size_or_order(model, sources, alone, size, order):
    numbers = np.random.default_rng(order).permutation(len(sources))
    for start in range(0, len(numbers), size):
        batch = numbers[start : start + size]
        for number, found in zip(batch, search(model, [sources[n] for n in batch]), strict=True):
            assert_same(found, alone[number])


@pytest.mark.parametrize("tokens_at_once", [300, 100_000])
def test_texts_are_equal_for_any_tokens_at_once(model, everyday, texts, alone, tokens_at_once):
    decode = everyday.tokenizer.decode
    options = {"num_beams": 4, "num_return_sequences": 4, "tokens_at_once": tokens_at_once}
    results = translate_nbest(model, everyday.tokenizer, reversed(texts), **options)
    for found, expected in zip(results, reversed(alone), strict=True):
        assert_same(
            found, [(decode(ids, skip_special_tokens=True), score) for ids, score in expected]
        )
