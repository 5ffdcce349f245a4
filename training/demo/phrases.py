"""Generate the sentence pairs of the demo from CLDR, through Babel.

    python training/demo/phrases.py --pair en-de --output-dir runs/phrases-en-de

writes train.jsonl, validation.jsonl, test_values.jsonl and test_combinations.jsonl.

A pair is a value, or several in a list or a note, written in two languages: "3 hours ago",
"12 kilometers per hour, March 3, 2025, and German (Switzerland)". This module draws values, has
Babel write them in both languages, and keeps the splits apart. The pairs depend only on the
arguments and the version of Babel.

A style is one way to write one kind of value, named `kind/details`: `date/full`, `currency/EUR`,
`territory/CH`, `relative/hour/past`. A style that CLDR does not translate into one of the two
languages is left out, and so is one whose source text has two different targets: a source has
exactly one target.

Splits are disjoint by construction, for every seed and count:

- The checksum of a source text decides its split, so that no source is in two splits.
- "test_values" and "validation" have days, months, times of day and amounts (an amount with its
  unit: 3 hours ago) that appear nowhere in "train"; every name, unit and pattern does appear there.
  Names have no value to hold out: a pair that has only names is a new combination of known names.
- "test_combinations" has the values of "train", but combines kinds (such as currency and time) that
  no pair of another split combines, in any form.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from zlib import crc32

if TYPE_CHECKING:
    from babel import Locale

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
# Each kind is combined with about a seventh of the other kinds only in "test_combinations".
HELD_OUT_COMBINATIONS = frozenset(
    frozenset((KINDS[i], KINDS[j]))
    for i, j in combinations(range(len(KINDS)), 2)
    if (i + j) % 7 == 3
)
_HELD_OUT_PAIRS = sorted(tuple(sorted(pair)) for pair in HELD_OUT_COMBINATIONS)

# Kinds with many words to learn are drawn twice as often.
_WEIGHTED_KINDS = (*KINDS, "currency", "unit", "territory", "language")
# Kinds that can be written without words; languages that share no other kind are refused.
_WITHOUT_WORDS = {"number", "percent", "date", "time", "interval", "unit"}
# The number of values in each member of a list, 2 for "A (B)". A text with one member is no list.
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
# What Babel raises if CLDR has no text for a style in a language.
_NO_WORDS = (LookupError, ValueError, NotImplementedError)

# The day whose currencies count as in use, fixed so that the pairs never change.
_TODAY = date(2025, 1, 1)
_TimeUnit = Literal["year", "month", "week", "day", "hour", "minute", "second"]
_TIME_UNITS: tuple[_TimeUnit, ...] = get_args(_TimeUnit)
_DURATIONS = (
    ("year", "month"),
    ("month", "day"),
    ("week", "day"),
    ("day", "hour"),
    ("hour", "minute"),
    ("minute", "second"),
    ("day", "hour", "minute"),
    ("hour", "minute", "second"),
)
# The largest count of a unit in a duration that has a larger unit too.
_MOST = {"month": 11, "day": 6, "hour": 23, "minute": 59, "second": 59}
_UNIT_CATEGORIES = {
    *("angle", "area", "digital", "electric", "energy", "frequency", "length", "mass", "power"),
    *("pressure", "speed", "temperature", "volume"),
}
# Measures and currencies that make sense before "per", and units that make sense after it.
_MEASURED = (
    *("length-centimeter", "volume-liter", "volume-milliliter", "volume-cubic-meter", "mass-gram"),
    *("mass-kilogram", "mass-tonne", "digital-megabyte", "digital-gigabyte", "energy-kilocalorie"),
)
_PRICED_IN = (
    *("AUD", "BRL", "CAD", "CHF", "CNY", "EUR", "GBP", "INR"),
    *("JPY", "KRW", "MXN", "NOK", "PLN", "SEK", "TRY", "USD"),
)
_PRICED_PER = (
    *("volume-liter", "mass-kilogram", "mass-gram", "length-kilometer", "length-meter"),
    *("area-square-meter", "area-hectare", "duration-hour", "duration-day", "duration-week"),
    *("duration-month", "duration-year"),
)
# Keyboards have one space; CLDR has four. Sources are typed by people, and targets that look alike
# must compare equal, so U+00A0, U+2009 and U+202F become U+0020 on both sides.
_SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " "})


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: Text in the source language.
        target: Text in the target language.
        kinds: Kind of each value in the text, in the order of the text; members of `KINDS`.
    """

    source: str
    target: str
    kinds: tuple[str, ...]


def generate_pairs(
    source_language: str, target_language: str, *, split: str = "train", count: int, seed: int = 0
) -> Iterator[Pair]:
    """Generate distinct pairs, the same ones for the same arguments.

    A smaller `count` gives the beginning of the same stream; another seed gives another stream of
    the same split.

    Args:
        source_language: Locale that CLDR has, such as "en", "pt_BR" or "zh-Hant".
        target_language: Another such locale.
        split: "train", "validation", "test_values" or "test_combinations".
        count: Number of pairs.
        seed: Seed of the stream.

    Returns:
        Iterator over `count` pairs, no two with the same source. It raises ValueError if
        the languages have fewer than `count` distinct pairs in this split.

    Raises:
        ValueError: Unknown language or split, the same language twice, or two languages for which
            CLDR has too few names and units in both.
    """
    if split not in SPLITS:
        raise ValueError(f"got split {split!r}; allowed are {', '.join(SPLITS)}; choose one.")
    source, target = _parse_language(source_language), _parse_language(target_language)
    if source == target:
        raise ValueError(
            f"got {source_language!r} as source and {target_language!r} as target; allowed are two "
            "different languages; change one."
        )
    styles = _shared_styles(source, target)
    if styles.keys() <= _WITHOUT_WORDS:
        raise ValueError(
            f"got {source_language!r} and {target_language!r}, which lack common names and units "
            "in CLDR; allowed are languages whose locales hold names and units; choose another."
        )

    def pairs() -> Iterator[Pair]:
        rng = random.Random(f"{seed} {split}")
        values = _Values(split, rng)
        weighted_kinds = [kind for kind in _WEIGHTED_KINDS if kind in styles]
        held_out = [pair for pair in _HELD_OUT_PAIRS if styles.keys() >= set(pair)]
        joins: list[_Join] = ["standard"]
        if has_or(source) and has_or(target):
            joins.append("or")
        seen: set[str] = set()
        idle = 0
        while len(seen) < count:
            if idle == _MAX_DRAWS:
                raise ValueError(
                    f"got count={count}; allowed are about {len(seen)}, which is all that these "
                    f"two languages have in {split!r}; lower count."
                )
            idle += 1
            shape = rng.choice(_SHAPES)
            kinds = rng.choices(weighted_kinds, k=sum(shape))
            if split == "test_combinations" and held_out:
                kinds[:2] = rng.choice(held_out)[: len(kinds)]
                rng.shuffle(kinds)
            if not _is_allowed(kinds, split):
                continue
            names = [rng.choice(styles[kind]) for kind in kinds]
            phrases = [(name, values.draw(name)) for name in names]
            if len(set(phrases)) < len(phrases):
                continue  # not "Chad and Chad"
            join = rng.choice(joins)
            text = _write_text(source, phrases, shape, join)
            if text in seen or len(text) > _MAX_CHARACTERS or split_of_source(text) != split:
                continue
            seen.add(text)
            idle = 0
            yield Pair(text, _write_text(target, phrases, shape, join), tuple(kinds))

    return pairs()


def _parse_language(code: str) -> Locale:
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(str(code).replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"got language {code!r}; allowed are CLDR's locales, such as en, de, zh, ja, ar or "
            "pt_BR; `pybabel --list-locales` names them all."
        ) from error


def _is_allowed(kinds: list[str], split: str) -> bool:
    """Return whether a text of a split may hold values of these kinds, in this order."""
    held_out = any(frozenset(two) in HELD_OUT_COMBINATIONS for two in combinations(kinds, 2))
    if held_out != (split == "test_combinations"):
        return False
    if split != "train" and kinds in (["territory"], ["language"]):
        return False  # a name alone is either known from training or cannot be known
    # Neighbours must not read as one value: "3 hours, 5 minutes", "March 3, 9:00".
    date_and_time = any({"date", "time"} == set(two) for two in pairwise(kinds))
    return kinds.count("duration") < 2 and not date_and_time


def split_of_source(text: str) -> str:
    """Return the only split that this source may appear in: seven in ten are for training."""
    return {0: "validation", 1: "test_values", 2: "test_combinations"}.get(
        crc32(text.encode()) % 10, "train"
    )


def _split_of_value(value: str) -> str:
    """Return the split of a value: two tenths are held out, the rest is for training."""
    return {0: "test_values", 1: "validation"}.get(crc32(value.encode()) % 10, "train")


# ------------------------------------------------------------------------------------- values


@lru_cache(maxsize=len(SPLITS))
def _calendar(split: str) -> tuple[list[datetime], list[datetime], list[datetime]]:
    """Return the days, months and times of day of a split, in order."""
    days = [datetime(1950, 1, 1) + timedelta(days) for days in range(36525)]
    times = [datetime(2025, 1, 1) + timedelta(minutes=minutes) for minutes in range(1440)]
    return (
        [day for day in days if _split_of_value(f"day {day:%Y-%m-%d}") == split],
        [day for day in days if day.day == 1 and _split_of_value(f"month {day:%Y-%m}") == split],
        [time for time in times if _split_of_value(f"time {time:%H:%M}") == split],
    )


class _Values:
    """Random values of one split, such as dates, numbers and names.

    A checksum decides the split of a value. A day, month or time of day is in the same split in
    every style; a number has a split for each unit.

    Args:
        split: Member of `SPLITS`; "test_combinations" draws what "train" does.
        rng: Random numbers of the stream.
    """

    def __init__(self, split: str, rng: random.Random) -> None:
        self._split = "train" if split == "test_combinations" else split
        self._rng = rng
        self._days, self._months, self._times = _calendar(self._split)

    def draw(self, name: str) -> Any:
        """Draw a value for a style."""
        draw = _styles()[name].draw
        in_calendar = name.startswith(("date", "time", "interval"))
        unit = "/".join(name.split("/")[:2])  # "relative/hour" for past and future
        while True:
            value = draw(self)
            if in_calendar or value is None or _split_of_value(f"{unit} {value}") == self._split:
                return value

    def nothing(self) -> None:
        """Return None: a style of names writes one fixed name, so there is no value to draw."""

    def day(self) -> datetime:
        return self._rng.choice(self._days)

    def month(self) -> datetime:
        return self._rng.choice(self._months)

    def time(self) -> datetime:
        return self._rng.choice(self._times)

    def second(self) -> datetime:
        return self.time().replace(second=self._rng.randrange(60))

    def day_and_time(self) -> datetime:
        return datetime.combine(self.day(), self.time().time())

    def two_days(self) -> tuple[datetime, datetime]:
        return self._two(self._days, timedelta(self._rng.choice((20, 20, 200, 1500))))

    def two_months(self) -> tuple[datetime, datetime]:
        return self._two(self._months, timedelta(366))

    def two_times(self) -> tuple[datetime, datetime]:
        return self._two(self._times, timedelta(1))

    def two_days_and_times(self) -> tuple[datetime, datetime]:
        start, end = (datetime.combine(day, self.time().time()) for day in self.two_days())
        return start, end

    def _two(self, moments: list[datetime], span: timedelta) -> tuple[datetime, datetime]:
        while True:
            start = self._rng.randrange(len(moments))
            after = bisect(moments, moments[start] + span)
            if after > start + 1:
                return moments[start], moments[self._rng.randrange(start + 1, after)]

    def number(self) -> int | Decimal:
        whole = self._rng.randrange(10 ** self._rng.randint(1, 7))
        if self._rng.random() < 0.6:
            return whole
        # Without a zero at the end, which CLDR's default pattern does not write.
        digits = whole % 100_000 * 10 + self._rng.randint(1, 9)
        return Decimal(digits).scaleb(-self._rng.randint(1, 3))

    def share(self) -> Decimal:
        return Decimal(self._rng.randint(1, 1200)) / 1000

    def round_number(self) -> int:
        return self._rng.randint(1, 99) * 10 ** self._rng.randint(3, 10)

    def small(self) -> int:
        return self._rng.randint(1, self._rng.choice((20, 99)))

    def whole(self) -> int:
        return self._rng.randint(1, self._rng.choice((20, 100, 1000, 10_000, 1_000_000)))

    def price(self) -> int | Decimal:
        if self._rng.random() < 0.6:
            return self.whole()
        cents = self._rng.randint(101, self._rng.choice((1_000, 10_000, 1_000_000)))
        return Decimal(cents).scaleb(-2)

    def measure(self) -> int | Decimal:
        if self._rng.random() < 0.7:
            return self._rng.randint(1, self._rng.choice((20, 100, 1000, 100_000)))
        tens = self._rng.randint(0, self._rng.choice((9, 99, 999))) * 10
        return Decimal(tens + self._rng.randint(1, 9)).scaleb(-1)

    def duration(self, units: tuple[str, ...]) -> tuple[int, ...]:
        return self.small(), *(self._rng.randint(1, _MOST[unit]) for unit in units[1:])


# ------------------------------------------------------------------------------------- styles


# Widths of dates and times, lengths of names, and kinds of lists in CLDR.
_Width = Literal["full", "long", "medium", "short"]
_Length = Literal["long", "short"]
_Join = Literal["standard", "or", "unit"]
_Write = Callable[..., str]  # of a value and `locale`, as Babel's functions are


class _Style(NamedTuple):
    """One way to write one kind of value, in any language.

    Attributes:
        draw: Random value to write.
        write: Value and `locale` to text. It raises LookupError or ValueError if CLDR has no text
            in that language.
    """

    draw: Callable[[_Values], Any]
    write: _Write


@lru_cache(maxsize=1)
def _styles() -> dict[str, _Style]:
    """Return every style by its name, `kind/details`."""
    return {**_calendar_styles(), **_number_styles(), **_unit_styles(), **_name_styles()}


def _calendar_styles() -> dict[str, _Style]:
    """Return styles of dates, times of day, and intervals between two of them."""
    from babel import dates

    def day(width: _Width) -> _Write:
        return partial(dates.format_date, format=width)

    def day_and_time(width: _Width) -> _Write:
        def write(moment: datetime, locale: Locale) -> str:
            pattern = str(dates.get_datetime_format(width, locale=locale)).replace("'", "")
            time = dates.format_time(moment, "short", locale=locale)
            return pattern.format(time, day(width)(moment, locale=locale))

        return write

    def interval(skeleton: str) -> _Write:
        return lambda ends, locale: dates.format_interval(ends[0], ends[1], skeleton, locale=locale)

    def times(ends: tuple[datetime, datetime], locale: Locale) -> str:
        twelve_hours = "h" in locale.time_formats["short"].pattern
        return interval("hm" if twelve_hours else "Hm")(ends, locale=locale)

    def both(write: _Write) -> _Write:
        return lambda ends, locale: locale.interval_formats[None].format(
            *(write(end, locale=locale) for end in ends)
        )

    return {
        "date/full": _Style(_Values.day, day("full")),
        "date/long": _Style(_Values.day, day("long")),
        "date/month": _Style(_Values.month, partial(dates.format_skeleton, "yMMMM")),
        "time/short": _Style(_Values.time, partial(dates.format_time, format="short")),
        "time/medium": _Style(_Values.second, partial(dates.format_time, format="medium")),
        "datetime/full": _Style(_Values.day_and_time, day_and_time("full")),
        "datetime/long": _Style(_Values.day_and_time, day_and_time("long")),
        "interval/days": _Style(_Values.two_days, interval("yMMMd")),
        "interval/months": _Style(_Values.two_months, interval("yMMMM")),
        "interval/times": _Style(_Values.two_times, times),
        "interval/full-days": _Style(_Values.two_days, both(day("full"))),
        "interval/long-days": _Style(_Values.two_days, both(day("long"))),
        "interval/datetimes": _Style(_Values.two_days_and_times, both(day_and_time("long"))),
    }


def _number_styles() -> dict[str, _Style]:
    """Return the ways to write numbers, and times relative to now: "in 5 days"."""
    from babel import dates, numbers

    def compact(number: int, locale: Locale) -> str:
        formats = locale.compact_decimal_formats
        length: _Length = "long" if "long" in formats else "short"
        # Babel also counts the zeros in a pattern's part for negative numbers, and divides wrongly.
        if any(";" in pattern.pattern for pattern in formats[length]["other"].values()):
            raise LookupError("no compact numbers that Babel writes right")
        return numbers.format_compact_decimal(
            number, format_type=length, locale=locale, fraction_digits=1
        )

    def from_now(unit: _TimeUnit, seconds: int) -> _Write:
        return lambda count, locale: dates.format_timedelta(
            count * seconds, unit, threshold=math.inf, add_direction=True, locale=locale
        )

    styles = {
        "number/plain": _Style(_Values.number, numbers.format_decimal),
        "percent/plain": _Style(
            _Values.share, partial(numbers.format_percent, decimal_quantization=False)
        ),
        "compact/long": _Style(_Values.round_number, compact),
    }
    seconds = dict(dates.TIMEDELTA_UNITS)
    for unit in _TIME_UNITS:
        styles[f"relative/{unit}/past"] = _Style(_Values.small, from_now(unit, -seconds[unit]))
        styles[f"relative/{unit}/future"] = _Style(_Values.small, from_now(unit, seconds[unit]))
    return styles


def _unit_styles() -> dict[str, _Style]:
    """Return styles of measures, durations, amounts of money, and of rates: 5 euros per hour."""
    from babel import Locale, lists, numbers, units

    def measure(unit: str) -> _Write:
        return lambda number, locale: _long_or_short(
            lambda length: units.format_unit(number, unit, length, locale=locale), unit
        )

    def money(currency: str) -> _Write:
        return lambda amount, locale: numbers.format_currency(
            amount,
            currency,
            locale=locale,
            format_type="name",
            currency_digits=isinstance(amount, Decimal),
        )

    def rate(write: _Write, per: str) -> _Write:
        return lambda number, locale: _long_or_short(
            lambda length: units.format_compound_unit(
                write(number, locale=locale), denominator_unit=per, length=length, locale=locale
            ),
            per,
        )

    def duration(names: tuple[str, ...], join: _Join) -> _Write:
        def write(counts: tuple[int, ...], locale: Locale) -> str:
            parts = zip(names, counts, strict=True)
            texts = [measure(f"duration-{name}")(count, locale=locale) for name, count in parts]
            return lists.format_list(texts, join, locale)

        return write

    english = Locale("en")
    in_use = {
        currency
        for territory in map(str, english.territories)
        if len(territory) == 2
        for currency in numbers.get_territory_currencies(territory, _TODAY, _TODAY)
    }
    styles = {}
    for unit in sorted(english.unit_display_names):
        if unit.partition("-")[0] in _UNIT_CATEGORIES:
            styles[f"unit/{unit}"] = _Style(_Values.measure, measure(unit))
    for currency in sorted(in_use):
        has_cents = numbers.get_currency_precision(currency) == 2
        draw = _Values.price if has_cents else _Values.whole
        styles[f"currency/{currency}"] = _Style(draw, money(currency))
    rates = [(f"unit/{unit}", f"duration-{per}") for unit in _MEASURED for per in _TIME_UNITS]
    rates += [(f"currency/{currency}", per) for currency in _PRICED_IN for per in _PRICED_PER]
    for name, per in rates:
        styles[f"rate/{name.partition('/')[2]}-per-{per}"] = _Style(
            styles[name].draw, rate(styles[name].write, per)
        )
    for name in _TIME_UNITS:
        styles[f"duration/{name}"] = _Style(_Values.small, measure(f"duration-{name}"))
    durations: list[tuple[tuple[str, ...], _Join]] = [(names, "unit") for names in _DURATIONS]
    for names, join in (*durations, (("hour", "minute"), "standard")):
        styles[f"duration/{'-'.join(names)}/{join}"] = _Style(
            partial(_Values.duration, units=names), duration(names, join)
        )
    return styles


def _long_or_short(write: Callable[[_Length], str | None], unit: str) -> str:
    """Return the text with a unit's long name, or its short name if the language has no long one.

    CLDR's long names inherit from the short ones. Babel does not follow this and writes the code.
    """
    text = str(write("long"))
    return str(write("short")) if unit in text else text


def _name_styles() -> dict[str, _Style]:
    """Return styles of names: territories, and languages with a two-letter code."""
    from babel import Locale

    def style(names: str, code: str) -> _Style:
        return _Style(_Values.nothing, lambda _, locale: getattr(locale, names)[code])

    english = Locale("en")
    # XA to XZ (except XK), QO, ZZ and the unions are not territories of the world.
    place = re.compile("(?!X[^K]|QO|ZZ|EU|EZ|UN)[A-Z]{2}")
    territories = filter(place.fullmatch, sorted(english.territories))
    languages = [code for code in sorted(english.languages) if len(code) == 2]
    return {
        **{f"territory/{code}": style("territories", code) for code in territories},
        **{f"language/{code}": style("languages", code) for code in languages},
    }


# ---------------------------------------------------------------------------------- languages


@lru_cache(maxsize=8)
def _shared_styles(source: Locale, target: Locale) -> dict[str, list[str]]:
    """Return for each kind the styles that both languages have words for.

    A style is left out if one of its source texts has two targets: because an earlier style writes
    the same source, or because the style itself does for another value.
    """
    translations: dict[str, str] = {}
    shared: dict[str, list[str]] = {}
    for name, style in _styles().items():
        probes = _probes(style)
        sources, targets = _own_texts(source, name, probes), _own_texts(target, name, probes)
        pairs = list(zip(sources, targets, strict=False))
        last = dict(pairs)
        if pairs and all(translations.get(text, last[text]) == target for text, target in pairs):
            translations.update(last)
            shared.setdefault(name.partition("/")[0], []).append(name)
    return shared


def _probes(style: _Style) -> list[Any]:
    """Return values that may reveal ambiguous texts, the same for styles with the same `draw`."""
    values = _Values("train", random.Random(0))
    probes = [style.draw(values) for _ in range(5)]
    if isinstance(probes[0], int | Decimal):
        probes += [1, 2, 3, 5, 7, 11, 21]  # every plural form of most languages
    # A text may not say which half of the day it means, or in which month an interval begins.
    for value in probes[:]:
        if isinstance(value, datetime):
            probes.append(value + timedelta(hours=12))
        elif isinstance(value, tuple) and isinstance(value[0], datetime):
            start, end = value
            probes += [(start - timedelta(days), end) for days in (30, 31)]
    return probes


def _own_texts(locale: Locale, name: str, values: list[Any]) -> list[str]:
    """Write values in a style; return nothing if the language has no words of its own for it."""
    from babel import Locale

    try:
        texts = [write_value(locale, name, value) for value in values]
    except _NO_WORDS:
        return []
    try:  # CLDR's root has codes and abbreviations for what a language lacks
        in_root = [write_value(Locale("root"), name, value) for value in values]
    except _NO_WORDS:
        in_root = [name.partition("/")[2]] * len(values)
    for value, text, code in zip(values, texts, in_root, strict=True):
        letters = list(filter(str.isalpha, text))
        if value != 1 and letters and letters == list(filter(str.isalpha, code)):
            return []  # except for 1: a singular may be spelled like its code
    return texts


def has_or(locale: Locale) -> bool:
    """Return whether the language has a word for "or"; CLDR's root has the English one."""
    from babel.lists import format_list

    in_root = format_list(["1", "2"], "or", "root")
    return locale.language == "en" or format_list(["1", "2"], "or", locale) != in_root


@lru_cache(maxsize=1 << 16)
def write_value(locale: Locale, name: str, value: Any) -> str:
    """Return a value in one style of a locale, with plain spaces."""
    return _styles()[name].write(value, locale=locale).translate(_SPACES)


def _write_text(
    locale: Locale, phrases: list[tuple[str, Any]], shape: tuple[int, ...], join: _Join
) -> str:
    """Write the phrases as a list; each member is one value, or two as a note: "A (B)"."""
    from babel.lists import format_list

    texts = iter([write_value(locale, name, value) for name, value in phrases])
    note = locale.zone_formats["fallback"]
    members = [
        next(texts) if size == 1 else note % {"1": next(texts), "0": next(texts)} for size in shape
    ]
    return format_list(members, join, locale).translate(_SPACES)


def main(arguments: list[str] | None = None) -> None:
    """Write one file of pairs for each split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default="en-de", help="source and target language (en-de)")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the files")
    parser.add_argument("--pairs", type=int, default=100_000, help="pairs for training (100000)")
    parser.add_argument(
        "--test-pairs", type=int, default=500, help="pairs of each of the other three files (500)"
    )
    options = parser.parse_args(arguments)
    source, _, target = options.pair.partition("-")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        count = options.pairs if split == "train" else options.test_pairs
        try:
            pairs = list(generate_pairs(source, target, split=split, count=count))
        except ValueError as error:
            parser.error(str(error))
        rows = [{source: pair.source, target: pair.target} for pair in pairs]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (options.output_dir / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
