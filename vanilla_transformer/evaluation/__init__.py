"""Scores of translations and models. Importing this package loads no scoring library."""

from .models import (
    Likelihood,
    check_pair,
    compute_metrics,
    decode_ids,
    log_probabilities,
    negative_log_likelihoods,
    perplexity,
    score_model,
)
from .scores import (
    bleu_tokenizer,
    corpus_scores,
    installed_bleu_tokenizer,
    measure_metric,
    scores_by_kind,
)
from .significance import SystemScore, most_different, paired_bootstrap, verdict

__all__ = [
    "Likelihood",
    "SystemScore",
    "bleu_tokenizer",
    "check_pair",
    "compute_metrics",
    "corpus_scores",
    "decode_ids",
    "installed_bleu_tokenizer",
    "log_probabilities",
    "measure_metric",
    "most_different",
    "negative_log_likelihoods",
    "paired_bootstrap",
    "perplexity",
    "score_model",
    "scores_by_kind",
    "verdict",
]
