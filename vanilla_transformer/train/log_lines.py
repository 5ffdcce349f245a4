"""Log the size of a training, forecast its end, and warn if that falls into the warm-up."""

import logging
import math
from collections import deque
from typing import Any

from transformers import TrainerCallback, TrainerState

logger = logging.getLogger(__name__)

KNOWN_AFTER = 50  # updates: the first are slow, and batches differ in time
_REMEMBERED = 120.0  # seconds whose speed is taken for that of the rest


class Eta(TrainerCallback):
    """Log the size of a training; forecast its end, by updates or minutes, whichever come first.

    Args:
        trainer: Our trainer. Its clock must start before this callback is called.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        # Updates and seconds, of which a resumed training brings some along; empty before it.
        self._recent: deque[tuple[int, float]] = deque()
        self._is_warmup_checked = False

    def end(self, state: TrainerState) -> tuple[int, float] | None:
        """Return the last update and the minutes that the run will take; None if not known yet."""
        update, seconds = state.global_step, self.trainer.progress.seconds
        if not self._recent or update < KNOWN_AFTER:
            return None
        first, since = self._recent[0]
        each = (seconds - since) / (update - first)
        left = state.max_steps - update
        if self.trainer.args.max_minutes is not None:
            in_time = max(0.0, 60 * self.trainer.args.max_minutes - seconds)
            left = min(left, math.ceil(in_time / max(each, 1e-9)))
        return update + left, (seconds + left * each) / 60

    def of_totals(self, state: TrainerState) -> tuple[str, str]:
        """Return texts after the update and the minutes: how many there will be, if known."""
        end, limit = self.end(state), self.trainer.args.max_minutes
        if end is None or end[0] == state.global_step:
            return f" of {state.max_steps}" if limit is None else "", ""
        if end[0] == state.max_steps:
            return f" of {state.max_steps}", f" of ~{end[1]:.1f}"
        return f" of ~{end[0]}", f" of {limit:g}"

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Forget an earlier training."""
        self._recent.clear()
        self._is_warmup_checked = False

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Log the size, once the number of updates per epoch is known."""
        if not self._recent:
            self._recent.append((0, 0.0))
            if state.is_world_process_zero:
                self._log_size(state)

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: ANN001, ANN003, the base signature
        """Warn of an end within the warm-up once the speed is known."""
        seconds = self.trainer.progress.seconds
        self._recent.append((state.global_step, seconds))
        while self._recent[1][1] < seconds - _REMEMBERED:
            self._recent.popleft()
        end = self.end(state)
        if not self._is_warmup_checked and (end is not None or control.should_training_stop):
            self._is_warmup_checked = True
            last = state.global_step if end is None else end[0]
            if last < state.max_steps and not self.trainer.signum:
                self.trainer.warn_of_warmup(last)

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
