# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Texts typed in capitals, without capitals or without a final mark, in the form of training texts.

A model translates only what looks like its training sources, and people type otherwise. How those
sources look (`data.form_counts`) is stored among the tokenizer's settings, so that it is saved and
loaded with the tokenizer. A text changes only where training sources hardly ever look like it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from unicodedata import category

from transformers import PreTrainedTokenizerBase

from .errors import RequestError

WRITTEN_FORMS = "written_forms"  # the setting that stores them
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"))
_WORD = re.compile(r"([^\W\d_]+(?:'[^\W\d_]+)*)")  # JavaScript: [\p{L}\p{Nl}\p{No}]
_DOTTED_I = re.compile("(tr|tur|az|aze)([-_]|$)", re.IGNORECASE)  # and a dotless one
_TELLING = 100  # common words of which one with a capital inside means title case, else two do


@dataclass(frozen=True)
class WrittenForms:
    """How the sources of a training are written."""

    languages: tuple[str, str] = ("", "")  # codes of source and target; empty if unknown
    unusual: tuple[str, ...] = ()  # of "lower", "upper", "title" and "mixed": hardly any source is
    is_upper: bool = False  # the sources have capitals only
    is_raised: bool = False  # nearly all begin with a capital
    # Words that inside a sentence mostly have capitals, as they are written there.
    forms: tuple[str, ...] = ()
    common: tuple[str, ...] = ()  # words that mostly have none, the most frequent first
    mark: str = ""  # that nearly all sources end with, if it is not another one; empty if not
    # The usual mark by first word where it is another one, such as ? after "where".
    marks: dict[str, str] = field(default_factory=dict)
    has_cased_targets: bool = False  # targets have capitals and small letters
    are_sentences: bool = False  # hardly any source has several sentences
    signs: str = ""  # the characters of the sources; empty if unknown

    def to_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Store the forms among the settings that the tokenizer is saved with."""
        tokenizer.init_kwargs[WRITTEN_FORMS] = json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Places of the common words."""
        return {word: place for place, word in enumerate(self.common)}

    @cached_property
    def _forms(self) -> dict[str, str]:
        """The usual form of each word that has capitals, by its lower case."""
        return {lower(form, self.languages[0]): form for form in self.forms}

    def source_of(self, text: str) -> str:
        """Return a text as the training sources would have it."""
        language = self.languages[0]
        case = case_of(text, language, self._ranks)
        if case in self.unusual:

            def usual(word: str) -> str:
                small = lower(word, language)
                if case == "title" and small not in self._ranks:
                    return self._forms.get(small, word)  # a rare word may be a name
                return self._forms.get(small, upper(word, language) if self.is_upper else small)

            tokens = text.translate(_APOSTROPHES).split(" ")
            text = " ".join(
                token if is_address(token) else _WORD.sub(lambda word: usual(word[0]), token)
                for token in tokens
            )
            if self.is_raised and not is_address(tokens[0]):
                begin = next((place for place, sign in enumerate(text) if sign.isalnum()), 0)
                text = text[:begin] + upper(text[begin : begin + 1], language) + text[begin + 1 :]
        return text + self.mark_missing(text)

    def mark_missing(self, text: str) -> str:
        """Return the final mark that training sources with the same first word have."""
        if not self.mark or category(text.rstrip()[-1:] or " ")[0] not in "LMN":
            return ""
        return self.marks.get(first_word(text, self.languages[0]), self.mark)

    def translation_of(self, text: str, translation: str) -> str:
        """Return the translation of a text as typed: in capitals too, and without a final mark."""
        if self.mark_missing(text) and category(translation[-1:] or " ") == "Po":
            translation = translation[:-1].rstrip()
        source, target = self.languages
        shouts = self.has_cased_targets and case_of(text, source, {}) == "upper"
        if shouts and case_of(self.source_of(text), source, {}) != "upper":  # no abbreviation alone
            translation = upper(translation, target)
        return translation


def written_forms(tokenizer: PreTrainedTokenizerBase) -> WrittenForms:
    """Return the forms stored with a tokenizer; without any, no text changes."""
    return _read(getattr(tokenizer, "init_kwargs", {}).get(WRITTEN_FORMS, "{}"))


@lru_cache(maxsize=4)
def _read(written: str) -> WrittenForms:
    try:
        values = json.loads(written)
        lists = ("languages", "unusual", "forms", "common")
        values |= {name: tuple(map(str, values[name])) for name in lists if name in values}
        return WrittenForms(**values)
    except (TypeError, ValueError) as error:
        what = f"{WRITTEN_FORMS} in tokenizer_config.json is damaged ({error})"
        raise RequestError(f"{what}; delete it, and texts are read as they are.") from error


def words(text: str) -> list[str]:
    """Cut a text into what is between words, at even places, and words, at odd ones."""
    return _WORD.split(text.translate(_APOSTROPHES))


def first_word(text: str, language: str) -> str:
    """Return the first word of a text in lower case."""
    found = _WORD.search(text.translate(_APOSTROPHES))
    return lower(found[0], language) if found else ""


def is_address(token: str) -> bool:
    """Return whether there are digits, dots or the like inside of what stands between spaces."""
    inside = token.strip("".join(sign for sign in {*token} if category(sign)[0] in "PS"))
    return any(not sign.isalpha() and sign not in "'-" for sign in inside)


def case_of(text: str, language: str, common: Mapping[str, int]) -> str:
    """Return "lower", "upper", "title" or "mixed"; "" if there are no letters with cases.

    In title case nearly all words begin with a capital, among them common ones inside: those that
    mostly have none, with their places by frequency.
    """
    has_lower, has_upper = text != upper(text, language), text != lower(text, language)
    if not (has_lower and has_upper):
        return "lower" if has_lower else "upper" if has_upper else ""
    found = words(text)[1::2]
    if 5 * sum(word[0].islower() for word in found) >= len(found):
        return "mixed"
    inside = {lower(word, language) for word in found[1:] if not word[0].islower()}
    places = [common[word] for word in inside if word in common]
    return "title" if len(places) > 1 or min(places, default=_TELLING) < _TELLING else "mixed"


def lower(text: str, language: str) -> str:
    """Return a text in lower case."""
    if _DOTTED_I.match(language):
        text = text.replace("I", "\u0131").replace("\u0130", "i")
    return text.lower()


def upper(text: str, language: str) -> str:
    """Return a text in capitals; the sharp s stays, because SS could be another word."""
    if _DOTTED_I.match(language):
        text = text.replace("i", "\u0130")
    return "\u00df".join(part.upper() for part in text.split("\u00df"))
