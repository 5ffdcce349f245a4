"""Sentence pairs from files, archives, folders, the Hub, data sets or generators.

The content says what a file holds; its name only breaks ties. Lines that cannot be a pair are
skipped, counted and reported with their place, or refused.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

from ..errors import RequestError
from ..storage import reading as bounded
from .checked_pairs import (
    TEXT_BYTES,
    EmptyError,
    EncodingError,
    MalformedError,
    Note,
    OtherLanguagesError,
    Reading,
    Skip,
    checked_pair,
    decoded,
)
from .columns import SAMPLE, drawn, find_columns, sampled
from .languages import language_of, places_of
from .markup import markup_of, refuse, sgm_segments, tmx_pairs, wmt_pairs
from .tables import is_csv, sniff, split_rows

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

# A path, two paths, a Hub name, a data set, or pairs.
PairSource: TypeAlias = "str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable"
_Pairs: TypeAlias = "Iterator[tuple[str, str]]"
# What reads the rows of a table from the beginning, with all columns or some: places, and rows with
# names or without, or what is wrong with them. And rows from all parts of it.
_Table: TypeAlias = "tuple[Callable[[Sequence[str] | None], Iterator[tuple[str, Any]]], list[Any]]"

logger = getLogger(__name__)

_BATCH = 1_000  # rows
_SMALL_BATCH = 500  # rows of parquet, whose texts may be large
_CELLS = 60_000  # of a sample; wide tables are judged by fewer rows
_CELL = 200  # characters of a cell in a sample
_HEAD = 4_096  # bytes that tell what a file holds
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Names that mean a file.
_DATA = re.compile(
    r"\.(jsonl?|ndjson|tsv|tab|csv|txt|parquet|tmx|xml|sgml?|zip|xlsx|ods|arrow|gz|bz2|xz)$", re.I
)
_JSON = re.compile(r"\.(jsonl?|ndjson)(\.|$)", re.IGNORECASE)
_ABOUT = re.compile(r"\.|__MACOSX|(readme|licen[cs]e|copying)\b", re.I)  # names of no data
_READ = (
    "JSON Lines or a JSON array, a table with tabs, commas, semicolons or bars, WMT's .xml, .tmx "
    "(each may be packed by gzip, bzip2 or xz), parquet, a .zip or folder of such files, or two "
    "text files, SOURCE,TARGET"
)
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = bytes(byte for byte in range(32) if not bytes([byte]).isspace())
_NO_PROSE = frozenset("={}<>|\\\t")  # signs that hardly any sentence has
_FEWEST = 10  # lines that tell whether a text holds sentences


@dataclass(kw_only=True)
class PairReader:
    """Iterable over the (source, target) pairs of one input, with counts of malformed lines.

    Attributes:
        name: Name of the input, for messages.
        faults: How many lines the last iteration skipped, by the type of their error.
        examples: What was wrong with the first of them, each with its file and line.
        notes: Warnings of how the others were read.
    """

    read: Callable[[Skip, Note], _Pairs]
    strict: bool
    name: str
    faults: Counter[type[Exception]] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def num_malformed(self) -> int:
        """Lines skipped by the last iteration."""
        return self.faults.total()

    @property
    def num_empty(self) -> int:
        """How many of them have an empty side."""
        return self.faults[EmptyError]

    def __iter__(self) -> _Pairs:
        self.faults, self.examples, self.notes = Counter(), [], []
        count = 0
        for pair in self.read(self._skip, self.note):
            count += 1
            yield pair
        if (undecoded := self.faults[EncodingError]) > max(2, count / 10):
            raise RequestError(
                f"{undecoded} lines of {self.name} are not UTF-8, the first: {self.examples[0]}. "
                "Save it as UTF-8, or convert it from the encoding that it is in, such as "
                "ISO-8859-1, windows-1251 or GB18030: iconv -f ENCODING -t UTF-8."
            )
        malformed = self.num_malformed - self.num_empty - self.faults[OtherLanguagesError]
        if malformed >= 10 and malformed > count > 0:  # without any pair the caller says more
            raise RequestError(
                f"{malformed} lines of {self.name} are malformed, and only {count} are pairs; the "
                f"first: {self.examples[0]}. Its format may be another than its name says."
            )

    def note(self, warning: str) -> None:
        """Keep and log a warning of how pairs were read."""
        logger.warning(warning)
        self.notes.append(warning)

    def _skip(self, place: str, error: Exception) -> None:
        complaint = bounded.printable(f"{place}: {error}")
        if self.strict:
            raise RequestError(
                f"{complaint}. Repair or remove it, or leave out --strict (strict=False)."
            )
        self.faults[type(error)] += 1
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
    end of a line (LF or CRLF) and a byte order mark are removed. No file takes more than 1 GB of
    memory, parquet on Linux only; what `datasets` loads from the Hub may.

    Which columns hold the sides is decided by `find_columns`, from rows of all parts of the input:
    by the languages of their texts, then by their names, then by their order.

    Args:
        source: One of
            - a file, plain or packed by gzip, bzip2 or xz: JSON Lines or a JSON array, with objects
              such as `{"translation": {"en": ..., "de": ...}}` or `{"en": ..., "de": ...}`; a
              table, whose separator and quoting are detected; parquet; WMT's .xml of 2021 or later;
              a translation memory (.tmx); a zip of such files or of two texts;
            - a tuple of two text files with one sentence per line, or two of WMT's .sgm files;
            - the name of a data set on the Hub, a folder that `datasets` saved, or a folder of
              files, whose splits `datasets` finds;
            - a `datasets` data set with a column `translation` or columns of text;
            - an iterable of pairs, whose first two entries are source and target.
        source_language: Language of the sources, or the name of their column; unused for pairs.
        target_language: Language of the targets, or the name of their column.
        source_column: Column of the sources, by name or number from 1; unused for text files and
            for pairs.
        target_column: Column of the targets; give both columns or neither.
        split: Split of a Hub data set or a folder; "all" reads every file of a folder.
        config: Configuration of a Hub data set.
        revision: Branch or commit of a Hub data set.
        streaming: Read a Hub data set without downloading it first.
        strict: Refuse malformed lines.

    Raises:
        FileNotFoundError: No such file.
        ValueError: A file of another kind, files that do not go together, or one column of the two;
            while iterating: no such column, unclear columns, files of unequal length, a broken
            file, more malformed lines than pairs, or, with `strict`, a malformed line.
    """
    languages = (source_language, target_language)
    given = _given(source_column, target_column)
    kind = kind_of(source)
    known: Any = source  # of that kind

    def read(skip: Skip, note: Note) -> _Pairs:
        reading = Reading(languages, given, skip, note)
        if kind == "file":
            return _read_file(_File.of(known), reading)
        if kind == "parallel":
            return _read_parallel(_File.of(known[0]), _File.of(known[1]), reading)
        if kind == "pairs":
            return reading.pairs(known, _first_two, "pair ")
        if kind == "dataset":
            return _pairs_of(_dataset_rows(known), "the data set", reading)
        if Path(known).is_dir():
            return _read_folder(Path(known), split, config, reading)
        from datasets import load_dataset

        options: dict[str, Any] = {"split": split, "revision": revision}
        dataset = load_dataset(os.fspath(known), config, streaming=streaming, **options)
        return _pairs_of(_dataset_rows(dataset), known, reading)

    name = " and ".join(map(os.fspath, known)) if kind == "parallel" else source
    is_in_memory = kind in ("dataset", "pairs")
    return PairReader(
        read=read, strict=strict, name="the pairs given" if is_in_memory else str(name)
    )


def _given(*columns: str | int | None) -> tuple[Any, Any] | None:
    """Return the columns of source and target, numbers as int; None if neither is given."""
    if columns == (None, None):
        return None
    source, target = (int(c) if str(c).isdecimal() else c for c in map(str, columns))
    if source == target or {source, target} & {"None", "", 0} or "-" in f"{source}{target}"[:1]:
        raise RequestError(
            f"source_column, target_column: got {columns[0]!r} and {columns[1]!r}; give both "
            "columns, two different ones, by name or by number from 1."
        )
    return source, target


def kind_of(source: PairSource) -> str:
    """Return the kind of input that `read_pairs` takes `source` to be.

    Returns:
        "file", "parallel", "hub" (a folder too), "dataset" or "pairs".

    Raises:
        FileNotFoundError: No such file.
        ValueError: Files that do not go together.
    """
    if hasattr(source, "column_names"):
        return "dataset"
    paths = source if isinstance(source, (tuple, list)) else [source]
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return "pairs"
    if paths is not source:
        path = Path(source)  # type: ignore[arg-type]  # as has just been checked
        is_name = isinstance(source, str) and _HUB_NAME.fullmatch(source) is not None
        if path.is_dir() or (is_name and not path.exists() and not _DATA.search(path.name)):
            return "hub"
    elif len(paths) != 2:
        raise RequestError(
            f"got the files {', '.join(map(os.fspath, paths))}; allowed are {_READ}. Join files of "
            "one kind into one."
        )
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"got {str(path.absolute())!r}; there is no such file.")
        if not path.is_file():
            raise RequestError(f"{path} is a folder, a pipe or a device; give a file.")
    return "file" if paths is not source else "parallel"


# ------------------------------------------------------------------------ files and archives


@dataclass(frozen=True)
class _File:
    """A file, or a member of an archive, that can be read several times."""

    path: Path  # or what stands for it in messages
    open: Callable[[], BinaryIO]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> _File:
        return cls(Path(path), lambda: bounded.open_content(Path(path)))

    def head(self) -> bytes:
        """Return the first bytes, in UTF-8 if a byte order mark says that they are in UTF-16."""
        path = self.path
        with bounded.errors_naming(path), bounded.damage_naming(path), self.open() as file:
            head = file.read(_HEAD)
        return head.decode("utf-16", "ignore").encode() if head.startswith(_UTF16) else head

    def lines(self) -> Iterator[bytes]:
        """Yield the lines without their ends, split at line feeds only."""
        with bounded.errors_naming(self.path), bounded.damage_naming(self.path):
            with self.open() as file:
                is_utf16 = file.read(2) in _UTF16
            with self.open() as file:
                if is_utf16:
                    text = io.TextIOWrapper(file, "utf-16", "surrogateescape", newline="\n")
                    for line in iter(lambda: text.readline(bounded.LINE_BYTES), ""):
                        yield line.rstrip("\r\n").encode("utf-8", "surrogateescape")
                else:
                    yield from bounded.read_lines(file, str(self.path))


def _format_of(path: Path, head: bytes) -> str:
    """Return what a file holds, by its first bytes and its name.

    Returns:
        "parquet", "zip", a kind of markup, "array" or "records" in JSON, or "table", which may be
        a text too.
    """
    if head.startswith((b"PAR1", b"PK\x03\x04")):
        return "parquet" if head.startswith(b"PAR1") else "zip"
    if not _may_be_text(head):
        raise RequestError(f"{path} {bounded.IS_NO_TEXT} Allowed are {_READ}.")
    start = b"".join(head.lstrip(_BLANKS).split())
    if start.startswith((b'[{"', b"[[")):
        return "array"
    is_record = _JSON.search(path.name) or start.startswith((b'{"', b"{}"))
    return markup_of(head) or ("records" if is_record else "table")


def _may_be_text(head: bytes) -> bool:
    """Return whether the first bytes of a file may be a text, of which not all lines are damaged.

    A text in an older encoding has no control characters; packed files are full of them.
    """
    if head[257:262] == b"ustar" or head.count(0) > len(head) / 8:
        return False
    is_utf8 = any(line.decode("utf-8", "ignore").encode() == line for line in head.split(b"\n"))
    return is_utf8 or len(head) - len(head.translate(None, _CONTROLS)) <= len(head) / 100


def _read_file(file: _File, reading: Reading) -> _Pairs:
    path, kind = file.path, _format_of(file.path, file.head())
    readers: dict[str, Callable[[_File], _Table]] = {
        "table": _table_rows,
        "records": _json_rows,
        "array": _array_rows,
        "parquet": _parquet_rows,
    }
    if kind in readers:
        yield from _pairs_of(readers[kind](file), str(path), reading)
    elif kind in ("tmx", "wmt"):
        with file.open() as content, bounded.errors_naming(path), bounded.damage_naming(path):
            yield from (tmx_pairs if kind == "tmx" else wmt_pairs)(path, content, reading)
    elif kind == "zip":
        yield from _read_zip(path, reading)
    else:
        raise refuse(path, kind)


def _read_folder(folder: Path, split: str, config: str | None, reading: Reading) -> _Pairs:
    """Yield the pairs of a folder: saved by `datasets`, or of files that it finds for a split."""
    import datasets

    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        parts = saved if isinstance(saved, dict) else {split: saved}
        for part in parts.values() if split == "all" else [parts[split]]:
            yield from _pairs_of(_dataset_rows(part), str(folder), reading)
        return
    found = files_below(folder)
    if split != "all":  # names such as `test` or `dev` in the names of files decide
        files = datasets.load_dataset_builder(str(folder), config).config.data_files or {}
        if split not in files:
            raise RequestError(
                f"Unknown split {split!r}; {folder} has {', '.join(map(str, files))}."
            )
        found = [Path(path).relative_to(folder.absolute()) for path in files[split]]
    yield from _read_members(folder, [_File.of(folder / path) for path in found], reading)


def files_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a folder's files, relative to it, without hidden files and folders."""
    found = (path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _read_zip(path: Path, reading: Reading) -> _Pairs:
    try:
        with bounded.errors_naming(path), ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if {info.compress_type for info in members} - {ZIP_STORED, ZIP_DEFLATED}:
                raise RequestError(  # LZMA may ask for 4 GB
                    f"{path} is packed by another method than deflate; unpack it, and give the "
                    "files in it."
                )

            def file(name: str) -> _File:
                return _File(path / name, lambda: archive.open(name))  # type: ignore[arg-type,return-value]

            yield from _read_members(path, [file(info.filename) for info in members], reading)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ZlibError) as error:
        raise RequestError(f"{path} is not a whole zip file: {error}. Fetch it again.") from error


def _read_members(where: Path, files: Sequence[_File], reading: Reading) -> _Pairs:
    """Yield the pairs of two texts that are named after the languages, or of all files of pairs."""
    paths = [file.path.relative_to(where) for file in files]
    files = [
        file
        for file, path in zip(files, paths, strict=True)
        if not any(map(_ABOUT.match, path.parts))
    ]
    ends = [file.path.name.removesuffix(".txt").rpartition(".")[2] for file in files]
    places = [places_of(language, ends) for language in reading.languages]
    tables = [file for file in files if _DATA.search(file.path.name)]
    if [*map(len, places)] == [1, 1] and places[0] != places[1]:
        tables = []
        yield from _read_parallel(files[places[0][0]], files[places[1][0]], reading)
    elif not tables and len(files) != 1:
        source, target = reading.languages
        raise RequestError(
            f"{where} has the files {reprlib.repr([*map(str, paths)])}; needed are files of pairs, "
            f"or two texts whose names end in .{source} and .{target}. Give the files themselves; "
            "save a spreadsheet as CSV."
        )
    elif left_out := [file.path.name for file in files if tables and file not in tables]:
        reading.note(f"{where}: not read: {reprlib.repr(left_out)}.")
    for file in tables or (files if len(files) == 1 else ()):
        yield from _read_file(file, reading)


# ------------------------------------------------------------------------------- two texts


def _read_parallel(source: _File, target: _File, reading: Reading) -> _Pairs:
    names = [str(source.path), str(target.path)]
    # Pairs are yielded before the lengths are known: `load_pairs` keeps nothing after an error.
    counts = [0, 0]
    both = zip_longest(_sentences(source, reading.languages), _sentences(target, reading.languages))
    for number, lines in enumerate(both, start=1):
        if None in lines:  # blank lines at the end are none
            filled = [bool(line and line.strip()) for line in lines]
            counts = [number if more else n for n, more in zip(counts, filled, strict=True)]
            continue
        counts = [number, number]
        try:
            yield checked_pair(*(decoded(line) for line in lines))
        except MalformedError as error:
            reading.skip(f"{names[0]}:{number} and {names[1]}:{number}", error)
    if counts[0] != counts[1]:
        raise RequestError(
            f"{names[0]} has {counts[0]} lines and {names[1]} has {counts[1]}; line n of one must "
            "translate line n of the other. Align them again."
        )


def sentence_lines(path: Path) -> Iterator[bytes]:
    """Return the lines of a text, or of one of WMT's .sgm files, with one sentence each.

    Raises:
        ValueError: The file holds something else, or, while iterating, is damaged.
    """
    return _sentences(_File.of(path), ("en", "en"))


def _sentences(file: _File, languages: tuple[str, str]) -> Iterator[bytes]:
    """Return the sentences of a file; refuse tables, records and formats with keys or codes."""
    kind = _format_of(file.path, file.head())
    if kind == "sgm":
        return sgm_segments(file.path, file.lines())
    if kind not in ("table", "records", "array"):
        raise refuse(file.path, kind)
    head = [line.decode("utf-8", "replace").strip() for line in islice(file.lines(), SAMPLE)]
    if _JSON.search(file.path.name) or is_csv(file.path) or _are_cells([*filter(None, head)]):
        raise RequestError(
            f"{file.path} holds cells or records, not one sentence a line; a table of pairs is "
            "given alone."
        )
    if all(map(language_of, languages)) and not _are_sentences([*filter(None, head)]):
        raise RequestError(
            f"{file.path} holds keys, labels or codes beside its texts, or none, and not one "
            "sentence a line; convert it to a text, such as by the Translate Toolkit."
        )
    return file.lines()


def _are_cells(lines: Sequence[str]) -> bool:
    """Return whether most lines are rows with tabs, JSON, or cells in quotes."""
    rows = sum("\t" in line or line.startswith(('{"', '["')) for line in lines)
    quoted = [line for line in lines if len(line) > 1 and line[0] == line[-1] == '"']
    needed = any('""' in line[1:-1] for line in quoted)
    others = sum('"' in line or "," in line for line in lines) - len(quoted)
    are_quoted = len(quoted) == len(lines) or (needed and not others)
    return len(lines) > 2 and (2 * rows > len(lines) or are_quoted)


def _are_sentences(lines: Sequence[str]) -> bool:
    """Return whether most lines are sentences, without a format's signs and without labels."""
    if len(lines) < _FEWEST:
        return True
    signs = sum(not _NO_PROSE.isdisjoint(line) for line in lines)
    begins = Counter(line.split(maxsplit=1)[0] for line in lines)
    labels = sum(count for word, count in begins.items() if word[-1] == ":" or word[0] == "#")
    labels = max(labels, sum(begins[word] for word in ("msgid", "msgstr", "#:", "#,")))
    words = sum(" " in line or len(line) <= 20 or not line.isascii() for line in lines)
    return 2 * max(signs, labels, len(lines) - words) <= len(lines)


def check_is_text(path: Path) -> None:
    """Refuse markup, JSON and archives in place of sentences, one a line.

    What is no text at all may be anything: whoever reads it names the line.
    """
    try:
        kind = _format_of(path, head := _File.of(path).head())
    except RequestError:
        return
    is_json = _JSON.search(path.name) or b"".join(head.lstrip(_BLANKS).split()).startswith(
        (b'{"', b'[{"')
    )
    if kind in ("table", "records", "array") and not is_json:  # a text may begin with {} or [
        return
    kind = "JSON" if is_json else "markup" if kind == "other" else kind
    raise RequestError(
        f"{path} holds {kind}, not one sentence a line; save its texts one a line, or as a table "
        "for --csv or --tsv."
    )


# ---------------------------------------------------------------------------------- tables


def _pairs_of(table: _Table, where: str, reading: Reading) -> _Pairs:
    """Yield the pairs of a table in any format; rows without a pair are skipped."""
    rows, sample = table
    head, names = [row for row in sample if not isinstance(row, Exception)], None
    if head and isinstance(head[0], dict):
        names = [*dict.fromkeys(name for row in head if isinstance(row, dict) for name in row)]
        head = [[row.get(name) for name in names] for row in head if isinstance(row, dict)]
    most = max(20, min(SAMPLE, _CELLS // max(1, len(head[0]) if head else 1)))
    cells = [row for row in sampled(map(_beginnings, head), most) if any(row)]
    keys: Any = (0, 1)
    width, header, is_first = 2, None, True
    if cells:
        found = find_columns(cells, reading.languages, reading.given, names=names, where=where)
        if found.warning:
            reading.note(f"{where}: {found.warning}.")
        keys, width = found.places, found.width
        if names:
            keys = names[keys[0]], names[keys[1]]
        columns = (where, *(place + 1 for place in found.places), found.decided_by)
        logger.info("%s: source and target are columns %d and %d, by %s.", *columns)
        if found.has_header:
            logger.info("%s: the first row is read as a header: %s.", where, cells[0])
            header = cells[0][keys[0]], cells[0][keys[1]]
    for place, row in rows(keys if names else None):
        try:
            pair = _pair(row, keys, width)
            if header and (pair[0].strip(), pair[1].strip()) == header:
                if not is_first:  # of files that were joined
                    raise EmptyError("the header again")
            else:
                yield pair
            is_first = False
        except MalformedError as error:
            reading.skip(place, error)


def _beginnings(row: Any) -> Any:
    """Return a row with the beginnings of its texts: a sample of long ones would be large."""
    if isinstance(row, dict):
        return dict(zip(row, _beginnings([*row.values()]), strict=True))
    if isinstance(row, list):
        return [cell[:_CELL].strip() if isinstance(cell, str) else "" for cell in row]
    return row


def _pair(row: Any, keys: Any, width: int) -> tuple[str, str]:
    """Return the pair of a row; raise what is wrong with it."""
    try:
        source, target = row[keys[0]], row[keys[1]]
    except (LookupError, TypeError):
        if isinstance(row, MalformedError):
            raise row from None
        if isinstance(keys[0], str):
            wanted = f"no {keys[0]!r} and {keys[1]!r} in {reprlib.repr(row)}"
            raise MalformedError(wanted) from None
        if not any(map(str.strip, row)):
            raise EmptyError("empty line") from None
        raise MalformedError(f"{len(row)} columns; needed are {max(keys) + 1}") from None
    if len(row) > width and any(cell.strip() for cell in row[width:]):
        raise MalformedError(
            f"{len(row)} columns, but other rows have {width}; quote a cell that holds a separator"
        )
    return checked_pair(source, target)


def _table_rows(file: _File) -> _Table:
    dialect, above, sample = sniff(file.lines(), file.path.name)

    def rows(_: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
        lines = islice(file.lines(), above, None)
        for number, cells in split_rows(lines, dialect, above + 1):
            yield f"{file.path}:{number}", cells

    return rows, sample


def draw_rows(source: PairSource) -> str | None:
    """Draw the first rows of a table, with the columns numbered from 1; None for other inputs."""
    if kind_of(source) != "file":
        return None
    file = _File.of(source)  # type: ignore[arg-type]  # of this kind
    if _format_of(file.path, file.head()) != "table":
        return None
    return drawn(_table_rows(file)[1])


def _json_rows(file: _File) -> _Table:
    def parsed(line: bytes) -> Any:
        try:
            text = decoded(line)
            return _record(json.loads(text)) if text.strip() else EmptyError("empty line")
        except MalformedError as error:
            return error
        except (ValueError, RecursionError) as error:
            return MalformedError(f"not JSON ({error})")

    def rows(_: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(file.lines(), start=1):
            yield f"{file.path}:{number}", parsed(line)

    return rows, sampled(file.lines(), kept_as=lambda line: _beginnings(parsed(line)))


def _array_rows(file: _File) -> _Table:
    def rows(_: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
        import ijson

        with file.open() as content:
            try:
                for number, item in enumerate(ijson.items(content, "item"), start=1):
                    yield f"{file.path}: item {number}", _record(item)
            except ijson.JSONError as error:
                raise RequestError(
                    f"{file.path} is not a whole JSON array ({bounded.reason_of(error)}); repair "
                    "it, or write one object per line."
                ) from error

    return rows, sampled((row for _, row in rows(None)), kept_as=_beginnings)


def _record(row: object) -> Any:
    """Return a row of JSON or of a data set, in which the texts of a translation are cells."""
    if isinstance(row, dict):
        if isinstance(nested := row.pop("translation", None), dict):
            return {**nested, **row}
        return row if nested is None else {**row, "translation": nested}
    is_row = isinstance(row, list)
    return row if is_row else MalformedError('no object of the form {"translation": {...}}')


def _parquet_rows(file: _File) -> _Table:
    """Read the texts of a parquet file in bounded memory."""
    import pyarrow as pa
    import pyarrow.compute  # before the memory is bounded
    from pyarrow.parquet import ParquetFile

    path = file.path

    def batches(names: Sequence[str] | None) -> Iterator[list[dict]]:
        try:
            with path.open("rb") as content:
                table = ParquetFile(content, buffer_size=2**20)  # otherwise a column is read whole
                texts = [
                    leaf.path
                    for leaf in table.schema
                    if (leaf.logical_type.type, leaf.max_repetition_level) == ("STRING", 0)
                    and (names is None or {leaf.path, leaf.path.split(".")[-1]} & {*names})
                ]
                every = dict.fromkeys(table.schema_arrow.names if names is None else ())
                if not texts:
                    columns = reprlib.repr(table.schema_arrow.names)
                    raise RequestError(
                        f"{path} has the columns {columns}; none of them holds text."
                    )
                for batch in table.iter_batches(_SMALL_BATCH, columns=texts, use_threads=False):
                    cut = [_cut(column) for column in batch.columns]
                    rows = pa.RecordBatch.from_arrays(cut, batch.schema.names).to_pylist()
                    yield [_record(every | row) for row in rows]
        except (pa.ArrowException, MemoryError, OSError) as error:
            # Arrow says "unknown error" where it cannot start a thread for lack of memory.
            if isinstance(error, MemoryError) or type(error) is pa.ArrowException:
                reason = "needs more than 1 GB of memory"
            else:
                reason = f"cannot be read as parquet ({bounded.reason_of(error)})"
            raise RequestError(
                f"{path} {reason}; fetch it again, or write its pairs as JSON Lines."
            ) from error

    def rows(names: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
        found = chain.from_iterable(bounded.in_bounded_memory(batches(names)))
        return ((f"{path}: row {n}", row) for n, row in enumerate(found, start=1))

    return rows, sampled((row for _, row in rows(None)), kept_as=_beginnings)


def _cut(column: Any) -> Any:
    """Cut texts just beyond the limit of a side, so that `checked_pair` still refuses them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        return pa.StructArray.from_arrays([*map(_cut, column.flatten())], names)
    if pa.types.is_dictionary(column.type):
        return _cut(column.dictionary).take(column.indices)
    if str(column.type) == "string_view":  # whose bytes Arrow does not count
        column = column.cast(pa.large_string())
    if (pc.max(pc.binary_length(column)).as_py() or 0) > TEXT_BYTES:
        return pc.utf8_slice_codeunits(column, 0, TEXT_BYTES + 1)
    return column


def _dataset_rows(dataset: Dataset | IterableDataset) -> _Table:
    """Read the rows of a data set; of a stream, the first ones are the sample."""
    data: Any = dataset.with_format(None)

    def records(chosen: Any) -> Iterator[Any]:
        for batch in chosen.iter(_BATCH):
            for values in zip(*batch.values(), strict=True):
                yield _record(dict(zip(batch, values, strict=True)))

    def rows(names: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
        wanted = [
            name for name in data.column_names or () if name in (*(names or ()), "translation")
        ]
        chosen = data.select_columns(wanted) if wanted else data  # a stream may not know them
        return ((f"row {n}", row) for n, row in enumerate(records(chosen), start=1))

    if hasattr(data, "__len__"):
        sample = data.select(range(0, len(data), len(data) // SAMPLE or 1))
        return rows, [*map(_beginnings, records(sample))]
    return rows, [*map(_beginnings, records(data.take(SAMPLE)))]


def _first_two(pair: object) -> tuple[str, str]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
        raise MalformedError("not a pair of (source, target)")
    return checked_pair(pair[0], pair[1])
