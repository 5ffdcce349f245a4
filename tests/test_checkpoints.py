"""Which checkpoints count, are kept and are averaged."""

import json

import pytest

from vanilla_transformer.train.checkpoints import (
    MANIFEST,
    averaging_set,
    checkpoints,
    is_whole,
    last_whole_checkpoint,
    prune,
    seal,
)


def make(directory, *steps, sealed=True):
    for step in steps:
        checkpoint = directory / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"weights of %d" % step)
        (checkpoint / "rng_state.pth").write_bytes(b"dice")
        if sealed:
            seal(checkpoint)
    return directory


def names(paths):
    return [int(path.name.split("-")[1]) for path in paths]


def test_sealed_checkpoint_is_whole(tmp_path):
    make(tmp_path, 3)
    assert is_whole(tmp_path / "checkpoint-3")


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "no manifest", "half a manifest"])
def test_damaged_checkpoint_is_not_whole(tmp_path, damage, caplog):
    make(tmp_path, 3, 6)
    weights = tmp_path / "checkpoint-6" / "model.safetensors"
    manifest = weights.parent / MANIFEST
    match damage:
        case "truncate":
            weights.write_bytes(weights.read_bytes()[:-1])
        case "flip":
            weights.write_bytes(b"W" + weights.read_bytes()[1:])
        case "remove":
            weights.unlink()
        case "no manifest":
            manifest.unlink()
        case _:
            manifest.write_text(manifest.read_text()[:20])
    assert not is_whole(weights.parent)
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-3"
    assert "checkpoint-6 is not whole" in caplog.text


def test_no_checkpoint_is_no_checkpoint(tmp_path):
    assert last_whole_checkpoint(tmp_path) is None
    assert last_whole_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "checkpoint-best").mkdir()
    assert checkpoints(tmp_path) == {}


def test_checkpoints_are_ordered_by_update_not_by_name(tmp_path):
    assert list(checkpoints(make(tmp_path, 100, 20, 3))) == [3, 20, 100]


def test_average_takes_the_schedule_and_the_last(tmp_path):
    make(tmp_path, 10, 20, 30, 37, 40, 43)
    assert names(averaging_set(tmp_path, every=10, count=3)) == [30, 40, 43]
    assert names(averaging_set(tmp_path, every=10, count=99)) == [10, 20, 30, 40, 43]


def test_an_interruption_does_not_change_the_average(tmp_path):
    smooth = make(tmp_path / "smooth", 10, 20, 30)
    stopped = make(tmp_path / "stopped", 10, 17, 20, 30)
    assert names(averaging_set(smooth, every=10, count=2)) == names(
        averaging_set(stopped, every=10, count=2)
    )


def test_average_leaves_broken_checkpoints_out(tmp_path):
    make(tmp_path, 10, 30)
    make(tmp_path, 20, sealed=False)
    assert names(averaging_set(tmp_path, every=10, count=2)) == [10, 30]


def test_pruning_keeps_the_schedule_and_the_newest(tmp_path):
    make(tmp_path, 10, 20, 27, 30, 33)
    prune(tmp_path / "checkpoint-33", every=10, keep=2)
    assert list(checkpoints(tmp_path)) == [20, 30, 33]


def test_pruning_keeps_one_to_fall_back_on(tmp_path):
    make(tmp_path, 10, 20, 30)
    prune(tmp_path / "checkpoint-30", every=10, keep=1)
    assert list(checkpoints(tmp_path)) == [20, 30]


def test_pruning_removes_what_lies_after_the_newest(tmp_path):
    make(tmp_path, 10, 20)
    make(tmp_path, 30, sealed=False)
    prune(tmp_path / "checkpoint-20", every=10, keep=5)
    assert list(checkpoints(tmp_path)) == [10, 20]


def test_manifest_names_every_file(tmp_path):
    make(tmp_path, 1)
    files = json.loads((tmp_path / "checkpoint-1" / MANIFEST).read_text())["files"]
    assert set(files) == {"model.safetensors", "rng_state.pth"}
