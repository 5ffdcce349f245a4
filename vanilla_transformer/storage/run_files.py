"""The files of a run directory, which training writes and publishing reads."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypedDict

from ..errors import RequestError
from .metrics import read_metrics
from .reading import checked, read_json, read_yaml

RECIPE = "recipe.yaml"
METRICS = "metrics.json"  # written last: a run that has it is complete
# Key in metrics.json: the chosen number of checkpoints and length penalty, and why.
CHOSEN: Final = "chosen_on_validation"
MODEL_FILES: Final = "model_files"  # key in metrics.json: SHA-256 of each model file
SAMPLES = "samples.md"
CURVES = "curves.png"
ATTENTION = "attention.png"
HYPOTHESES = "hypotheses.{}.txt"  # translations of a test set, one line each
HISTORY = "history.tsv"  # the log, one line per logged update
CHECKPOINTS = "checkpoints"
IDENTITY = Path(CHECKPOINTS, "identity.json")  # what decides a run, from before its first update
LOCK = Path(CHECKPOINTS, "training.lock")  # held by the training process, then deleted


class _Recorded(TypedDict):
    recipe: dict[str, Any]


def recipe_values(folder: Path) -> dict[str, Any]:
    """Return the values of the recipe that trained a run or a published model.

    If no file says them, or that file is damaged, there are none: use them only for what works
    without them.
    """
    with suppress(RequestError):  # a damaged file
        if (folder / RECIPE).is_file():
            recorded = checked({"recipe": read_yaml(folder / RECIPE)}, _Recorded, folder / RECIPE)
            return recorded["recipe"]
        if (folder / METRICS).is_file():
            return read_json(folder / METRICS, _Recorded)["recipe"]
    return {}


def recorded_identity(run: Path) -> dict[str, Any]:
    """Return what decided a run, as far as it is known; of a published model nothing may be."""
    if (run / IDENTITY).is_file():
        return read_json(run / IDENTITY)
    metrics = read_metrics(run / METRICS)
    if metrics is None:
        return {}
    recipe, data = metrics["recipe"], metrics["data"]
    names = {"files": data, "revision": data, "dataset": recipe, "dataset_revision": recipe}
    return {name: values[name] for name, values in names.items() if name in values}
