"""Rows of tables whose separator and quoting are told by their first lines together."""

from __future__ import annotations

import csv
import re
import reprlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from ..errors import RequestError
from ..storage.reading import LINE_BYTES
from .checked_pairs import EmptyError, MalformedError, Reading, checked_pair, decoded
from .columns import ROWS, drawn, find_sides

HEAD_LINES = 5_000  # that tell how a table is written: its first quoted cell may come late
_HEAD_BYTES = 10_000  # of each of them
_MOST_HEAD_BYTES = 2**26  # of all of them
_NAMED = re.compile(rb"sep=([,;\t|])\s*")  # the first line that Excel writes
_MOST_SHARE = 0.8  # of the rows that tabs must divide alike
_NEARLY_ALL = 0.95  # of the rows: others may be damaged
_QUOTED = re.compile(r'"(?:[^"]|"")*"')  # a cell as spreadsheets quote it
# A record of a program, or a row of a drawn table.
_RECORD = re.compile(
    r"""(\{\s*['"].*:.*\}|[\[(]\s*['"].*['"]\s*[\])]|'.*'\s*[,;]\s*'.*'|\|.*\|.*\|)[,;]?"""
)
_ESCAPED = re.compile(r"\\.")


class Dialect(NamedTuple):
    """How the cells of a row are told apart."""

    separator: str
    is_quoted: bool
    is_spaced: bool = False  # before a quote
    is_escaped: bool = False  # quotes in cells, by backslashes instead of being doubled

    def reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return a reader of rows in quotes."""
        return csv.reader(
            lines,
            delimiter=self.separator,
            skipinitialspace=self.is_spaced,
            escapechar="\\" if self.is_escaped else None,
            strict=True,
        )

    def cell(self, text: str) -> str:
        """Return a line of text as a cell: in quotes if it needs them, or without separators."""
        if not self.is_quoted:
            return text.replace(self.separator, " ")
        if self.is_escaped:
            text = text.replace("\\", r"\\")
        if self.separator in text or '"' in text:
            return '"' + text.replace('"', r"\"" if self.is_escaped else '""') + '"'
        return text


class Row(NamedTuple):
    """A row of a table: the number of its first line, its lines as they are, and its cells.

    A malformed row has a fault, and neither text nor cells.
    """

    number: int
    text: str
    cells: list[str]
    fault: Exception | None = None


def read_table(path: Path, lines: Iterator[bytes], reading: Reading) -> Iterator[tuple[str, str]]:
    """Read the pairs of a table.

    Args:
        path: Name of the file, for messages.
        lines: Its lines.
        reading: What is asked; without columns, see `find_sides`.

    Raises:
        ValueError: It is not clear which columns hold the sides.
    """
    dialect, rows = split_table(lines, is_csv=is_csv(path))

    def skip(number: int, error: Exception) -> None:
        reading.skip(f"{path}:{number}", error)

    read = _head(rows, skip)
    head = [row for row in read if row.fault is None]
    if not head:
        return
    if are_records([row.text.strip() for row in head]):
        raise RequestError(
            f"{path} holds records, not the rows of a table: {reprlib.repr(head[0].text)}. Write "
            "them as JSON Lines, or as a table with tabs."
        )
    layout = find_sides([row.cells for row in head], reading.languages, reading.given, str(path))
    may_be_text = reading.given is None and not (layout.header or dialect.is_quoted or is_csv(path))
    if may_be_text and dialect.separator in ",;" and all(layout.goes_on(row.cells) for row in head):
        error = RequestError(
            f"{path} looks like one text, which goes on with a space behind each "
            f"{dialect.separator!r}. Give a text in each language, SOURCE,TARGET; of a table, name "
            "the two columns (--source-column, --target-column)."
        )
        error.add_note(drawn([row.cells for row in head]))
        raise error
    needed = max(*layout.places, *layout.told) + 1
    for number, _, row, _ in head[: layout.skipped - bool(layout.header)]:
        if all(any(map(str.strip, row[place : place + 1])) for place in layout.places):
            reading.note(f"{path}:{number} is above the header: {reprlib.repr(row)}.")
    if layout.may_have_header:
        reading.note(
            f"{path}: its first row is read as a pair: {reprlib.repr(head[layout.skipped].cells)}. "
            "If it is a header, name the columns as it does, instead of by number."
        )
    above = {row.number for row in head[: layout.skipped]}
    for number, _, row, fault in chain(read, rows):
        if number in above:
            continue
        try:
            if fault is not None:
                raise fault
            if not any(cell.strip() for cell in row):
                raise EmptyError("empty line")
            if len(row) < needed:
                raise MalformedError(f"{len(row)} columns; needed are {needed}")
            if len(row) > layout.written and any(cell.strip() for cell in row[layout.width :]):
                raise MalformedError(
                    f"{len(row)} columns, but other rows have {layout.written}; quote a cell that "
                    "holds a separator"
                )
            pair = checked_pair(*layout.sides(row, reading.languages))
            # Of files that were joined.
            if pair[0] != pair[1] and {*map(str.strip, pair)} <= {*layout.header}:
                if [cell.strip() for cell in row[: len(layout.header)]] != layout.header:
                    raise RequestError(f"{path}:{number} begins a table with other columns: {row}.")
                raise EmptyError("the header again")
            yield pair
        except (MalformedError, csv.Error) as error:
            skip(number, error)


def are_records(rows: Sequence[str]) -> bool:
    """Return whether nearly all rows begin and end as records of other formats do."""
    return len(rows) > 2 and sum(map(bool, map(_RECORD.fullmatch, rows))) >= _NEARLY_ALL * len(rows)


def are_cells(rows: Sequence[str]) -> bool:
    """Return whether lines are rows with tabs, records, or one column's cells in quotes."""
    if are_records(rows) or (len(rows) > 2 and all("\t" in row for row in rows)):
        return True
    quoted = [row for row in rows if _QUOTED.fullmatch(row)]
    if len(quoted) < 3 or quoted != [row for row in rows if "," in row or '"' in row]:
        return False
    return quoted == rows or any('""' in row[1:-1] for row in quoted)


def draw_table(path: Path, lines: Iterator[bytes]) -> str:
    """Draw the first rows of a table, with the columns numbered from 1."""
    _, rows = split_table(lines, is_csv=is_csv(path))
    return drawn([row.cells for row in _head(rows, lambda *_: None) if row.fault is None])


def _head(rows: Iterator[Row], skip: Callable[[int, Exception], None]) -> list[Row]:
    """Return the first rows, which tell the columns, and skip those before the first whole one."""
    head: list[Row] = []
    whole = 0
    while whole < ROWS and len(head) < HEAD_LINES and (row := next(rows, None)) is not None:
        if row.fault is not None and not head:
            skip(row.number, row.fault)
            continue
        head.append(row)
        whole += row.fault is None
    return head


def is_csv(path: Path) -> bool:
    """Return whether a table is named after its separator."""
    return ".csv." in f"{path.name.lower()}."


def _told_dialect(lines: Sequence[str], separators: str, least: float) -> Dialect:
    """Return the dialect that explains some lines best; tabs need explain only most of them."""
    bare = _QUOTED.sub('""', "\n".join(lines))
    dialects = [Dialect(sign, quoted) for sign in separators for quoted in (False, True)]
    spaced = [s for s in separators if re.search(rf'[{s}] +""\s*([{s}]|$)', bare, re.MULTILINE)]
    dialects += [Dialect(sign, is_quoted=True, is_spaced=True) for sign in spaced]
    if any(r"\"" in line for line in lines):
        dialects += [each._replace(is_escaped=True) for each in dialects if each.is_quoted]
    found = {dialect: _agreement(lines, dialect) for dialect in dialects}
    told = bare.split("\n")  # without tabs in quotes
    has_tabs = sum("\t" in line for line in told) >= _MOST_SHARE * len(told)
    tabs = [each for each in found if each.separator == "\t" and found[each][0] >= _MOST_SHARE]
    best = max((has_tabs and tabs) or found, key=found.__getitem__)
    # Spreadsheets may leave out empty cells at the end of a row, but not in the first few.
    if found[best][-1] >= least or all(best.separator in line for line in lines[:3]):
        return best
    # A table of one column: what divides a few of its rows belongs to their texts.
    return max((each for each in found if each.separator == separators[0]), key=found.__getitem__)


def _agreement(lines: Sequence[str], dialect: Dialect) -> tuple[float, bool, int, float]:
    """Return how well a dialect explains some lines: higher is better.

    Separators within a text are followed by a space, which a tab is not, and divide each row into
    other numbers of cells. Quotes may belong to the texts, but not if one is doubled, if they are
    in every row below the first, which may be a header, or around all cells with a comma, and no
    others, or if each of them is escaped. Where they are around two cells of nearly every row, a
    few rows that are malformed say nothing.

    The last number is the share of rows that it divides.
    """
    raw = [line.split(dialect.separator) for line in lines]
    rows, shown, malformed = raw, False, 0
    if dialect.is_quoted:
        escapes = {r"\\", r"\"", r"\N", f"\\{dialect.separator}"}  # \N: nothing, in databases
        encoded = (line.encode() for line in lines)
        found = list(_rows(encoded, dialect, 1))
        rows = [row.cells for row in found if row.fault is None]
        faults = len(found) - len(rows)
        below = [any(cell.startswith('"') for cell in row) for row in raw[1:]]
        cells = [cell for row in raw for cell in row]
        quoted = {cell for cell in cells if _QUOTED.fullmatch(cell)}
        bare = [_QUOTED.sub('""', line).split(dialect.separator) for line in lines[1:]]
        whole = sum(row.count('""') > 1 for row in bare)
        few = max(1, (1 - _NEARLY_ALL) * len(lines))
        of_all = not dialect.is_escaped and len(bare) - whole <= few < whole
        shown = of_all or (len(below) > 0 and all(below))
        shown |= any('""' in cell[1:-1] for cell in quoted)
        shown |= quoted == {cell for cell in cells if "," in cell} != set()
        if dialect.is_escaped and set(_ESCAPED.findall("\n".join(lines))) <= escapes:
            shown |= not any('"' in _ESCAPED.sub("", cell).strip('"') for cell in cells)
        malformed = 0 if of_all and faults <= few else faults
    widths = Counter(len(row) for row in rows if len(row) > 1)
    alike = max(widths.values(), default=0)
    inner = [cell for row in rows for cell in row[1:] if dialect.separator != "\t"]
    spaced = sum(cell.startswith(" ") for cell in inner) / len(inner) if inner else 0.0
    count = max(len(rows) + malformed, 1)
    return alike / count * (1 - spaced), shown, alike, widths.total() / count


def split_table(
    lines: Iterator[bytes],
    *,
    is_csv: bool,
    most_read: int = HEAD_LINES,
    separators: str = "\t;,|",
    least: float = 0.0,
) -> tuple[Dialect, Iterator[Row]]:
    """Return how a table is written, as its first lines tell, and its rows.

    A malformed row costs its first line only: a stray quote opens a cell that never ends, and the
    lines after it are rows of their own.

    Args:
        lines: Its lines, of which quoted cells may span several.
        is_csv: Whether it is named after its separator; all programs that write such a table quote
            cells that hold one.
        most_read: Lines to read before the first row is returned.
        separators: Those allowed, the likeliest first.
        least: Share of the rows that the separator told must divide; else it is the first.
    """
    head: list[bytes] = []
    size = 0
    for line in islice(lines, most_read):
        head.append(line)
        if (size := size + len(line)) > _MOST_HEAD_BYTES:
            break
    filled = [place for place, line in enumerate(head) if line.strip()]
    first = 1
    if filled and (named := _NAMED.fullmatch(head[filled[0]])):
        first = filled[0] + 2
        dialect = Dialect(named[1].decode(), is_quoted=True)
    else:
        texts = [head[place][:_HEAD_BYTES].decode("utf-8", "replace") for place in filled]
        dialect = _told_dialect(texts, separators, least)
        dialect = dialect._replace(is_quoted=dialect.is_quoted or is_csv)
    return dialect, _rows(chain(head[first - 1 :], lines), dialect, first)


def _rows(lines: Iterator[bytes], dialect: Dialect, first: int) -> Iterator[Row]:
    """Yield the rows of a table, whose lines are numbered from `first`."""
    if not dialect.is_quoted:
        for number, line in enumerate(lines, start=first):
            try:
                text = decoded(line)
                yield Row(number, text, text.split(dialect.separator))
            except MalformedError as error:
                yield Row(number, "", [], error)
        return
    ahead: deque[bytes] = deque()  # lines that a malformed row gave back
    row: list[bytes] = []  # lines that csv.reader took for it

    def texts() -> Iterator[str]:
        size = 0
        while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
            size = size + len(line) if row else len(line)
            row.append(line)
            if size > LINE_BYTES:
                raise MalformedError(f"the row is longer than {LINE_BYTES // 2**20} MiB")
            yield decoded(line) + "\n"

    rows = dialect.reader(texts())
    while True:
        row.clear()
        try:
            cells = next(rows, None)
        except (MalformedError, csv.Error) as error:
            yield Row(first, "", [], error)
            ahead.extendleft(reversed(row[1:]))
            # A new one: its text may have ended within a row.
            first, rows = first + 1, dialect.reader(texts())
            continue
        if cells is None:
            return
        yield Row(first, b"\n".join(row).decode(), cells)
        first += len(row)
