"""Sentence pairs from files, the Hub, data sets or generators, line by line.

What a file holds is told by its content: its name only says which file is meant. Lines that cannot
be a pair are skipped, counted and reported with their place, or refused.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

from ..errors import RequestError
from ..storage.reading import (
    IS_NO_TEXT,
    damage_naming,
    errors_naming,
    in_bounded_memory,
    open_content,
    printable,
    read_lines,
    reason_of,
)
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
from .columns import (
    ROWS,
    SAYS_LANGUAGES,
    end_in_others,
    find_sides,
    in_order,
    named_by_word,
    named_sides,
    sides_in_names,
)
from .language_names import language_of, places_of
from .markup import markup_of, refuse, sgm_segments, tmx_pairs, wmt_pairs
from .tables import are_cells, draw_table, is_csv, read_table

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset, IterableDataset

# A path, two paths, a Hub name, a data set, or pairs.
PairSource: TypeAlias = "str | os.PathLike | Sequence | Dataset | IterableDataset | Iterable"

logger = logging.getLogger(__name__)

_ROWS = 1000
_FEWEST = 3  # records that tell what a column holds,
_CELL = 1000  # by the first characters of each cell
_TWO_NAMES = 40  # characters that names of two languages may have
_HEAD = 4096  # bytes that tell what a file holds
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Of names that mean a file, whether or not it is there.
_SUFFIX = re.compile(
    r"(\.(jsonl?|ndjson|tsv|tab|csv|txt|parquet|tmx|xml|sgml?|zip|xlsx|ods|arrow|gz|bz2|xz))+$",
    re.I,
)
_READ = (
    "JSON Lines, a table with tabs, commas or semicolons, WMT's .xml, .tmx (each may be packed by "
    "gzip, bzip2 or xz), parquet, OPUS' .zip in Moses format, or two text files, SOURCE,TARGET"
)
_JSON = re.compile(r"\.jsonl?(\.|$)", re.IGNORECASE)
_OBJECT = re.compile(rb'[\[\s]*\{\s*"')  # the first bytes of one, or of an array of them
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = bytes(byte for byte in range(32) if not bytes([byte]).isspace())


@dataclass(kw_only=True)
class PairReader:
    """Iterable over the (source, target) pairs of one input, with counts of malformed lines.

    Attributes:
        name: Name of the input, for messages.
        num_malformed: Lines skipped by the last iteration.
        num_empty: How many of them have an empty side.
        examples: What was wrong with the first of them, each with its file and line.
        notes: Warnings of how the others were read.
    """

    read: Callable[[Skip, Note], Iterator[tuple[str, str]]]
    strict: bool
    name: str
    num_malformed: int = 0
    num_empty: int = 0
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _in_other_languages: int = 0
    _undecoded: int = 0  # lines that are not UTF-8

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.num_malformed, self.num_empty, self.examples, self.notes = 0, 0, [], []
        self._undecoded = self._in_other_languages = count = 0
        for pair in self.read(self._skip, self.note):
            count += 1
            yield pair
        unlike_pairs = self.num_malformed - self.num_empty - self._in_other_languages
        if self._undecoded >= 10 and self._undecoded > count / 10:
            raise RequestError(
                f"{self._undecoded} lines of {self.name} are not UTF-8, the first: "
                f"{self.examples[0]}. Save it as UTF-8, or convert it from the encoding that it is "
                "in, such as ISO-8859-1, windows-1251 or GB18030: iconv -f ENCODING -t UTF-8."
            )
        if unlike_pairs >= 10 and unlike_pairs > count > 0:  # none: the caller says more
            raise RequestError(
                f"{unlike_pairs} lines of {self.name} are malformed, and only {count} are pairs; "
                f"the first: {self.examples[0]}. Its format may be another than its name says."
            )

    def note(self, warning: str) -> None:
        """Keep and log a warning of how pairs were read."""
        logger.warning(warning)
        self.notes.append(warning)

    def _skip(self, place: str, error: Exception) -> None:
        complaint = printable(f"{place}: {error}")
        if self.strict:
            raise RequestError(
                f"{complaint}. Repair or remove it, or leave out --strict (strict=False)."
            )
        self.num_malformed += 1
        self.num_empty += isinstance(error, EmptyError)
        self._in_other_languages += isinstance(error, OtherLanguagesError)
        self._undecoded += isinstance(error, EncodingError)
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

    Without `source_column` and `target_column`, the columns or keys are those named after the two
    languages (codes or names), or else source and target, or those with the languages among other
    words; if both are there, name the columns. Where the rows say their languages, in a column such
    as `source_lang` or of `en-de`, those decide which side is the source. A table without such a
    header is judged by its first rows: see `find_sides`.

    Args:
        source: One of
            - a file, plain or packed by gzip, bzip2 or xz: JSON Lines, one
              `{"translation": {"en": ..., "de": ...}}` or `{"en": ..., "de": ...}` per line; a
              table, whose separator and quoting are told by its first rows; parquet; WMT's .xml of
              2021 or later; a translation memory (.tmx); OPUS' .zip in Moses format;
            - a tuple of two text files with one sentence per line, or two of WMT's .sgm files;
            - the name of a data set on the Hub, or a folder of such files, whose splits `datasets`
              finds;
            - a `datasets` data set with a column `translation` or one column per side;
            - an iterable of pairs, whose first two entries are source and target.
        source_language: Key of the source sentence; unused for text files and for pairs.
        target_language: Key of the target sentence.
        source_column: Column of the sources, by name or, in a table, by number from 1; unused for
            text files and for pairs. A name means that the first row is a header.
        target_column: Column of the targets; give both columns or neither.
        split: Split of a Hub data set or a folder; "all" reads every file of a folder.
        config: Configuration of a Hub data set.
        revision: Branch or commit of a Hub data set.
        streaming: Read a Hub data set without downloading it first.
        strict: Refuse malformed lines.

    Raises:
        FileNotFoundError: No such file.
        ValueError: A file of another kind, files that do not go together, or one column of the two;
            while iterating: no such column, half a header, files of unequal length, a broken file,
            more malformed lines than pairs, or, with `strict`, a malformed line.
    """
    languages = (source_language, target_language)
    given = _given(source_column, target_column, languages=languages)

    def read(skip: Skip, note: Note) -> Iterator[tuple[str, str]]:
        reading = Reading(languages, given, skip, note)
        if kind == "file":
            return _read_file(Path(known), reading)
        if kind == "parallel":
            return _read_parallel(Path(known[0]), Path(known[1]), reading)
        if kind == "pairs":
            return reading.pairs(known, _first_two, "pair ")
        dataset = known
        if kind == "hub" and Path(known).is_dir():
            paths = _files_of_split(Path(known), split, config, reading)
            return chain.from_iterable(_read_file(path, reading) for path in paths)
        if kind == "hub":
            from datasets import load_dataset

            options: dict[str, Any] = {"split": split, "revision": revision}
            dataset = load_dataset(os.fspath(known), config, streaming=streaming, **options)
        records = _Records(reading)
        return records.pairs(_dataset_rows(dataset, records), "the data set", "row ")

    kind = kind_of(source)
    known: Any = source  # of that kind
    return PairReader(read=read, strict=strict, name=_name_of(source, kind))


def _files_of_split(folder: Path, split: str, config: str | None, reading: Reading) -> list[Path]:
    """Return the files of a folder, or those that `datasets` finds for a split of it."""
    if split == "all":  # otherwise names such as `test` or `dev` in the names of files decide
        found = files_below(folder)
        read = [path for path in found if _SUFFIX.search(path.name)]
        if left_out := [str(path) for path in found if path not in read]:
            reading.note(f"{folder}: not read: {reprlib.repr(left_out)}.")
        return [folder / path for path in read]
    from datasets import load_dataset_builder

    files = load_dataset_builder(str(folder), config).config.data_files or {}
    if split not in files:
        raise RequestError(f"Unknown split {split!r}; {folder} has {', '.join(map(str, files))}.")
    return [*map(Path, files[split])]


def files_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a folder's files, relative to it, without hidden files and folders."""
    found = (path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _given(*columns: str | int | None, languages: tuple[str, str]) -> tuple[Any, Any] | None:
    """Return the columns of source and target, numbers as int; None if neither is given."""
    if columns == (None, None):
        return None
    source, target = (
        int(str(column)) if re.fullmatch("[0-9]{1,9}", str(column)) else column
        for column in columns
    )
    are_given = (column > 0 if isinstance(column, int) else column for column in (source, target))
    if source == target or not all(are_given):
        raise RequestError(
            f"source_column, target_column: got {columns[0]!r} and {columns[1]!r}; give both "
            "columns, two different ones, by name or by number from 1."
        )
    names = [*map(str, (source, target))]
    if named_sides(names, languages) == (1, 0) and not named_by_word(names):
        raise RequestError(
            f"source_column, target_column: got {source!r} and {target!r}, which are named after "
            f"the other sides of {'-'.join(languages)}; turn the columns or the pair around."
        )
    return source, target


def kind_of(source: PairSource) -> str:
    """Return the kind of input that `read_pairs` takes `source` to be.

    Returns:
        "file", "parallel", "hub", "dataset" or "pairs".

    Raises:
        FileNotFoundError: No such file.
        ValueError: Files that do not go together.
    """
    if hasattr(source, "column_names"):
        return "dataset"
    paths = source if isinstance(source, (tuple, list)) else [source]
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return "pairs"
    if paths is not source and _is_hub_name(source):
        return "hub"
    for path in map(Path, paths):
        _require_file(path)
    if paths is not source:
        return "file"
    if len(paths) != 2:
        raise RequestError(
            f"got the files {', '.join(map(os.fspath, paths))}; allowed are {_READ}. Join files of "
            "one kind into one."
        )
    return "parallel"


def _is_hub_name(source: Any) -> bool:
    """Return whether a name or path means a data set on the Hub, or a folder as one."""
    has_suffix = _SUFFIX.search(os.fspath(source)) is not None
    if has_suffix or isinstance(source, os.PathLike) or Path(source).exists():
        return Path(source).is_dir() and not has_suffix
    return _HUB_NAME.fullmatch(source) is not None


def _name_of(source: Any, kind: str) -> str:
    if kind == "parallel":
        return " and ".join(map(os.fspath, source))
    return "the pairs given" if kind in ("dataset", "pairs") else os.fspath(source)


def _require_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"got {str(path.absolute())!r}; there is no such file.")
    if not path.is_file():
        raise RequestError(f"{path} is a folder, a pipe or a device; give a file.")


# ---------------------------------------------------------------------------------- files


def _head_of(path: Path) -> bytes:
    with open_content(path) as file, errors_naming(path), damage_naming(path):
        return file.read(_HEAD)


def _format_of(path: Path, head: bytes) -> str:
    """Return what a file holds, by its name and its first bytes.

    Returns:
        "parquet", "zip", a kind of markup, "records" in JSON, or "table", which may be a text too.
    """
    text = head.decode("utf-16", "ignore") if head.startswith(_UTF16) else ""
    if markup_of(text.encode()) == "tmx":  # which says its encoding
        return "tmx"
    for kind, begin in (("parquet", b"PAR1"), ("zip", b"PK\x03\x04")):
        if head.startswith(begin):
            return kind
    if not _may_be_text(head):
        raise RequestError(f"{path} {IS_NO_TEXT} Allowed are {_READ}.")
    is_record = _JSON.search(path.name) or re.match(rb'\{\s*["}]', head.lstrip(_BLANKS))
    return markup_of(head) or ("records" if is_record else "table")


def check_is_text(path: Path) -> None:
    """Refuse markup, JSON and archives in place of sentences, one a line.

    What is no text at all may be anything: whoever reads it names the line.
    """
    kind, head = "table", b""
    with suppress(RequestError):
        head = _head_of(path)
        kind = _format_of(path, head)
    if kind in ("table", "records"):  # or a text, such as one that begins with {}
        if not _JSON.search(path.name) and not _OBJECT.match(head.lstrip(_BLANKS)):
            return
        kind = "JSON"
    raise RequestError(
        f"{path} holds {'markup' if kind == 'other' else kind}, not one sentence a line; save its "
        "texts one a line, or as a table for --csv or --tsv."
    )


def _may_be_text(head: bytes) -> bool:
    """Return whether the first bytes of a file may be a text, of which not all lines are damaged.

    A text in an older encoding has no control characters; packed files are full of them.
    """
    is_archive = head[257:262] == b"ustar"
    if is_archive or head.startswith(_UTF16) or head.count(0) > len(head) / 8:
        return False
    for line in head.split(b"\n"):
        try:
            if line.decode("utf-8").strip():
                return True
        except UnicodeDecodeError:
            continue
    return len(head) - len(head.translate(None, _CONTROLS)) <= len(head) / 100


def _read_file(path: Path, reading: Reading) -> Iterator[tuple[str, str]]:
    head = _head_of(path)
    kind = _format_of(path, head)
    records = _Records(reading)
    if kind == "parquet":
        rows = chain.from_iterable(in_bounded_memory(_parquet_batches(path, records)))
        yield from records.pairs(rows, str(path), f"{path}: row ")
    elif kind == "zip":
        yield from _read_zip(path, reading)
    elif kind in ("tmx", "wmt"):
        with open_content(path) as file, errors_naming(path), damage_naming(path):
            read = tmx_pairs if kind == "tmx" else wmt_pairs
            yield from read(path, file, reading)
    elif kind == "table":
        yield from read_table(path, _lines(path), reading)
    elif kind != "records":
        raise refuse(path, kind)
    else:
        if head.lstrip(_BLANKS).startswith(b"["):
            raise RequestError(
                f"{path} holds a JSON array; one object per line is needed: "
                f"jq -c '.[]' {path} > pairs.jsonl."
            )
        yield from records.pairs(_lines(path), str(path), f"{path}:", _parsed)


def first_rows(source: PairSource) -> str | None:
    """Draw the first rows of a table, with the columns numbered from 1; None for other inputs."""
    if kind_of(source) != "file":
        return None
    path = Path(source)  # type: ignore[arg-type]  # of this kind
    is_table = _format_of(path, _head_of(path)) == "table"
    return draw_table(path, _lines(path)) if is_table else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends, split at line feeds only."""
    with open_content(path) as file, errors_naming(path), damage_naming(path):
        yield from read_lines(file, str(path))


def _read_zip(path: Path, reading: Reading) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two texts in an archive, whose names end in the languages."""
    with errors_naming(path):
        try:
            with ZipFile(path) as archive:
                names = archive.namelist()
                sides = [_member(path, names, language) for language in reading.languages]
                ways = {archive.getinfo(name).compress_type for name in sides}
                if not ways <= {ZIP_STORED, ZIP_DEFLATED}:  # LZMA may ask for 4 GB
                    raise RequestError(
                        f"{path} is packed by another method than deflate; unpack it, and give two "
                        "files, SOURCE,TARGET."
                    )
                with archive.open(sides[0]) as source, archive.open(sides[1]) as target:
                    names, texts = [f"{path}/{name}" for name in sides], []
                    for name, file in zip(names, (source, target), strict=True):
                        head = file.read(_HEAD)
                        file.seek(0)
                        texts.append(_sentences(Path(name), head, read_lines(file, name)))
                    yield from _paired(texts[0], texts[1], names, reading.skip)
        except (BadZipFile, NotImplementedError, EOFError, RuntimeError, ZlibError) as error:
            raise RequestError(
                f"{path} is not a whole zip file: {error}. Fetch it again."
            ) from error


def _member(path: Path, names: list[str], language: str) -> str:
    """Return the one member of an archive whose name ends in a language."""
    names = [name for name in names if not name.startswith("__MACOSX/")]
    places = places_of(language, [name.rpartition(".")[2] for name in names])
    found = [names[place] for place in places]
    if len(found) != 1:
        raise RequestError(
            f"{path} has the files {reprlib.repr(names)}; needed is one whose name ends in "
            f".{language}. Unpack it, and give two files, SOURCE,TARGET; save a spreadsheet as CSV."
        )
    return found[0]


def _read_parallel(source: Path, target: Path, reading: Reading) -> Iterator[tuple[str, str]]:
    names, languages = [str(source), str(target)], reading.languages
    if (named_sides(names, languages) or sides_in_names(names)) == (1, 0):
        raise RequestError(
            f"{source} is named after the target of {'-'.join(languages)}, and {target} after its "
            "source; give the other file first, or rename them."
        )
    if end_in_others([_SUFFIX.sub("", path.name) for path in (source, target)], languages):
        reading.note(
            f"{source} and {target} seem to be named after other languages than "
            f"{'-'.join(languages)}; make sure that they are the right files."
        )
    return _paired(sentence_lines(source), sentence_lines(target), names, reading.skip)


def sentence_lines(path: Path) -> Iterator[bytes]:
    """Return the lines of a text, or of one of WMT's .sgm files, with one sentence each.

    Raises:
        ValueError: The file holds something else, or, while iterating, is damaged.
    """
    return _sentences(path, _head_of(path), _lines(path))


def _sentences(path: Path, head: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Return the sentences among the lines of a file, or of a member of an archive."""
    kind = _format_of(path, head)
    if kind not in ("table", "records", "sgm"):
        raise refuse(path, kind)
    first = [line.decode("utf-8", "replace") for line in map(bytes.strip, head.split(b"\n")[:-1])]
    if are_cells([*filter(None, first)]) or _JSON.search(path.name) or is_csv(path):
        raise RequestError(
            f"{path} holds cells or records, not one sentence a line; a table of pairs is given "
            "alone."
        )
    return sgm_segments(path, lines) if kind == "sgm" else lines


def _paired(
    sources: Iterator[bytes], targets: Iterator[bytes], names: Sequence[str], skip: Skip
) -> Iterator[tuple[str, str]]:
    # Pairs are yielded before the lengths are known: `load_pairs` keeps nothing after an error.
    counts = [0, 0]
    for number, lines in enumerate(zip_longest(sources, targets), start=1):
        if None in lines:  # blank lines at the end are none
            filled = [bool(line and line.strip()) for line in lines]
            counts = [number if more else n for n, more in zip(counts, filled, strict=True)]
            continue
        counts = [number, number]
        try:
            yield checked_pair(*(decoded(line) for line in lines))
        except MalformedError as error:
            skip(f"{names[0]}:{number} and {names[1]}:{number}", error)
    if counts[0] != counts[1]:
        raise RequestError(
            f"{names[0]} has {counts[0]} lines and {names[1]} has {counts[1]}; line n of one must "
            "translate line n of the other. Align them again."
        )


def _parquet_batches(path: Path, records: _Records) -> Iterator[list[dict]]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with path.open("rb") as file:
        try:
            table = ParquetFile(file, buffer_size=2**20)  # otherwise a column is read whole
            wanted = records.select(table.schema_arrow.names, str(path))
            texts = [
                leaf.path
                for leaf in table.schema
                if (leaf.logical_type.type, leaf.max_repetition_level) == ("STRING", 0)
            ]
            names = [name for name in texts if {name, name.split(".")[0]} & {*wanted}]
            kinds = {name: str(table.schema_arrow.field(name).type) for name in wanted[:2]}
            read = {*names, *(name.split(".")[0] for name in names)}
            if others := [f"{name}, which is {kinds[name]}" for name in kinds if name not in read]:
                raise RequestError(f"{path} holds no text in {' or '.join(others)}.")
            for batch in islice(table.iter_batches(ROWS, columns=texts), 1):
                every = dict.fromkeys(table.schema_arrow.names)  # for their numbers
                records.look_at([every | row for row in _rows(batch)], str(path))
            for batch in table.iter_batches(_ROWS, columns=names):
                yield _rows(batch)
        except MemoryError as error:
            raise RequestError(
                f"{path} needs more than 1 GB of memory; write its pairs as JSON Lines."
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise RequestError(
                f"{path} cannot be read as parquet ({reason_of(error)}); fetch it again, or write "
                "its pairs as JSON Lines."
            ) from error


def _rows(batch: pyarrow.RecordBatch) -> list[dict]:
    import pyarrow as pa

    cut = [_cut(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(cut, batch.schema.names).to_pylist()


def _cut(column: pyarrow.Array) -> pyarrow.Array:
    """Cut texts just beyond the limit: `checked_pair` still refuses them, in bounded memory."""
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


# ---------------------------------------------------------------------------------- rows


def _dataset_rows(dataset: Dataset | IterableDataset, records: _Records) -> Iterator[dict]:
    if dataset.column_names is not None:  # a stream may not know them
        selected = records.select(dataset.column_names, "the data set")
        # In Arrow's form, in which nothing is decoded.
        head = next(iter(dataset.with_format("arrow").iter(ROWS)), None)
        records.look_at([] if head is None else head.to_pylist(), "the data set")
        dataset = dataset.select_columns(selected)
    for batch in dataset.with_format(None).iter(_ROWS):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _parsed(line: bytes) -> object:
    text = decoded(line)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise EmptyError("empty line") from None
        raise MalformedError(f"not JSON ({error})") from None


class _Records:
    """Records: rows with names, of which two are the sides, and which may hold a `translation`."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.languages, self.given = reading, reading.languages, reading.given
        self.is_turned = False  # see `Layout`
        self.is_told = self.given is None  # whether other columns say the languages of a row
        self._keys_of = lru_cache(_ROWS)(self._keys)
        codes = {*map(language_of, self.languages)} - {None}
        self._codes = codes if len(codes) == 2 else set()  # to tell names from texts

    def select(self, names: list[str], where: str) -> list[str]:
        """Return the columns to read of a table, whose records have no others from now on."""
        if keys := self._keys(names):
            self.given = self.given and (keys[0], keys[1])
            return [*keys]
        if "translation" in names:
            return ["translation"]
        raise RequestError(
            f"{where} has the columns {reprlib.repr(names)}; needed are {self}. Check the "
            "languages, or name the columns (--source-column, --target-column)."
        )

    def pairs(
        self,
        rows: Iterable[Any],
        where: str,
        place: str,
        parsed: Callable[[Any], object] = lambda row: row,
    ) -> Iterator[tuple[str, str]]:
        """Yield the pairs of records, after a look at the first of them."""
        rows = iter(rows)
        head = [*islice(rows, ROWS)]
        self.look_at(head, where, parsed)

        def pair_of(row: Any) -> tuple[str, str]:
            return self.pair(parsed(row))

        yield from self.reading.pairs(chain(head, rows), pair_of, place)

    def look_at(
        self, rows: Iterable[Any], where: str, parsed: Callable[[Any], object] = lambda row: row
    ) -> None:
        """Judge records by what they hold, as the first rows of a table.

        Raises:
            ValueError: A side that the user did not name holds no texts, but another column does.
        """
        # By names, which are those of the columns, and the two of the sides.
        tables: dict[tuple[tuple[str, ...], tuple[str, str]], list[list[str]]] = {}
        for row in rows:
            with suppress(MalformedError):
                sides, keys = self._found(parsed(row))
                names, given = tuple(map(str.strip, sides)), (keys[0].strip(), keys[1].strip())
                cells = [c[:_CELL] if isinstance(c, str) else "" for c in sides.values()]
                tables.setdefault((names, given), []).append(cells)
        if tables:
            (names, given), below = max(tables.items(), key=lambda table: len(table[1]))
            are_keys = self.given is None and len(below) >= _FEWEST
            table = [names, *below]
            layout = find_sides(table, self.languages, given, where, are_keys=are_keys)
            self.is_turned = layout.is_turned and self.given is not None
            self.is_told = self.given is None or bool(layout.told)

    def _found(self, row: object) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a record, or its translation, and the names of its sides; see `_keys`."""
        if not isinstance(row, dict):
            raise MalformedError('no object of the form {"translation": {...}}')
        nested = row.get("translation")
        places = (nested, row) if isinstance(nested, dict) else (row,)
        for sides in places:
            if keys := self._keys_of(tuple(map(str, sides))):
                return sides, keys
        found = reprlib.repr(sorted(map(str, places[0])))
        raise MalformedError(f"no {self} among {found}")

    def pair(self, row: object) -> tuple[str, str]:
        """Return the sides of a record."""
        sides, (source, target, *more) = self._found(row)
        more = more if self.is_told else []
        told = tuple((name, sides[name]) for name in more if isinstance(sides[name], str))
        languages = self.languages[::-1] if self.is_turned else self.languages
        pair = checked_pair(*in_order((sides[source], sides[target]), told, languages))
        may_be_names = len(pair[0]) + len(pair[1]) < _TWO_NAMES and not self._codes & {
            *map(language_of, (source, target))
        }
        if may_be_names and {*map(language_of, pair)} == self._codes:
            raise MalformedError(f"{source!r} and {target!r} hold its languages, not its texts")
        return pair

    def _keys(self, names: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of source and target among these; None if they are not there.

        If they name no languages, those of columns that may say them follow.
        """
        if self.given is None:
            places = named_sides(names, self.languages)
            told = places == named_by_word(names)
            more = [name for name in names if told and SAYS_LANGUAGES.search(name)]
            return places and (names[places[0]], names[places[1]], *more)
        chosen = [
            names[column - 1] if isinstance(column, int) and column <= len(names) else str(column)
            for column in self.given
        ]
        told = named_sides(chosen, self.languages) == named_by_word(chosen)
        more = [n for n in names if told and SAYS_LANGUAGES.search(n) and n not in chosen]
        return (chosen[0], chosen[1], *more) if {*chosen} <= {*names} else None

    def __str__(self) -> str:
        """Return what is looked for, for messages."""
        if self.given is None:
            return f"'translation', {' and '.join(map(repr, self.languages))}, or source and target"
        return " and ".join(map(repr, self.given))


def _first_two(pair: object) -> tuple[str, str]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
        raise MalformedError("not a pair of (source, target)")
    return checked_pair(pair[0], pair[1])
