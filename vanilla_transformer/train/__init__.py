"""Train models (Section 5): from a recipe to a run directory, or with the Trainer directly."""

import os
from pathlib import Path

from ..recipes.planning import plan_stages
from ..recipes.recipe import Recipe
from ..storage.metrics import Metrics
from .arguments import VanillaTransformerTrainingArguments as VanillaTransformerTrainingArguments
from .averaging import average_checkpoints as average_checkpoints
from .callbacks import TrainingInterrupted as TrainingInterrupted
from .run import run_plan
from .scoring import compare_runs as compare_runs
from .scoring import score_run as score_run
from .trainer import VanillaTransformerTrainer as VanillaTransformerTrainer


def run_recipe(recipe: Recipe, output_dir: str | os.PathLike[str]) -> Metrics:
    """Train and evaluate a model from a recipe; see `run_plan` and `plan_stages`."""
    for plan, directory in plan_stages(recipe, Path(output_dir)):
        metrics = run_plan(plan, directory)
    return metrics
