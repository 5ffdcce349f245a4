"""Which columns of a table are the two sides of its pairs, judged from its first rows together.

A row alone says little: `1.2, Hi, Hallo, en, de` is a pair with its score and languages, or a
header with odd names. Each column is told by what most of its cells are, and a header is a row of
names above columns that hold something else. What stays unclear is refused, with the rows as seen.
"""

from __future__ import annotations

import itertools
import re
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import RequestError
from ..storage.reading import printable, shortened
from .checked_pairs import Given, Languages, MalformedError, OtherLanguagesError
from .language_names import folded, is_meant, language_of, places_of, script_of, tag_of

ROWS = 50  # that are looked at
_TITLES = 10  # rows above which a header may be
# What cells may be, besides text and names of languages.
_SHAPES = {
    "number": re.compile(r"[-+]?(\d[\d.,' \u00a0]*)?\d(e[-+]?\d+)?\s?%?", re.IGNORECASE),
    "date": re.compile(r"(\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{2,4})?[T ]?(\d\d?:\d\d\S*)?"),
    "link": re.compile(r"(\w+://|www\.)\S+|\S+@\S+\.\w+", re.IGNORECASE),
    "identifier": re.compile(r"(?=.*[\d_/\\#|])[!-~]+"),  # a word of ASCII with a digit or a sign
}
# Words for the sides in headers of public corpora.
_SIDES = {
    **dict.fromkeys(("source", "src", "source text", "source_text", "input"), 0),
    **dict.fromkeys(("target", "trg", "tgt", "target text", "target_text", "output", "ref"), 1),
    **dict.fromkeys(("reference", "translation", "target segment"), 1),
    "source segment": 0,  # of translators' programs
}
_WORD = re.compile(r"[^\W\d_]+")
# In names of columns that say the languages of a row; and the words of such a name.
SAYS_LANGUAGES = re.compile("lang|direction|^(lp|pair)$", re.IGNORECASE)
_NAME_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
# A region or a script after a code, as in en-US and deu_Latn: some are codes of other languages.
_REGION = re.compile(r"(?<![A-Za-z])([a-z]{2,3})([-_]([A-Z]{2}|[A-Z][a-z]{3}))+(?![A-Za-z])")
_LABEL_WORDS = 2  # at most, in a name of a column that names no language
_HEADER_WORDS = 4  # at most, in one that names it among words of its own: English (United States)
# As short as a code, and with no sign beside it: among others a word of a text, as in `no way`.
_LOOSE = re.compile(r"(?<!\S)(?<![-:/|]\s)[A-Za-z][a-z]{1,2}(?=[\s,.;!?]|$)(?!\s[-:/|(])")
_FEWEST_SHARE = 0.4  # of the rows that must have several cells
_MOST_SHARE = 0.8  # of the cells of a column that must be alike
_FEW = 1 - _MOST_SHARE
_SHOWN_ROWS, _SHOWN_CHARACTERS = 5, 20
_Told = tuple[tuple[str, str], ...]  # names of columns, and what a row says there of its languages


class Layout(NamedTuple):
    """Where the pairs of a table are.

    Attributes:
        places: Indices of the columns of source and target.
        skipped: Rows before the first pair: a title, empty rows, the header.
        width: Cells in most rows, without empty ones at the end.
        written: The same with empty ones.
        header: Its names, none without one.
        told: Columns that say the languages of a row, and their names.
        may_have_header: Whether the first row is a pair only because its columns are known by
            number: it looks like their names.
        is_turned: Whether the user named the columns in the other order than all rows say.
    """

    places: tuple[int, int]
    skipped: int
    width: int
    written: int
    header: list[str]
    told: dict[int, str]
    may_have_header: bool = False
    is_turned: bool = False

    def goes_on(self, row: Sequence[str]) -> bool:
        """Return whether the later side begins with a space that the earlier does not end with."""
        first, second = sorted(self.places)
        cells = [*row, *[""] * self.written]
        return cells[second].startswith(" ") and not cells[first].endswith(" ")

    def sides(self, row: Sequence[str], languages: Languages) -> tuple[str, str]:
        """Return source and target of a row; see `in_order`."""
        told = tuple((name, row[place]) for place, name in self.told.items())
        sides = row[self.places[0]], row[self.places[1]]
        return in_order(sides, told, languages[::-1] if self.is_turned else languages)


def find_sides(
    rows: Sequence[Sequence[str]],
    languages: Languages,
    given: Given,
    where: str,
    options: str = "the two columns (--source-column, --target-column)",
    *,
    are_keys: bool = False,
) -> Layout:
    """Find the columns of source and target, and the first row that holds a pair.

    Args:
        rows: First rows of the table.
        languages: Languages of source and target.
        given: Columns that the user named, or their numbers from 1.
        where: Name of the table, for messages.
        options: What a message tells the user to name.
        are_keys: Whether `given` is what names of keys tell, and no user.

    Raises:
        ValueError: There is no such column, or it is not clear which columns hold the sides. The
            error has the rows, drawn as a table, as its note.
    """
    try:
        table = _Table(rows, languages, given, where)
        layout = table.layout()
        if are_keys:
            table.check_kinds(layout.places)
        return layout
    except _Unclear as reason:
        error = RequestError(
            f"{where}: {reason}. Name {options}, by number from 1 or as the header does."
        )
        error.add_note(drawn(rows))
        raise error from None


def named_sides(names: Sequence[str], languages: Languages) -> tuple[int, int] | None:
    """Return the columns that are named after the sides; None if no two are, or several.

    A side's name is its language, as the user writes it, as a code or as a name; or else it is one
    of the words for source and target in public corpora; or it has its language among words that
    both names have, as in `text_en`.
    """
    if by_language := _named_by_language(names, languages):
        return by_language
    by_word, among = named_by_word(names), _named_among(names, languages)
    return None if by_word and among else by_word or among


def _named_by_language(names: Sequence[str], languages: Languages) -> tuple[int, int] | None:
    sides = [places_of(language, names) for language in languages]
    if [*map(len, sides)] == [1, 1] and sides[0] != sides[1]:
        return sides[0][0], sides[1][0]
    return None


def _named_among(names: Sequence[str], languages: Languages) -> tuple[int, int] | None:
    codes = {*map(language_of, languages)} - {None}
    # By header with one word left out, such as "text _": the language of that word in each column.
    among: dict[tuple[str, ...], list[str | None]] = {}
    alone: list[str | None] = [None] * len(names)  # the languages of headers of a few words
    for place, name in enumerate(names):
        words = [folded(name)] if language_of(name) in codes else _words(name, codes)
        words = [word for word in words if word not in _SIDES]
        loose = {*map(folded, _LOOSE.findall(name))} if len(words) > 1 else set()
        named = {_code(word, languages) for word in words if word not in loose} & {*languages}
        if len(named) == 1 and len(words) <= _HEADER_WORDS and not _is_ended(name):
            alone[place] = named.pop()
        for n, word in enumerate(words):
            others = (*words[:n], "", *words[n + 1 :])
            named_there = among.setdefault(others, [None] * len(names))
            named_there[place] = _code(word, languages)
    found = {_two_of(codes, *languages) for codes in among.values()} - {None}
    found = found or {_two_of(alone, *languages)}
    return found.pop() if len(found) == 1 else None


def named_by_word(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns that words for source and target name, whatever their languages are."""
    return _two_of([_SIDES.get(folded(name)) for name in names], 0, 1)


def sides_in_names(names: Sequence[str]) -> tuple[int, int] | None:
    """Return which of two names is the source's, by words that only one of them has."""
    words = [Counter(_NAME_WORD.findall(name)) for name in names]
    return _two_of([_sides_in(words[0] - words[1]), _sides_in(words[1] - words[0])], {0}, {1})


def end_in_others(names: Iterable[str], languages: Languages) -> bool:
    """Return whether names end in the codes of two languages, and one is not of the pair."""
    ends = [name.rpartition(".")[2] for name in names]
    codes = {None if folded(end) in _SIDES else _code(end, languages) for end in ends}
    are_languages = len(codes) == 2 and all([*codes, *map(language_of, languages)])
    return are_languages and codes != {*languages}


def _sides_in(words: Iterable[str]) -> set[int]:
    """Return the sides that words begin to name."""
    return {side for key, side in _SIDES.items() for word in words if word.lower().startswith(key)}


def _two_of(found: Sequence[object], source: object, target: object) -> tuple[int, int] | None:
    """Return the indices of source and target; None unless each occurs exactly once."""
    if found.count(source) == found.count(target) == 1:
        return found.index(source), found.index(target)
    return None


def in_order(sides: tuple[Any, Any], told: _Told, languages: Languages) -> tuple[Any, Any]:
    """Return the sides of a row, turned if it says that they are in the other direction.

    Args:
        sides: Its texts.
        told: What it says of its languages: names of columns, and its cells there.
        languages: Languages of source and target.

    Raises:
        OtherLanguagesError: They are in other languages.
        MalformedError: It names one language, perhaps not of a side, which is not of the two.
    """
    if not (steps := _steps(told, languages)):
        kind = MalformedError if steps is None else OtherLanguagesError
        raise kind(f"its languages are {reprlib.repr([text for _, text in told])}")
    return sides[:: steps[0]]


@lru_cache(maxsize=1000)
def _steps(told: _Told, languages: Languages) -> Sequence[int] | None:
    """Return 1 if a row may be in the direction of `languages`, and -1 if it may be in the other.

    Both if `told` does not say; none for other languages, or if two columns contradict each other;
    None if it names another one, but not the side that has it. Where the sides are no languages,
    such as questions and answers, only their own names say something.
    """
    are_languages = any(map(language_of, languages))
    said: set[tuple[int, str | None]] = set()  # numbers of sides, and their languages
    alone: list[str | None] = []
    for name, text in told:
        codes, sides = _languages_in(text, languages), _sides_in(_NAME_WORD.findall(name))
        if not are_languages and not {*languages} & {*codes}:
            continue
        if {*languages} <= {*codes}:
            said |= {*enumerate(code for code in codes if code in languages)}
        elif any(codes) and len(sides) == 1:  # as a whole, or by its first language
            said.add((sides.pop(), _code(text, languages) or next(filter(None, codes))))
        elif None not in codes and (len(codes) > 1 or not name or SAYS_LANGUAGES.search(name)):
            alone += codes  # single ones below other names may be countries, or a no
    if not said and len(alone) != 2:
        return (1, -1) if {*alone} <= {*languages} else None
    said = said or {*enumerate(alone)}
    return [step for step in (1, -1) if all(languages[::step][n] == code for n, code in said)]


def _code(word: str, languages: Languages) -> str | None:
    """Return the language that a word names: of the two as the user writes it, or its code."""
    meant = [language for language in languages if is_meant(language, word)]
    meant.sort(key=lambda language: tag_of(language) != tag_of(word))
    return meant[0] if meant else language_of(word)


def _languages_in(text: str, languages: Languages) -> list[str | None]:
    """Return each language that a text names, as `_code` does, once, and None for other words."""
    return [*dict.fromkeys(_code(word, languages) for word in _words(text))]


def _words(text: str, codes: Container[str | None] | None = None) -> list[str]:
    """Return the words of a text, folded; a code, of these or any, with its region is one."""
    found = ((tag, language_of(tag[1])) for tag in _REGION.finditer(text))
    tags = [tag for tag, code in found if (code in codes if codes else code)]
    ends = [0, *(end for tag in tags for end in tag.span()), len(text)]
    parts = [text[begin:end] for begin, end in itertools.pairwise(ends)]
    words = ([part] if n % 2 else _WORD.findall(part) for n, part in enumerate(parts))
    return [*map(folded, itertools.chain.from_iterable(words))]


class _Unclear(Exception):
    """Why it is not clear which columns hold the sides."""


class _Table:
    """The first rows of a table: titles above it, perhaps a header, and the body."""

    def __init__(
        self, rows: Sequence[Sequence[str]], languages: Languages, given: Given, name: str
    ) -> None:
        self.languages, self.given, self.name = languages, given, name.rpartition("/")[2]
        self.told: dict[int, str] = {}
        whole = [[cell.strip() for cell in row] for row in rows]
        for row in whole:
            while row and not row[-1]:
                row.pop()
        # Titles above a table fill fewer cells than its columns, or stand above its header.
        full = [n for n, row in enumerate(whole) if _filled(row) > 1]
        if not full:
            raise _Unclear("no row has two cells with text")
        widths = Counter(len(whole[n]) for n in full)
        self.width = max(widths, key=lambda width: (widths[width], width))
        # With empty cells at the end, if nearly all rows are written alike.
        written, count = Counter(len(rows[n]) for n in full).most_common(1)[0]
        self.written = written if count >= _MOST_SHARE * len(full) else self.width
        several = sum(len(row) > 1 for row in rows)
        if given is None and several < sum(map(any, whole)) * _FEWEST_SHARE:
            raise _Unclear(f"only {several} of its first rows have several cells")
        self.rows = [whole[n] for n in full]
        for n in (*range(len(full[:_TITLES])), 0):
            self.first, self.top, self.body = full[n], self.rows[n], self.rows[n + 1 :]
            self.top_width = len(rows[full[n]])
            typed = {column for column in given or () if isinstance(column, str)}
            is_named = typed <= {*self.top} if typed else named_sides(self._names(), languages)
            # Source and target may stand above their languages, which say more.
            below = [len(places_of(language, (self.body or [[]])[0])) for language in languages]
            if is_named and (given or below != [1, 1]):
                break

    def layout(self) -> Layout:
        """Return the sides, which the user may have named."""
        given = self.given
        if given is not None:
            places = self._given_place(given[0]), self._given_place(given[1])
            has_header = str in map(type, given) or self._has_header()
        elif (named := self._named_sides()) is not None:
            places, has_header = named, True
        else:
            has_header = self._is_unlike_the_body() or self._is_labels()
            places = self._sides_by_content(has_header)
        header = self.top if has_header else []
        if header and self.top_width < self.width and int not in map(type, given or ()):
            raise _Unclear(
                f"its header has {self.top_width} cells, most rows have {self.width}, so its names "
                "do not tell the columns"
            )
        width = max(self.width, len(header), *(place + 1 for place in places))
        written = max(self.written, width)
        is_turned = False
        if given is not None:
            names = [name for place in places for name in header[place : place + 1]]
            by_word = named_sides(names, self.languages) == named_by_word(names)
            self.told = self._told(places, header) if by_word else {}
            said = {steps[0] for steps in map(self._steps, self.body) if len(steps) == 1}
            is_turned = said == {-1}
        may_have = not has_header and self._is_labels()
        skipped = self.first + has_header
        return Layout(places, skipped, width, written, header, self.told, may_have, is_turned)

    def check_kinds(self, places: tuple[int, int]) -> None:
        """Refuse sides of which one holds no texts, if another column does."""
        kinds = [self._kind(place) for place in range(self.width)]
        source, target = (kinds[place] for place in places)
        others = [kind for place, kind in enumerate(kinds) if place not in places]
        if source != target and {source, target} & {"constant", *_SHAPES} and "text" in others:
            raise _unclear(kinds)

    def _has_header(self) -> bool:
        try:
            return self._named_sides() is not None or self._is_unlike_the_body()
        except _Unclear:  # a header, but of other languages or of one side
            return True

    def _given_place(self, column: str | int) -> int:
        if isinstance(column, int):
            return column - 1
        if self.top.count(column) != 1:
            raise _Unclear(f"no single column is named {column!r} among {reprlib.repr(self.top)}")
        return self.top.index(column)

    # ------------------------------------------------------------------------------ the header

    def _named_sides(self) -> tuple[int, int] | None:
        """Return the columns that the first row names after the sides; None if it names none."""
        names = self._names()
        if sides := _named_by_language(names, self.languages):
            return sides
        sides, among = named_by_word(names), _named_among(names, self.languages)
        if sides and among:
            raise _Unclear("its header has words for the sides, and languages in other names")
        if sides:  # which say less than languages in the rows
            return self._ordered(sides, self.top)
        if among:
            return among
        languages = [_code(name, self.languages) for name in names]
        named = {code for code in languages if code is not None}
        if len(named) > 1 and len(self.top) == len(named) and self._other_languages(named):
            seen = " and ".join(sorted(named))
            raise _Unclear(f"its header names {seen}, but the pair is {'-'.join(self.languages)}")
        half = [place for place, code in enumerate(languages) if code in self.languages]
        if len(half) == 1 and (self._is_unlike(half[0]) or self._is_short(half[0])):
            raise _Unclear(f"its first row names {names[half[0]]!r}, but not the other side")
        return None

    def _names(self) -> list[str]:
        """Return the first row's cells that may be names of their columns.

        If two columns hold texts, names above others name no side: numbers called `id` or `No` are
        not in Indonesian or Norwegian.
        """
        kinds = [self._kind(place) for place in range(max(self.width, len(self.top)))]
        may_be_sides = {"text", "empty"} if kinds.count("text") > 1 else {*kinds}
        return [
            "" if self._holds_name(place) or kinds[place] not in may_be_sides else name
            for place, name in enumerate(self.top)
        ]

    def _other_languages(self, named: set[str]) -> bool:
        """Return whether a first row names other languages than the pair's, as a header would.

        A pair of names in a list of languages, such as `French, Italian`, looks the same: then the
        rows below name languages too.
        """
        below = [cell for row in self.body for cell in row]
        names = sum(language_of(cell) is not None for cell in below)
        return named != set(self.languages) and names < len(below) / 2

    def _holds_name(self, place: int) -> bool:
        """Return whether a column repeats its first cell, as one with a language's code does."""
        cells = [row[place] for row in self.rows if place < len(row)]
        others = len(cells) - 1
        return cells.count(self.top[place]) - 1 > others * _FEW

    def _is_unlike_the_body(self) -> bool:
        """Return whether a cell of the first row is of another kind than the column under it."""
        return any(map(self._is_unlike, range(min(len(self.top), self.width))))

    def _is_unlike(self, place: int) -> bool:
        kind, cell = self._kind(place), self.top[place]
        if kind == "language":
            return bool(cell) and not self._names_languages(cell)
        # Words above words with digits say little of a table that has only the two sides.
        telling = kind in _SHAPES and (kind != "identifier" or self.width > 2)
        return bool(cell) and telling and _shape(cell) not in (kind, "number")

    def _is_short(self, place: int) -> bool:
        """Return whether a cell of the first row is half as long as the texts under it."""
        cells = self._column(place)
        length = 2 * len(self.top[place]) * len(cells)
        return self._kind(place) == "text" and length <= sum(map(len, cells))

    def _is_labels(self) -> bool:
        """Return whether a first row is of names, and what is below it is not."""
        kinds = [self._kind(place) for place in range(self.width)]
        texts = [place for place, kind in enumerate(kinds) if kind == "text"]
        if any(map(self._is_like_the_body, range(len(self.top)), kinds)):
            return False
        return len(self.top) > max(texts, default=0) > 0 and all(
            _may_be_name(self.top[place])
            and sum(map(_may_be_name, cells := self._column(place))) <= _FEW * len(cells)
            for place in texts
        )

    def _is_like_the_body(self, place: int, kind: str) -> bool:
        """Return whether a first cell is a number or the like, as all others of its column are."""
        cell = self.top[place]
        counts = all(map(_has_digit, self._column(place)))
        same = kind in _SHAPES and _shape(cell) == kind
        return bool(cell) and same and (_has_digit(cell) or not counts)

    # ------------------------------------------------------------------------------ the columns

    def _column(self, place: int, *, with_top: bool = False) -> list[str]:
        rows = [self.top, *self.body] if with_top else self.body
        return [row[place] for row in rows if place < len(row) and row[place]]

    def _kind(self, place: int, *, with_top: bool = False) -> str:
        cells = self._column(place, with_top=with_top)
        rows = len(self.body) + with_top
        if not cells or len(cells) < rows / 2:
            return "empty"
        if len({*cells}) <= len(cells) / 2 and all(map(self._names_languages, {*cells})):
            return "language"
        if len(cells) >= 3 and len(set(cells)) == 1:
            return "constant"
        shape, count = Counter(map(_shape, cells)).most_common(1)[0]
        if count < _MOST_SHARE * len(cells):
            return "text"
        return shape

    def _names_languages(self, cell: str) -> bool:
        """Return whether a cell names one language or two, and says no more."""
        return None not in (codes := _languages_in(cell, self.languages)) and len(codes) in (1, 2)

    def _sides_by_content(self, has_header: bool) -> tuple[int, int]:
        with_top = not has_header
        kinds = [self._kind(place, with_top=with_top) for place in range(self.width)]
        alike = kinds[0] == kinds[-1] != "language" or {*kinds} <= {"text", "constant"}
        if self.width == 2 and (alike or not self.body):
            places = [0, 1]
        else:
            places = [place for place, kind in enumerate(kinds) if kind == "text"]
        # A licence or an attribution behind the sides begins alike in all rows.
        places[2:] = [place for place in places[2:] if not self._begins_alike(place)]
        if len(places) != 2:
            raise _unclear(kinds)
        if has_header:
            header = [self.top[place] for place in places if place < len(self.top)]
            if len(header) == 2 and (sides := sides_in_names(header)):
                return self._ordered((places[sides[0]], places[sides[1]]), self.top)
            names = " and ".join(map(repr, header))
            raise _Unclear(f"its header has {names}, and it is not clear which is the source")
        return self._ordered((places[0], places[1]), [])

    def _begins_alike(self, place: int) -> bool:
        cells = self._column(place)
        return len(cells) > 2 and len({cell[:8] for cell in cells}) == 1

    def _told(self, places: tuple[int, int], header: Sequence[str]) -> dict[int, str]:
        """Return the columns beside the sides that say the languages of a row, and their names."""
        names = [*header, *[""] * self.width]
        told = {
            place: names[place]
            for place in range(self.width)
            if SAYS_LANGUAGES.search(names[place]) or self._kind(place) == "language"
            if place not in places
        }
        by_side = any(_sides_in(_NAME_WORD.findall(name)) for name in told.values())
        if self.given is not None and not by_side:  # one language may be that of an original
            rows = [" ".join(row[place] for place in told if row[place:]) for row in self.body]
            named = [{*_languages_in(row, self.languages)} for row in rows]
            return told if all(len(codes) > 1 for codes in named) else {}
        cells = {cell for place in told for cell in self._column(place)}
        codes = {code for cell in cells for code in _languages_in(cell, self.languages)}
        # Perhaps a word that is also a code, such as `new` in all rows.
        is_word = not header and len(cells) == len(codes) == 1 and not codes & {*self.languages}
        return {} if is_word else told

    def _steps(self, row: Sequence[str]) -> Sequence[int]:
        """Return in which directions a row may be."""
        told = tuple((name, row[place]) for place, name in self.told.items() if row[place:])
        return _steps(told, self.languages) or ()

    def _ordered(self, places: tuple[int, int], header: Sequence[str]) -> tuple[int, int]:
        """Return source and target in the order of scripts, unless the rows say their languages."""
        self.told = self._told(places, header)
        if any(len(self._steps(row)) < 2 for row in self.body):
            return places
        texts = [" ".join(self._column(place, with_top=True)) for place in places]
        if are_turned(texts, self.languages):
            return places[::-1]
        turned = [*self.languages[::-1]]
        named = [code for code in _languages_in(self.name, self.languages) if code in turned]
        if not (header or are_turned(texts[::-1], self.languages)) and named == turned:
            raise _Unclear(
                f"its name has {' before '.join(map(str, named))}, but no column says its language"
            )
        return places


def _unclear(kinds: Sequence[str]) -> _Unclear:
    seen = ", ".join(f"{place} {kind}" for place, kind in enumerate(kinds, start=1))
    return _Unclear(f"it is not clear which columns are the sides; seen: {seen}")


def _filled(row: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _has_digit(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def _may_be_name(cell: str) -> bool:
    """Return whether a cell is a word or two, as names of columns are, and no sentence."""
    return len(cell.split()) <= _LABEL_WORDS and not _is_ended(cell)


def _is_ended(cell: str) -> bool:
    """Return whether a text ends as sentences do, with a sign that may stand in brackets."""
    return unicodedata.category(cell.rstrip(")]")[-1:] or " ") in ("Po", "Pf", "Pi")


def _shape(cell: str) -> str:
    return next((kind for kind, shape in _SHAPES.items() if shape.fullmatch(cell)), "text")


def are_turned(texts: Sequence[str], languages: Languages) -> bool:
    """Return whether most letters of two texts are in the scripts of each other's languages."""
    first, second = map(script_of, languages)
    return not first & second and _script(texts[0]) in second and _script(texts[1]) in first


def is_in_another_script(text: str, language: str) -> bool:
    """Return whether a text has letters, but none in a script of its language, if one is known."""
    known, found = script_of(language), _scripts(text)
    return bool(known and found) and not known & found.keys()


def _script(text: str) -> str | None:
    """Return the script of most letters."""
    return next((script for script, _ in _scripts(text).most_common(1)), None)


def _scripts(text: str) -> Counter[str]:
    """Count the letters of each script: the first word of their names in Unicode."""
    return Counter(unicodedata.name(sign, "?").split()[0] for sign in text if sign.isalpha())


def drawn(rows: Sequence[Sequence[str]]) -> str:
    """Draw the first rows of a table, with the columns numbered from 1."""
    shown = [list(row) for row in rows if _filled(row)][:_SHOWN_ROWS]
    width = max(map(len, shown), default=0)
    lines = [[*map(str, range(1, width + 1))], *(row + [""] * (width - len(row)) for row in shown)]
    whole = [[printable(" ".join(cell.split())) for cell in line] for line in lines]
    texts = [[shortened(cell, _SHOWN_CHARACTERS) for cell in line] for line in whole]
    widths = [max(len(line[place]) for line in texts) for place in range(width)]
    return "\n".join(
        " | ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in texts
    )
