"""Decide whether a run may start or resume in a directory, by its recipe and its pairs.

Pairs and recipe are noted before the first update, and bind every later start of the same run.
"""

import dataclasses
import logging
import os
from pathlib import Path

from ..errors import RequestError
from ..recipes.pairs import data_identity
from ..recipes.recipe import CHANGEABLE, Recipe, load_recipe, make_recipe
from ..storage.atomic import PARTIAL, write_json, write_text
from ..storage.reading import read_json
from ..storage.run_files import CHECKPOINTS, DATA, METRICS, RECIPE
from ..storage.saved_model import WEIGHTS
from .checkpoints import checkpoints

logger = logging.getLogger(__name__)


def recorded_if_ours(recipe: Recipe, run: Path, *, resume: bool) -> dict[str, object]:
    """Make sure that the directory may hold this run; return what it says of the run's pairs."""
    if run.exists() and not run.is_dir():
        raise RequestError(f"{run} is a file; give a directory with --output-dir.")
    if not (run / RECIPE).is_file():
        if run.is_dir() and not all(map(_is_left_of_a_start, run.iterdir())):
            raise RequestError(f"{run} is not empty and holds no run; give another --output-dir.")
        return {}
    if not resume:
        raise RequestError(f"{run} holds a run already; give another directory.")
    differences = load_recipe(str(run / RECIPE)).differences(recipe)
    if not _trained(run):  # what such an attempt left behind does not bind the next one
        return {} if differences else recorded_data(run)
    binding = [text for text in differences if text.partition(":")[0] not in CHANGEABLE]
    if binding:
        raise RequestError(
            f"{run} holds a run of another recipe ({'; '.join(binding)}); give another "
            "--output-dir, or the values as they were."
        )
    if differences and not checkpoints(run / CHECKPOINTS):
        raise RequestError(
            f"{run} is complete, and without its checkpoints it cannot go on "
            f"({'; '.join(differences)}); give another --output-dir, or the values as they were."
        )
    if differences and (run / METRICS).is_file():
        logger.warning(
            "%s is complete; it goes on with other values (%s), and its model is replaced.",
            run,
            "; ".join(differences),
        )
    return recorded_data(run)


def completed(recipe: Recipe, run: Path) -> dict[str, object] | None:
    """The metrics of a run that has been completed with this very recipe."""
    if not (run / METRICS).is_file() or not (run / WEIGHTS).is_file():
        return None
    metrics = read_json(run / METRICS)
    if "recipe" not in metrics:  # scores alone, written over them
        return None
    return metrics if make_recipe(metrics["recipe"]) == recipe else None


def _is_left_of_a_start(path: Path) -> bool:
    """Whether a first start that was killed leaves this before its recipe is written."""
    empty = path.name == CHECKPOINTS and path.is_dir() and not any(path.iterdir())
    return empty or path.name.startswith(PARTIAL)


def check_writable(run: Path) -> None:
    """Refuse a directory that nothing can be written to, or that cannot be made."""
    existing = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise RequestError(f"{existing} cannot be written to; give another --output-dir.")


def identify(recipe: Recipe, run: Path, recorded: dict[str, object]) -> dict[str, object]:
    """Which pairs the run takes, those of its first start also in all later ones.

    Raises:
        ValueError: if a file is not what it was when the run began.
    """
    identity = data_identity(recipe, revision=recorded.get("revision"))
    changed = _changed_files(identity, recorded)
    if changed and _trained(run):
        names = ", ".join(getattr(recipe, f"{split}_file") for split in changed)
        raise RequestError(
            f"{names} changed since {run} began with it; put it back or give another --output-dir."
        )
    return identity


def claim(recipe: Recipe, run: Path, identity: dict[str, object]) -> None:
    """Note in the directory what is trained there, and on what."""
    if (run / RECIPE).is_file() and not _trained(run):
        another = load_recipe(str(run / RECIPE)) != recipe
        if another or "train" in _changed_files(identity, recorded_data(run)):
            (run / "tokenizer.json").unlink(missing_ok=True)
    (run / DATA).parent.mkdir(parents=True, exist_ok=True)
    write_text(run / RECIPE, recipe.to_yaml())
    write_json(run / DATA, identity)


def recorded_data(run: Path) -> dict[str, object]:
    """What `data_identity` said at the first start; nothing before it."""
    if (run / DATA).is_file():
        return read_json(run / DATA)
    if (run / METRICS).is_file():
        return read_json(run / METRICS).get("data", {})
    return {}


def pinned(recipe: Recipe, identity: dict[str, object]) -> Recipe:
    """The recipe with the revision of its data set that is recorded, whatever the Hub has now."""
    revision = identity.get("revision") or recipe.dataset_revision
    return dataclasses.replace(recipe, dataset_revision=revision)


def _trained(run: Path) -> bool:
    """Whether there is something to lose."""
    return bool(checkpoints(run / CHECKPOINTS)) or (run / METRICS).is_file()


def _changed_files(identity: dict[str, object], recorded: dict[str, object]) -> list[str]:
    """The splits whose files are there on both sides and differ in content."""
    now, before = (
        {
            split: [file["sha256"] for file in files]
            for split, files in side.get("files", {}).items()
        }
        for side in (identity, recorded)
    )
    return [split for split in now if now[split] != before.get(split, now[split])]
