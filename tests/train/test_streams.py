"""A training on a stream goes on with the batches that it would have had."""

import numpy as np
import pytest
import torch
from tiny_trainers import assert_equal, copy_task, make_trainer, tiny_model, weights
from transformers import TrainerCallback

PAIRS = 22
BATCHES = 6  # of a pass, the last one smaller
SETTINGS = {
    **{"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "save_steps": 99},
    **{"max_steps": 15, "logging_steps": 1},
}


def pairs(count=PAIRS):
    return copy_task(count).select_columns(["input_ids", "labels"])


def shuffled(shards):
    return pairs().to_iterable_dataset(shards).shuffle(seed=3, buffer_size=7)


class Rows(torch.utils.data.IterableDataset):
    """Rows in an order of their own in each epoch, whose number differs too."""

    def __init__(self):
        self.rows, self.epoch = list(pairs()), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = np.random.default_rng(self.epoch).permutation(PAIRS)
        return (self.rows[index] for index in order[self.epoch :])


class SaveAt(TrainerCallback):
    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save |= state.global_step in self.steps


def trainer_on(stream, directory, *, saves=(), **settings):
    model, callbacks = tiny_model(dropout=0.3), [SaveAt(saves)]
    given = {"train": stream, "model": model, "callbacks": callbacks}
    return make_trainer(directory, **given, **{**SETTINGS, **settings})


WORKERS = {"dataloader_num_workers": 2}


@pytest.mark.parametrize(
    ("make", "settings", "steps"),
    [
        # Within the first three passes, of which some have other lengths, and at an end of one.
        (lambda: shuffled(1), {}, (2, BATCHES, 9, 2 * BATCHES + 1)),
        (Rows, {}, (2, BATCHES, 9, 2 * BATCHES + 1)),
        (lambda: shuffled(3), WORKERS, (2, 9)),
        (lambda: shuffled(2), {**WORKERS, "dataloader_persistent_workers": True}, (9,)),
        (lambda: shuffled(1), {"gradient_accumulation_steps": 4, "max_steps": 4}, (1, 2, 3)),
    ],
    ids=["shuffled", "own", "workers", "persistent", "accumulated"],
)
def test_a_stream_resumes_in_each_of_its_passes(make, settings, steps, tmp_path):
    whole = trainer_on(make(), tmp_path / "whole", saves=steps, **settings)
    whole.train()
    for step in steps:
        part = trainer_on(make(), tmp_path / f"part-{step}", **settings)
        part.train(tmp_path / "whole" / f"checkpoint-{step}")
        assert_equal(weights(part), weights(whole))
        for key in ("epoch", "loss"):
            logs = [[log[key] for log in t.state.log_history if key in log] for t in (whole, part)]
            assert logs[0] == logs[1]
        assert not part.args.ignore_data_skip


def test_an_update_takes_batches_of_one_pass(tmp_path):
    """Else the gradients of what is left of a pass would be added to those of the next one."""
    settings = {"gradient_accumulation_steps": 4, "max_steps": 2, "save_strategy": "no"}
    trainer = trainer_on(pairs().to_iterable_dataset(), tmp_path, **settings)
    trainer.train()
    first = sum(map(len, pairs()["labels"][:16]))
    counts = [log["target_tokens"] for log in trainer.state.log_history if "loss" in log]
    assert counts == [first, 2 * first]


def test_a_pass_without_an_update_is_refused(tmp_path):
    with pytest.raises(ValueError, match="an update needs 9 batches"):
        trainer_on(shuffled(1), tmp_path, gradient_accumulation_steps=9).train()


def test_a_complete_training_is_not_continued(tmp_path):
    """Which the trainers of transformers do by one update."""
    for number, make in enumerate((lambda: shuffled(1), pairs)):
        folder = tmp_path / str(number)
        settings = {"max_steps": 8, "batch_tokens": None}
        trainer = trainer_on(make(), folder, **settings)
        trainer.train()
        before = weights(trainer)
        again = trainer_on(make(), folder, **settings)
        again.train(True)
        assert_equal(weights(again), before)
        assert [path.name for path in folder.iterdir()] == ["checkpoint-8"]


class Once(torch.utils.data.IterableDataset):
    def __init__(self):
        self.rows = iter(list(pairs()))

    def set_epoch(self, epoch):
        pass

    def __iter__(self):
        return self.rows


class WithoutEpoch(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(list(pairs()))


@pytest.mark.parametrize(
    ("stream", "said"), [(WithoutEpoch(), "without set_epoch"), (Once(), "stream ended after")]
)
def test_a_stream_that_cannot_be_repeated_is_refused_at_the_resume(stream, said, tmp_path):
    trainer_on(stream, tmp_path, saves=[3], max_steps=4).train()
    stopped = tmp_path / "checkpoint-3"
    with pytest.raises(ValueError, match=said):
        trainer_on(stream, tmp_path, max_steps=4).train(stopped)
    trainer_on(Rows(), tmp_path / "new", max_steps=4, ignore_data_skip=True).train(stopped)
