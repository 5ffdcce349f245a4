"""Training that a signal ends with a whole checkpoint, for the next start to resume from."""

import logging
import signal
import threading
from pathlib import Path
from types import FrameType

logger = logging.getLogger(__name__)


class TrainingInterrupted(Exception):
    """A signal ended the training after a whole checkpoint was written."""

    def __init__(self, signum: int, checkpoint: Path) -> None:
        self.signum = signum
        self.checkpoint = checkpoint
        super().__init__(
            f"Stopped by {signal.Signals(signum).name}; {checkpoint} is whole. "
            "Run the same command again to resume."
        )


class Signals:
    """Notes the first SIGTERM or Ctrl-C, for the end of the update; a second one acts at once."""

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Signals":
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
            "%s: writing a checkpoint after this update; once more ends at once.",
            signal.Signals(signum).name,
        )
