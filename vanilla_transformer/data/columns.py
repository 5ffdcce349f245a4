"""Find the source and target columns of a table by their content, names or order.

A name says what somebody called a column; a language identifier says what is in it. The decision is
made in this order, on rows from all parts of the table:

1. Content: one column is in the source language, another in the target language. If several are,
   the named one is meant.
2. Names, if the content does not tell: languages, or words for source and target.
3. Order, if exactly two columns hold text and the format has no names for them.
4. Otherwise the user has to name the columns.

The order must not contradict the content.
"""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..errors import RequestError
from ..storage.reading import printable, shortened
from .languages import folded, identified, is_meant, language_of, places_of

Languages: TypeAlias = "tuple[str, str]"  # of source and target, or other names of the two sides
# Columns given by the user, by name or number from 1; None: detect them.
Given: TypeAlias = "tuple[str | int, str | int] | None"

SAMPLE = 1_000  # fewest rows to inspect; at most twice as many
_CELLS = 20_000  # cells, of all columns together, whose language is identified
_FEWEST = 20  # but at least this many cells of each column
_IN_LANGUAGE = 0.55  # least mean share of a language in the cells of its column
_IN_LANGUAGE_OF_TWO = 0.35  # the least if only two columns hold text
_ODDS = 3.0  # log odds, 20 to 1
_TEXTS = 0.5  # share of a column's cells that have letters and are not identifiers
_ALIKE = 0.8  # share of the rows with equally many cells, empty ones included
_FEW = 0.1  # "few" cells are at most this share of a column
_WEIGHT = 0.25  # least share of the longest column's text; notes and categories have less
# Words in column names that mean source or target.
_SIDES = {
    **dict.fromkeys(("source", "src", "input", "original"), 0),
    **dict.fromkeys(("target", "tgt", "trg", "output", "translation", "reference", "ref"), 1),
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[^\W\d_a-z]+")  # of snake_case and camelCase names
_KEY_SIGNS = frozenset("0123456789_/\\#|@:.")
_NAME_WORDS = 4  # most words in a column's name
_NAME = re.compile(r"[\w.:/#()\[\] -]*")  # letters and digits, with few other signs
_SHOWN_ROWS, _SHOWN_CHARACTERS = 5, 20
_Item = TypeVar("_Item")


class Columns(NamedTuple):
    """The columns of source and target in a table.

    Attributes:
        places: Their indices.
        has_header: Whether the first row holds names of columns instead of a pair.
        width: Number of columns, without empty ones at the end.
        decided_by: "content", "names", "order" or "user".
        warning: What the content says against the columns that the user named; else "".
    """

    places: tuple[int, int] = (0, 1)
    has_header: bool = False
    width: int = 2
    decided_by: str = "order"
    warning: str = ""


def sampled(
    items: Iterable[_Item], kept_as: Callable[[_Item], Any] = lambda item: item
) -> list[Any]:
    """Sample 1,000 to 2,000 of many items, evenly spread, including the first one."""
    kept: list[Any] = []
    step = 1
    for number, item in enumerate(items):
        if number % step == 0:
            kept.append(kept_as(item))
            if len(kept) == 2 * SAMPLE:
                kept, step = kept[::2], 2 * step
    return kept


@dataclass
class Table:
    """A sample of a table, and the language of each of its columns.

    Args:
        rows: Rows from all parts of the table, the first one first, as from `sampled`.
        languages: Languages of source and target, or other names of the two sides.
        given_names: Names of the columns in a format that keeps them apart from the rows; None if
            the first row may hold names.
        where: Name of the table, for messages.
    """

    rows: Sequence[Sequence[str]]
    languages: Languages
    given_names: Sequence[str] | None
    where: str

    def __post_init__(self) -> None:
        rows, names = self.rows, self.given_names
        self.width = len(names) if names else usual_width(rows)
        step = max(1, len(rows) * self.width // max(_CELLS, _FEWEST * self.width))
        padded = [[*row, *[""] * self.width][: self.width] for row in rows[::step]]
        self.first = [*names] if names else padded[0]
        body = padded if names or len(padded) == 1 else padded[1:]  # a single row is a pair
        self.columns = [*zip(*body, strict=True)]
        self.shares, self.odds = np.zeros((self.width, 2)), np.zeros(self.width)
        self.texts = self._text_columns()
        for place in self.texts:
            # Repeated cells give no new evidence.
            cells = [*dict.fromkeys(filter(_has_letters, self.columns[place]))]
            if cells and (found := identified(cells, self.languages)):
                self.shares[place] = found.shares.mean(axis=0)
                self.odds[place] = found.odds.sum()

    def _text_columns(self) -> list[int]:
        """Return the columns that may be source or target: texts that differ from row to row.

        If none has such texts, or only one has and the sides are not languages, each column that
        is filled may be one. Columns with the same cells count once.
        """
        filled = [place for place, cells in enumerate(self.columns) if any(cells)]
        texts = [place for place in filled if _has_texts(self.columns[place])]
        are_enough = len(texts) >= 2 or (texts and all(map(language_of, self.languages)))
        found = texts if are_enough else filled
        return sorted({self.columns[place]: place for place in reversed(found)}.values())

    # ---------------------------------------------------- the four steps of the detection

    def find(self, given: Given) -> Columns:
        """Find the columns of source and target.

        Args:
            given: Columns that the user named.

        Raises:
            ValueError: There is no such column, or it is not clear which columns are meant. The
                error has the rows, drawn as a table, as its note.
        """
        named, texts, warning = self._named(), self.texts, ""
        if given is not None:
            places, decided_by = self._columns_of(given), "user"
            named = places if any(isinstance(column, str) for column in given) else None
            if self._contradicts(places):
                meant, found = " and ".join(self.languages), self._described(places)
                warning = f"the columns given for {meant} look swapped ({found})"
        elif by_content := self._by_content(named):
            places, decided_by = by_content, "content"
        elif named:
            places, decided_by = named, "names"
        elif len(texts) == 2 and not (self.given_names or self._contradicts((texts[0], texts[1]))):
            places, decided_by = (texts[0], texts[1]), "order"
        else:
            raise self._question()
        has_header = self.given_names is None and bool(named or self._has_header(places))
        return Columns(places, has_header, self.width, decided_by, warning)

    def _columns_of(self, given: tuple[str | int, str | int]) -> tuple[int, int]:
        """Return the indices of the columns that the user named."""
        known = [*map(str, range(1, self.width + 1)), *map(folded, self.first)]
        wanted = [folded(str(column)) for column in given]
        for column, name in zip(given, wanted, strict=True):
            if name not in known:
                names = reprlib.repr(self.first)
                raise self._refusal(f"there is no column {column!r}; name two of {names}")
        return known.index(wanted[0]) % self.width, known.index(wanted[1]) % self.width

    def _by_content(self, named: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the only column in the source language, and the only one in the target language.

        If there are several, take those with matching names. Columns with far less text than
        another one, such as categories, do not count.
        """
        least = _IN_LANGUAGE if len(self.texts) > 2 else _IN_LANGUAGE_OF_TWO
        sides = [[p for p in self.texts if self.shares[p, side] >= least] for side in (0, 1)]
        if not all(sides):
            return None
        if named is not None and named[0] in sides[0] and named[1] in sides[1]:
            return named
        sizes = [len("".join({*cells})) for cells in self.columns]
        source, target = (
            [place for place in side if sizes[place] >= _WEIGHT * max(sizes[p] for p in side)]
            for side in sides
        )
        is_clear = len(source) == len(target) == 1 and self._contradicts((target[0], source[0]))
        return (source[0], target[0]) if is_clear else None

    def _contradicts(self, places: tuple[int, int]) -> bool:
        """Return whether the languages of the source and target columns look swapped."""
        return float(self.odds[places[0]] - self.odds[places[1]]) < -_ODDS

    # ---------------------------------------------------------------------- names and headers

    def _named(self) -> tuple[int, int] | None:
        """Return the columns whose names mean source and target, if they hold text."""
        may_be_named = self.texts if len(self.texts) >= 2 else range(self.width)
        names = [name if place in may_be_named else "" for place, name in enumerate(self.first)]
        places = named_sides(names, self.languages)
        is_text = places and self.given_names is None and self._repeats(places)
        return None if is_text else places

    def _repeats(self, places: tuple[int, int]) -> bool:
        """Return whether a cell of the first row occurs again in its column."""
        return any(self.first[place] in self.columns[place] for place in places)

    def _has_header(self, places: tuple[int, int]) -> bool:
        """Return whether the first row is a header, even if it does not name the languages.

        It is if it has a word above a column of numbers. Otherwise its two cells must be shorter
        than most cells below, and not be sentences in the two languages. A mistake costs one pair.
        """
        for name, all_below in zip(self.first, map("".join, self.columns), strict=True):
            has_numbers = any(map(str.isdigit, all_below)) and not _has_letters(all_below)
            if has_numbers and _has_letters(name):
                return True
        cells = [[*filter(None, self.columns[place])] for place in places]
        source, target = (self.first[place] for place in places)
        if min(map(len, cells)) < 2 or source == target or self._repeats(places):
            return False
        for name, below in zip((source, target), cells, strict=True):
            if len(name) >= sorted(map(len, below))[len(below) // 4] or not _NAME.fullmatch(name):
                return False
        if all(map(_is_lower_alone, (source, target), cells)):
            return True
        found = identified([source, target], self.languages)
        return found is not None and bool(
            found.odds[0] <= found.odds[1] and found.shares.diagonal().max() < _IN_LANGUAGE
        )

    # ---------------------------------------------------------------------- messages

    def _question(self) -> RequestError:
        """Return the error that asks the user to name the columns."""
        languages, texts = " and ".join(self.languages), self.texts
        if len(texts) < 2:
            names = reprlib.repr(self.given_names or self.first)
            return self._refusal(f"there are no two columns of text among {names}; name them")
        problem = f"it is not clear which columns are {languages} ({self._described(texts[:6])})"
        example = f"--source-column {texts[0] + 1} --target-column {texts[1] + 1}"
        return self._refusal(f"{problem}; name them, for example {example}")

    def _refusal(self, problem: str) -> RequestError:
        """Return an error with a note that shows the first rows as a table."""
        error = RequestError(f"{self.where}: {problem}.")
        error.add_note(drawn([*([self.given_names] if self.given_names else []), *self.rows]))
        return error

    def _described(self, places: Sequence[int]) -> str:
        source, target = self.languages
        return "; ".join(
            f"column {p + 1}: {self.shares[p, 0]:.0%} {source}, {self.shares[p, 1]:.0%} {target}"
            for p in places
        )


def named_sides(names: Sequence[str], languages: Languages) -> tuple[int, int] | None:
    """Find the source and target columns by their names; None if the names are ambiguous.

    A name may be a language, as a code or as a name in English or in one of the two languages, or
    contain the language or a word for the side: "text_en", "src_text", "translation".
    """
    by_name = [places_of(language, names) for language in languages]
    if [*map(len, by_name)] == [1, 1] and by_name[0] != by_name[1]:
        return by_name[0][0], by_name[1][0]
    if any(by_name):  # one side only, or several columns of a side
        return None
    words = [[*map(folded, _WORDS.findall(name))] for name in names]
    words = [each if len(each) <= _NAME_WORDS else [] for each in words]
    by_language = [
        {side for side in (0, 1) for word in each if is_meant(languages[side], word)}
        for each in words
    ]
    by_word = [{_SIDES[word] for word in each if word in _SIDES} for each in words]
    found = {
        (sides.index({0}), sides.index({1}))
        for sides in (by_language, by_word)
        if sides.count({0}) == sides.count({1}) == 1
    }
    return found.pop() if len(found) == 1 else None


def usual_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the usual number of cells in a row, without empty columns at the end."""
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    filled = Counter(max(n for n, cell in enumerate(row, start=1) if cell.strip()) for row in rows)
    (width, count), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    if count < _ALIKE * len(rows):
        return max(filled, key=lambda size: (filled[size], size))
    return max((size for size in filled if size <= width), default=width)


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_lower_alone(name: str, cells: Sequence[str]) -> bool:
    """Return whether a cell is one lower-case word or number, unlike most cells below it."""
    lower = sum(cell[0].isascii() and (cell[0].islower() or cell[0].isdigit()) for cell in cells)
    return name == name.lower() and " " not in name and lower <= _FEW * len(cells)


def _is_key(text: str) -> bool:
    """Return whether a cell looks like a number, a link or a key such as `app.title`."""
    return text.isascii() and " " not in text and not _KEY_SIGNS.isdisjoint(text[:-1])


def _has_texts(cells: Sequence[str]) -> bool:
    """Return whether a column holds texts, not numbers, links, keys or categories."""
    filled = [*filter(None, cells)]
    texts = sum(_has_letters(cell) and not _is_key(cell) for cell in filled)
    differ = len(cells) < _FEWEST or len({*cells}) > _FEW * len(cells)
    return differ and texts >= _TEXTS * len(filled)


def drawn(rows: Sequence[Sequence[str]]) -> str:
    """Return the first rows as a table with numbered columns."""
    shown = [
        [printable(shortened(" ".join(cell.split()), _SHOWN_CHARACTERS)) for cell in row]
        for row in rows[:_SHOWN_ROWS]
    ]
    lines = [[str(n + 1) for n in range(max(map(len, shown), default=0))], *shown]
    widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
    return "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
