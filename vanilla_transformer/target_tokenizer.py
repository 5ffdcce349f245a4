"""Tokenizers of models whose source and target have separate vocabularies.

The source's tokenizer stores the target's among its settings, so that saving, pushing or loading
it covers both. FSMT's and Marian's own tokenizers know both vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TARGET_TOKENIZER = "target_tokenizer"  # the setting that stores the target's tokenizer


def target_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the target's tokenizer, which is the same one if there is only one vocabulary."""
    written = getattr(tokenizer, "init_kwargs", {}).get(TARGET_TOKENIZER)
    if written is not None:
        return _read_tokenizer(written, type(tokenizer.backend_tokenizer).from_str)
    is_fsmt = type(tokenizer).__name__ == "FSMTTokenizer"
    if not is_fsmt and not getattr(tokenizer, "separate_vocabs", False):
        return tokenizer
    # FSMT's and Marian's tokenizers decode with the target's vocabulary, encode with the source's.
    target = copy(tokenizer)
    target.encoder = {token: index for index, token in tokenizer.decoder.items()}
    if is_fsmt:  # FSMT's tokenizer encodes every text as one in `src_lang`
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


@lru_cache(maxsize=4)
def _read_tokenizer(written: str, from_str: Callable[[str], Any]) -> PreTrainedTokenizerFast:
    settings = json.loads(written)
    read = from_str(json.dumps(settings.pop("tokenizer")))
    return PreTrainedTokenizerFast(tokenizer_object=read, **settings)
