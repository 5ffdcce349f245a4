"""Files and folders appear whole or not at all."""

import contextlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from killed_processes import killed_before
from published_runs import tiny_model

from vanilla_transformer.errors import RequestError
from vanilla_transformer.storage.atomic import (
    MARKER,
    check_folder,
    check_outputs,
    file_written_aside,
    files_written_aside,
    folder_written_aside,
    write_aside,
    write_json,
    write_text,
)


class Crash(Exception):
    """Interrupts a write."""


def write_half(path):
    path.write_text("half")
    raise Crash


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_crash_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    for old in ([], ["a.json"]):
        with pytest.raises(Crash):
            write_aside(path, write_half)
        assert names(tmp_path) == set(old)
        write_text(path, "old")
    assert path.read_text() == "old"


@pytest.mark.parametrize("exists", [True, False])
def test_writing_to_a_symlink_replaces_its_target(tmp_path, exists):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "scores.json", tmp_path / "latest.json"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    write_json(link, {"a": 1})
    assert link.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1}
    assert names(tmp_path / "data") == {"scores.json"}


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through the pipe")
    reader.join(timeout=30)
    assert got == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == {"pipe"}


def test_standard_output_is_written_to_and_not_replaced(tmp_path):
    target = tmp_path / "out"
    with target.open("w") as stream:
        path = Path(f"/proc/self/fd/{stream.fileno()}")
        before = target.stat().st_ino
        write_text(path, "text")
    assert target.read_text() == "text"
    assert target.stat().st_ino == before


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    output = tmp_path / "new" / "parents" / "out"
    with pytest.raises(FileNotFoundError), folder_written_aside(output) as aside:
        write_half(aside / "a")  # the folder itself was not made
    with contextlib.suppress(Crash), folder_written_aside(output) as aside:
        aside.mkdir()
        write_half(aside / "a")
    assert names(tmp_path) == set()
    with folder_written_aside(output) as aside:
        aside.mkdir()
        (aside / "a").write_text("whole")
        assert not output.exists()
    assert (output / "a").read_text() == "whole"
    assert names(output.parent) == {"out"}


@pytest.mark.parametrize("name", ["link", "empty", "."])
def test_an_empty_folder_stays_and_gets_the_files(tmp_path, monkeypatch, name):
    """It may be a mount point or a shell's current directory, which nothing can replace."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "link").symlink_to(empty)
    monkeypatch.chdir(empty if name == "." else tmp_path)
    before = empty.stat().st_ino
    with contextlib.suppress(Crash), folder_written_aside(Path(name)) as aside:
        aside.mkdir()
        write_half(aside / "a")
    assert names(empty) == set()
    with folder_written_aside(Path(name)) as aside:
        (aside / "inside").mkdir(parents=True)
        (aside / "inside" / "a").write_text("whole")
        assert not (empty / "inside").exists()
    assert (empty / "inside" / "a").read_text() == "whole"
    assert names(empty) == {"inside", MARKER}
    assert empty.stat().st_ino == before
    assert (tmp_path / "link").is_symlink()


def test_a_folder_is_replaced_only_if_it_was_written_here(tmp_path):
    output = tmp_path / "out"

    def write(name):
        with folder_written_aside(output) as aside:
            (aside / "inside").mkdir(parents=True)
            (aside / "inside" / name).write_text(name)

    for name in ("a", "b"):
        write(name)
        assert names(output) == {"inside", MARKER}
        assert names(output / "inside") == {name}
        (output / "mine").write_text("mine")
    (output / MARKER).unlink()
    for taken in (output, output / "inside" / "b"):
        with pytest.raises(RequestError, match="must be new or empty, but has"):
            check_folder(taken)
    with pytest.raises(RequestError, match="but has inside, mine; name"):
        write("c")


def test_commands_replace_an_output_only_on_request_and_an_input_never(tmp_path):
    output, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    output.write_text("old")
    link.symlink_to(output)
    with folder_written_aside(folder) as aside:
        aside.mkdir()
    for given in (([output], []), ([], [folder])):
        with pytest.raises(RequestError, match="exists; give --overwrite to replace it"):
            check_outputs(*given, inputs=[], overwrite=False)
        check_outputs(*given, inputs=[], overwrite=True)
    for path in (output, link):
        with pytest.raises(RequestError, match=f"{path} is also an input"):
            check_outputs([path], [], inputs=[output], overwrite=True)
    check_outputs([Path("/dev/null"), tmp_path / "new"], [], inputs=[], overwrite=False)


@pytest.mark.parametrize(
    "before", [pytest.param("nothing", marks=pytest.mark.slow), "an empty folder", "an older one"]
)
def test_a_write_that_is_killed_at_any_change_can_be_repeated(tmp_path, before):
    def write(output, text):
        with folder_written_aside(output) as aside:
            (aside / "inside").mkdir(parents=True)
            for name in ("a", text):
                (aside / "inside" / name).write_text(text)

    for change in range(100):
        output = tmp_path / str(change) / "new" / "out"
        if before != "nothing":
            output.mkdir(parents=True)
        if before == "an older one":
            write(output, "old")
        changes = killed_before(change, lambda output=output: write(output, "new"))
        write(output, "new")
        assert names(output.parent) == {"out"}
        assert names(output) == {"inside", MARKER}
        assert names(output / "inside") == {"a", "new"}
        if changes <= change:
            break
    assert changes > 10


def test_leftovers_are_removed_unless_their_process_lives(tmp_path):
    killed_before(3, lambda: write_text(tmp_path / "a", "x"))
    assert names(tmp_path) == {left := next(tmp_path.iterdir()).name}
    with file_written_aside(tmp_path / "a") as aside:
        assert left not in names(tmp_path)
        write_text(tmp_path / "b", "x")
        aside.write_text("x")
    assert names(tmp_path) == {"a", "b"}


def test_weights_have_the_permissions_of_other_files(tmp_path):
    with folder_written_aside(tmp_path / "out") as aside:
        tiny_model().save_pretrained(aside)
        os.chmod(aside / "model.safetensors", 0o600)
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1


def test_files_of_a_folder_are_replaced_together_and_the_last_one_last(tmp_path, monkeypatch):
    for name in ("a", "b", "mine"):
        (tmp_path / name).write_text("old")
    (tmp_path / ".vanilla-transformer-partial-files-killed").mkdir()
    with pytest.raises(Crash), files_written_aside(tmp_path, last="a") as aside:
        write_half(aside / "a")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"old"}
    replace, moved = Path.replace, []
    monkeypatch.setattr(Path, "replace", lambda *of: moved.append(of[0].name) or replace(*of))
    with files_written_aside(tmp_path, last="a") as aside:
        for name in ("a", "b"):
            (aside / name).write_text("new")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a": "new", "b": "new", "mine": "old"}
    assert moved == ["b", "a"]


def test_files_are_synced_before_the_rename_and_folders_after(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace

    def noted_sync(descriptor):
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def noted_replace(path, target):
        done.append(("name", target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    (tmp_path / "folder").mkdir()
    write_text(tmp_path / "folder" / "a", "x")
    assert done == [("sync", "a"), ("name", "a"), ("sync", "folder")]
    done.clear()
    with files_written_aside(tmp_path / "folder", last="b") as aside:
        (aside / "b").write_text("x")
    assert done == [("sync", "b"), ("name", "b"), ("sync", "folder")]
    done.clear()
    with folder_written_aside(tmp_path / "new") as aside:
        (aside / "inside").mkdir(parents=True)
        (aside / "inside" / "b").write_text("x")
    assert set(done[:4]) == {("sync", name) for name in ("b", "inside", MARKER, "new")}
    assert done[4:] == [("name", "new"), ("sync", tmp_path.name)]
