"""Split paragraphs into sentences, to be translated one by one, and join them again."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Languages without spaces between sentences.
_WITHOUT_SPACES = {"zh", "zho", "chi", "cmn", "yue", "ja", "jpn"}


def split_sentences(text: str, language: str) -> list[str]:
    """Split a paragraph into its sentences, with the library sentencex.

    Args:
        text: One paragraph.
        language: Code of its language, such as en or pt-BR; general rules apply if sentencex
            lacks it.

    Returns:
        The sentences without the white space around them; a text of one sentence as it is.
    """
    import sentencex

    found = (sentence.strip() for sentence in sentencex.segment(_base(language), text))
    sentences = [sentence for sentence in found if sentence]
    return sentences if len(sentences) > 1 else [text]


def join_sentences(sentences: Iterable[str], language: str) -> str:
    """Join sentences into a paragraph, with spaces if their language uses them.

    Args:
        sentences: Sentences in order; empty ones add no space.
        language: Code of their language, such as en or zh-Hant.
    """
    space = "" if _base(language) in _WITHOUT_SPACES else " "
    return space.join(filter(None, (sentence.strip() for sentence in sentences)))


def _base(language: str) -> str:
    """Return the language code without region or script."""
    return re.split("[-_]", language.lower())[0]
