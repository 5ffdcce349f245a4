"""Languages by their codes and names, as headers of tables write them, from Babel's CLDR.

Babel comes with the extra `train`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from unicodedata import category, normalize

_BCP_47 = re.compile(r"([a-z]{2,3})([-_][a-z0-9]{2,8})*", re.IGNORECASE)  # or a locale
# CLDR writes these in another way than people do.
_SCRIPTS = {
    "Hans": {"CJK"},
    "Hant": {"CJK"},
    "Jpan": {"CJK", "HIRAGANA", "KATAKANA"},
    "Kore": {"HANGUL"},
    "Beng": {"BENGALI"},
    "Cans": {"CANADIAN"},
    "Latg": {"LATIN"},
    "Mand": {"MANDAIC"},
    "Nkoo": {"NKO"},
    "Orya": {"ORIYA"},
    "Saur": {"SAURASHTRA"},
    "Xsux": {"CUNEIFORM"},
}


def folded(text: str) -> str:
    """Return a name in lower case, composed, and without characters that nobody sees."""
    seen = (sign for sign in normalize("NFKC", text) if category(sign) != "Cf")
    return "".join(seen).strip().casefold()


def language_of(text: str) -> str | None:
    """Return the code of the language that a text names, of two letters if there is one, or None.

    Known are codes of ISO 639-1 to 639-3, tags of BCP 47, locales, and names in English, German,
    French, Spanish and Chinese; see `own_name` for the others.
    """
    name = folded(text)
    if code := _codes().get(name) or _names().get(name):
        return code
    tag = _BCP_47.fullmatch(name)
    parts = re.split("[-_]", name)[1:]
    known = all(len(part) == 2 or part.isdigit() or part in _subtag_names() for part in parts)
    return _codes().get(tag[1]) if tag and known else None  # en_text is no tag


def places_of(language: str, names: Sequence[str]) -> list[int]:
    """Return the indices of the names that mean a language; none or several if it is not clear.

    `zh_TW` is `zh-tw` or, without that, `zh-Hant`, `zh` or `Chinese`, but never `zh-CN`. Of
    `id` and `Indonesian` both are meant: the first may be the column of numbers.
    """
    tags, wanted = [*map(tag_of, names)], tag_of(language)
    exact = [place for place, tag in enumerate(tags) if tag == wanted]
    meant = [place for place, tag in enumerate(tags) if is_meant(language, tag)]
    has_rival = any("-" not in tags[place] and tags[place] != wanted for place in meant)
    return exact if exact and ("-" in wanted or not has_rival) else meant


def is_meant(language: str, name: str) -> bool:
    """Return whether a name means a language: its tag, its code or one of its names."""
    wanted, tag = tag_of(language), tag_of(name)
    if tag in (wanted, own_name(language)):
        return True
    code = language_of(language)
    return code is not None and code == language_of(name) and not _differ(wanted, tag)


def tag_of(name: str) -> str:
    """Return a name as tags are written: folded, with hyphens."""
    return folded(name).replace("_", "-")


def _differ(first: str, second: str) -> bool:
    """Return whether two tags of a language name different regions, scripts or variants of it."""
    if "-" not in first or "-" not in second:
        return False
    (*one, variant), (*other, other_variant) = _subtags(first), _subtags(second)
    both = zip(one, other, strict=True)
    return variant != other_variant or any(a != b for a, b in both if a and b)


@lru_cache(maxsize=100)
def own_name(language: str) -> str | None:
    """Return a language's name in that language, in lower case, or None if it is not known."""
    from babel import Locale, UnknownLocaleError

    code = language_of(language)
    try:
        name = Locale.parse(code).languages.get(code) if code else None
    except (UnknownLocaleError, ValueError):
        return None
    return name.casefold() if name else None


def script_of(language: str) -> set[str]:
    """Return the first words that Unicode's names of a language's letters have; none if unknown."""
    from babel import Locale

    _, script, _ = _subtags(language)
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    name = Locale("en").scripts.get(script, "")
    return {name.split()[0].upper()} if name else set()


def _subtags(language: str) -> tuple[str | None, str, str | None]:
    """Return region, script and variant of a language; the script also if it is only likely."""
    from babel.core import get_global, parse_locale

    try:
        code, region, script, variant = parse_locale(tag_of(language), sep="-")[:4]
    except ValueError:
        code, region, script, variant = language, None, None, None
    code, likely = language_of(language) or code, get_global("likely_subtags")
    full = likely.get(f"{code}_{region}") or likely.get(code, "")
    script = script or next((part for part in full.split("_") if len(part) == 4), "")
    script = {"Hang": "Kore"}.get(script, script)  # Korean with Chinese characters, or without
    return None if region == "XX" else region, script, variant  # XX: unknown


@lru_cache(maxsize=1)
def _subtag_names() -> set[str]:
    """Return the scripts and variants that tags may name, in lower case."""
    from babel import Locale

    return {name.casefold() for name in (*Locale("en").scripts, *Locale("en").variants)}


@lru_cache(maxsize=1)
def _codes() -> dict[str, str]:
    """Return the code by which a language is known here, for each of its codes in ISO 639."""
    from babel import Locale
    from babel.core import get_global

    codes = [(code, code) for code in Locale("en").languages]
    codes += get_global("language_aliases").items()
    return {str(old).lower(): str(new).lower() for old, new in codes if "_" not in f"{old}{new}"}


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the code of a language for each of its names, in lower case."""
    from babel import Locale

    names: dict[str, str] = {}
    for locale in ("en", "de", "fr", "es", "zh"):
        for code, name in Locale(locale).languages.items():
            if "_" not in code:
                names.setdefault(name.casefold(), _codes().get(code, code))
    return names
