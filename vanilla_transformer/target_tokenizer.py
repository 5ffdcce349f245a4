"""Tokenizers of models whose source and target have separate vocabularies.

The source's tokenizer stores the target's among its settings, so that saving, pushing or loading
it covers both. FSMT's and Marian's own tokenizers know both vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .errors import RequestError
from .generation_limits import longest_sequence

TARGET_TOKENIZER = "target_tokenizer"  # the setting that stores the target's tokenizer
_SETTINGS = (
    "padding_side",
    "model_input_names",
    "clean_up_tokenization_spaces",
    "split_special_tokens",
)


def target_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the tokenizer of targets: the tokenizer itself unless there are two vocabularies."""
    written = getattr(tokenizer, "init_kwargs", {}).get(TARGET_TOKENIZER)
    if written is not None:
        return _read_tokenizer(written, type(tokenizer.backend_tokenizer).from_str)
    is_fsmt = type(tokenizer).__name__ == "FSMTTokenizer"
    if not is_fsmt and not getattr(tokenizer, "separate_vocabs", False):
        return tokenizer
    # FSMT's and Marian's tokenizers decode ids as the target's, but their pieces are the source's.
    target = copy(tokenizer)
    target.encoder = {token: index for index, token in tokenizer.decoder.items()}
    if is_fsmt:  # it encodes every text in this language
        target.src_lang = tokenizer.tgt_lang
    return target


def source_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a tokenizer that decodes source ids; FSMT's and Marian's decode only target ids."""
    pieces, ids = (getattr(tokenizer, name, None) for name in ("encoder", "decoder"))
    if not (isinstance(pieces, dict) and isinstance(ids, dict)):
        return tokenizer
    source = copy(tokenizer)
    source.decoder = {index: token for token, index in pieces.items()}
    return source


def target_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    first: int = 1,
) -> list[list[int]]:
    """Return target ids as the model should produce them: with the end, without the start.

    Raises:
        ValueError: A text is longer than the model's table of positions; the error counts the texts
            from `first`.
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
            raise RequestError(f"{what}, but the model's positions end at {table}; leave it out.")
    return rows


def writes_start(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether targets begin with the start symbol; an empty one may consist of its end."""
    start = getattr(tokenizer, "bos_token_id", None)
    if start is None:
        return False
    empty = tokenizer(text_target="", verbose=False)["input_ids"]
    at_least = 2 if start == tokenizer.eos_token_id else 1
    return empty[:1] == [start] and len(empty) >= at_least


def hold_target_tokenizer(
    tokenizer: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
) -> None:
    """Store the target's tokenizer among the settings that the source's tokenizer is saved with."""
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
