"""Encode targets as ids, for training, scoring and drawing attention."""

from __future__ import annotations

import json
from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import RequestError
from ..generation_limits import longest_sequence
from ..target_tokenizer import TARGET_TOKENIZER, target_tokenizer


def target_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    first: int = 1,
) -> list[list[int]]:
    """Return the ids of targets as the model generates them: with `</s>`, without the start symbol.

    Raises:
        ValueError: A text is longer than the model's table of positions. The message says which:
            texts are counted from `first`.
    """
    target = target_tokenizer(tokenizer)
    rows = target(text_target=list(texts), verbose=False)["input_ids"] if texts else []
    start = model.config.decoder_start_token_id
    if start == target.bos_token_id and writes_start(target):
        rows = [row[1:] for row in rows]
    table = longest_sequence(model)
    for number, row in enumerate(rows, start=first):
        if table is not None and len(row) > table:
            what = f"The translation of pair {number} has {len(row)} tokens"
            raise RequestError(f"{what}, but the model has {table} positions; leave out the pair.")
    return rows


def writes_start(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer puts the start symbol before targets."""
    start = getattr(tokenizer, "bos_token_id", None)
    if start is None:
        return False
    empty = tokenizer(text_target="", verbose=False)["input_ids"]
    at_least = 2 if start == tokenizer.eos_token_id else 1  # a lone </s> may be the end
    return empty[:1] == [start] and len(empty) >= at_least


def hold_target_tokenizer(
    tokenizer: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
) -> None:
    """Store the target's tokenizer in the source tokenizer's settings, to save both together."""
    names = ("padding_side", "model_input_names", "split_special_tokens")
    settings = {name: getattr(target, name) for name in (*names, "clean_up_tokenization_spaces")}
    backend = json.loads(target.backend_tokenizer.to_str())
    settings |= {**target.special_tokens_map, "tokenizer": backend}
    tokenizer.init_kwargs[TARGET_TOKENIZER] = json.dumps(settings, ensure_ascii=False)
