"""A trained float32 model translates a sentence alone as it does in any batch.

The random models of other tests compute in float64, where scores are never this close. Here two
hypotheses may be so close that rounding in a larger matrix product changes their order; only that
is allowed.
"""

import numpy as np
import pytest
import torch
from tiny_models import tiny_config, word_level

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.translation.many_texts import pad_ids, translate_nbest

WORDS = 28
CLOSE = 1e-5  # scores within which two hypotheses count as equally good
UPDATES = 150


def pairs(count, *, seed, longest=10):
    """Yield sentences and their cipher, which repeats each even word."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        words = rng.integers(4, 4 + WORDS, rng.integers(1, longest + 1)).tolist()
        target = [4 + (word + 1) % WORDS for word in words for _ in range(1 + (word % 2 == 0))]
        yield [*words, 2], [*target, 2]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "dropout": 0.0}
    config = tiny_config(4 + WORDS, **sizes)
    model = VanillaTransformerForConditionalGeneration(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    for update in range(UPDATES):
        sources, targets = zip(*pairs(64, seed=update), strict=True)
        ids, mask = pad_ids(sources, 0)
        labels, _ = pad_ids(targets, -100)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model.dtype == torch.float32
    return model.eval()


@pytest.fixture(scope="module")
def sources():
    return [source for source, _ in pairs(48, seed=10_000, longest=16)]


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
    (best, score), (other, other_score) = found[0], expected[0]
    assert score == pytest.approx(other_score, abs=CLOSE)
    if best != other:
        assert dict(expected)[best] == pytest.approx(other_score, abs=CLOSE)


def test_model_is_trained_and_its_translations_vary(model, sources, alone):
    """Otherwise the other tests would prove little."""
    best = [hypotheses[0] for hypotheses in alone]
    assert len({ids for ids, _ in best}) > 40
    assert len({len(ids) for ids, _ in best}) > 8
    right = {tuple(source): tuple(target) for source, target in pairs(48, seed=10_000, longest=16)}
    correct = [ids == right[tuple(source)] for source, (ids, _) in zip(sources, best, strict=True)]
    assert sum(correct) / len(correct) > 0.25


@pytest.mark.parametrize(("size", "order"), [(2, 0), (7, 1), (7, 2), (48, 3)])
def test_translations_do_not_depend_on_batch_size_or_order(model, sources, alone, size, order):
    numbers = np.random.default_rng(order).permutation(len(sources))
    for start in range(0, len(numbers), size):
        batch = numbers[start : start + size]
        for number, found in zip(batch, search(model, [sources[n] for n in batch]), strict=True):
            assert_same(found, alone[number])


@pytest.fixture(scope="module")
def tokenizer():
    return word_level(map(str, range(4, 4 + WORDS)))


@pytest.mark.parametrize("batch_tokens", [300, 100_000])
def test_translate_gives_the_same_text_for_any_batch_tokens(
    model, tokenizer, sources, alone, batch_tokens
):
    texts = [" ".join(map(str, source[:-1])) for source in reversed(sources)]
    options = {"num_beams": 4, "num_return_sequences": 4, "batch_tokens": batch_tokens}
    results = translate_nbest(model, tokenizer, texts, **options)
    for translations, expected in zip(results, reversed(alone), strict=True):
        found = [(tuple(map(int, text.split())), score) for text, score in translations]
        assert_same(found, [(ids[: -1 if ids[-1] == 2 else None], s) for ids, s in expected])
