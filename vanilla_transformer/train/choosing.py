"""The end of a run, chosen on validation pairs: the mean of checkpoints, and the length penalty.

How many checkpoints make the best mean depends on how far a run has come: early ones still differ
much. No test pair is looked at, and what ties with the recipe's own values does not replace them.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..batch_translation import translate
from ..beam_search import LENGTH_PENALTY_OF_THE_PAPER
from ..evaluation import corpus_scores
from ..fast import release
from ..recipes.pairs import TextPairs
from ..recipes.recipe import Recipe
from ..storage.metrics import Chosen
from ..storage.saved_model import load_saved_model
from .averaging import mean_of_weights

logger = logging.getLogger(__name__)

PAIRS = 200  # of the validation set, each translated some ten times
COUNTS = (1, 2, 3, 5, 7, 10, 15, 20)
PENALTIES = (LENGTH_PENALTY_OF_THE_PAPER, 1.0, 1.5)


def choose_end(
    recipe: Recipe, checkpoints: list[Path], tokenizer: PreTrainedTokenizerBase, pairs: TextPairs
) -> Chosen:
    """Choose how many checkpoints are averaged, then the length penalty of the mean.

    The first by greedy BLEU, the second by BLEU of the recipe's beam search. Nothing is written.

    Args:
        recipe: of the run; its own values are among those that are tried, and win a tie.
        checkpoints: that may be averaged, oldest first.
        tokenizer: of the run.
        pairs: for validation; of many, 200 that are spread over all of them.

    Returns:
        `averaged`, the number of checkpoints, and with more than one beam `length_penalty`;
        `pairs`, their number, `greedy_bleu` by number of checkpoints and `beam_bleu` by penalty.
        Fit for JSON.
    """
    chosen = slice(0, PAIRS * max(1, len(pairs) // PAIRS), max(1, len(pairs) // PAIRS))
    sources, references = pairs.sources[chosen], pairs.targets[chosen]
    model = load_saved_model(checkpoints[-1], device="auto")

    def average(count: int) -> None:
        weights = mean_of_weights(checkpoints[-count:])
        model.load_state_dict(weights, strict=False)  # of tied tensors a file holds one
        release(model)

    def bleu(**search: Any) -> float:
        found = list(translate(model, tokenizer, sources, **search))
        _, language = recipe.languages
        return round(corpus_scores(found, references, target_language=language)["bleu"], 3)

    greedy: dict[int, float] = {}
    own = len(checkpoints)
    for count in (own, *(count for count in reversed(COUNTS) if count < own)):
        average(count)
        greedy[count] = bleu(num_beams=1)
    best = max(greedy, key=lambda count: greedy[count])
    result: Chosen = {"pairs": len(sources), "averaged": best, "greedy_bleu": _keys_as_text(greedy)}
    logger.info(
        "Chosen on %d validation pairs: the mean of %d checkpoint(s). Greedy BLEU by number: %s.",
        len(sources),
        best,
        _listed(greedy),
    )
    if recipe.num_beams > 1:
        average(best)
        usual = PENALTIES[0] if recipe.length_penalty is None else recipe.length_penalty
        tried = list(dict.fromkeys([float(usual), *PENALTIES]))[: len(PENALTIES)]
        beams = {each: bleu(num_beams=recipe.num_beams, length_penalty=each) for each in tried}
        penalty = max(beams, key=lambda each: beams[each])
        result |= {"length_penalty": penalty, "beam_bleu": _keys_as_text(beams)}
        logger.info(
            "Likewise: length penalty %g. BLEU with %d beams by penalty: %s.",
            penalty,
            recipe.num_beams,
            _listed(beams),
        )
    return result


def _keys_as_text(scores: Mapping[int, float] | Mapping[float, float]) -> dict[str, float]:
    return {f"{value:g}": score for value, score in scores.items()}


def _listed(scores: Mapping[int, float] | Mapping[float, float]) -> str:
    return ", ".join(f"{value:g}: {score:.1f}" for value, score in sorted(scores.items()))
