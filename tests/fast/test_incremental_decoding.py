"""Decoding one position at a time: equal to the whole decoder, and cheap at each step."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from wandering_model import make_model, make_sources

from vanilla_transformer.beam_search import Inputs, beam_search
from vanilla_transformer.fast import incremental_decoding, onednn
from vanilla_transformer.fast.incremental_decoding import (
    FORGET_EVERY,
    GrowingRows,
    IncrementalDecoder,
)

LAYERS, WIDTH = 2, 128


@pytest.mark.parametrize("forget_every", [1, 3, 100])
def test_steps_equal_the_whole_decoder_for_random_histories(forget_every, monkeypatch):
    """Let hypotheses branch and die at random, and compare each with a full decoding."""
    monkeypatch.setattr(incremental_decoding, "FIRST_POSITIONS", 2)  # so that all buffers grow
    monkeypatch.setattr(incremental_decoding, "FORGET_EVERY", forget_every)
    model, (ids, mask) = make_model(), make_sources([5, 3])
    with torch.inference_mode():
        decoder = IncrementalDecoder(model, Inputs(ids, mask, None), width=4, length=11)
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
        inputs = Inputs(ids, torch.ones_like(ids), None)
        decoder = IncrementalDecoder(model, inputs, width=4, length=60)
        decoder.step(torch.ones(2, 1, dtype=torch.long), torch.empty(2, 1, 0, dtype=torch.long))
        for position in range(1, 60):  # all hypotheses extend the first one of each position
            line = torch.tensor([max(4 * n - 3, 0) for n in range(position)])
            decoder.step(torch.full((2, 4), 5 + position % 20), line.expand(2, 4, -1))
            kept = [layer.memory.rows.length for layer in decoder.layers]
            assert kept == [decoder.kept] * 2
            assert decoder.kept <= 2 * position + 4 * FORGET_EVERY
    assert decoder.rows == 1 + 4 * 59


def test_growing_rows_append_select_and_compact():
    torch.manual_seed(0)
    rows, whole = GrowingRows(3), torch.empty(4, 2, 0, 5)
    for length in (1, 2, 2, 7, 1):
        new = torch.randn(whole.size(0), 2, length, 5)
        whole = torch.cat((whole, new), dim=2)
        assert torch.equal(rows.append(new), whole)
        if length == 7:
            order = torch.tensor([0, 3, 2])
            rows.keep(order, torch.tensor([1]))
            whole = whole[order]
            assert torch.equal(rows.view(), whole)
            places = torch.tensor([[0, 2, 4, 11], [1, 3, 5, 7], [11, 10, 9, 8]])
            rows.compact(places)
            whole = torch.stack([part[:, kept] for part, kept in zip(whole, places, strict=True)])
            assert torch.equal(rows.view(), whole)


class Meter(TorchDispatchMode):
    """Counts operators, and the bytes of new tensors that they return."""

    def __init__(self):
        super().__init__()
        self.calls = self.bytes = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        self.calls += 1
        old = {self.storage(argument) for argument in args}
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if self.storage(tensor) not in {None, *old}:
                self.bytes += tensor.numel() * tensor.element_size()
        return result

    @staticmethod
    def storage(value):
        """Return a tensor's address; None for other values and for oneDNN's own layout."""
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return None
        return value.untyped_storage().data_ptr()


@pytest.fixture(scope="module", params=["fused", "plain"])
def costs(request):
    """Measure operators and bytes of a search by translation length, 8 sentences, beam 4."""
    if request.param == "fused" and not torch.inference_mode()(onednn._can_pack)():
        pytest.skip("oneDNN packs nothing here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn, "SMALLEST", 0)
        return {"kind": request.param, **measured_costs(prepack=request.param == "fused")}


def measured_costs(**options):
    model, batch = make_model(d_model=WIDTH).float(), make_sources([6] * 8)
    found = {}
    for length in (1, 35, 36, 53, 54):  # the first packs the weights; the others' buffers are equal
        with Meter() as meter:
            beam_search(
                model, *batch, max_new_tokens=length, suppress_tokens=[0, 1, 2, 3], **options
            )
        found[length] = meter
    return found


def test_step_makes_equally_few_calls_at_any_length(costs):
    """transformers' beam search makes some 2,000 for the six layers of the base model."""
    step = costs[36].calls - costs[35].calls
    assert costs[54].calls - costs[53].calls == step
    assert step <= 50 + {"fused": 26, "plain": 39}[costs["kind"]] * LAYERS  # 100, 126 as measured


def test_step_copies_no_keys_or_values(costs):
    """Scores, mask and histories grow with the length, by less than copies of the cache would."""
    early = costs[36].bytes - costs[35].bytes
    late = costs[54].bytes - costs[53].bytes
    growth = (late - early) / 20  # bytes that each further position adds to a step
    hypotheses = 8 * 4
    gathered = hypotheses * LAYERS * 2 * WIDTH * 4  # keys and values of one more position
    assert 0 < growth < gathered / 3
