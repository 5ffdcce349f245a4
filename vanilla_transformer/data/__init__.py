"""Sentence pairs: read, tokenised, cached and batched (Section 5.1)."""

from .batches import TokenBatchSampler
from .bpe_dropout import BpeDropout, BpeDropoutCollator
from .dataset import (
    PairCollator,
    load_pairs,
    mark_corpus,
    pair_lengths,
    reading_report,
    sentences,
    tokenize_pairs,
)
from .pair_files import read_pairs
from .selection import clean_pairs, hold_out, pair_report
from .sentence_splitting import join_sentences, split_sentences
from .tokenizer import train_tokenizer

__all__ = [
    "BpeDropout",
    "BpeDropoutCollator",
    "PairCollator",
    "TokenBatchSampler",
    "clean_pairs",
    "hold_out",
    "join_sentences",
    "load_pairs",
    "mark_corpus",
    "pair_lengths",
    "pair_report",
    "read_pairs",
    "reading_report",
    "sentences",
    "split_sentences",
    "tokenize_pairs",
    "train_tokenizer",
]
