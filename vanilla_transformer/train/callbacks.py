"""Callbacks: stop training by time, patience or a signal, save by time, and log progress."""

import logging
import math
import signal
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, has_length

from ..machine.signals import interruption
from ..storage.metrics import MEASURES
from ..storage.reading import counted
from .checkpoints import stopped_early

logger = logging.getLogger(__name__)


class TrainingInterrupted(KeyboardInterrupt):
    """A signal ended training; `checkpoint` is the last complete one, if any."""

    def __init__(self, signum: int, checkpoint: Path | None) -> None:
        super().__init__(signum)
        self.signum, self.checkpoint = signum, checkpoint

    def __str__(self) -> str:
        kept = f"after {self.checkpoint}" if self.checkpoint else "before the first checkpoint"
        name = signal.Signals(self.signum).name
        return f"Stopped by {name} {kept}. Run the same command again to continue."


class RunControl(TrainerCallback):
    """Callback that stops by time, patience or a signal, sets the sampler's epoch, and logs.

    Args:
        trainer: The `VanillaTransformerTrainer` that it controls.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Prepare the model, start the clock, and log the size of the run."""
        self.trainer.begin()
        # Resuming restored the checkpoint's logging and saving intervals; use the current ones.
        state.compute_steps(args, state.max_steps)
        self.last_save, self.stopped = time.monotonic(), False
        self.trainer.progress.start()
        facts, epochs = [f"{self.trainer.model.num_parameters():,} parameters"], ""
        self.trainer.updates_per_epoch = 0
        if has_length(train_dataloader):
            each = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
            self.trainer.updates_per_epoch = each
            facts.append(counted(len(self.trainer.train_dataset), "training pair"))
            if not args.train_weights:  # with them, an epoch is no pass over the pairs
                facts.append(f"{counted(each, 'update')} an epoch")
                epochs = f" ({state.max_steps / each:.1f} epochs)"
        if state.is_world_process_zero:
            time_limit = "" if args.max_minutes is None else f" or {args.max_minutes:g} min"
            logger.info("%s.", ", ".join(facts))
            updates = counted(state.max_steps, "update")
            logger.info("The training ends after %s%s%s.", updates, epochs, time_limit)

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Pass the epoch to the sampler."""
        # Trainer unwraps the sampler only once; in mid-epoch on several ranks it has two wrappers.
        if (sampler := self.trainer.train_sampler) is not None:
            sampler.set_epoch(state.global_step // self.trainer.updates_per_epoch)

    def on_substep_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Use as many threads as cores are free; more would wait for other programs."""
        if args.device.type == "cpu":
            self.trainer.threads.adapt()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Stop or save if it is time to, or after a signal."""
        self.on_substep_end(args, state, control)
        minutes = self.trainer.progress.seconds / 60
        out_of_time = args.max_minutes is not None and minutes >= args.max_minutes
        since = (time.monotonic() - self.last_save) / 60
        save_due = 0 < args.save_every_minutes <= since
        # All ranks must decide alike.
        own = (interruption.signum, out_of_time, save_due)
        signum, out_of_time, save_due = map(int, self.trainer.over_ranks(*own).amax(0))
        saves = args.save_strategy != SaveStrategy.NO
        control.should_save |= bool(signum or save_due or (out_of_time and saves))
        # transformers counts the epochs of a stream only since the training was resumed.
        if (stream := self.trainer.stream) is not None:
            batches = state.max_steps * args.gradient_accumulation_steps
            state.epoch = stream.epoch + stream.batches / batches
        if args.logging_strategy != IntervalStrategy.NO:  # log the last few updates too
            control.should_log |= out_of_time or state.global_step >= state.max_steps
        if out_of_time and not control.should_training_stop:
            logger.info("Stopping after %.1f minutes of training.", minutes)
            self.trainer.warn_of_schedule(state.global_step)
            control.should_training_stop = True
            control.should_evaluate = args.eval_strategy != "no"
        self.stopped = bool(signum or out_of_time)
        if signum:
            interruption.signum = signum
            control.should_training_stop, control.should_evaluate = True, False

    def on_epoch_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Skip the end-of-epoch evaluation and checkpoint if training stops within the epoch."""
        # transformers also calls this when training stops in mid-epoch, and then evaluates and
        # saves again if that is due at the end of epochs.
        each = self.trainer.updates_per_epoch
        if self.stopped and (each == 0 or state.global_step % each):
            control.should_log = control.should_evaluate = control.should_save = False

    def on_evaluate(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Stop if `early_stopping_patience` is used up."""
        training = self.trainer.threads is not None  # otherwise the user called `evaluate`
        watched = args.early_stopping_on
        if training and stopped_early(state.log_history, args.early_stopping_patience, watched):
            if state.is_world_process_zero:
                label = MEASURES[watched].label if watched in MEASURES else "validation loss"
                evaluations = counted(args.early_stopping_patience, "evaluation")
                logger.info("Stopping: %s has not improved in %s.", label, evaluations)
            control.should_training_stop = True
            control.should_save |= args.save_strategy != SaveStrategy.NO

    def on_save(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Restart the clock of `save_every_minutes`."""
        self.last_save = time.monotonic()

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log one line for an update, an evaluation or other results."""
        if not state.is_world_process_zero:
            return
        if logs.keys() >= {"loss", "learning_rate"}:
            minutes, step, last = logs["minutes"], state.global_step, f"{state.max_steps}"
            total = minutes * state.max_steps / step
            if args.max_minutes is not None and total > args.max_minutes:  # time ends it first
                total, last = args.max_minutes, f"~{step * args.max_minutes / minutes:.0f}"
            logger.info(
                "update %d of %s: loss %.3f, rate %.2e, %.0f tokens/s, %.1f of ~%.1f min",
                *(step, last, logs["loss"], logs["learning_rate"]),
                *(logs["target_tokens_per_second"], minutes, total),
            )
            return
        hidden = {"epoch", "train_loss", "eval_training_loss"}
        if "eval_perplexity" in logs and not self.trainer.has_other_loss:  # it is exp(eval_loss)
            hidden.add("eval_loss")
        labels = {f"eval_{name}": measure.label for name, measure in MEASURES.items()}
        labels["eval_perplexity"] = "validation perplexity"
        names = [name for name in logs if name.startswith("eval_")] or sorted(logs)
        metrics = {name: logs[name] for name in names if name not in hidden}
        shown = [
            f"{labels.get(name, name)} {f'{value:.4g}' if isinstance(value, float) else value}"
            for name, value in metrics.items()
        ]
        if shown:
            logger.info("update %d: %s", state.global_step, ", ".join(shown))
