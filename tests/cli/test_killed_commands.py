"""Commands that are killed while they write: the same command ends well and leaves nothing else."""

import shutil
import tempfile

import pytest
from killed_processes import killed_before
from published_runs import write_run

from vanilla_transformer.cli import main
from vanilla_transformer.publish import space
from vanilla_transformer.storage.atomic import MARKER, PARTIAL

PUBLISH = ["publish", "run", "--repo", "user/de-en"]
COMMANDS = {
    "average": ["average", "one", "two", "--output", "out"],
    "export": ["export", "marian", "run", "out"],
    "import": ["import", "marian", "marian", "out"],
    "publish": [*PUBLISH, "--license", "mit", "--output", "out", "--card-dir", "card"],
    "space": [*PUBLISH, "--space"],
    "translate": ["translate", "run", "in.txt", "--output", "out", "--attention", "a.png"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a run, two checkpoints and a Marian model."""
    folder = tmp_path_factory.mktemp("made")
    write_run(folder / "run")
    for seed, name in enumerate(("one", "two")):
        shutil.rmtree(write_run(folder / name, seed=seed) / "checkpoints")
    assert main(["export", "marian", str(folder / "run"), str(folder / "marian")]) == 0
    (folder / "in.txt").write_text("ein Hund\n", encoding="utf-8")
    return folder


@pytest.mark.usefixtures("quick_publishing")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_command_can_be_repeated(command, made, tmp_path, monkeypatch):
    monkeypatch.setattr(space, "_try_out", lambda folder, directory: None)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    shutil.copytree(made, tmp_path / "undisturbed")
    monkeypatch.chdir(tmp_path / "undisturbed")
    changes = killed_before(10**6, lambda: main(COMMANDS[command]))
    expected = {path for path in (tmp_path / "undisturbed").rglob("*")}
    assert not list((tmp_path / "temporary").iterdir())
    # Every change of the writer itself is in test_atomic.py.
    for change in (0, *range(changes // 3, changes, changes // 5)):
        place = shutil.copytree(made, tmp_path / str(change))
        monkeypatch.chdir(place)
        assert killed_before(change, lambda: main(COMMANDS[command])) == change + 1
        overwrite = ["--overwrite"] * (command == "translate")
        assert main([*COMMANDS[command], *overwrite]) == 0
        found = {path.relative_to(place) for path in place.rglob("*")}
        assert found == {path.relative_to(tmp_path / "undisturbed") for path in expected}
        assert not list((tmp_path / "temporary").iterdir())
