"""Which checkpoints of a run are whole, which are kept, and which are averaged (Section 6.1).

A checkpoint is many files, and a run may be killed between any two bytes of them. It counts only
once its manifest is there, which is written last, at once, and names the content of every file.
"""

import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import RequestError
from ..storage.atomic import write_json
from ..storage.reading import read_json, sha256

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
PROGRESS = "progress.json"


@dataclass
class Progress:
    """What a run has used so far, over all its resumptions; saved in each checkpoint."""

    training_seconds: float = 0.0  # wall clock inside the training loop, evaluations included
    evaluation_seconds: float = 0.0  # the part of it that evaluations took
    data: str = ""  # fingerprint of the training pairs
    matmul_precision: str = ""  # of float32, as it was chosen for the machine that began
    world_size: int = 0  # processes; 0 in checkpoints that do not say it
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

    def require(self, *, data: str, world_size: int, precision: str) -> None:
        """Refuse to go on otherwise than the run began.

        Raises:
            ValueError: other pairs, another number of processes or another precision.
        """
        otherwise = "start a new run in another directory."
        if self.data not in ("", data):
            raise RequestError(
                f"the training pairs are not those that the checkpoint was trained on; {otherwise}"
            )
        if self.world_size not in (0, world_size):
            raise RequestError(
                f"got {world_size} process(es); the checkpoint was trained by {self.world_size}. "
                f"Start {self.world_size}, or {otherwise}"
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
            "precision": self.precision,
        }
        (checkpoint / PROGRESS).write_text(json.dumps(totals), encoding="utf-8")

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read what `save` wrote."""
        totals = read_json(checkpoint / PROGRESS)
        tokens = totals.pop("target_tokens")
        return cls(**totals, _tokens=tokens)


def seal(checkpoint: Path) -> None:
    """Declare a checkpoint whole: name, size and SHA-256 of each file, written last and at once."""
    files = {}
    for path in sorted(checkpoint.iterdir()):
        if path.name != MANIFEST and path.is_file():
            files[path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
    write_json(checkpoint / MANIFEST, {"files": files})


def is_whole(checkpoint: Path) -> bool:
    """Whether the files of a checkpoint are those that were sealed."""
    try:
        files = read_json(checkpoint / MANIFEST)["files"]
        return all(
            (checkpoint / name).stat().st_size == facts["size"]
            and sha256(checkpoint / name) == facts["sha256"]
            for name, facts in files.items()
        )
    except (OSError, ValueError, KeyError):
        return False


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
        logger.warning("%s is not whole (the run was killed while writing it); skipped.", path)
    return None


def averaging_set(directory: str | os.PathLike[str], *, every: int, count: int) -> list[Path]:
    """The last checkpoints of the schedule (multiples of `every`) and the last of all, whole ones.

    Those that a signal or the clock brought about are left out, so that an interrupted run ends
    with the same average as an uninterrupted one.
    """
    found = checkpoints(directory)
    chosen: list[Path] = []
    for step in sorted(found, reverse=True):
        wanted = step % every == 0 or not chosen
        if wanted and len(chosen) < count and is_whole(found[step]):
            chosen.append(found[step])
    return chosen[::-1]


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
