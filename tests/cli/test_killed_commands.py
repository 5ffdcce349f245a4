"""Commands that are killed while they write: the same command ends well and leaves nothing else."""

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from full_disk import largest_file
from killed_processes import killed_before
from published_runs import write_run
from tiny_runs import tiny_recipe

from vanilla_transformer.cli import main
from vanilla_transformer.publish import space

PUBLISH = ["publish", "run", "--repo", "user/de-en"]
COMMANDS = {
    "average": ["average", "one", "two", "--output", "out"],
    "export": ["export", "stock", "run", "out"],
    "import": ["import", "marian", "marian", "out"],
    "publish": [*PUBLISH, "--license", "mit", "--output", "out"],
    "space": [*PUBLISH, "--space"],
}
QUICK = ("average", "space")
CASES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in COMMANDS]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a run, two checkpoints and a Marian model."""
    folder = tmp_path_factory.mktemp("made")
    write_run(folder / "run")
    for seed, name in enumerate(("one", "two")):
        shutil.rmtree(write_run(folder / name, seed=seed) / "checkpoints")
    assert main(["export", "stock", str(folder / "run"), str(folder / "marian")]) == 0
    return folder


def names(folder):
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.mark.usefixtures("quick_publishing")
@pytest.mark.parametrize("command", CASES)
def test_a_killed_command_can_be_repeated(command, made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(space, "_try_out", lambda folder, directory: None)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    undisturbed = shutil.copytree(made, tmp_path / "undisturbed")
    monkeypatch.chdir(undisturbed)
    with largest_file(10), pytest.raises((SystemExit, Exception)):
        sys.exit(main(COMMANDS[command]))
    assert names(undisturbed) == names(made)
    changes = killed_before(10**6, lambda: main(COMMANDS[command]))
    # Every change of the writer itself is in test_atomic.py.
    for change in (0, changes // 2, changes - 1):
        place = shutil.copytree(made, tmp_path / str(change))
        monkeypatch.chdir(place)
        assert killed_before(change, lambda: main(COMMANDS[command])) == change + 1
        # The whole output may be there already.
        repeated = [*COMMANDS[command], *(["--overwrite"] * Path("out").exists())]
        assert main(repeated) == 0
        assert names(place) == names(undisturbed)
        assert not names(temporary)


# Sends a signal at the n-th import or opening of a file; the command must not just go on.
PROGRAM = """
import os, signal, sys
left = iter(range(int(sys.argv[1]), -1, -1))
signum, sys.argv = int(sys.argv[2]), ["vanilla-transformer", *sys.argv[3:]]
def count(event, given):
    if event in ("import", "open") and next(left, None) == 0:
        os.kill(os.getpid(), signum)
sys.addaudithook(count)
from vanilla_transformer.cli import main
sys.exit(main() or 99 * (next(left, None) is None))
"""
INTERRUPTED = (
    "translate run text.txt --output out --overwrite",
    "evaluate run --pair de-en --test-file test.jsonl --output out.json --overwrite",
    "train tiny.yaml --output-dir trained",
)


@pytest.mark.slow
@pytest.mark.parametrize("command", INTERRUPTED)
def test_no_interrupt_is_lost_or_shown_as_a_traceback(command, made, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "place"))
    tiny_recipe(Path())
    Path("run/recipe.yaml").unlink()
    Path("text.txt").write_text("ein Hund\n" * 9)
    for number in random.Random(command).sample(range(200, 5000), 12):
        words = [PROGRAM, number, signum := 15 if number % 2 else 2, *command.split()]
        words = [sys.executable, "-c", *map(str, words)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signum, 128 + signum), ended.stderr
        assert "Traceback" not in ended.stderr
    assert main(command.split()) == 0
