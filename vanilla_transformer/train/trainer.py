"""Training (Section 5) with transformers' Seq2SeqTrainer; there is no loop of our own.

We add batches by token budget, the paper's Adam and Eq. 3, perplexity per token and greedy BLEU
during training, fast settings for a CPU, and checkpoints that survive a kill.
"""

import copy
import hashlib
import itertools
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    set_seed,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK, OPTIMIZER_NAME
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput, SaveStrategy, TrainOutput
from transformers.training_args import OptimizerNames

from ..batch_translation import translate
from ..beam_search import default_beams
from ..data.batches import TokenBatchSampler
from ..data.bpe_dropout import BpeDropout, BpeDropoutCollator
from ..data.dataset import PairCollator, check_pairs, pair_lengths
from ..errors import NotFiniteError, RequestError
from ..evaluation import bleu_score, evaluate_model
from ..fast import release
from ..generation_limits import longest_sequence
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..publish.card import check_licenses
from ..publish.hub import check_repo_id
from ..publish.publishing import Publication, publish
from ..recipes.recipe import recipe_of
from ..storage.atomic import write_json
from ..storage.environment import hardware
from ..storage.metrics import TestTexts
from ..storage.run_files import METRICS
from .arguments import VanillaTransformerTrainingArguments, check_arguments
from .checkpoints import (
    Progress,
    check_state,
    checkpoint_written,
    last_whole_checkpoint,
    prune,
    seal,
    stopped_early,
)
from .cpu_settings import cpu_training_settings, fast_float32_products, without_training_changes
from .eta import Eta, describe_end, log_is_seen
from .optimization import factor_of_peak, noam_schedule, paper_adam
from .report import (
    arguments_beyond_paper,
    choose_samples,
    config_beyond_recipe,
    draw_curves,
    training_facts,
    without_texts,
    write_history,
)

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_TRAINING_PAIRS = 200  # at most; their plain loss is compared with the validation loss
_WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau", "greedy")


class TrainingInterrupted(Exception):
    """A signal ended the training; `checkpoint` is the last one that is whole, if any."""

    def __init__(self, signum: int, checkpoint: Path | None) -> None:
        self.signum = signum
        self.checkpoint = checkpoint
        stopped = f"Stopped by {signal.Signals(signum).name}"
        super().__init__(
            f"{stopped} before the first checkpoint. Run the same command to start again."
            if checkpoint is None
            else f"{stopped}; {checkpoint} is complete. Run the same command again to resume."
        )


class VanillaTransformerTrainer(Seq2SeqTrainer):
    """Seq2SeqTrainer for data sets from `tokenize_pairs`.

    `eval_loss` is the plain cross-entropy in nats per target token over the whole set, so that its
    exponential, `eval_perplexity`, is the paper's. `eval_training_loss` is the same for at most 200
    training pairs. `eval_bleu`, with `validation_pairs`, is BLEU of greedy translations.

    Args:
        model: `VanillaTransformerForConditionalGeneration`; it applies label smoothing itself.
        args: `VanillaTransformerTrainingArguments`.
        validation_pairs: (source, target) texts to translate at each evaluation, or a data set
            with these two columns.
        target_language: Decides how BLEU tokenises; needed with `validation_pairs`.
        **kwargs: As for Seq2SeqTrainer: `train_dataset`, `eval_dataset`, `processing_class` ...

    Raises:
        ValueError: If an argument asks for something that this trainer does differently.
    """

    # Seq2SeqTrainer accepts more types here.
    model: VanillaTransformerForConditionalGeneration
    args: VanillaTransformerTrainingArguments
    train_dataset: "Dataset"
    eval_dataset: "Dataset"
    processing_class: PreTrainedTokenizerBase
    data_collator: Callable[[Any], dict[str, torch.Tensor]]
    # Set when a training starts.
    optimizer: torch.optim.Optimizer
    train_sampler: TokenBatchSampler

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        args: VanillaTransformerTrainingArguments,
        *,
        validation_pairs: "Sequence[tuple[str, str]] | Dataset" = (),
        target_language: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name in ("compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func"):
            if kwargs.get(name) is not None:
                raise RequestError(
                    f"got {name}; this trainer has the loss of Section 5.4, and reports perplexity "
                    "and greedy BLEU of validation_pairs. Use Seq2SeqTrainer for others."
                )
        if getattr(getattr(model, "config", None), "model_type", None) != "vanilla_transformer":
            raise RequestError(
                f"got a {type(model).__name__}; this trainer trains models of this package. Use "
                "Seq2SeqTrainer for others."
            )
        if hasattr(model, "_orig_mod"):  # its checkpoints would have other names of tensors
            raise RequestError(
                "got a model of torch.compile; give the model itself, and torch_compile=True in "
                "the arguments."
            )
        if not isinstance(args, VanillaTransformerTrainingArguments):
            raise RequestError(
                f"got args of type {type(args).__name__}; give VanillaTransformerTrainingArguments."
            )
        if isinstance(kwargs.get("eval_dataset"), dict):
            raise RequestError(
                "got several evaluation sets; give one as eval_dataset, which early stopping "
                "watches, and call evaluate(other, metric_key_prefix='other') for the others."
            )
        pairs = _text_pairs(validation_pairs)
        if pairs and target_language is None:
            raise RequestError(
                "got validation_pairs and no target_language, which BLEU needs to split words; "
                "give its code, such as target_language='de'."
            )
        if pairs and kwargs.get("processing_class") is None:
            raise RequestError(
                "got validation_pairs and no tokenizer to translate them with; give it as "
                "processing_class."
            )
        optimizer, schedule = kwargs.get("optimizers") or (None, None)
        check_arguments(args, optimizer=optimizer, schedule=schedule)
        collator = kwargs.pop("data_collator", None) or PairCollator(
            pad_token_id=model.config.pad_token_id,
            vocab_size=model.config.vocab_size,
            target_vocab_size=model.config.target_vocab_size,
        )
        if args.n_gpu > 1:  # torch would split the batches, and the counts of tokens
            logger.warning(
                "Training on one of %d GPUs; to use all of them, start with accelerate launch.",
                args.n_gpu,
            )
            args._n_gpu = 1
        super().__init__(model, args, data_collator=collator, **kwargs)
        self._translates = True  # False during an evaluation of other pairs
        self.validation_pairs = pairs
        self.target_language = target_language
        self.updates_per_epoch = 0  # known when the first epoch begins
        self._repeats_last = False  # whether this rank repeats a batch at the end of an epoch
        self._arguments_beyond_paper = arguments_beyond_paper(
            args, optimizer=optimizer, schedule=schedule
        )
        self._bpe_dropout = self._make_bpe_dropout() if args.bpe_dropout else None
        self._check_ends()
        self.progress = Progress()
        self._signals = _Signals()
        self.eta = Eta(self)
        self.add_callback(_RunControl(self))
        self.add_callback(self.eta)

    def _print_once(self) -> None:
        """Let transformers print the figures and its bar only if nobody sees our log lines."""
        if log_is_seen():
            self.remove_callback(PrinterCallback)
            self.remove_callback(DEFAULT_PROGRESS_CALLBACK)

    @property
    def _order_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _check_ends(self) -> None:
        """Warn if the targets do not end with the model's end symbol, which stops the search."""
        if self.train_dataset is None:
            return
        check_pairs(self.train_dataset)
        if len(self.train_dataset) == 0:
            return
        end, labels = self.model.config.eos_token_id, self.train_dataset[0]["labels"]
        if len(labels) > 0 and int(labels[-1]) not in (end if isinstance(end, list) else [end]):
            logger.warning(
                "The first target ends with id %d, but the model's eos_token_id is %s: "
                "translations may run on to their limit. Make the model with a config that has the "
                "tokenizer's ids.",
                *(int(labels[-1]), end),
            )

    def get_train_dataloader(self) -> DataLoader:
        """Return batches by token budget (Section 5.1), dealt to the ranks in turn."""
        self.train_sampler = TokenBatchSampler(
            *pair_lengths(self.train_dataset),
            max_tokens=self.args.batch_tokens,
            seed=self._order_seed,
        )
        loader = DataLoader(
            self.train_dataset.select_columns(["input_ids", "labels"]),
            batch_sampler=self.train_sampler,
            collate_fn=self._training_collator(),
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            # Not all versions of transformers have this argument.
            multiprocessing_context=getattr(self.args, "dataloader_multiprocessing_context", None),
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
        )
        # All ranks take part in every update, so a rank without a batch at the end of an epoch
        # repeats one of the first batches, and `get_batch_samples` masks its labels.
        self.accelerator.dataloader_config.even_batches = True
        left = len(self.train_sampler) % self.args.world_size
        self._repeats_last = 0 < left <= self.args.process_index
        return self.accelerator.prepare(loader)

    def _training_collator(self) -> Callable[[list], dict[str, torch.Tensor]]:
        """Return the collator for training, which applies `bpe_dropout` first."""
        if self._bpe_dropout is None:
            return self.data_collator
        return BpeDropoutCollator(self.data_collator, self._bpe_dropout, self.train_sampler)

    def _make_bpe_dropout(self) -> BpeDropout:
        config = self.model.config
        if config.decoder_vocab_size is not None:
            raise RequestError(
                "bpe_dropout: got a model with a vocabulary for each language; it supports "
                "only a shared one. Set bpe_dropout to 0."
            )
        return BpeDropout(
            self.processing_class,
            self.args.bpe_dropout,
            seed=self.args.seed,
            max_length=longest_sequence(self.model),
        )

    def get_eval_dataloader(self, eval_dataset: "Dataset | None" = None) -> DataLoader:
        """Return batches of similar length, dealt to the ranks without repeats."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        source_lengths, target_lengths = pair_lengths(dataset)
        longest = max(source_lengths.max(initial=0), target_lengths.max(initial=0))
        batches = TokenBatchSampler(
            source_lengths,
            target_lengths,
            max_tokens=max(self.args.batch_tokens, int(longest)),
            shuffle=False,
        )
        return DataLoader(
            dataset.select_columns(["input_ids", "labels"]),
            batch_sampler=list(batches)[self.args.process_index :: self.args.world_size],
            collate_fn=self.data_collator,
        )

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """Create the paper's Adam (Section 5.3), or the optimizer that the arguments ask for."""
        if self.optimizer is not None or self.args.optim is not None or self.args.weight_decay:
            return super().create_optimizer(model)
        parameters = (self.model if model is None else model).parameters()
        self.optimizer = paper_adam(
            [parameter for parameter in parameters if parameter.requires_grad],
            lr=self.args.base_learning_rate,
            betas=(self.args.adam_beta1, self.args.adam_beta2),
            eps=self.args.adam_epsilon,
        )
        return self.optimizer

    @staticmethod
    def get_optimizer_cls_and_kwargs(  # type: ignore[override]  # our arguments only
        args: VanillaTransformerTrainingArguments, model: PreTrainedModel | None = None
    ) -> tuple[Any, Any]:
        """Return Seq2SeqTrainer's choice, with our base rate, and AdamW if none is named."""
        args = copy.copy(args)
        args.learning_rate = args.base_learning_rate
        args.optim = args.optim or OptimizerNames(Seq2SeqTrainingArguments.optim)
        return Seq2SeqTrainer.get_optimizer_cls_and_kwargs(args, model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Create Eq. 3, whose first update has a rate above 0, or the schedule asked for."""
        if self.lr_scheduler is not None:
            return self.lr_scheduler
        kind, warmup = self.args.lr_scheduler_type, self.args.get_warmup_steps(num_training_steps)
        self.warn_of_warmup(num_training_steps)
        if kind is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        d_model, factor = self.model.config.d_model, self.args.learning_rate_factor
        if self.args.learning_rate is not None:
            factor = factor_of_peak(self.args.learning_rate, d_model=d_model, warmup_steps=warmup)
        self.lr_scheduler = noam_schedule(
            self.optimizer if optimizer is None else optimizer,
            d_model=d_model,
            warmup_steps=warmup,
            factor=factor,
        )
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def warn_of_warmup(self, updates: int) -> None:
        """Warn if a run of so many updates ends during warm-up."""
        warmup = self.args.get_warmup_steps(self.state.max_steps or updates)
        warms_up = self.args.lr_scheduler_type not in _WITHOUT_WARMUP
        if updates <= warmup and warms_up and self.is_world_process_zero():
            logger.warning(
                "The run ends after %d updates, and warm-up takes %d: the model will have learned "
                "little. Give more updates, or a shorter warm-up.",
                updates,
                warmup,
            )

    def train(
        self,
        resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train, from the start or from a checkpoint; True means the last whole one.

        Raises:
            TrainingInterrupted: On SIGTERM or Ctrl-C, after a checkpoint was written.
            ValueError: If the checkpoint is of other pairs, batches, updates or precision, or
                broken.
        """
        self._print_once()
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_whole_checkpoint(self.args.output_dir)
        conditions: dict[str, Any] = {
            "data": _fingerprint(self.train_dataset),
            "batches_per_update": self._batches_per_update,
            "precision": self.args.precision,
            "batch_tokens": self.args.batch_tokens,
            "order_seed": self._order_seed,
        }
        if resume_from_checkpoint:
            plain_adam = self.optimizer is None and self.args.optim is None
            check_state(Path(resume_from_checkpoint), self.model, plain_adam=plain_adam)
            self.progress = Progress.load(Path(resume_from_checkpoint))
            self.progress.require(**conditions)
            if self.is_world_process_zero():
                logger.info("Resuming from %s.", resume_from_checkpoint)
        else:  # nothing of an earlier training counts
            self.progress = Progress(matmul_precision=self.progress.matmul_precision)
            if self.args.world_size > 1:
                self._draw_apart(update=0)
        if self._bpe_dropout is not None and self.is_world_process_zero():
            logger.info(
                "BPE-dropout %g splits words at random; numbers of tokens include this.",
                self.args.bpe_dropout,
            )
        conditions |= {"world_size": self.args.world_size, "hardware": hardware()}
        vars(self.progress).update(conditions)
        # Chosen once per run, so that a resumed run rounds the same.
        precision = self.progress.matmul_precision or self._matmul_precision()
        self.progress.matmul_precision = precision
        with cpu_training_settings(self.model, matmul_precision=precision), self._signals:
            start = str(resume_from_checkpoint or "") or None
            try:
                output = super().train(start, trial, ignore_keys_for_eval)
            finally:  # `on_train_end` is called only after a training without an error
                self.progress.stop()
                self.eta.close()
        if self._signals.received:
            checkpoint = last_whole_checkpoint(self.args.output_dir)
            raise TrainingInterrupted(self._signals.received, checkpoint)
        return output

    @property
    def _batches_per_update(self) -> int:
        """Batches of all processes in an update; the argument counts those of one process."""
        return self.args.gradient_accumulation_steps * self.args.world_size

    @property
    def interrupted(self) -> bool:
        """Whether a signal stopped the training, so that it will be resumed later."""
        return bool(self._signals.received)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Ignore missing tied tensors, which are stored once; refuse all other differences."""
        missing = set(load_result.missing_keys) - set(self.model.all_tied_weights_keys)
        foreign = sorted(missing | set(load_result.unexpected_keys))
        if foreign:
            raise RequestError(
                f"the checkpoint and the model differ in {len(foreign)} tensors, such as "
                f"{foreign[0]}; resume with the model that wrote it."
            )

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load both; refuse other constants than the checkpoint's, which would silently win."""
        if checkpoint is None:
            return
        if not (Path(checkpoint) / OPTIMIZER_NAME).is_file():
            raise RequestError(
                f"{checkpoint} holds no {OPTIMIZER_NAME}, because of save_only_model; start a new "
                "training from its model."
            )
        asked = [dict(group) for group in self.optimizer.param_groups]
        otherwise = "Give the same again, or start a new training from its model."
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except ValueError as error:
            raise RequestError(
                f"{checkpoint} was trained with another optimizer: {error}. {otherwise}"
            ) from error
        for wanted, found in zip(asked, self.optimizer.param_groups, strict=True):
            if wanted.keys() - found.keys():
                raise RequestError(f"{checkpoint} was trained with another optimizer. {otherwise}")
            for name in ("initial_lr", "betas", "eps", "weight_decay"):
                if name in wanted and wanted[name] != found[name]:
                    raise RequestError(
                        f"got an optimizer with {name}={wanted[name]}; {checkpoint} was trained "
                        f"with {found[name]}. {otherwise}"
                    )

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random state; if the number of ranks changed, seed new ones instead."""
        written_by = None if checkpoint is None else Progress.load(Path(checkpoint)).world_size
        if written_by in (None, self.args.world_size):
            super()._load_rng_state(checkpoint)
        else:
            self._draw_apart(update=self.state.global_step)

    def _draw_apart(self, *, update: int) -> None:
        """Seed this rank's random numbers, mainly for dropout, from seed, update and rank."""
        entropy = [self.args.seed, update, self.args.world_size, self.args.process_index]
        set_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def _matmul_precision(self) -> str:
        """Choose the precision of float32 matrix products for a new run."""
        if self.model.device.type != "cpu":
            return torch.get_float32_matmul_precision()
        # The ranks must agree: machines may differ, and only the first rank's choice is saved.
        dissent = self._sum_over_ranks(torch.tensor([float(fast_float32_products() != "medium")]))
        return "highest" if any(dissent) else "medium"

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """Also count the update's target tokens, without padding, over all ranks."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        if self._repeats_last and self.accelerator.gradient_state.end_of_dataloader:
            batches[-1] = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], -100)}
        batches, num_items = super().get_batch_samples(iter(batches), num_batches, device)
        if num_items is not None:
            self.progress.count(num_items)
        return batches, num_items

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: object = None) -> object:
        """Compute the norm only to clip or log it, because it takes a pass over all gradients."""
        by_steps = self.args.logging_strategy == "steps"
        if (
            grad_norm is None
            and by_steps
            and (self.state.global_step + 1) % self.state.logging_steps
        ):
            return None
        return super()._get_grad_norm(model, grad_norm)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **generation: object,
    ) -> dict[str, float]:
        """Evaluate without affecting the random numbers of the training.

        BLEU is that of `validation_pairs`, so an evaluation of another data set has none.

        Raises:
            ValueError: For arguments of `generate`: BLEU is always greedy.
        """
        _refuse_generation(generation)
        self._print_once()
        started = time.monotonic()
        devices = [self.args.device] if self.args.device.type == "cuda" else []
        self._translates = eval_dataset is None or eval_dataset is self.eval_dataset
        try:
            with torch.random.fork_rng(devices=devices):
                metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        finally:
            self._translates = True
        if self.progress.is_running:
            self.progress.evaluation_seconds += time.monotonic() - started
        return metrics

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **generation: object,
    ) -> PredictionOutput:
        """Return loss and perplexity of a data set; `translate` makes translations.

        Raises:
            ValueError: For arguments of `generate`.
        """
        _refuse_generation(generation)
        self._print_once()
        self._translates = False
        try:
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)
        finally:
            self._translates = True

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Compute the cross-entropy, weighted by tokens instead of batches, and greedy BLEU."""
        self.callback_handler.eval_dataloader = dataloader
        loss = self._plain_loss(self._with_progress(dataloader))
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        if metric_key_prefix == "eval" and self.train_dataset:
            # The same for some training pairs: the gap between the two shows overfitting.
            count = len(self.train_dataset)
            some = self.train_dataset.select(range(0, count, -(-count // _TRAINING_PAIRS)))
            metrics["training_loss"] = self._plain_loss(self.get_eval_dataloader(some))
        if self.validation_pairs and self._translates:
            # One rank translates; all need the result, which may choose the best checkpoint.
            bleu = self._greedy_bleu() if self.is_world_process_zero() else 0.0
            (metrics["bleu"],) = self._sum_over_ranks(torch.tensor([bleu], dtype=torch.float64))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        size = len(dataloader.dataset)  # type: ignore[arg-type]  # ours has a length
        return EvalLoopOutput(
            predictions=None,  # type: ignore[arg-type]  # none are made
            label_ids=None,
            metrics=metrics,
            num_samples=size,
        )

    def _with_progress(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, and tell the callbacks of each, as the loop of transformers does."""
        for batch in batches:
            yield batch
            self.control = self.callback_handler.on_prediction_step(
                self.args, self.state, self.control
            )

    def _plain_loss(self, batches: Iterable[Any]) -> float:
        """Return nats per target token over a whole data set, summed over all ranks."""
        self.model.eval()
        totals = torch.zeros(2, dtype=torch.float64)  # nats, target tokens
        with torch.no_grad():
            for batch in batches:
                inputs = self._prepare_inputs(batch)
                count = int((inputs["labels"] != -100).sum())
                loss = self.model(**inputs, return_logits=False, use_cache=False).loss
                totals += torch.tensor([float(loss) * count, count], dtype=torch.float64)
        nats, tokens = self._sum_over_ranks(totals)
        return nats / max(tokens, 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log without figures that assume batches of equal size; also write a line of text."""
        logs = {
            name: value
            for name, value in logs.items()
            if not name.endswith(("_per_second", "_flos", "_runtime", "_preparation_time"))
        }
        if "loss" in logs:
            logs |= {"target_tokens": self.progress.target_tokens, **self.progress.since_last_log()}
            if not math.isfinite(logs["loss"]):
                paper = self.args.learning_rate is None
                raise NotFiniteError(
                    f"the loss became {logs['loss']} before update {self.state.global_step}; lower "
                    f"learning_rate{'_factor' if paper else ''} or raise warmup_steps."
                )
        super().log(logs, start_time)
        if self.is_world_process_zero():
            self._log_line(logs)

    def _log_line(self, logs: dict[str, float]) -> None:
        step = self.state.global_step
        if "loss" in logs:
            limit, end = self.args.max_minutes, self.eta.end(self.state)
            logger.info(
                "update %d of %d: loss %.3f, learning rate %.2e, %.0f target tokens/s, "
                "%.1f minutes so far%s%s",
                step,
                self.state.max_steps,
                logs["loss"],
                logs["learning_rate"],
                logs["target_tokens_per_second"],
                logs["minutes"],
                "" if limit is None else f" of {limit:g}",
                f"; end at {describe_end(end)}" if end is not None and end[0] > step else "",
            )
        elif "eval_loss" in logs:
            bleu = f", greedy BLEU {logs['eval_bleu']:.1f}" if "eval_bleu" in logs else ""
            perplexity = logs["eval_perplexity"]
            logger.info("update %d: validation perplexity %.2f%s", step, perplexity, bleu)

    def _save_checkpoint(self, model: torch.nn.Module, trial: object) -> None:
        """Save as the parent does; refuse a removed directory, and name the file in errors."""
        if self.args.should_save and not Path(self.args.output_dir).is_dir():
            raise RequestError(
                f"{self.args.output_dir} was removed during the training; start it again."
            )
        with checkpoint_written(Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")):
            super()._save_checkpoint(model, trial)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Only record the name; the repository is created when a model is pushed."""
        name = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
        self.hub_model_id = name  # type: ignore[assignment]  # typed as None
        self.push_in_progress = None
        logger.info("No checkpoint is pushed; call push_to_hub(license=...) after the training.")

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save without pushing, which `push_to_hub` does, after its checks."""
        super().save_model(output_dir, _internal_call=True)

    def push_to_hub(  # type: ignore[override]  # it does something else
        self,
        commit_message: str | None = None,
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        *,
        license: str | None = None,
        language: Sequence[str] = (),
        data_license: str | None = None,
        data_source: str | None = None,
        with_code: bool = False,
    ) -> Publication | None:
        """Score the model on the validation pairs and publish it as `publish` does.

        Args:
            commit_message: Not used; the commit says what was published.
            blocking: Not used; the call returns when all is pushed.
            token: Hub token; overrides the arguments' `hub_token`.
            revision: Branch; overrides `hub_revision`.
            private: Whether the repository is private; overrides `hub_private_repo`.
            license: License of the model, as the Hub names it.
            language: Codes of source and target language.
            data_license: License of the training pairs, in words.
            data_source: Source of the training pairs, in words.
            with_code: Whether to push the model's code too, for `trust_remote_code=True`.

        Returns:
            What was published; None on every rank but the first.

        Raises:
            ValueError: As for `publish`, or if there are no languages or no validation pairs.
        """
        if not self.is_world_process_zero():
            return None
        repo_id = self.args.hub_model_id
        if repo_id is None:
            raise RequestError("the arguments name no repository; give hub_model_id='user/name'.")
        # `publish` checks these two as well, but only after the scoring.
        check_repo_id(repo_id)
        check_licenses(license, data_license)
        if isinstance(language, str) or len(language) != 2:
            raise RequestError(
                f"got language={language!r}; give source and target, such as ('en', 'de')."
            )
        if not self.validation_pairs:
            raise RequestError(
                "the trainer has no validation_pairs to score the model on before publishing it."
            )
        with tempfile.TemporaryDirectory(prefix="trained-") as directory:
            self._write_run(Path(directory), *language)
            return publish(
                directory,
                repo_id,
                license=license,
                data_license=data_license,
                data_source=data_source,
                with_code=with_code,
                push=True,
                private=bool(self.args.hub_private_repo if private is None else private),
                revision=revision or self.args.hub_revision,
                token=token or self.args.hub_token,
            )

    def _write_run(self, directory: Path, source_language: str, target_language: str) -> None:
        """Write the model and its scores on the validation pairs as a run directory."""
        self.model.save_pretrained(directory)
        self.processing_class.save_pretrained(directory)
        sources, references = map(list, zip(*self.validation_pairs, strict=True))
        with without_training_changes(self.model):  # score it as published, not under autocast
            result = evaluate_model(
                self.model,
                self.processing_class,
                sources,
                references,
                target_language=target_language,
            )
        release(self.model)
        texts: TestTexts = {"sources": sources, "references": references}
        metrics = {
            "scores": {"validation": without_texts(result)},
            **training_facts(self.model, self.processing_class, self.args, self.progress),
            "updates": self.state.global_step,
            "epochs": round(self.state.epoch or 0.0, 3),
            "averaged_checkpoints": [],
            "data": {"train_pairs_kept": len(self.train_dataset)},
            "recipe": self._recipe(source_language, target_language),
            "model": config_beyond_recipe(self.model.config),
            "arguments": self._arguments_beyond_paper,
            "samples": choose_samples({"validation": {**result, **texts}}, 20),
        }
        draw_curves(self.state.log_history, directory)
        write_history(self.state.log_history, directory)
        write_json(directory / METRICS, metrics)

    def _recipe(self, source_language: str, target_language: str) -> dict[str, Any]:
        """Return the values of a recipe that trains the same model."""
        config, search = self.model.config, self.model.generation_config
        backend = getattr(self.processing_class, "backend_tokenizer", None)
        return recipe_of(
            config,
            self.args,
            source_language=source_language,
            target_language=target_language,
            max_source_length=int(pair_lengths(self.train_dataset)[0].max()),
            gradient_accumulation=self._batches_per_update,
            vocab_size=config.vocab_size,
            split_digits="Digits(" in repr(backend and backend.pre_tokenizer),
            max_steps=self.state.max_steps,  # also if the arguments count epochs
            warmup_steps=self.args.get_warmup_steps(self.state.max_steps),  # also from a share
            checkpoints_to_average=1,  # a trainer does not average
            num_beams=default_beams(self.model),
            length_penalty=search.length_penalty,
            stop_search_early=search.early_stopping is True,
        )

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push nothing: a checkpoint holds the optimizer and the arguments."""

    def _sum_over_ranks(self, values: torch.Tensor) -> list[float]:
        if self.args.world_size > 1:
            shared = values.to(self.args.device)
            torch.distributed.all_reduce(shared)
            values = shared.cpu()
        return values.tolist()

    def _greedy_bleu(self) -> float:
        assert self.target_language is not None  # checked with validation_pairs
        sources, references = zip(*self.validation_pairs, strict=True)
        with without_training_changes(self.model):
            found = translate(
                self.model,
                self.processing_class,
                list(sources),
                batch_tokens=max(self.args.batch_tokens, 4096),
                num_beams=1,
            )
            hypotheses = list(found)
        release(self.model)  # packed copies of weights become outdated as training continues
        language = self.target_language
        return bleu_score(hypotheses, list(references), target_language=language)["bleu"]


def _text_pairs(pairs: "Sequence[tuple[str, str]] | Dataset") -> list[tuple[str, str]]:
    """Return pairs of texts, also those of a data set with the columns `source` and `target`."""
    if {"source", "target"} <= set(getattr(pairs, "column_names", None) or ()):
        pairs = list(zip(pairs["source"], pairs["target"], strict=True))  # type: ignore[call-overload]  # a data set's columns
    found = list(pairs)
    for number, pair in enumerate(found, start=1):
        two = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not two or not all(isinstance(side, str) for side in pair):
            raise RequestError(
                f"got validation_pairs whose element {number} is not two texts, (source, target); "
                "give such pairs, or a data set with the columns source and target."
            )
    return found


class _Signals:
    """Signal handler: SIGTERM or Ctrl-C stops after the update, a second one at once."""

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}  # handlers

    def __enter__(self) -> "_Signals":
        self.received = 0
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                self._previous[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous.clear()

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = signum
        logger.warning(
            "Got %s: the run stops after this update and saves a checkpoint. Send it again to stop "
            "at once.",
            signal.Signals(signum).name,
        )


def _refuse_generation(options: Mapping[str, object]) -> None:
    if options:
        raise RequestError(
            f"got {', '.join(options)}; BLEU is greedy here. For other searches use "
            "evaluate_model from vanilla_transformer.evaluation."
        )


class _RunControl(TrainerCallback):
    """Callback that stops by clock or signal, seals checkpoints and sets the sampler's epoch."""

    def __init__(self, trainer: VanillaTransformerTrainer) -> None:
        self.trainer = trainer
        self.last_save = time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        # A checkpoint restores its own intervals; use those of this start.
        state.compute_steps(args, state.max_steps)
        self.last_save = time.monotonic()
        self.stopped = False
        self.trainer.progress.start()

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        # Trainer unwraps the sampler only once; in mid-epoch on several ranks it has two wrappers.
        batches = len(self.trainer.train_sampler)
        updates = math.ceil(batches / self.trainer._batches_per_update)
        self.trainer.updates_per_epoch = updates
        self.trainer.train_sampler.set_epoch(state.global_step // updates)

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        minutes = self.trainer.progress.seconds / 60
        out_of_time = args.max_minutes is not None and minutes >= args.max_minutes
        since = (time.monotonic() - self.last_save) / 60
        save_due = 0 < args.save_every_minutes <= since
        signum, out_of_time, save_due = self._agree(
            self.trainer._signals.received, out_of_time, save_due
        )
        control.should_save |= bool(signum or out_of_time or save_due)
        if state.global_step >= state.max_steps:
            control.should_log = True  # also log the last few updates
        if out_of_time and not control.should_training_stop:
            logger.info("Stopping after %.1f minutes of training.", minutes)
            control.should_training_stop = control.should_log = True
            control.should_evaluate = args.eval_strategy != "no"
        self.stopped = bool(signum or out_of_time)
        if signum:
            self.trainer._signals.received = signum
            control.should_training_stop, control.should_evaluate = True, False

    def on_epoch_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        # transformers calls this when a training stops in mid-epoch too, and then evaluates and
        # saves again if these go by epochs.
        if self.stopped and state.global_step % self.trainer.updates_per_epoch:
            control.should_log = control.should_evaluate = control.should_save = False

    def on_evaluate(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        training = self.trainer.progress.is_running  # else the user calls `evaluate`
        if training and stopped_early(state.log_history, args.early_stopping_patience):
            if state.is_world_process_zero:
                count = args.early_stopping_patience
                logger.info(
                    "Stopping: the validation loss has not fallen in %d evaluations.", count
                )
            control.should_training_stop = control.should_save = True

    def on_save(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.last_save = time.monotonic()
        if args.world_size > 1:
            torch.distributed.barrier()  # every rank has written its random state
        if args.should_save:
            with checkpoint_written(checkpoint):
                self.trainer.progress.save(checkpoint)
                seal(checkpoint)
            scheduled = {
                SaveStrategy.STEPS: int(state.save_steps),
                SaveStrategy.EPOCH: self.trainer.updates_per_epoch,
            }
            prune(
                checkpoint,
                every=scheduled.get(args.save_strategy, 1),
                keep=args.checkpoints_to_keep,
                spare=state.best_model_checkpoint,
            )

    def _agree(self, *values: int) -> list[int]:
        """Return the maximum of each value over all ranks, so that all do the same."""
        if self.trainer.args.world_size == 1:
            return [int(value) for value in values]
        shared = torch.tensor([int(value) for value in values], device=self.trainer.args.device)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
        return shared.tolist()


def _fingerprint(dataset: "Dataset") -> str:
    """Hash the number, order and lengths of the pairs, which determine the batches."""
    digest = hashlib.sha256()
    for lengths in pair_lengths(dataset):
        digest.update(np.ascontiguousarray(lengths, dtype=np.int64).tobytes())
    return digest.hexdigest()[:16]
