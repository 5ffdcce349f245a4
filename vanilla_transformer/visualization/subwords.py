"""Group token ids into words, and shorten words to labels, for attention pictures."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ..storage.reading import printable
from ..word_alignment import special_ids, word_numbers

_MARKS = re.compile("^##|@@$|</w>$")  # markers of pieces that are parts of a word
_BLANK = "\N{OPEN BOX}"  # label of a piece that is only white space
_CONTINUED = "\N{MIDDLE DOT}"  # marks a piece that continues a word
# Scripts without spaces between words: there, each piece counts as a word.
_UNSPACED = r"[\p{Thai}\p{Lao}\p{Myanmar}\p{Khmer}\p{Hiragana}\p{Katakana}\u30fc\p{Han}]"
_JOINED = r"[\p{M}\p{Cf}]"  # belongs to the character before: an accent, vowel sign or joiner
_LETTER = rf"[[\p{{L}}\p{{N}}]--{_UNSPACED}]"
_LETTERS = rf"(?:{_LETTER}{_JOINED}*)+"
# Definition of a word for `whole_words`; the last line is a run of punctuation.
_WORD = regex.compile(
    rf"""(?V1x) \s+ | {_UNSPACED}{_JOINED}* | {_LETTERS}(?:['\u2019\-_.,:]{_LETTERS})*
    | (?:\p{{S}}{_JOINED}*)+
    | [^\s\p{{L}}\p{{N}}\p{{S}}]+"""
)
_IN_WORD = regex.compile(rf"(?V1){_LETTER}|{_JOINED}")
_LONGEST_LABEL = 24  # columns of text
_INVISIBLE = regex.compile(r"[\p{Cf}\ufe0e\ufe0f]")  # the last two select variants of emoji


class Word(NamedTuple):
    """A word of a sentence: its text, and its pieces from `start` up to `end`."""

    text: str
    start: int
    end: int


def token_words(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    r"""Return a readable text for each id.

    Leading spaces are left out; a piece that continues a word starts with a middle dot instead.
    Bytes that are only a part of a character are shown as ``\xe4``.
    """
    texts = []
    for word in whole_words(tokenizer, ids):
        before = ""
        for index in ids[word.start : word.end]:
            piece = _text_of(tokenizer, [index])
            inside = _IN_WORD.match(before[-1:]) and _IN_WORD.match(piece)
            texts.append((_CONTINUED if inside else "") + (piece.strip() or _BLANK))
            before = piece
    return texts


def whole_words(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[Word]:
    """Group ids into words, in order; each id belongs to exactly one word.

    A word is a run of letters and digits, joined by apostrophes, hyphens or points; a run of other
    characters; or a special token. In scripts without spaces it is one piece. The pieces of one
    character always stay together.
    """
    special = special_ids(tokenizer)
    text = tokenizer.decode([*ids], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    words = " ".join(word for word in _WORD.findall(str(text)) if not word.isspace())
    numbers = word_numbers(tokenizer, words, ids, unknown_words=False)
    starts, last, joins_next = [], None, False
    for place, (index, number) in enumerate(zip(ids, numbers, strict=True)):
        # A piece that is only white space belongs to the next word.
        goes_on = joins_next or (number is not None and number == last)
        if index in special or not goes_on:
            starts.append(place)
        last, joins_next = number, number is None and index not in special
    bounds = itertools.pairwise([*starts, len(ids)])
    return [
        Word(_text_of(tokenizer, ids[start:end]).strip() or _BLANK, start, end)
        for start, end in bounds
    ]


def _text_of(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Decode ids without the markers of subwords, such as "##" and "@@"."""
    text = str(tokenizer.decode([*ids], clean_up_tokenization_spaces=False))
    signs = "".join(map(str, tokenizer.convert_ids_to_tokens([*ids])))
    alphabet = {sign: byte for byte, sign in bytes_to_unicode().items()}  # GPT-2's signs for bytes
    if "\ufffd" in text and all(sign in alphabet for sign in signs):
        return bytes(alphabet[sign] for sign in signs).decode("utf-8", "backslashreplace")
    return _MARKS.sub("", text)


def words_and_mix(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, merge: bool
) -> tuple[list[str], np.ndarray]:
    """Return words, or pieces without `merge`, and a matrix (words, ids): 1 for ids in a word.

    The pieces of a single word stay separate: a picture of one word would show nothing.
    """
    words, special = whole_words(tokenizer, ids), special_ids(tokenizer)
    if not merge or sum(ids[word.start] not in special for word in words) < 2:
        return token_words(tokenizer, ids), np.eye(len(ids))
    mix = np.zeros((len(words), len(ids)))
    for row, word in zip(mix, words, strict=True):
        row[word.start : word.end] = 1.0
    return [word.text for word in words], mix


def label(word: str) -> str:
    """Shorten a word to a label, and remove invisible characters."""
    return shortened(visible(word), _LONGEST_LABEL)


def visible(text: str) -> str:
    """Remove invisible characters, and escape control characters."""
    return _INVISIBLE.sub("", printable(text))


def shortened(text: str, columns: int) -> str:
    """Cut a text to a number of columns, with an ellipsis."""
    if label_width(text) <= columns:
        return text
    widths = itertools.accumulate(map(label_width, text))
    end = sum(width < columns for width in widths)
    return text[:end].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def label_width(text: str) -> int:
    """Return the number of columns of a text; Chinese characters and most emoji take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)
