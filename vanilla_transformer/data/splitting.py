"""Paragraphs into sentences and back: models of sentence pairs translate one sentence at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Between whose sentences there is no space.
_WITHOUT_SPACES = {"zh", "cmn", "yue", "ja"}


def split_sentences(text: str, language: str) -> list[str]:
    """Split a paragraph into its sentences, by the library sentencex.

    Args:
        text: one paragraph.
        language: its code, such as en or pt-BR; sentencex has general rules for those it does not
            know.

    Returns:
        The sentences without the white space around them; a blank text is one.

    Raises:
        ImportError: sentencex is not installed; it comes with the extra `documents`.
    """
    import sentencex

    found = (sentence.strip() for sentence in sentencex.segment(_base(language), text))
    return [sentence for sentence in found if sentence] or [text]


def join_sentences(sentences: Iterable[str], language: str) -> str:
    """Join sentences to a paragraph, with spaces where their language has them.

    Args:
        sentences: in their order; empty ones leave no space.
        language: their code, such as en or zh-Hant.
    """
    space = "" if _base(language) in _WITHOUT_SPACES else " "
    return space.join(filter(None, (sentence.strip() for sentence in sentences)))


def _base(language: str) -> str:
    """The code without region or script."""
    return re.split("[-_]", language.lower())[0]
