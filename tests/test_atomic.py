"""Files and folders that appear whole or not at all."""

import contextlib
import hashlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from published_runs import tiny_model

from vanilla_transformer.storage.atomic import (
    check_new_folder,
    file_written_aside,
    files_written_aside,
    folder_written_aside,
    write_aside,
    write_json,
    write_text,
)
from vanilla_transformer.storage.reading import read_json, sha256


class Crash(Exception):
    """What ends a write in the middle."""


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


def test_no_file_of_a_user_is_touched(tmp_path):
    for name in ("a.partial", ".a.partial", ".a.tmp", "a.tmp"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    write_text(tmp_path / "a", "new")
    with folder_written_aside(tmp_path / "b") as aside:
        aside.mkdir()
    assert names(tmp_path) == before | {"a", "b"}
    assert {(tmp_path / name).read_text() for name in before} == {"mine"}


def test_the_file_is_on_the_way_under_its_own_name(tmp_path):
    with file_written_aside(tmp_path / "a.png") as aside:
        assert aside.name == "a.png"
        assert aside.parent.parent == tmp_path.resolve()
        aside.write_bytes(b"picture")
    assert (tmp_path / "a.png").read_bytes() == b"picture"


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_file_is_replaced(tmp_path, exists):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "scores.json", tmp_path / "latest.json"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    write_json(link, {"a": 1})
    assert link.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1}
    assert names(tmp_path / "data") == {"scores.json"}


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through the pipe")
    reader.join(timeout=30)
    assert got == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == {"pipe"}


def test_a_device_is_written_to_and_stays(tmp_path):
    # A terminal: unlike /dev/null, nobody can put a file in its place if this goes wrong.
    reader, writer = os.openpty()
    device = os.ttyname(writer)
    (tmp_path / "terminal").symlink_to(device)
    write_text(tmp_path / "terminal", "away")
    assert os.read(reader, 100) == b"away"
    assert (tmp_path / "terminal").is_symlink()
    assert stat.S_ISCHR(os.stat(device).st_mode)
    os.close(reader)
    os.close(writer)


def test_the_standard_output_is_no_file_to_replace(tmp_path):
    target = tmp_path / "out"
    with target.open("w") as stream:
        path = Path(f"/proc/self/fd/{stream.fileno()}")
        before = target.stat().st_ino
        write_text(path, "text")
    assert target.read_text() == "text"
    assert target.stat().st_ino == before


def test_files_of_one_folder_and_a_file_in_it_can_be_written_at_once(tmp_path):
    with file_written_aside(tmp_path / "translation") as aside:
        aside.write_text("long work")
        with files_written_aside(tmp_path, last="b") as folder:
            (folder / "b").write_text("b")
    assert (tmp_path / "translation").read_text() == "long work"
    assert names(tmp_path) == {"translation", "b"}


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    for path in (tmp_path / "nowhere" / "a.json", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory") as refusal:
            write_text(path, "x")
        assert refusal.value.filename == str(path)


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


def test_an_empty_folder_is_filled_and_another_one_is_refused(tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    check_new_folder(output)
    with folder_written_aside(output) as aside:
        aside.mkdir()
        (aside / "a").write_text("x")
    for taken in (output, output / "a"):
        with pytest.raises(ValueError, match="exists and is not an empty directory; name another"):
            check_new_folder(taken)


def test_weights_are_readable_like_the_other_files(tmp_path):
    with folder_written_aside(tmp_path / "out") as aside:
        tiny_model().save_pretrained(aside)
        os.chmod(aside / "model.safetensors", 0o600)
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1


def test_some_files_of_a_folder_are_replaced_together(tmp_path):
    for name in ("a", "b", "mine"):
        (tmp_path / name).write_text("old")
    left = tmp_path / ".vanilla-transformer-partial-files-killed"
    left.mkdir()
    with pytest.raises(Crash), files_written_aside(tmp_path, last="a") as aside:
        write_half(aside / "a")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"old"}
    with files_written_aside(tmp_path, last="a") as aside:
        for name in ("a", "b"):
            (aside / name).write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a": "new",
        "b": "new",
        "mine": "old",
    }


def test_the_last_file_comes_when_the_others_are_there(tmp_path, monkeypatch):
    replace, moved = Path.replace, []

    def noted(path, target):
        moved.append(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    with files_written_aside(tmp_path, last="b") as aside:
        for name in "abc":
            (aside / name).write_text("new")
    assert sorted(moved) == ["a", "b", "c"]
    assert moved[-1] == "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ', r"a\.json is not JSON \(.*\); leave it out\."),
        ("[1]", r"a\.json holds a list; expected an object; leave it out\."),
    ],
)
def test_json_that_is_no_object_is_refused_with_the_remedy(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "a.json", remedy="leave it out")
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"a\.json is not JSON"):
        read_json(tmp_path / "a.json")


def test_json_comes_back_as_it_was_written(tmp_path):
    content = {"b": "\u00fcber", "a": [1, 0.5, None]}
    write_json(tmp_path / "a.json", content)
    assert list(read_json(tmp_path / "a.json").items()) == list(content.items())
    assert "\u00fcber" in (tmp_path / "a.json").read_text(encoding="utf-8")
    write_json(tmp_path / "a.json", content, sort_keys=True)
    assert list(read_json(tmp_path / "a.json")) == ["a", "b"]
    (tmp_path / "list.json").write_text("[1]")
    assert read_json(tmp_path / "list.json", list) == [1]


def test_digest_is_that_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    assert sha256(tmp_path / "a") == hashlib.sha256(b"x" * 100_000).hexdigest()
