"""Scores of translations and models. Importing this package loads no scoring library."""

from .models import compute_metrics as compute_metrics
from .models import log_probabilities as log_probabilities
from .models import pair_ids as pair_ids
from .models import score_model as score_model
from .scores import corpus_scores as corpus_scores
from .scores import measure_metric as measure_metric
from .significance import SystemScore as SystemScore
from .significance import most_different as most_different
from .significance import paired_bootstrap as paired_bootstrap
from .significance import verdict as verdict
