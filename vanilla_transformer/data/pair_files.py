"""Sentence pairs from files, the Hub, data sets or generators, line by line.

Lines that cannot be a pair are skipped, counted and reported with their place, or refused.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import reprlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from ..errors import RequestError
from ..storage.reading import IS_NO_TEXT, LINE_BYTES, errors_naming, read_lines

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    # A path, two paths, a Hub name, a data set, or pairs.
    PairSource: TypeAlias = str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable

TEXT_BYTES = 2**16  # most for one side of a pair: some ten thousand words
_ROWS = 1000
_HEAD, _HEAD_BYTES = 20, 10_000  # lines, and bytes of each, that tell how a table is written
_JSON_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_TABLE_SUFFIXES = (".tsv", ".csv", ".tsv.gz", ".csv.gz")
_SUFFIXES = (*_JSON_SUFFIXES, *_TABLE_SUFFIXES, ".parquet")
_GZIP = b"\x1f\x8b"  # first bytes of a gzip file, and of no text in UTF-8
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16, which are not UTF-8
_REGION = re.compile(r"(?<=^[a-z]{2})[-_][a-z]{2,4}$")  # in the name of a column: en-us, zh_hans
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILE_SUFFIXES = (".gz", ".txt", ".zip", ".arrow", ".bz2", ".xz", ".xlsx", ".ods")


class _MalformedError(RequestError):
    """What is wrong with one line."""


class _EncodingError(_MalformedError):
    """The line is not UTF-8."""


class _EmptyError(_MalformedError):
    """A side, or the line, is empty."""


# Called with the place of a line that is not a pair, and with what is wrong with it.
_Skip = Callable[[str, Exception], None]
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class _Columns:
    """Choice of the two columns of a table that are source and target.

    Attributes:
        languages: languages of source and target.
        given: names, or numbers from 1, that the user gave. None to look for known names.
    """

    languages: tuple[str, str]
    given: tuple[str | int, str | int] | None

    @property
    def known(self) -> list[tuple[str, str]]:
        """Names that need not be given, in the order in which they are looked for."""
        return [self.languages, ("source", "target")]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Names of source and target in rows that are objects, in this order."""
        if self.given is None:
            return self.known
        source, target = self.given
        return [(str(source), str(target))]

    def places(self, names: Sequence[str], where: str) -> tuple[int, int] | None:
        """Return the indices of the two columns among these names; None if no name is known."""
        if self.given is None:
            return self.named_by_themselves(names)
        found = []
        for option, column in zip(("source_column", "target_column"), self.given, strict=True):
            if isinstance(column, str) and names.count(column) != 1:
                raise RequestError(
                    f"{option}: got {column!r}, but {where} has the columns "
                    f"{reprlib.repr(list(names))}; give one of them, or a number from 1."
                )
            found.append(names.index(column) if isinstance(column, str) else column - 1)
        return found[0], found[1]

    def named_by_themselves(self, names: Sequence[str]) -> tuple[int, int] | None:
        """Return the indices of columns named after the languages, or `source` and `target`."""
        names = [name.casefold() for name in names]
        without_regions = [_REGION.sub("", name) for name in names]
        for pair in self.known:
            wanted = [name.casefold() for name in pair]
            for found in (names, without_regions):
                if all(found.count(name) == 1 for name in wanted):
                    return found.index(wanted[0]), found.index(wanted[1])
        return None

    def check_first_row(self, cells: Sequence[str], where: str) -> None:
        """Refuse a first row that would be read as a pair, but has half a header or a number."""
        if len(cells) > 2 and cells[0].isdecimal():
            raise RequestError(
                f"{where} begins with {reprlib.repr(list(cells))}, so its first column seems to "
                "hold numbers; give --source-column and --target-column, by numbers from 1."
            )
        names = [name.casefold() for name in cells]
        for pair in self.known:
            source, target = (name.casefold() for name in pair)
            for name, other in ((source, target), (target, source)):
                if name in names and other not in names:
                    raise RequestError(
                        f"{where} begins with {reprlib.repr(names)}, which has {name!r} but not "
                        f"{other!r}; name both columns (--source-column, --target-column), by "
                        "numbers from 1 if this is not a header."
                    )

    def selection(self, names: list[str], where: str) -> tuple[list[str], tuple[str, str]]:
        """Return the columns to read from a table with named columns, and the keys of its rows."""
        if self.given is None:
            named = self.named_by_themselves(names) is not None
        else:
            named = any(isinstance(column, int) or column in names for column in self.given)
        if "translation" in names and not named:
            return ["translation"], self.names[0]
        places = self.places(names, where)
        if places is None or max(places) >= len(names):
            raise RequestError(
                f"got columns {names}; needed are 'translation' or "
                f"{' or '.join(map(str, self.names))}. Check the languages, or name the columns "
                "(--source-column, --target-column)."
            )
        keys = names[places[0]], names[places[1]]
        return list(keys), keys


@dataclass(kw_only=True)
class PairReader:
    """Iterable over the (source, target) pairs of one input, with counts of malformed lines.

    Attributes:
        name: name of the input, for messages.
        num_malformed: lines skipped by the last iteration.
        num_empty: how many of them have an empty side.
        examples: what was wrong with the first of them, each with its file and line.
    """

    read: Callable[[_Skip], Iterator[tuple[str, str]]]
    strict: bool
    name: str
    num_malformed: int = 0
    num_empty: int = 0
    examples: list[str] = field(default_factory=list)
    _undecoded: int = 0  # lines that are not UTF-8

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.num_malformed, self.num_empty, self.examples = 0, 0, []
        self._undecoded = count = 0
        for pair in self.read(self._skip):
            count += 1
            yield pair
        unlike_pairs = self.num_malformed - self.num_empty
        if self._undecoded >= 10 and self._undecoded > count / 10:
            raise RequestError(
                f"{self._undecoded} lines of {self.name} are not UTF-8, the first: "
                f"{self.examples[0]}. It may be Latin-1, as spreadsheets export it; save it as "
                "UTF-8, or convert it: iconv -f ISO-8859-1 -t UTF-8."
            )
        if unlike_pairs >= 10 and unlike_pairs > count > 0:  # none: the caller says more
            raise RequestError(
                f"{unlike_pairs} lines of {self.name} are malformed, and only {count} are pairs; "
                f"the first: {self.examples[0]}. Its format may be another than its name says."
            )

    def _skip(self, place: str, error: Exception) -> None:
        complaint = f"{place}: {error}"
        if self.strict:
            raise RequestError(
                f"{complaint}. Repair or remove it, or leave out --strict (strict=False)."
            )
        self.num_malformed += 1
        self.num_empty += isinstance(error, _EmptyError)
        self._undecoded += isinstance(error, _EncodingError)
        if len(self.examples) < 5:
            self.examples.append(complaint)


def read_pairs(
    source: PairSource,
    *,
    source_language: str,
    target_language: str,
    source_column: str | int | None = None,
    target_column: str | int | None = None,
    split: str = "train",
    config: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    strict: bool = False,
) -> PairReader:
    """Read sentence pairs from files, the Hub, a data set or an iterable.

    Lines that cannot be a pair (invalid JSON, a missing language or column, an empty or non-string
    side, invalid UTF-8, a side of more than 64 KiB, a line or row of more than 1 MiB) are skipped,
    counted and reported with their number, or refused with `strict`. Text is not changed; only the
    end of a line (LF or CRLF) and a byte order mark are removed.

    Without `source_column` and `target_column`, the columns or keys are those named after the two
    languages, or else `source` and `target`. If the first row of a `.tsv` or `.csv` file has none
    of these names, the file has no header and its first two columns are used.

    Args:
        source: one of
            - a JSON Lines file (`.jsonl`, `.json`, either with `.gz`), one
              `{"translation": {"en": ..., "de": ...}}` or `{"en": ..., "de": ...}` per line;
            - a table: `.tsv` (tabs, no quotes) or `.csv` (commas, semicolons or tabs; quoted as by
              spreadsheets), either with `.gz`, or `.parquet`;
            - a tuple of two text files, plain or `.gz`, with one sentence per line;
            - the name of a data set on the Hub, or a folder that `datasets.load_dataset` reads;
            - a `datasets` data set with a column `translation` or one column per side;
            - an iterable of pairs, whose first two entries are source and target.
        source_language: key of the source sentence; unused for text files and for pairs.
        target_language: key of the target sentence.
        source_column: column of the sources, by name or, in a table, by number from 1; unused for
            text files and for pairs. A name means that the first row is a header.
        target_column: column of the targets; give both columns or neither.
        split: split of a Hub data set or a folder; "all" reads every file of a folder.
        config: configuration of a Hub data set.
        revision: branch or commit of a Hub data set.
        streaming: read a Hub data set without downloading it first.
        strict: refuse malformed lines.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, files that do not go together, or one column of the two;
            while iterating: no such column, half a header, files of unequal length, a broken file,
            more malformed lines than pairs, or, with `strict`, a malformed line.
    """
    columns = _Columns((source_language, target_language), _given(source_column, target_column))

    def read(skip: _Skip) -> Iterator[tuple[str, str]]:
        if kind == "json":
            return _read_json_lines(Path(known), columns.names, skip)
        if kind == "table":
            return _read_table(Path(known), columns, skip)
        if kind == "parallel":
            return _read_parallel(Path(known[0]), Path(known[1]), skip)
        if kind == "pairs":
            return _read_rows(known, lambda pair: _checked_pair(*_two_sides(pair)), "pair", skip)
        if kind == "parquet":
            rows = _parquet_rows(Path(known), columns)
            return _read_rows(rows, lambda row: _pair_of_row(*row), f"{known}: row", skip)
        dataset = known
        if kind == "hub":
            from datasets import load_dataset
            from datasets.exceptions import DatasetGenerationError

            name = os.fspath(known)
            options: dict[str, Any] = {"split": split, "revision": revision}
            if split == "all" and Path(name).is_dir():
                # Otherwise names such as `test` or `dev` in the names of files decide.
                options["split"] = "train"
                options["data_files"] = [path.as_posix() for path in files_below(name)]
            try:
                dataset = load_dataset(name, config, streaming=streaming, **options)
            except DatasetGenerationError as error:
                reason = " ".join(str(error.__cause__ or error).split())[:200]
                raise RequestError(
                    f"{name} cannot be read as a data set ({reason}); all its files need the same "
                    "columns, with names, or give a file with pairs."
                ) from error
        rows = _dataset_rows(dataset, columns)
        return _read_rows(rows, lambda row: _pair_of_row(*row), "row", skip)

    kind = kind_of(source)
    known: Any = source  # of that kind
    return PairReader(read=read, strict=strict, name=_name_of(source, kind))


def files_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a folder's files, relative to it, without hidden files and folders."""
    found = (path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _given(source: str | int | None, target: str | int | None) -> tuple | None:
    """Return both columns, numbers as int; None if neither is given."""
    if source is None and target is None:
        return None
    given = []
    for option, column in (("source_column", source), ("target_column", target)):
        if isinstance(column, str) and re.fullmatch("[0-9]{1,9}", column):
            column = int(column)
        fits = column > 0 if type(column) is int else isinstance(column, str) and column
        if not fits:
            got = "nothing" if column is None else repr(column)
            raise RequestError(
                f"{option}: got {got}; give both columns, by name or by number from 1."
            )
        if column in given:
            raise RequestError(f"{option}: got {column!r} again; give two different columns.")
        given.append(column)
    return given[0], given[1]


def kind_of(source: PairSource) -> str:
    """Return the kind of input that `read_pairs` takes `source` to be.

    Returns:
        "json", "table", "parquet", "parallel", "hub", "dataset" or "pairs".

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file of another kind, or files that do not go together.
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
    return "pairs"


def _kind_of_name(name: str, *, is_path: bool) -> str:
    if Path(name).is_dir() and not name.endswith(_JSON_SUFFIXES):
        return "hub"
    if name.endswith(_SUFFIXES):
        _require_file(Path(name))
        if name.endswith(".parquet"):
            return "parquet"
        return "json" if name.endswith(_JSON_SUFFIXES) else "table"
    if is_path or Path(name).exists() or name.endswith(_FILE_SUFFIXES):
        _require_file(Path(name))
        raise RequestError(
            f"got the file {name}; allowed are {', '.join(_SUFFIXES)}, or two text files, "
            "SOURCE,TARGET."
        )
    if not _HUB_NAME.fullmatch(name):
        raise FileNotFoundError(f"got {name!r}; there is no such file and no such Hub name.")
    return "hub"


def _require_parallel(names: list[str]) -> None:
    for name in names:
        _require_file(Path(name))
    if len(names) != 2 or any(name.endswith(_SUFFIXES) for name in names):
        raise RequestError(
            f"got the files {', '.join(names)}; allowed are one file ({', '.join(_SUFFIXES)}), or "
            "SOURCE,TARGET, two text files. Join files of one kind into one."
        )


def _name_of(source: Any, kind: str) -> str:
    if kind == "parallel":
        return " and ".join(map(os.fspath, source))
    return "the pairs given" if kind in ("dataset", "pairs") else os.fspath(source)


def _require_file(path: Path) -> None:
    if path.is_file():
        return
    if path.exists():
        raise RequestError(
            f"{path} is a folder, a pipe or a device; give a file, which can be read twice."
        )
    where = "" if path.is_absolute() else f" in {Path.cwd()}"
    raise FileNotFoundError(f"got {str(path)!r}; there is no such file{where}.")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends, split at line feeds only."""
    number = 0
    is_gzip = path.suffix == ".gz"
    with errors_naming(path), gzip.open(path, "rb") if is_gzip else path.open("rb") as file:
        try:
            for number, line in enumerate(read_lines(file, str(path)), start=1):
                if number == 1 and line.startswith(_GZIP) and not is_gzip:
                    raise RequestError(f"{path} is a gzip file; give it a name that ends in .gz.")
                if number == 1 and (line.startswith(_UTF_16) or b"\0" in line):
                    raise RequestError(f"{path} {IS_NO_TEXT}")
                yield line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RequestError(
                f"{path} is not a whole gzip file: {error} after line {number}. Fetch it again."
            ) from error


def _read_json_lines(
    path: Path, names: Sequence[tuple[str, str]], skip: _Skip
) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_lines(path), start=1):
        if number == 1 and line.lstrip().startswith(b"["):
            raise RequestError(
                f"{path} holds a JSON array; one object per line is needed: "
                f"jq -c '.[]' {path} > pairs.jsonl."
            )
        try:
            yield _pair_of_row(_parsed(line), names)
        except _MalformedError as error:
            skip(f"{path}:{number}", error)


def _read_table(path: Path, columns: _Columns, skip: _Skip) -> Iterator[tuple[str, str]]:
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    places = width = None
    for number, row in (_csv_rows if is_csv else _tsv_rows)(path, skip):
        if not any(cell.strip() for cell in row):
            skip(f"{path}:{number}", _EmptyError("empty line"))
            continue
        if places is None:
            cells = [cell.strip() for cell in row]
            if len(row) == 1:  # such as a title
                skip(f"{path}:{number}", _MalformedError("1 columns; needed are 2"))
                continue
            places = columns.places(cells, str(path))
            if places is None:
                columns.check_first_row(cells, str(path))
                places = (0, 1)
            width = len(row)
            if columns.named_by_themselves(cells) or str in map(type, columns.given or ()):
                continue  # it is a header
        try:
            if len(row) <= max(places):
                raise _MalformedError(f"{len(row)} columns; needed are {max(places) + 1}")
            if any(cell.strip() for cell in row[width:]):
                remedy = "quote a cell that holds a comma" if is_csv else "no cell may hold a tab"
                raise _MalformedError(
                    f"{len(row)} columns, but the first row has {width}; {remedy}"
                )
            yield _checked_pair(*(row[place] for place in places))
        except _MalformedError as error:
            skip(f"{path}:{number}", error)


def _tsv_rows(path: Path, skip: _Skip) -> Iterator[tuple[int, list[str]]]:
    lines = _lines(path)
    head = list(islice(lines, _HEAD))
    ends = {end for line in map(bytes.strip, head) if line for end in (line[:1], line[-1:])}
    if len(head) > 1 and ends == {b'"'}:
        raise RequestError(
            f"{path} has quotes around its cells, and a .tsv is read without quoting; rename it to "
            ".csv, which may have tabs too."
        )
    for number, line in enumerate(chain(head, lines), start=1):
        try:
            yield number, _decoded(line).split("\t")
        except _MalformedError as error:
            skip(f"{path}:{number}", error)


def _csv_rows(path: Path, skip: _Skip) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, each with the number of its first line; quoted cells may span lines.

    A malformed row costs its first line only: a stray quote opens a cell that never ends, and the
    lines after it are rows of their own.
    """
    raw = _lines(path)
    head, first, delimiter = _delimiter(raw)
    lines = _RowLines(chain(head, raw))
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            return
        except (_MalformedError, csv.Error) as error:
            skip(f"{path}:{first}", error)
            lines.give_back()
            first += 1
            continue
        yield first, row
        first += len(lines.row)


class _RowLines:
    """Lines of text for `csv.reader`; those of a row, but its first, can be given back.

    Unlike a generator, it goes on after its end, which may come within a row.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.lines = lines
        self.ahead: deque[bytes] = deque()  # lines that were given back
        self.begin_row()

    def begin_row(self) -> None:
        self.row: list[bytes] = []
        self.size = 0

    def give_back(self) -> None:
        self.ahead.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self.ahead.popleft() if self.ahead else next(self.lines)
        self.row.append(line)
        self.size += len(line)
        if self.size > LINE_BYTES:
            raise _MalformedError(f"the row is longer than {LINE_BYTES // 2**20} MiB")
        return _decoded(line) + "\n"


def _delimiter(lines: Iterator[bytes]) -> tuple[list[bytes], int, str]:
    """Return the lines read to find the delimiter, the number of the first one, and the delimiter.

    It is the one that divides most of the first rows into equally many columns. The line `sep=;`
    that Excel writes, and blank lines before it, are left out.
    """
    head = list(islice(lines, _HEAD))
    first = next((number for number, line in enumerate(head) if line.strip()), 0)
    if head and (named := re.fullmatch(rb"sep=([,;\t])\s*", head[first])):
        return head[first + 1 :], first + 2, named[1].decode()
    texts = [line[:_HEAD_BYTES].decode("utf-8", "replace") for line in head]

    def equal_rows(delimiter: str) -> int:
        widths: Counter[int] = Counter()
        with suppress(csv.Error):  # a stray quote opened a cell that is too long
            widths.update(map(len, csv.reader(texts, delimiter=delimiter)))
        return max((rows for width, rows in widths.items() if width > 1), default=0)

    return head, 1, max(",;\t", key=equal_rows)


def _read_parallel(source: Path, target: Path, skip: _Skip) -> Iterator[tuple[str, str]]:
    # Pairs are yielded before the lengths are known: `load_pairs` keeps nothing after an error.
    counts = [0, 0]
    for number, lines in enumerate(zip_longest(_lines(source), _lines(target)), start=1):
        counts = [n + (line is not None) for n, line in zip(counts, lines, strict=True)]
        if None in lines:
            continue
        try:
            yield _checked_pair(*(_decoded(line) for line in lines))
        except _MalformedError as error:
            skip(f"{source}:{number} and {target}:{number}", error)
    if counts[0] != counts[1]:
        raise RequestError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; line n of one must "
            "translate line n of the other. Align them again."
        )


def _parquet_rows(path: Path, columns: _Columns) -> Iterator[tuple[dict, list[tuple[str, str]]]]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with path.open("rb") as file:
        try:
            table = ParquetFile(file)
            wanted, keys = columns.selection(table.schema_arrow.names, str(path))
            for batch in table.iter_batches(_ROWS, columns=wanted):
                for row in batch.to_pylist():
                    yield row, [keys]
        except (pa.ArrowInvalid, OSError) as error:
            reason = " ".join(str(error).split())
            raise RequestError(
                f"{path} is not a whole parquet file ({reason}); fetch it again."
            ) from error


def _read_rows(
    rows: Iterable[_Row], pair_of: Callable[[_Row], tuple[str, str]], unit: str, skip: _Skip
) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(rows, start=1):
        try:
            yield pair_of(row)
        except _MalformedError as error:
            skip(f"{unit} {number}", error)


def _dataset_rows(
    dataset: Dataset | IterableDataset, columns: _Columns
) -> Iterator[tuple[dict, list[tuple[str, str]]]]:
    names = columns.names
    if dataset.column_names is not None:  # a stream may not know them
        wanted, keys = columns.selection(dataset.column_names, "the data set")
        names = [keys]
        dataset = dataset.select_columns(wanted)
    for batch in dataset.with_format(None).iter(_ROWS):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True)), names


def _decoded(line: bytes) -> str:
    if len(line) > LINE_BYTES:
        raise _MalformedError(f"the line is longer than {LINE_BYTES // 2**20} MiB")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _EncodingError(f"invalid UTF-8 at byte {error.start + 1} of the line") from None


def _parsed(line: bytes) -> object:
    text = _decoded(line)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise _EmptyError("empty line") from None
        raise _MalformedError(f"not JSON ({error})") from None


def _pair_of_row(row: object, names: Sequence[tuple[str, str]]) -> tuple[str, str]:
    sides = row.get("translation", row) if isinstance(row, dict) else None
    if not isinstance(sides, dict) and isinstance(row, dict) and set(names[0]) <= row.keys():
        sides = row  # one of the two columns is named "translation"
    if not isinstance(sides, dict):
        raise _MalformedError('no object of the form {"translation": {...}}')
    source, target = next((pair for pair in names if set(pair) <= sides.keys()), names[0])
    for key in (source, target):
        if key not in sides:
            found = reprlib.repr(sorted(map(str, sides)))
            raise _MalformedError(f"no {key!r} among {found}")
    return _checked_pair(sides[source], sides[target])


def _two_sides(pair: object) -> tuple[object, object]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
        raise _MalformedError("not a pair of (source, target)")
    return pair[0], pair[1]


def _checked_pair(source: object, target: object) -> tuple[str, str]:
    return _checked_side("source", source), _checked_side("target", target)


def _checked_side(name: str, side: object) -> str:
    if not isinstance(side, str):
        raise _MalformedError(f"the {name} is {type(side).__name__}, not a string")
    if not side.strip():
        raise _EmptyError(f"the {name} is empty")
    try:
        size = len(side.encode("utf-8"))
    except UnicodeEncodeError:
        raise _MalformedError(f"the {name} holds a lone surrogate") from None
    if size > TEXT_BYTES:
        raise _MalformedError(f"the {name} is longer than {TEXT_BYTES // 2**10} KiB")
    return side
