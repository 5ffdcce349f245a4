"""Resume a training: choose its checkpoint, and refuse one whose updates were other ones."""

import json
import logging
import math
import os
from collections.abc import Mapping
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
    present = checkpoints(folder)
    for path in present.values():
        if (path / TRAINER_STATE_NAME).is_file() and not (path / PROGRESS).is_file():
            raise RequestError(
                f"{path} is of another trainer, and a training here would delete it; give another "
                "output_dir."
            )
    if asked is not None and not isinstance(asked, bool):
        if Path(asked).resolve().parent != folder.resolve() and present:
            raise RequestError(
                f"got resume_from_checkpoint={str(asked)!r}, but output_dir {folder} has "
                "checkpoints of its own, which the training would delete; give another one."
            )
        return Path(asked)
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
            f"{OPTIMIZER_NAME}; resume from another checkpoint, or start a new training from "
            "its model."
        )
    progress = Progress.load(checkpoint)
    check_same(progress.identity, identity, "the checkpoint was trained otherwise")
    return progress


def tell_of_resumption(checkpoint: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Log what resumes, and warn of other versions.

    Args:
        checkpoint: Where the training resumes.
        before: Versions of the packages that wrote the checkpoint.
        now: Those of this process.
    """
    logger.info("Resuming from %s.", checkpoint)
    if changed := differences(before, now):
        logger.warning(
            "The checkpoint was trained with other versions (%s): what follows may be rounded "
            "otherwise.",
            "; ".join(changed),
        )


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
                f"{now:.3g} there; give its arguments and the length of the training as they "
                "were, or start a new training in another directory."
            )
