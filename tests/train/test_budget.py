"""Runs limited by minutes: a schedule that fits, kept on resumption, and repeated bit for bit."""

import dataclasses
import math

import pytest
from tiny_runs import tiny_recipe

from vanilla_transformer.errors import RequestError
from vanilla_transformer.recipes import budget
from vanilla_transformer.recipes.planning import plan_run
from vanilla_transformer.recipes.recipe import load_recipe, make_recipe, shipped_recipes
from vanilla_transformer.storage.run_files import recipe_values
from vanilla_transformer.train import run as runs
from vanilla_transformer.train import run_recipe, speed
from vanilla_transformer.train.run import training_arguments

pytestmark = pytest.mark.usefixtures("own_cache")


def fitted(recipe, run, updates, typed=(), pairs=0):
    """Fit a recipe into one minute, for which so many updates are found to fit."""
    plan = plan_run(dataclasses.replace(recipe, max_minutes=1), run, typed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(budget, "training_pairs", lambda data: range(pairs))
        return budget.fit_into_minutes(plan, run, lambda *model: updates, begun=False)


def peak(it, width):
    return it["learning_rate"] or it["learning_rate_factor"] * (width * it["warmup_steps"]) ** -0.5


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
@pytest.mark.parametrize("pairs", [0, 10**9])
@pytest.mark.parametrize("updates", [1, 50, 700, 2_500, 10**9])
def test_warmup_ends_in_time_and_the_peak_stays(name, updates, pairs, tmp_path):
    recipe = load_recipe(name, {"train_file": "pairs.tsv", "pair": "en-de"})
    before = plan_run(dataclasses.replace(recipe, max_minutes=1), tmp_path).settings
    after = fitted(recipe, tmp_path, updates, pairs=pairs).settings
    width = after["d_model"] or recipe.config().d_model
    assert after["warmup_steps"] <= max(1, updates / 3)
    assert math.isclose(peak(after, width), peak(before, width), rel_tol=0.05)
    tokens = [it["batch_tokens"] * it["gradient_accumulation"] for it in (before, after)]
    assert 1_024 <= tokens[1] <= tokens[0] or tokens[1] == tokens[0]
    assert (width < recipe.config().d_model) == (updates < 2_400 and recipe.config().d_model > 128)
    assert not (updates < 2_400 and (after["join_pairs"] or after["both_directions"]))
    few_passes = {"norm_first": True, "dropout": min(0.05, recipe.config().dropout)}
    expected = few_passes if pairs and updates < recipe.max_steps else before
    assert all(after[name] == expected[name] for name in few_passes)
    assert bool(after["bpe_dropout"]) == (expected is before and bool(before["bpe_dropout"]))
    made, every = min(updates, recipe.max_steps), (after["trainer"] or {}).get("save_steps", 1_500)
    assert every <= (before["trainer"] or {}).get("save_steps", 1_500)
    assert made // every >= min(made, 20)
    if updates == 10**9:
        assert after == before


def test_without_minutes_or_with_another_schedule_the_recipe_decides(tmp_path):
    recipe = load_recipe("fewest_pairs", {"train_file": "pairs.tsv", "pair": "en-de"})
    for typed in ({}, {"trainer": {"lr_scheduler_type": "linear"}, "max_minutes": 1}):
        plan = plan_run(dataclasses.replace(recipe, **typed), tmp_path)
        assert budget.fit_into_minutes(plan, tmp_path, None, begun=False) is plan


def test_what_the_user_typed_stays(tmp_path):
    typed = {"d_model": 512, "warmup_steps": 900, "join_pairs": True, "train_file": "pairs.tsv"}
    typed |= {"dropout": 0.3, "norm_first": False}
    recipe = load_recipe("fewest_pairs", {"pair": "en-de", **typed})
    after = fitted(recipe, tmp_path, 50, typed, pairs=10**6).settings
    assert {name: after[name] for name in typed} == typed
    assert (after["both_directions"], after["bpe_dropout"]) == (False, 0.0)


def test_a_run_keeps_its_schedule_and_its_recipe_repeats_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "updates_within", lambda *model_and_batch: 6)
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_minutes=1, join_pairs="true")))
    run_recipe(recipe, tmp_path / "run")
    kept = vars(make_recipe(recipe_values(tmp_path / "run")))
    assert (kept["warmup_steps"], kept["join_pairs"], kept["max_minutes"]) == (2, False, 1.0)
    for file in ("metrics.json", "model.safetensors"):
        (tmp_path / "run" / file).unlink()
    monkeypatch.setattr(runs, "updates_within", lambda *model_and_batch: 1 / 0)  # not called
    longer = dataclasses.replace(recipe, max_minutes=2, max_steps=12)
    metrics = run_recipe(longer, tmp_path / "run")
    assert metrics["updates"] == 12
    assert metrics["recipe"]["warmup_steps"] == 2
    typed = plan_run(dataclasses.replace(longer, warmup_steps=5), tmp_path, ["warmup_steps"])
    resumed = budget.fit_into_minutes(typed, tmp_path / "run", None, begun=True)
    assert resumed.settings["warmup_steps"] == 5  # to be refused, not ignored
    repeated = {**kept, "max_minutes": None, "max_steps": 12}
    run_recipe(make_recipe(repeated), tmp_path / "again")
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again")]
    assert both[0] == both[1]


def test_a_missing_file_is_refused_before_the_speed_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "updates_within", lambda *model_and_batch: 1 / 0)  # not called
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_minutes=1, test_file="missing.tsv")))
    with pytest.raises(RequestError, match=r"test_file: .* there is no such file"):
        run_recipe(recipe, tmp_path / "run")


def test_the_speed_is_that_of_updates(tmp_path):
    recipe = load_recipe(str(tiny_recipe(tmp_path, max_minutes=1)))
    plan = plan_run(recipe, tmp_path)
    args = training_arguments(plan.arguments, tmp_path / "checkpoints")
    assert speed.updates_within(args, recipe.config(vocab_size=280), 256, 2) >= 1
