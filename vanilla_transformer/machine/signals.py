"""Handle signals: Ctrl-C, and SIGTERM, which batch systems send to stop a process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled_by(handler: Callable[..., object], *signums: int) -> Iterator[None]:
    """Call a function on these signals while the block runs, in the main thread only."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {signum: signal.signal(signum, handler) for signum in signums if in_main}
    try:
        yield
    finally:
        for signum, handler_before in before.items():
            signal.signal(signum, handler_before)


class Interruption:
    """A request to stop a command: raises `KeyboardInterrupt`, but only between steps of its work.

    Python raises the exception anywhere in the program, even where it is swallowed, such as in a
    `__del__`. Therefore a step of long work is finished first, and then the request is checked
    again. A second signal ends the step at once.
    """

    def __init__(self) -> None:
        self._signum = 0  # signal not yet acted on
        self._steps = 0  # number of nested steps that are running

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Record a signal; raise at once if no step is running, or if it is the second signal."""
        again, self._signum = self._signum, signum
        if again or not self._steps:
            raise KeyboardInterrupt(signum)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step of long work, then stop if a signal arrived during it or was lost before."""
        self._steps += 1
        try:
            yield
        finally:
            self._steps -= 1
        if self._signum and not self._steps:
            raise KeyboardInterrupt(self._signum)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM while the block, a whole command, runs."""
        self._signum = 0
        with handled_by(self.note, signal.SIGINT, signal.SIGTERM):
            yield


interruption = Interruption()  # the process's
