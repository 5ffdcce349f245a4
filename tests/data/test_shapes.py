"""Batches for a GPU: few shapes, the same loss in each of them, and nothing to read."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import byte_tokenizer
from tiny_trainers import copy_task, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer import loss as loss_module
from vanilla_transformer.data import batches as batches_module
from vanilla_transformer.data.batches import TokenBatchSampler, few_lengths
from vanilla_transformer.data.dataset import PairCollator, pair_lengths
from vanilla_transformer.data.shapes import ShapedCollator
from vanilla_transformer.data.tokenizer import train_tokenizer

SHARED = Path(__file__).parents[3] / "shared" / "data"


def shaped(model, lengths=None, collate=None):
    return ShapedCollator(collate or PairCollator(), model, lengths, max_tokens=150)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 4))
@settings(deadline=None)
def test_no_other_lengths_have_less_padding(longest, most):
    def tokens(lengths):
        return np.array(lengths)[np.searchsorted(lengths, longest)].sum()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "MOST_SHAPES", most)
        found, last = few_lengths(np.array(longest)), max(longest)
    subsets = itertools.combinations(range(1, last), min(most, last) - 1)
    assert len(found) <= most
    assert tokens(found) == min(tokens([*subset, last]) for subset in subsets)


@pytest.mark.parametrize("weights", [None, [1, 3]])
def test_all_batches_have_few_shapes_and_an_epoch_has_every_pair_once(weights):
    model, data, corpora = tiny_model(), copy_task(700), np.arange(700) % 2
    options = {"few_shapes": True, "corpora": corpora, "weights": weights}
    sampler = TokenBatchSampler(*pair_lengths(data), max_tokens=150, **options)
    assert few_lengths(np.arange(1, 100_001))[-1] == 100_000
    found, batches = set(), list(sampler)
    sampler.set_epoch(1)
    assert len(batches) == len(sampler) == len([*sampler])
    assert batches != [*sampler]
    assert weights or sorted(row for rows in batches for row in rows) == [*range(700)]
    for rows in batches:
        batch = shaped(model, sampler.lengths)([data[row] for row in rows])
        labels = [ids[ids != -100].tolist() for ids in batch["labels"]]
        assert [ids for ids in labels if ids] == [data[row]["labels"] for row in rows]
        assert batch["input_ids"].shape == batch["labels"].shape
        found.add(batch["attention_mask"].shape)
    assert 1 < len(found) <= batches_module.MOST_SHAPES
    assert all(rows * length <= 150 for rows, length in found)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpora are not here")
@pytest.mark.parametrize(
    ("corpus", "size", "budget", "most"),
    [
        *(("multi30k/train", 9000, 1024, 0.1), ("tatoeba_deen/train", 8000, 1024, 0.101)),
        ("wmt14/newstest2014.en-de", 32_000, 3125, 0.13),  # its lengths stand for WMT's
    ],
)
def test_padding_to_few_lengths(corpus, size, budget, most):
    with gzip.open(SHARED / f"{corpus}.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["translation"] for line in lines]
    texts = [[text[language] for text in texts] for language in ("en", "de")]
    tokenizer = train_tokenizer(texts[0] + texts[1], vocab_size=size, show_progress=False)
    sides = [np.array([*map(len, tokenizer(side)["input_ids"])]) for side in texts]
    sides = np.tile(sides, -(-60_000 // len(texts[0])))
    sampler, padded = TokenBatchSampler(*sides, max_tokens=budget, few_shapes=True), 0
    for batch in sampler:
        length = min(each for each in sampler.lengths if each >= sides[:, batch].max())
        padded += 2 * (budget // length) * length
    assert 1 - sides.sum() / padded <= most


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("style", ["sinusoidal", "learned"])
def test_the_same_pairs_have_the_same_loss_and_gradients_in_any_shape(attention, style):
    fields = {"position_encoding": style, "max_position_embeddings": 20, "dropout": 0.0}
    model, results = tiny_model(attention=attention, **fields).train(), []
    data = [*copy_task(9).select_columns(["input_ids", "labels"])]
    for collate in (
        *(PairCollator(), shaped(model), shaped(model, [3, 14])),  # more rows and columns
        shaped(model, [3, 14], DataCollatorForSeq2Seq(byte_tokenizer(), model)),
        shaped(model, [3]),  # rows are longer than planned, as BPE-dropout makes them
    ):
        batch = collate(data)
        assert batch.get("right_padded") is (None if isinstance(collate, PairCollator) else True)
        gradients = torch.set_grad_enabled(attention != "flex_attention")  # not on a CPU
        with gradients, torch.compiler.set_stance("force_eager"):  # compiling takes minutes
            loss = model(**batch).loss
        model.zero_grad()
        if loss.requires_grad:
            loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for other in results[1:]:
        torch.testing.assert_close(other[0], results[0][0], rtol=1e-6, atol=0)
        torch.testing.assert_close(other[1:], results[0][1:], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "known"),
    [
        ({"labels": [7, 8, 2, 0]}, True),  # padding at the end
        ({"labels": [7, -100, 2]}, False),
        ({"attention_mask": [0, 1], "labels": [7, 2]}, False),
        ({"labels": [7, 2], "decoder_input_ids": [1, -100]}, False),
    ],
)
def test_only_batches_without_gaps_are_marked_and_all_have_their_loss(row, known):
    model, rows = tiny_model().eval(), [{"input_ids": [5, 2], **row}]
    batch = shaped(model)(rows)
    assert batch.get("right_padded", False) is known
    torch.testing.assert_close(model(**batch).loss, model(**PairCollator()(rows)).loss)


class Reads(TorchDispatchMode):
    """Counts operations whose result Python must know, for which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_update_reads_nothing_from_the_device(attention, monkeypatch):
    monkeypatch.setattr(loss_module, "_may_read", lambda x: False)  # as on a GPU
    model = tiny_model(attention=attention).train()
    batch = shaped(model, [13])([copy_task(9)[row] for row in range(9)])
    for marked in (True, False):
        batch["right_padded"] = marked
        with Reads() as reads:
            model(**batch, num_items_in_batch=torch.tensor(30)).loss.backward()
        assert bool(reads.count) is not marked
