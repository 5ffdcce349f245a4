"""Data sets on disk: Arrow files that are memory-mapped, made once.

A cache is written aside and renamed when it is whole; processes that want the same one wait for the
first of them. Its report holds size, times and digest of its data: they are believed while size and
times are the same, or else the digest is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..storage.atomic import write_json
from ..storage.reading import errors_naming, read_json, sha256

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

logger = logging.getLogger(__name__)

# Part of every cache key: raise it when the files or the rules of reading change.
_CACHE_VERSION = 3
# What the reports of each kind of cache hold.
REPORTS: dict[str, dict[str, type]] = {
    "pairs": {"rows": int, "malformed": int, "empty": int, "examples": list},
    "tokens": {"rows": int, "too_long": int, "empty": int},
    "split": {"rows": int, "held_out": int},
    "faults": {"rows": int, "duplicates": int, "copies": int, "odd_ratios": int},
    "clean": {"rows": int, "pairs": dict},
    "shared": {"rows": int, "shared": int},
}


class ArrowFile:
    """A new file of batches; the errors of writing it name it."""

    def __init__(self, path: Path, schema: pyarrow.Schema) -> None:
        self.path, self.schema = path, schema

    def __enter__(self) -> ArrowFile:
        import pyarrow as pa

        with errors_naming(self.path):
            self.writer = pa.ipc.new_stream(str(self.path), self.schema)
        return self

    def write(self, columns: list[pyarrow.Array]) -> None:
        """Add a batch."""
        import pyarrow as pa

        with errors_naming(self.path):
            self.writer.write_batch(pa.record_batch(columns, schema=self.schema))

    def __exit__(self, *exception: object) -> None:
        with errors_naming(self.path):
            self.writer.close()


def cached(
    name: str,
    key: list | None,
    write: Callable[[Path], dict[str, Any]],
    *,
    cache_dir: str | os.PathLike | None,
) -> tuple[Dataset, dict[str, Any]]:
    """The data set of `key` and its report, made by `write(path)` unless a whole one is there.

    Without a key the content is the key: `write` runs, and the result is kept once.
    """
    import datasets
    from filelock import FileLock

    root = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer"))
    root.mkdir(parents=True, exist_ok=True)
    mark = json.dumps([_CACHE_VERSION, key]).encode()
    folder = root / f"{name}-{hashlib.sha256(mark).hexdigest()[:32]}"
    # Only one process writes; whatever it left behind when it was killed is its successor's.
    with errors_naming(f"{folder}.lock"):
        lock = FileLock(f"{folder}.lock").acquire()
    with lock:
        opened = None if key is None else _opened(folder, name)
        if opened is None:
            aside = folder.with_suffix(".incomplete")
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            try:
                report = write(aside / "data.arrow")
                digest = sha256(aside / "data.arrow")
                _write_report(aside, report, digest)
                if key is None:
                    folder = root / f"{name}-{digest[:32]}"
                opened = _opened(folder, name) if key is None else None
                if opened is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    aside.rename(folder)
                    opened = _opened(folder, name)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    assert opened is not None  # what was found damaged has just been made again
    return opened


def _opened(folder: Path, name: str) -> tuple[Dataset, dict[str, Any]] | None:
    """The data set in a folder and its report; None, with a warning, if they are damaged."""
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    if not folder.exists():
        return None
    file = folder / "data.arrow"
    expected = {**REPORTS[name], "sha256": str, "size_and_times": list}
    try:
        report = read_json(folder / "report.json", keys=expected, remedy="another program wrote it")
        if report["size_and_times"] != _size_and_times(file):  # after an edit, or a copy
            if report["sha256"] != sha256(file):
                raise RequestError(f"{file.name} has changed")
            with suppress(OSError):  # the next time, the digest is computed again
                _write_report(folder, report, report["sha256"])
        table = MemoryMappedTable.from_file(str(file))
        if len(table) != report["rows"]:
            raise RequestError(f"{file.name} has {len(table)} rows, not {report['rows']}")
        # The name holds the key, so that what is derived from it is found again as well.
        return Dataset(table, fingerprint=folder.name), report
    except (OSError, RequestError) as error:
        logger.warning("The cache %s is damaged and is made again: %s.", folder, error)
    return None


def _write_report(folder: Path, report: dict[str, Any], digest: str) -> None:
    marks = {"sha256": digest, "size_and_times": _size_and_times(folder / "data.arrow")}
    file = folder / "report.json"
    with errors_naming(file):
        write_json(file, {**report, **marks})


def _size_and_times(file: Path) -> list[int]:
    """Bytes, and nanoseconds of the last change of the content and of the file's own record."""
    state = file.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
