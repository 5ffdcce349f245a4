"""Training (Section 5) with transformers' Seq2SeqTrainer; there is no loop of our own."""

import copy
import functools
import inspect
import itertools
import logging
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_pt_utils import LabelSmoother
from transformers.trainer_utils import EvalLoopOutput, SaveStrategy, TrainOutput, has_length
from transformers.training_args import OptimizerNames

from ..beam_search import attention_of_any_shape
from ..data.batches import Stream, TokenBatchSampler, check_lengths, check_repeatable
from ..data.bpe_dropout import BpeDropout, BpeDropoutCollator
from ..data.dataset import PairCollator, has_tokens, pair_corpora, pair_lengths
from ..data.shapes import ShapedCollator
from ..errors import NotFiniteError, RequestError
from ..evaluation import corpus_scores
from ..evaluation.scores import measure_metric
from ..fast import release
from ..generation_limits import longest_sequence
from ..loss import IGNORED
from ..machine.cpu_threads import FreeThreads, free_threads
from ..machine.environment import git_commit, hardware, versions
from ..machine.signals import interruption
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..storage.reading import reason_of
from ..storage.run_files import differences
from ..storage.saved_model import named_errors
from ..translation.many_texts import translate
from . import checkpoints
from .arguments import (
    VanillaTransformerTrainingArguments,
    check_arguments,
    refuse_sharding,
    void_arguments,
)
from .callbacks import RunControl, TrainingInterrupted
from .checkpoints import Progress, last_whole_checkpoint, prune, seal
from .compilation import limited_compilation, may_compile
from .cpu_settings import cpu_training_settings, without_training_changes
from .optimization import noam_schedule, peak_rate, schedule_warnings
from .publication import PublishingTrainer

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_TRAINING_PAIRS = 200  # pairs for `eval_training_loss`, at most
# Suffixes of transformers' metrics that assume batches of equal size.
_OF_THE_HOST = ("samples_per_second", "steps_per_second", "_flos", "_runtime", "_preparation_time")
_FORWARD = inspect.signature(VanillaTransformerForConditionalGeneration.forward).parameters


class VanillaTransformerTrainer(PublishingTrainer):
    """Seq2SeqTrainer that trains as Section 5 does.

    It adds:

    - batches of pairs of similar length, filled up to `batch_tokens`;
    - the paper's Adam and Eq. 3, unless the arguments name another optimizer or schedule;
    - `eval_loss` in nats per target token, `eval_perplexity`, `eval_training_loss` (of at most 200
      training pairs), and `measures` of greedy translations of `validation_pairs`, as `eval_bleu`;
    - sealed checkpoints, from which a killed training continues exactly;
    - fast settings for a CPU, and one line of text for each entry of the log;
    - `push_to_hub` with our model card, and with a model that loads without this package.

    All else is Seq2SeqTrainer's. Data sets without the columns `input_ids` and `labels` come in
    batches of `per_device_train_batch_size`, and so do all if `batch_tokens` is None. `measures`
    and `eval_training_loss` are computed only for a single `eval_dataset`. With
    `label_smoothing_factor` or `compute_loss_func`, `eval_loss` is the loss that these define, and
    the model's own smoothing does not apply.

    Args:
        model: `VanillaTransformerForConditionalGeneration`. None with `model_init`.
        args: `VanillaTransformerTrainingArguments`.
        validation_pairs: (source, target) texts to translate at each evaluation, or a data set
            with these two columns; a target may be a list of references.
        target_language: Decides how BLEU tokenises; needed with `validation_pairs`.
        measures: Names from `storage.metrics.MEASURES`.
        **kwargs: As for Seq2SeqTrainer: `train_dataset`, `eval_dataset`, `processing_class` ...

    Raises:
        ValueError: If arguments contradict each other, or one would have no effect.
    """

    # Narrower types than Seq2SeqTrainer's.
    model: VanillaTransformerForConditionalGeneration
    args: VanillaTransformerTrainingArguments
    train_dataset: "Dataset"
    processing_class: PreTrainedTokenizerBase
    # Set when training starts.
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration | None = None,
        args: VanillaTransformerTrainingArguments | None = None,
        *,
        validation_pairs: "Sequence[tuple[str, str]] | Dataset" = (),
        target_language: str | None = None,
        measures: Sequence[str] = ("bleu",),
        **kwargs: Any,
    ) -> None:
        args = VanillaTransformerTrainingArguments() if args is None else args
        if not isinstance(args, VanillaTransformerTrainingArguments):
            given, ours = type(args).__name__, VanillaTransformerTrainingArguments.__name__
            raise RequestError(f"got args of type {given}; give {ours}, which has all its fields.")
        if hasattr(validation_pairs, "column_names"):  # a data set
            columns: Any = validation_pairs
            validation_pairs = list(zip(columns["source"], columns["target"], strict=True))
        found = list(measures) if validation_pairs else []
        refuse_sharding(args)
        optimizer, schedule = kwargs.get("optimizers", (None, None))
        if optimizer is None and schedule is not None:
            raise RequestError("got a schedule without its optimizer; give both in optimizers.")
        self._smoothing = args.label_smoothing_factor
        for name in found:  # fail now, not at the first evaluation
            measure_metric(name, target_language or "")
        if validation_pairs and None in (target_language, kwargs.get("processing_class")):
            needed = "target_language (such as 'de') and the tokenizer as processing_class"
            raise RequestError(f"got validation_pairs; give {needed}, too.")
        if args.n_gpu > 1:  # DataParallel would split the batches, and their token counts
            logger.warning("Training on one of %d GPUs; accelerate launch uses all.", args.n_gpu)
            args._n_gpu = 1
        super().__init__(model, args, **kwargs)
        _, constants = self.optimizer_cls_and_kwargs or (None, {})
        # Hyperparameters of an optimizer that was passed, not chosen by the training arguments.
        self._constants = constants if self.optimizer is None else self.optimizer.defaults
        if kwargs.get("data_collator") is None:
            config = self.model.config
            self.data_collator = PairCollator(
                pad_token_id=config.pad_token_id,
                vocab_size=config.vocab_size,
                target_vocab_size=config.target_vocab_size,
                shift=self.model.prepare_decoder_input_ids_from_labels,
                read=frozenset(_FORWARD),
            )
        self.validation_pairs = list(validation_pairs)
        self.target_language = target_language
        self.measures = list(measures)
        self.train_sampler: TokenBatchSampler | None = None  # made by `get_train_dataloader`
        self.updates_per_epoch = 0  # known when training begins, if the data has a length
        self._evaluates_own_set = False
        self._warned: set[str] = set()  # warnings, each given once
        self._repeats_last = False  # whether this rank repeats a batch at the end of an epoch
        self.stream: Stream | None = None  # the batches of a data set without a length
        # Checkpoint to resume from, and whether the user wants the data to start again.
        self._resumed_from: Path | None = None
        self._begins_anew = False
        # Whether the number of ranks differs from the checkpoint's: random states are then missing.
        self._ranks_changed = False
        self._warn_of_ends()
        self.progress = Progress()
        self.threads: FreeThreads | None = None  # set while it trains
        self._compiles = False  # whether this run compiles the model
        self._settings = ExitStack()
        self.add_callback(RunControl(self))  # first: it starts the clock

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning(warning)

    def _print_once(self) -> None:
        """Remove transformers' printing and progress bar if our log lines are shown."""
        if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
            self.remove_callback(PrinterCallback)
            self.remove_callback(DEFAULT_PROGRESS_CALLBACK)

    def _warn_of_ends(self) -> None:
        """Warn if the first target does not end with the end token at which generation stops."""
        if not has_tokens(self.train_dataset) or len(self.train_dataset) == 0:
            return
        end, labels = self.model.config.eos_token_id, self.train_dataset[0]["labels"]
        labels = self.model.without_padding(torch.as_tensor(labels))
        labels = labels[labels != IGNORED]
        if len(labels) > 0 and int(labels[-1]) not in (end if isinstance(end, list) else [end]):
            message = "The first target ends with id %d, but the model's eos_token_id is %s: %s."
            remedy = "give the config the tokenizer's ids, or translations may not end"
            logger.warning(message, int(labels[-1]), end, remedy)

    @property
    def _batches_by_tokens(self) -> bool:
        return self.args.batch_tokens is not None and has_tokens(self.train_dataset)

    def get_train_dataloader(self) -> DataLoader:
        """Return batches by token budget (Section 5.1), dealt to the ranks in turn."""
        budget = self.args.batch_tokens
        if budget is None or not self._batches_by_tokens:
            return self._stock_train_dataloader()
        self.train_sampler = TokenBatchSampler(
            *pair_lengths(self.train_dataset),
            max_tokens=budget,
            few_shapes=self._compiles,
            seed=self.args.order_seed,
            corpora=pair_corpora(self.train_dataset),
            weights=self.args.train_weights,
        )
        self._tell_of_void_arguments()
        collate: Callable = self.data_collator
        if self.args.bpe_dropout:
            longest, seed = longest_sequence(self.model), self.args.seed
            dropout = BpeDropout(
                self.processing_class, self.args.bpe_dropout, seed=seed, max_length=longest
            )
            collate = BpeDropoutCollator(collate, dropout, self.train_sampler)
        gains = self._compiles or self.args.device.type == "cuda"
        if gains and "right_padded" in inspect.signature(self.model.forward).parameters:
            collate = ShapedCollator(collate, self.model, self.train_sampler.lengths, budget)
        loader = DataLoader(
            self._remove_unused_columns(self.train_dataset, description="training"),
            batch_sampler=self.train_sampler,
            collate_fn=collate,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            multiprocessing_context=self.args.dataloader_multiprocessing_context,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
        )
        # All ranks take part in every update, so a rank without a batch at the end of an epoch
        # repeats one of the first batches, and `get_batch_samples` masks its labels.
        settings = self.accelerator.dataloader_config
        settings.even_batches, settings.split_batches, settings.dispatch_batches = True, False, None
        settings.non_blocking = loader.pin_memory
        left = len(self.train_sampler) % self.args.world_size
        self._repeats_last = 0 < left <= self.args.process_index
        return self.accelerator.prepare(loader)

    def _stock_train_dataloader(self) -> DataLoader:
        if self.args.batch_tokens is not None:
            size = f"size {self.args.per_device_train_batch_size}, whatever batch_tokens is"
            logger.warning("Without columns input_ids and labels, batches are of %s.", size)
        self.train_sampler, self._repeats_last = None, False
        if has_tokens(self.train_dataset):
            check_lengths(*pair_lengths(self.train_dataset))
        if self.args.dataloader_persistent_workers:
            self.args.dataloader_persistent_workers = False
            self._warn_once(
                "dataloader_persistent_workers is switched off: a resumed training would differ."
            )
        # Otherwise torch's current seed orders the pairs, and a resumed training differs.
        self.accelerator.dataloader_config.data_seed = self.args.order_seed
        resumes = self._resumed_from is not None and not self._begins_anew
        if resumes and isinstance(self.train_dataset, IterableDataset):
            check_repeatable(self.train_dataset)
        loader = super().get_train_dataloader()
        if has_length(loader):
            return loader
        self.stream = Stream(loader, per_update=self.args.gradient_accumulation_steps)
        if resumes:
            epoch, batches = self.progress.stream_epoch, self.progress.stream_batches
            restore = functools.partial(self._load_rng_state, str(self._resumed_from))
            self.stream.resume(epoch, batches, restore)
        return self.stream  # type: ignore[return-value]  # the part of a DataLoader that is used

    def _tell_of_void_arguments(self) -> None:
        by_host = self.compute_metrics is not None or self.has_other_loss
        if void := void_arguments(self.args, evaluates_by_host=by_host):
            self._warn_once(
                f"{', '.join(void)}: without effect, because batches are filled up to "
                f"batch_tokens={self.args.batch_tokens}."
            )

    @property
    def has_other_loss(self) -> bool:
        """Whether `eval_loss` is not the model's own loss."""
        given = self.label_smoother is not None or self.compute_loss_func is not None
        return given or self._has_other_evaluation

    @property
    def _has_other_evaluation(self) -> bool:
        """Whether a subclass or a user has replaced a method that computes the evaluation loss."""
        replaced = [
            getattr(getattr(self, name), "__func__", None) is not method
            for name, method in _EVALUATION_STEPS.items()
        ]
        collators = (PairCollator, DataCollatorForSeq2Seq)
        return any(replaced) or type(self.data_collator) not in collators

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with named_errors(f"cannot resume from optimizer.pt or scheduler.pt in {checkpoint}"):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with named_errors(f"cannot resume from the random state in {checkpoint}"):
            super()._load_rng_state(checkpoint)

    @staticmethod
    def get_optimizer_cls_and_kwargs(  # type: ignore[override]  # takes only our arguments
        args: VanillaTransformerTrainingArguments, model: PreTrainedModel | None = None
    ) -> tuple[Any, Any]:
        """Return the class and options of the optimizer: the paper's Adam if `args` name none."""
        args = copy.copy(args)
        if args.lr_scheduler_type is None:
            args.learning_rate = 1.0  # which Eq. 3 multiplies
        elif args.learning_rate is None:
            args.learning_rate = Seq2SeqTrainingArguments.learning_rate
        if args.asks_for_papers_adam and model is not None:
            constants = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
            trained = [weight for weight in model.parameters() if weight.requires_grad]
            fused = {weight.device.type for weight in trained} <= {"cpu", "cuda"}  # faster
            return torch.optim.Adam, {"lr": args.learning_rate, "fused": fused, **constants}
        args.optim = args.optim or OptimizerNames(Seq2SeqTrainingArguments.optim)
        return Seq2SeqTrainer.get_optimizer_cls_and_kwargs(args, model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Create the schedule of Eq. 3, or the one that the arguments name."""
        if self.lr_scheduler is not None:
            return self.lr_scheduler
        kind, warmup = self.args.lr_scheduler_type, self.args.get_warmup_steps(num_training_steps)
        self.warn_of_schedule(num_training_steps)
        if kind is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        d_model, factor = self.model.config.d_model, self.args.learning_rate_factor
        if self.args.learning_rate is not None:
            factor = self.args.learning_rate / peak_rate(d_model=d_model, warmup_steps=warmup)
        self.lr_scheduler = noam_schedule(
            self.optimizer if optimizer is None else optimizer,
            d_model=d_model,
            warmup_steps=warmup,
            factor=factor,
        )
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def warn_of_schedule(self, updates: int) -> None:
        """Warn if the schedule does not suit this number of updates."""
        if self.is_world_process_zero():
            for warning in schedule_warnings(self.args, self.model.config.d_model, updates):
                logger.warning(warning)

    def train(
        self,
        resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
        trial: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> TrainOutput:
        """Train, from the start or from a checkpoint (True: the last complete one in `output_dir`).

        A data set without a length, such as a stream, continues in the pass over it in which the
        training stopped. All batches of an update come from one pass; the rest of it is not used.

        Raises:
            TrainingInterrupted: On SIGTERM or Ctrl-C, after a checkpoint was written.
            ValueError: If arguments contradict each other, or one would have no effect; if the
                checkpoint is of other pairs, batches, updates or precision, or broken, or its
                stream cannot be repeated; or if `output_dir` has checkpoints that a new run
                would replace, or none to resume.
        """
        self._print_once()
        asked = resume_from_checkpoint
        if trial is None:  # a trial's folder has no name yet
            asked = checkpoints.checkpoint_to_resume(Path(self.args.output_dir), asked)
        checkpoint = None if asked is None or isinstance(asked, bool) else Path(asked)
        self._resumed_from, self.stream, self._ranks_changed = checkpoint, None, False
        self._begins_anew = self.args.ignore_data_skip
        if not has_length(self.train_dataset):  # transformers cannot skip whole passes
            self.args.ignore_data_skip = True
        try:
            with (
                free_threads() as self.threads,
                ExitStack() as self._settings,  # `begin` enters settings here
                attention_of_any_shape(torch.backends.cuda),
                interruption.handled(),
                interruption.step(),  # on a signal, `RunControl` stops training after an update
            ):
                given = str(checkpoint) if checkpoint else None
                return super().train(given, trial, *args, **kwargs)
        except KeyboardInterrupt as error:
            last = last_whole_checkpoint(self._get_output_dir(trial))
            raise TrainingInterrupted((error.args or (signal.SIGINT,))[0], last) from error
        finally:  # `on_train_end` is not called if training fails
            self.progress.stop()
            self.threads = self._resumed_from = None
            self.args.ignore_data_skip = self._begins_anew

    def _hp_search_setup(self, trial: Any) -> None:
        """Set up training after a hyperparameter search, if any, has chosen the arguments.

        transformers calls this in every run, before it loads a checkpoint.
        """
        super()._hp_search_setup(trial)
        if trial is not None:
            folder = Path(self._get_output_dir(trial))
            checkpoints.checkpoint_to_resume(folder, self._resumed_from)
        self._read_arguments()
        self._compiles = may_compile(self.accelerator.state.dynamo_plugin, self.model)
        self._set_progress()

    def _read_arguments(self) -> None:
        """Apply arguments changed since the trainer was made; refuse those without effect."""
        self._train_batch_size = self.args.train_batch_size
        smoothing = self.args.label_smoothing_factor
        if smoothing != self._smoothing:  # otherwise keep a label smoother that the user set
            self._smoothing = smoothing
            self.label_smoother = LabelSmoother(epsilon=smoothing) if smoothing else None
        if (made := self.accelerator.mixed_precision) != self.args.precision.replace("fp32", "no"):
            got = f"{self.args.precision}, but the trainer was made with mixed_precision={made}"
            raise RequestError(f"got {got}; set bf16 or fp16 when you make the arguments.")
        metrics = ["loss", *(self.measures if self.validation_pairs else [])]
        watchable = [] if isinstance(self.eval_dataset, dict) else metrics
        check_arguments(self.args, watchable, by_tokens=self._batches_by_tokens)
        narrow = {p.dtype for p in self.model.parameters() if p.requires_grad and p.itemsize < 4}
        for dtype in narrow:
            self._warn_once(
                f"The weights are {str(dtype).removeprefix('torch.')}, in which most small updates "
                "round to nothing; load the model with dtype=torch.float32, and train with "
                "bf16=True for the speed."
            )

    def hyperparameter_search(self, hp_space: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Search as Seq2SeqTrainer does, by default for the lowest `eval_loss`.

        transformers' default, the sum of all other metrics, would be the perplexity and more here;
        it still applies with `compute_metrics`.
        """
        if self.compute_metrics is None and not args:
            kwargs = {"compute_objective": itemgetter("eval_loss"), **kwargs}
        return super().hyperparameter_search(hp_space, *args, **kwargs)

    def _set_progress(self) -> None:
        """Load `progress` from the checkpoint to resume from, or start a new one."""
        checkpoint = self._resumed_from
        identity = checkpoints.identity_of_updates(
            self.args,
            config=self.model.config,
            tokenizer=self.processing_class,
            train_dataset=self.train_dataset,
            constants=self._constants,
        )
        identity["torch_compile"] = self._compiles  # compiled runs pad to few lengths
        now: dict[str, Any] = {"world_size": self.args.world_size, "hardware": hardware()}
        now |= {"versions": versions(), "git_commit": git_commit()}
        if checkpoint is None:  # a new run
            self.progress = Progress()
        else:
            self.progress = checkpoints.progress_to_continue(checkpoint, identity)
            self._ranks_changed = self.progress.world_size != self.args.world_size
            if self.is_world_process_zero():
                logger.info("Resuming from %s.", checkpoint)
                if changed := differences(self.progress.versions, now["versions"]):
                    logger.warning("Other versions may round differently: %s.", "; ".join(changed))
        vars(self.progress).update(identity=identity, **now)

    def begin(self) -> None:
        """Prepare the model for training on a CPU, and seed each rank, before the first update.

        Not earlier: transformers calls `model_init` in `train`, and gives all ranks one seed.
        """
        checkpoints.check_rate(self.lr_scheduler, self.state.global_step)
        self.args.ignore_data_skip = self._begins_anew  # set before a checkpoint saves it
        self._settings.enter_context(cpu_training_settings(self.model))
        if self._compiles:
            self._settings.enter_context(limited_compilation())
        self.progress.matmul_precision = torch.get_float32_matmul_precision()
        if self.progress.unlogged is not None:  # or the next logged loss would miss updates
            losses, self._globalstep_last_logged = self.progress.unlogged
            self._tr_loss += losses
            self._total_loss_scalar -= losses  # train_loss covers only updates since resuming
        if self._ranks_changed or (self.state.global_step == 0 and self.args.world_size > 1):
            # Seed this rank's random numbers, mainly for dropout, from seed, update and rank.
            args = self.args
            entropy = [args.seed, self.state.global_step, args.world_size, args.process_index]
            set_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warn as Seq2SeqTrainer does, but not of tied tensors, which are stored once."""
        tied = self.model.all_tied_weights_keys
        missing = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """Fetch the batches of an update, and count its target tokens over all ranks."""
        if 0 < self.state.max_steps <= self.state.global_step:  # the run is already complete
            self.control.should_training_stop = True
            return [], None
        batches = [*map(self._without_padding, itertools.islice(epoch_iterator, num_batches))]
        if self._repeats_last and self.accelerator.gradient_state.end_of_dataloader:
            batches[-1] = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], IGNORED)}
        batches, num_items = super().get_batch_samples(iter(batches), num_batches, device)
        if num_items is not None:
            self.progress.count(num_items)
        return batches, num_items

    def _without_padding(self, batch: Any) -> Any:
        """Replace padding in the labels of a batch by -100, unless a collator has done so."""
        if "labels" not in batch or batch.get("right_padded"):
            return batch
        return {**batch, "labels": self.model.without_padding(batch["labels"])}

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: object = None) -> object:
        """Compute the gradient norm only for clipping or logging, since it reads all gradients."""
        by_steps = self.args.logging_strategy == "steps"
        is_logged = not by_steps or (self.state.global_step + 1) % self.state.logging_steps == 0
        if grad_norm is None and not is_logged:
            return None
        return super()._get_grad_norm(model, grad_norm)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate; add `measures` and a training loss only on the trainer's own evaluation set."""
        self._evaluates_own_set = eval_dataset is None or eval_dataset is self.eval_dataset
        return super().evaluate(eval_dataset, *args, **kwargs)

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Compute metrics per token, and run transformers' loop only for predictions.

        The random numbers of training are not affected.
        """
        self._print_once()
        started = time.monotonic()
        devices = [self.args.device] if self.args.device.type == "cuda" else []
        any_shape = attention_of_any_shape(torch.backends.cuda)
        with torch.random.fork_rng(devices=devices), any_shape:
            own_set = self._evaluates_own_set and description == "Evaluation"
            measured = self._measure(dataloader.dataset, own_set=own_set)
            by_token = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
            if prediction_loss_only and "loss" in measured:
                size = len(dataloader.dataset)  # type: ignore[arg-type]  # it has a length
                output = EvalLoopOutput(None, None, by_token, size)  # type: ignore[arg-type]  # no predictions
            else:
                output = super().evaluation_loop(
                    dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
                )
                # The loop's metrics replace ours, except for losses, which it averages by batch.
                losses = {name: by_token[name] for name in by_token if name.endswith("_loss")}
                metrics = {**by_token, **(output.metrics or {}), **losses}
                output = output._replace(metrics=metrics)
        if self.threads is not None:  # during training
            self.progress.evaluation_seconds += time.monotonic() - started
        return output

    def _measure(self, dataset: Any, *, own_set: bool) -> dict[str, float]:
        """Return loss, perplexity, training loss and `measures`, as far as the data allows.

        Args:
            dataset: The data set to evaluate on.
            own_set: Whether this is the trainer's own and only `eval_dataset`.
        """
        measured = {}
        has_full_eval = self.args.bf16_full_eval or self.args.fp16_full_eval
        if has_tokens(dataset) and not has_full_eval and not self._has_other_evaluation:
            if self._batches_by_tokens:
                self._tell_of_void_arguments()
            loss = self._plain_loss(dataset, shows_progress=True)
            measured = {} if self.has_other_loss else {"loss": loss}
            measured["perplexity"] = math.exp(min(loss, 700.0))
        elif "labels" in (getattr(dataset, "column_names", None) or ["labels"]):
            self._warn_once(
                "eval_loss is a mean over batches, without a perplexity: the data has no columns "
                "input_ids and labels, or you changed precision, loss or collator."
            )
        if measured and own_set and has_tokens(self.train_dataset) and self.train_dataset:
            # Some training pairs' loss, too: a growing gap between the two losses is overfitting.
            count = len(self.train_dataset)
            some = self.train_dataset.select(range(0, count, -(-count // _TRAINING_PAIRS)))
            measured["training_loss"] = self._plain_loss(some)
        if own_set and self.validation_pairs:
            # One rank translates; all need the result, which may choose the best checkpoint.
            scores = self._greedy_scores() if self.is_world_process_zero() else {}
            values = self.over_ranks(*(scores.get(name, 0.0) for name in self.measures))
            measured |= zip(self.measures, values.sum(0).tolist(), strict=True)
        return measured

    def _batches_by_length(self, dataset: "Dataset") -> DataLoader:
        """Return batches of pairs of similar length, divided among the ranks without repeats."""
        lengths = pair_lengths(dataset)
        longest = max(int(side.max(initial=0)) for side in lengths)
        budget = max(self.args.batch_tokens or self.args.eval_batch_size * longest, longest)
        batches = list(TokenBatchSampler(*lengths, max_tokens=budget, shuffle=False))
        return DataLoader(
            self._remove_unused_columns(dataset, description="evaluation"),
            batch_sampler=batches[self.args.process_index :: self.args.world_size],
            collate_fn=self.data_collator,
        )

    def _plain_loss(self, dataset: "Dataset", *, shows_progress: bool = False) -> float:
        """Return the mean loss per target token, in nats, over a data set and all ranks.

        Args:
            dataset: Pairs with tokens.
            shows_progress: Call the callbacks after each batch, as transformers' loop does.
        """
        batches = self._batches_by_length(dataset)
        if shows_progress:
            self.callback_handler.eval_dataloader = batches
        self.model.eval()
        if hasattr(self.optimizer, "eval"):  # schedule-free: switch to evaluation weights
            self.optimizer.eval()
        totals = torch.zeros(2, dtype=torch.float64)  # nats, target tokens
        with torch.no_grad():
            for batch in batches:
                inputs = self._without_padding(self._prepare_inputs(batch))
                count = int((inputs["labels"] != IGNORED).sum())
                loss = self.model(**inputs, return_logits=False, use_cache=False).loss
                totals += torch.tensor([float(loss) * count, count], dtype=torch.float64)
                if shows_progress:
                    self.control = self.callback_handler.on_prediction_step(
                        self.args, self.state, self.control
                    )
        nats, tokens = self.over_ranks(*totals.tolist()).sum(0).tolist()
        if tokens == 0:
            raise RequestError("got no target tokens to evaluate on, only -100 or padding.")
        return nats / tokens

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log tokens, speed and time instead of transformers' samples and steps per second."""
        given = logs
        logs = {name: value for name, value in logs.items() if not name.endswith(_OF_THE_HOST)}
        if "loss" in logs:
            logs |= {"target_tokens": self.progress.target_tokens, **self.progress.since_last_log()}
            if not math.isfinite(logs["loss"]):
                raise self._diverged(f"the loss became {logs['loss']}")
        super().log(logs, start_time)
        given.update(logs)  # transformers adds the epoch, which it also returns as a metric

    def _diverged(self, what: str) -> NotFiniteError:
        rate = "learning_rate_factor" if self.args.learning_rate is None else "learning_rate"
        remedy = f"lower {rate} or raise warmup_steps."
        return NotFiniteError(f"{what} before update {self.state.global_step}; {remedy}")

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save as Seq2SeqTrainer does; then seal the checkpoint, and delete older ones."""
        trained = (weights for weights in self.model.parameters() if weights.requires_grad)
        if not all(weights.isfinite().all() for weights in trained):
            raise self._diverged("a weight became nan or infinite")  # earlier checkpoints stay
        checkpoint = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        losses = self.over_ranks(self._tr_loss.item()).mean().item()
        self.progress.unlogged = [losses, self._globalstep_last_logged]
        if self.stream is not None:
            self.progress.stream_epoch = self.stream.epoch
            self.progress.stream_batches = self.stream.batches
        if self.args.should_save and checkpoint.is_dir() and not checkpoints.is_whole(checkpoint):
            shutil.rmtree(checkpoint)  # a damaged one, whose files may not be writable
        self.accelerator.wait_for_everyone()  # before the others write into the folder
        with _full_disk_named(checkpoint):
            if self.args.should_save:  # first, so that a pushed checkpoint has the progress
                checkpoint.mkdir(parents=trial is not None, exist_ok=True)
                if self.threads is not None:
                    self.progress.threads = sorted({*self.progress.threads, *self.threads.used})
                self.progress.save(checkpoint)
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # every rank has written its random state
            if not self.args.should_save:
                return
            seal(checkpoint)
        kept = [self.args.checkpoints_to_keep, self.args.save_total_limit]
        scheduled = {
            SaveStrategy.STEPS: int(self.state.save_steps),
            SaveStrategy.EPOCH: self.updates_per_epoch or 1,
        }
        prune(
            checkpoint,
            every=scheduled.get(SaveStrategy(self.args.save_strategy), 1),
            keep=max((number for number in kept if number is not None), default=None),
            spare=self.state.best_model_checkpoint,
        )

    def over_ranks(self, *values: float) -> torch.Tensor:
        """Gather numbers from all ranks as a tensor, (ranks, numbers)."""
        own = torch.tensor([values], dtype=torch.float64)
        if self.args.world_size == 1:  # no need of the device, which may lack float64
            return own
        return self.accelerator.gather(own.to(self.args.device)).cpu()

    def _greedy_scores(self) -> Mapping[str, Any]:
        assert self.target_language is not None  # checked with validation_pairs
        sources, references = zip(*self.validation_pairs, strict=True)
        budget = max(self.args.batch_tokens or 0, 4096)
        with without_training_changes(self.model):
            translations = translate(
                self.model, self.processing_class, sources, tokens_at_once=budget, num_beams=1
            )
            hypotheses = list(translations)
        release(self.model)  # packed copies of weights become outdated as training continues
        return corpus_scores(
            hypotheses, references, target_language=self.target_language, measures=self.measures
        )


# Methods that compute the evaluation loss, before a user can replace them.
_EVALUATION_STEPS = {
    name: getattr(VanillaTransformerTrainer, name)
    for name in (
        *("get_eval_dataloader", "prediction_step", "compute_loss", "_prepare_inputs"),
        *("compute_loss_context_manager", "_prepare_input"),
    )
}


@contextmanager
def _full_disk_named(checkpoint: Path) -> Iterator[None]:
    """Name the checkpoint in errors while it is written, since torch's errors name no file."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        what = f"{checkpoint} could not be written ({reason_of(error)})"
        raise RequestError(f"{what}; make room, and run the same command again.") from error
