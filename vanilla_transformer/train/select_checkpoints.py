"""Choose the number of averaged checkpoints and the length penalty on validation pairs.

The best number of checkpoints depends on how long a run has trained: early ones still differ a lot.
Test pairs are never used, and the recipe's own values win a tie.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..evaluation import bleu_score
from ..fast import release
from ..recipes.data import TextPairs
from ..recipes.recipe import Recipe
from ..search_settings import SearchSettings, search_settings
from ..storage.metrics import Chosen
from ..storage.saved_model import load_saved_model
from ..translation.many_texts import translate
from .averaging import mean_of_weights

logger = logging.getLogger(__name__)

PAIRS = 200  # validation pairs, each translated about ten times
COUNTS = (1, 2, 3, 5, 7, 10, 15, 20)
PENALTIES = (SearchSettings.length_penalty, 1.0, 1.5)


def recipe_search(recipe: Recipe) -> SearchSettings:
    """Return the settings with which a recipe's final model searches."""
    return search_settings(
        None,
        num_beams=recipe.num_beams,
        length_penalty=recipe.length_penalty,
        early_stopping=recipe.stop_search_early,
    )


def choose_on_validation_pairs(
    recipe: Recipe, checkpoints: list[Path], tokenizer: PreTrainedTokenizerBase, pairs: TextPairs
) -> Chosen:
    """Choose how many checkpoints to average, then the length penalty of the mean.

    The number is chosen by greedy BLEU, the penalty by BLEU of the recipe's beam search. Nothing is
    written.

    Args:
        recipe: the run's recipe; its own values are tried too, and win a tie.
        checkpoints: the checkpoints that may be averaged, oldest first.
        tokenizer: the run's tokenizer.
        pairs: the validation pairs; every n-th is used, 200 at most.

    Returns:
        `averaged`, the number of checkpoints, and `length_penalty` if there is more than one beam;
        `pairs`, the number of pairs used; `greedy_bleu` by number of checkpoints and `beam_bleu` by
        penalty. All values can be written as JSON.
    """
    chosen = slice(0, PAIRS * max(1, len(pairs) // PAIRS), max(1, len(pairs) // PAIRS))
    sources, references = pairs.sources[chosen], pairs.targets[chosen]
    model = load_saved_model(checkpoints[-1], device="auto")

    def average(count: int) -> None:
        weights = mean_of_weights(checkpoints[-count:])
        model.load_state_dict(weights, strict=False)  # files store tied tensors once
        release(model)

    def bleu(**search: Any) -> float:
        translations = list(translate(model, tokenizer, sources, **search))
        _, language = recipe.languages
        return round(bleu_score(translations, references, target_language=language)["bleu"], 3)

    greedy: dict[int, float] = {}
    own = len(checkpoints)
    for count in (own, *(count for count in reversed(COUNTS) if count < own)):
        average(count)
        greedy[count] = bleu(num_beams=1)
    best = max(greedy, key=lambda count: greedy[count])
    result: Chosen = {"pairs": len(sources), "averaged": best, "greedy_bleu": _keys_as_text(greedy)}
    logger.info(
        "On %d validation pairs, the mean of %d checkpoint(s) is best. Greedy BLEU by number: %s.",
        len(sources),
        best,
        _listed(greedy),
    )
    if recipe.num_beams > 1:
        average(best)
        search = recipe_search(recipe)
        tried = list(dict.fromkeys([float(search.length_penalty), *PENALTIES]))[: len(PENALTIES)]
        options = {"num_beams": search.num_beams, "early_stopping": search.early_stopping}
        beams = {each: bleu(**options, length_penalty=each) for each in tried}
        penalty = max(beams, key=lambda each: beams[each])
        result |= {"length_penalty": penalty, "beam_bleu": _keys_as_text(beams)}
        logger.info(
            "On the same pairs, length penalty %g is best. BLEU with %d beams by penalty: %s.",
            penalty,
            recipe.num_beams,
            _listed(beams),
        )
    return result


def _keys_as_text(scores: Mapping[int, float] | Mapping[float, float]) -> dict[str, float]:
    return {f"{value:g}": score for value, score in scores.items()}


def _listed(scores: Mapping[int, float] | Mapping[float, float]) -> str:
    return ", ".join(f"{value:g}: {score:.1f}" for value, score in sorted(scores.items()))
