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
# Columns that the user named, or their numbers from 1; None if the table should tell.
Given: TypeAlias = "tuple[str | int, str | int] | None"

SAMPLE = 1_000  # rows that decide; up to twice as many are looked at
_CELLS = 20_000  # of all columns together that are identified
_FEWEST = 20  # cells of each column, however many columns there are
_IN_LANGUAGE = 0.55  # mean share of a language in a column's cells
_IN_LANGUAGE_OF_TWO = 0.35  # the same where only two columns hold text
_ODDS = 3.0  # logarithm: 20 to 1
_TEXTS = 0.5  # share of a column's cells that have letters and are no identifiers
_ALIKE = 0.8  # share of the rows with equally many cells, empty ones included
_FEW = 0.1  # share of the cells of a column
_WEIGHT = 0.25  # a note or a category says less than this share of what a sentence does
# Words for the sides in names of columns.
_SIDES = {
    **dict.fromkeys(("source", "src", "input", "original"), 0),
    **dict.fromkeys(("target", "tgt", "trg", "output", "translation", "reference", "ref"), 1),
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[^\W\d_a-z]+")  # of snake_case and camelCase names
_KEY_SIGNS = frozenset("0123456789_/\\#|@:.")
_NAME_WORDS = 4  # at most, in a name of a column
_NAME = re.compile(r"[\w.:/#()\[\] -]*")  # letters and digits, with few other signs
_SHOWN_ROWS, _SHOWN_CHARACTERS = 5, 20
_Item = TypeVar("_Item")


class Columns(NamedTuple):
    """The columns of source and target in a table.

    Attributes:
        places: Their indices.
        has_header: Whether the first row holds names of columns and no pair.
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
    """Return the first of many items and others evenly spread over all: 1,000 to 2,000 of them."""
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
            # A repetition says nothing new.
            cells = [*dict.fromkeys(filter(_has_letters, self.columns[place]))]
            if cells and (found := identified(cells, self.languages)):
                self.shares[place] = found.shares.mean(axis=0)
                self.odds[place] = found.odds.sum()

    def _text_columns(self) -> list[int]:
        """Return the columns that may be source or target: texts that differ from row to row.

        If there are not two of them, the texts may be all the same. If none has a text and the
        sides are no languages, or no column has a text, each column that is filled may hold one.
        Columns with the same cells count once.
        """
        filled = [place for place, cells in enumerate(self.columns) if any(cells)]
        texts = [place for place in filled if _has_texts(self.columns[place])]
        different = [place for place in texts if _differs(self.columns[place])]
        are_languages = all(map(language_of, self.languages))
        found = filled
        if len(different) >= 2:
            found = different
        elif len(texts) >= 2 or (texts and are_languages):
            found = texts
        return sorted({self.columns[place]: place for place in reversed(found)}.values())

    # ---------------------------------------------------------------------- the four steps

    def find(self, given: Given) -> Columns:
        """Find the columns of source and target.

        Args:
            given: Columns that the user named.

        Raises:
            ValueError: There is no such column, or it is not clear which columns are meant. The
                error has the rows, drawn as a table, as its note.
        """
        if given is not None:
            return self._columns_of(given)
        named, texts = self._named(), self.texts
        if places := self._by_content(named):
            decided_by = "content"
        elif named:
            places, decided_by = named, "names"
        elif len(texts) == 2 and not (self.given_names or self._contradicts((texts[0], texts[1]))):
            places, decided_by = (texts[0], texts[1]), "order"
        else:
            raise self._question()
        return Columns(places, self._has_header(places, named), self.width, decided_by)

    def _columns_of(self, given: tuple[str | int, str | int]) -> Columns:
        """Return the columns that the user named, with a warning if their content contradicts."""
        known: dict[Any, int] = {
            folded(name): place for place, name in reversed([*enumerate(self.first)])
        }
        known |= {place + 1: place for place in range(self.width)}
        wanted = [folded(column) if isinstance(column, str) else column for column in given]
        for name, column in zip(given, wanted, strict=True):
            if column not in known:
                names = reprlib.repr(self.first)
                raise self._refusal(f"there is no column {name!r} among {names}; name two of these")
        places, warning = (known[wanted[0]], known[wanted[1]]), ""
        if self._contradicts(places):
            meant, found = " and ".join(self.languages), self._described(places)
            warning = f"the columns named as {meant} look like the opposite ({found})"
        is_by_name = self.given_names is None and any(isinstance(each, str) for each in given)
        has_header = is_by_name or self._has_header(places, None)
        return Columns(places, has_header, self.width, "user", warning)

    def _by_content(self, named: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the only column in the source language, and the only one in the target language.

        Of several columns the named ones win. Columns that say far less than another one, such as
        categories, do not count.
        """
        least = _IN_LANGUAGE if len(self.texts) > 2 else _IN_LANGUAGE_OF_TWO
        sides = [[p for p in self.texts if self.shares[p, side] >= least] for side in (0, 1)]
        if not all(sides):
            return None
        if named is not None and named[0] in sides[0] and named[1] in sides[1]:
            return named
        source, target = map(self._informative, sides)
        is_clear = len(source) == len(target) == 1 and self._odds((source[0], target[0])) > _ODDS
        return (source[0], target[0]) if is_clear else None

    def _odds(self, places: tuple[int, int]) -> float:
        """Return the log odds that two columns are source and target, not target and source."""
        return float(self.odds[places[0]] - self.odds[places[1]])

    def _contradicts(self, places: tuple[int, int]) -> bool:
        return self._odds(places) < -_ODDS

    def _informative(self, places: Sequence[int]) -> list[int]:
        """Leave out columns with far less text than the fullest one, such as categories."""
        said = {p: len("".join({*self.columns[p]})) for p in places}
        return [place for place in places if said[place] >= _WEIGHT * max(said.values())]

    # ---------------------------------------------------------------------- names and headers

    def _named(self) -> tuple[int, int] | None:
        """Return the columns whose names mean source and target, if they hold text."""
        may_be_named = self.texts if len(self.texts) >= 2 else range(self.width)
        names = [name if place in may_be_named else "" for place, name in enumerate(self.first)]
        places = named_sides(names, self.languages)
        is_text = places and self.given_names is None and self._repeats(places)
        return None if is_text else places

    def _repeats(self, places: tuple[int, int]) -> bool:
        """Return whether a cell of the first row is also a text below."""
        return any(self.first[place] in self.columns[place] for place in places)

    def _has_header(self, places: tuple[int, int], named: tuple[int, int] | None) -> bool:
        """Return whether the first row holds names of columns.

        It does if it names the sides, or has a word where all other rows have numbers. Else its two
        cells must be shorter than most below, and no sentences of the two languages.
        """
        if self.given_names is not None or named is not None:
            return self.given_names is None
        if any(map(_is_word_above_numbers, self.first, self.columns)):
            return True
        cells = [[*filter(None, self.columns[place])] for place in places]
        source, target = (self.first[place] for place in places)
        if min(map(len, cells)) < 2 or source == target or self._repeats(places):
            return False
        for name, below in zip((source, target), cells, strict=True):
            # Of a few rows, each may be as short as a name.
            longest = sorted(map(len, below))[len(below) // 2 if len(below) >= _FEWEST else 0]
            if len(name) >= longest or not _NAME.fullmatch(name):
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
        return self._refusal(
            f"it is not clear which columns are {languages} ({self._described(texts[:6])}); name "
            f"them, for example --source-column {texts[0] + 1} --target-column {texts[1] + 1}"
        )

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
    """Return the columns that are named after source and target; None if it is not clear.

    A name is a language, as a code or as a name in English or in one of the two languages; or it
    has the language or a word for the side among its words: "text_en", "src_text", "translation".
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
    """Return the number of cells of most rows, without the empty columns at the end."""
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    filled = Counter(max(n for n, cell in enumerate(row, start=1) if cell.strip()) for row in rows)
    (width, count), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    if count < _ALIKE * len(rows):
        return max(filled, key=lambda size: (filled[size], size))
    return max((size for size in filled if size <= width), default=width)


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_word_above_numbers(name: str, cells: Sequence[str]) -> bool:
    filled = [*filter(None, cells)]
    are_numbers = not any(map(_has_letters, filled)) and any(map(str.isdigit, "".join(filled)))
    return _has_letters(name) and are_numbers


def _is_lower_alone(name: str, cells: Sequence[str]) -> bool:
    """Return whether a cell is one lower-case word or number, unlike most cells below it."""
    lower = sum(cell[0].isascii() and (cell[0].islower() or cell[0].isdigit()) for cell in cells)
    return name == name.lower() and " " not in name and lower <= _FEW * len(cells)


def _is_key(text: str) -> bool:
    """Return whether a cell looks like a number, a link or a key such as `app.title`."""
    return text.isascii() and " " not in text and not _KEY_SIGNS.isdisjoint(text[:-1])


def _has_texts(cells: Sequence[str]) -> bool:
    """Return whether the filled cells of a column are texts, not numbers, links or keys."""
    filled = [*filter(None, cells)]
    texts = sum(_has_letters(cell) and not _is_key(cell) for cell in filled)
    return texts >= _TEXTS * len(filled)


def _differs(cells: Sequence[str]) -> bool:
    """Return whether a column has many different cells, unlike a category."""
    return len(cells) < _FEWEST or len({*cells}) > _FEW * len(cells)


def drawn(rows: Sequence[Sequence[str]]) -> str:
    """Return the first rows as a table with numbered columns."""
    shown = [
        [printable(shortened(" ".join(cell.split()), _SHOWN_CHARACTERS)) for cell in row]
        for row in rows[:_SHOWN_ROWS]
    ]
    lines = [[str(n + 1) for n in range(max(map(len, shown), default=0))], *shown]
    widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
    return "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
