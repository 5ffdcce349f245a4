"""Handle signals: Ctrl-C, and SIGTERM, which batch systems send to stop a process."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


class Interruption:
    """A request to stop a command: raises `KeyboardInterrupt`, but only between steps of its work.

    Python raises the exception anywhere in the program, even where it is swallowed, such as in a
    `__del__`, or replaced by another error, such as by the import of a library. Therefore a step of
    long work is finished first, and then the request is checked again. A second signal ends the
    step at once.
    """

    def __init__(self) -> None:
        self.signum = 0  # signal not yet acted on
        self._steps = 0  # number of nested steps that are running

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Record a signal; raise at once if no step is running, or if it is the second signal."""
        again, self.signum = self.signum, signum
        if again or not self._steps:
            raise KeyboardInterrupt(signum)
        name = signal.Signals(signum).name
        logger.warning("Got %s: stopping after this step. A second signal stops at once.", name)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step of long work, then stop if a signal came during it or was swallowed before."""
        self._steps += 1
        try:
            yield
        finally:
            self._steps -= 1
        if self.signum and not self._steps:
            raise KeyboardInterrupt(self.signum)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM while the block, a whole command or training, runs.

        Python allows this in the main thread only; in others, the block just runs.
        """
        in_main = threading.current_thread() is threading.main_thread()
        signums = (signal.SIGINT, signal.SIGTERM) if in_main else ()
        before, hook = {it: signal.signal(it, self.note) for it in signums}, sys.unraisablehook
        sys.unraisablehook = lambda lost: lost.exc_type is KeyboardInterrupt or hook(lost)
        try:
            yield
        except ImportError as error:
            if self.signum:
                raise KeyboardInterrupt(self.signum) from error
            raise
        finally:
            self.signum, sys.unraisablehook = 0, hook
            for signum, handler in before.items():
                signal.signal(signum, handler)


interruption = Interruption()  # one object for the whole process
