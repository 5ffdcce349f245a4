"""Sentence pairs generated from CLDR through Babel: the embedded default data.

A pair is a value, or several in a list or a note, written in two languages: "3 hours ago",
"12 kilometers per hour, March 3, 2025, and German (Switzerland)". language.py writes one value in
one language; this module draws values, combines them, and keeps the splits apart. The pairs depend
only on the arguments and the version of Babel.

A source has exactly one target. Styles in which the same source has different targets are found by
probing and left out.

Splits are disjoint by construction, for every seed and count:

- The checksum of a source text decides its split, so that no source is in two splits.
- "test_values" and "validation" have days, times of day and amounts (an amount with its unit:
  3 hours ago) that appear nowhere in "train"; every name, unit and pattern does appear there. Names
  have no value to hold out: pairs of names only are unseen combinations of names.
- "test_combinations" has the values of "train", but combines kinds (such as currency and time) that
  no pair of another split combines, in any form.
"""

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import combinations, pairwise, product
from typing import NamedTuple
from zlib import crc32

from ...errors import RequestError
from ...ranges import Range
from .language import Language, Number, Value

SPLITS = ("train", "validation", "test_values", "test_combinations")
KINDS = (
    "date",
    "time",
    "datetime",
    "interval",
    "relative",
    "duration",
    "number",
    "percent",
    "compact",
    "currency",
    "unit",
    "rate",
    "territory",
    "language",
)
# Each kind is combined with about a seventh of the others in "test_combinations" only.
HELD_OUT_COMBINATIONS = frozenset(
    frozenset((KINDS[i], KINDS[j]))
    for i, j in combinations(range(len(KINDS)), 2)
    if (i + j) % 7 == 3
)

# Kinds with many words to learn are drawn twice as often.
_WEIGHTED_KINDS = (*KINDS, "currency", "unit", "territory", "language")
# Each shape: the values in each member of a text, 2 for "A (B)". Several members make a list.
_SHAPES = (
    *[(1,)] * 6,
    *[(2,)] * 4,
    *[(1, 1)] * 5,
    *[(1, 1, 1)] * 3,
    (2, 1),
    (1, 2),
    (2, 2),
    (1, 1, 2),
)
_MAX_CHARACTERS = 160
# More draws in a row without a new pair mean that there are hardly any left.
_MAX_DRAWS = 50_000


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: text in the source language.
        target: text in the target language.
        kinds: kind of each value in the text, in the order of the text; members of `KINDS`.
        form: "plain" (one value), "note" ("A (B)"), "list" ("A, B, and C", "A or B") or "nested"
            (a list with a note).
        split: member of `SPLITS`.
    """

    source: str
    target: str
    kinds: tuple[str, ...]
    form: str
    split: str


def generate_pairs(
    source_language: str, target_language: str, *, split: str = "train", count: int, seed: int = 0
) -> Iterator[Pair]:
    """Generate distinct pairs, the same ones for the same arguments.

    A smaller `count` gives the beginning of the same stream; another seed gives another stream of
    the same split.

    Args:
        source_language: locale that CLDR has, such as "en", "pt_BR" or "zh-Hant".
        target_language: another one.
        split: "train", "validation", "test_values" or "test_combinations".
        count: number of pairs.
        seed: seed of the stream.

    Returns:
        Iterator over `count` pairs, no two with the same source. It raises ValueError if
        the languages have fewer than `count` distinct pairs in this split.

    Raises:
        ValueError: unknown language or split, the same language twice, negative count, two
            languages that share too few words in CLDR, or Babel is not installed.
    """
    if split not in SPLITS:
        raise RequestError(f"got split {split!r}; allowed are {', '.join(SPLITS)}; choose one.")
    Range(0).check(count=count)
    source, target = _parse_language(source_language), _parse_language(target_language)
    if source == target:
        raise RequestError(
            f"got {source_language!r} as source and {target_language!r} as target; allowed are two "
            "different languages; change one."
        )
    return _generate(_grammar(source, target), split, count, random.Random(f"{seed} {split}"))


def _parse_language(code: str) -> str:
    """Return Babel's identifier of a locale, however the user writes it."""
    try:
        from babel import Locale, UnknownLocaleError
        from babel.localedata import locale_identifiers
    except ImportError as error:
        raise RequestError(
            "Babel, which has the data that pairs are generated from, is not installed; "
            'run: pip install "babel>=2.18".'
        ) from error
    try:
        return str(Locale.parse(str(code).replace("-", "_")))
    except (UnknownLocaleError, ValueError) as error:
        raise RequestError(
            f"got language {code!r}; allowed are CLDR's {len(locale_identifiers())} locales, such "
            "as en, de, zh, ja, ar or pt_BR; `pybabel --list-locales` names them all."
        ) from error


class _Grammar(NamedTuple):
    """What two languages can both say.

    Attributes:
        source: language of the sources.
        target: language of the targets.
        styles: for each kind, the names of its styles.
        forms: names of the patterns that both languages join texts with.
    """

    source: Language
    target: Language
    styles: dict[str, tuple[str, ...]]
    forms: frozenset[str]


@lru_cache(maxsize=8)
def _grammar(source_code: str, target_code: str) -> _Grammar:
    source, target = Language(source_code), Language(target_code)
    styles: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in _unambiguous_styles(source, target):
        styles[name.partition("/")[0]].append(name)
    found = {kind: tuple(names) for kind, names in styles.items() if names}
    # These kinds can do without words, and alone are not a translation.
    if not found.keys() - {"number", "percent", "date", "time", "interval"}:
        raise RequestError(
            f"got {source_code!r} and {target_code!r}, which have no words in common in CLDR; "
            "allowed are languages whose locales hold names and units; choose another."
        )
    return _Grammar(source, target, found, frozenset(source.forms.keys() & target.forms.keys()))


def _unambiguous_styles(source: Language, target: Language) -> list[str]:
    """Return the shared styles in which the source text determines the target text.

    If two currencies (units, territories ...) look alike, both are dropped: neither reading is
    right. In other cases the first style stays.
    """
    shared = {
        name: style.values
        for name, style in source.styles.items()
        if name in target.styles and target.styles[name].values == style.values
    }
    seen: dict[str, tuple[str, str]] = {}
    dropped = set()
    for name, values in shared.items():
        for value in _PROBES.get(values) or _duration_probes(values):
            text, translation = (side.styles[name].render(value) for side in (source, target))
            first, known = seen.setdefault(text, (name, translation))
            if known != translation:
                kind = name.partition("/")[0]
                dropped.add(name)
                if kind == first.partition("/")[0] and kind not in ("date", "time", "interval"):
                    dropped.add(first)
    return [name for name in shared if name not in dropped]


def _probes() -> dict[str, tuple[Value, ...]]:
    """Return values that show which styles look alike: every plural, month and hour."""
    days = [
        datetime(year, month, day)
        for year, month, day in product((1950, 2025), range(1, 13), (3, 4))
    ]
    times = [datetime(2025, 5, 3, hour, minute) for hour in range(24) for minute in (0, 30)]
    starts = [datetime(2024, 5, 3), datetime(2025, 4, 3), datetime(2025, 5, 3)]
    counts = (1, 2, 3, 5, 11, 21, 100, 12000, Decimal("1.5"), Decimal("2.1"))
    small = (1, 2, 3, 5, 11, 21)
    return {
        "name": (None,),
        "day": tuple(days),
        "month": tuple(days[::2]),
        "quarter": tuple(days[::6]),
        "time": tuple(times),
        "second": tuple(times),
        "datetime": (*days, *times),
        "days": tuple((start, datetime(2025, 5, 5)) for start in starts),
        "months": tuple((start, datetime(2025, 6, 1)) for start in starts),
        "times": tuple((start, times[-1]) for start in times[:-1]),
        "datetimes": tuple((start, times[-1]) for start in times[:-1]),
        "number": counts,
        "percent": (Decimal("0.01"), Decimal("0.125"), Decimal("0.5")),
        "compact": (1000, 12000, 340000, 1200000, 50000000, 1000000000),
        "small": small,
        "amount": (*small, 100, 12000),
        "cents": (*small, 100, 12000, Decimal("1.50"), Decimal("1.00")),
        "measure": counts,
    }


_PROBES = _probes()
# Most of a unit in a duration that has a larger unit too.
_MOST = {"month": 11, "day": 6, "hour": 23, "minute": 59, "second": 59}


def _duration_probes(values: str) -> Iterator[tuple[int, ...]]:
    return product((1, 2, 3, 5, 11), repeat=len(values.split()) - 1)


# Tenths of the values that are held out from training.
_TENTHS = {0: "test_values", 1: "validation"}


def _owner(value: str) -> str:
    """Return the split of a value: two tenths are held out, the rest is for training."""
    return _TENTHS.get(crc32(value.encode()) % 10, "train")


@lru_cache(maxsize=len(SPLITS))
def _calendar(split: str) -> tuple[list[datetime], ...]:
    """Return the days, times of day, months and quarters of a split, in order."""
    days = [datetime(1950, 1, 1) + timedelta(days) for days in range(36525)]
    times = [datetime(2025, 1, 1) + timedelta(minutes=minutes) for minutes in range(1440)]
    months = [day for day in days if day.day == 1]
    return (
        [day for day in days if _owner(f"day {day.date()}") == split],
        [time for time in times if _owner(f"time {time.time()}") == split],
        [month for month in months if _owner(f"month {month.date()}") == split],
        [month for month in months[::3] if _owner(f"quarter {month.date()}") == split],
    )


class _Values:
    """Random values of one split, by the names in `Style.values`.

    A checksum decides the split: of a day or time of day in every style, and of a number together
    with its style.

    Args:
        split: member of `SPLITS`; "test_combinations" draws what "train" does.
        rng: random numbers of the stream.
    """

    def __init__(self, split: str, rng: random.Random) -> None:
        self._split = "train" if split == "test_combinations" else split
        self._rng = rng
        self.days, self.times, self.months, self.quarters = _calendar(self._split)
        self._day_set = set(self.days)
        self._draws: dict[str, Callable[[], Value]] = {
            "name": lambda: None,
            "day": lambda: rng.choice(self.days),
            "month": lambda: rng.choice(self.months),
            "quarter": lambda: rng.choice(self.quarters),
            "time": lambda: rng.choice(self.times),
            "second": lambda: rng.choice(self.times).replace(second=rng.randrange(60)),
            "datetime": lambda: self._at_a_time(rng.choice(self.days)),
            "days": self._two_days,
            "months": lambda: self._two_of(self.months, within=12),
            "times": lambda: self._two_of(self.times, within=len(self.times)),
            "datetimes": self._two_datetimes,
        }
        self._numbers: dict[str, Callable[[], Value]] = {
            "number": self._number,
            "percent": lambda: Decimal(rng.randint(1, 1200)) / 1000,
            "compact": lambda: rng.randint(1, 99) * 10 ** rng.randint(3, 10),
            "small": lambda: rng.randint(1, rng.choice((20, 99))),
            "amount": self._whole,
            "cents": lambda: self._whole() if rng.random() < 0.6 else self._cents(),
            "measure": self._measure,
        }

    def draw(self, style: str, values: str) -> Value:
        """Draw a value for a style."""
        if values in self._draws:
            return self._draws[values]()
        draw = self._numbers.get(values)
        while True:
            value = draw() if draw else self._duration(values.split()[1:])
            if _owner(f"{style} {value}") == self._split:
                return value

    def _duration(self, units: list[str]) -> tuple[int, ...]:
        largest = self._rng.randint(1, self._rng.choice((20, 90)))
        return largest, *(self._rng.randint(1, _MOST[unit]) for unit in units[1:])

    def _at_a_time(self, day: datetime) -> datetime:
        time = self._rng.choice(self.times)
        return day.replace(hour=time.hour, minute=time.minute)

    def _two_days(self) -> tuple[datetime, datetime]:
        while True:
            start = self._rng.choice(self.days)
            end = start + timedelta(self._rng.randint(1, self._rng.choice((20, 20, 200, 1500))))
            if end in self._day_set:
                return start, end

    def _two_datetimes(self) -> tuple[datetime, datetime]:
        start, end = self._two_days()
        return self._at_a_time(start), self._at_a_time(end)

    def _two_of(self, moments: list[datetime], *, within: int) -> tuple[datetime, datetime]:
        start = self._rng.randrange(len(moments) - 1)
        end = self._rng.randint(start + 1, min(start + within, len(moments) - 1))
        return moments[start], moments[end]

    def _number(self) -> Number:
        whole = self._rng.randrange(10 ** self._rng.randint(1, 7))
        if self._rng.random() < 0.6:
            return whole
        places = self._rng.randint(1, 3)
        # Without trailing zeros: CLDR's default pattern does not write them.
        return Decimal(whole % 100_000 * 10 + self._rng.randint(1, 9)).scaleb(-places)

    def _whole(self) -> int:
        return self._rng.randint(1, self._rng.choice((20, 100, 1000, 10_000, 1_000_000)))

    def _cents(self) -> Decimal:
        cents = self._rng.randint(101, self._rng.choice((1_000, 10_000, 1_000_000)))
        return Decimal(cents + (cents % 100 == 0)).scaleb(-2)

    def _measure(self) -> Number:
        if self._rng.random() < 0.7:
            return self._rng.randint(1, self._rng.choice((20, 100, 1000, 100_000)))
        tens = self._rng.randint(0, self._rng.choice((9, 99, 999))) * 10
        return Decimal(tens + self._rng.randint(1, 9)).scaleb(-1)


def _split_of(source: str) -> str:
    """Return the only split that this source may appear in: seven in ten are for training."""
    return {0: "validation", 1: "test_values", 2: "test_combinations"}.get(
        crc32(source.encode()) % 10, "train"
    )


def _generate(grammar: _Grammar, split: str, count: int, rng: random.Random) -> Iterator[Pair]:
    values, structures = _Values(split, rng), _structures(grammar, split, rng)
    joins = [name for name in ("and", "or") if name in grammar.forms]
    seen: set[str] = set()
    idle = 0
    while len(seen) < count:
        if idle == _MAX_DRAWS:
            raise RequestError(
                f"got count={count}; allowed are about {len(seen)}, which is all that these two "
                f"languages have in {split!r}; lower count."
            )
        idle += 1
        shape, kinds = next(structures)
        atoms = []
        for kind in kinds:
            style = rng.choice(grammar.styles[kind])
            atoms.append((style, values.draw(style, grammar.source.styles[style].values)))
        join = rng.choice(joins) if len(shape) > 1 else ""
        source = _write(grammar.source, atoms, shape, join)
        if source in seen or len(source) > _MAX_CHARACTERS or _split_of(source) != split:
            continue
        if len({style for style, value in atoms if value is None}) < sum(
            value is None for _, value in atoms
        ):
            continue  # "Chad and Chad"
        seen.add(source)
        idle = 0
        target = _write(grammar.target, atoms, shape, join)
        yield Pair(source, target, kinds, _form(shape), split)


def _form(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return "plain" if shape == (1,) else "note"
    return "nested" if 2 in shape else "list"


def _structures(
    grammar: _Grammar, split: str, rng: random.Random
) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Draw shapes of texts and the kind of each value in them, without end."""
    kinds = [kind for kind in _WEIGHTED_KINDS if kind in grammar.styles]
    held_out = [pair for pair in _HELD_OUT_PAIRS if grammar.styles.keys() >= set(pair)]
    if split == "test_combinations" and not held_out:
        raise RequestError(
            f"got split {split!r}; these two languages share only the kinds "
            f"{', '.join(grammar.styles)}, and none of their combinations is held out; choose "
            "another split or language."
        )
    shapes = [shape for shape in _SHAPES if len(shape) == 1 or grammar.forms & {"and", "or"}]
    while True:
        shape = rng.choice(shapes)
        chosen = rng.choices(kinds, k=sum(shape))
        if split == "test_combinations":
            if len(chosen) < 2:
                continue
            chosen[:2] = rng.choice(held_out)
            rng.shuffle(chosen)
        elif any(pair in _HELD_OUT_ORDERED for pair in combinations(chosen, 2)):
            continue
        if split != "train" and chosen in (["territory"], ["language"]):
            continue  # a name alone is either known from training or cannot be known
        if not _confusable(chosen):
            yield shape, tuple(chosen)


_HELD_OUT_PAIRS = sorted(tuple(sorted(pair)) for pair in HELD_OUT_COMBINATIONS)
_HELD_OUT_ORDERED = frozenset(_HELD_OUT_PAIRS) | {pair[::-1] for pair in _HELD_OUT_PAIRS}


def _confusable(kinds: list[str]) -> bool:
    """Return whether neighbours could be read as one value.

    "3 hours, 5 minutes" is one duration or two, "March 3, 9:00" a date and a time or a datetime.
    """
    return kinds.count("duration") > 1 or any(
        {"date", "time"} == {left, right} for left, right in pairwise(kinds)
    )


def _write(
    language: Language, atoms: list[tuple[str, Value]], shape: tuple[int, ...], join: str
) -> str:
    texts = [language.styles[style].render(value) for style, value in atoms]
    members = []
    for size in shape:
        member, texts = texts[:size], texts[size:]
        members.append(member[0] if size == 1 else language.forms["note"](member))
    return language.forms[join](members) if join else members[0]
