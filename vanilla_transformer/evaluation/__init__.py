"""Scores of translations and models. Importing this package loads no scoring library."""

from .models import compute_metrics, log_probabilities, pair_ids, perplexity, score_model
from .scores import corpus_scores, measure_metric
from .significance import SystemScore, most_different, paired_bootstrap, verdict

__all__ = [
    "SystemScore",
    "compute_metrics",
    "corpus_scores",
    "log_probabilities",
    "measure_metric",
    "most_different",
    "pair_ids",
    "paired_bootstrap",
    "perplexity",
    "score_model",
    "verdict",
]
