"""R-Drop: the loss follows the formula, the trainer uses it, and invalid settings are rejected."""

import math

import pytest
import torch
from test_trainer import copy_task, make_trainer, tiny_model
from torch.nn import functional as F

from vanilla_transformer.recipes.recipe import make_recipe
from vanilla_transformer.train import r_drop
from vanilla_transformer.train.r_drop import r_drop_loss


def two_passes(seed=0, *, batch=3, length=5, vocab=7):
    generator = torch.Generator().manual_seed(seed)
    shape = (2 * batch, length, vocab)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(vocab, (batch, length), generator=generator)
    labels[0, 3:] = -100
    return logits, labels.repeat(2, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_half_the_authors_formula(smoothing):
    """L = -log p(y) - log q(y) + alpha / 2 (KL(p || q) + KL(q || p)), in plain Python."""
    logits, labels = two_passes()
    alpha, total, count, batch, vocab = 3.0, 0.0, 0, len(labels) // 2, logits.size(-1)
    for row in range(batch):
        for position, gold in enumerate(labels[row].tolist()):
            if gold == -100:
                continue
            p, q = (
                [math.exp(x) for x in logits[at, position].tolist()] for at in (row, row + batch)
            )
            p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
            wanted = [smoothing / vocab + (1 - smoothing) * (j == gold) for j in range(vocab)]
            for each in (p, q):
                total -= sum(w * math.log(x) for w, x in zip(wanted, each, strict=True))
            total += alpha / 2 * sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
            total += alpha / 2 * sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
            count += 1
    loss = r_drop_loss(logits, None, labels, alpha=alpha, label_smoothing=smoothing)
    torch.testing.assert_close(float(loss), total / count / 2, rtol=1e-6, atol=0)


def test_loss_of_equal_passes_is_the_cross_entropy():
    logits, labels = two_passes()
    logits[3:] = logits[:3]
    found = r_drop_loss(logits, None, labels, alpha=5.0, label_smoothing=0.1)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(float(found), float(expected), rtol=1e-6, atol=0)


def test_loss_is_symmetric_in_the_two_passes():
    logits, labels = two_passes()
    swapped = logits.roll(3, dims=0)
    first, second = (r_drop_loss(each, None, labels, alpha=2.0) for each in (logits, swapped))
    torch.testing.assert_close(first, second)


def test_sum_is_divided_by_the_number_of_labels_of_the_update():
    logits, labels = two_passes()
    mean, by_20 = (r_drop_loss(logits, None, labels, alpha=2.0, num_items=n) for n in (None, 20))
    torch.testing.assert_close(13 * mean, 20 * by_20)  # 15 positions, 2 of them padding


@pytest.mark.parametrize("chunk_size", [1, 4, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunked_loss_and_gradients_equal_those_of_all_logits(chunk_size, dtype, monkeypatch):
    monkeypatch.setattr(r_drop, "_CPU_CHUNK", chunk_size)
    _, labels = two_passes()
    torch.manual_seed(0)
    hidden = torch.randn(*labels.shape, 4, dtype=dtype, requires_grad=True)
    table = torch.randn(7, 4, dtype=dtype, requires_grad=True)
    options = {"alpha": 3.0, "label_smoothing": 0.1, "num_items": 17}
    results = []
    for given in ((hidden, table), (hidden @ table.T, None)):
        loss = r_drop_loss(*given, labels, **options)
        results.append((loss, *torch.autograd.grad(loss, (hidden, table))))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_trainers_loss_is_the_same_with_and_without_logits(tmp_path, norm_first):
    losses = []
    for changed in (False, True):
        model = tiny_model(dropout=0.3, norm_first=norm_first)
        if changed:  # a hook could change the logits, so they are computed
            model.lm_head.register_forward_hook(lambda *_: None)
        trainer = make_trainer(tmp_path, model=model.train(), r_drop=5.0)
        batch = trainer.data_collator([trainer.train_dataset[at] for at in range(6)])
        torch.manual_seed(3)
        losses.append(trainer.compute_loss(model, batch))
    torch.testing.assert_close(*losses)


def doubled(module, args, output):
    output.last_hidden_state = 2 * output.last_hidden_state
    return output


@pytest.mark.parametrize("changed", [False, True])
def test_trainer_computes_the_loss_on_every_pair_twice(tmp_path, changed):
    """Compare with torch's functions on two halves of one batch with the same dropout masks."""
    model = tiny_model(dropout=0.3, attention_dropout=0.1)
    if changed:  # the trainer must train the model as the user changed it
        model.model.decoder.register_forward_hook(doubled)
    trainer = make_trainer(tmp_path, model=model, r_drop=5.0)
    batch = trainer.data_collator([trainer.train_dataset[at] for at in range(6)])
    labels, count = batch["labels"], int((batch["labels"] != -100).sum())
    model.train()
    torch.manual_seed(3)
    found = trainer.compute_loss(model, dict(batch), num_items_in_batch=count)

    torch.manual_seed(3)
    twice = {name: batch[name].repeat(2, 1) for name in ("input_ids", "attention_mask")}
    shifted = model.prepare_decoder_input_ids_from_labels(labels).repeat(2, 1)
    logits = model(**twice, decoder_input_ids=shifted).logits
    p, q = (half[labels != -100].log_softmax(-1) for half in logits.chunk(2))
    gold = labels[labels != -100]
    expected = sum(F.cross_entropy(each, gold, label_smoothing=0.1) for each in (p, q)) / 2
    for one, other in ((p, q), (q, p)):
        expected += 5 / 4 * F.kl_div(other, one, log_target=True, reduction="batchmean")
    torch.testing.assert_close(found, expected)


def test_evaluation_computes_the_plain_loss_once_per_pair(tmp_path):
    losses = []
    for weight in (0.0, 5.0):
        trainer = make_trainer(tmp_path / str(weight), model=tiny_model(dropout=0.3), r_drop=weight)
        batch = trainer.data_collator([trainer.train_dataset[at] for at in range(6)])
        loss, outputs = trainer.compute_loss(trainer.model.eval(), batch, return_outputs=True)
        assert len(outputs.logits) == 6
        losses.append(loss)
    assert torch.equal(*losses)


def test_training_with_r_drop_reduces_the_divergence_of_passes(tmp_path):
    def divergence(weight):
        model = tiny_model(dropout=0.3)
        trainer = make_trainer(tmp_path / str(weight), model=model, r_drop=weight, max_steps=60)
        trainer.train()
        batch = trainer.data_collator([trainer.train_dataset[at] for at in range(40)])
        torch.manual_seed(0)
        p, q = (model.train()(**batch, return_logits=True).logits.log_softmax(-1) for _ in "pq")
        kept = batch["labels"] != -100
        return F.kl_div(q[kept], p[kept], log_target=True, reduction="batchmean").item()

    assert divergence(5.0) < 0.7 * divergence(0.0)


def test_loss_of_accumulated_batches_is_normalized_by_all_labels(tmp_path):
    trainer = make_trainer(tmp_path, train=copy_task(60), r_drop=5.0, logging_steps=1, max_steps=1)
    trainer.train()
    plain = make_trainer(tmp_path / "plain", train=copy_task(60), logging_steps=1, max_steps=1)
    plain.train()
    # Before the first update both passes are close, so the loss is close to the plain loss.
    found, expected = (each.state.log_history[0]["loss"] for each in (trainer, plain))
    assert expected <= found < 1.3 * expected


def test_model_without_dropout_is_rejected(tmp_path):
    told = r"r_drop: got 5 and a model without dropout.* give dropout"
    with pytest.raises(ValueError, match=told):
        make_trainer(tmp_path, model=tiny_model(dropout=0.0), r_drop=5.0)
    with pytest.raises(ValueError, match=told):
        make_recipe({"generated": "cldr", "pair": "en-de", "dropout": 0, "r_drop": 5})


def test_custom_loss_with_r_drop_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"compute_loss_func and r_drop"):
        make_trainer(tmp_path, given={"compute_loss_func": F.cross_entropy}, r_drop=5.0)
