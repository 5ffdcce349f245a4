# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Which words of a source the words of its translation were made of, from the attention.

S source length, T target length, in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import torch
from transformers import PreTrainedTokenizerBase

from .target_tokenizer import source_tokenizer, target_tokenizer


def word_alignment(
    tokenizer: PreTrainedTokenizerBase,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    weights: torch.Tensor,
) -> list[tuple[int, int]]:
    """Links between words as white space parts them, from the attention of tokens.

    Each target token points to the source token to which it attends most, special tokens left out
    (Garg et al., 2019, arXiv 1909.02074), and its word to that token's word.

    Args:
        tokenizer: The tokenizer of both sides.
        source_ids: Ids of the source, S.
        target_ids: Ids of the translation, T, without the start symbol.
        weights: Attention of each target token to the source's, (at least T, at least S).

    Returns:
        Pairs of a source word and a target word, both from 0, in order and each once.
    """
    source = word_numbers(source_tokenizer(tokenizer), source_ids)
    target = word_numbers(target_tokenizer(tokenizer), target_ids)
    words = [(place, word) for place, word in enumerate(source) if word is not None]
    if not words:
        return []
    places, numbers = zip(*words, strict=True)
    best = weights[: len(target), list(places)].argmax(dim=1).tolist()  # (T)
    links = zip(best, target, strict=True)
    return sorted({(numbers[found], word) for found, word in links if word is not None})


def word_numbers(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[int | None]:
    """For each id the number, from 0, of the word that it begins or goes on; None: of no word."""
    pieces, is_text = spelled_pieces(tokenizer, ids)
    # An unknown word is a word; any other special token is none, and parts words.
    written = [
        piece if text or index == tokenizer.unk_token_id else b" "
        for index, piece, text in zip(ids, pieces, is_text, strict=True)
    ]
    numbers: list[int | None] = []  # of each byte
    number, inside = -1, False
    for character in b"".join(written).decode("utf-8", "surrogateescape"):
        begins = not inside and not character.isspace()
        inside = not character.isspace()
        number += begins
        width = len(character.encode("utf-8", "surrogateescape"))
        numbers += [number if inside else None] * width
    rest = iter(numbers)
    own = (list(islice(rest, len(piece))) for piece in written)
    return [next((n for n in found if n is not None), None) for found in own]


def spelled_pieces(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]
) -> tuple[list[bytes], list[bool]]:
    """The UTF-8 bytes of each id, and whether it is text and not a special or added token."""
    not_text = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    is_text = [index not in not_text for index in ids]
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    # The sign for the space is in every byte-level vocabulary; SentencePiece's is U+2581.
    byte_level, spaced = (
        tokenizer.convert_tokens_to_ids(sign) not in (None, tokenizer.unk_token_id)
        for sign in ("\u0120", "\u2581")
    )
    spaced = spaced or any("\u2581" in token for token in tokens)
    ends_marked = any(token.endswith("</w>") for token in tokens)
    pieces = []
    for token, text in zip(tokens, is_text, strict=True):
        if byte_level and text:
            pieces.append(bytes(_byte_alphabet()[sign] for sign in token))
        elif spaced or not text:
            pieces.append(token.replace("\u2581", " ").encode())
        else:
            pieces.append(_with_space(token, ends_marked=ends_marked).encode())
    return pieces, is_text


def _with_space(token: str, *, ends_marked: bool) -> str:
    """A piece of words between spaces: `</w>` ends one, or `@@` says that it goes on."""
    if ends_marked:
        return token.replace("</w>", " ")
    return token.removesuffix("@@") if token.endswith("@@") else f"{token} "


@lru_cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's signs for bytes: printable Latin-1 stands for itself, the rest is U+0100 and up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


__all__ = ["spelled_pieces", "word_alignment", "word_numbers"]
