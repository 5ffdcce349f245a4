"""Spell pieces of the vocabulary, join them into words, and shorten words to labels."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import regex
from transformers import PreTrainedTokenizerBase

from ..storage.reading import printable
from ..word_alignment import special_ids

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # of a character that has no piece
_BLANK = "\N{OPEN BOX}"  # a piece of nothing but white space
_CONTINUED = "\N{MIDDLE DOT}"  # marks a piece that continues a word
# Scripts without spaces between words: there, each piece counts as a word.
_UNSPACED = r"[\p{Thai}\p{Lao}\p{Myanmar}\p{Khmer}\p{Hiragana}\p{Katakana}\u30fc\p{Han}]"
_JOINED = r"[\p{M}\p{Cf}]"  # belongs to the character before: an accent, vowel sign or joiner
_LETTER = rf"[[\p{{L}}\p{{N}}]--{_UNSPACED}]"
_LETTERS = rf"(?:{_LETTER}{_JOINED}*)+"
# What `whole_words` calls a word; the last line is a run of punctuation.
_WORD = regex.compile(
    rf"""(?V1x) \s+ | {_UNSPACED}{_JOINED}* | {_LETTERS}(?:['\u2019\-_.,:]{_LETTERS})*
    | (?:\p{{S}}{_JOINED}*)+
    | [^\s\p{{L}}\p{{N}}\p{{S}}]+"""
)
_IN_WORD = regex.compile(rf"(?V1){_LETTER}|{_JOINED}")
_LONGEST_LABEL = 24  # columns
_VARIATION_SELECTORS = "\ufe0e\ufe0f"


class Word(NamedTuple):
    """A word of a sentence: its text, and its pieces from `start` up to `end`."""

    text: str
    start: int
    end: int


def token_words(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    r"""Return the text of each id in readable form.

    Leading spaces are left out; a piece that continues a word starts with a middle dot instead.
    Bytes that are only a part of a character are shown as ``\xe4``.
    """
    pieces, _ = spelled_pieces(tokenizer, ids)
    texts = []
    for word in whole_words(tokenizer, ids):
        own = pieces[word.start : word.end]
        texts.append(_readable(own[0]))
        for before, piece in itertools.pairwise(own):
            inside = all(map(_IN_WORD.match, (_decoded(before)[-1], _decoded(piece)[0])))
            texts.append((_CONTINUED if inside else "") + _readable(piece))
    return texts


def whole_words(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[Word]:
    """Return the words that the ids spell, in order; each id belongs to exactly one.

    A word is a run of letters and digits, joined by apostrophes, hyphens or points; a run of other
    characters; or a special token. In scripts without spaces it is one piece. The pieces of one
    character always stay together.
    """
    pieces, is_text = spelled_pieces(tokenizer, ids)
    # A special token becomes a space, so that it is part of no word.
    stream = b"".join(p if text else b" " for p, text in zip(pieces, is_text, strict=True))
    numbers = iter(_word_numbers(stream))
    starts, last, blank = [], None, False
    for index, (piece, text) in enumerate(zip(pieces, is_text, strict=True)):
        own = list(itertools.islice(numbers, len(piece) if text else 1))
        own = [number for number in own if number is not None]
        # A piece that is only white space belongs to the next word.
        if not text or not (blank or (own and own[0] == last)):
            starts.append(index)
        last = own[-1] if own else None
        blank = text and not own
    bounds = itertools.pairwise([*starts, len(pieces)])
    return [Word(_readable(b"".join(pieces[start:end])), start, end) for start, end in bounds]


def spelled_pieces(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]
) -> tuple[list[bytes], list[bool]]:
    """Return the UTF-8 bytes of each id, and whether it is text, not a special token."""
    added, not_text = tokenizer.added_tokens_decoder, special_ids(tokenizer)
    # The model's table may have more rows than the tokenizer has tokens; the others are spaces.
    known = tokenizer.convert_ids_to_tokens(list(ids))
    tokens = [" " if token is None else token for token in known]
    is_text = [
        index not in not_text and token is not None for index, token in zip(ids, known, strict=True)
    ]
    decoder = str(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None))
    if "WordPiece" in decoder:
        return _found_pieces(tokenizer, ids, tokens, is_text), is_text
    byte_level = "ByteLevel" in decoder
    # SentencePiece's sign for a space.
    spaced = tokenizer.convert_tokens_to_ids("\u2581") not in (None, tokenizer.unk_token_id)
    spaced = spaced or any("\u2581" in token for token in tokens)
    ends_marked = any(token.endswith("</w>") for token in tokens)
    pieces = []
    for index, token, text in zip(ids, tokens, is_text, strict=True):
        if byte_level and text and index not in added:
            pieces.append(bytes(_byte_alphabet()[sign] for sign in token))
        elif "ByteFallback" in decoder and _BYTE.fullmatch(token):
            pieces.append(bytes.fromhex(token[3:5]))
        elif byte_level or spaced or not (text or index == tokenizer.unk_token_id):
            pieces.append(token.replace("\u2581", " ").encode())
        else:
            pieces.append(_with_space(token, ends_marked=ends_marked).encode())
    return pieces, is_text


def _found_pieces(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    tokens: Sequence[str],
    is_text: Sequence[bool],
) -> list[bytes]:
    """Return where each token is found in the text that the ids spell, with spaces before it."""
    text = str(
        tokenizer.decode([*ids], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )
    pieces, end = [], 0
    for token, is_piece in zip(tokens, is_text, strict=True):
        begin, token = end, token.removeprefix("##")
        if is_piece and (place := text.find(token, begin)) >= 0:
            end = place + len(token)
        pieces.append(text[begin:end].encode() if is_piece else b" ")
    return pieces


def _with_space(token: str, *, ends_marked: bool) -> str:
    """Return a token with a space where its word ends: at `</w>`, or where `@@` is missing."""
    if ends_marked:
        return token.replace("</w>", " ")
    return token.removesuffix("@@") if token.endswith("@@") else f"{token} "


@lru_cache
def _byte_alphabet() -> dict[str, int]:
    """Map GPT-2's signs to bytes: printable Latin-1 to itself, U+0100 and up to the rest."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def words_and_mix(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, merge: bool
) -> tuple[list[str], np.ndarray]:
    """Return words, or pieces, and a matrix (words, ids) with 1 if the id belongs to the word.

    The pieces of a single word stay apart: joined, there would be nothing to see.
    """
    words, special = whole_words(tokenizer, ids), special_ids(tokenizer)
    if not merge or sum(ids[word.start] not in special for word in words) < 2:
        return token_words(tokenizer, ids), np.eye(len(ids))
    mix = np.zeros((len(words), len(ids)))
    for row, word in zip(mix, words, strict=True):
        row[word.start : word.end] = 1.0
    return [word.text for word in words], mix


def _word_numbers(data: bytes) -> list[int | None]:
    """Return the number of each byte's word; None for white space."""
    numbers: list[int | None] = []
    for number, word in enumerate(_WORD.findall(_decoded(data))):
        width = len(word.encode("utf-8", "surrogateescape"))
        numbers += [None if word.isspace() else number] * width
    return numbers


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _readable(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip() or _BLANK


def label(word: str) -> str:
    """Return a word as it is drawn: without invisible characters, and cut if it is very long."""
    return shortened(visible(word), _LONGEST_LABEL)


def visible(text: str) -> str:
    """Return a text without invisible characters, and with control characters as codes."""
    return "".join(
        sign
        for sign in printable(text)
        if unicodedata.category(sign) != "Cf" and sign not in _VARIATION_SELECTORS
    )


def shortened(text: str, columns: int) -> str:
    """Return a text, or as much of its beginning as fits the columns, with an ellipsis."""
    if label_width(text) <= columns:
        return text
    widths = itertools.accumulate(map(label_width, text))
    end = sum(width < columns for width in widths)
    return text[:end].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def label_width(text: str) -> int:
    """Count the columns of a text; Chinese characters and most emoji take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)
