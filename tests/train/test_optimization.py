import pytest

from vanilla_transformer.recipes.planning import argument_values
from vanilla_transformer.recipes.recipe import load_recipe, shipped_recipes
from vanilla_transformer.train import VanillaTransformerTrainingArguments
from vanilla_transformer.train.optimization import noam_lr, peak_rate, schedule_warnings


def test_without_warmup_the_first_update_has_the_peak():
    for step in (1, 2, 50):
        assert noam_lr(step, d_model=64, warmup_steps=0) == pytest.approx(64**-0.5 * step**-0.5)
    assert peak_rate(d_model=64, warmup_steps=0, factor=2.0) == pytest.approx(2 * 64**-0.5)


def warnings_of(width, updates, **values):
    args = VanillaTransformerTrainingArguments(use_cpu=True, **values)
    return [*schedule_warnings(args, width, updates)]


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_schedules_of_recipes_give_no_warning(name):
    recipe = load_recipe(name, {"train_file": "pairs.tsv", "precision": "fp32"})
    values = argument_values(recipe)
    assert warnings_of(recipe.config().d_model, values["max_steps"], **values) == []


def test_a_high_rate_and_a_late_peak_give_warnings():
    """The advice of Eq. 3 alone, a shorter warm-up, would raise the peak."""
    assert "peaks at 1.4e-02" in warnings_of(256, 850, warmup_steps=20)[0]
    (late,) = warnings_of(256, 700, warmup_steps=800, learning_rate_factor=0.8)
    assert "--warmup-steps 116 --learning-rate 1.8e-03" in late
    remedy = {"warmup_steps": 116, "learning_rate": 1.8e-3}
    assert warnings_of(256, 700, **remedy) == []
    assert warnings_of(256, 700, lr_scheduler_type="constant", learning_rate=5e-5) == []
    assert warnings_of(256, 700, lr_scheduler_type="linear", warmup_steps=0) == []
