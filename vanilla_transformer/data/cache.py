"""Cache of data sets: memory-mapped Arrow files that are written once.

A cache is written to a temporary folder and renamed when it is complete; other processes that want
it wait.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import RequestError
from ..storage.atomic import move_into_place, temporary_folder, write_json
from ..storage.reading import errors_naming, read_json, sha256

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

Tables: TypeAlias = "Generator[pyarrow.Table, None, dict[str, Any]]"

logger = logging.getLogger(__name__)

# Part of every cache key: raise it when the file format or the rules of reading change.
_CACHE_VERSION = 15
DIGEST = "digest"  # key in report.json: digest of everything else


def cached(
    name: str, key: list | None, tables: Tables, cache_dir: str | os.PathLike | None = None
) -> tuple[Dataset, dict[str, Any]]:
    """Return the data set and the report, a dict, cached under a key; create both if missing.

    Args:
        name: Kind of the data set, with which the name of its folder begins.
        key: What the content depends on. None reads the tables each time; equal data sets are
            stored only once.
        tables: Generator that yields one or more tables of the same schema, and returns the report;
            the number of rows is added to that, as `rows`.
        cache_dir: Folder of the caches. None is the cache folder of `datasets`.
    """
    import datasets
    from filelock import FileLock

    root = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer"))
    folder = _folder(root, name, [_CACHE_VERSION, key])
    with ExitStack() as stack:
        try:
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{folder}.lock"))
        except PermissionError as error:  # another user's folder, whose caches can be read
            if key is not None and (opened := _opened(folder)) is not None:
                return opened
            remedy = "set HF_DATASETS_CACHE to a folder of your own"
            raise RequestError(f"{root} belongs to another user; {remedy}.") from error
        if key is not None and (opened := _opened(folder)) is not None:
            return opened
        with temporary_folder(root) as aside:
            report = _write(aside / "data.arrow", tables)
            kept = {**report, DIGEST: _digest(report, aside / "data.arrow")}
            write_json(aside / "report.json", kept)
            if key is None:
                folder = _folder(root, name, [report, sha256(aside / "data.arrow")])
            if key is not None or _opened(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)
                move_into_place(aside, folder)
        opened = _opened(folder)
    assert opened is not None  # a damaged cache has just been made again
    return opened


def _folder(root: Path, name: str, mark: list) -> Path:
    return root / f"{name}-{hashlib.sha256(json.dumps(mark).encode()).hexdigest()[:32]}"


def _write(path: Path, tables: Tables) -> dict[str, Any]:
    """Write the tables to an Arrow file; return the report of their generator plus `rows`.

    If writing fails, the error names the file.
    """
    import pyarrow as pa

    report: dict[str, Any] = {}

    def with_report() -> Iterator[pa.Table]:
        report.update((yield from tables))

    writer, rows = None, 0
    try:
        for table in with_report():
            with errors_naming(path):
                writer = writer or pa.ipc.new_stream(str(path), table.schema)
                writer.write_table(table)
            rows += len(table)
    finally:
        if writer is not None:
            with errors_naming(path):
                writer.close()
    return {"rows": rows, **report}


def _digest(report: dict[str, Any], file: Path) -> str:
    """Return a digest of a cache, by a hash fast enough to be checked whenever it is opened."""
    import xxhash

    with file.open("rb") as stream:
        content = hashlib.file_digest(stream, xxhash.xxh3_128).hexdigest()
    whole = json.dumps([report, content], sort_keys=True).encode()
    return xxhash.xxh3_128(whole).hexdigest()


def _opened(folder: Path) -> tuple[Dataset, dict[str, Any]] | None:
    """Return a cache folder's data set and report; if they are damaged, warn and return None."""
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    if not folder.exists():
        return None
    file = folder / "data.arrow"
    try:
        report = read_json(folder / "report.json")
        if report.pop(DIGEST, None) != _digest(report, file):
            raise RequestError("it does not match its digest")
        table = MemoryMappedTable.from_file(str(file))
    except (OSError, ValueError) as error:  # Arrow raises ValueError for a truncated file
        reason = str(error).rstrip(".")
        logger.warning("The cache %s is damaged and will be rebuilt: %s.", folder, reason)
        return None
    # The folder's name depends on the key, so caches derived from this one are found again too.
    return Dataset(table, fingerprint=folder.name), report
