"""Sentence pairs: read, tokenised, cached and batched (Section 5.1)."""

from .batches import TokenBatchSampler
from .bpe_dropout import BpeDropout, BpeDropoutCollator
from .cldr.pairs import generate_pairs
from .dataset import (
    PairCollator,
    load_pairs,
    pair_lengths,
    reading_report,
    sentences,
    tokenize_pairs,
)
from .readers import read_pairs
from .selection import hold_out
from .tokenizer import train_tokenizer

__all__ = [
    "BpeDropout",
    "BpeDropoutCollator",
    "PairCollator",
    "TokenBatchSampler",
    "generate_pairs",
    "hold_out",
    "load_pairs",
    "pair_lengths",
    "read_pairs",
    "reading_report",
    "sentences",
    "tokenize_pairs",
    "train_tokenizer",
]
