"""Resume a training: choose its checkpoint, and refuse one whose updates were other ones."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.trainer import OPTIMIZER_NAME, TRAINER_STATE_NAME

from ..data.dataset import has_tokens, pairs_digest, tokenizer_digest
from ..errors import RequestError
from ..storage.identity import Identity, check_same, config_identity, differences
from .arguments import VanillaTransformerTrainingArguments
from .checkpoints import PROGRESS, Progress, checkpoints, is_whole, last_whole_checkpoint

logger = logging.getLogger(__name__)

# Of our own arguments, those that decide no update; and those of transformers that do.
_WITHOUT_EFFECT = frozenset(
    {
        *("output_dir", "max_minutes", "early_stopping_patience", "early_stopping_on"),
        *("save_every_minutes", "checkpoints_to_keep", "logging_nan_inf_filter"),
    }
)
_OF_TRANSFORMERS = ("adam_beta1", "label_smoothing_factor", "neftune_noise_alpha", "weight_decay")


def checkpoint_to_resume(folder: Path, asked: str | os.PathLike[str] | bool | None) -> Path | None:
    """Return the checkpoint that a training resumes from; None: it is a new one.

    Args:
        folder: Output directory of the training, which deletes older checkpoints there.
        asked: A checkpoint, or whether to resume from the last whole one of the folder.

    Raises:
        ValueError: The training would delete checkpoints of another one, or there is none.
    """
    given = None if asked is None or isinstance(asked, bool) else Path(asked)
    elsewhere = given is not None and given.resolve().parent != folder.resolve()
    for path in checkpoints(folder).values():
        stock = (path / TRAINER_STATE_NAME).is_file() and not (path / PROGRESS).is_file()
        if stock or elsewhere:
            raise RequestError(f"{path} is of another training; give another output_dir.")
    if given is not None:
        return given
    found = last_whole_checkpoint(folder)
    if bool(asked) != (found is not None):
        holds = "no whole checkpoint" if found is None else f"{found}, which it would replace"
        raise RequestError(
            f"got resume_from_checkpoint={asked}, but output_dir holds {holds}; give "
            f"{not asked}, or another output_dir."
        )
    return found


def progress_to_continue(checkpoint: Path, identity: Identity) -> Progress:
    """Return the clock and counts of a checkpoint, if it is whole and of this training.

    Args:
        checkpoint: The checkpoint.
        identity: Result of `identity_of_updates` for this training.

    Raises:
        ValueError: It is broken, or what decides the updates was different.
    """
    has_parts = all(map(any, map(checkpoint.glob, ("*.safetensors", OPTIMIZER_NAME))))
    if not is_whole(checkpoint) or not has_parts:
        raise RequestError(
            f"{checkpoint} is not whole, or lacks .safetensors, or (with save_only_model) "
            f"{OPTIMIZER_NAME}; resume from another checkpoint."
        )
    progress = Progress.load(checkpoint)
    check_same(progress.identity, identity, "the checkpoint was trained otherwise")
    return progress


def check_repeatable(dataset: Any) -> None:
    """Refuse to resume from a stream whose passes over the data cannot be chosen by number."""
    if not hasattr(dataset, "set_epoch"):
        raise RequestError(
            f"cannot resume in a stream ({type(dataset).__name__}) without set_epoch(epoch); give "
            "it this method, or ignore_data_skip=True to begin it anew."
        )


class Stream:
    """The batches of a data set without a length, pass after pass over it.

    A pass is what the trainer calls an epoch. What is left of it after the last whole update is
    left out, because its gradients would be added to those of the next update.

    Args:
        loader: The batches, as prepared by accelerate.
        per_update: Batches of an update.

    Attributes:
        epoch: Number of the pass, from 0.
        batches: How many of this pass were handed out.
    """

    def __init__(self, loader: Any, *, per_update: int) -> None:
        self.loader, self.per_update = loader, per_update
        self.epoch = self.batches = self._first = self._skipped = 0
        self._restore: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def resume(self, epoch: int, batches: int, restore: Callable[[], None]) -> None:
        """Begin in the pass `epoch`, after some batches of it.

        Args:
            epoch: Number of the pass.
            batches: Those that were trained on.
            restore: Sets the random numbers to those of the checkpoint, after reading to there.
        """
        self.epoch, self._first = epoch, epoch
        self._skipped, self._restore = batches, restore

    def set_epoch(self, epoch: int) -> None:
        """Choose the pass by its number since this start."""
        self.epoch, self.batches = self._first + epoch, 0
        self.loader.set_epoch(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass, or the rest of the one in which the training stopped."""
        updates = self._updates()
        if self._restore is not None:
            restore, self._restore = self._restore, None
            for update in islice(updates, self._skipped // self.per_update):
                self.batches += len(update)
            if self.batches < self._skipped:
                raise RequestError(
                    f"the training stream ended after {self.batches} batches of {self._skipped} "
                    "that the checkpoint has seen: it holds other pairs, or can be read only once."
                )
            begun = [*islice(updates, 1)]
            restore()
            if not begun:  # the training stopped between two passes
                self._first += 1
                self.set_epoch(0)
                updates = self._updates()
            updates = chain(begun, updates)
        for update in updates:
            for batch in update:
                self.batches += 1
                yield batch
        if self.epoch == self.batches == 0:
            raise RequestError(
                f"got a training stream of fewer than gradient_accumulation_steps="
                f"{self.per_update} batches, so it gives no update."
            )

    def _updates(self) -> Iterator[list[Any]]:
        batches = iter(self.loader)
        while len(update := list(islice(batches, self.per_update))) == self.per_update:
            yield update


def tell_of_resumption(checkpoint: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Log what resumes, and warn of other versions.

    Args:
        checkpoint: Where the training resumes.
        before: Versions of the packages that wrote the checkpoint.
        now: Those of this process.
    """
    logger.info("Resuming from %s.", checkpoint)
    if changed := differences(before, now):
        logger.warning("Other versions may round differently: %s.", "; ".join(changed))


def identity_of_updates(
    args: VanillaTransformerTrainingArguments,
    *,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase | None,
    train_dataset: Any,
    constants: Mapping[str, object],
) -> dict[str, Any]:
    """Return what decides the updates of a training, whatever the number of processes.

    Args:
        args: Its arguments.
        config: The model's config.
        tokenizer: The tokenizer, if it is known.
        train_dataset: The training data.
        constants: Those of an optimizer that the arguments may not describe.
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
        # As JSON gives them back: lists and enumerations would not be equal.
        **json.loads(json.dumps(values)),
        "model": {
            name: value
            for name, value in config_identity(config.to_dict()).items()
            if isinstance(value, str | int | float)
        },
    }


def check_rate(schedule: LRScheduler | None, update: int) -> None:
    """Refuse to go on with a schedule that would have had another rate until here."""
    if update == 0 or not isinstance(schedule, LambdaLR):
        return
    rates = zip(schedule.base_lrs, schedule.lr_lambdas, schedule.get_last_lr(), strict=True)
    for base, factor, last in rates:
        if not math.isclose(now := base * factor(schedule.last_epoch), last, rel_tol=1e-6):
            raise RequestError(
                f"the checkpoint ends with a learning rate of {last:.3g}, and the schedule has "
                f"{now:.3g} there; give its arguments and the length of the training as they were."
            )
