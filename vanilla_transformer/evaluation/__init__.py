"""Scores of translations and models. Importing this package loads no scoring library."""

from .models import (
    Likelihood,
    check_pair,
    decode_ids,
    log_probabilities,
    negative_log_likelihoods,
    perplexity,
    score_model,
    trainer_metrics,
)
from .scores import (
    OTHER_BLEU,
    bleu_score,
    bleu_tokenizer,
    chrf_score,
    compound_bleu,
    corpus_scores,
    exact_match,
    installed_bleu_tokenizer,
    other_bleu,
    scores_by_kind,
    tokenized_bleu,
)
from .significance import most_different, paired_bootstrap, verdict

__all__ = [
    "OTHER_BLEU",
    "Likelihood",
    "bleu_score",
    "bleu_tokenizer",
    "check_pair",
    "chrf_score",
    "compound_bleu",
    "corpus_scores",
    "decode_ids",
    "exact_match",
    "installed_bleu_tokenizer",
    "log_probabilities",
    "most_different",
    "negative_log_likelihoods",
    "other_bleu",
    "paired_bootstrap",
    "perplexity",
    "score_model",
    "scores_by_kind",
    "tokenized_bleu",
    "trainer_metrics",
    "verdict",
]
