"""A training on a data set without a length."""

import pytest
from tiny_trainers import assert_equal, copy_task, make_trainer, weights

SETTINGS = {"per_device_train_batch_size": 4, "logging_steps": 1}


def pairs():
    """Return enough pairs for six batches, the last one smaller."""
    return copy_task(22).select_columns(["input_ids", "labels"])


def stream():
    return pairs().to_iterable_dataset().shuffle(seed=3, buffer_size=7)


def test_an_update_takes_batches_of_one_pass(tmp_path):
    """Else the gradients of what is left of a pass would be added to those of the next one."""
    settings = {"gradient_accumulation_steps": 4, "max_steps": 2, "save_strategy": "no"}
    trainer = make_trainer(
        tmp_path, train=pairs().to_iterable_dataset(), **{**SETTINGS, **settings}
    )
    trainer.train()
    first = sum(map(len, pairs()["labels"][:16]))
    counts = [log["target_tokens"] for log in trainer.state.log_history if "loss" in log]
    assert counts == [first, 2 * first]


def test_a_stream_resumes_only_from_its_beginning(tmp_path):
    make_trainer(tmp_path, train=stream(), max_steps=3, **SETTINGS).train()
    with pytest.raises(ValueError, match="give ignore_data_skip=True"):
        make_trainer(tmp_path, train=stream(), max_steps=9, **SETTINGS).train(True)
    anew = make_trainer(tmp_path, train=stream(), max_steps=9, ignore_data_skip=True, **SETTINGS)
    anew.train(True)
    assert anew.state.global_step == 9


def test_a_complete_training_is_not_continued(tmp_path):
    """Which the trainers of transformers do by one update."""
    settings = {"max_steps": 8, "save_steps": 99}
    trainer = make_trainer(tmp_path, train=pairs(), **settings)
    trainer.train()
    before = weights(trainer)
    again = make_trainer(tmp_path, train=pairs(), **settings)
    again.train(True)
    assert_equal(weights(again), before)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-8"]
