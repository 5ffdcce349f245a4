"""Data sets on disk: memory-mapped Arrow files that are made once.

A cache is written to a temporary folder and renamed when it is complete; other processes that want
it wait.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..storage.atomic import write_json
from ..storage.reading import errors_naming, read_json, sha256

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

logger = logging.getLogger(__name__)

# Part of every cache key: raise it when the file format or the rules of reading change.
_CACHE_VERSION = 4
# Keys of the report of each kind of cache, and the types of their values.
REPORTS: dict[str, dict[str, type]] = {
    "pairs": {"rows": int, "malformed": int, "empty": int, "examples": list},
    "tokens": {"rows": int, "too_long": int, "empty": int},
    "split": {"rows": int, "held_out": int},
    "faults": {"rows": int, "duplicates": int, "copies": int, "odd_ratios": int},
    "clean": {"rows": int, "pairs": dict},
    "shared": {"rows": int, "shared": int},
}


class ArrowFile:
    """New Arrow file of batches; errors while writing name the file."""

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
    """Return the data set of `key` and its report; `write(path)` makes what is not there.

    Without a key the content is the key: `write` always runs, and equal results are kept once.
    """
    import datasets
    from filelock import FileLock

    root = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer"))
    root.mkdir(parents=True, exist_ok=True)
    mark = json.dumps([_CACHE_VERSION, key]).encode()
    folder = root / f"{name}-{hashlib.sha256(mark).hexdigest()[:32]}"
    # Only one process writes; the next one removes what a killed one left behind.
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
                with errors_naming(aside / "report.json"):
                    write_json(aside / "report.json", report)
                if key is None:
                    mark = json.dumps([report, sha256(aside / "data.arrow")]).encode()
                    folder = root / f"{name}-{hashlib.sha256(mark).hexdigest()[:32]}"
                opened = _opened(folder, name) if key is None else None
                if opened is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    aside.rename(folder)
                    opened = _opened(folder, name)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    assert opened is not None  # a damaged cache has just been made again
    return opened


def _opened(folder: Path, name: str) -> tuple[Dataset, dict[str, Any]] | None:
    """Return the data set in a folder and its report; None, with a warning, if damaged."""
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    if not folder.exists():
        return None
    file = folder / "data.arrow"
    try:
        report = read_json(
            folder / "report.json", keys=REPORTS[name], remedy="this version writes no such file"
        )
        table = MemoryMappedTable.from_file(str(file))
        if len(table) != report["rows"]:
            raise RequestError(f"{file.name} has {len(table)} rows, not {report['rows']}")
    except (OSError, ValueError) as error:  # Arrow raises ValueError for a cut file
        reason = str(error).rstrip(".")
        logger.warning("The cache %s is damaged and will be rebuilt: %s.", folder, reason)
        return None
    # The folder's name has the key, so that caches derived from this one are found again too.
    return Dataset(table, fingerprint=folder.name), report
