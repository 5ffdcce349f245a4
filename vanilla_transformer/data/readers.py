"""Sentence pairs from files, the Hub, data sets or generators, line by line.

What cannot be a pair is skipped, counted and reported with its place, or refused.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError
from ..storage.reading import LINE_BYTES, errors_naming, read_lines

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    # A path, two paths, a Hub name, a data set, or pairs.
    PairSource = str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable

TEXT_BYTES = 2**16  # of one side of a pair: some ten thousand words
_ROWS = 1000
_JSON_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_GZIP = b"\x1f\x8b"  # begins such a file, and no text in UTF-8
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILE_SUFFIXES = (".gz", ".txt", ".tsv", ".csv", ".zip", ".parquet", ".arrow", ".bz2", ".xz")


class _MalformedError(RequestError):
    """What is wrong with one line."""


@dataclass(kw_only=True)
class PairReader:
    """Iterates over the (source, target) pairs of one place and counts what is none.

    Attributes:
        name: of the place, for messages.
        num_malformed: lines skipped by the last iteration.
        examples: what was wrong with the first of them, each with its file and line.
    """

    read: Callable[[Callable[[str], None]], Iterator[tuple[str, str]]]
    strict: bool
    name: str
    num_malformed: int = 0
    examples: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.num_malformed, self.examples = 0, []
        yield from self.read(self._skip)

    def _skip(self, complaint: str) -> None:
        if self.strict:
            raise RequestError(
                f"{complaint}. Repair or remove it, or leave out --strict (strict=False)."
            )
        self.num_malformed += 1
        if len(self.examples) < 5:
            self.examples.append(complaint)


def read_pairs(
    source: PairSource,
    *,
    source_language: str,
    target_language: str,
    split: str = "train",
    config: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    strict: bool = False,
) -> PairReader:
    """Read sentence pairs from wherever they are.

    What cannot be a pair (no JSON, a missing language, an empty or non-string side, invalid UTF-8,
    a side of more than 64 KiB, a line of more than 1 MiB) is skipped, counted and reported with its
    line, or refused with `strict`. Text is taken as it is; only the end of a line (LF or CRLF) and
    a byte order mark are not part of it.

    Args:
        source: one of
            - a JSON Lines file (`.jsonl`, `.json`, either with `.gz`), one
              `{"translation": {"en": ..., "de": ...}}` or `{"en": ..., "de": ...}` a line;
            - a tuple of two text files, plain or `.gz`, with one sentence a line;
            - the name of a data set on the Hub, or a folder that `datasets.load_dataset` reads;
            - a `datasets` data set with a column `translation` or one column per language;
            - an iterable of pairs, of which the first two entries are source and target.
        source_language: key of the source sentence; of no use for files of text and for pairs.
        target_language: key of the target sentence.
        split: of a Hub data set.
        config: of a Hub data set.
        revision: of a Hub data set.
        streaming: read a Hub data set without downloading it first.
        strict: refuse malformed lines.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, or files that do not go together; while iterating:
            files of unequal length, a broken gzip file, or, with `strict`, a malformed line.
    """
    languages = (source_language, target_language)

    def read(skip: Callable[[str], None]) -> Iterator[tuple[str, str]]:
        if kind == "json":
            return _read_json_lines(Path(source), languages, skip)
        if kind == "parallel":
            return _read_parallel(Path(source[0]), Path(source[1]), skip)
        if kind == "pairs":
            return _read_rows(source, lambda pair: _checked_pair(*_two_sides(pair)), "pair", skip)
        dataset = source
        if kind == "hub":
            from datasets import load_dataset

            dataset = load_dataset(
                os.fspath(source), config, split=split, revision=revision, streaming=streaming
            )
        rows = _dataset_rows(dataset, languages)
        return _read_rows(rows, lambda row: _pair_of_row(row, languages), "row", skip)

    kind = kind_of(source)
    return PairReader(read=read, strict=strict, name=_name_of(source, kind))


def kind_of(source: PairSource) -> str:
    """What `read_pairs` takes a source for: "json", "parallel", "hub", "dataset" or "pairs".

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, files that do not go together, or no source of pairs.
    """
    if isinstance(source, (str, os.PathLike)):
        return _kind_of_name(os.fspath(source), is_path=not isinstance(source, str))
    if (
        isinstance(source, (tuple, list))
        and source
        and all(isinstance(path, (str, os.PathLike)) for path in source)
    ):
        _require_parallel([os.fspath(path) for path in source])
        return "parallel"
    if hasattr(source, "column_names"):
        return "dataset"
    if isinstance(source, Iterable):
        return "pairs"
    raise RequestError(
        f"got pairs from {type(source).__name__}; allowed are files, names and pairs."
    )


def _kind_of_name(name: str, *, is_path: bool) -> str:
    if name.endswith(_JSON_SUFFIXES):
        _require_file(Path(name))
        return "json"
    if Path(name).is_dir():
        return "hub"
    if is_path or Path(name).exists() or name.endswith(_FILE_SUFFIXES):
        _require_file(Path(name))
        raise RequestError(
            f"got the file {name}; allowed are {', '.join(_JSON_SUFFIXES)}, or two text files, "
            "SOURCE,TARGET."
        )
    if not _HUB_NAME.fullmatch(name):
        raise FileNotFoundError(f"got {name!r}; there is no such file and no such Hub name.")
    return "hub"


def _require_parallel(names: list[str]) -> None:
    for name in names:
        _require_file(Path(name))
    if len(names) != 2 or any(name.endswith(_JSON_SUFFIXES) for name in names):
        raise RequestError(
            f"got the files {', '.join(names)}; allowed are one JSON Lines file, or SOURCE,TARGET, "
            "two text files. Join files of one kind into one."
        )


def _name_of(source: PairSource, kind: str) -> str:
    if kind == "parallel":
        return " and ".join(map(os.fspath, source))
    return os.fspath(source) if kind in ("json", "hub") else "the pairs given"


def _require_file(path: Path) -> None:
    if path.is_file():
        return
    if path.exists():
        raise RequestError(
            f"{path} is a folder, a pipe or a device; give a file, which can be read twice."
        )
    raise FileNotFoundError(f"got {str(path)!r}; there is no such file.")


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their ends, broken at line feeds only."""
    number = 0
    is_gzip = path.suffix == ".gz"
    with errors_naming(path), gzip.open(path, "rb") if is_gzip else path.open("rb") as file:
        try:
            for number, line in enumerate(read_lines(file), start=1):
                if number == 1 and line.startswith(_GZIP) and not is_gzip:
                    raise RequestError(f"{path} is a gzip file; let its name end in .gz.")
                yield line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RequestError(
                f"{path} is not a whole gzip file: {error} after line {number}. Fetch it again."
            ) from error


def _read_json_lines(
    path: Path, languages: tuple[str, str], skip: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield _pair_of_row(_parsed(line), languages)
        except _MalformedError as error:
            skip(f"{path}:{number}: {error}")


def _read_parallel(
    source: Path, target: Path, skip: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    # Whoever loads pairs writes them aside, so that nothing is kept when the end is uneven.
    counts = [0, 0]
    for number, lines in enumerate(zip_longest(_lines(source), _lines(target)), start=1):
        counts = [n + (line is not None) for n, line in zip(counts, lines, strict=True)]
        if None in lines:
            continue
        try:
            yield _checked_pair(*(_decoded(line) for line in lines))
        except _MalformedError as error:
            skip(f"{source}:{number} and {target}:{number}: {error}")
    if counts[0] != counts[1]:
        raise RequestError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; line n of one must "
            "translate line n of the other. Align them again."
        )


def _read_rows(
    rows: Iterable, pair_of: Callable[[object], tuple[str, str]], unit: str, skip: Callable
) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(rows):
        try:
            yield pair_of(row)
        except _MalformedError as error:
            skip(f"{unit} {number}: {error}")


def _dataset_rows(dataset: Dataset | IterableDataset, languages: tuple[str, str]) -> Iterator[dict]:
    columns = dataset.column_names
    if columns is not None:  # a stream may not know them
        wanted = ["translation"] if "translation" in columns else list(languages)
        if not set(wanted) <= set(columns):
            raise RequestError(
                f"got columns {columns}; needed are 'translation' or {wanted}. Check the languages."
            )
        dataset = dataset.select_columns(wanted)
    for batch in dataset.with_format(None).iter(_ROWS):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _decoded(line: bytes) -> str:
    if len(line) > LINE_BYTES:
        raise _MalformedError(f"the line is longer than {LINE_BYTES // 2**20} MiB")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _MalformedError(f"invalid UTF-8 at byte {error.start + 1} of the line") from None


def _parsed(line: bytes) -> object:
    text = _decoded(line)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"not JSON ({error})" if text.strip() else "empty line") from None


def _pair_of_row(row: object, languages: tuple[str, str]) -> tuple[str, str]:
    sides = row.get("translation", row) if isinstance(row, dict) else None
    if not isinstance(sides, dict):
        raise _MalformedError('no object of the form {"translation": {...}}')
    for language in languages:
        if language not in sides:
            names = reprlib.repr(sorted(map(str, sides)))
            raise _MalformedError(f"no {language!r} among {names}")
    return _checked_pair(*(sides[language] for language in languages))


def _two_sides(pair: object) -> tuple[object, object]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
        raise _MalformedError("no pair of (source, target)")
    return pair[0], pair[1]


def _checked_pair(source: object, target: object) -> tuple[str, str]:
    for name, side in (("source", source), ("target", target)):
        if not isinstance(side, str):
            raise _MalformedError(f"the {name} is {type(side).__name__}, not a string")
        if not side.strip():
            raise _MalformedError(f"the {name} is empty")
        try:
            size = len(side.encode("utf-8"))
        except UnicodeEncodeError:
            raise _MalformedError(f"the {name} holds a lone surrogate") from None
        if size > TEXT_BYTES:
            raise _MalformedError(f"the {name} is longer than {TEXT_BYTES // 2**10} KiB")
    return source, target
