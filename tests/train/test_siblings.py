"""Models that differ in their seed teach each other: `--siblings`."""

import hashlib
import json
import re

import pytest
from good_teachers import make_teachers_good
from tiny_runs import WORDS, tiny_recipe

from vanilla_transformer.cli import main
from vanilla_transformer.storage.run_files import recipe_values
from vanilla_transformer.train import run

NAMES = ["sibling-1", "sibling-2", "taught"]


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Return a command that trains siblings."""
    make_teachers_good(monkeypatch, lambda text: " ".join(map(WORDS.get, text.split())))
    recipe = tiny_recipe(tmp_path / "recipe", seed=5, learning_rate=0.01)
    return ["train", str(recipe), "--siblings", "2", "--output-dir", str(tmp_path / "run")]


def test_siblings_are_trained_before_the_first_learns_from_all(words, tmp_path, capsys):
    assert main([*words, "--max-minutes", "6"]) == 0
    first, second, taught = folders = [tmp_path / "run" / name for name in NAMES]
    out, err = capsys.readouterr()
    assert f"The model and its metrics are in {taught}." in out
    assert re.findall(r"Training (\d of 3): (.*)\.", err) == [
        (f"{number} of 3", str(folder)) for number, folder in enumerate(folders, start=1)
    ]
    recipes = [recipe_values(folder) for folder in folders]
    assert [recipe["seed"] for recipe in recipes] == [5, 6, 5]
    assert [recipe["teachers"] for recipe in recipes] == [None, None, [str(first), str(second)]]
    rates = [(recipe["learning_rate"], recipe["warmup_steps"]) for recipe in recipes]
    assert rates == [(0.01, 3), (0.01, 3), (0.005, 2)]  # as fitted into the minutes
    assert [recipe["max_minutes"] for recipe in recipes] == [2, 2, 2]
    assert err.count("Each of the 3 trainings takes 2 min at most.") == 1
    data = json.loads((taught / "metrics.json").read_text())["data"]
    assert data["train_taught"] == 2 * 114  # the different sources but the one that is tested
    weights = hashlib.sha256((first / "model.safetensors").read_bytes()).hexdigest()
    assert data["init_from"]["files"]["model.safetensors"] == weights


@pytest.mark.parametrize("stopped", ["sibling-2", "taught"])
def test_a_stopped_command_trains_only_what_is_left(words, tmp_path, monkeypatch, stopped):
    trained = []

    def noted(plan, args, *rest):
        trained.append(args.run_name)
        if trained[-1] == stopped and stop:
            raise KeyboardInterrupt
        return trainer(plan, args, *rest)

    trainer, stop = run._trainer, True
    monkeypatch.setattr(run, "_trainer", noted)
    assert main(words) == 130
    trained, stop = [], False
    assert main(words) == 0
    assert trained == NAMES[NAMES.index(stopped) :]
    assert recipe_values(tmp_path / "run" / "taught")["warmup_steps"] == 5  # of 10


def test_a_text_that_only_the_last_training_needs_is_checked_first(words, tmp_path, capsys):
    (tmp_path / "mono.de").write_text("a dog sees a house and a dog\n" * 3)
    assert main([*words, "--monolingual-source", str(tmp_path / "mono.de")]) == 2
    assert "mono.de looks like en; give text in de" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
