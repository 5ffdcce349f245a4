"""Find the source and target columns of a table by their content, names or order.

A name says what somebody called a column; a language identifier says what is in it. The decision is
made in this order, on rows from all parts of the table:

1. Content: one column is in the source language, another in the target language. If several are
   in the same language, their names decide.
2. Names, if the content does not tell: languages, or words for source and target.
3. Order, if exactly two columns hold text and the format has no names for them.
4. Otherwise the user has to name the columns.

The order must not contradict the content.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import mode
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..errors import RequestError
from ..storage.reading import printable, shortened
from .languages import folded, identified, is_meant, language_of, places_of

Languages: TypeAlias = "tuple[str, str]"  # codes, or other names of source and target
# Columns given by the user, by name or number from 1; None: detect them.
Given: TypeAlias = "tuple[str | int, str | int] | None"

SAMPLE = 1_000  # of a larger table, this many rows are inspected, or up to twice as many
_CELLS = 20_000  # about how many cells, over all columns, have their language identified
_FEWEST = 20  # fewest cells of a column whose language is identified, even beyond _CELLS in all
_IN_LANGUAGE = 0.55  # a column is in a language if its mean `Evidence.shares` is at least this
_IN_LANGUAGE_OF_TWO = 0.35  # the same, if only two columns hold text
_ODDS = 3.0  # log odds (20 to 1) from which columns look swapped
_TEXTS = 0.5  # a column of text: at least this share of its cells has letters and is no link or key
_FEW = 0.1  # a column of categories: at most this share of its cells are distinct
_WEIGHT = 0.25  # least text in a source or target column, relative to the one with most text
# Words in column names that mean source or target.
_SIDES = {
    **dict.fromkeys(("source", "src", "input", "original"), 0),
    **dict.fromkeys(("target", "tgt", "trg", "output", "translation", "reference", "ref"), 1),
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[^\W\d_a-z]+")  # of snake_case and camelCase names
_KEY_SIGNS = frozenset("0123456789_/\\#|@:.")
_NAME_WORDS = 4  # a name with more words is not a column's name
_SHOWN_ROWS, _SHOWN_CHARACTERS = 5, 20
_Item = TypeVar("_Item")


class Columns(NamedTuple):
    """The columns of source and target in a table.

    Attributes:
        places: Their indices.
        header: Their cells in the first row if it holds names instead of a pair; else None.
        width: Number of columns, without empty ones at the end.
        decided_by: "content", "names", "order" or "user".
        warning: Shares of the languages in the columns if they look swapped; else "".
    """

    places: tuple[int, int] = (0, 1)
    header: tuple[str, str] | None = None
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
        has_names: Whether the first row is known to hold names of columns. If not, it still may.
        where: Name of the table, for messages.
    """

    rows: Sequence[Sequence[str]]
    languages: Languages
    has_names: bool
    where: str

    def __post_init__(self) -> None:
        # The usual number of cells, counted with and without empty ones at the end of rows.
        filled = (max(n * bool(cell) for n, cell in enumerate(row, 1)) for row in self.rows if row)
        width = mode([*map(len, self.rows), *filled])
        step = max(1, len(self.rows) * width // max(_CELLS, _FEWEST * width))
        columns = [*zip_longest(*(row[:width] for row in self.rows[::step]), fillvalue="")]
        while columns and not any(columns[-1]):  # an empty column at the end
            columns.pop()
        self.first = [cells[0] for cells in columns]
        self.columns = [cells[1:] or cells for cells in columns]  # a lone row is a pair, no header
        self.shares, self.odds = np.zeros((len(columns), 2)), np.zeros(len(columns))
        self.texts = self._text_columns()
        for place in self.texts:
            # Repeated cells give no new evidence.
            cells = [*dict.fromkeys(filter(_has_letters, self.columns[place]))]
            if cells and (found := identified(cells, self.languages)):
                self.shares[place] = found.shares.mean(axis=0)
                self.odds[place] = found.odds.sum()

    def _text_columns(self) -> list[int]:
        """Return the columns that may be source or target: texts that differ from row to row.

        If no column has such texts, or only one has and the sides are not languages, all columns
        that are not empty may be. Columns with the same cells count once.
        """
        filled = [place for place, cells in enumerate(self.columns) if any(cells)]
        texts = [place for place in filled if _has_texts(self.columns[place])]
        are_enough = len(texts) >= 2 or (texts and all(map(language_of, self.languages)))
        found = texts if are_enough else filled
        return sorted({self.columns[place]: place for place in reversed(found)}.values())

    # ---------------------------------------------------- the four steps of the detection

    def find(self, given: Given) -> Columns:
        """Find the columns of source and target, as given or by content, names or order.

        Args:
            given: Columns that the user named.

        Raises:
            ValueError: There is no such column, or it is not clear which columns are meant. The
                error has the rows, drawn as a table, as its note.
        """
        named, texts = self._named(), self.texts
        if given is not None:
            places, decided_by = self._columns_of(given), "user"
            named = places if any(isinstance(column, str) for column in given) else None
        elif by_content := self._by_content(named):
            places, decided_by = by_content, "content"
        elif named:
            places, decided_by = named, "names"
        elif len(texts) == 2 and not (self.has_names or self._contradicts((texts[0], texts[1]))):
            places, decided_by = (texts[0], texts[1]), "order"
        else:
            raise self._question()
        has_header = not self.has_names and (named or self._has_header(places))
        header = (self.first[places[0]], self.first[places[1]]) if has_header else None
        warning = self._described(places) if self._contradicts(places) else ""
        return Columns(places, header, len(self.columns), decided_by, warning)

    def _columns_of(self, given: tuple[str | int, str | int]) -> tuple[int, int]:
        """Return the indices of the columns that the user named."""
        width = len(self.columns)
        known = [*map(str, range(1, width + 1)), *map(folded, self.first)]
        for column in given:
            if folded(str(column)) not in known:
                names = reprlib.repr(self.first)
                raise self._refusal(f"there is no column {column!r}; name two of {names}")
        source, target = (known.index(folded(str(column))) % width for column in given)
        return source, target

    def _by_content(self, named: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the only column in the source language, and the only one in the target language.

        If there are several, take those with matching names. Columns with far less text than
        another one, such as categories, do not count.
        """
        least = _IN_LANGUAGE if len(self.texts) > 2 else _IN_LANGUAGE_OF_TWO
        sides = [[p for p in self.texts if self.shares[p, side] >= least] for side in (0, 1)]
        if named is not None and named[0] in sides[0] and named[1] in sides[1]:
            return named
        sizes = [len("".join({*cells})) for cells in self.columns]
        for side in sides:
            most = max((sizes[place] for place in side), default=0)
            side[:] = [place for place in side if sizes[place] >= _WEIGHT * most]
        if [*map(len, sides)] != [1, 1]:
            return None
        places = sides[0][0], sides[1][0]
        return places if self._contradicts((places[1], places[0])) else None

    def _contradicts(self, places: tuple[int, int]) -> bool:
        """Return whether the languages of the source and target columns look swapped."""
        return float(self.odds[places[0]] - self.odds[places[1]]) < -_ODDS

    # ---------------------------------------------------------------------- names and headers

    def _named(self) -> tuple[int, int] | None:
        """Return the columns whose names mean source and target, if they hold text."""
        may_be_named = self.texts if len(self.texts) >= 2 else range(len(self.first))
        names = [name if place in may_be_named else "" for place, name in enumerate(self.first)]
        places = named_sides(names, self.languages)
        return None if places and self._repeats(places) else places

    def _repeats(self, places: tuple[int, int]) -> bool:
        """Return whether a cell of the first row occurs again in its column."""
        return any(self.first[place] in self.columns[place] for place in places)

    def _has_header(self, places: tuple[int, int]) -> bool:
        """Return whether the first row is a header, even if it does not name the languages.

        It is if it has a word above a column of numbers, or if its two cells are single words in
        lower case, shorter than most cells below. A mistake costs one pair.
        """
        for name, all_below in zip(self.first, map("".join, self.columns), strict=True):
            has_numbers = any(map(str.isdigit, all_below)) and not _has_letters(all_below)
            if has_numbers and _has_letters(name):
                return True
        words = (_is_short_word(self.first[place], self.columns[place]) for place in places)
        return all(words) and not self._repeats(places)

    # ---------------------------------------------------------------------- messages

    def _question(self) -> RequestError:
        """Return the error that asks the user to name the columns."""
        languages, texts = " and ".join(self.languages), self.texts
        if len(texts) < 2:
            names = reprlib.repr(self.first)
            return self._refusal(f"there are no two columns of text among {names}; name two")
        problem = f"it is not clear which columns are {languages} ({self._described(texts[:6])})"
        example = f"--source-column {texts[0] + 1} --target-column {texts[1] + 1}"
        return self._refusal(f"{problem}; name them, for example {example}")

    def _refusal(self, problem: str) -> RequestError:
        """Return an error with a note that shows the first rows as a table."""
        error = RequestError(f"{self.where}: {problem}.")
        error.add_note(drawn(self.rows))
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
    if any(by_name):
        is_clear = [*map(len, by_name)] == [1, 1] and by_name[0] != by_name[1]
        return (by_name[0][0], by_name[1][0]) if is_clear else None
    words = [[*map(folded, _WORDS.findall(name))] for name in names]
    words = [each if len(each) <= _NAME_WORDS else [] for each in words]
    by_language = [
        {side for side in (0, 1) for word in each if is_meant(languages[side], word)}
        for each in words
    ]
    by_side = [{_SIDES[word] for word in each if word in _SIDES} for each in words]
    for sides in (by_language, by_side):
        if sides.count({0}) == sides.count({1}) == 1:
            return sides.index({0}), sides.index({1})
    return None


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_short_word(text: str, cells: Sequence[str]) -> bool:
    """Return whether a text is one lower-case word or number, shorter than most cells below it."""
    sizes = sorted(len(cell) for cell in cells if cell) or [0]
    return text == text.lower() and " " not in text and len(text) < sizes[len(sizes) // 4]


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
    """Format the first rows as a table in text, with numbered columns."""
    shown = [
        [printable(shortened(" ".join(cell.split()), _SHOWN_CHARACTERS)) for cell in row]
        for row in rows[:_SHOWN_ROWS]
    ]
    lines = [[str(n + 1) for n in range(max(map(len, shown), default=0))], *shown]
    widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
    return "\n".join(" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
