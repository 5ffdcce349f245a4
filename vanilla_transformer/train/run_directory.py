"""Decide whether a run may start or resume in a directory, by its recipe and its pairs.

Pairs and recipe are recorded before the first update, and every later start must match them.
"""

import dataclasses
import logging
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import RequestError
from ..recipes.data import FILES, data_identity, named_files, recorded_data
from ..recipes.options import CHANGEABLE, listed
from ..recipes.recipe import Recipe, load_recipe, make_recipe
from ..storage.atomic import PARTIAL, write_json, write_text
from ..storage.identity import changed_files, changed_since_scored, differences
from ..storage.metrics import Metrics, read_metrics
from ..storage.run_files import CHECKPOINTS, DATA, HOLDER, LOCK, METRICS, MODEL_FILES, RECIPE
from ..storage.saved_model import TOKENIZER_SETTINGS, WEIGHTS
from .checkpoints import checkpoints, last_whole_checkpoint
from .initial_model import identify_model

logger = logging.getLogger(__name__)

INIT_FROM = "init_from"  # in data.json: the model that the run began with


def check_ours(recipe: Recipe, run: Path) -> None:
    """Refuse a directory that may not hold this run."""
    if not (run / RECIPE).is_file() or not _trained(run):
        # An attempt that trained nothing does not restrict the next one; a recipe alone is none.
        is_attempt = (run / RECIPE).is_file() and (run / DATA).is_file()
        is_attempt &= not (run / WEIGHTS).exists()
        if run.is_dir() and not (is_attempt or all(map(_is_left_of_a_start, run.iterdir()))):
            raise RequestError(f"{run} is not empty and holds no run; give another --output-dir.")
        return
    before, known = load_recipe(str(run / RECIPE)), recorded_data(run).get("files", {})
    # `identify` compares the content of files, which may have moved together.
    moved = {
        name
        for split, name in FILES.items()
        if split in known and _file_names(before, name) == _file_names(recipe, name)
    }
    changed = before.differences(recipe)
    binding = [text for text in changed if text.partition(":")[0] not in CHANGEABLE | moved]
    if binding:
        raise RequestError(
            f"{run} holds a run of another recipe ({'; '.join(binding)}); give another "
            "--output-dir, or the original values."
        )
    complete = (run / METRICS).is_file()
    if changed and complete and last_whole_checkpoint(run / CHECKPOINTS) is None:
        raise RequestError(
            f"{run} is complete, and without a whole checkpoint it cannot continue "
            f"({'; '.join(changed)}); give another --output-dir, or the original values."
        )


def check_outside_of_pairs(recipe: Recipe, run: Path) -> None:
    """Refuse a directory whose files would be read as pairs by the next start."""
    names = [getattr(recipe, option) for option in (*FILES.values(), "dataset")]
    for path in named_files([each for name in names for each in listed(name)]):
        if path.is_dir() and run.resolve().is_relative_to(path.resolve()):
            raise RequestError(
                f"{run} is inside {path}, whose files are read as pairs; give another --output-dir."
            )


def _file_names(recipe: Recipe, option: str) -> list[list[str]]:
    """Return the names of the files of each corpus, without their folders."""
    corpora = listed(getattr(recipe, option))
    return [[path.name for path in named_files(corpus)] for corpus in corpora]


@contextmanager
def training_lock(run: Path) -> Iterator[None]:
    """Keep every other process from training in the directory until the block ends.

    The system releases the lock if its holder is killed. Folders created for the lock are removed
    at the end if nothing else was written into them.

    Raises:
        ValueError: If another process trains there; the message says which.
    """
    path = run / LOCK
    created = [folder for folder in path.absolute().parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = "another process"
        with suppress(OSError):  # not written yet
            holder = (run / HOLDER).read_text("utf-8")
        raise RequestError(
            f"{run} is being trained already, by {holder}; wait until it ends, or give another "
            "--output-dir."
        ) from None
    except (OSError, NotImplementedError):
        logger.warning("The file system of %s has no locks; start no second training there.", run)
    try:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        write_text(run / HOLDER, f"process {os.getpid()} on {platform.node()} since {now}")
        yield
    finally:
        for file in (run / HOLDER, path):
            file.unlink(missing_ok=True)
        lock.release()
        for folder in created:
            with suppress(OSError):  # not empty: it holds the run
                folder.rmdir()


def check_shared(run: Path) -> None:
    """Refuse to join a training whose lock is not in the run directory that this machine sees.

    Raises:
        ValueError: If the machines do not share the directory, or the first process has stopped.
    """
    if not (run / HOLDER).is_file():
        raise RequestError(
            f"{platform.node()} does not see the first process's training in {run}. Read that "
            "process's error, if any, or give an --output-dir that all machines share."
        )


def completed(recipe: Recipe, run: Path) -> Metrics | None:
    """Return the metrics of a run if it is complete for this recipe and its model is unchanged.

    A run whose model files are missing counts as incomplete: its checkpoints can restore them.

    Raises:
        ValueError: If a file has changed, or is missing and cannot be restored.
    """
    metrics = read_metrics(run / METRICS)
    if metrics is None or make_recipe(metrics["recipe"]) != recipe:
        return None
    changed = changed_files(run, metrics.get(MODEL_FILES, {}))
    if not changed:
        if reports := changed_since_scored(run, "report_files"):
            logger.warning("%s changed since %s was complete, or is gone.", ", ".join(reports), run)
        return metrics
    there = [name for name in changed if (run / name).exists()]
    if there or last_whole_checkpoint(run / CHECKPOINTS) is None:
        raise RequestError(
            f"{run} is complete, but {' and '.join(there or changed)} in it changed since, or is "
            "gone; put a copy back, or delete it to restore it from a whole checkpoint."
        )
    logger.warning("%s is gone; averaging and evaluation are repeated.", run / changed[0])
    return None


def _is_left_of_a_start(path: Path) -> bool:
    """Return whether a first start that was killed before writing its recipe may leave this."""
    names = (LOCK.name, HOLDER.name, DATA.name)
    if path.name.startswith(PARTIAL) or path.name in names:
        return True
    return path.name == CHECKPOINTS and all(map(_is_left_of_a_start, path.glob("*")))


def identify(recipe: Recipe, run: Path) -> dict[str, Any]:
    """Return data that identifies the run's pairs; later starts use those of the first one.

    Returns:
        The result of `data_identity`, and `held_out_pairs`: a number, or None if the data decides.
        With `init_from` also the result of `identify_model`; after the first checkpoint, the
        recorded one, or None if that is lost.

    Raises:
        ValueError: If a file changed since the run began, or the model of `init_from` is missing.
    """
    trained = _trained(run)
    recorded = recorded_data(run) if trained else {}
    identity = data_identity(recipe, revision=recorded.get("revision"))
    identity["held_out_pairs"] = recorded.get("held_out_pairs", recipe.held_out_pairs)
    if recipe.init_from is not None:
        known = recorded.get(INIT_FROM)
        identity[INIT_FROM] = known if trained else identify_model(recipe.init_from)
    now, began = identity.get("files", {}), recorded.get("files", {})
    if changed := differences(began, {split: now.get(split, began[split]) for split in began}):
        raise RequestError(
            f"The pairs of {run} are not those that it began with ({'; '.join(changed)}); put them "
            "back or give another --output-dir."
        )
    return identity


def claim(recipe: Recipe, run: Path, identity: Mapping[str, Any]) -> None:
    """Record the recipe and its data in the directory."""
    if not _trained(run):
        (run / TOKENIZER_SETTINGS).unlink(missing_ok=True)  # it may be of other pairs
    elif (run / METRICS).is_file():
        changed = "; ".join(load_recipe(str(run / RECIPE)).differences(recipe))
        if changed:
            message = (
                "%s is complete; it continues with other values (%s), and its model is replaced."
            )
            logger.warning(message, run, changed)
    (run / DATA).parent.mkdir(parents=True, exist_ok=True)
    write_json(run / DATA, identity)  # first: a recipe without it may be the user's
    write_text(run / RECIPE, recipe.to_yaml())


def pinned(recipe: Recipe, identity: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the recorded data set revision and number of held-out pairs."""
    return dataclasses.replace(
        recipe,
        dataset_revision=identity.get("revision") or recipe.dataset_revision,
        held_out_pairs=identity.get("held_out_pairs", recipe.held_out_pairs),
    )


def _trained(run: Path) -> bool:
    """Return whether there are checkpoints or metrics."""
    return bool(checkpoints(run / CHECKPOINTS)) or (run / METRICS).is_file()
