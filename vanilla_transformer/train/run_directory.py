"""Check that a run may start or resume in a directory, and lock it against other processes.

The identity of a run is recorded before its first update: the settings that must not change, and
the digests of its pairs and of its initial model. It must be the same whenever the run is resumed.
"""

import logging
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..recipes.data import data_identity
from ..recipes.plan import Plan, settings_as_yaml
from ..storage import run_files as files
from ..storage.atomic import PARTIAL, locked, parents_made, write_json, write_text
from ..storage.metrics import Metrics, read_metrics
from ..storage.saved_model import TOKENIZER_SETTINGS, WEIGHTS
from .checkpoints import checkpoints, last_whole_checkpoint
from .run_inputs import identify_model

logger = logging.getLogger(__name__)

# Keys in the identity of a run: digests of the `init_from` model, and of the texts that were read.
INITIAL_MODEL, PAIRS = "initial_model", "pairs"


def identify(plan: Plan, run: Path, *, from_start: bool = False) -> dict[str, Any]:
    """Return the identity of a run: settings, digests of pairs and of the initial model.

    Missing files are assumed to be unchanged, because a complete run does not need them. After
    the first checkpoint, a run does not need its initial model either.

    Args:
        plan: The plan of the run.
        run: The run directory.
        from_start: Whether training begins with the first update.

    Raises:
        ValueError: If the directory holds other files or a run with another identity, or if the
            initial model is missing or of another kind.
    """
    identity = {**plan.binding, **data_identity(plan.data)}
    if not trained(run) and run.is_dir() and not _may_be_replaced(run):
        raise RequestError(f"{run} is not empty and not a run; give another --output-dir.")
    if from_start and plan.model.init_from is not None:
        identity[INITIAL_MODEL] = identify_model(plan.model.init_from)
    if not trained(run):
        return identity
    before = files.recorded_identity(run)
    for name in ("files", INITIAL_MODEL, PAIRS):
        if name in before:
            identity[name] = {**before[name], **identity.get(name, {})}
    now = {name: identity.get(name) for name in before}
    files.check_same(before, now, f"{run / files.IDENTITY} records another run")
    return identity


def data_facts(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digests of pairs and initial model under their names in metrics.json."""
    names = {"files": "files", "revision": "revision", INITIAL_MODEL: "init_from"}
    return {names[name]: identity[name] for name in names if name in identity}


def _may_be_replaced(run: Path) -> bool:
    """Return whether a directory has neither checkpoints nor unrelated files."""
    is_attempt = (run / files.RECIPE).is_file() and (run / files.IDENTITY).is_file()
    is_attempt &= not (run / WEIGHTS).exists()
    # Left by a first start that was killed before it wrote its recipe.
    remnants = (
        path.name == files.CHECKPOINTS or path.name.startswith(PARTIAL) for path in run.iterdir()
    )
    return is_attempt or all(remnants)


def trained(run: Path) -> bool:
    """Return whether a run directory has checkpoints or metrics."""
    return bool(checkpoints(run / files.CHECKPOINTS)) or (run / files.METRICS).is_file()


def completed(plan: Plan, run: Path) -> Metrics | None:
    """Return the metrics of a run if it is complete as planned and its model is unchanged.

    A run whose model files are missing counts as incomplete: its checkpoints can restore them.

    Args:
        plan: The plan of the run.
        run: The run directory.

    Raises:
        ValueError: If a file has changed, or the run cannot continue or be restored.
    """
    metrics = read_metrics(run / files.METRICS)
    if metrics is None:
        return None
    others = files.differences(metrics["recipe"], plan.settings)
    changed = [] if others else files.changed_files(run, metrics.get(files.MODEL_FILES, {}))
    if there := [name for name in changed if (run / name).exists()]:
        changes = f"{' and '.join(there)} changed"
        raise RequestError(f"{run} is complete, but {changes}; delete what changed, and run again.")
    if not others and not changed:
        identify(plan, run)  # refuses a run on other pairs
        logger.info("%s is complete.", run)
        return metrics
    if last_whole_checkpoint(run / files.CHECKPOINTS) is None:
        reason = "; ".join(others or changed)
        raise RequestError(
            f"{run} has no complete checkpoint, so it cannot continue or be restored ({reason})."
        )
    if changed:
        logger.warning("%s is missing; averaging and evaluating again.", run / changed[0])
    return None


def claim(plan: Plan, run: Path, identity: Mapping[str, Any], read: Mapping[str, str]) -> None:
    """Record the recipe and identity of the run, to compare them when it is resumed.

    Args:
        plan: The plan of the run.
        run: The run directory.
        identity: The result of `identify`.
        read: Digests of the pairs that were read; on resumption they must be the recorded ones.
    """
    files.check_same(identity.get(PAIRS, read), read, f"{run / files.IDENTITY} records other pairs")
    if not trained(run):
        (run / TOKENIZER_SETTINGS).unlink(missing_ok=True)  # may have been trained on other pairs
    metrics = read_metrics(run / files.METRICS)
    if metrics and (changed := files.differences(metrics["recipe"], plan.settings)):
        message = "%s is complete; continuing with other values (%s), which replaces its model."
        logger.warning(message, run, "; ".join(changed))
    (run / files.IDENTITY).parent.mkdir(parents=True, exist_ok=True)
    # Written first, since a recipe alone may be the user's own file.
    write_json(run / files.IDENTITY, {**identity, PAIRS: read})
    if not metrics:  # a complete model keeps its recipe until a new model replaces it
        write_text(run / files.RECIPE, settings_as_yaml(plan.settings))


@contextmanager
def training_lock(run: Path) -> Iterator[None]:
    """Keep every other process from training in the directory until the block ends.

    Folders created for the lock are removed at the end if nothing else was written into them.

    Raises:
        ValueError: If another process trains there.
    """
    path, busy = run / files.LOCK, f"another process is already training in {run}."
    with parents_made(path), locked(path, busy) as is_locked:
        if not is_locked:
            logger.warning("The file system of %s has no locks; start one run at a time.", run)
        path.touch()  # even where there are no locks: `check_shared` looks for it
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def check_shared(run: Path) -> None:
    """Refuse to join a run whose directory this machine does not share.

    Raises:
        ValueError: If the machines do not share the directory, or the first process has stopped.
    """
    if not (run / files.LOCK).is_file():
        unseen = f"{platform.node()} does not see the first process's training in {run}"
        raise RequestError(f"{unseen}; give an --output-dir that all machines share.")
