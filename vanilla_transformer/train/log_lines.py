"""Log the progress of a training as lines of text."""

import logging
import math
from typing import Any

from transformers import TrainerCallback, TrainerState

from ..storage.metrics import MEASURES

logger = logging.getLogger(__name__)

KNOWN_AFTER = 50  # updates: the first are slow, and batches differ in time


class LogLines(TrainerCallback):
    """Callback that logs a line for each report of our trainer, and the size of the training.

    The end of a training is forecast by its updates or minutes, whichever come first; a warning
    says if it falls into the warm-up.

    Args:
        trainer: Our trainer. Its clock must start before this callback is called.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._is_size_told = self._is_warmup_checked = False

    def end(self, state: TrainerState) -> tuple[int, float] | None:
        """Estimate the last update and the total minutes; None if it is too early for that."""
        update, seconds = state.global_step, self.trainer.progress.seconds
        if update < KNOWN_AFTER:
            return None
        each = seconds / update
        left = state.max_steps - update
        if self.trainer.args.max_minutes is not None:
            in_time = max(0.0, 60 * self.trainer.args.max_minutes - seconds)
            left = min(left, math.ceil(in_time / max(each, 1e-9)))
        return update + left, (seconds + left * each) / 60

    def of_totals(self, state: TrainerState) -> tuple[str, str]:
        """Return " of N" for the number of updates and for the minutes, if known."""
        end, limit = self.end(state), self.trainer.args.max_minutes
        if end is None or end[0] == state.global_step:
            return f" of {state.max_steps}" if limit is None else "", ""
        if end[0] == state.max_steps:
            return f" of {state.max_steps}", f" of ~{end[1]:.1f}"
        return f" of ~{end[0]}", f" of {limit:g}"

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Reset what belongs to an earlier training."""
        self._is_size_told = self._is_warmup_checked = False

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log the size, once the number of updates per epoch is known."""
        if not self._is_size_told and state.is_world_process_zero:
            self._is_size_told = True
            self._log_size(state)

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Warn once if the training will end during warm-up."""
        end = self.end(state)
        if not self._is_warmup_checked and (end is not None or control.should_training_stop):
            self._is_warmup_checked = True
            last = state.global_step if end is None else end[0]
            if last < state.max_steps and not self.trainer.run_control.signum:
                self.trainer.warn_of_warmup(last)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log a line for training, for an evaluation, or for other figures."""
        if not state.is_world_process_zero:
            return
        if logs.keys() >= {"loss", "learning_rate"}:
            of_updates, of_minutes = self.of_totals(state)
            logger.info(
                "update %d%s: loss %.3f, rate %.2e, %.0f tokens/s, %.1f%s min",
                *(state.global_step, of_updates, logs["loss"], logs["learning_rate"]),
                *(logs["target_tokens_per_second"], logs["minutes"], of_minutes),
            )
            return
        rest = {name: logs[name] for name in logs if name.startswith("eval_")}
        # "train_loss" is in the host's summary.
        rest = rest or {name: logs[name] for name in sorted(logs.keys() - {"epoch", "train_loss"})}
        rest.pop("eval_training_loss", None)
        told = []
        if "eval_perplexity" in rest:
            told.append(f"validation perplexity {rest.pop('eval_perplexity'):.2f}")
            if not self.trainer.has_other_loss:  # else it says something else
                rest.pop("eval_loss", None)
        for name in self.trainer.measures if self.trainer.validation_pairs else ():
            if f"eval_{name}" in rest:
                told.append(f"{MEASURES[name].label} {rest.pop(f'eval_{name}'):.1f}")
        told += [f"{name} {value}" for name, value in rest.items()]
        if told:
            logger.info("update %d: %s", state.global_step, ", ".join(told))

    def _log_size(self, state: TrainerState) -> None:
        minutes, each = self.trainer.args.max_minutes, self.trainer.updates_per_epoch
        told = [f"{self.trainer.model.num_parameters():,} parameters"]
        if each:  # the data has a length
            told.append(f"{len(self.trainer.train_dataset):,} training pairs")
            told.append(f"{each:,} updates an epoch")
        logger.info("%s.", ", ".join(told))
        logger.info(
            "The training ends after %s updates%s%s.",
            f"{state.max_steps:,}",
            f" ({state.max_steps / each:.1f} epochs)" if each else "",
            "" if minutes is None else f" or {minutes:g} minutes, whichever comes first",
        )
