"""Train models (Section 5): from a recipe to a run directory, or with the Trainer directly."""

from .averaging import average_checkpoints
from .comparing import compare_runs
from .run import run_recipe
from .run_scores import score_run
from .trainer import (
    TrainingInterrupted,
    VanillaTransformerTrainer,
    VanillaTransformerTrainingArguments,
)

__all__ = [
    "TrainingInterrupted",
    "VanillaTransformerTrainer",
    "VanillaTransformerTrainingArguments",
    "average_checkpoints",
    "compare_runs",
    "run_recipe",
    "score_run",
]
