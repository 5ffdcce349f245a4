"""A trainer of a tiny model that learns to copy, and what to compare of it."""

import numpy as np
import torch
from datasets import Dataset
from tiny_models import tiny_config
from transformers import TrainerCallback

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.train import VanillaTransformerTrainer, VanillaTransformerTrainingArguments

VOCAB = 40


def copy_task(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        ids = [*rng.integers(4, VOCAB, rng.integers(1, 12)).tolist(), 2]
        rows.append({"input_ids": ids, "labels": ids})
    lengths = [len(row["labels"]) for row in rows]
    data = Dataset.from_list(rows).add_column("source_length", lengths)
    return data.add_column("target_length", lengths)


def tiny_model(**overrides):
    torch.manual_seed(1)
    return VanillaTransformerForConditionalGeneration(tiny_config(VOCAB, **overrides))


def make_trainer(directory, *, model=None, train=None, callbacks=None, given=None, **overrides):
    settings = {
        **{"batch_tokens": 150, "gradient_accumulation_steps": 2, "max_steps": 12},
        **{"warmup_steps": 10, "learning_rate_factor": 0.1},
        **{"save_strategy": "steps", "save_steps": 4, "logging_steps": 4},
        **{"report_to": "none", "disable_tqdm": True, "use_cpu": True},
    }
    args = VanillaTransformerTrainingArguments(output_dir=str(directory), **settings | overrides)
    data = {
        "train_dataset": copy_task(100) if train is None else train,
        "eval_dataset": copy_task(30, seed=5),
    }
    data |= given or {}
    if model is None and "model_init" not in data:
        model = tiny_model()
    return VanillaTransformerTrainer(model, args, callbacks=callbacks, **data)


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


class At(TrainerCallback):
    """Callback that calls `action` at the end of an update."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()
