"""One update of a tiny model, by one batch or by the stock trainer."""

import pytest
import torch
from tiny_trainers import tiny_model


def examples(count=8):
    """Return pairs with targets of very different lengths, which would reveal a mean of means."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for i in range(count):
        ids, labels = (torch.randint(4, 23, (n,), generator=generator) for n in (3 + i % 3, 1 + i))
        rows.append({"input_ids": [*ids.tolist(), 2], "labels": [*labels.tolist(), 2]})
    return rows


def collate(rows):
    def padded(name, value):
        tensors = [torch.tensor(row[name]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)

    ids = padded("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": padded("labels", -100)}


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same_update(actual, expected):
    """Compare to 1e-6, gradients as one vector, since some are zero up to rounding."""
    (loss, parts), (expected_loss, expected_parts) = actual, expected
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert parts.keys() == expected_parts.keys()
    gradient, expected = (
        torch.cat([p.flatten() for p in g.values()]) for g in (parts, expected_parts)
    )
    assert (gradient - expected).norm() <= 1e-6 * expected.norm()


def one_batch(rows):
    model = tiny_model(dropout=0.0).train()
    loss = model(**collate(rows)).loss
    loss.backward()
    return loss.item(), gradients(model)


def trainer_update(output_dir, *, batch_size, accumulation=1):
    """Return loss and gradients of one update on the eight examples with Seq2SeqTrainer."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

    seen = {}

    class KeepGradients(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            seen.update(gradients(model))

    arguments = Seq2SeqTrainingArguments(
        **{"output_dir": str(output_dir), "max_steps": 1, "logging_steps": 1},
        **{"save_strategy": "no", "disable_tqdm": True, "report_to": "none", "use_cpu": True},
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=0.0,
        dataloader_pin_memory=False,
    )
    trainer = Seq2SeqTrainer(
        model=tiny_model(dropout=0.0).train(),
        args=arguments,
        train_dataset=examples(),
        data_collator=collate,
        callbacks=[KeepGradients()],
    )
    trainer.train()
    return trainer.state.log_history[0]["loss"], seen
