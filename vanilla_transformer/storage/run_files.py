"""Names of the files of a run directory, which training writes and publishing reads."""

from pathlib import Path
from typing import Final

RECIPE = "recipe.yaml"
METRICS = "metrics.json"  # written last: a run that has it is complete
# In metrics.json: how many checkpoints and which length penalty, and why.
CHOSEN: Final = "chosen_on_validation"
SAMPLES = "samples.md"
CURVES = "curves.png"
ATTENTION = "attention.png"
HYPOTHESES = "hypotheses.{}.txt"  # translations of a test set, one line each
HISTORY = "history.tsv"  # what was logged, a line for each update that was
CHECKPOINTS = "checkpoints"
DATA = Path(CHECKPOINTS, "data.json")
LOCK = Path(CHECKPOINTS, "training.lock")  # held by the process that trains, and gone after it
HOLDER = Path(CHECKPOINTS, "training.json")  # which process that is
