"""Train models (Section 5): from a recipe to a run directory, or with the Trainer directly."""

from .arguments import VanillaTransformerTrainingArguments
from .averaging import average_checkpoints
from .comparing import compare_runs
from .run import run_recipe
from .run_control import TrainingInterrupted
from .run_scores import score_run
from .trainer import VanillaTransformerTrainer

__all__ = [
    "TrainingInterrupted",
    "VanillaTransformerTrainer",
    "VanillaTransformerTrainingArguments",
    "average_checkpoints",
    "compare_runs",
    "run_recipe",
    "score_run",
]
