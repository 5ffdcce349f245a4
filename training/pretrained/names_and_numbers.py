"""Make pairs with new names and numbers by replacing those that are too common, such as Tom.

    python training/pretrained/names_and_numbers.py train.jsonl.gz made.jsonl --pair en-de

In Tatoeba every fourth sentence is about Tom, who lives in Boston and has three children, so a
model learns no other names or numbers. Here Tom gets one of some ten thousand first names, Boston
becomes one of fourteen thousand towns, Japan a town or another country, "three" 47, and "seven
o'clock" 7:35. Few sentences have a place, so `--places` adds some, which a model translated.

Names of persons and most towns are Faker's, of many countries; countries and other towns are CLDR's
in both languages, through Babel. Chinese names are written as they sound (chinese_names.py).
Needs `pip install faker babel`.
"""

import argparse
import importlib
import random
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from babel import Locale
from chinese_names import in_chinese
from count_names import rows
from short_pairs import write_pairs

from vanilla_transformer.data.pair_files import read_pairs

FAMILIAR = {
    "man": {"de": {"Tom": "Tom", "John": "John|Johannes"}, "zh": {"Tom": "汤姆", "John": "约翰"}},
    "woman": {
        "de": {"Mary": "Mary|Maria", "Alice": "Alice"},
        "zh": {"Mary": "玛丽", "Alice": "爱丽丝"},
    },
    "town": {
        "de": {name: name for name in ("Boston", "London", "Paris", "Chicago", "Kyoto", "Osaka")}
        | {"Tokyo": "Tokyo|Tokio", "New York": "New York"},
        "zh": {"Boston": "波士顿", "London": "伦敦", "Paris": "巴黎", "Tokyo": "东京"}
        | {"Chicago": "芝加哥", "Kyoto": "京都", "Osaka": "大阪", "New York": "纽约"},
    },
    "country": {
        "de": {
            "Japan": "Japan",
            "Australia": "Australien",
            "China": "China",
            "France": "Frankreich",
        },
        "zh": {"Japan": "日本", "Australia": "澳大利亚|澳洲", "China": "中国", "France": "法国"},
    },
}
# Percentage of the new pairs made from pairs with a `FAMILIAR` name of this kind, or a number.
SHARES = {"man": 20, "woman": 14, "town": 26, "country": 10, "number": 30}
# Faker's locales of countries whose people write with Latin letters.
PEOPLES = (
    *("cs_CZ", "da_DK", "de_DE", "en_GB", "en_IN", "en_NG", "en_US", "es_ES", "es_MX", "et_EE"),
    *("fi_FI", "fr_FR", "hr_HR", "hu_HU", "id_ID", "it_IT", "lv_LV", "nl_NL", "no_NO", "pl_PL"),
    *("pt_BR", "ro_RO", "sk_SK", "sl_SI", "sv_SE", "tr_TR", "yo_NG", "zu_ZA"),
)
TOWNS_OF = ("cs_CZ", "da_DK", "de_DE", "fi_FI", "id_ID", "it_IT", "nl_NL", "pl_PL", "ro_RO")
NUMBERS = {
    "en": "two three four five six seven eight nine ten eleven twelve",
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
}
TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}
VALUES = {
    language: dict(zip(NUMBERS[language].split(), range(2, 13), strict=True))
    | dict(zip(TENS[language].split(), range(20, 100, 10), strict=True))
    for language in NUMBERS
}
CHINESE_DIGITS = dict(zip("一二三四五六七八九", range(1, 10), strict=True)) | {"两": 2}
Change = tuple[str, str]  # a sentence and its translation, changed


class Names:
    """Names in English and another language, drawn at random.

    Args:
        target: "de" or "zh".
        random_: Source of the random numbers.
    """

    def __init__(self, target: str, random_: random.Random) -> None:
        self.target, self.random = target, random_

    def draw(self, kind: str) -> tuple[str, str]:
        """Draw a name of a `FAMILIAR` kind in both languages; for a country, mostly a town."""
        if kind == "country" and self.random.random() < 0.6:
            kind = "town"
        english, target = self.random.choice(self.random.choice(_names(kind, self.target)))
        if self.random.random() < 0.2 and kind in ("man", "woman"):
            surname = self.random.choice(self.random.choice(_names("surname", self.target)))
            space = "·" if self.target == "zh" else " "
            english, target = f"{english} {surname[0]}", f"{target}{space}{surname[1]}"
        return english, target


@cache
def _names(kind: str, target: str) -> list[list[tuple[str, str]]]:
    """Return lists of names of a kind, in both languages; each list is drawn equally often."""
    if kind in ("town", "country"):
        known = [
            (english, other)
            for english, other in _in_both(kind, Locale("en"), Locale(target))
            # No names like "Marengo, Indiana", nor countries that have an article in German.
            if english.replace(" ", "").isalpha()
            and (kind == "town" or not other.endswith(("ei", "eiz", "ine")))
        ]
        if kind == "country":
            return [known]
        return [known, *(_both(_faker("address", people).cities, target) for people in TOWNS_OF)]
    attribute = {"man": "first_names_male", "woman": "first_names_female", "surname": "last_names"}
    lists = (getattr(_faker("person", people), attribute[kind]) for people in PEOPLES)
    return [_both(names, target) for names in lists]


def _in_both(kind: str, english: Locale, other: Locale) -> Iterator[tuple[str, str]]:
    """Yield the names of towns or countries that CLDR has in both languages."""
    if kind == "country":
        for key in sorted(english.territories.keys() & other.territories.keys()):
            if key.isalpha() and english.territories[key].isalpha():
                yield english.territories[key], other.territories[key]
        return
    for zone, names in other.time_zones.items():
        if "city" in names and "/" in zone:
            own = zone.split("/")[-1].replace("_", " ")
            yield english.time_zones.get(zone, {}).get("city", own), names["city"]


def _faker(kind: str, people: str) -> type:
    """Return Faker's provider of a kind, such as "person", for a locale."""
    return importlib.import_module(f"faker.providers.{kind}.{people}").Provider


def _both(names: Iterable[str], target: str) -> list[tuple[str, str]]:
    """Pair each name that is one capitalised word with its form in the target language."""
    words = sorted({name for name in names if name.isalpha() and name.istitle()})
    return list(zip(words, in_chinese(words) if target == "zh" else words, strict=True))


def other_name(
    source: str, translation: str, names: Names, kinds: Iterable[str] = tuple(FAMILIAR)
) -> Change | None:
    """Replace each `FAMILIAR` name that occurs once in both texts; return None if none does."""
    changed = False
    for kind in kinds:
        for name, targets in FAMILIAR[kind][names.target].items():
            if source.count(name) != 1 or not re.search(rf"\b{name}\b", source):
                continue
            edge = "" if names.target == "zh" else r"\b"
            found = list(re.finditer(rf"{edge}({targets})(s?){edge}", translation))
            if len(found) != 1:
                continue
            english, target = names.draw(kind)
            if found[0][2]:  # a genitive: Toms Haus, Agnes' Haus
                target += "'" if target.endswith(("s", "ß", "x", "z")) else "s"
            source = source.replace(name, english)
            translation = translation[: found[0].start()] + target + translation[found[0].end() :]
            changed = True
    return (source, translation) if changed else None


def number_in(text: str, language: str) -> list[tuple[int, int, int]]:
    """Return start, end and value of each number of a text, in digits or words."""
    if language == "zh":
        found = re.finditer(r"\d+|[零一二两三四五六七八九十百千万]+", text)
    else:
        words = "|".join(VALUES[language])
        found = re.finditer(rf"(?<![\w.,:-])(\d+|{words})(?![\w-]|[.,:]\d)", text, re.IGNORECASE)
    return [(*each.span(), _value(each[0].lower(), language)) for each in found]


def _value(text: str, language: str) -> int:
    """Return the value of a number in digits, or in words from 2 to 99; 0 for other words."""
    if text.isascii() and text.isdecimal():
        return int(text)
    if language != "zh":
        return VALUES[language].get(text, 0)
    tens, ten, ones = text.rpartition("十")
    value = CHINESE_DIGITS.get(ones, 0)
    return value + 10 * (CHINESE_DIGITS.get(tens, 0) if tens else 1) if ten else value


def other_number(
    source: str, translation: str, target: str, random_: random.Random
) -> Change | None:
    """Replace the number of a pair; return None unless both texts have one, and the same one."""
    english, other = number_in(source, "en"), number_in(translation, target)
    if len(english) != 1 or len(other) != 1 or english[0][2] != other[0][2] or english[0][2] < 2:
        return None
    (start, end, value), (begin, stop, _) = english[0], other[0]
    before, after, rest = source[:start], source[end:], translation[stop:]
    if re.match(r" (hundred|thousand|million|billion|times as|percent)", after):
        return None
    said_before, clock = translation[:begin], "点" if target == "zh" else " Uhr"
    is_time = rest.startswith(clock) or (target == "de" and said_before.endswith("um "))
    if is_time and value <= 12:
        hour, minute = random_.randint(1, 12), random_.randint(1, 59)
        said = f"{hour}点{minute}分" if target == "zh" else f"{hour}:{minute:02} Uhr"
        rest = rest.removeprefix(clock).removeprefix("钟")
        time = f"{hour}:{minute:02}"
        return before + time + after.removeprefix(" o'clock"), said_before + said + rest
    number = number_like(value, random_)
    digits = f"{number:,}" if number > 2100 else str(number)
    said = digits.replace(",", "." if target == "de" else "")
    return before + digits + after, said_before + said + rest


def number_like(value: int, random_: random.Random) -> int:
    """Draw a year if the value looks like one, else a number of up to four digits."""
    if 1000 < value < 2100:
        return random_.randint(1500, 2040)
    digits = random_.choices((1, 2, 3, 4), weights=(1, 5, 3, 1))[0]
    return random_.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)


def _has_all_names(source: str, translation: str, target: str) -> bool:
    """Return whether a translation has the counterpart of each `FAMILIAR` name in its source."""
    named = [(name, known[target][name]) for known in FAMILIAR.values() for name in known[target]]
    return all(re.search(other, translation) for name, other in named if name in source)


def make_pairs(
    pairs: Iterable[tuple[str, str]],
    target: str,
    held_out: Iterable[str],
    count: int,
    seed: int,
    places: Iterable[tuple[str, str]] = (),
) -> Iterator[Change]:
    """Yield new pairs, each once: copies of given pairs with names and numbers replaced.

    Args:
        pairs: English sentences and their translations.
        target: Language of the translations, "de" or "zh".
        held_out: Words and numbers that no source may have, because a test has them.
        count: Number of pairs.
        seed: Seed of all draws.
        places: More pairs, of which those with a town or a country are used.
    """
    random_, held_out = random.Random(seed), {*held_out}
    names = Names(target, random_)
    by_kind: dict[str, list[Change]] = {kind: [] for kind in SHARES}
    for pair in pairs:
        kinds = [kind for kind in FAMILIAR if other_name(*pair, names, [kind])]
        if other_number(*pair, target, random_):
            kinds.append("number")
        if kinds:
            by_kind[kinds[-1]].append(pair)  # the rarest kind that the pair has
    for pair in places:
        kinds = [kind for kind in FAMILIAR if other_name(*pair, names, [kind])]
        if kinds and kinds[-1] in ("town", "country") and _has_all_names(*pair, target):
            by_kind[kinds[-1]].append(pair)
    shares = {kind: SHARES[kind] for kind, known in by_kind.items() if known}
    seen = set()
    while len(seen) < count:
        (kind,) = random_.choices([*shares], [*shares.values()])
        pair = random_.choice(by_kind[kind])
        numbered = other_number(*pair, target, random_) or pair
        made = other_name(*numbered, names) or numbered
        if made not in seen and held_out.isdisjoint(re.findall(r"\w+(?:[:,]\w+)*", made[0])):
            seen.add(made)
            yield made


def main() -> None:
    """Read the command line, and write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="file of pairs")
    parser.add_argument("output", type=Path, help="JSON Lines to write")
    parser.add_argument("--pair", default="en-de", help="en-de, de-en or en-zh")
    files = {"nargs": 2, "type": Path, "metavar": ("SOURCES", "TRANSLATIONS"), "default": ()}
    parser.add_argument("--places", **files, help="texts; only lines with a place are used")
    parser.add_argument("--count", type=int, default=60_000, help="number of pairs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (target,) = {*options.pair.split("-")} - {"en"}
    pairs = read_pairs(options.pairs, source_language="en", target_language=target)
    texts = [file.read_text(encoding="utf-8").splitlines() for file in options.places]
    places = zip(*texts, strict=True)
    held_out = [each for row in rows("en") for each in row[1:]]
    made = make_pairs(pairs, target, held_out, options.count, options.seed, places)
    write_pairs(options.output, made, target)


if __name__ == "__main__":
    main()
