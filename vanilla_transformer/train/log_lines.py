"""Log the progress of a training as lines of text."""

import logging
from typing import Any

from transformers import TrainerCallback, TrainerState

from ..storage.metrics import MEASURES

logger = logging.getLogger(__name__)


class LogLines(TrainerCallback):
    """Callback that logs a line for each report of our trainer, and the size of the training.

    Args:
        trainer: Our trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._is_size_told = False

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Reset what belongs to an earlier training."""
        self._is_size_told = False

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log the size, once the number of updates per epoch is known."""
        if not self._is_size_told and state.is_world_process_zero:
            self._is_size_told = True
            self._log_size(state)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log a line for training, for an evaluation, or for other figures."""
        if not state.is_world_process_zero:
            return
        if logs.keys() >= {"loss", "learning_rate"}:
            minutes = logs["minutes"]
            total = minutes * state.max_steps / state.global_step
            logger.info(
                "update %d of %d: loss %.3f, rate %.2e, %.0f tokens/s, %.1f of ~%.1f min",
                *(state.global_step, state.max_steps, logs["loss"], logs["learning_rate"]),
                *(logs["target_tokens_per_second"], minutes),
                min(total, args.max_minutes or total),
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
