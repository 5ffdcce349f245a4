# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Word alignments: the source word behind each word of a translation, from the attention.

S source length, T target length, in tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import torch
from transformers import PreTrainedTokenizerBase

from .target_tokenizer import source_tokenizer, target_tokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # of a character that has no piece


def word_alignment(
    tokenizer: PreTrainedTokenizerBase,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    weights: torch.Tensor,
) -> list[tuple[int, int]]:
    """Return links between words (split at white space), found by the attention between tokens.

    Each target token points to the source token that it attends to most, special tokens left out
    (Garg et al., 2019, arXiv 1909.02074). The words of the two tokens are linked.

    Args:
        tokenizer: The tokenizer of both sides.
        source_ids: Ids of the source, S.
        target_ids: Ids of the translation, T, without the start symbol.
        weights: Attention of each target token to the source tokens, (at least T, at least S).

    Returns:
        Sorted pairs (source word, target word), both counted from 0, without duplicates.
    """
    source = word_numbers(source_tokenizer(tokenizer), source_ids)
    # The text of a translation has no `<unk>`.
    target = word_numbers(target_tokenizer(tokenizer), target_ids, unknown_words=False)
    words = [(place, word) for place, word in enumerate(source) if word is not None]
    if not words:
        return []
    places, numbers = zip(*words, strict=True)
    best = weights[: len(target), list(places)].argmax(dim=1).tolist()  # (T,)
    links = zip(best, target, strict=True)
    return sorted({(numbers[place], word) for place, word in links if word is not None})


def word_numbers(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, unknown_words: bool = True
) -> list[int | None]:
    """Return the word that each id belongs to, counted from 0; None for an id outside of words.

    A special token separates words. Only `<unk>` is one, or a part of one, if `unknown_words`.
    """
    pieces, is_text = spelled_pieces(tokenizer, ids)
    written = [
        piece if text or (unknown_words and index == tokenizer.unk_token_id) else b" "
        for index, piece, text in zip(ids, pieces, is_text, strict=True)
    ]
    numbers: list[int | None] = []  # one for each byte
    number, inside = -1, False
    for character in b"".join(written).decode("utf-8", "surrogateescape"):
        begins = not inside and not character.isspace()
        inside = not character.isspace()
        number += begins
        width = len(character.encode("utf-8", "surrogateescape"))
        numbers += [number if inside else None] * width
    rest = iter(numbers)
    by_piece = (list(islice(rest, len(piece))) for piece in written)
    return [next((n for n in piece if n is not None), None) for piece in by_piece]


def spelled_pieces(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]
) -> tuple[list[bytes], list[bool]]:
    """Return the UTF-8 bytes of each id, and whether it is text, not a special token."""
    added = tokenizer.added_tokens_decoder
    not_text = {*tokenizer.all_special_ids, *(id_ for id_, token in added.items() if token.special)}
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
