"""Save each row of results of a long computation, so that a killed command can be continued."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, tee
from pathlib import Path
from typing import Any

from .atomic import sync

logger = logging.getLogger(__name__)

_LONGEST = 2**26  # maximum size of a row in bytes
_ROWS = ".vanilla-transformer-rows-"  # prefix of the file, beside an output, with its finished rows
_NONE = object()
_ON_THE_DISK = 30.0  # seconds between syncs to the disk; a power failure loses later rows


@contextmanager
def kept_rows(output: Path) -> Iterator[Path]:
    """Yield the path of a file for finished rows; delete the file when the output is complete."""
    path = output.with_name(f"{_ROWS}{output.name}")
    try:
        yield path
    except BaseException:
        if path.exists() and not path.stat().st_size:
            path.unlink()
        elif path.exists():
            logger.warning("Finished rows are in %s; repeat the command to continue.", path)
        raise
    path.unlink(missing_ok=True)


def continued(
    path: Path,
    made_from: Mapping[str, Any],
    sources: Iterable[Any],
    make: Callable[[Iterator[Any], int], Iterable[Any]],
) -> Iterator[Any]:
    """Yield a row for each source: first the saved rows, then new ones, which are saved too.

    Each saved row has a digest of `made_from`, of its source, and of all rows before it. Rows from
    the first difference on are computed again, whether the text, the model or the search changed
    or the file is damaged.

    Args:
        path: File of the saved rows, from `kept_rows`.
        made_from: What rows depend on besides their sources, such as digests of a model; like
            sources and rows, it must be writable as JSON.
        sources: The input of each row, in order.
        make: Function that computes a row for each remaining source; its second argument is the
            number of rows before these.
    """
    mark, left, known = _digest(b"", made_from, b""), iter(sources), 0
    path.touch()
    with path.open("r+b") as file:
        good = 0
        for line in iter(partial(file.readline, _LONGEST), b""):
            if (source := next(left, _NONE)) is _NONE:  # fewer sources than saved rows
                break
            row, _, found = line.rpartition(b" ")
            expected = _digest(mark, source, row)
            if found != expected + b"\n":
                left = chain([source], left)
                break
            mark, known, good = expected, known + 1, file.tell()
            yield json.loads(row)
        if path.stat().st_size > good:
            message = "%s is damaged or from another text, model or search; redoing rows from %d."
            logger.warning(message, path, known + 1)
        elif known:
            logger.info("%s has the first %s rows; continuing.", path, f"{known:,}")
        file.seek(good)
        file.truncate()
        given, left = tee(left)
        due = time.monotonic() + _ON_THE_DISK
        for source, made in zip(given, make(left, known), strict=True):
            row = json.dumps(made).encode()
            mark = _digest(mark, source, row)
            file.write(row + b" " + mark + b"\n")
            file.flush()
            if time.monotonic() > due:
                sync(path)
                due = time.monotonic() + _ON_THE_DISK
            yield made


def _digest(mark: bytes, source: object, row: bytes) -> bytes:
    text = json.dumps(source).encode()
    return hashlib.sha256(b"\n".join((mark, text, row))).hexdigest()[:32].encode()
