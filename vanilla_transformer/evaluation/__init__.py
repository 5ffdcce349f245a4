"""Scores of translations and of models; importing it loads no scoring library."""

from .models import (
    decode_ids,
    evaluate_model,
    negative_log_likelihoods,
    perplexity,
    trainer_metrics,
)
from .scores import (
    bleu_score,
    bleu_tokenizer,
    chrf_score,
    corpus_scores,
    exact_match,
    installed_bleu_tokenizer,
    scores_by_kind,
    tokenized_bleu,
)

__all__ = [
    "bleu_score",
    "bleu_tokenizer",
    "chrf_score",
    "corpus_scores",
    "decode_ids",
    "evaluate_model",
    "exact_match",
    "installed_bleu_tokenizer",
    "negative_log_likelihoods",
    "perplexity",
    "scores_by_kind",
    "tokenized_bleu",
    "trainer_metrics",
]
