"""Sentence pairs: read, tokenised, cached and batched (Section 5.1)."""

from .batches import TokenBatchSampler as TokenBatchSampler
from .bpe_dropout import BpeDropout as BpeDropout
from .bpe_dropout import BpeDropoutCollator as BpeDropoutCollator
from .dataset import PairCollator as PairCollator
from .dataset import load_pairs as load_pairs
from .dataset import mark_corpus as mark_corpus
from .dataset import pair_lengths as pair_lengths
from .dataset import reading_report as reading_report
from .dataset import sentences as sentences
from .dataset import tokenize_pairs as tokenize_pairs
from .pair_files import read_pairs as read_pairs
from .selection import clean_pairs as clean_pairs
from .selection import hold_out as hold_out
from .selection import pair_report as pair_report
from .tokenizer import train_tokenizer as train_tokenizer
