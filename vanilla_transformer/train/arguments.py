"""Training arguments: the paper's defaults, our additions, and what we refuse.

Our trainer treats an argument as Seq2SeqTrainer does, or refuses it by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from ..errors import RequestError
from ..ranges import COUNT, COUNT_OR_ZERO, Range
from ..recipes.recipe import Recipe

_BATCHES = "batches are filled up to batch_tokens; set that"
_FLOAT32 = "evaluation runs in the precision of training; leave it out"
_WHOLE_MODEL = "here each process holds the whole model; use Seq2SeqTrainer"
_NO_PUSH = "nothing is pushed during training; call push_to_hub(license=...) afterwards"
_GREEDY = (
    "this trainer reports perplexity and greedy BLEU of validation_pairs. Use Seq2SeqTrainer for "
    "other metrics"
)
# Arguments of Seq2SeqTrainer that ours does not act on, and what to do instead.
UNUSED = {
    "per_device_train_batch_size": _BATCHES,
    "per_device_eval_batch_size": _BATCHES,
    "auto_find_batch_size": _BATCHES,
    "train_sampling_strategy": "batches always group pairs of similar length; leave it out",
    "dataloader_drop_last": "every pair is trained on in every epoch; leave it out",
    "dataloader_in_order": "the seed determines the order of the batches; leave it out",
    "dataloader_persistent_workers": "workers are restarted in every epoch; leave it out",
    "remove_unused_columns": "batches contain only input_ids and labels; leave it out",
    "label_names": "labels come from the column named labels; leave it out",
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
    "save_total_limit": "checkpoints_to_keep says how many stay; set that",
    "enable_jit_checkpoint": "SIGTERM always writes a checkpoint; leave it out",
    "hub_strategy": _NO_PUSH,
    "hub_always_push": _NO_PUSH,
    "fsdp": _WHOLE_MODEL,
    "deepspeed": _WHOLE_MODEL,
    "parallelism_config": _WHOLE_MODEL,
}


@dataclass
class VanillaTransformerTrainingArguments(Seq2SeqTrainingArguments):
    """Seq2SeqTrainingArguments with the paper's defaults and what our trainer adds.

    The paper's optimizer and schedule are the default. If you name another one, you get the one in
    transformers, with the same meaning of every argument.

    Args:
        batch_tokens: Most source tokens, and most target tokens, in a batch, with padding; replaces
            the batch sizes of transformers. Each process contributes
            `gradient_accumulation_steps` batches to an update.
        bpe_dropout: Probability of splitting a piece into the two it was merged from, drawn again
            for every batch by `BpeDropout`; rows become longer than `batch_tokens` accounts for.
        learning_rate: Peak rate of the schedule. None: Eq. 3's peak times `learning_rate_factor`.
        learning_rate_factor: Multiple of Eq. 3, used without a `learning_rate`.
        lr_scheduler_type: A transformers schedule; needs a `learning_rate`. None: Eq. 3.
        optim: A transformers optimizer. None: the paper's Adam, or AdamW with `weight_decay`.
        warmup_steps: Updates until the learning rate peaks; less than 1 is a share of the run.
        max_minutes: Stop after so many minutes of wall clock in the training loop, including those
            before a resumption. None: no limit.
        early_stopping_patience: Stop after so many evaluations without a lower `eval_loss`,
            including those before a resumption. None: never.
        save_every_minutes: Write a checkpoint when the newest is this old. 0: never.
        checkpoints_to_keep: Scheduled checkpoints (multiples of `save_steps`) that are not deleted,
            at least two.
    """

    output_dir: str = field(default="trainer_output")  # transformers' default, never None
    batch_tokens: int = field(default=Recipe.batch_tokens)
    bpe_dropout: float = field(default=Recipe.bpe_dropout)
    learning_rate: float | None = field(default=None)  # type: ignore[assignment]  # None: Eq. 3
    learning_rate_factor: float = field(default=Recipe.learning_rate_factor)
    lr_scheduler_type: SchedulerType | str | None = field(default=None)  # type: ignore[assignment]  # None: Eq. 3
    optim: OptimizerNames | str | None = field(default=None)  # type: ignore[assignment]  # None: Adam
    warmup_steps: float = field(default=Recipe.warmup_steps)
    adam_beta2: float = field(default=Recipe.adam_beta2)
    adam_epsilon: float = field(default=Recipe.adam_epsilon)
    max_grad_norm: float = field(default=Recipe.max_grad_norm)
    max_minutes: float | None = field(default=Recipe.max_minutes)
    early_stopping_patience: int | None = field(default=Recipe.early_stopping_patience)
    save_every_minutes: float = field(default=0.0)
    checkpoints_to_keep: int = field(default=Recipe.checkpoints_to_average)

    def __post_init__(self) -> None:
        """Run the parent's checks, which allow no None for the schedule and the optimizer."""
        papers = [name for name in ("lr_scheduler_type", "optim") if getattr(self, name) is None]
        for name in papers:
            setattr(self, name, getattr(Seq2SeqTrainingArguments, name))
        super().__post_init__()
        for name in papers:
            setattr(self, name, None)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the Hub token: every checkpoint holds a pickle of its arguments."""
        return {**self.__dict__, "hub_token": None}

    @property
    def precision(self) -> str:
        """The format of the products: "bf16", "fp16" or "fp32"."""
        return "bf16" if self.bf16 else "fp16" if self.fp16 else "fp32"

    @property
    def base_learning_rate(self) -> float:
        """The rate that a schedule multiplies: 1 for Eq. 3, else `learning_rate`."""
        if self.lr_scheduler_type is None:
            return 1.0
        assert self.learning_rate is not None  # by `check_arguments`
        return self.learning_rate


def share_of_update(batches: int, processes: int) -> int:
    """Divide the batches of an update among the processes.

    Raises:
        ValueError: they do not divide evenly; the message names the nearest numbers that do.
    """
    if batches % processes == 0:
        return batches // processes
    below = batches // processes * processes
    nearest = " or ".join(str(count) for count in (below, below + processes) if count)
    fewer = next(count for count in range(processes, 0, -1) if batches % count == 0)
    start = "1 process" if fewer == 1 else f"{fewer} processes"
    raise RequestError(
        f"gradient_accumulation: got {batches} batches in an update, which do not divide among "
        f"{processes} processes; give {nearest} batches, or start {start}."
    )


def check_arguments(
    args: VanillaTransformerTrainingArguments,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: object = None,
) -> None:
    """Refuse arguments that our trainer would ignore, and pairs that set the same thing.

    Args:
        args: the training arguments.
        optimizer: the optimizer passed to the trainer, if any.
        schedule: the learning rate schedule passed to the trainer, if any.

    Raises:
        ValueError: names the first such argument.
    """
    for name, advice in UNUSED.items():
        _refuse(args, [name], advice)
    COUNT.check(batch_tokens=args.batch_tokens)
    positive = Range(0, whole=False, above=True)
    positive.check(learning_rate_factor=args.learning_rate_factor)
    rate = args.learning_rate
    if rate is not None:
        positive.check(learning_rate=rate)
    if args.max_minutes is not None:
        positive.check(max_minutes=args.max_minutes)
    Range(0, whole=False).check(save_every_minutes=args.save_every_minutes)
    COUNT_OR_ZERO.check(checkpoints_to_keep=args.checkpoints_to_keep)
    if args.early_stopping_patience is not None:
        COUNT.check(early_stopping_patience=args.early_stopping_patience)
        if args.eval_strategy == "no":
            raise RequestError(
                f"got early_stopping_patience={args.early_stopping_patience} and no evaluations to "
                "count; give validation pairs and an evaluation interval."
            )
    if optimizer is not None:
        given = ("learning_rate", "optim", "weight_decay")
        _refuse(args, given, "the optimizer that was given has its own; give only one")
    if args.optim is None:
        extras = ("optim_args", "optim_target_modules")
        _refuse(args, extras, "it needs a transformers optimizer; name that with optim")
    if schedule is not None:
        if optimizer is None:
            raise RequestError(
                "got a schedule without its optimizer; give optimizers=(optimizer, schedule)."
            )
        given = ("lr_scheduler_type", "lr_scheduler_kwargs", "learning_rate_factor")
        _refuse(args, given, "the schedule that was given has its own; give only one")
    elif args.lr_scheduler_type is not None:
        kind = SchedulerType(args.lr_scheduler_type).value
        if rate is None and optimizer is None:
            raise RequestError(
                f"got lr_scheduler_type={kind!r} and no learning_rate for it to scale; "
                "give one, such as 1e-4."
            )
        _refuse(args, ["learning_rate_factor"], f"it belongs to Eq. 3, not to the schedule {kind}")
    else:
        _check_eq3(args, optimizer)


def _check_eq3(
    args: VanillaTransformerTrainingArguments, optimizer: torch.optim.Optimizer | None
) -> None:
    """Refuse arguments that Eq. 3 cannot be combined with."""
    if args.learning_rate is not None:
        advice = "learning_rate alone sets the peak; give only one"
        _refuse(args, ["learning_rate_factor"], advice)
    _refuse(args, ["lr_scheduler_kwargs"], "Eq. 3 has none; name a schedule with lr_scheduler_type")
    if not args.warmup_steps > 0:
        raise RequestError(
            f"got warmup_steps={args.warmup_steps}; Eq. 3 needs a warm-up. To train without "
            "one, give another schedule, such as lr_scheduler_type='linear', and a learning_rate."
        )
    if args.optim is not None and "layerwise" in OptimizerNames(args.optim).value:
        raise RequestError(
            f"got optim={OptimizerNames(args.optim).value!r}, whose rate Eq. 3 cannot set; give "
            "lr_scheduler_type and learning_rate too."
        )
    rates = {float(group["lr"]) for group in getattr(optimizer, "param_groups", ())} - {1.0}
    if rates:
        raise RequestError(
            f"got an optimizer with lr={min(rates):g}, which Eq. 3 would multiply; create it with "
            "lr=1.0, or choose another schedule with lr_scheduler_type, such as 'constant'."
        )


def _refuse(args: VanillaTransformerTrainingArguments, names: Iterable[str], advice: str) -> None:
    """Refuse the first of the arguments that differs from its default."""
    defaults = {each.name: each.default for each in fields(VanillaTransformerTrainingArguments)}
    for name in names:
        value = getattr(args, name, None)
        if name in defaults and value != defaults[name]:
            # For an enum, show what the user typed.
            raise RequestError(f"got {name}={getattr(value, 'value', value)!r}; {advice}.")
