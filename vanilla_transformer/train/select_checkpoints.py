"""Choose the number of averaged checkpoints and the length penalty on validation pairs.

The best number of checkpoints depends on how long a run has trained: early ones still differ a lot.
Test pairs are never used, and the planned values win a tie.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..evaluation import corpus_scores
from ..fast import release
from ..recipes.data import TextPairs
from ..search_settings import SearchSettings
from ..storage.metrics import MEASURES, Chosen
from ..storage.saved_model import load_saved_model
from ..translation.many_texts import translate
from .averaging import mean_of_weights

logger = logging.getLogger(__name__)

CLOSE = 0.5  # with beams, the mean of more was better where greedy scores were so close (LOG.md)
PAIRS = 1000  # validation pairs, each translated about ten times; 200 were too few
COUNTS = (1, 2, 3, 5, 7, 10, 15, 20)
# By whether a search stops early: it then finds shorter translations, and needs larger penalties.
PENALTIES = {False: (SearchSettings.length_penalty, 1.0, 1.5), True: (1.0, 1.5, 2.0, 3.0)}


def choose_on_validation_pairs(
    checkpoints: list[Path],
    tokenizer: PreTrainedTokenizerBase,
    pairs: TextPairs,
    *,
    search: SearchSettings,
    measure: str,
    target_language: str,
) -> Chosen:
    """Choose how many checkpoints to average, then the length penalty of the mean.

    A measure decides both: by greedy translations the largest number that is within `CLOSE` of the
    best, then by beam search with that mean the penalty. Nothing is written.

    Args:
        checkpoints: The checkpoints that may be averaged, oldest first.
        tokenizer: The run's tokenizer.
        pairs: The validation pairs; every n-th is used, 1,000 at most.
        search: The planned search; its length penalty is tried too, and wins a tie.
        measure: One of `storage.metrics.MEASURES`.
        target_language: Decides how BLEU splits words.

    Returns:
        `averaged`, the number of checkpoints, and `length_penalty` if there is more than one beam;
        `pairs`, the number of pairs used; the `measure`, and its values: `greedy` by number of
        checkpoints and `beam` by penalty. All values can be written as JSON.
    """
    chosen = slice(0, PAIRS * max(1, len(pairs) // PAIRS), max(1, len(pairs) // PAIRS))
    sources, references = pairs.sources[chosen], pairs.references[chosen]
    label, best_of = MEASURES[measure].label, MEASURES[measure].best
    model = load_saved_model(checkpoints[-1], device="auto")

    def average(count: int) -> None:
        weights = mean_of_weights(checkpoints[-count:])
        model.load_state_dict(weights, strict=False)  # files store tied tensors once
        release(model)

    def score(**options: Any) -> float:
        translations = list(translate(model, tokenizer, sources, **options))
        scores: Mapping[str, Any] = corpus_scores(
            translations, references, target_language=target_language, measures=[measure]
        )
        return round(scores[measure], 3)

    greedy: dict[int, float] = {}
    own = len(checkpoints)
    for count in (own, *(count for count in reversed(COUNTS) if count < own)):
        average(count)
        greedy[count] = score(num_beams=1)
    best = best_of(greedy.values())
    averaged = max(count for count in greedy if abs(greedy[count] - best) <= CLOSE)
    result: Chosen = {
        "pairs": len(sources),
        "averaged": averaged,
        "measure": measure,
        "greedy": _keys_as_text(greedy),
    }
    logger.info(
        "On %d validation pairs, the mean of %d checkpoint(s) is the largest within %g of the "
        "best. Greedy %s by number: %s.",
        len(sources),
        averaged,
        CLOSE,
        label,
        _listed(greedy),
    )
    if search.num_beams > 1:
        average(averaged)
        own_penalty = float(search.length_penalty)
        tried = dict.fromkeys([own_penalty, *PENALTIES[search.early_stopping]])
        options = {"num_beams": search.num_beams, "early_stopping": search.early_stopping}
        beams = {each: score(**options, length_penalty=each) for each in tried}
        penalty = best_of(beams, key=beams.__getitem__)
        result |= {"length_penalty": penalty, "beam": _keys_as_text(beams)}
        logger.info(
            "On the same pairs, length penalty %g is best. With %d beams, %s by penalty: %s.",
            penalty,
            search.num_beams,
            label,
            _listed(beams),
        )
    return result


def _keys_as_text(scores: Mapping[int, float] | Mapping[float, float]) -> dict[str, float]:
    return {f"{value:g}": score for value, score in scores.items()}


def _listed(scores: Mapping[int, float] | Mapping[float, float]) -> str:
    return ", ".join(f"{value:g}: {score:.1f}" for value, score in sorted(scores.items()))
