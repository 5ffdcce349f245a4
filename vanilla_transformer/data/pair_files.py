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
from itertools import chain, islice, zip_longest
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

from ..errors import RequestError
from ..storage import reading as bounded
from .checked_pairs import EmptyError, MalformedError, PairReader, Pairs, checked_pair, decoded
from .columns import SAMPLE, Columns, Table, drawn, named_sides, sampled
from .languages import identified, language_of
from .markup import markup_of, refuse, sgm_segments, tmx_pairs, wmt_pairs
from .tables import is_csv, sniff, split_rows

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset, IterableDataset

# A path, two paths, a Hub name, a data set, or pairs.
PairSource: TypeAlias = "str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable"
# Function that yields the number and content of rows: a line of JSON, a list or dict of cells, or
# an error. It is given the names or indices of two columns, or nothing for a sample of rows.
_Rows: TypeAlias = "Callable[..., Iterator[tuple[int, Any]]]"

logger = getLogger(__name__)

_BATCH = 500  # rows read at once; their texts may be large
_CELL = 200  # in a sample, a cell is cut after this many characters
_LONGEST = 4_000  # limit on a sentence's bytes, so that it is not too long to translate
_HEAD = 4_096  # bytes to detect a file's format from
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Endings of data files, which tell their names from those of data sets on the Hub.
_DATA = re.compile(
    r"\.(jsonl?|ndjson|tsv|tab|csv|txt|parquet|tmx|xml|sgml?|zip|xlsx|ods|arrow|gz|bz2|xz)$", re.I
)
_JSON = re.compile(r"\.(jsonl?|ndjson)(\.|$)", re.IGNORECASE)
_ABOUT = re.compile(r"\.|__MACOSX|(readme|licen[cs]e|copying)\b", re.I)  # files that hold no data
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = bytes(byte for byte in range(32) if not bytes([byte]).isspace())
# Patterns of cells or records instead of sentences, and the allowed share of such lines.
_CELLS = {r"\t|^[{[]\"": 0.5, r'^".*"$': 0.99}
# Signs, labels and codes that sentences hardly ever have, but texts of other tasks may.
_NO_SENTENCE = dict.fromkeys(
    (r"[={}<>|\\\t]", r"^(#|\S+:(\s|$)|msg(id|str)\b)", r"^[!-~]{21,}$"), 0.5
)
_FEWEST = 10  # lines needed to decide whether a text holds sentences


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
    memory (parquet: on Linux only); what `datasets` loads from the Hub may take more.

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
        ValueError: A file of another kind, files that do not go together, or only one of the two
            columns; while iterating: no such column, unclear columns, files of unequal length, a
            broken file, more malformed lines than pairs, or, with `strict`, a malformed line.
    """
    kind = kind_of(source)
    known: Any = source  # its type follows from `kind`

    def read(reader: PairReader) -> Pairs:
        if kind == "file":
            return _read_file(_File(Path(known)), reader)
        if kind == "parallel":
            return _read_parallel(_File(Path(known[0])), _File(Path(known[1])), reader)
        if kind == "pairs":
            return reader.pairs(enumerate(known, start=1), _pair, "pair ")
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
    """Return the user's source and target columns, numbers as int; None if neither is given."""
    if columns == (None, None):
        return None
    source, target = (int(c) if str(c).isdecimal() else c for c in map(str, columns))
    if source == target or {source, target} & {"None", "", 0} or "-" in f"{source}{target}"[:1]:
        raise RequestError(f"source_column, target_column: got {columns}; give two different ones.")
    return source, target


def kind_of(source: PairSource) -> str:
    """Return the kind of `source`, which decides how `read_pairs` reads it.

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
        raise RequestError(f"got the files {names}; give one file, or two texts, SOURCE,TARGET.")
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

    path: Path  # for a member of an archive, its name in messages
    open_member: Callable[[], BinaryIO] | None = None

    @contextmanager
    def content(self) -> Iterator[BinaryIO]:
        """Open the file; an error within the block gets the file's name in its message."""
        opened = self.open_member() if self.open_member else bounded.open_content(self.path)
        with bounded.errors_naming(self.path), opened as file:
            yield file

    def kind(self) -> str:
        """Detect the format of the file from its first bytes and its name.

        Returns:
            "parquet", "zip", a kind of markup, "JSON array", "JSON" with a record on each line, or
            "table", which may also be a text.
        """
        with self.content() as file:
            head = file.read(_HEAD)
        if head.startswith(_UTF16):
            head = head.decode("utf-16", "ignore").encode()
        if head.startswith((b"PAR1", b"PK\x03\x04")):
            return "parquet" if head.startswith(b"PAR1") else "zip"
        # Text in an older encoding has no control characters; compressed files have many.
        if len(head) - len(head.translate(None, _CONTROLS)) > 1 + len(head) / 16:
            raise RequestError(f"{self.path} {bounded.IS_NO_TEXT}")
        start = b"".join(head.lstrip(_BLANKS).split())
        if start.startswith((b'[{"', b'[["')):
            return "JSON array"
        is_json = _JSON.search(self.path.name) or start.startswith(b'{"')
        return markup_of(head) or ("JSON" if is_json else "table")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, split at line feeds only, without their line ends."""
        with self.content() as file:
            if not file.peek(2).startswith(_UTF16):  # type: ignore[attr-defined]  # a buffered file
                yield from bounded.read_lines(file, str(self.path))
                return
            text = io.TextIOWrapper(file, "utf-16", "surrogateescape", newline="\n")
            for line in iter(lambda: text.readline(bounded.LINE_BYTES), ""):
                yield line.rstrip("\r\n").encode("utf-8", "surrogateescape")


def _read_file(file: _File, reader: PairReader) -> Pairs:
    path, kind = file.path, file.kind()
    if kind in ("table", "JSON", "JSON array", "parquet"):
        unit = {"JSON array": " item ", "parquet": " row "}.get(kind, "")
        rows = _table_rows(file) if kind == "table" else partial(_RECORDS[kind], file)
        yield from _read_rows(f"{path}", rows, reader, unit)
    elif kind in ("tmx", "wmt"):
        with file.content() as content:
            yield from (tmx_pairs if kind == "tmx" else wmt_pairs)(path, content, reader)
    elif kind == "zip":
        yield from _read_zip(path, reader)
    else:
        raise refuse(path, kind)


def _read_folder(folder: Path, split: str, config: str | None, reader: PairReader) -> Pairs:
    """Yield the pairs of a folder saved by `datasets`, or of the files of one split in it."""
    import datasets

    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        parts = saved if isinstance(saved, dict) else {split: saved}
        for part in parts.values() if split == "all" else [parts[split]]:
            yield from _read_dataset(str(folder), part, reader)
        return
    found = files_below(folder)
    if split != "all":  # words such as `test` or `dev` in the names of files decide
        files = datasets.load_dataset_builder(str(folder), config).config.data_files or {}
        if split not in files:
            known = ", ".join(map(str, files))
            raise RequestError(f"Unknown split {split!r}; {folder} has {known}.")
        found = [Path(path).relative_to(folder.absolute()) for path in files[split]]
    yield from _read_members(folder, [_File(folder / path) for path in found], reader)


def files_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a folder's files, relative to it, without hidden files and folders."""
    found = (path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _read_zip(path: Path, reader: PairReader) -> Pairs:
    try:
        with bounded.errors_naming(path), ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if {info.compress_type for info in members} - {ZIP_STORED, ZIP_DEFLATED}:
                # LZMA may need 4 GB of memory.
                raise RequestError(f"{path} is not compressed with deflate; decompress it.")
            names = [info.filename for info in members]
            files = [_File(path / name, partial(archive.open, name)) for name in names]  # type: ignore[arg-type]
            yield from _read_members(path, files, reader)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ZlibError) as error:
        raise RequestError(f"{path} is a damaged zip file: {error}. Download it again.") from error


def _read_members(where: Path, found: Sequence[_File], reader: PairReader) -> Pairs:
    """Yield the pairs of an archive or folder: from two parallel texts, or from all pair files."""
    files = [it for it in found if not any(map(_ABOUT.match, it.path.relative_to(where).parts))]
    ends = [file.path.name.removesuffix(".txt").rpartition(".")[2] for file in files]
    if sides := named_sides(ends, reader.languages):
        yield from _read_parallel(files[sides[0]], files[sides[1]], reader)
        return
    tables = [file for file in files if _DATA.search(file.path.name) or len(files) == 1]
    if not tables:
        names = reprlib.repr([str(file.path.relative_to(where)) for file in found])
        needed = f"files of pairs, or two texts named *.{' and *.'.join(reader.languages)}"
        raise RequestError(f"{where} has {names}, not {needed}; save spreadsheets as CSV.")
    if left_out := [file.path.name for file in files if file not in tables]:
        reader.note(f"{where}: ignored {reprlib.repr(left_out)}.")
    for file in tables:
        yield from _read_file(file, reader)


# ------------------------------------------------------------------------------- two texts


def _read_parallel(source: _File, target: _File, reader: PairReader) -> Pairs:
    are_languages = all(map(language_of, reader.languages))
    texts = [_sentences(file, are_languages=are_languages) for file in (source, target)]

    def rows() -> Iterator[tuple[int, Any]]:
        for number, lines in enumerate(zip_longest(*texts), start=1):
            if None not in lines:
                yield number, lines
            elif b"".join(filter(None, lines)).strip():  # blank lines at the end do not count
                longer, shorter = (source, target) if lines[1] is None else (target, source)
                what = f"{longer.path} goes on in line {number}, where {shorter.path} has ended"
                raise RequestError(f"{what}; the two files must be translations line by line.")

    name = f"{source.path} and {target.path}:"
    return reader.pairs(rows(), lambda lines: checked_pair(*map(decoded, lines)), name)


def usable_sentences(text: Path) -> Iterator[str]:
    """Yield the sentences of a text, without blank, damaged and too long lines."""
    return filter(None, _read_text(text))


def check_text(text: Path, language: str, other: str) -> None:
    """Refuse a text that is largely damaged or in the other of two languages.

    Args:
        text: File with a sentence on each line.
        language: Language that the text should be in.
        other: The other language of the pairs.

    Raises:
        ValueError: The text is largely damaged, or in the other language.
    """
    sample = sampled(_read_text(text))
    sentences, left_out = [*filter(None, sample)], sample.count(None)
    reasons = f"not UTF-8 or over {_LONGEST:,} bytes"
    counts = f"sentences: {len(sentences)}; left out: {left_out} ({reasons}) in a sample"
    if len(sentences) <= left_out:
        raise RequestError(f"{text}: {counts}. Give a text in UTF-8 with one sentence a line.")
    logger.info("%s: %s.", text, counts)
    found = identified(sentences, (language, other))
    if found and (found.odds < 0).mean() > 0.5:
        raise RequestError(f"{text} looks like {other}; give text in {language}.")
    if found and found.is_whole and (found.elsewhere > 0.9).mean() > 0.5:
        logger.warning("%s is in another language than %s.", text, language)


def _read_text(text: Path) -> Iterator[str | None]:
    """Yield the sentence on each line, "" for a blank line, None for a damaged or too long one."""
    for line in _sentences(_File(text), are_languages=True):
        try:
            yield decoded(line).strip() if len(line) <= _LONGEST else None
        except MalformedError:
            yield None


def _sentences(file: _File, *, are_languages: bool) -> Iterator[bytes]:
    """Return the sentences of a file; refuse tables, records and other formats than text."""
    kind = file.kind()
    if kind == "sgm":
        return sgm_segments(file.path, file.lines())
    if kind not in ("table", "JSON", "JSON array"):
        raise refuse(file.path, kind)
    head = [line.decode("utf-8", "replace").strip() for line in islice(file.lines(), SAMPLE)]
    lines = [line for line in head if line]
    signs = _CELLS | (_NO_SENTENCE if are_languages and len(lines) >= _FEWEST else {})
    are_signs = len(lines) > 2 and any(
        sum(bool(re.search(sign, line)) for line in lines) > share * len(lines)
        for sign, share in signs.items()
    )
    if are_signs or kind != "table" or is_csv(file.path):
        raise RequestError(f"{file.path} is a table or code, not one sentence a line; convert it.")
    return file.lines()


def check_is_text(path: Path) -> None:
    """Refuse markup, JSON and archives where plain text with one sentence a line is needed.

    Any other bytes are let through: the code that reads them names the invalid line.
    """
    try:
        kind = _File(path).kind()
    except RequestError:
        return
    if kind != "table":
        raise RequestError(f"{path} holds {kind}, not one sentence a line; convert it to text.")


# ---------------------------------------------------------------------------------- tables


def _read_rows(where: str, rows: _Rows, reader: PairReader, unit: str) -> Pairs:
    """Yield the pairs of a table in any format; malformed rows are skipped.

    Args:
        where: Name of the table.
        rows: Function that yields its rows.
        reader: Reader that has the languages and given columns, and records malformed rows.
        unit: Word for a row in messages, between `where` and the row's number.
    """
    sample = sampled(rows(), kept_as=lambda numbered: _beginnings(numbered[1]))
    names = [*dict.fromkeys(key for row in sample for key in row if isinstance(key, str))]
    cells = [[row.get(name, "") for name in names or row] for row in sample]
    cells = [names, *cells] if names else [row for row in cells if any(row)]
    found = Columns()
    if cells:
        found = Table(cells, reader.languages, bool(names), where).find(reader.given)
    if found.warning:
        meant = " and ".join(reader.languages)
        reader.note(f"{where}: the columns for {meant} look swapped ({found.warning}).")
    columns = (where, *(place + 1 for place in found.places), found.decided_by)
    logger.info("%s: source and target are columns %d and %d, by %s.", *columns)
    if found.header:
        logger.info("%s: the first row is read as a header: %s.", where, found.header)
    keys: Any = [names[place] for place in found.places] if names else found.places
    width = None if names else found.width
    for pair in reader.pairs(rows(*keys), lambda row: _pair(row, keys, width), f"{where}:{unit}"):
        # Concatenated files have the header several times.
        if found.header != (pair[0].strip(), pair[1].strip()):
            yield pair


def _cells_of(row: Any) -> Any:
    """Return the cells of a row as a sequence or dict; a nested `translation` is flattened.

    Raises:
        MalformedError: The row has no cells, for example because it is not JSON.
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
    if not isinstance(row, (list, dict, Sequence)) or isinstance(row, str):
        raise MalformedError('no object of the form {"translation": {...}}')
    if isinstance(row, dict) and isinstance(nested := row.get("translation"), dict):
        return nested | {name: cell for name, cell in row.items() if name != "translation"}
    return row


def _beginnings(row: Any) -> dict[Any, str]:
    """Return the beginning of each text in a row, by column name or index; {} if malformed."""
    try:
        cells = _cells_of(row)
    except MalformedError:
        return {}
    items = cells.items() if isinstance(cells, dict) else enumerate(cells)
    return {key: cell[:_CELL].strip() if isinstance(cell, str) else "" for key, cell in items}


def _pair(row: Any, keys: Any = (0, 1), width: int | None = None) -> tuple[str, str]:
    """Return a row's pair; raise MalformedError if it is empty or has too many or too few cells."""
    row = _cells_of(row)
    try:
        source, target = row[keys[0]], row[keys[1]]
    except (LookupError, TypeError):
        if isinstance(keys[0], str):
            raise MalformedError(f"no {keys[0]!r} and {keys[1]!r} in {reprlib.repr(row)}") from None
        if not any(str(cell).strip() for cell in row):
            raise EmptyError("empty line") from None
        raise MalformedError(f"{len(row)} columns, fewer than {max(keys) + 1}") from None
    if width and len(row) > width and any(str(cell).strip() for cell in row[width:]):
        raise MalformedError(f"{len(row)} columns, not {width}; quote a cell that has a separator")
    return checked_pair(source, target)


def draw_rows(source: PairSource) -> str | None:
    """Format the first rows of a table as text, with numbered columns; None for other inputs."""
    if kind_of(source) != "file":
        return None
    file = _File(Path(source))  # type: ignore[arg-type]  # a path, by its kind
    return drawn(sniff(file.lines(), file.path.name)[2]) if file.kind() == "table" else None


# ------------------------------------------------------------------ rows of tables by format


def _table_rows(file: _File) -> _Rows:
    dialect, above, sample = sniff(file.lines(), file.path.name)

    def rows(*keys: Any) -> Iterator[tuple[int, Any]]:
        if not keys:
            return enumerate(sample)
        return split_rows(islice(file.lines(), above, None), dialect, above + 1)

    return rows


def _json_rows(file: _File, *_: str) -> Iterator[tuple[int, Any]]:
    return enumerate(file.lines(), start=1)


def _array_rows(file: _File, *_: str) -> Iterator[tuple[int, Any]]:
    import ijson

    with file.content() as content:
        try:
            yield from enumerate(ijson.items(content, "item"), start=1)
        except ijson.JSONError as error:
            reason = bounded.reason_of(error)
            raise RequestError(f"{file.path} is not a complete JSON array ({reason}).") from error


def _needed(schema: pyarrow.Schema, keys: Sequence[str]) -> list[str]:
    """Return the columns to read for the given keys; without keys, all columns of text."""
    texts = [
        field.name
        for field in schema
        if field.name == "translation" or re.match("(large_)?string|dictionary", str(field.type))
    ]
    wanted = {*keys, "translation"} if keys else {*texts}
    return [name for name in texts if name in wanted] or schema.names


def _parquet_rows(file: _File, *keys: str) -> Iterator[tuple[int, Any]]:
    """Yield the texts in the rows of a parquet file, in bounded memory."""
    import pyarrow as pa
    import pyarrow.compute  # imported before the memory is limited
    from pyarrow.parquet import ParquetFile

    def batches() -> Iterator[list[dict]]:
        with file.path.open("rb") as content:
            table = ParquetFile(content, buffer_size=2**20)  # otherwise a column is read whole
            names = table.schema_arrow.names
            columns = _needed(table.schema_arrow, keys)
            step = 1 if keys else table.metadata.num_rows // SAMPLE or 1
            for batch in table.iter_batches(_BATCH, columns=columns, use_threads=False):
                yield [dict.fromkeys(names) | row for row in batch[::step].to_pylist()]

    try:
        yield from enumerate(chain.from_iterable(bounded.in_bounded_memory(batches())), start=1)
    except (pa.ArrowException, MemoryError, OSError) as error:
        problem = f"cannot be read as parquet in less than 1 GB ({bounded.reason_of(error)})"
        raise RequestError(f"{file.path} {problem}; copy it again, or use JSON Lines.") from error


def _read_dataset(where: str, dataset: Any, reader: PairReader) -> Pairs:
    return _read_rows(where, partial(_dataset_rows, dataset), reader, " row ")


def _dataset_rows(dataset: Any, *keys: str) -> Iterator[tuple[int, Any]]:
    """Yield each row's number and texts; without `keys`, only a sample (a stream's first rows)."""
    is_stream = not hasattr(dataset, "__len__")
    # The rows of a stream may differ in columns, which Arrow refuses.
    dataset = dataset.with_format(None if is_stream else "arrow")
    features: Any = dataset.features or {}  # some streams do not know their features
    if features:
        dataset = dataset.select_columns(_needed(features.arrow_schema, keys))
    if is_stream:
        blocks: Iterable = [dataset if keys else dataset.take(SAMPLE)]
    else:
        chosen = range(0, len(dataset), 1 if keys else len(dataset) // SAMPLE or 1)
        blocks = (table.to_pylist() for table in dataset.select(chosen).iter(_BATCH))
    rows = (dict.fromkeys(features) | row for row in chain.from_iterable(blocks))
    yield from enumerate(rows, start=1)


_RECORDS = {"JSON": _json_rows, "JSON array": _array_rows, "parquet": _parquet_rows}
