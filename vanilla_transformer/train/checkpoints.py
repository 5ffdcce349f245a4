"""Decide which checkpoints of a run are whole, kept and averaged (Section 6.1).

A checkpoint is many files, and a run may be killed while writing any of them. It counts only once
it has its manifest, which is written last, atomically, and lists the digest of every file.
"""

import dataclasses
import logging
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerState
from transformers.trainer_pt_utils import safe_globals

from ..errors import RequestError
from ..storage.atomic import let_others_read_weights, sync, write_json, writing
from ..storage.pickles import read_pickle
from ..storage.reading import read_json, sha256
from ..storage.run_files import CHECKPOINTS

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
_LEAVE_OUT = "resume from another checkpoint"
_NUMBER = (int, float)
_TOTALS: dict[str, type | tuple[type, ...]] = {
    "training_seconds": _NUMBER,
    "evaluation_seconds": _NUMBER,
    "target_tokens": int,
}
# Each may be missing: checkpoints of earlier versions do not record it.
_CONDITIONS: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "matmul_precision": str,
    "world_size": int,
    "batches_per_update": int,
    "precision": str,
    "batch_tokens": int,
    "order_seed": int,
    "hardware": dict,
}
_STATE: dict[str, type | tuple[type, ...]] = {
    "global_step": int,
    "epoch": _NUMBER,
    "log_history": list,
    "stateful_callbacks": dict,
}
# Keys that transformers reads from each state file.
_KEYS = {
    "optimizer.pt": ("state", "param_groups"),
    "scheduler.pt": ("last_epoch",),
    "rng_state": ("python", "numpy", "cpu"),
}


@dataclasses.dataclass
class Progress:
    """Totals and settings of a run over all its resumptions; saved in each checkpoint."""

    training_seconds: float = 0.0  # wall clock inside the training loop, evaluations included
    evaluation_seconds: float = 0.0  # the part spent in evaluations
    data: str = ""  # fingerprint of the training pairs
    matmul_precision: str = ""  # of float32, chosen for the machine the run started on
    world_size: int = 0  # processes; 0 before the first update
    batches_per_update: int = 0  # of all processes; 0 if the checkpoint does not record it
    precision: str = ""  # fp32, bf16 or fp16; empty if the checkpoint does not record it
    batch_tokens: int | None = None  # None if the checkpoint does not record it
    order_seed: int | None = None  # of the order of batches; None if not recorded
    # of the machine that trained last; empty if the checkpoint does not record it
    hardware: dict[str, Any] = dataclasses.field(default_factory=dict)
    _tokens: torch.Tensor | int = 0  # a tensor on the device, so that counting need not sync
    _started: float | None = None
    _logged: tuple[float, int] = (0.0, 0)

    @property
    def seconds(self) -> float:
        """Wall clock in the training loop until now."""
        running = 0.0 if self._started is None else time.monotonic() - self._started
        return self.training_seconds + running

    @property
    def target_tokens(self) -> int:
        """Target tokens trained on so far, without padding."""
        return int(self._tokens)

    def require(
        self,
        *,
        data: str,
        batches_per_update: int,
        precision: str,
        batch_tokens: int,
        order_seed: int,
    ) -> None:
        """Refuse to resume with other settings than the run started with.

        The number of processes may change, as it does not affect the updates.

        Raises:
            ValueError: other pairs, batches, updates or another precision.
        """
        otherwise = "start a new run in another directory."
        if self.data not in ("", data):
            raise RequestError(
                f"the training pairs are not those that the checkpoint was trained on; {otherwise}"
            )
        if self.batches_per_update not in (0, batches_per_update):
            raise RequestError(
                f"got {batches_per_update} batches in an update (gradient_accumulation_steps times "
                f"processes); the checkpoint was trained with {self.batches_per_update}. Change "
                f"one of the two factors, or {otherwise}"
            )
        if self.batch_tokens not in (None, batch_tokens):
            raise RequestError(
                f"got batch_tokens={batch_tokens}; the checkpoint was trained with "
                f"{self.batch_tokens}, and so in other batches. Give that number, or {otherwise}"
            )
        if self.order_seed not in (None, order_seed):
            raise RequestError(
                f"got seed {order_seed}; the checkpoint was trained with {self.order_seed}, and so "
                f"in another order. Give that seed, or {otherwise}"
            )
        if self.precision not in ("", precision):
            raise RequestError(
                f"got precision {precision} on this machine; the checkpoint was trained in "
                f"{self.precision}. Resume on a machine with that precision, or {otherwise}"
            )

    @property
    def is_running(self) -> bool:
        """Whether a training is in progress."""
        return self._started is not None

    def stop(self) -> None:
        """Stop the clock: what follows the training is not part of it."""
        self.training_seconds, self._started = self.seconds, None

    def start(self) -> None:
        """Start the clock."""
        self._started = time.monotonic()
        self._logged = (self.seconds - self.evaluation_seconds, self.target_tokens)

    def count(self, num_items: torch.Tensor | int) -> None:
        """Add the target tokens of an update."""
        # transformers gives a float32, which cannot count beyond 2^24.
        self._tokens = self._tokens + (
            num_items.long() if isinstance(num_items, torch.Tensor) else num_items
        )

    def since_last_log(self) -> dict[str, float]:
        """Return the speed since the last call, without evaluations, and the total minutes."""
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
            **{name: getattr(self, name) for name in _CONDITIONS},
        }
        known = {name: value for name, value in totals.items() if value is not None}
        write_json(checkpoint / PROGRESS, known)

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read what `save` wrote.

        Raises:
            ValueError: if the file holds something else.
            OSError: if it cannot be read.
        """
        path = checkpoint / PROGRESS
        totals = read_json(path, keys=_TOTALS, remedy=_LEAVE_OUT)
        conditions = {name: kind for name, kind in _CONDITIONS.items() if name in totals}
        read_json(path, keys=conditions, remedy=_LEAVE_OUT)
        if foreign := totals.keys() - (_TOTALS | _CONDITIONS).keys():
            raise RequestError(f"{path} holds {min(foreign)!r}, which no run wrote; {_LEAVE_OUT}.")
        for name, value in totals.items():
            if not isinstance(value, str | dict) and not 0 <= value < math.inf:
                raise RequestError(f"{name!r} in {path} is {value}; {_LEAVE_OUT}.")
        tokens = totals.pop("target_tokens")
        return cls(**totals, _tokens=tokens)


def digests(folder: Path, names: Iterable[str]) -> dict[str, dict[str, object]]:
    """Return the size in bytes and SHA-256 of some files of a folder, by name."""
    return {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }


def changed_files(folder: Path, recorded: object) -> list[str]:
    """Return the files of a folder that are missing or no longer match their digests.

    Args:
        folder: folder with the files; names that point outside it are refused.
        recorded: the result of `digests`, read back from a file that may be damaged.

    Raises:
        ValueError: if `recorded` does not have the form that `digests` returns.
    """
    if not isinstance(recorded, dict) or not recorded:
        raise RequestError(f"the record of the files in {folder} is damaged.")
    changed = []
    for name, facts in recorded.items():
        path = folder / name
        if not isinstance(facts, dict) or Path(name).name != name:
            raise RequestError(f"the record of the files in {folder} is damaged.")
        same = path.is_file() and path.stat().st_size == facts.get("size")
        if not same or sha256(path) != facts.get("sha256"):
            changed.append(name)
    return changed


def seal(checkpoint: Path) -> None:
    """Mark a checkpoint as whole: write its manifest with each file's name, size and SHA-256."""
    let_others_read_weights(checkpoint)
    names = [path.name for path in checkpoint.iterdir() if path.is_file()]
    names = sorted(name for name in names if name != MANIFEST)
    sync(*(checkpoint / name for name in names), checkpoint)
    write_json(checkpoint / MANIFEST, {"files": digests(checkpoint, names)})


def is_whole(checkpoint: Path) -> bool:
    """Return whether all files of a checkpoint match its manifest.

    Raises:
        OSError: a file is there but cannot be read, which says nothing about its content.
    """
    try:
        if changed_files(checkpoint, read_json(checkpoint / MANIFEST).get("files")):
            return False
        Progress.load(checkpoint)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        return False
    return True


@contextmanager
def checkpoint_written(checkpoint: Path) -> Iterator[None]:
    """Explain in one line why a checkpoint could not be written and where the run will resume.

    Raises:
        ValueError: if writing failed, or the run directory is gone.
    """
    try:
        with writing(checkpoint, only_saves=True):
            yield
    except RequestError as error:
        earlier = [path for path in checkpoints(checkpoint.parent).values() if path != checkpoint]
        kept = next(filter(is_whole, reversed(earlier)), None)
        start = f"resumes from {kept.name}" if kept else "begins from scratch"
        raise RequestError(f"{error} The next start {start}.") from error


def check_state(checkpoint: Path, model: torch.nn.Module, *, plain_adam: bool = True) -> None:
    """Refuse a checkpoint that cannot be resumed from, before Trainer loads any of it.

    No code in it is run: weights are safetensors, and other files may hold only tensors and plain
    values.

    Args:
        checkpoint: directory to resume from; may come from elsewhere and have no manifest.
        model: the model to resume training.
        plain_adam: whether the optimizer's moments have the shapes of the parameters.

    Raises:
        ValueError: if a file is missing, damaged, or of another model; the message names it.
    """
    if not checkpoint.is_dir():
        raise RequestError(f"there is no checkpoint {checkpoint}; {_LEAVE_OUT}.")
    path = checkpoint / "trainer_state.json"
    state = read_json(path, keys=_STATE, remedy=_LEAVE_OUT)
    if foreign := state.keys() - {field.name for field in dataclasses.fields(TrainerState)}:
        raise RequestError(f"{path} holds {min(foreign)!r}, which no run wrote; {_LEAVE_OUT}.")
    _check_weights(checkpoint, model)
    for path in sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]):
        found = _read_part(path)
        if path.name == "optimizer.pt" and plain_adam:
            _check_optimizer(path, found, model)


def _check_weights(checkpoint: Path, model: torch.nn.Module) -> None:
    """Refuse weights that are unreadable or have other shapes; Trainer compares the names later."""
    paths = sorted(checkpoint.glob("*.safetensors"))
    if not paths:
        raise RequestError(
            f"{checkpoint} holds no weights as safetensors; other formats are not read, because "
            f"they could run code; {_LEAVE_OUT}."
        )
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118, not a dict
                    found = file.get_slice(name).get_shape()
                    if found != shapes.get(name, found):
                        raise RequestError(
                            f"{name} in {path} has shape {found}, in the model {shapes[name]}; "
                            "resume with the model that wrote it."
                        )
        except SafetensorError as error:
            raise RequestError(f"{path} is damaged ({error}); {_LEAVE_OUT}.") from error


def _read_part(path: Path) -> Any:
    """Read a state file of a checkpoint and check that it has the keys that Trainer reads."""
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
    """Refuse an optimizer state that does not fit the model's parameters."""
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad]
    try:
        count = sum(len(group["params"]) for group in found["param_groups"])
        moments = [state["exp_avg"] for state in found["state"].values() if "exp_avg" in state]
        foreign = Counter(tuple(moment.shape) for moment in moments) - Counter(shapes)
    except (LookupError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} is damaged; {_LEAVE_OUT}.") from error
    if foreign or count != len(shapes):
        raise RequestError(
            f"{path} is of another model: it has {count} parameters, this model {len(shapes)}, or "
            f"their shapes differ; {_LEAVE_OUT}."
        )


def checkpoints(directory: str | os.PathLike[str]) -> dict[int, Path]:
    """Return all checkpoints by update, whole or not, oldest first."""
    found = {
        int(path.name.removeprefix("checkpoint-")): path
        for path in Path(directory).glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdecimal()
    }
    return dict(sorted(found.items()))


def last_whole_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """Return the newest whole checkpoint; log a warning for each broken one that is skipped."""
    for path in reversed(checkpoints(directory).values()):
        if is_whole(path):
            return path
        logger.warning(
            "%s is not whole (damaged, or the run was killed while writing it); skipped.", path
        )
    return None


def averaging_set(directory: str | os.PathLike[str], *, every: int, count: int) -> list[Path]:
    """Return the last whole checkpoints to average: multiples of `every`, and the very last one.

    Checkpoints written because of a signal or the clock are left out, so that an interrupted run
    ends with the same average as an uninterrupted one. A warning names those that are not whole.
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
            "Not averaged, because not whole: %s. The mean is over %d of %d checkpoints.",
            ", ".join(map(str, broken)),
            len(chosen),
            min(count, len(chosen) + len(broken)),
        )
    last = max(found, default=0)
    scheduled = min(count, last // every + bool(last % every))
    if len(chosen) + len(broken) < scheduled:
        logger.warning(
            "The mean is over %d checkpoints instead of %d: the run kept no more.",
            len(chosen),
            scheduled,
        )
    return chosen[::-1]


def last_checkpoints(directory: Path, count: int) -> list[Path]:
    """Return the last checkpoints of a run directory, or of a stock Trainer's output directory.

    Args:
        directory: directory with the checkpoints, or with `checkpoints/`.
        count: number of checkpoints.

    Raises:
        ValueError: if there are too few, or one is not whole. A stock Trainer writes no manifest,
            so its checkpoints are not checked.
    """
    folder = directory / CHECKPOINTS if (directory / CHECKPOINTS).is_dir() else directory
    found = list(checkpoints(folder).values())
    if len(found) < count:
        raise RequestError(
            f"{folder} holds {len(found)} checkpoint(s), not {count}; give --last {len(found)} or "
            "less."
            if found
            else f"{folder} holds no checkpoints (folders checkpoint-N); name another directory."
        )
    sealed = any((path / MANIFEST).is_file() for path in found)
    for path in found[-count:]:
        if sealed and not is_whole(path):
            raise RequestError(
                f"{path} is not whole; name the checkpoints to average instead of --last."
            )
    return found[-count:]


def stopped_early(log_history: Iterable[dict[str, float]], patience: int | None) -> bool:
    """Return whether the last `patience` evaluations did not lower the validation loss.

    Every checkpoint holds the log, so a resumed run gives the same answer, with one exception: if
    it was interrupted in an update that is due for evaluation, that evaluation is left out.
    """
    by_update = {entry["step"]: entry["eval_loss"] for entry in log_history if "eval_loss" in entry}
    losses = [by_update[update] for update in sorted(by_update)]
    since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
    return patience is not None and since >= patience


def prune(newest: Path, *, every: int, keep: int, spare: str | None = None) -> None:
    """Delete all but the newest checkpoint and the last `keep` of the schedule.

    At least two of the schedule stay, so that there is one to fall back on; so does `spare`, the
    best one. Checkpoints of later updates than `newest` are remnants of a killed start: this
    start resumed from an earlier checkpoint.
    """
    found = checkpoints(newest.parent)
    step_of_newest = next(step for step, path in found.items() if path.name == newest.name)
    past = [step for step in found if step <= step_of_newest]
    kept = {step_of_newest, *[step for step in past if step % every == 0][-max(keep, 2) :]}
    for step, path in found.items():
        if step not in kept and path.name != Path(spare or "").name:
            # The manifest goes first, so that an interrupted deletion leaves no whole checkpoint.
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
