# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Word alignments from attention: the source word that each target word attends to.

S source length, T target length, in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import torch
from transformers import PreTrainedTokenizerBase

from .target_tokenizer import source_tokenizer, target_tokenizer

_CONTEXT = 8  # earlier ids on which a decoded text may depend
_WINDOW = 200  # characters that are compared at once: the time grows with their square


def word_alignment(
    tokenizer: PreTrainedTokenizerBase,
    source: tuple[str, Sequence[int]],
    target: tuple[str, Sequence[int]],
    weights: torch.Tensor,
) -> list[tuple[int, int]]:
    """Align words (split at white space) by the attention between their tokens.

    Each target token points to the source token that it attends to most, special tokens left out
    (Garg et al., 2019, arXiv 1909.02074). The words of the two tokens are linked.

    Each side is a text and its ids, without the start symbol; the weights are the attention of each
    target token to the source tokens, (at least T, at least S). Returns sorted pairs (source word,
    target word), both counted from 0, without duplicates.
    """
    source_words = word_numbers(source_tokenizer(tokenizer), *source)
    # Decoded translations do not contain `<unk>`.
    target_words = word_numbers(target_tokenizer(tokenizer), *target, unknown_words=False)
    words = [(place, word) for place, word in enumerate(source_words) if word is not None]
    if not words:
        return []
    places, numbers = zip(*words, strict=True)
    best = weights[: len(target_words), list(places)].argmax(dim=1).tolist()  # (T,)
    links = zip(best, target_words, strict=True)
    return sorted({(numbers[place], word) for place, word in links if word is not None})


def word_numbers(
    tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int], *, unknown_words: bool = True
) -> list[int | None]:
    """Return the index of the word that each id of a text belongs to; None if it has no word.

    Words are split at white space and counted from 0, whatever the tokenizer leaves out, replaces
    or splits. Special tokens belong to no word, but `<unk>` does if `unknown_words`.
    """
    begins, spelled = _spelled(tokenizer, ids, unknown_words=unknown_words)
    places = _places(spelled, "".join(text.split()))
    words = [number for number, word in enumerate(text.split()) for _ in word]
    return [None if begin is None or not words else words[places[begin]] for begin in begins]


def _spelled(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, unknown_words: bool
) -> tuple[list[int | None], str]:
    """Decode ids; return the index in the text where each begins (None: nowhere), and the text."""
    not_text = special_ids(tokenizer) - ({tokenizer.unk_token_id} if unknown_words else set())
    # The model's table may have more rows than the tokenizer has tokens; the others spell nothing.
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    begins: list[int | None] = [None] * len(ids)
    whole = ""
    context: list[int] = []  # the ids before the new ones: a decoder may look at the last few
    new: list[int] = []  # indices of ids that may be parts of one character
    spelled = [("", 0)]  # text and total length after the context, then after each new id
    for place, index in enumerate(ids):
        if index in not_text or tokens[place] is None:
            continue
        new.append(place)
        text = _decoded(tokenizer, [*context, *(ids[each] for each in new)])
        # Ids that change the text before them belong to the same character or its accents.
        kept = next((n for n in reversed(range(len(new))) if text.startswith(spelled[n][0])), 0)
        before, length = spelled[kept]
        added = text[len(before) :]
        whole = whole[:length] + added
        for each in new[kept:]:
            begins[each] = length if added else None
        spelled[kept + 1 :] = [(text, len(whole))] * (len(new) - kept)
        if not text.endswith("\ufffd"):  # U+FFFD may be part of a character
            context = [*(() if added else context), *(ids[each] for each in new[kept:])][-_CONTEXT:]
            spelled, new = [(_decoded(tokenizer, context), len(whole))], []
    return begins, whole


def _places(spelled: str, text: str) -> list[int]:
    """Return the index in `text` of each character of `spelled`; neither has white space."""
    if spelled == text:
        return [*range(len(text))]
    places: list[int] = []
    begin = 0  # index in the text
    while len(places) < len(spelled):
        window = slice(len(places), len(places) + _WINDOW), slice(begin, begin + _WINDOW)
        sides = [*map(str.lower, spelled[window[0]])], [*map(str.lower, text[window[1]])]
        parts = SequenceMatcher(None, *sides, autojunk=False).get_opcodes()
        equal = [number for number, part in enumerate(parts, start=1) if part[0] == "equal"]
        if equal and window[0].stop < len(spelled):  # the rest may match text beyond the window
            parts = parts[: equal[-1]]
        for part, start, stop, first, last in parts:
            # Spread replaced characters evenly; map added ones to the character before.
            share = 0 if part == "delete" else (last - first) / max(stop - start, 1)
            first = max(begin + first - (part == "delete"), 0)
            places += [first + int(n * share) for n in range(stop - start)]
        begin += parts[-1][-1]
    return places


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Decode ids and remove white space; `<unk>` becomes one character."""
    text = "".join(str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)).split())
    return text if tokenizer.unk_token is None else text.replace(tokenizer.unk_token, "\0")


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of all special tokens."""
    added = tokenizer.added_tokens_decoder.items()
    return {*tokenizer.all_special_ids, *(index for index, token in added if token.special)}
