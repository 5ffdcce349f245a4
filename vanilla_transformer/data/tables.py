"""Read tables in text files: detect separator and quoting, and split rows into cells."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..storage.reading import LINE_BYTES
from .checked_pairs import MalformedError, decoded
from .columns import SAMPLE, sampled

_Decode: TypeAlias = Callable[[bytes], str]
SEPARATORS = ("\t", ",", ";", " ||| ", "|")
_NAMED = re.compile(r"sep=([,;\t|])")  # Excel's first line, which names the separator
_LINE = 4_096  # bytes of a line to inspect, at most
_MOST = 0.5  # least share of lines with a separator; a rarer separator is part of the texts
_FEW = 0.05  # share of lines that may be damaged


class Dialect(NamedTuple):
    """Separator and quoting of a table.

    Attributes:
        separator: Text between cells.
        quoting: Other arguments of `csv.reader` if cells may be quoted; None if they are not.
    """

    separator: str
    quoting: dict[str, Any] | None = None

    def reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return an iterator over the rows; the lines must include their line ends."""
        if self.quoting is None:
            return (line[:-1].split(self.separator) for line in lines)
        return csv.reader(lines, delimiter=self.separator, strict=True, **self.quoting)


def sniff(lines: Iterable[bytes], name: str) -> tuple[Dialect, int, list[list[str]]]:
    """Detect the separator and quoting of a table.

    Args:
        lines: Lines of the table.
        name: Name of the file; .csv breaks ties.

    Returns:
        The dialect; the number of lines above the rows; and a sample of rows, the first row
        included, without rows that span several lines.
    """
    quoted: list[bytes] = []

    def seen() -> Iterator[bytes]:
        for line in lines:
            if b'"' in line and len(quoted) < 2 * SAMPLE:
                quoted.append(line[:_LINE])
            yield line[:_LINE]

    some = [*map(_lenient, sampled(seen()))]
    if some and (named := _NAMED.fullmatch(some[0].strip())):
        dialect, above = Dialect(named[1], {}), 1
    else:
        separators = sorted(SEPARATORS, key=lambda sign: sign == "\t" and is_csv(Path(name)))
        filled = [line for line in some if line.strip()]
        found = [_best_quoting(filled, quoted, separator) for separator in separators]
        best = max(found, key=lambda each: each[0])  # of equally good ones the first
        dialect, above = (best if best[0] >= _MOST else found[0])[1], 0
    rows = [_parsed(line, dialect) for line in some[above:]]
    return dialect, above, [row for row in rows if any(map(str.strip, row))]


def _lenient(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def is_csv(path: Path) -> bool:
    """Return whether a file is named .csv, or .csv with a compression suffix."""
    return ".csv." in f"{path.name.lower()}."


def _best_quoting(
    lines: Sequence[str], quoted: Sequence[bytes], separator: str
) -> tuple[float, Dialect]:
    """Return a separator's consistency in the lines, and the dialect with the best quoting.

    Quotes are part of the dialect if cells need them, or if all lines have quoted cells. If quotes
    do not enclose whole cells in some lines, they are part of the texts.
    """
    spaced = any(f'{separator} "'.encode() in line for line in quoted)
    # Cells between tabs are hardly ever quoted.
    is_usual = separator != "\t" or len(quoted) >= (1 - _FEW) * len(lines) - 1
    for escape in (None, "\\") if len(separator) == 1 else ():
        dialect = Dialect(separator, {"skipinitialspace": spaced, "escapechar": escape})
        read = [row for _, row in split_rows(iter(quoted), dialect, decode=_lenient)]
        rows = [row for row in read if isinstance(row, list)]
        is_needed = any(sign in cell for row in rows for cell in row for sign in (separator, "\n"))
        is_needed |= any(b'""' in line.strip(b'"') for line in quoted)
        most = max(separator != "\t", _FEW * len(quoted))
        if len(read) - len(rows) <= most and (is_needed or is_usual):
            break
    else:
        dialect = Dialect(separator)
    return _agreement([_parsed(line, dialect) for line in lines], separator), dialect


def _parsed(line: str, dialect: Dialect) -> list[str]:
    """Return the cells of a line; [] if it is malformed or only part of a row."""
    try:
        return next(dialect.reader([f"{line}\n"]), [])
    except csv.Error:
        return []


def _agreement(rows: Sequence[Sequence[str]], separator: str) -> float:
    """Return the share of the rows that have the commonest number of cells above one.

    Cells that begin with a space count against commas and semicolons, which are then punctuation.
    """
    widths = Counter(len(row) for row in rows if len(row) > 1)
    alike = max(widths.values(), default=0) / max(len(rows), 1)
    inner = [cell for row in rows for cell in row[1:]] if separator in ",;" else []
    return alike * (1 - sum(cell.startswith(" ") for cell in inner) / max(len(inner), 1))


def split_rows(
    lines: Iterator[bytes], dialect: Dialect, first: int = 1, decode: _Decode = decoded
) -> Iterator[tuple[int, list[str] | MalformedError]]:
    """Yield for each row the number of its first line, and its cells or its error.

    Only the first line of a malformed row is lost: a stray quote would open a cell that never ends,
    so the lines after it are read again as rows.

    Args:
        lines: Lines of the table; quoted cells may span several.
        dialect: From `sniff`.
        first: Number of the first line.
        decode: Function that decodes a line, or raises MalformedError.
    """
    ahead: deque[bytes] = deque()  # lines to read again after a malformed row
    row: list[bytes] = []  # lines read for the current row

    def texts() -> Iterator[str]:
        size = 0
        while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
            size = size + len(line) if row else len(line)
            row.append(line)
            text = decode(line)
            if size > LINE_BYTES:
                raise MalformedError(f"the row is longer than {LINE_BYTES // 2**20} MiB")
            yield f"{text}\n"

    rows = dialect.reader(texts())
    while True:
        row.clear()
        try:
            if (cells := next(rows, None)) is None:
                return
            yield first, cells
            first += len(row)
        except (MalformedError, csv.Error) as error:
            yield first, error if isinstance(error, MalformedError) else MalformedError(str(error))
            ahead.extendleft(reversed(row[1:]))
            # A new reader, because the old one may be inside a row.
            first, rows = first + 1, dialect.reader(texts())
