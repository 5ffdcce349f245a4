# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Word alignments: the source word behind each word of a translation, from the attention.

S source length, T target length, in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase

from .target_tokenizer import source_tokenizer, target_tokenizer


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

    The words are those of the text that the ids spell, split at white space, however the tokenizer
    marks them. Special tokens are no text, but `<unk>` is if `unknown_words`.
    """
    not_text = special_ids(tokenizer) - ({tokenizer.unk_token_id} if unknown_words else set())
    # The model's table may have more rows than the tokenizer has tokens; the others spell nothing.
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    numbers: list[int | None] = [None] * len(ids)
    context: list[int] = []  # the ids before the new ones, which say whether these begin a word
    new: list[int] = []  # places of ids that may be parts of one character
    # What the context spells, then with each new id; with the number of its last word.
    spelled = [("", -1)]
    for place, index in enumerate(ids):
        if index in not_text or tokens[place] is None:
            continue
        new.append(place)
        text = _decoded(tokenizer, [*context, *(ids[each] for each in new)])
        # Ids whose text was another before are parts of the same character, or of its accents.
        kept = next((n for n in reversed(range(len(new))) if text.startswith(spelled[n][0])), 0)
        before, last = spelled[kept][0].split(), spelled[kept][1]
        found = text.split()
        goes_on = found[: len(before)] != before
        number = None if found == before else last if goes_on else last + 1
        for each in new[kept:]:
            numbers[each] = number
        last += len(found) - len(before)
        spelled[kept + 1 :] = [(text, last)] * (len(new) - kept)
        if not text.endswith("\ufffd"):  # else perhaps the beginning of a character
            is_nothing = text == spelled[kept][0]
            context = [*(context if is_nothing else ()), *(ids[each] for each in new[kept:])]
            spelled, new = [(_decoded(tokenizer, context), last)], []
    return numbers


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids that are no text."""
    added = tokenizer.added_tokens_decoder.items()
    return {*tokenizer.all_special_ids, *(index for index, token in added if token.special)}
