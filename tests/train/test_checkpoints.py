"""Which checkpoints are whole, kept, averaged and safe to resume from."""

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from full_disk import largest_file
from tiny_trainers import make_trainer

from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.run_files import MANIFEST
from vanilla_transformer.train.checkpoints import (
    PROGRESS,
    Progress,
    averaging_set,
    checkpoints,
    is_whole,
    last_whole_checkpoint,
    prune,
    seal,
    stopped_early,
)


def make(directory, *steps, sealed=True):
    for step in steps:
        checkpoint = directory / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"weights of %d" % step)
        (checkpoint / "rng_state.pth").write_bytes(b"dice")
        Progress().save(checkpoint)
        if sealed:
            seal(checkpoint)
    return directory


def names(paths):
    return [int(path.name.split("-")[1]) for path in paths]


@pytest.mark.parametrize(
    ("losses", "patience", "stops"),
    [
        *(([], 1, False), ([3.0], 1, False), ([3.0, 4.0, 5.0, 6.0], None, False)),
        *(([3.0, 2.0, 2.5], 1, True), ([3.0, 2.0, 2.5], 2, False)),
        *(([3.0, 2.0, 2.5, 1.9], 2, False), ([3.0, 2.0, 2.0, 2.0], 2, True)),
    ],
)
def test_patience_counts_evaluations_since_the_lowest_loss(losses, patience, stops):
    history = [{"step": 5 * i, "eval_loss": loss} for i, loss in enumerate(losses)]
    history += [{"step": 5 * i, "loss": 0.1} for i in range(9)]
    assert stopped_early(history, patience) == stops


@pytest.mark.parametrize(
    ("steps", "broken", "count", "averaged"),
    [
        ((10, 20, 30, 37, 40, 43), (), 3, [30, 40, 43]),  # the scheduled ones and the last
        ((10, 20, 30, 37, 40, 43), (), 99, [10, 20, 30, 40, 43]),
        ((10, 20, 30), (), 2, [20, 30]),
        ((10, 17, 20, 30), (), 2, [20, 30]),  # an interruption does not change the average
        ((10, 30), (20,), 2, [10, 30]),
    ],
)
def test_average_takes_whole_checkpoints_and_the_last(tmp_path, steps, broken, count, averaged):
    make(tmp_path, *steps)
    make(tmp_path, *broken, sealed=False)
    assert names(averaging_set(tmp_path, every=10, count=count)) == averaged


def test_tokens_are_counted_beyond_what_float32_holds():
    progress = Progress(_tokens=2**24)
    for _ in range(3):
        progress.count(torch.tensor(1.0))
    assert progress.target_tokens == 2**24 + 3


def test_evaluations_count_in_the_time_and_not_in_the_speed(monkeypatch):
    now = [5.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("vanilla_transformer.train.checkpoints.time", clock)
    progress = Progress()
    progress.start()
    for tokens, seconds, evaluating in ((100, 20.0, 10.0), (60, 15.0, 3.0)):
        progress.count(tokens)
        progress.evaluation_seconds += evaluating
        now[0] += seconds
        found = progress.since_last_log()
        assert found["target_tokens_per_second"] == tokens / (seconds - evaluating)
    assert found["minutes"] == round(35 / 60, 3)
    progress.stop()
    now[0] += 100  # no longer part of the training
    assert progress.seconds == progress.training_seconds == 35


@pytest.mark.parametrize(
    ("steps", "broken", "newest", "keep", "kept"),
    [
        ((10, 20, 27, 30, 33), (), 33, 2, [20, 30, 33]),  # the scheduled ones and the newest
        ((10, 20, 30), (), 30, 1, [20, 30]),  # an earlier one to fall back on
        ((10, 20), (30,), 20, 5, [10, 20]),  # no later ones
    ],
)
def test_pruning_keeps_what_a_run_may_need(tmp_path, steps, broken, newest, keep, kept):
    make(tmp_path, *steps)
    make(tmp_path, *broken, sealed=False)
    prune(tmp_path / f"checkpoint-{newest}", every=10, keep=keep)
    assert list(checkpoints(tmp_path)) == kept


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a checkpoint that a trainer wrote after three updates."""
    directory = tmp_path_factory.mktemp("trained")
    make_trainer(directory, max_steps=3, save_steps=3).train()
    return directory / "checkpoint-3"


@pytest.fixture
def checkpoint(trained, tmp_path):
    """Return a copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "checkpoint-3"))


class Evil:
    """Creates a directory when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.mark.parametrize("name", STATE)
@pytest.mark.parametrize("form", ["zip", "legacy", "bare pickle"])
def test_resumption_runs_no_code_of_a_checkpoint(checkpoint, tmp_path, name, form):
    if form == "bare pickle":
        (checkpoint / name).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    else:
        content = {"state": Evil(tmp_path / "ran"), "param_groups": []}
        torch.save(content, checkpoint / name, _use_new_zipfile_serialization=form == "zip")
    seal(checkpoint)
    trainer = make_trainer(tmp_path / "run")
    with pytest.raises(ValueError, match=r"cannot resume from .*: Weights only load failed"):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_run_no_code(checkpoint, tmp_path):
    (checkpoint / "model.safetensors").unlink()
    torch.save({"a": Evil(tmp_path / "ran")}, checkpoint / "pytorch_model.bin")
    for name in ("adapter_model.bin", "scaler.pt", "training_args.bin"):
        torch.save(Evil(tmp_path / "ran"), checkpoint / name)
    seal(checkpoint)
    with pytest.raises(ValueError, match=r"lacks \.safetensors"):
        make_trainer(tmp_path / "run").train(resume_from_checkpoint=str(checkpoint))
    assert not (tmp_path / "ran").exists()


def test_full_disk_gives_a_one_line_error_and_the_run_can_resume(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run / trained.name)
    trainer = make_trainer(run, max_steps=6, save_steps=3)
    with (
        pytest.raises((RequestError, OSError), match=r"could not be written|File too large"),
        largest_file(2_000),
    ):
        trainer.train(resume_from_checkpoint=True)
    assert last_whole_checkpoint(run).name == "checkpoint-3"
    (run / "checkpoint-6" / "tokenizer.json" / "a folder").mkdir(parents=True)
    make_trainer(run, max_steps=6, save_steps=3).train(resume_from_checkpoint=True)
    assert is_whole(run / "checkpoint-6")


def test_checkpoint_files_are_synced_before_the_manifest(tmp_path, monkeypatch):
    make(tmp_path, 3, sealed=False)
    done, sync = [], os.fsync

    def noted(descriptor):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    seal(tmp_path / "checkpoint-3")
    before = done[: done.index(MANIFEST)]
    assert {*before} == {"model.safetensors", "rng_state.pth", PROGRESS, "checkpoint-3"}
