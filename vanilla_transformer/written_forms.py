# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Adapt letter case, apostrophes and final punctuation of inputs to the training sources.

A model translates badly what does not look like its training sources. How they are written (see
`data.form_counts`) is saved in the tokenizer's settings; only forms that they rarely have change.
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

WRITTEN_FORMS = "written_forms"  # the tokenizer's setting that stores `WrittenForms`
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"))
_WORD = re.compile(r"([^\W\d_]+(?:'[^\W\d_]+)*)")  # [^\W\d_] is [\p{L}\p{Nl}\p{No}] in JavaScript
_FIRST = re.compile(_WORD.pattern + r"(?![,'\w])")
_DOTTED_I = re.compile("(tr|tur|az|aze)([-_]|$)", re.IGNORECASE)  # languages that have a dotless i
# Title case needs two capitalized common words, or one whose frequency rank is below this.
_TELLING = 100


@dataclass(frozen=True)
class WrittenForms:
    """How the training sources are written: case, apostrophes, final punctuation, characters."""

    languages: tuple[str, str] = ("", "")  # codes of source and target; empty if unknown
    unusual: tuple[str, ...] = ()  # letter cases of few sources: "lower", "upper", "title", "mixed"
    is_upper: bool = False  # all sources are in capitals
    is_raised: bool = False  # nearly all sources begin with a capital
    forms: tuple[str, ...] = ()  # words that mostly have capitals inside a sentence, as written
    common: tuple[str, ...] = ()  # words that are mostly in lower case, most frequent first
    contractions: tuple[str, ...] = ()  # words that are never without their apostrophe: "don't"
    mark: str = ""  # usual final punctuation of the sources; empty if they have none
    marks: dict[str, str] = field(default_factory=dict)  # other marks, by first word: ? for "where"
    has_cased_targets: bool = False  # targets have capitals and small letters
    are_sentences: bool = False  # hardly any source has several sentences
    signs: str = ""  # the characters of the sources; empty if unknown

    def to_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Store the forms in the tokenizer's settings, so that they are saved with it."""
        tokenizer.init_kwargs[WRITTEN_FORMS] = json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Frequency rank of each common word, from 0."""
        return {word: place for place, word in enumerate(self.common)}

    @cached_property
    def _forms(self) -> dict[str, str]:
        """The usual form of each known word, by its lower case, also with ss for a sharp s."""
        forms = {lower(form, self.languages[0]): form for form in (*self.common, *self.forms)}
        return {word.replace("\u00df", "ss"): form for word, form in forms.items()} | forms

    @cached_property
    def _contracted(self) -> dict[str, int]:
        """Index of the apostrophe in each contraction, by the word without it."""
        return {word.replace("'", ""): word.index("'") for word in self.contractions}

    def source_of(self, text: str) -> str:
        """Rewrite a text like training sources: letter case, apostrophes, final punctuation."""
        language = self.languages[0]
        is_unusual = (case := case_of(text, language, self._ranks)) in self.unusual
        found = _WORD.split(lower(text, language))
        if not is_unusual and self._contracted.keys().isdisjoint(found):  # true of most texts
            return text + self.mark_missing(text)

        def usual(word: str) -> str:
            small = lower(word, language)
            place = self._contracted.get(small)
            if place and (is_unusual or word == small or text.startswith(word)):  # Wed is not we'd
                word, small = (f"{form[:place]}'{form[place:]}" for form in (word, small))
            if case == "title" and is_unusual and small not in self._ranks:
                return self._forms.get(small, word)  # a rare word may be a name
            others = upper(word, language) if self.is_upper else small
            return self._forms.get(small, others) if is_unusual else word

        tokens = (text.translate(_APOSTROPHES) if is_unusual else text).split(" ")
        text = " ".join(t if is_address(t) else _WORD.sub(lambda w: usual(w[0]), t) for t in tokens)
        if is_unusual and self.is_raised and not is_address(tokens[0]):
            begin = next((place for place, sign in enumerate(text) if sign.isalnum()), 0)
            text = text[:begin] + upper(text[begin : begin + 1], language) + text[begin + 1 :]
        return text + self.mark_missing(text)

    def mark_missing(self, text: str) -> str:
        """Return the final punctuation that a text lacks, chosen by its first word; "" if none."""
        if not self.mark or category(text.rstrip()[-1:] or " ")[0] not in "LMN":
            return ""
        return self.marks.get(first_word(text, self.languages[0]), self.mark)

    def translation_of(self, text: str, translation: str) -> str:
        """Write a translation in capitals or without final punctuation if its text was typed so."""
        if self.mark_missing(text) and category(translation[-1:] or " ") == "Po":
            translation = translation[:-1].rstrip()
        source, target = self.languages
        shouts = self.has_cased_targets and case_of(text, source, {}) == "upper"
        if shouts and case_of(self.source_of(text), source, {}) != "upper":  # not an abbreviation
            translation = upper(translation, target)
        return translation


def written_forms(tokenizer: PreTrainedTokenizerBase) -> WrittenForms:
    """Return the `WrittenForms` stored with a tokenizer, or empty ones, which change no text."""
    return _read(getattr(tokenizer, "init_kwargs", {}).get(WRITTEN_FORMS, "{}"))


@lru_cache(maxsize=4)
def _read(written: str) -> WrittenForms:
    try:
        values = json.loads(written)
        lists = ("languages", "unusual", "forms", "common", "contractions")
        values |= {name: tuple(map(str, values[name])) for name in lists if name in values}
        return WrittenForms(**values)
    except (TypeError, ValueError) as error:
        what = f"{WRITTEN_FORMS} in tokenizer_config.json is damaged ({error})"
        raise RequestError(f"{what}; delete that setting, and texts stay as typed.") from error


def words(text: str) -> list[str]:
    """Split a text into words, at odd indices, and what is between them, at even indices."""
    return _WORD.split(text.translate(_APOSTROPHES))


def first_word(text: str, language: str) -> str:
    """Return the first word that no comma follows, in lower case: "how" in "Hi, how are you"."""
    found = _FIRST.search(text.translate(_APOSTROPHES))
    return lower(found[0], language) if found else ""


def is_address(token: str) -> bool:
    """Return whether a token contains digits, dots or the like, as addresses and numbers do."""
    inside = token.strip("".join(sign for sign in {*token} if category(sign)[0] in "PS"))
    return any(not sign.isalpha() and sign not in "'-" for sign in inside)


def case_of(text: str, language: str, common: Mapping[str, int]) -> str:
    """Return the case of a text: "lower", "upper", "title", "mixed", or "" without cased letters.

    In title case nearly all words begin with a capital, even common words inside the text.
    `common` maps words that are mostly in lower case to their frequency rank.
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
