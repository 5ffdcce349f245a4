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
    if code := _names().get(name):
        return code
    tag = _BCP_47.fullmatch(name)
    return _codes().get(tag[1]) if tag else None


def places_of(language: str, names: Sequence[str]) -> list[int]:
    """Return the indices of the names that mean a language; none or several if it is not clear.

    `zh_TW` is `zh-tw` or, without that, `zh` or `Chinese`, but never `zh-CN`, another variety. Of
    `id` and `Indonesian` both are meant: the first may be the column of numbers.
    """
    tags, wanted = [*map(_tag, names)], _tag(language)
    exact = [place for place, tag in enumerate(tags) if tag == wanted]
    meant = [place for place, tag in enumerate(tags) if is_meant(language, tag)]
    has_rival = any("-" not in tags[place] and tags[place] != wanted for place in meant)
    return exact if exact and ("-" in wanted or not has_rival) else meant


def is_meant(language: str, name: str) -> bool:
    """Return whether a name means a language: its tag, its code or one of its names."""
    wanted, tag = _tag(language), _tag(name)
    if tag in (wanted, own_name(language)):
        return True
    other_variety = "-" in wanted and "-" in tag
    code = language_of(language)
    return code is not None and code == language_of(name) and not other_variety


def _tag(name: str) -> str:
    return folded(name).replace("_", "-")


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
    from babel.core import get_global

    code = language.replace("-", "_")
    likely = get_global("likely_subtags")
    full = likely.get(code) or likely.get(language_of(language) or "", "")
    script = next((part for part in (*code.split("_"), *full.split("_")) if len(part) == 4), "")
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    name = Locale("en").scripts.get(script, "")
    return {name.split()[0].upper()} if name else set()


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
