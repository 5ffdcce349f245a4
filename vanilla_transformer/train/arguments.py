"""The arguments of a training: the paper's defaults, those of our own, and those that are refused.

Whatever the host's trainer does with an argument ours does too, or it refuses the argument by name.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from ..errors import RequestError
from ..recipes.recipe import Recipe

_BATCHES = "batches are filled up to batch_tokens; set that"
_FLOAT32 = "an evaluation computes in the model's own precision; leave it out"
_WHOLE_MODEL = "each process holds the whole model here; take Seq2SeqTrainer"
_NO_PUSH = "nothing is pushed while training; call push_to_hub(license=...) after it"
_GREEDY = (
    "this trainer reports perplexity and greedy BLEU of validation_pairs. Take Seq2SeqTrainer for "
    "other metrics"
)
# Arguments of the host that our trainer does not act on, and what to do about it.
UNUSED = {
    "per_device_train_batch_size": _BATCHES,
    "per_device_eval_batch_size": _BATCHES,
    "auto_find_batch_size": _BATCHES,
    "train_sampling_strategy": "a batch holds pairs of similar length as it is; leave it out",
    "dataloader_drop_last": "every pair is trained on in every epoch; leave it out",
    "dataloader_in_order": "the order of the batches is that of the seed; leave it out",
    "dataloader_persistent_workers": "workers start anew with every epoch; leave it out",
    "remove_unused_columns": "batches are made of input_ids and labels alone; leave it out",
    "label_names": "the labels are the column labels; leave it out",
    "average_tokens_across_devices": "all target tokens of an update weigh the same; leave it out",
    "bf16_full_eval": _FLOAT32,
    "fp16_full_eval": _FLOAT32,
    "label_smoothing_factor": (
        "the model smooths its own loss: set label_smoothing in its config and leave the factor "
        "at 0"
    ),
    "predict_with_generate": _GREEDY,
    "generation_max_length": _GREEDY,
    "generation_num_beams": _GREEDY,
    "enable_jit_checkpoint": "SIGTERM brings about a checkpoint as it is; leave it out",
    "hub_strategy": _NO_PUSH,
    "hub_always_push": _NO_PUSH,
    "fsdp": _WHOLE_MODEL,
    "deepspeed": _WHOLE_MODEL,
    "parallelism_config": _WHOLE_MODEL,
}


@dataclass
class VanillaTransformerTrainingArguments(Seq2SeqTrainingArguments):
    """Seq2SeqTrainingArguments with the paper's defaults and what our trainer adds.

    The paper's optimizer and schedule are the default. Whoever names others gets the host's, with
    the host's meaning of every argument.

    Args:
        batch_tokens: Source and target tokens, padding included, in a batch; in place of the host's
            batch sizes. An update has `gradient_accumulation_steps` batches of each process.
        bpe_dropout: Probability of taking a piece of a word apart, anew in every batch, as
            `BpeDropout` does; rows are longer by it than the budget of `batch_tokens` counts.
        r_drop: Weight alpha of R-Drop, as `r_drop_loss` has it: every pair is trained on under two
            dropout masks, at twice the time and memory of a batch.
        learning_rate: Largest rate of the schedule. None is Eq. 3's own, times
            `learning_rate_factor`.
        learning_rate_factor: Multiple of Eq. 3, where there is no `learning_rate`.
        lr_scheduler_type: A schedule of the host, which needs a `learning_rate`. None is Eq. 3.
        optim: An optimizer of the host. None is the paper's Adam; with `weight_decay` it is AdamW.
        warmup_steps: Updates until the learning rate peaks; less than 1 is a share of the run.
        max_minutes: Stop after so many minutes of wall clock inside the training loop, those before
            a resumption included; None does not.
        early_stopping_patience: Stop after so many evaluations without a lower `eval_loss`, those
            before a resumption included; None does not.
        save_every_minutes: Write a checkpoint to resume from when none is newer; 0 does not.
        checkpoints_to_keep: Scheduled checkpoints (multiples of `save_steps`) that are not deleted.
        disable_tqdm: False shows a progress bar up to the end of the updates or the minutes. None
            does not: a line of the log tells how far the training is.
    """

    output_dir: str = field(default="trainer_output")  # the host's own, which is never None
    batch_tokens: int = field(default=Recipe.batch_tokens)
    bpe_dropout: float = field(default=Recipe.bpe_dropout)
    r_drop: float = field(default=Recipe.r_drop)
    learning_rate: float | None = field(default=None)  # type: ignore[assignment]  # None: Eq. 3
    learning_rate_factor: float = field(default=Recipe.learning_rate_factor)
    lr_scheduler_type: SchedulerType | str | None = field(default=None)  # type: ignore[assignment]
    optim: OptimizerNames | str | None = field(default=None)  # type: ignore[assignment]
    warmup_steps: float = field(default=Recipe.warmup_steps)
    adam_beta2: float = field(default=Recipe.adam_beta2)
    adam_epsilon: float = field(default=Recipe.adam_epsilon)
    max_grad_norm: float = field(default=Recipe.max_grad_norm)
    max_minutes: float | None = field(default=Recipe.max_minutes)
    early_stopping_patience: int | None = field(default=Recipe.early_stopping_patience)
    save_every_minutes: float = field(default=0.0)
    checkpoints_to_keep: int = field(default=Recipe.checkpoints_to_average)

    def __post_init__(self) -> None:
        """As the host's, which has no None for a schedule and an optimizer."""
        if self.disable_tqdm is None:
            self.disable_tqdm = True
        papers = [name for name in ("lr_scheduler_type", "optim") if getattr(self, name) is None]
        for name in papers:
            setattr(self, name, getattr(Seq2SeqTrainingArguments, name))
        super().__post_init__()
        for name in papers:
            setattr(self, name, None)

    def __getstate__(self) -> dict[str, object]:
        """All but the token of the Hub: every checkpoint holds a pickle of its arguments."""
        return {**self.__dict__, "hub_token": None}

    @property
    def base_learning_rate(self) -> float:
        """What a schedule multiplies: Eq. 3 gives the whole rate, those of the host a share."""
        if self.lr_scheduler_type is None:
            return 1.0
        assert self.learning_rate is not None  # `check_arguments` has seen to it
        return self.learning_rate


def share_of_update(batches: int, processes: int) -> int:
    """Batches of each process in an update that has so many of all of them.

    Raises:
        ValueError: they cannot be divided; the message has the nearest numbers that can.
    """
    if batches % processes == 0:
        return batches // processes
    below = batches // processes * processes
    nearest = " or ".join(str(count) for count in (below, below + processes) if count)
    fewer = next(count for count in range(processes, 0, -1) if batches % count == 0)
    raise RequestError(
        f"gradient_accumulation: got {batches} batches in an update, which cannot be divided among "
        f"{processes} processes; give {nearest}, or start {fewer}."
    )


def check_arguments(
    args: VanillaTransformerTrainingArguments,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: object = None,
) -> None:
    """Refuse arguments that our trainer would ignore, and two that set the same thing.

    Args:
        args: of the training.
        optimizer: that the trainer was given, if any.
        schedule: likewise, of the learning rate.

    Raises:
        ValueError: for the first of them, by name.
    """
    for name, advice in UNUSED.items():
        _refuse(args, [name], advice)
    rate = args.learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise RequestError(f"got learning_rate={rate}; it must be a number above 0.")
    if args.early_stopping_patience is not None and args.eval_strategy == "no":
        raise RequestError(
            f"got early_stopping_patience={args.early_stopping_patience} and no evaluations, which "
            "it counts; give validation pairs and an interval of evaluations."
        )
    if optimizer is not None:
        given = ("learning_rate", "optim", "weight_decay")
        _refuse(args, given, "the optimizer that was given has its own; give one of the two")
    if args.optim is None:
        extras = ("optim_args", "optim_target_modules")
        _refuse(args, extras, "it belongs to an optimizer of the host; name that with optim")
    if schedule is not None:
        if optimizer is None:
            raise RequestError(
                "got a schedule without its optimizer; give optimizers=(both, of it)."
            )
        given = ("lr_scheduler_type", "lr_scheduler_kwargs", "learning_rate_factor")
        _refuse(args, given, "the schedule that was given has its own; give one of the two")
    elif args.lr_scheduler_type is not None:
        kind = SchedulerType(args.lr_scheduler_type).value
        if rate is None and optimizer is None:
            raise RequestError(
                f"got lr_scheduler_type={kind!r} and no learning_rate, of which it is a share; "
                "give one, such as 1e-4."
            )
        _refuse(args, ["learning_rate_factor"], f"it belongs to Eq. 3, not to the schedule {kind}")
    else:
        _check_eq3(args, optimizer)


def _check_eq3(
    args: VanillaTransformerTrainingArguments, optimizer: torch.optim.Optimizer | None
) -> None:
    """Whether Eq. 3 can be the schedule."""
    if args.learning_rate is not None:
        advice = "learning_rate alone says how large the rate becomes; give one of the two"
        _refuse(args, ["learning_rate_factor"], advice)
    _refuse(args, ["lr_scheduler_kwargs"], "Eq. 3 has none; name a schedule with lr_scheduler_type")
    if not args.warmup_steps > 0:
        raise RequestError(
            f"got warmup_steps={args.warmup_steps}; Eq. 3 needs a warm-up. For none give a "
            "schedule of the host, such as lr_scheduler_type='linear', and a learning_rate."
        )
    if args.optim is not None and "layerwise" in OptimizerNames(args.optim).value:
        raise RequestError(
            f"got optim={OptimizerNames(args.optim).value!r}, which Eq. 3 does not reach; give "
            "lr_scheduler_type and learning_rate too."
        )
    rates = {float(group["lr"]) for group in getattr(optimizer, "param_groups", ())} - {1.0}
    if rates:
        raise RequestError(
            f"got an optimizer with lr={min(rates):g}, which Eq. 3 would multiply; make it with "
            "lr=1.0, or name a schedule with lr_scheduler_type, such as 'constant'."
        )


def _refuse(args: VanillaTransformerTrainingArguments, names: Iterable[str], advice: str) -> None:
    """Refuse each of the arguments that does not have its default."""
    defaults = {each.name: each.default for each in fields(VanillaTransformerTrainingArguments)}
    for name in names:
        value = getattr(args, name, None)
        if name in defaults and value != defaults[name]:
            # Of the host's choices what the user typed.
            raise RequestError(f"got {name}={getattr(value, 'value', value)!r}; {advice}.")
