"""Training arguments: Seq2SeqTrainer's, with the paper's defaults and what our trainer adds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from ..errors import RequestError
from ..storage.metrics import MEASURES

# Arguments that have no effect together with a token budget. Those in _BATCHES would otherwise
# change training and are refused; the others are harmless, and a warning names them.
_BATCHES = (
    *("per_device_train_batch_size", "train_sampling_strategy", "dataloader_drop_last"),
    "auto_find_batch_size",
)
_VOID = ("per_device_eval_batch_size", "dataloader_in_order", "length_column_name")
_VOID_OF_ACCELERATE = ("even_batches", "split_batches", "dispatch_batches", "use_seedable_sampler")
# With these, each process holds only a part of the model; we evaluate and save the whole model.
_SHARDED = ("fsdp", "deepspeed", "parallelism_config")


@dataclass
class VanillaTransformerTrainingArguments(Seq2SeqTrainingArguments):
    """Seq2SeqTrainingArguments with the paper's defaults and what our trainer adds.

    The paper's optimizer and schedule are the default. If you name another one, you get the one in
    transformers, with the same meaning of every argument.

    Args:
        batch_tokens: Most source tokens, and most target tokens, in a training batch, with padding.
            Each process contributes `gradient_accumulation_steps` batches to an update. None:
            batches of `per_device_train_batch_size` pairs.
        train_weights: Weight of each corpus that `data.mark_corpus` numbered: its share of the
            target tokens is its weight divided by the sum of all weights. None: each pair occurs
            once per epoch.
        bpe_dropout: Probability of splitting a piece into the two it was merged from, drawn again
            for every batch by `BpeDropout`; rows become longer than `batch_tokens` accounts for.
        learning_rate: Peak rate of the schedule. None: Eq. 3's peak times `learning_rate_factor`.
        learning_rate_factor: Factor on the rate of Eq. 3, used without a `learning_rate`.
        lr_scheduler_type: A transformers schedule, whose `learning_rate` is 5e-5 if none is given.
            None: Eq. 3.
        optim: A transformers optimizer. None: the paper's Adam, or AdamW with `weight_decay`,
            `optim_args` or `optim_target_modules`.
        warmup_steps: Updates until the learning rate peaks; less than 1 is a share of the run.
        max_minutes: Stop after so many minutes of wall clock in the training loop, including those
            before a resumption, and save unless `save_strategy` is "no". None: no limit.
        early_stopping_patience: Stop after so many evaluations without a better one, including
            those before a resumption, and save as with `max_minutes`. None: never.
        early_stopping_on: What must get better: "loss", or one of the trainer's `measures`.
        save_every_minutes: Write a checkpoint when the newest is this old. 0: never.
        checkpoints_to_keep: Scheduled checkpoints (multiples of `save_steps`) that are not deleted,
            at least two. If None, `save_total_limit` decides.
        save_total_limit: Checkpoints that are not deleted, at least two, or three with
            `load_best_model_at_end`: the last one is needed until the next is whole. None: all.
        logging_nan_inf_filter: Leave losses that are not finite out of the log. False: such a loss
            ends the training.
    """

    output_dir: str = field(default="trainer_output")  # transformers' default, never None
    batch_tokens: int | None = field(default=3_125)
    train_weights: list[float] | None = field(default=None)
    bpe_dropout: float = field(default=0.0)
    learning_rate: float | None = field(default=None)  # type: ignore[assignment]  # None: Eq. 3
    learning_rate_factor: float = field(default=1.0)
    lr_scheduler_type: SchedulerType | str | None = field(default=None)  # type: ignore[assignment]  # None: Eq. 3
    optim: OptimizerNames | str | None = field(default=None)  # type: ignore[assignment]  # None: Adam
    warmup_steps: float = field(default=4_000)
    adam_beta2: float = field(default=0.98)
    adam_epsilon: float = field(default=1e-9)
    max_grad_norm: float = field(default=0.0)
    max_minutes: float | None = field(default=None)
    early_stopping_patience: int | None = field(default=None)
    early_stopping_on: str = field(default="loss")
    save_every_minutes: float = field(default=0.0)
    checkpoints_to_keep: int | None = field(default=None)
    logging_nan_inf_filter: bool = field(default=False)

    def __post_init__(self) -> None:
        """Run the parent's checks, with its defaults while our schedule or optimizer is None."""
        papers = [name for name in ("lr_scheduler_type", "optim") if getattr(self, name) is None]
        for name in papers:
            setattr(self, name, getattr(Seq2SeqTrainingArguments, name))
        falling = {"perplexity", *(name for name in MEASURES if MEASURES[name].lower_is_better)}
        watched = (self.metric_for_best_model or "").removeprefix("eval_")
        # By default, transformers prefers lower values only of metrics whose names end in "loss".
        if self.greater_is_better is None and watched in falling:
            self.greater_is_better = False
        super().__post_init__()
        if self.save_total_limit:
            fewest = 2 + self.load_best_model_at_end
            self.save_total_limit = max(self.save_total_limit, fewest)
        for name in papers:
            setattr(self, name, None)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the Hub token, since every checkpoint contains a pickle of the arguments."""
        return {**self.__dict__, "hub_token": None}

    @property
    def precision(self) -> str:
        """The number format of matrix products: "bf16", "fp16" or "fp32"."""
        return "bf16" if self.bf16 else "fp16" if self.fp16 else "fp32"

    @property
    def order_seed(self) -> int:
        """Seed of the order of batches."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def asks_for_papers_adam(self) -> bool:
        """Whether the optimizer is the paper's Adam: no argument requests another one."""
        others = (self.optim, self.weight_decay, self.optim_args, self.optim_target_modules)
        return not any(others)


def share_of_update(batches: int, processes: int) -> int:
    """Return how many batches of an update each process takes.

    Raises:
        ValueError: The batches do not divide evenly.
    """
    if batches % processes == 0:
        return batches // processes
    raise RequestError(f"gradient_accumulation={batches}; not divisible by {processes} processes.")


def check_arguments(
    args: VanillaTransformerTrainingArguments, metrics: Sequence[str], *, by_tokens: bool
) -> None:
    """Refuse arguments that training would silently ignore.

    Args:
        args: The training arguments.
        by_tokens: Whether batches are filled up to `batch_tokens`.
        metrics: Names of an evaluation's results, such as "loss"; empty if it has several sets.

    Raises:
        ValueError: There are such arguments; the message names them.
    """
    if by_tokens:
        _refuse(args, _BATCHES, "batches are filled up to batch_tokens; set that to None")
    else:
        needed = "batches by tokens need batch_tokens and the columns input_ids and labels"
        _refuse(args, ("bpe_dropout", "train_weights"), f"{needed}; give both")
    watched = args.early_stopping_on in metrics and args.eval_strategy != "no"
    if args.early_stopping_patience is not None and not watched:
        raise RequestError(
            f"got early_stopping_patience={args.early_stopping_patience}, but no evaluation has "
            f"eval_{args.early_stopping_on}; give one evaluation set, an evaluation interval and, "
            "for a metric such as BLEU, validation_pairs."
        )


def refuse_sharding(args: VanillaTransformerTrainingArguments) -> None:
    """Refuse arguments that would split the model among processes."""
    _refuse(args, _SHARDED, "here each process holds the whole model; use Seq2SeqTrainer")


def void_arguments(
    args: VanillaTransformerTrainingArguments, *, evaluates_by_host: bool
) -> list[str]:
    """Return "name=value" of harmless arguments that have no effect together with `batch_tokens`.

    Args:
        args: The training arguments.
        evaluates_by_host: Whether evaluations also run transformers' own loop, which uses
            `per_device_eval_batch_size`.
    """
    names = _VOID[1:] if evaluates_by_host else _VOID
    found = _changed(args, VanillaTransformerTrainingArguments, names)
    return found + _changed(args.accelerator_config, AcceleratorConfig(), _VOID_OF_ACCELERATE)


def _refuse(args: VanillaTransformerTrainingArguments, names: Iterable[str], reason: str) -> None:
    """Refuse the named arguments if they differ from their defaults."""
    if found := _changed(args, VanillaTransformerTrainingArguments, names):
        raise RequestError(f"got {', '.join(found)}; {reason}, or leave it out.")


def _changed(given: object, defaults: object, names: Iterable[str]) -> list[str]:
    """Return "name=value" for each attribute that differs from its default."""
    # Not all versions of transformers have all attributes.
    values = {name: getattr(given, name, None) for name in names}
    return [
        f"{name}={getattr(value, 'value', value)!r}"  # for an enum, the value that the user typed
        for name, value in values.items()
        if value != getattr(defaults, name, None)
    ]
