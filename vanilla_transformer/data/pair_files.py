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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

from ..errors import RequestError
from ..storage import reading as bounded
from .checked_pairs import EmptyError, MalformedError, PairReader, Pairs, checked_pair, decoded
from .columns import SAMPLE, Columns, Table, drawn, sampled
from .languages import language_of, places_of
from .markup import markup_of, refuse, sgm_segments, tmx_pairs, wmt_pairs
from .tables import is_csv, sniff, split_rows

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

# A path, two paths, a Hub name, a data set, or pairs.
PairSource: TypeAlias = "str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable"
# Yields the number and the content of each row: a line of JSON, a list or dict of cells, an error.
_Rows: TypeAlias = "Callable[[], Iterator[tuple[int, Any]]]"

logger = getLogger(__name__)

_BATCH = 500  # rows, whose texts may be large
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
_CELLS = re.compile(r"\t|^[{[]\"")
# Signs that hardly any sentence has, labels, and codes; a task without languages may have them.
_NO_SENTENCE = (r"[={}<>|\\\t]", r"^(#|\S+:(\s|$)|msg(id|str)\b)", r"^[!-~]{21,}$")
_FEWEST = 10  # lines that tell whether a text holds sentences


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

    Which columns hold the sides is decided by `columns.Table`, from rows of all parts of the input:
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
    kind = kind_of(source)
    known: Any = source  # of that kind

    def read(reader: PairReader) -> Pairs:
        if kind == "file":
            return _read_file(_File.of(known), reader)
        if kind == "parallel":
            return _read_parallel(_File.of(known[0]), _File.of(known[1]), reader)
        if kind == "pairs":
            return reader.pairs(enumerate(known, start=1), _first_two, "pair ")
        if kind == "dataset":
            return _read_dataset("the data set", known, reader)
        if Path(known).is_dir():
            return _read_folder(Path(known), split, config, reader)
        from datasets import load_dataset

        options: dict[str, Any] = {"split": split, "revision": revision}
        dataset = load_dataset(os.fspath(known), config, streaming=streaming, **options)
        return _read_dataset(known, dataset, reader)

    name = " and ".join(map(os.fspath, known)) if kind == "parallel" else str(source)
    return PairReader(
        name="the pairs given" if kind in ("dataset", "pairs") else name,
        languages=(source_language, target_language),
        given=_given(source_column, target_column),
        strict=strict,
        read=read,
    )


def _given(*columns: str | int | None) -> tuple[Any, Any] | None:
    """Return the columns of source and target, numbers as int; None if neither is given."""
    if columns == (None, None):
        return None
    source, target = (int(c) if str(c).isdecimal() else c for c in map(str, columns))
    if source == target or {source, target} & {"None", "", 0} or "-" in f"{source}{target}"[:1]:
        raise RequestError(f"source_column, target_column: got {columns}; give two different ones.")
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
        names = ", ".join(map(os.fspath, paths))
        raise RequestError(f"got the files {names}; join files of one kind; allowed are {_READ}.")
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

    @contextmanager
    def content(self) -> Iterator[BinaryIO]:
        """Open the file; errors in the block name it."""
        path = self.path
        with bounded.errors_naming(path), self.open() as file:
            yield file

    def head(self) -> bytes:
        """Return the first bytes, in UTF-8 if a byte order mark says that they are in UTF-16."""
        with self.content() as file:
            head = file.read(_HEAD)
        return head.decode("utf-16", "ignore").encode() if head.startswith(_UTF16) else head

    def lines(self) -> Iterator[bytes]:
        """Yield the lines without their ends, split at line feeds only."""
        with self.content() as file:
            if not file.peek(2).startswith(_UTF16):  # type: ignore[attr-defined]  # all have it
                yield from bounded.read_lines(file, str(self.path))
                return
            text = io.TextIOWrapper(file, "utf-16", "surrogateescape", newline="\n")
            for line in iter(lambda: text.readline(bounded.LINE_BYTES), ""):
                yield line.rstrip("\r\n").encode("utf-8", "surrogateescape")


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
    if start.startswith((b'[{"', b'[["')):
        return "array"
    is_record = _JSON.search(path.name) or start.startswith(b'{"')
    return markup_of(head) or ("records" if is_record else "table")


def _may_be_text(head: bytes) -> bool:
    """Return whether the first bytes of a file may be text, even if some lines are damaged.

    A text in an older encoding has no control characters; packed files are full of them.
    """
    if head[257:262] == b"ustar" or head.count(0) > len(head) / 8:
        return False
    is_utf8 = any(line.decode("utf-8", "ignore").encode() == line for line in head.split(b"\n"))
    return is_utf8 or len(head) - len(head.translate(None, _CONTROLS)) <= len(head) / 100


def _read_file(file: _File, reader: PairReader) -> Pairs:
    path, kind = file.path, _format_of(file.path, file.head())
    if kind == "table":
        dialect, above, sample = sniff(file.lines(), path.name)

        def rows() -> Iterator[tuple[int, Any]]:
            return split_rows(islice(file.lines(), above, None), dialect, above + 1)

        yield from _read_rows(f"{path}", rows, reader, sample=sample)
    elif kind == "records":
        yield from _read_rows(f"{path}", lambda: enumerate(file.lines(), start=1), reader)
    elif kind == "array":
        yield from _read_rows(f"{path}", partial(_array_rows, file), reader, unit=" item ")
    elif kind == "parquet":
        yield from _read_rows(f"{path}", partial(_parquet_rows, path), reader, unit=" row ")
    elif kind in ("tmx", "wmt"):
        with file.content() as content:
            yield from (tmx_pairs if kind == "tmx" else wmt_pairs)(path, content, reader)
    elif kind == "zip":
        yield from _read_zip(path, reader)
    else:
        raise refuse(path, kind)


def _read_folder(folder: Path, split: str, config: str | None, reader: PairReader) -> Pairs:
    """Yield the pairs of a folder that `datasets` saved, or of the files of a split in it."""
    import datasets

    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        parts = saved if isinstance(saved, dict) else {split: saved}
        for part in parts.values() if split == "all" else [parts[split]]:
            yield from _read_dataset(str(folder), part, reader)
        return
    found = files_below(folder)
    if split != "all":  # names such as `test` or `dev` in the names of files decide
        files = datasets.load_dataset_builder(str(folder), config).config.data_files or {}
        if split not in files:
            known = ", ".join(map(str, files))
            raise RequestError(f"Unknown split {split!r}; {folder} has {known}.")
        found = [Path(path).relative_to(folder.absolute()) for path in files[split]]
    yield from _read_members(folder, [_File.of(folder / path) for path in found], reader)


def files_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a folder's files, relative to it, without hidden files and folders."""
    found = (path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _read_zip(path: Path, reader: PairReader) -> Pairs:
    try:
        with bounded.errors_naming(path), ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if {info.compress_type for info in members} - {ZIP_STORED, ZIP_DEFLATED}:
                # LZMA may ask for 4 GB.
                raise RequestError(f"{path} is packed by another method than deflate; unpack it.")
            names = [info.filename for info in members]
            files = [_File(path / name, partial(archive.open, name)) for name in names]  # type: ignore[arg-type]
            yield from _read_members(path, files, reader)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ZlibError) as error:
        raise RequestError(f"{path} is not a whole zip file: {error}. Fetch it again.") from error


def _read_members(where: Path, found: Sequence[_File], reader: PairReader) -> Pairs:
    """Yield the pairs of an archive or folder: of its two texts, or of all its files of pairs."""
    files = [it for it in found if not any(map(_ABOUT.match, it.path.relative_to(where).parts))]
    ends = [file.path.name.removesuffix(".txt").rpartition(".")[2] for file in files]
    places = [places_of(language, ends) for language in reader.languages]
    if [*map(len, places)] == [1, 1] and places[0] != places[1]:
        yield from _read_parallel(files[places[0][0]], files[places[1][0]], reader)
        return
    tables = [file for file in files if _DATA.search(file.path.name) or len(files) == 1]
    if not tables:
        names = reprlib.repr([str(file.path.relative_to(where)) for file in found])
        needed = f"files of pairs, or two texts named *.{' and *.'.join(reader.languages)}"
        raise RequestError(f"{where} has {names}; needed are {needed}; save a spreadsheet as CSV.")
    if left_out := [file.path.name for file in files if file not in tables]:
        reader.note(f"{where}: not read: {reprlib.repr(left_out)}.")
    for file in tables:
        yield from _read_file(file, reader)


# ------------------------------------------------------------------------------- two texts


def _read_parallel(source: _File, target: _File, reader: PairReader) -> Pairs:
    files = source, target
    are_languages = all(map(language_of, reader.languages))
    # Pairs are yielded before the lengths are known: `load_pairs` keeps nothing after an error.
    counts = [0, 0]
    both = zip_longest(*(_sentences(file, are_languages=are_languages) for file in files))
    for number, lines in enumerate(both, start=1):
        if None in lines:  # blank lines at the end are none
            filled = [bool(line and line.strip()) for line in lines]
            counts = [number if more else n for n, more in zip(counts, filled, strict=True)]
            continue
        counts = [number, number]
        try:
            yield checked_pair(*(decoded(line) for line in lines))
        except MalformedError as error:
            reader.skip(" and ".join(f"{file.path}:{number}" for file in files), error)
    if counts[0] != counts[1]:
        numbers = f"{source.path} has {counts[0]} lines and {target.path} has {counts[1]}"
        raise RequestError(f"{numbers}; each line must translate the same line of the other.")


def sentence_lines(path: Path) -> Iterator[bytes]:
    """Return the lines of a text, or of one of WMT's .sgm files, with one sentence each.

    Raises:
        ValueError: The file holds something else, or, while iterating, is damaged.
    """
    return _sentences(_File.of(path), are_languages=True)


def _sentences(file: _File, *, are_languages: bool) -> Iterator[bytes]:
    """Return the sentences of a file; refuse tables, records and formats with keys or codes."""
    kind = _format_of(file.path, file.head())
    if kind == "sgm":
        return sgm_segments(file.path, file.lines())
    if kind not in ("table", "records", "array"):
        raise refuse(file.path, kind)
    head = [line.decode("utf-8", "replace").strip() for line in islice(file.lines(), SAMPLE)]
    lines = [line for line in head if line]
    kinds = [_CELLS, *(_NO_SENTENCE if are_languages and len(lines) >= _FEWEST else ())]
    are_others = any(2 * sum(bool(re.search(k, it)) for it in lines) > len(lines) for k in kinds)
    are_quoted = all(len(line) > 1 and line[0] == line[-1] == '"' for line in lines)
    is_other = len(lines) > 2 and (are_others or are_quoted)
    if is_other or _JSON.search(file.path.name) or is_csv(file.path):
        held = "holds cells or records, keys, labels or codes"
        raise RequestError(f"{file.path} {held}, not one sentence a line; convert it to text.")
    return file.lines()


def check_is_text(path: Path) -> None:
    """Refuse markup, JSON and archives where plain text is expected, one sentence a line.

    What is no text at all may be anything: whoever reads it names the line.
    """
    try:
        kind = _format_of(path, _File.of(path).head())
    except RequestError:
        return
    if kind != "table":
        kind = {"records": "JSON", "array": "JSON", "other": "markup"}.get(kind, kind)
        raise RequestError(f"{path} holds {kind}, not one sentence a line; save it as a text.")


# ---------------------------------------------------------------------------------- tables


def _read_rows(
    where: str, rows: _Rows, reader: PairReader, *, unit: str = "", sample: Iterable | None = None
) -> Pairs:
    """Yield the pairs of a table in any format; rows without a pair are skipped.

    Args:
        where: Name of the table.
        rows: Function that yields its rows.
        reader: Says which languages and columns are meant, and hears of malformed rows.
        unit: What a row is called in messages, between `where` and its number.
        sample: Rows from all parts of the table; None to take them from `rows`.
    """
    if sample is None:
        sample = sampled(rows(), kept_as=lambda numbered: _beginnings(numbered[1]))
    else:
        sample = map(_beginnings, sample)
    head, names = [row for row in sample if row], None
    if head and isinstance(head[0], dict):
        head = [row for row in head if isinstance(row, dict)]
        names = [*dict.fromkeys(name for row in head for name in row)]
        head = [[row.get(name, "") for name in names] for row in head]
    cells = [row for row in head if any(row)]
    found = Columns()
    if cells:
        found = Table(cells, reader.languages, names, where).find(reader.given)
    if found.warning:
        reader.note(f"{where}: {found.warning}.")
    columns = (where, *(place + 1 for place in found.places), found.decided_by)
    logger.info("%s: source and target are columns %d and %d, by %s.", *columns)
    header = None
    if found.has_header:
        logger.info("%s: the first row is read as a header: %s.", where, cells[0])
        header = tuple(cells[0][place] for place in found.places)
    keys: Any = [names[place] for place in found.places] if names else found.places
    for pair in reader.pairs(rows(), lambda row: _pair(row, keys, found.width), f"{where}:{unit}"):
        # Files that were joined have it several times.
        if header != (pair[0].strip(), pair[1].strip()):
            yield pair


def _cells_of(row: Any) -> Any:
    """Return the cells of a row, a list or dict; a nested `translation` is flattened.

    Raises:
        MalformedError: It has none.
    """
    if isinstance(row, MalformedError):
        raise row
    if isinstance(row, bytes):
        if not (text := decoded(row)).strip():
            raise EmptyError("empty line")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MalformedError(f"not JSON ({error})") from None
    if not isinstance(row, (dict, list)):
        raise MalformedError('no object of the form {"translation": {...}}')
    if isinstance(row, dict) and isinstance(nested := row.get("translation"), dict):
        return nested | {name: cell for name, cell in row.items() if name != "translation"}
    return row


def _beginnings(row: Any) -> Any:
    """Return the beginnings of the texts in a row, for a sample; None for a malformed row."""
    try:
        cells = _cells_of(row)
    except MalformedError:
        return None
    if isinstance(cells, dict):
        return dict(zip(cells, _beginnings([*cells.values()]), strict=True))
    return [cell[:_CELL].strip() if isinstance(cell, str) else "" for cell in cells]


def _pair(row: Any, keys: Any, width: int) -> tuple[str, str]:
    """Return the pair of a row, or raise MalformedError."""
    row = _cells_of(row)
    try:
        source, target = row[keys[0]], row[keys[1]]
    except (LookupError, TypeError):
        if isinstance(keys[0], str):
            wanted = f"no {keys[0]!r} and {keys[1]!r} in {reprlib.repr(row)}"
            raise MalformedError(wanted) from None
        if not any(str(cell).strip() for cell in row):
            raise EmptyError("empty line") from None
        raise MalformedError(f"{len(row)} columns; needed are {max(keys) + 1}") from None
    if len(row) > width and any(str(cell).strip() for cell in row[width:]):
        raise MalformedError(f"{len(row)} columns, not {width}; quote a cell that has a separator")
    return checked_pair(source, target)


def draw_rows(source: PairSource) -> str | None:
    """Draw the first rows of a table, with the columns numbered from 1; None for other inputs."""
    if kind_of(source) != "file":
        return None
    file = _File.of(source)  # type: ignore[arg-type]  # of this kind
    if _format_of(file.path, file.head()) != "table":
        return None
    return drawn(sniff(file.lines(), file.path.name)[2])


def _array_rows(file: _File) -> Iterator[tuple[int, Any]]:
    import ijson

    with file.content() as content:
        try:
            yield from enumerate(ijson.items(content, "item"), start=1)
        except ijson.JSONError as error:
            reason = bounded.reason_of(error)
            raise RequestError(f"{file.path} is not a whole JSON array ({reason}).") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the texts of a parquet file, in bounded memory."""
    import pyarrow as pa
    import pyarrow.compute  # before the memory is bounded
    from pyarrow.parquet import ParquetFile

    def batches() -> Iterator[list[dict]]:
        with path.open("rb") as content:
            table = ParquetFile(content, buffer_size=2**20)  # otherwise a column is read whole
            names = table.schema_arrow.names
            texts = [
                leaf.path
                for leaf in table.schema
                if (leaf.logical_type.type, leaf.max_repetition_level) == ("STRING", 0)
            ]
            if not texts:
                columns = reprlib.repr(names)
                raise RequestError(f"{path} has the columns {columns}; none of them holds text.")
            for batch in table.iter_batches(_BATCH, columns=texts, use_threads=False):
                yield [dict.fromkeys(names) | row for row in batch.to_pylist()]

    number = 0
    try:
        for batch in bounded.in_bounded_memory(batches()):
            yield from enumerate(batch, start=number + 1)
            number += len(batch)
    except (pa.ArrowException, MemoryError, OSError) as error:
        # Arrow says "unknown error" where it cannot start a thread for lack of memory.
        if isinstance(error, MemoryError) or type(error) is pa.ArrowException:
            reason = "needs more than 1 GB of memory"
        else:
            reason = f"cannot be read as parquet ({bounded.reason_of(error)})"
        raise RequestError(f"{path} {reason}; fetch it again, or use JSON Lines.") from error


def _read_dataset(where: str, dataset: Any, reader: PairReader) -> Pairs:
    """Yield the pairs of a data set; of a stream, the first rows are the sample."""
    is_stream = not hasattr(dataset, "__len__")
    # In Arrow's format images and the like stay packed; the rows of a stream may differ in columns.
    data = dataset.with_format(None if is_stream else "arrow")

    def records(chosen: Any) -> Iterator[dict]:
        if is_stream:
            yield from chosen
        else:
            for table in chosen.iter(_BATCH):
                yield from table.to_pylist()

    if is_stream:
        sample = data.take(SAMPLE)
    else:
        sample = data.select(range(0, len(data), len(data) // SAMPLE or 1))

    def rows() -> Iterator[tuple[int, Any]]:
        return enumerate(records(data), start=1)

    yield from _read_rows(where, rows, reader, unit=" row ", sample=records(sample))


def _first_two(pair: object) -> tuple[str, str]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
        raise MalformedError("not a pair of (source, target)")
    return checked_pair(pair[0], pair[1])
