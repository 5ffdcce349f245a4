"""The files of a run directory, which training writes and publishing reads."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..errors import RequestError
from .identity import changed_files
from .metrics import read_metrics
from .reading import read_json, read_yaml

logger = logging.getLogger(__name__)

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


def recipe_values(folder: Path) -> dict[str, Any]:
    """Return the values of the recipe that trained a run or a published model.

    If no file says them, or that file is damaged, there are none: use them only for what works
    without them.
    """
    with suppress(RequestError):  # a damaged file
        if (folder / RECIPE).is_file():
            return read_yaml(folder / RECIPE)
        return (read_metrics(folder / METRICS) or {}).get("recipe", {})
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


def changed_since_scored(directory: Path) -> list[str]:
    """Return the files of a run's model that no longer match the digests in its metrics.

    Without metrics of a run there is nothing to compare with.
    """
    recorded = (read_metrics(directory / METRICS) or {}).get(MODEL_FILES)
    return [] if recorded is None else changed_files(directory, recorded)


def warn_of_changed_model(directory: Path) -> None:
    """Warn if a run's model is not the one that its metrics were measured on."""
    with suppress(RequestError):  # metrics that nobody needs here
        if changed := changed_since_scored(directory):
            names = ", ".join(changed)
            logger.warning("%s changed since %s was trained and scored.", names, directory)
