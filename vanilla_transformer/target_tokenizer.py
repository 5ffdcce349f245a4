"""The tokenizers of both sides, source and target, where each has a vocabulary of its own.

A tokenizer of sources then holds that of targets among its settings, so that every way to save,
push and load it takes both along. FSMT's and Marian's own tokenizers know both vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

TARGET_TOKENIZER = "target_tokenizer"  # the setting of a tokenizer that holds the target's
_SETTINGS = (
    "padding_side",
    "model_input_names",
    "clean_up_tokenization_spaces",
    "split_special_tokens",
)


def target_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """What reads and writes targets: the tokenizer itself unless there are two vocabularies."""
    written = tokenizer.init_kwargs.get(TARGET_TOKENIZER)
    if written is not None:
        return _read_tokenizer(written, type(tokenizer.backend_tokenizer).from_str)
    if type(tokenizer).__name__ != "FSMTTokenizer":
        return tokenizer
    # It writes targets, and takes every text for a source.
    target = copy(tokenizer)
    target.encoder = {token: index for index, token in tokenizer.decoder.items()}
    target.src_lang = tokenizer.tgt_lang
    return target


def source_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """What shows the ids of sources: FSMT's and Marian's take any id for one of the target."""
    pieces, ids = (getattr(tokenizer, name, None) for name in ("encoder", "decoder"))
    if not (isinstance(pieces, dict) and isinstance(ids, dict)):
        return tokenizer
    source = copy(tokenizer)
    source.decoder = {index: token for token, index in pieces.items()}
    return source


def target_ids(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[list[int]]:
    """Ids of targets as the model is to write them: with the end symbol, without the start."""
    target = target_tokenizer(tokenizer)
    rows = target(text_target=list(texts), verbose=False)["input_ids"]
    start = model.config.decoder_start_token_id
    if start != target.bos_token_id or start == target.eos_token_id:
        return rows
    return [row[1:] if row[:1] == [start] else row for row in rows]


def hold_target_tokenizer(
    tokenizer: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
) -> None:
    """Lets the source's tokenizer hold that of the target, among the settings it is saved with."""
    settings = {name: getattr(target, name) for name in _SETTINGS}
    settings |= {
        **target.special_tokens_map,
        "tokenizer": json.loads(target.backend_tokenizer.to_str()),
    }
    tokenizer.init_kwargs[TARGET_TOKENIZER] = json.dumps(settings, ensure_ascii=False)


@lru_cache(maxsize=4)
def _read_tokenizer(written: str, from_str: Callable[[str], Any]) -> PreTrainedTokenizerFast:
    settings = json.loads(written)
    read = from_str(json.dumps(settings.pop("tokenizer")))
    return PreTrainedTokenizerFast(tokenizer_object=read, **settings)


__all__ = [
    "TARGET_TOKENIZER",
    "hold_target_tokenizer",
    "source_tokenizer",
    "target_ids",
    "target_tokenizer",
]
