"""Progress of long work: a bar in a terminal, otherwise a log line every half minute."""

import io
import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm
from tqdm.auto import tqdm as bar

logger = logging.getLogger(__name__)

EVERY = 30.0  # seconds between two lines
_FEW = 1_000  # items; with fewer, no line at the start


class LoggedProgress(tqdm):
    """Progress as log lines: at the start, every half minute, and at the end of long work."""

    logged: int | None = None  # the count in the last line

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Log a line; tqdm calls this at the start, each half minute, and at the end."""
        seconds, done = self.format_dict["elapsed"], self.n - self.initial
        if self.n == self.logged or (done > 0 and seconds < EVERY):
            return True
        self.logged = self.n
        what = f"{self.desc}: {self.n:,} {self.unit}"
        if done == 0:
            if not self.total:
                logger.info("%s.", self.desc)
            elif self.total >= _FEW:
                logger.info("%s %s %s.", self.desc, f"{self.total:,}", self.unit)
        elif self.n == self.total:
            logger.info("%s in %.1f minutes.", what, seconds / 60)
        elif self.total:
            left = (self.total - self.n) * seconds / done / 60
            message = "%s of %s, %.1f a second, %.1f minutes left."
            logger.info(message, what, f"{self.total:,}", done / seconds, left)
        else:
            logger.info("%s, %.1f a second.", what, done / seconds)
        return True


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    what: str,
    unit: str,
    total: int | None = None,
    initial: int = 0,
    shown: bool = True,
    stream: TextIO | None = None,
) -> tqdm:
    """Return tqdm's progress bar, or log lines if standard error is not a terminal.

    Args:
        iterable: Items to count. None: the caller calls `update`, in a `with` block.
        what: Description of the work, such as "Translating".
        unit: Name of the items, such as "lines".
        total: Number of items, if known.
        initial: Number of items that are done already.
        shown: False shows nothing.
        stream: Output of the work. If it is a terminal, no bar is drawn into it.
    """
    options: dict[str, Any] = {"desc": what, "unit": unit, "total": total, "initial": initial}
    options["disable"] = not shown or (stream is not None and stream.isatty())
    if sys.stderr.isatty():
        return bar(iterable, **{**options, "unit": f" {unit}"})
    options |= {"mininterval": EVERY, "maxinterval": EVERY, "file": io.StringIO()}
    return LoggedProgress(iterable, **options)
