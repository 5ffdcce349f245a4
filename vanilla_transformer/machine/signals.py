"""Handle signals: Ctrl-C, and SIGTERM, which batch systems send to stop a process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled_by(handler: Callable[..., object], *signums: int) -> Iterator[None]:
    """Handle signals by a function while the block runs, in the main thread only."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {signum: signal.signal(signum, handler) for signum in signums if in_main}
    try:
        yield
    finally:
        for signum, handler_before in before.items():
            signal.signal(signum, handler_before)


class Interruption:
    """The wish to stop a command: `KeyboardInterrupt`, but between two steps of its work.

    Python raises the exception wherever the program is, also where none can leave, such as in a
    `__del__`, and then it is lost. So a step of long work is finished first, and the wish is looked
    at again after it. A second signal ends the step at once.
    """

    def __init__(self) -> None:
        self._signum = 0  # that no step has obeyed yet
        self._steps = 0  # that run now, one inside of another

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        again, self._signum = self._signum, signum
        if again or not self._steps:
            raise KeyboardInterrupt(signum)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Do a step of long work, and then stop if a signal came during it, or was lost before."""
        self._steps += 1
        try:
            yield
        finally:
            self._steps -= 1
        if self._signum and not self._steps:
            raise KeyboardInterrupt(self._signum)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM in the block, which is a whole command."""
        self._signum = 0
        with handled_by(self.note, signal.SIGINT, signal.SIGTERM):
            yield


interruption = Interruption()  # the process's
