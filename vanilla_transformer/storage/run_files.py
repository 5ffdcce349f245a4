"""The files of a run: their names, the recorded settings and digests, and how to compare these.

Before things are combined, their recorded digests are compared, not their names: a run and its
resumption, checkpoints to average, a model and its scores, test pairs and the pairs of the run.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict

from ..errors import RequestError, quoted
from .atomic import MARKER
from .metrics import all_metrics, read_metrics
from .reading import checked, read_json, read_yaml, sha256

logger = logging.getLogger(__name__)

RECIPE = "recipe.yaml"
METRICS = "metrics.json"  # written last: a run that has it is complete
TRAINER_STATE = "trainer_state.json"  # what a Trainer writes beside a checkpoint
# Key in metrics.json: the chosen number of checkpoints and length penalty, and why.
CHOSEN: Final = "chosen_on_validation"
MODEL_FILES: Final = "model_files"  # key in metrics.json: SHA-256 of each model file
SAMPLES = "samples.md"
CURVES = "curves.png"
ATTENTION = "attention.png"
HYPOTHESES = "hypotheses.{}.txt"  # translations of a test set, one line each
HISTORY = "history.tsv"  # the log, one line per logged update
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"  # digests of a checkpoint's files, written last
IDENTITY = Path(CHECKPOINTS, "identity.json")  # recorded before the first update
LOCK = Path(CHECKPOINTS, "training.lock")  # held by the training process, then deleted

# Values or digests by name; mappings may be nested.
Identity: TypeAlias = Mapping[str, Any]


class Written(TypedDict):
    """Content of a checkpoint's manifest, and of the marker file in an output folder."""

    files: dict[str, str]  # SHA-256 by name


_DIGEST = re.compile("[0-9a-f]{16,64}")
# Fields of config.json that record a model's origin, or do not affect its outputs.
_PROVENANCE = {"transformers_version", "_name_or_path", "use_cache", "dtype", "torch_dtype"}


def differences(before: Identity, now: Identity) -> list[str]:
    """List the differences between two records, as `name: before -> now` or `name changed`."""
    lines = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += [f"{name}: {line}" for line in differences(old, new)]
        elif isinstance(old, Mapping) and new is None:
            lines.append(f"{name}: no longer {', '.join(old)}")
        elif all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (old, new)):
            lines.append(f"{name} changed")
        else:
            lines.append(f"{name}: {shown(old)} -> {shown(new)}")
    return lines


def check_same(before: Identity, now: Identity, what: str) -> None:
    """Refuse to continue a run if its settings or digests have changed.

    Args:
        before: The recorded settings and digests.
        now: The present ones.
        what: The beginning of the message.

    Raises:
        ValueError: They differ; the message lists all differences.
    """
    if changed := differences(before, now):
        raise RequestError(f"{what} ({'; '.join(changed)}); undo this, or use another directory.")


def shown(value: Any) -> str:
    """Format a value from a record or recipe for a message; list items are joined by commas."""
    if isinstance(value, list | tuple):
        return ", ".join(map(quoted, value))
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value[:8]
    return "not set" if value is None else quoted(value)


def config_identity(config: Identity) -> Identity:
    """Return the fields of a model's config that affect its outputs."""
    return {name: value for name, value in config.items() if name not in _PROVENANCE}


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the named files that exist in a folder, by name."""
    return {name: sha256(folder / name) for name in names if (folder / name).is_file()}


def changed_files(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """Return the files of a folder that are missing or no longer match their digests.

    Args:
        folder: Folder with the files; names that point outside it are refused.
        recorded: The result of `digests`, read back from a file.

    Raises:
        ValueError: `recorded` is empty, or names a file outside the folder.
    """
    if not recorded or any(Path(name).name != name for name in recorded):
        raise RequestError(f"the digests recorded for {folder} are damaged.")
    now = digests(folder, recorded)
    return [name for name, digest in recorded.items() if now.get(name) != digest]


def recipe_values(folder: Path) -> dict[str, Any]:
    """Return the recipe's values for a run or a published model.

    Values in metrics.json come first, because a digest protects them. Returns {} if there are none,
    or the file is damaged, so callers must also work without them.
    """
    with suppress(RequestError):  # a damaged file
        if metrics := read_metrics(folder / METRICS):
            return metrics["recipe"]
        return read_yaml(folder / RECIPE) if (folder / RECIPE).is_file() else {}
    return {}


def recorded_identity(run: Path) -> dict[str, Any]:
    """Return the recorded settings and digests of a run; a published model may have none."""
    if (run / IDENTITY).is_file():
        return read_json(run / IDENTITY)
    metrics = read_metrics(run / METRICS) or {}
    values = {**metrics.get("recipe", {}), **metrics.get("data", {})}
    names = ("files", "revision", "dataset", "dataset_revision")
    return {name: values[name] for name in names if name in values}


def changed_since_scored(directory: Path) -> list[str]:
    """Return the files of a model that no longer match their digests, if any are known.

    A run has the digests in its metrics, a checkpoint in its manifest, and a folder that a command
    wrote in its marker file.
    """
    recorded = all_metrics(directory / METRICS).get(MODEL_FILES)
    for path in filter(Path.is_file, (directory / MANIFEST, directory / MARKER)):
        recorded = recorded or checked(read_json(path), Written, path)["files"]
    return [] if recorded is None else changed_files(directory, recorded)


def warn_of_changed_model(directory: Path) -> None:
    """Warn if a run's model changed after its metrics were measured."""
    with suppress(RequestError):  # damaged metrics, which are not needed here
        if changed := changed_since_scored(directory):
            names = ", ".join(changed)
            logger.warning("%s changed since %s was written or scored.", names, directory)
