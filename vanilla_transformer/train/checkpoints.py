"""Which checkpoints of a run are whole, which are kept, and which are averaged (Section 6.1).

A checkpoint is many files, and a run may be killed between any two bytes of them. It counts only
once its manifest is there, which is written last, at once, and names the content of every file.
"""

import logging
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerState
from transformers.trainer_pt_utils import safe_globals

from ..errors import RequestError
from ..storage.atomic import sync, write_json, writing
from ..storage.pickles import read_pickle
from ..storage.reading import read_json, sha256
from ..storage.run_files import CHECKPOINTS

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
_LEAVE_OUT = "go on from another checkpoint"
_NUMBER = (int, float)
_TOTALS: dict[str, type | tuple[type, ...]] = {
    "training_seconds": _NUMBER,
    "evaluation_seconds": _NUMBER,
    "target_tokens": int,
}
# Each of them may be missing: the first checkpoints do not say it.
_CONDITIONS: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "matmul_precision": str,
    "world_size": int,
    "batches_per_update": int,
    "precision": str,
}
_STATE: dict[str, type | tuple[type, ...]] = {
    "global_step": int,
    "epoch": _NUMBER,
    "log_history": list,
    "stateful_callbacks": dict,
}
# What the host takes out of each file of state.
_KEYS = {
    "optimizer.pt": ("state", "param_groups"),
    "scheduler.pt": ("last_epoch",),
    "rng_state": ("python", "numpy", "cpu"),
}


@dataclass
class Progress:
    """What a run has used so far, over all its resumptions; saved in each checkpoint."""

    training_seconds: float = 0.0  # wall clock inside the training loop, evaluations included
    evaluation_seconds: float = 0.0  # the part of it that evaluations took
    data: str = ""  # fingerprint of the training pairs
    matmul_precision: str = ""  # of float32, as it was chosen for the machine that began
    world_size: int = 0  # processes; 0 before the first update
    batches_per_update: int = 0  # of all processes; 0 in checkpoints that do not say it
    precision: str = ""  # fp32, bf16 or fp16; nothing in checkpoints that do not say it
    _tokens: torch.Tensor | int = 0  # a tensor on the device, so that counting does not wait for it
    _started: float | None = None
    _logged: tuple[float, int] = (0.0, 0)

    @property
    def seconds(self) -> float:
        """Wall clock until now."""
        running = 0.0 if self._started is None else time.monotonic() - self._started
        return self.training_seconds + running

    @property
    def target_tokens(self) -> int:
        """Real (not padding) target tokens that updates were computed from."""
        return int(self._tokens)

    def require(self, *, data: str, batches_per_update: int, precision: str) -> None:
        """Refuse to go on otherwise than the run began.

        Any number of processes goes on with the same updates; only those of several processes that
        earlier versions trained were made of other pairs.

        Raises:
            ValueError: other pairs, other updates or another precision.
        """
        otherwise = "start a new run in another directory."
        if self.data not in ("", data):
            raise RequestError(
                f"the training pairs are not those that the checkpoint was trained on; {otherwise}"
            )
        if self.world_size > 1 and not self.batches_per_update:
            raise RequestError(
                f"the checkpoint was trained by {self.world_size} processes of an earlier version, "
                f"which made other updates of the pairs; go on with that version, or {otherwise}"
            )
        if self.batches_per_update not in (0, batches_per_update):
            raise RequestError(
                f"got {batches_per_update} batches in an update (gradient_accumulation_steps times "
                f"processes); the checkpoint was trained with {self.batches_per_update}. Change "
                f"one of the two, or {otherwise}"
            )
        if self.precision not in ("", precision):
            raise RequestError(
                f"got precision {precision} on this machine; the checkpoint was trained in "
                f"{self.precision}. Resume it where that is its precision, or {otherwise}"
            )

    def start(self) -> None:
        """Start the clock."""
        self._started = time.monotonic()
        self._logged = (self.seconds - self.evaluation_seconds, self.target_tokens)

    def count(self, num_items: torch.Tensor | int) -> None:
        """Add the target tokens of an update."""
        self._tokens = num_items + self._tokens

    def since_last_log(self) -> dict[str, float]:
        """Speed without evaluations since the last call, and minutes since the start."""
        now, tokens = self.seconds - self.evaluation_seconds, self.target_tokens
        before, tokens_before = self._logged
        self._logged = (now, tokens)
        speed = (tokens - tokens_before) / max(now - before, 1e-9)
        return {"target_tokens_per_second": round(speed, 1), "minutes": round(self.seconds / 60, 3)}

    def save(self, checkpoint: Path) -> None:
        """Write the totals into a checkpoint."""
        totals = {
            "training_seconds": self.seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "target_tokens": self.target_tokens,
            "data": self.data,
            "matmul_precision": self.matmul_precision,
            "world_size": self.world_size,
            "batches_per_update": self.batches_per_update,
            "precision": self.precision,
        }
        write_json(checkpoint / PROGRESS, totals)

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read what `save` wrote.

        Raises:
            ValueError: the file holds something else.
            OSError: it cannot be read.
        """
        path = checkpoint / PROGRESS
        totals = read_json(path, keys=_TOTALS, remedy=_LEAVE_OUT)
        conditions = {name: kind for name, kind in _CONDITIONS.items() if name in totals}
        read_json(path, keys=conditions, remedy=_LEAVE_OUT)
        if foreign := totals.keys() - (_TOTALS | _CONDITIONS).keys():
            raise RequestError(f"{path} holds {min(foreign)!r}, which no run wrote; {_LEAVE_OUT}.")
        for name, value in totals.items():
            if not isinstance(value, str) and not 0 <= value < math.inf:
                raise RequestError(f"{name!r} in {path} is {value}; {_LEAVE_OUT}.")
        # The first checkpoints do not say it, but each process has left its random state.
        states = [*checkpoint.glob("rng_state_*.pth")]
        totals.setdefault("world_size", max(1, len(states)))
        tokens = totals.pop("target_tokens")
        return cls(**totals, _tokens=tokens)


def digests(folder: Path, names: Iterable[str]) -> dict[str, dict[str, object]]:
    """Size in bytes and SHA-256 of some files of a folder, by name."""
    return {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }


def changed_files(folder: Path, recorded: object) -> list[str]:
    """The files of a folder that are gone or are not what `digests` said of them.

    Args:
        folder: holds the files; a name that leads to another folder is no file of it.
        recorded: what `digests` returned, as it was read from a file that may be damaged.

    Raises:
        ValueError: nothing that `digests` returns looks like it.
    """
    if not isinstance(recorded, dict) or not recorded:
        raise RequestError(f"the files of {folder} are not recorded as they should be.")
    changed = []
    for name, facts in recorded.items():
        path = folder / name
        if not isinstance(facts, dict) or Path(name).name != name:
            raise RequestError(f"the files of {folder} are not recorded as they should be.")
        same = path.is_file() and path.stat().st_size == facts.get("size")
        if not same or sha256(path) != facts.get("sha256"):
            changed.append(name)
    return changed


def seal(checkpoint: Path) -> None:
    """Declare a checkpoint whole: name, size and SHA-256 of each file, written last and at once."""
    names = [path.name for path in checkpoint.iterdir() if path.is_file()]
    names = sorted(name for name in names if name != MANIFEST)
    sync(*(checkpoint / name for name in names), checkpoint)
    write_json(checkpoint / MANIFEST, {"files": digests(checkpoint, names)})


def is_whole(checkpoint: Path) -> bool:
    """Whether the files of a checkpoint are those that were sealed, and tell how far it came."""
    try:
        if changed_files(checkpoint, read_json(checkpoint / MANIFEST).get("files")):
            return False
        Progress.load(checkpoint)
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def checkpoint_written(checkpoint: Path) -> Iterator[None]:
    """Tell in one line why a checkpoint could not be written, and where the run goes on.

    Raises:
        ValueError: the disk did not take it, or the run directory is gone.
    """
    try:
        with writing(checkpoint):
            yield
    except RequestError as error:
        earlier = [path for path in checkpoints(checkpoint.parent).values() if path != checkpoint]
        kept = next(filter(is_whole, reversed(earlier)), None)
        going_on = f"It goes on from {kept.name}." if kept else "It begins anew."
        raise RequestError(f"{error} {going_on}") from error


def check_state(checkpoint: Path, model: torch.nn.Module, *, plain_adam: bool = True) -> None:
    """Refuse a checkpoint that the host cannot resume from, before it loads any of it.

    No code in it is run: weights are safetensors, and all else holds tensors and plain values.

    Args:
        checkpoint: to resume from; it may come from elsewhere and have no manifest.
        model: whose training goes on.
        plain_adam: whether the optimizer keeps for each parameter moments of its shape.

    Raises:
        ValueError: a file is missing, damaged, or of another model; the message names it.
    """
    if not checkpoint.is_dir():
        raise RequestError(f"there is no checkpoint {checkpoint}; {_LEAVE_OUT}.")
    path = checkpoint / "trainer_state.json"
    state = read_json(path, keys=_STATE, remedy=_LEAVE_OUT)
    if foreign := state.keys() - {field.name for field in fields(TrainerState)}:
        raise RequestError(f"{path} holds {min(foreign)!r}, which no run wrote; {_LEAVE_OUT}.")
    _check_weights(checkpoint, model)
    for path in sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]):
        found = _read_part(path)
        if path.name == "optimizer.pt" and plain_adam:
            _check_optimizer(path, found, model)


def _check_weights(checkpoint: Path, model: torch.nn.Module) -> None:
    """Weights that can be read and have the shapes of the model's; the host compares the names."""
    paths = sorted(checkpoint.glob("*.safetensors"))
    if not paths:
        raise RequestError(
            f"{checkpoint} holds no weights as safetensors; those of another format, which could "
            f"run code, are not read; {_LEAVE_OUT}."
        )
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118, it is no dict
                    found = file.get_slice(name).get_shape()
                    if found != shapes.get(name, found):
                        raise RequestError(
                            f"{name} in {path} is {found}, in the model {shapes[name]}; resume "
                            "with the model that it was written by."
                        )
        except SafetensorError as error:
            raise RequestError(f"{path} is damaged ({error}); {_LEAVE_OUT}.") from error


def _read_part(path: Path) -> Any:
    """What a file of a checkpoint holds, which is what the host takes out of it."""
    with safe_globals():
        found = read_pickle(path, remedy=_LEAVE_OUT)
    name = "rng_state" if path.name.startswith("rng_state") else path.name
    missing = [
        key for key in _KEYS.get(name, ()) if not isinstance(found, dict) or key not in found
    ]
    if missing:
        raise RequestError(f"{path} holds no {missing[0]!r}; {_LEAVE_OUT}.")
    return found


def _check_optimizer(path: Path, found: dict[str, Any], model: torch.nn.Module) -> None:
    """Moments of the shapes that the model's parameters have."""
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad]
    try:
        count = sum(len(group["params"]) for group in found["param_groups"])
        moments = [state["exp_avg"] for state in found["state"].values() if "exp_avg" in state]
        foreign = Counter(tuple(moment.shape) for moment in moments) - Counter(shapes)
    except (LookupError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} is damaged; {_LEAVE_OUT}.") from error
    if foreign or count != len(shapes):
        raise RequestError(
            f"{path} is of another model: it has {count} parameters, this one {len(shapes)}, or "
            f"their shapes differ; {_LEAVE_OUT}."
        )


def checkpoints(directory: str | os.PathLike[str]) -> dict[int, Path]:
    """Checkpoints by update, whole or not, oldest first."""
    found = {
        int(path.name.removeprefix("checkpoint-")): path
        for path in Path(directory).glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdecimal()
    }
    return dict(sorted(found.items()))


def last_whole_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint whose files are all as they were written; broken ones are named."""
    for path in reversed(checkpoints(directory).values()):
        if is_whole(path):
            return path
        logger.warning(
            "%s is not whole (damaged, or the run was killed while writing it); skipped.", path
        )
    return None


def averaging_set(directory: str | os.PathLike[str], *, every: int, count: int) -> list[Path]:
    """The last checkpoints of the schedule (multiples of `every`) and the last of all, whole ones.

    Those that a signal or the clock brought about are left out, so that an interrupted run ends
    with the same average as an uninterrupted one. A warning names those that are not whole.
    """
    found = checkpoints(directory)
    chosen: list[Path] = []
    broken: list[Path] = []
    for step in sorted(found, reverse=True):
        wanted = step % every == 0 or not chosen
        if wanted and len(chosen) < count:
            if is_whole(found[step]):
                chosen.append(found[step])
            else:
                broken.append(found[step])
    if broken:
        logger.warning(
            "Left out of the mean, because not whole: %s. It is of %d of %d checkpoints.",
            ", ".join(map(str, broken)),
            len(chosen),
            min(count, len(chosen) + len(broken)),
        )
    return chosen[::-1]


def last_checkpoints(directory: Path, count: int) -> list[Path]:
    """The last checkpoints of a run directory, or of the output directory of a stock Trainer.

    Args:
        directory: holds the checkpoints, or `checkpoints/` with them.
        count: how many.

    Raises:
        ValueError: there are not so many, or one of them is not whole. Those of a stock Trainer
            have no manifest that could tell.
    """
    folder = directory / CHECKPOINTS if (directory / CHECKPOINTS).is_dir() else directory
    found = list(checkpoints(folder).values())
    if len(found) < count:
        raise RequestError(
            f"{folder} holds {len(found)} checkpoint(s), not {count}; give --last {len(found)} or "
            "less."
            if found
            else f"{folder} holds no checkpoints, no folders checkpoint-N; name another directory."
        )
    sealed = any((path / MANIFEST).is_file() for path in found)
    for path in found[-count:]:
        if sealed and not is_whole(path):
            raise RequestError(
                f"{path} is not whole; name the checkpoints that are to be averaged instead."
            )
    return found[-count:]


def stopped_early(log_history: Iterable[dict[str, float]], patience: int | None) -> bool:
    """Whether the last so many evaluations did not lower the validation loss.

    What was logged is in every checkpoint, so that an interruption changes nothing.
    """
    by_update = {entry["step"]: entry["eval_loss"] for entry in log_history if "eval_loss" in entry}
    losses = [by_update[update] for update in sorted(by_update)]
    since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
    return patience is not None and since >= patience


def prune(newest: Path, *, every: int, keep: int, spare: str | None = None) -> None:
    """Delete all but the newest checkpoint and the last of the schedule, two at least.

    Two, so that there is one to fall back on; the best one, if any, is spared. What lies after the
    newest is a remnant of a run that was killed: this one went back before it.
    """
    found = checkpoints(newest.parent)
    step_of_newest = next(step for step, path in found.items() if path.name == newest.name)
    past = [step for step in found if step <= step_of_newest]
    kept = {step_of_newest, *[step for step in past if step % every == 0][-max(keep, 2) :]}
    for step, path in found.items():
        if step not in kept and path.name != Path(spare or "").name:
            # The manifest first: what is left of a deletion that was cut short is not whole.
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
