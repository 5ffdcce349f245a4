"""Decoding one position at a time: equal to the whole decoder."""

import pytest
import torch
from wandering_model import make_model, make_sources

from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.fast import incremental_decoding
from vanilla_transformer.fast.incremental_decoding import FORGET_EVERY, IncrementalDecoder


@pytest.mark.parametrize("forget_every", [1, 3, 100])
def test_steps_equal_the_whole_decoder_for_random_histories(forget_every, monkeypatch):
    """Let hypotheses branch and die at random, and compare each with a full decoding."""
    monkeypatch.setattr(incremental_decoding, "FIRST_POSITIONS", 2)  # so that all buffers grow
    monkeypatch.setattr(incremental_decoding, "FORGET_EVERY", forget_every)
    model, (ids, mask) = make_model(), make_sources([5, 3])
    with torch.inference_mode():
        decoder = IncrementalDecoder(model, ids, mask, width=4, length=11)
        history, rows = [[(1,)], [(1,)]], torch.empty(2, 1, 0, dtype=torch.long)
        for width in (1, 3, 2, 4, 4, 1, 3, 4, 2, 1, 4):
            if decoder.rows:
                parents = torch.randint(0, len(history[0]), (2, width))
                grown = torch.arange(decoder.rows - len(history[0]), decoder.rows)
                rows = torch.cat((rows, grown.expand(2, -1)[..., None]), dim=-1)
                rows = rows.gather(1, parents[..., None].expand(-1, -1, rows.size(-1)))
                history = [
                    [(*history[b][p], int(torch.randint(4, 32, ()))) for p in parents[b].tolist()]
                    for b in range(2)
                ]
            tokens = torch.tensor([[tokens[-1] for tokens in line] for line in history])
            logits = torch.cat([*decoder.step(tokens, rows)])
            for b, i in [(b, i) for b in range(2) for i in range(width)]:
                expected = model(
                    ids[b : b + 1],
                    attention_mask=mask[b : b + 1],
                    decoder_input_ids=torch.tensor([history[b][i]]),
                ).logits[0, -1]
                torch.testing.assert_close(logits[b, i], expected)
    assert decoder.rows == 29
    assert (decoder.kept < decoder.rows) == (forget_every < 100)


@pytest.mark.parametrize("forget_every", [1, 2, 5])
def test_search_that_forgets_dead_hypotheses_finds_the_same(forget_every, monkeypatch):
    model, batch = make_model(), make_sources([9, 3, 5, 7, 1])
    options = {"num_return_sequences": 4, "return_alignments": True, "max_new_tokens": 30}
    found = []
    for every in (1000, forget_every):
        monkeypatch.setattr(incremental_decoding, "FORGET_EVERY", every)
        found.append(beam_search(model, *batch, **options))
    assert torch.equal(found[0].sequences, found[1].sequences)
    torch.testing.assert_close(found[0].scores, found[1].scores)
    torch.testing.assert_close(found[0].alignments, found[1].alignments)


def test_cache_rows_of_dead_hypotheses_are_dropped():
    model, (ids, _) = make_model(), make_sources([5, 5])
    with torch.inference_mode():
        decoder = IncrementalDecoder(model, ids, torch.ones_like(ids), width=4, length=60)
        decoder.step(torch.ones(2, 1, dtype=torch.long), torch.empty(2, 1, 0, dtype=torch.long))
        for position in range(1, 60):  # all hypotheses extend the first one of each position
            line = torch.tensor([max(4 * n - 3, 0) for n in range(position)])
            decoder.step(torch.full((2, 4), 5 + position % 20), line.expand(2, 4, -1))
            kept = [layer.memory.rows.length for layer in decoder.layers]
            assert kept == [decoder.kept] * 2
            assert decoder.kept <= 2 * position + 4 * FORGET_EVERY
    assert decoder.rows == 1 + 4 * 59
