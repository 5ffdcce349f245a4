"""Scores of a model on sources as people type them: in capitals, without marks, with a typo, ..."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..storage.metrics import Scores
from ..translation.many_texts import translate
from ..written_forms import lower, upper
from .scores import References, corpus_scores

MOST = 1_000  # sources, evenly spread; each is translated in every form
_MARKS = ".!?\u2026\u3002\uff01\uff1f\"'\u201c\u201d "


def without_mark(text: str) -> str:
    """Return a text without the marks at its end."""
    return text.rstrip(_MARKS) or text


def in_title_case(text: str, language: str) -> str:
    """Return a text with a capital at the beginning of each word."""
    return " ".join(upper(word[:1], language) + word[1:] for word in text.split(" "))


def with_typo(text: str, random: Random) -> str:
    """Return a text with two neighbouring letters swapped inside of a word, if there are any."""
    inside = range(1, len(text) - 1)
    places = [
        place
        for place in inside
        if text[place - 1 : place + 2].isalpha() and text[place] != text[place + 1]
    ]
    if not places:
        return text
    place = random.choice(places)
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


# By name: source, its language, random numbers -> the source as somebody might type it.
TYPED_FORMS: dict[str, Callable[[str, str, Random], str]] = {
    "as written": lambda text, language, random: text,
    "lower case": lambda text, language, random: lower(text, language),
    "capitals": lambda text, language, random: upper(text, language),
    "title case": lambda text, language, random: in_title_case(text, language),
    "no final mark": lambda text, language, random: without_mark(text),
    "lower case, no mark": lambda text, language, random: lower(without_mark(text), language),
    "a typo": lambda text, language, random: with_typo(text, random),
    "in quotation marks": lambda text, language, random: f'"{text}"',
}


def robustness(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: References,
    *,
    languages: tuple[str, str],
    measures: Sequence[str],
    **options: Any,
) -> dict[str, Scores]:
    """Return scores of a model on sources in each of `TYPED_FORMS`.

    Case and the final mark of translations and references do not count, because a translation
    follows its source in both.

    Args:
        model: A sequence-to-sequence model.
        tokenizer: Its tokenizer.
        sources: Sentences to translate; of more than `MOST`, so many.
        references: One reference each, or several each.
        languages: Codes of source and target.
        measures: Names from `MEASURES`.
        **options: Those of `translate`.
    """
    step, random = -(-len(sources) // MOST) or 1, Random(0)
    rows = ([row] if isinstance(row, str) else row for row in references[::step])
    wanted = [[_plain(text) for text in row] for row in rows]
    scores = {}
    for name, form in TYPED_FORMS.items():
        texts = [form(text, languages[0], random) for text in sources[::step]]
        found = [_plain(text) for text in translate(model, tokenizer, texts, **options)]
        scores[name] = corpus_scores(found, wanted, target_language=languages[1], measures=measures)
    return scores


def _plain(text: str) -> str:
    return without_mark(text).lower().lstrip(_MARKS)
