"""Handle signals such as SIGTERM, which batch systems send to stop a process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
