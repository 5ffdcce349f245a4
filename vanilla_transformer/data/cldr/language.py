"""Write values in one language with CLDR's data, in each style that it has words for.

A style is one way to write one type of value, named `kind/details`: `date/full`, `currency/EUR`,
`territory/CH`, `relative/hour/past`. Two languages share the styles whose names both have: the
intersection leaves out what CLDR does not translate into one of them.

Words come only from the language's own data: its locale and that locale's parents. CLDR's root has
codes and abbreviations for what a language lacks, so only patterns without words come from it. In
CLDR a long form inherits from the short one, and a list of units from the plain list; Babel does
not follow this, so it is done here.

Values are `datetime` for calendar styles (pairs of them for intervals), `int` or `Decimal` for
numbers, tuples of `int` for durations and `None` for names.
"""

import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ...errors import RequestError

Number = int | Decimal
Value = None | Number | datetime | tuple[datetime, datetime] | tuple[int, ...]
Render = Callable[[Any], str]  # takes the values that its style writes


class Style(NamedTuple):
    """One way to write one type of value.

    Attributes:
        values: name of the set of values it writes (see `pairs._Values`).
        render: value to text.
    """

    values: str
    render: Render


# Keyboards have one space; CLDR has four. Sources are typed by people, and targets that look alike
# must compare equal, so U+00A0, U+2009 and U+202F become U+0020 on both sides.
_SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " "})

# What a pattern field depends on; patterns with other fields (time zones) are not used.
_FIELD_KEYS: dict[str, Callable[[datetime], int | tuple[int, int]]] = {
    **dict.fromkeys("y", lambda moment: moment.year),
    **dict.fromkeys("ML", lambda moment: moment.month),
    **dict.fromkeys("Qq", lambda moment: (moment.month - 1) // 3),
    **dict.fromkeys("d", lambda moment: moment.day),
    **dict.fromkeys("G", lambda moment: 1),
    **dict.fromkeys("Ec", lambda moment: moment.weekday()),
    **dict.fromkeys("ahHkK", lambda moment: moment.hour),
    **dict.fromkeys("bB", lambda moment: (moment.hour, moment.minute)),
    **dict.fromkeys("m", lambda moment: moment.minute),
    **dict.fromkeys("s", lambda moment: moment.second),
}
# Fields that are words from this width on, and where CLDR keeps the words.
_FIELD_WORDS = {
    **dict.fromkeys("ML", ("months", 3)),
    **dict.fromkeys("Qq", ("quarters", 3)),
    **dict.fromkeys("Ec", ("days", 1)),
    **dict.fromkeys("abB", ("day_periods", 1)),
    "G": ("eras", 1),
}
# Calendar fields, largest first: the first that differs chooses the interval pattern.
_INTERVAL_FIELDS: dict[str, Callable[[datetime], int]] = {
    "y": lambda moment: moment.year,
    "M": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "a": lambda moment: moment.hour // 12,
    "h": lambda moment: moment.hour,
    "H": lambda moment: moment.hour,
    "m": lambda moment: moment.minute,
}

# The day whose currencies count as in use, fixed so that the pairs never change.
_TODAY = date(2025, 1, 1)
_UNIT_CATEGORIES = frozenset(
    (
        "angle",
        "area",
        "digital",
        "electric",
        "energy",
        "frequency",
        "length",
        "mass",
        "power",
        "pressure",
        "speed",
        "temperature",
        "volume",
    )
)
_DURATIONS = (
    ("year",),
    ("month",),
    ("week",),
    ("day",),
    ("hour",),
    ("minute",),
    ("second",),
    ("year", "month"),
    ("month", "day"),
    ("week", "day"),
    ("day", "hour"),
    ("hour", "minute"),
    ("minute", "second"),
    ("day", "hour", "minute"),
    ("hour", "minute", "second"),
)
# Measures and currencies that make sense before "per", and units that make sense after it.
_PER_DURATION = (
    "length-meter",
    "length-kilometer",
    "length-centimeter",
    "volume-liter",
    "volume-milliliter",
    "volume-cubic-meter",
    "mass-gram",
    "mass-kilogram",
    "mass-tonne",
    "digital-megabyte",
    "digital-gigabyte",
    "energy-kilocalorie",
    "energy-kilowatt-hour",
)
_DURATION_UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
_PRICED_IN = (
    "AUD",
    "BRL",
    "CAD",
    "CHF",
    "CNY",
    "EUR",
    "GBP",
    "INR",
    "JPY",
    "KRW",
    "MXN",
    "NOK",
    "PLN",
    "SEK",
    "TRY",
    "USD",
)
_PRICED_PER = (
    "volume-liter",
    "mass-kilogram",
    "mass-gram",
    "length-kilometer",
    "length-meter",
    "area-square-meter",
    "area-hectare",
)


class Language:
    """The styles and patterns that CLDR has for one locale.

    Args:
        identifier: locale identifier that Babel knows, e.g. "de" or "zh_Hant".

    Attributes:
        styles: `Style` by name.
        forms: functions that join texts, by name: "and" and "or" (lists) and "note" ("A (B)"), as
            far as the language has them.
    """

    def __init__(self, identifier: str) -> None:
        from babel import Locale

        self.locale = Locale.parse(identifier)
        self.own = _own_data(identifier)
        self._root = _read_data("root")
        self._thousands = self._find_thousands()
        self._count = lru_cache(maxsize=1 << 16)(self._count_uncached)
        self.styles: dict[str, Style] = {}
        for build in (
            self._moments,
            self._intervals,
            self._counts,
            self._currencies,
            self._units,
            self._rates,
            self._durations,
            self._names,
        ):
            self.styles.update(build())
        self.forms = dict(self._forms())

    def _moments(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of dates, times, and both joined by the language's pattern."""
        dates, times = self.locale.date_formats, self.locale.time_formats
        skeletons = self.locale.datetime_skeletons
        patterns = [
            ("date/full", "day", dates["full"]),
            ("date/long", "day", dates["long"]),
            ("date/numeric", "day", skeletons.get("yMd")),
            ("date/month", "month", skeletons.get("yMMMM")),
            ("date/quarter", "quarter", skeletons.get("yQQQQ")),
            ("time/short", "time", times["short"]),
            ("time/medium", "second", times["medium"]),
            ("time/period", "time", skeletons.get("Bhm")),
        ]
        for width in ("full", "long"):
            glue = str(self.locale.datetime_formats[width])
            joined = glue.format(times["short"].pattern, dates[width].pattern)
            patterns.append((f"datetime/{width}", "datetime", joined))
        for name, values, pattern in patterns:
            render = pattern and self._moment(str(getattr(pattern, "pattern", pattern)))
            if render:
                yield name, Style(values, render)

    def _moment(self, pattern: str) -> Render | None:
        """Compile a date pattern to a function; return None if the language lacks its words.

        Babel formats each field once for each of its values; joining the texts is then cheap.
        """
        from babel.dates import DateTimeFormat, tokenize_pattern

        pieces: list[tuple[str, Callable[[datetime], object] | None, dict[object, str]]] = []
        for _, content in tokenize_pattern(pattern):
            if isinstance(content, str):  # no field
                pieces.append((content.translate(_SPACES), None, {}))
                continue
            letter, width = content
            words, least = _FIELD_WORDS.get(letter, ("", 0))
            if letter not in _FIELD_KEYS or (words and width >= least and not self._has(words)):
                return None
            pieces.append((letter * width, _FIELD_KEYS[letter], {}))

        def render(moment: datetime) -> str:
            texts = []
            for text, key_of, known in pieces:
                if key_of is not None:
                    key = key_of(moment)
                    if key not in known:
                        known[key] = DateTimeFormat(moment, self.locale)[text].translate(_SPACES)
                    text = known[key]
                texts.append(text)
            return "".join(texts)

        return render

    def _has(self, words: str) -> bool:
        section = self.own.get(words, {})
        contexts = [section] if words == "eras" else section.values()
        tables = [
            table
            for context in contexts
            if isinstance(context, Mapping)
            for width, table in context.items()
            if width in ("wide", "abbreviated")
        ]
        return any(isinstance(table, Mapping) and table for table in tables)

    def _intervals(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of spans, by CLDR's interval patterns or with both ends in full."""
        formats = self.locale.interval_formats
        twelve_hours = "h" in self.locale.time_formats["short"].pattern
        wanted = [
            ("interval/days", "days", "yMMMd", "yMd"),
            ("interval/months", "months", "yMMMM", "yM"),
            ("interval/times", "times", *(("hm", "ahm") if twelve_hours else ("Hm", "Hm"))),
        ]
        for name, values, skeleton, fields in wanted:
            render = self._interval(formats.get(skeleton, {}), fields)
            if render:
                yield name, Style(values, render)
        glue = formats[None].translate(_SPACES)
        for name, values, side in (
            ("interval/full-days", "days", "date/full"),
            ("interval/long-days", "days", "date/long"),
            ("interval/datetimes", "datetimes", "datetime/long"),
        ):
            if side in self.styles:
                yield name, Style(values, _both_sides(glue, self.styles[side].render))

    def _interval(self, patterns: Mapping[str, list[str]], fields: str) -> Render | None:
        keys = []
        for field in fields:
            pair = patterns.get(field, [])
            sides = [side for pattern in pair if (side := self._moment(pattern))]
            if not len(pair) == len(sides) == 2:
                return None
            keys.append((_INTERVAL_FIELDS[field], sides))

        def render(span: tuple[datetime, datetime]) -> str:
            start, end = span
            for key_of, (render_start, render_end) in keys:
                if key_of(start) != key_of(end):
                    return render_start(start) + render_end(end)
            raise RequestError(f"got the interval {start} to {end}; its ends must differ")

        return render

    def _count_uncached(self, value: Number, cents: bool) -> tuple[str, str]:
        """Return the text of the number and its plural category."""
        if self._thousands:
            text = f"{value:,}".translate(self._thousands)
        else:
            text = self._number(value, cents)
        return text, self.locale.plural_form(value)

    def _number(self, value: Number, cents: bool) -> str:
        from babel.numbers import format_decimal

        pattern = self.locale.decimal_formats[None].pattern
        pattern = re.sub(r"\.#+", ".00", pattern) if cents else pattern
        return format_decimal(value, pattern, self.locale).translate(_SPACES)

    def _find_thousands(self) -> dict[int, str] | None:
        """Return symbols that turn Python's number format into Babel's, which is ten times slower.

        Return None if the language groups digits differently, as Hindi does.
        """
        symbols = self.locale.number_symbols["latn"]
        signs = {",": symbols["group"], ".": symbols["decimal"]}
        table = str.maketrans({sign: text.translate(_SPACES) for sign, text in signs.items()})
        probes = (7, 1234, 12345, 1234567, Decimal("0.5"), Decimal("1234.567"), Decimal("9.50"))
        same = all(
            f"{value:,}".translate(table) == self._number(value, _has_cents(value))
            for value in probes
        )
        return table if same else None

    def _counted(self, templates: Mapping[str, str]) -> Render:
        """Return a function that writes a count into the template of its plural category."""
        other = templates["other"]
        templates = {name: text.translate(_SPACES) for name, text in templates.items()}

        def render(value: Number) -> str:
            text, category = self._count(value, _has_cents(value))
            return templates.get(category, other).replace("{0}", text)

        return render

    def _counts(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of plain, compact and percent numbers, and of times relative to now."""
        from babel.numbers import format_compact_decimal

        yield "number/plain", Style("number", self._counted({"other": "{0}"}))
        percent = self.locale.percent_formats[None]

        def render_percent(value: Number) -> str:
            text = percent.apply(value, self.locale, decimal_quantization=False)
            return text.translate(_SPACES)

        yield "percent/plain", Style("percent", lru_cache(maxsize=1 << 12)(render_percent))
        compact = self.own.get("compact_decimal_formats", {})
        widths: list[Literal["long", "short"]] = ["long", "short"]
        width = next((width for width in widths if compact.get(width)), None)
        # Babel also counts the zeros in the part for negative numbers, and divides by too little.
        doubled = any(
            ";" in pattern.pattern for pattern in compact.get(width, {}).get("other", {}).values()
        )
        if width and not doubled:

            def render_compact(value: Number) -> str:
                text = format_compact_decimal(
                    value, format_type=width, locale=self.locale, fraction_digits=1
                )
                return text.translate(_SPACES)

            yield "compact/long", Style("compact", lru_cache(maxsize=1 << 12)(render_compact))
        for field, directions in self.own.get("date_fields", {}).items():
            if field in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
                for direction, templates in directions.items():
                    if "other" in templates:
                        name = f"relative/{field}/{direction}"
                        yield name, Style("small", self._counted(templates))

    def _currencies(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of amounts of the currencies in use, each name in the right plural form."""
        from babel.core import get_global
        from babel.numbers import get_currency_precision, get_territory_currencies

        in_use = {
            code
            for territory in get_global("territory_currencies")
            for code in get_territory_currencies(territory, _TODAY, _TODAY)
        }
        patterns = {"other": "{0} {1}", **self.own.get("currency_unit_patterns", {})}
        names = self.own.get("currency_names", {})
        for code in sorted(in_use & names.keys()):
            if names[code] == code:
                continue
            plurals = self.own.get("currency_names_plural", {}).get(code, {})
            other = plurals.get("other", names[code])
            templates = {
                category: patterns.get(category, patterns["other"]).format(
                    "{0}", plurals.get(category, other)
                )
                for category in {"other", *plurals, *patterns}
            }
            values = "cents" if get_currency_precision(code) == 2 else "amount"
            yield f"currency/{code}", Style(values, self._counted(templates))

    def _units(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of measures; durations are a kind of their own."""
        for unit in sorted(self._root["unit_patterns"]):
            templates = self._unit(unit)
            if templates and unit.partition("-")[0] in _UNIT_CATEGORIES:
                yield f"unit/{unit}", Style("measure", self._counted(templates))

    def _unit(self, unit: str, form: str = "other") -> dict[str, str]:
        """Return the language's long patterns of a unit, or its short ones if it has no long."""
        root = self._root["unit_patterns"].get(unit, {}).get("short", {})
        own = self.own.get("unit_patterns", {}).get(unit, {})
        for length in ("long", "short"):
            templates = own.get(length, {})
            if form in templates:
                # A unit written as in the root is not translated; a singular alone may look alike.
                plurals = [text for category, text in templates.items() if category != "one"]
                return {} if root.get(form) in plurals else templates
        return {}

    def _rates(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of rates ("5 liters per minute") and prices ("5 euros per liter")."""
        durations = [f"duration-{name}" for name in _DURATION_UNITS]
        pairs = [(unit, per) for unit in _PER_DURATION for per in durations]
        pairs += [(code, per) for code in _PRICED_IN for per in (*_PRICED_PER, *durations[2:])]
        # CLDR has kilometers per hour and the like as units of their own.
        known = {unit.partition("-")[2] for unit in self._root["unit_patterns"]}
        for unit, per in pairs:
            if f"{unit.partition('-')[2]}-per-{per.partition('-')[2]}" in known:
                continue
            style = self.styles.get(f"unit/{unit}") or self.styles.get(f"currency/{unit}")
            template = self._unit(per, "per").get("per")
            if style and template:
                yield f"rate/{unit}/{per}", Style(style.values, _inside(template, style.render))

    def _durations(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of durations: one to three units, joined by the pattern for such lists."""
        join = self._joiner("standard", "standard-short", "unit-short", "unit")
        for names in _DURATIONS:
            templates = [self._unit(f"duration-{name}") for name in names]
            if all(templates) and (join or len(names) == 1):
                parts = [self._counted(forms) for forms in templates]
                yield (
                    f"duration/{'/'.join(names)}",
                    Style(f"duration {' '.join(names)}", _each(parts, join)),
                )

    def _names(self) -> Iterator[tuple[str, Style]]:
        """Yield styles of names: territories, and languages with a two-letter code."""
        for code, name in self.own.get("territories", {}).items():
            # XA to XZ (except XK), QO, ZZ and the unions are not territories of the world.
            if re.fullmatch("(?!X[^K]|QO|ZZ|EU|EZ|UN)[A-Z]{2}", code) and name != code:
                yield f"territory/{code}", Style("name", _constant(name))
        for code, name in self.own.get("languages", {}).items():
            if re.fullmatch("[a-z]{2}", code) and name != code:
                yield f"language/{code}", Style("name", _constant(name))

    def _forms(self) -> Iterator[tuple[str, Callable[[list[str]], str]]]:
        for name, key in (("and", "standard"), ("or", "or")):
            join = self._joiner(key)
            if join:
                yield name, join
        note = self.locale.zone_formats["fallback"].replace("%(0)s", "{0}").replace("%(1)s", "{1}")
        note = note.translate(_SPACES)
        yield "note", lambda texts: note.format(texts[1], texts[0])

    def _joiner(self, *keys: str) -> Callable[[list[str]], str] | None:
        """Compile list patterns, each inheriting from the one before; None without own words."""
        own = self.own.get("list_patterns", {})
        words = {"end", "2"} & own.get(keys[0], {}).keys()
        # The root joins with commas, which are not words, and with "or", which is English.
        if not words or (keys[0] == "or" and len(words) < 2):
            return None
        patterns = dict(self._root["list_patterns"][keys[0]])
        for key in keys:
            patterns.update(own.get(key, {}))
        patterns = {key: pattern.translate(_SPACES) for key, pattern in patterns.items()}

        def join(texts: list[str]) -> str:
            if len(texts) == 2:
                return patterns["2"].format(*texts)
            joined = patterns["start"].format(texts[0], texts[1])
            for text in texts[2:-1]:
                joined = patterns["middle"].format(joined, text)
            return patterns["end"].format(joined, texts[-1])

        return join


def _has_cents(value: Number) -> bool:
    """Return whether the number has two decimal places, a zero at the end included."""
    return isinstance(value, Decimal) and value.as_tuple().exponent == -2


def _constant(text: str) -> Render:
    text = text.translate(_SPACES)
    return lambda _: text


def _inside(template: str, render: Render) -> Render:
    before, _, after = template.translate(_SPACES).partition("{0}")
    return lambda value: before + render(value) + after


def _both_sides(glue: str, render: Render) -> Render:
    return lambda span: glue.format(render(span[0]), render(span[1]))


def _each(parts: list[Render], join: Callable[[list[str]], str] | None) -> Render:
    if len(parts) == 1 or join is None:
        return lambda values: parts[0](values[0])
    return lambda values: join([part(value) for part, value in zip(parts, values, strict=True)])


def _read_data(identifier: str) -> dict:
    """Read one locale's data without what it inherits.

    `babel.localedata.load(merge_inherited=False)` would do this, but Babel then caches the part and
    uses it as the whole locale later.
    """
    from babel.localedata import resolve_locale_filename

    with open(resolve_locale_filename(identifier), "rb") as file:
        return pickle.load(file)


def _own_data(identifier: str) -> dict:
    """Merge the data of a locale and its parents, without the root."""
    from babel.core import get_global
    from babel.localedata import merge

    lineage = []
    while identifier != "root":
        lineage.append(identifier)
        head, _, tail = identifier.rpartition("_")
        likely = get_global("likely_subtags").get(head, "")
        other_script = len(tail) == 4 and tail not in likely.split("_")
        parent = "root" if not head or other_script else head
        identifier = get_global("parent_exceptions").get(identifier) or parent
    data: dict = {}
    for name in reversed(lineage):
        merge(data, _read_data(name))
    return data
