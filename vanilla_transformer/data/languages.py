"""Language codes and names from Babel's CLDR, and identification of a text's language.

Babel and the language identifier, py3langid, come with the extra `train`. Both work offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, normalize

import numpy as np

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Codes that the identifier does not know, and the codes that it gives these languages.
_KNOWN_AS = {"nb": "no", "sh": "sr", "fil": "tl", "in": "id", "mo": "ro"}
# Languages in which names of languages are understood: those most used in table headers.
_LARGE = ("en", "es", "fr", "de", "pt", "it", "ru", "zh", "ja", "ko", "nl", "pl", "cs", "tr", "ar")
_CHARACTERS = 200  # only this many characters of a text are read
# A text has full weight if the probabilities of the two languages add up to at least this. Short
# texts of everyday words reach about this sum; chance, with 140 languages, would give 0.014.
_FULL_WEIGHT = 0.1
# For a foreign text: lowest probability of its language, highest one of the expected language.
_SURE, _HARDLY = 0.9, 0.01


def folded(text: str) -> str:
    """Normalize a name: NFKC, lower case, no invisible characters, no spaces at the ends."""
    visible = (sign for sign in normalize("NFKC", text) if category(sign) != "Cf")
    return "".join(visible).strip().casefold()


def tag_of(name: str) -> str:
    """Write a name as a language tag: in lower case, with hyphens."""
    return folded(name).replace("_", "-").partition("@")[0]  # en_US@euro is a locale


@lru_cache(maxsize=10_000)
def _parsed(name: str, own: str = "en") -> tuple[str, str, frozenset[str]]:
    """Parse a language's name or tag into code, likeliest script, and other parts of the tag.

    Args:
        name: Code, tag or locale; or a name in the language `own` or in one of `_LARGE`.
        own: Code of a further language in which the name may be written.

    Returns:
        The code of the language, "" if there is none; the likeliest script; and the script and the
        other parts of a tag, in lower case, if it is more than a code.
    """
    from babel import Locale
    from babel.core import get_global

    english, likely = Locale("en"), get_global("likely_subtags")
    named = (_names(locale).get(folded(name)) for locale in (own, *_LARGE))
    code, *parts = tag_of(next(filter(None, named), name)).split("-")
    subtags = {*map(str.casefold, (*english.territories, *english.scripts, *english.variants))}
    code = _codes().get(code, "") if {*parts} <= subtags else ""  # en-text is not a tag
    regional = [likely.get(f"{code}_{part.upper()}", "") for part in parts]
    known = "_".join([*map(str.title, parts), *regional, likely.get(code, "")]).split("_")
    script = next((part for part in known if part in english.scripts), "")
    return code, script, frozenset([script.lower(), *parts] if parts else [])


def language_of(name: str) -> str | None:
    """Return the code of the language that a name means, or None: "de" for "German" or "de-AT".

    It accepts codes of ISO 639, tags of BCP 47 such as pt-BR, locales, and names in the languages
    most used in table headers.
    """
    return _parsed(name)[0] or None


def script_of(language: str) -> str:
    """Return the ISO 15924 code of a language's likeliest script, "" if unknown."""
    return _parsed(language)[1]


def is_meant(language: str, name: str) -> bool:
    """Return whether a name, such as that of a column, means the given language.

    The name may be what the user wrote, another tag that names no different region or script, or
    the language's name in itself or in one of `_LARGE`: "pt" and "Portuguese" mean "pt_BR", but
    "pt-PT" does not.
    """
    code, _, wanted = _parsed(language)
    found, _, parts = _parsed(name, code or "en")
    if code and found:
        return code == found and (wanted <= parts or parts <= wanted)
    return tag_of(language) == tag_of(name)


def places_of(language: str, names: Sequence[str]) -> list[int]:
    """Return the indices of the names that mean a language; see `is_meant`.

    If some are the language exactly as the user wrote it, only those are returned.
    """
    exact = [place for place, name in enumerate(names) if tag_of(name) == tag_of(language)]
    return exact or [place for place, name in enumerate(names) if is_meant(language, name)]


@lru_cache(maxsize=1)
def _codes() -> dict[str, str]:
    """Map each ISO 639 code to the code that this package uses for the language."""
    from babel import Locale
    from babel.core import get_global

    codes = [(code, code) for code in Locale("en").languages]
    codes += get_global("language_aliases").items()
    return {str(old).lower(): str(new).lower() for old, new in codes if "_" not in f"{old}{new}"}


@lru_cache(maxsize=100)
def _names(locale: str) -> dict[str, str]:
    """Map the names of languages, in the language of `locale`, to their tags."""
    from babel import Locale, localedata

    known = Locale(locale).languages if localedata.exists(locale) else {}
    return {name.casefold(): tag for tag, name in known.items()}


# ------------------------------------------------------------------------------- identification


class Evidence(NamedTuple):
    """Result of identifying the language of each text as one of two.

    Attributes:
        shares: (N, 2), how much of each text is in the source and in the target language, 0 to 1.
            Both are small for other languages, and for texts too short to tell.
        odds: (N,), logarithm of the odds that a text is in the source language and not in the
            target language, limited to -4 to 4.
        elsewhere: (N,), probability that a text is in neither of the two.
        is_whole: Whether the identifier knows both languages.
    """

    shares: np.ndarray
    odds: np.ndarray
    elsewhere: np.ndarray
    is_whole: bool


def identified(texts: Sequence[str], languages: tuple[str, str]) -> Evidence | None:
    """Identify the language of each text, as the source or the target language.

    This takes some 0.1 ms per text; only the first 200 characters are read.

    Args:
        texts: Any texts.
        languages: Source and target.

    If the identifier does not know one of the two, that one stands for all other languages.

    Returns:
        None if the languages cannot be distinguished: a name is not a language, the identifier
        knows neither, or both are the same language.
    """
    codes = [language_of(language) for language in languages]
    if None in codes or codes[0] == codes[1]:
        return None
    codes = [_KNOWN_AS.get(code or "", code) for code in codes]
    known = [code in _identifier().labels for code in codes]
    if not any(known):
        return None
    probabilities = np.zeros((len(texts), 2))
    for row, text in enumerate(texts):
        ranked = dict(_identifier().rank(text[:_CHARACTERS]))
        probabilities[row] = [ranked.get(str(code), 0.0) for code in codes]
    neutral = np.ones(2)
    if not all(known):
        unknown = known.index(False)
        probabilities[:, unknown] = 1 - probabilities[:, 1 - unknown]
        neutral[unknown] = len(_identifier().labels) - 1
    both = probabilities.sum(axis=1, keepdims=True)
    shares = probabilities / np.maximum(both, _FULL_WEIGHT)
    source, target = (probabilities / neutral + 1e-6).T
    return Evidence(shares, np.log(source / target).clip(-4, 4), 1 - both[:, 0], all(known))


def foreign_language(text: str, language: str) -> str | None:
    """Return the English name of a text's language if it is clearly not the expected language.

    None also if the identifier is not installed, or does not know the expected language.
    """
    try:
        ranked = dict(_identifier().rank(text[:_CHARACTERS]))
    except ImportError:
        return None
    own, found = language_of(language), next(iter(ranked))
    own = _KNOWN_AS.get(own or "", own)
    if own not in ranked or ranked[found] < _SURE or ranked[own] > _HARDLY:
        return None
    return english_name(found)


def likely_languages(text: str, expected: Sequence[str]) -> list[tuple[str, float]]:
    """Return up to three codes of languages that a text may be in, with their probabilities.

    They are among the expected ones, unless the text is clearly in another language.
    """
    ranked = _identifier().rank(text[:_CHARACTERS])
    codes = {_KNOWN_AS.get(code, code): code for code in expected}
    if ranked[0][0] not in codes and ranked[0][1] > _SURE:
        return [(label, float(share)) for label, share in ranked[:3]]
    own = [(codes[label], float(share)) for label, share in ranked if label in codes]
    whole = sum(share for _, share in own) or 1.0
    return [(code, share / whole) for code, share in own[:3]] or [(expected[0], 0.0)]


def english_name(code: str) -> str:
    """Return a language's name, or its code if it has none."""
    from babel import Locale

    return Locale("en").languages.get(code, code)


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
