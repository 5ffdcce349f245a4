"""Informal variants of a text: lower case, capitals, no final punctuation, a typo, ..."""

from collections.abc import Callable
from random import Random

from ..written_forms import lower, upper

MARKS = ".!?\u2026\u3002\uff01\uff1f\"'\u201c\u201d "


def without_mark(text: str) -> str:
    """Remove the punctuation at the end of a text."""
    return text.rstrip(MARKS) or text


def in_title_case(text: str, language: str) -> str:
    """Return a text with the first letter of each word in upper case."""
    return " ".join(upper(word[:1], language) + word[1:] for word in text.split(" "))


def with_typo(text: str, random: Random) -> str:
    """Swap two neighbouring letters inside of a random word, if there are any."""
    places = [
        place
        for place in range(1, len(text) - 1)
        if text[place - 1 : place + 2].isalpha() and text[place] != text[place + 1]
    ]
    if not places:
        return text
    place = random.choice(places)
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


# Variants by name: (source, its language, random numbers) -> the variant of the source.
VARIANTS: dict[str, Callable[[str, str, Random], str]] = {
    "as written": lambda text, language, random: text,
    "lower case": lambda text, language, random: lower(text, language),
    "capitals": lambda text, language, random: upper(text, language),
    "title case": lambda text, language, random: in_title_case(text, language),
    "no final mark": lambda text, language, random: without_mark(text),
    "lower case, no mark": lambda text, language, random: lower(without_mark(text), language),
    "a typo": lambda text, language, random: with_typo(text, random),
    "in quotation marks": lambda text, language, random: f'"{text}"',
}

# Forms of a source that its translation should have too.
_TAKEN_OVER = ("capitals", "in quotation marks")
_TYPOS = 6  # weight of typos against other forms: they vary most, and no rule corrects them


def informal_pair(
    source: str, target: str, languages: tuple[str, str], random: Random
) -> tuple[str, str]:
    """Return a pair whose source is a random informal variant of the original.

    The target changes only for capitals and quotation marks, which a translation copies.

    Args:
        source: The source as written.
        target: Its translation.
        languages: Codes of source and target.
        random: Generator of random numbers.
    """
    typed = {name: form(source, languages[0], random) for name, form in VARIANTS.items()}
    changed = [name for name, text in typed.items() if text != source]
    weights = [_TYPOS if name == "a typo" else 1 for name in changed]
    (name,) = random.choices(changed, weights)
    if name in _TAKEN_OVER:
        target = VARIANTS[name](target, languages[1], random)
    return typed[name], target
