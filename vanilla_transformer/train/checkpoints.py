"""Decide which checkpoints are complete, kept, averaged (Section 6.1) and safe to resume from.

A checkpoint is many files, and a run may be killed while writing any of them. It is complete once
it has its manifest, which is written last, atomically, and lists the digest of every file. A
training resumes from it only if the settings and data that determine the updates are unchanged.
"""

import dataclasses
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, TrainerState
from transformers.trainer import OPTIMIZER_NAME, TRAINER_STATE_NAME

from ..data.dataset import has_tokens, pairs_digest, tokenizer_digest
from ..errors import RequestError
from ..storage import run_files as files
from ..storage.atomic import let_others_read_weights, sync, write_json
from ..storage.metrics import MEASURES
from ..storage.reading import checked, counted, read_json
from ..storage.saved_model import named_errors
from .arguments import VanillaTransformerTrainingArguments

logger = logging.getLogger(__name__)

PROGRESS = "progress.json"
# Our arguments that do not affect updates, and arguments of transformers that do.
_WITHOUT_EFFECT = {
    *("output_dir", "max_minutes", "early_stopping_patience", "early_stopping_on"),
    *("save_every_minutes", "checkpoints_to_keep", "logging_nan_inf_filter"),
}
_OF_TRANSFORMERS = ("adam_beta1", "label_smoothing_factor", "neftune_noise_alpha", "weight_decay")


@dataclasses.dataclass
class Progress:
    """Totals and settings of a run, from before and after resumptions; saved in each checkpoint."""

    training_seconds: float = 0.0  # wall clock inside the training loop, evaluations included
    evaluation_seconds: float = 0.0  # the part spent in evaluations
    identity: dict = dataclasses.field(default_factory=dict)  # what determines the updates
    matmul_precision: str = ""  # chosen for the processor
    world_size: int = 0  # processes; 0 before the first update
    threads: list = dataclasses.field(default_factory=list)  # numbers of threads that were used
    hardware: dict = dataclasses.field(default_factory=dict)  # the machine that trained last
    versions: dict = dataclasses.field(default_factory=dict)  # of packages, at the last (re)start
    git_commit: str | None = None  # of the clone, at the last (re)start
    unlogged: list | None = None  # sum of the losses since the last log, and the update of that log
    stream_epoch: int = 0  # completed passes over a stream
    stream_batches: int = 0  # batches taken in the current pass, by this process
    _tokens: torch.Tensor | int = 0  # a tensor on the device, so that counting need not sync
    _started: float | None = None
    _logged: tuple[float, int] = (0.0, 0)

    @property
    def seconds(self) -> float:
        """Wall-clock time in the training loop so far."""
        running = 0.0 if self._started is None else time.monotonic() - self._started
        return self.training_seconds + running

    @property
    def target_tokens(self) -> int:
        """Target tokens trained on so far, without padding."""
        return int(self._tokens)

    def stop(self) -> None:
        """Stop the clock at the end of training."""
        self.training_seconds, self._started = self.seconds, None

    def start(self) -> None:
        """Start the clock."""
        self._started = time.monotonic()
        self._logged = (self.seconds - self.evaluation_seconds, self.target_tokens)

    def count(self, num_items: torch.Tensor | int) -> None:
        """Add the target tokens of an update to the total."""
        # transformers gives a float32, which cannot count beyond 2^24.
        items = num_items.long() if isinstance(num_items, torch.Tensor) else num_items
        self._tokens = self._tokens + items

    def since_last_log(self) -> dict[str, float]:
        """Return the speed since the last call, without evaluations, and the total minutes."""
        now, tokens = self.seconds - self.evaluation_seconds, self.target_tokens
        before, tokens_before = self._logged
        self._logged = (now, tokens)
        speed = (tokens - tokens_before) / max(now - before, 1e-9)
        return {"target_tokens_per_second": round(speed, 1), "minutes": round(self.seconds / 60, 3)}

    def save(self, checkpoint: Path) -> None:
        """Write the run's totals and settings into a checkpoint, for `load` to read."""
        totals = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        now = {"training_seconds": self.seconds, "target_tokens": self.target_tokens}
        write_json(checkpoint / PROGRESS, {**totals, **now})

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read the totals that `save` wrote into a complete checkpoint."""
        totals = read_json(checkpoint / PROGRESS)
        return cls(_tokens=totals.pop("target_tokens"), **totals)


def seal(checkpoint: Path) -> None:
    """Mark a checkpoint as complete by its manifest, with each file's name and SHA-256."""
    let_others_read_weights(checkpoint)
    names = [path.name for path in checkpoint.iterdir() if path.is_file()]
    names = sorted(name for name in names if name != files.MANIFEST)
    sync(*(checkpoint / name for name in names), checkpoint)
    write_json(checkpoint / files.MANIFEST, {"files": files.digests(checkpoint, names)})


def step_of(checkpoint: Path) -> int:
    """Return the number of updates before a checkpoint, from its name."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def trainer_state(checkpoint: Path) -> TrainerState:
    """Return the state of the trainer that wrote a checkpoint, such as its log."""
    path = checkpoint / TRAINER_STATE_NAME
    with named_errors(f"{path} is not the state of a trainer"):
        return TrainerState.load_from_json(str(path))


def is_whole(checkpoint: Path) -> bool:
    """Return whether all files of a checkpoint match its manifest.

    Raises:
        OSError: A file is there but cannot be read, which says nothing about its content.
    """
    try:
        path = checkpoint / files.MANIFEST
        written = checked(read_json(path), files.Written, path)["files"]
        return not files.changed_files(checkpoint, written)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        return False


def checkpoints(directory: str | os.PathLike[str]) -> dict[int, Path]:
    """Return all checkpoints by update, complete or not, oldest first."""
    found = {
        step_of(path): path
        for path in Path(directory).glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdecimal()
    }
    return dict(sorted(found.items()))


def last_whole_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """Return the newest complete checkpoint; warn of each incomplete one that is skipped."""
    return next(filter(_is_used, reversed(checkpoints(directory).values())), None)


def _is_used(checkpoint: Path) -> bool:
    if not (whole := is_whole(checkpoint)):
        logger.warning("%s is incomplete or damaged, so it is skipped.", checkpoint)
    return whole


def averaging_set(directory: str | os.PathLike[str], *, every: int, count: int) -> list[Path]:
    """Return the last complete checkpoints at multiples of `every`, and the final one, to average.

    Checkpoints written because of a signal or the clock are left out, so that an interrupted run
    ends with the same average as an uninterrupted one. A warning names each incomplete one.
    """
    found, chosen = checkpoints(directory), list[Path]()
    for step, path in reversed(found.items()):
        if len(chosen) < count and (step % every == 0 or not chosen) and _is_used(path):
            chosen.append(path)
    scheduled = min(count, -(-max(found, default=0) // every))
    if len(chosen) < scheduled:
        logger.warning("Of the last %d checkpoints only %d can be read.", scheduled, len(chosen))
    return chosen[::-1]


def last_checkpoints(directory: Path, count: int) -> list[Path]:
    """Return the last checkpoints of a run directory, or of a stock Trainer's output directory.

    Args:
        directory: Directory with the checkpoints, or with `checkpoints/`.
        count: Number of checkpoints.

    Raises:
        ValueError: If there are too few.
    """
    folder = directory / files.CHECKPOINTS
    folder = folder if folder.is_dir() else directory
    found = list(checkpoints(folder).values())
    if len(found) < count:
        raise RequestError(f"{folder} has {counted(len(found), 'checkpoint')}, fewer than {count}.")
    return found[-count:]


def stopped_early(
    log_history: Iterable[Mapping[str, Any]], patience: int | None, watched: str = "loss"
) -> bool:
    """Return whether none of the last `patience` evaluations was the best so far.

    Better means a lower validation loss, or a better score by the watched measure.

    Every checkpoint holds the log, so a resumed run gives the same answer, with one exception: if
    it was interrupted in an update that is due for evaluation, that evaluation is left out.
    """
    key = f"eval_{watched}"
    by_update = {entry["step"]: entry[key] for entry in log_history if key in entry}
    values = [by_update[update] for update in sorted(by_update)]
    best = MEASURES[watched].best if watched in MEASURES else min
    since = len(values) - 1 - values.index(best(values)) if values else 0
    return patience is not None and since >= patience


def prune(newest: Path, *, every: int, keep: int | None, spare: str | None = None) -> None:
    """Delete old checkpoints: keep the newest and the last `keep` scheduled ones; None keeps all.

    At least two scheduled ones stay, so that there is one to fall back on; so does `spare`, the
    best one. Checkpoints of later updates than `newest` are deleted: a killed process left them,
    and this one resumed from an earlier checkpoint.
    """
    found = checkpoints(newest.parent)
    step_of_newest = next(step for step, path in found.items() if path.name == newest.name)
    past = [step for step in found if step <= step_of_newest]
    scheduled = [step for step in past if step % every == 0]
    kept = {step_of_newest, *(past if keep is None else scheduled[-max(keep, 2) :])}
    for step, path in found.items():
        if step not in kept and path.name != Path(spare or "").name:
            # Deleted first, so that an interrupted deletion leaves no folder that looks like a
            # complete checkpoint or another trainer's.
            for name in (files.MANIFEST, TRAINER_STATE_NAME):
                (path / name).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def checkpoint_to_resume(folder: Path, asked: str | os.PathLike[str] | bool | None) -> Path | None:
    """Return the checkpoint to resume from; None for a new run.

    Args:
        folder: Output directory of the run, which deletes older checkpoints there.
        asked: A checkpoint, or whether to resume from the folder's last complete one.

    Raises:
        ValueError: Another run's checkpoints would be deleted, or there is no checkpoint.
    """
    given = None if asked is None or isinstance(asked, bool) else Path(asked)
    elsewhere = given is not None and given.resolve().parent != folder.resolve()
    for path in checkpoints(folder).values():
        stock = (path / TRAINER_STATE_NAME).is_file() and not (path / PROGRESS).is_file()
        if stock or elsewhere:
            raise RequestError(f"{path} belongs to another run; give another output_dir.")
    if given is not None:
        return given
    found = last_whole_checkpoint(folder)
    if bool(asked) != (found is not None):
        held = "no complete checkpoint" if found is None else found.name
        raise RequestError(f"{folder} holds {held}; give resume_from_checkpoint={not asked}.")
    return found


def progress_to_continue(checkpoint: Path, identity: files.Identity) -> Progress:
    """Return a checkpoint's totals; refuse it if it is incomplete or of another run.

    Args:
        checkpoint: The checkpoint.
        identity: Result of `identity_of_updates` for this run.

    Raises:
        ValueError: It is incomplete, or the settings or data that determine updates differ.
    """
    has_parts = all(map(any, map(checkpoint.glob, ("*.safetensors", OPTIMIZER_NAME))))
    if not is_whole(checkpoint) or not has_parts:
        parts = f".safetensors files or {OPTIMIZER_NAME}, which save_only_model leaves out"
        raise RequestError(f"{checkpoint} is incomplete or lacks {parts}; resume from another.")
    progress = Progress.load(checkpoint)
    files.check_same(progress.identity, identity, "the checkpoint was trained differently")
    return progress


def identity_of_updates(
    args: VanillaTransformerTrainingArguments,
    *,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase | None,
    train_dataset: Any,
    constants: Mapping[str, object],
) -> dict[str, Any]:
    """Return the settings and digests that determine all updates of a run.

    Args:
        args: The training arguments.
        config: The model's config.
        tokenizer: The tokenizer, if it is known.
        train_dataset: The training data.
        constants: Constants of the optimizer, which the arguments may not describe.
    """
    own = VanillaTransformerTrainingArguments.__annotations__.keys() - _WITHOUT_EFFECT
    names = {*own, *_OF_TRANSFORMERS}
    values = {name: getattr(args, name) for name in sorted(names)}
    values |= {f"optimizer's {name}": str(value) for name, value in constants.items()}
    is_tokens = has_tokens(train_dataset)
    by_number = args.batch_tokens is None or not is_tokens
    return {
        "training pairs": pairs_digest(train_dataset) if is_tokens else None,
        "examples in a batch": args.per_device_train_batch_size if by_number else None,
        "tokenizer": None if tokenizer is None else tokenizer_digest(tokenizer),
        # The argument counts the batches of one process.
        "batches_per_update": args.gradient_accumulation_steps * args.world_size,
        "seed of the order": args.order_seed,
        "seed of bpe_dropout": args.seed if args.bpe_dropout else None,
        "precision": args.precision,
        # As JSON types, because tuples and enumerations would differ after reading them back.
        **json.loads(json.dumps(values)),
        "model": {
            name: value
            for name, value in files.config_identity(config.to_dict()).items()
            if isinstance(value, str | int | float)
        },
    }


def check_rate(schedule: LRScheduler | None, update: int) -> None:
    """Refuse to resume with a schedule whose learning rate differs from the checkpoint's."""
    if update == 0 or not isinstance(schedule, LambdaLR):
        return
    rates = zip(schedule.base_lrs, schedule.lr_lambdas, schedule.get_last_lr(), strict=True)
    for base, factor, last in rates:
        if not math.isclose(now := base * factor(schedule.last_epoch), last, rel_tol=1e-6):
            what = f"the checkpoint's learning rate is {last:.3g}, and the schedule's {now:.3g}"
            raise RequestError(f"{what}; give the same arguments again.")
