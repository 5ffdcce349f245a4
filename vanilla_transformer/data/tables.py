"""Rows of tables in text files: which separator and quotes they have, and what is in the cells."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..storage.reading import LINE_BYTES
from .checked_pairs import MalformedError, decoded
from .columns import SAMPLE, sampled

SEPARATORS = ("\t", ",", ";", " ||| ", "|")
_NAMED = re.compile(r"sep=([,;\t|])")  # the first line that Excel writes
_LINE = 4_096  # bytes of a line
_MOST = 0.5  # of the lines: a separator of fewer belongs to their texts
_FEW = 0.05  # of the lines: these may be damaged


class Dialect(NamedTuple):
    """How the cells of a row are separated.

    Attributes:
        separator: Between cells.
        quoting: Other arguments of `csv.reader` if cells may stand in quotes; None if they do not.
    """

    separator: str
    quoting: dict[str, Any] | None = None

    def reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return an iterator over the rows of lines that still have their line ends."""
        if self.quoting is None:
            return (line[:-1].split(self.separator) for line in lines)
        return csv.reader(lines, delimiter=self.separator, strict=True, **self.quoting)


def sniff(lines: Iterable[bytes], name: str) -> tuple[Dialect, int, list[list[str]]]:
    """Find out how a table is written.

    Args:
        lines: Its lines.
        name: Name of the file; .csv breaks ties.

    Returns:
        The dialect; how many lines stand above the rows; and rows from all parts, the first one
        first, of those that have no line end in a cell.
    """
    with_quotes: list[bytes] = []

    def seen() -> Iterator[bytes]:
        for line in lines:
            if b'"' in line and len(with_quotes) < 2 * SAMPLE:
                with_quotes.append(line[:_LINE].decode("utf-8", "replace").encode())
            yield line[:_LINE]

    some = [line.decode("utf-8", "replace") for line in sampled(seen())]
    above = next((number for number, line in enumerate(some) if line.strip()), 0)
    if some and (named := _NAMED.fullmatch(some[above].strip())):
        dialect, above = Dialect(named[1], {}), above + 1
    else:
        separators = sorted(SEPARATORS, key=lambda sign: sign == "\t" and is_csv(Path(name)))
        filled = [line for line in some if line.strip()]
        found = [_best_quoting(filled, with_quotes, separator) for separator in separators]
        best = max(found, key=lambda each: each[0])  # the first of equal ones
        dialect, above = (best if best[0] >= _MOST else found[0])[1], 0
    rows = [_parsed(line, dialect) for line in some[above:]]
    return dialect, above, [row for row in rows if any(map(str.strip, row))]


def is_csv(path: Path) -> bool:
    """Return whether a file is named .csv, perhaps packed."""
    return ".csv." in f"{path.name.lower()}."


def _best_quoting(
    lines: Sequence[str], with_quotes: Sequence[bytes], separator: str
) -> tuple[float, Dialect]:
    """Return the dialect with a separator that fits best, and how many lines it divides alike.

    Quotes belong to the dialect if they would be needed, or stand around the cells of all lines.
    Lines in which they are no whole cell show that they belong to the texts.
    """
    spaced = any(f'{separator} "'.encode() in line for line in with_quotes)
    is_all = len(with_quotes) >= (1 - _FEW) * len(lines) - 1
    for escape in (None, "\\") if len(separator) == 1 else ():
        dialect = Dialect(separator, {"skipinitialspace": spaced, "escapechar": escape})
        read = [row for _, row in split_rows(iter(with_quotes), dialect)]
        rows = [row for row in read if isinstance(row, list)]
        wrong = len(read) - len(rows)
        needed = any(separator in cell or "\n" in cell for row in rows for cell in row)
        needed |= any(b'""' in line.strip(b'"') for line in with_quotes)
        if wrong <= max(separator != "\t", _FEW * len(with_quotes)) and (
            needed or separator != "\t" or is_all
        ):
            break
    else:
        dialect = Dialect(separator)
    return _agreement([_parsed(line, dialect) for line in lines], separator), dialect


def _parsed(line: str, dialect: Dialect) -> list[str]:
    """Return the cells of a line; none if it is malformed, or a part of a row."""
    try:
        return next(dialect.reader([f"{line}\n"]), [])
    except csv.Error:
        return []


def _agreement(rows: Sequence[Sequence[str]], separator: str) -> float:
    """Return the share of rows with the most frequent number of cells, of those above one.

    A comma or semicolon of a text is followed by a space.
    """
    widths = Counter(len(row) for row in rows if len(row) > 1)
    alike = max(widths.values(), default=0) / max(len(rows), 1)
    inner = [cell for row in rows for cell in row[1:]] if separator in ",;" else []
    return alike * (1 - sum(cell.startswith(" ") for cell in inner) / max(len(inner), 1))


def split_rows(
    lines: Iterator[bytes], dialect: Dialect, first: int = 1
) -> Iterator[tuple[int, list[str] | MalformedError]]:
    """Yield for each row the number of its first line, and its cells or what is wrong with it.

    A malformed row costs its first line only: a stray quote opens a cell that never ends, and the
    lines after it are rows of their own.

    Args:
        lines: Its lines, of which quoted cells may span several.
        dialect: From `sniff`.
        first: Number of the first line.
    """
    ahead: deque[bytes] = deque()  # lines that a malformed row gave back
    row: list[bytes] = []  # lines that were read for it

    def texts() -> Iterator[str]:
        size = 0
        while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
            size = size + len(line) if row else len(line)
            row.append(line)
            text = decoded(line)
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
            # A new one: its text may have ended within a row.
            first, rows = first + 1, dialect.reader(texts())
