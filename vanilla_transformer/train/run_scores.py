"""Evaluate the model of a run directory on its test sets."""

import dataclasses
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.dataset import load_pairs
from ..data.selection import shared_pairs
from ..errors import RequestError
from ..evaluation import score_model
from ..recipes.data import (
    TRAINING_FILES,
    TextPairs,
    data_identity,
    evaluation_sets,
    held_out,
    training_pairs,
    validation_pairs,
)
from ..recipes.options import LANGUAGES, TEST_OPTIONS
from ..recipes.recipe import Recipe, load_recipe, make_recipe
from ..storage.hub_model import model_folder
from ..storage.identity import differences, warn_of_changed_model
from ..storage.metrics import Data, TestTexts
from ..storage.run_files import RECIPE, recipe_values
from ..storage.saved_model import load_saved_model, load_saved_tokenizer, weight_files
from .report import without_texts
from .run_directory import pinned, recorded_data

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_NOT_COMPARED = "Test pairs were not compared with those that trained %s: %s."


def score_run(
    directory: str | os.PathLike[str],
    *,
    batch_tokens: int = 4096,
    with_texts: bool = False,
    **test_options: object,
) -> dict[str, TestTexts]:
    """Score the model of a run directory on its test pairs, or else on its validation pairs.

    Args:
        directory: Run directory, or any folder or name of a model if `pair` and `test_file` are
            given.
        batch_tokens: Tokens in a batch.
        with_texts: Whether to return the `sources`, `hypotheses` and `references` too.
        **test_options: `TEST_OPTIONS`, which override the recipe. None: the recipe's value, and the
            beams that the model's generation config sets.

    Returns:
        The scores of each test set.

    Raises:
        ValueError: If there is no model, no test or validation pairs, or an unknown option.
    """
    run = model_folder(str(directory))
    overrides = overridden(test_options)
    recipe, sets = recipe_and_test_sets(run, overrides)
    model, tokenizer = load_saved_model(run, device="auto"), load_saved_tokenizer(run)
    options = {"batch_tokens": batch_tokens, "num_beams": overrides.get("num_beams")}
    results = {
        name: score_set(model, tokenizer, recipe, pairs, **options) for name, pairs in sets.items()
    }
    if with_texts:
        return results
    return {name: without_texts(result) for name, result in results.items()}


def score_set(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    recipe: Recipe,
    pairs: TextPairs,
    **options: Any,
) -> TestTexts:
    """Return the scores of a model on a set of pairs, by the measures of a recipe.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        recipe: Its recipe.
        pairs: The pairs.
        **options: Other arguments of `score_model`.
    """
    return score_model(
        model,
        tokenizer,
        pairs.sources,
        pairs.references,
        target_language=recipe.languages[1],
        measures=recipe.measures,
        progress=sys.stderr.isatty(),
        **options,
    )


def overridden(test_options: Mapping[str, object]) -> dict[str, Any]:
    """Return the `TEST_OPTIONS` that are not None.

    Raises:
        ValueError: If there is an unknown option.
    """
    if foreign := sorted(test_options.keys() - {*TEST_OPTIONS}):
        raise RequestError(f"Got {foreign[0]}; a test has the options {', '.join(TEST_OPTIONS)}.")
    return {name: value for name, value in test_options.items() if value is not None}


def recipe_and_test_sets(
    run: Path, overrides: Mapping[str, Any]
) -> tuple[Recipe, dict[str, TextPairs]]:
    """Return the recipe and the pairs for testing the model of a run directory.

    Args:
        run: Run directory, or any directory with model and tokenizer if `pair` and `test_file` are
            given.
        overrides: Recipe fields that override the run's own.

    Returns:
        The recipe, and its test sets by name, or its validation pairs if there are none.

    Raises:
        ValueError: If there is no model, or no test or validation pairs.
    """
    weight_files(run)  # raises if there are none
    if not (run / RECIPE).is_file():
        if not {"pair", "test_file"} <= overrides.keys():
            raise RequestError(f"{run} holds no {RECIPE}; give both --pair and --test-file.")
        recipe = make_recipe(overrides)
        sets = evaluation_sets(recipe)
        warn_of_another_test(run, recipe)
        return recipe, sets
    recorded, recipe = recorded_data(run), load_recipe(str(run / RECIPE), overrides)
    trained = pinned(load_recipe(str(run / RECIPE)), recorded)
    if "test_file" in overrides:
        recipe = dataclasses.replace(recipe, dataset=None)
    recipe_of_pairs = pinned(recipe, recorded)
    try:
        sets = evaluation_sets(recipe_of_pairs)
        if not sets:
            sets = {"validation": validation_pairs(recipe_of_pairs)}
    except RequestError as error:
        if "test_file" in overrides:
            raise
        raise RequestError(
            f"The pairs that the recipe of {run} names cannot be read: {error} Give --test-file."
        ) from error
    warn_of_changed_model(run)
    changed = _changed_files(trained, recorded)
    split = "validation" if "validation" in sets else "test"
    if split in changed and "test_file" not in overrides:
        logger.warning("This is not the test of %s: %s.", run, changed[split])
    warn_of_other_languages(run, recipe.languages)
    changed_training = "; ".join(changed[name] for name in TRAINING_FILES & changed.keys())
    if any(map(len, sets.values())):
        _warn_of_training_pairs(run, trained, recorded, changed_training, sets)
    elif recipe_of_pairs.held_out_pairs:
        if changed_training:
            raise RequestError(
                f"The test pairs of {run} were held out of its training pairs, and these have "
                f"changed ({changed_training}); put them back, or give --test-file."
            )
        # Which pairs are held out depends on their texts.
        if other := sorted({"pair", "source_column", "target_column"} & overrides.keys()):
            raise RequestError(
                f"Got {', '.join(other)}. This would hold out other pairs of {run} for the test, "
                "and the model was trained on most of them; give --test-file too."
            )
        _, _, test = held_out(recipe_of_pairs, training_pairs(recipe_of_pairs))
        sets = {"test": test}
    if not any(map(len, sets.values())):
        raise RequestError(
            f"The recipe of {run} has no test or validation pairs; give --test-file."
        )
    return recipe, sets


def warn_of_another_test(folder: Path, recipe: Recipe) -> None:
    """Warn of what is known of a model that is no run, and is tested as a recipe says."""
    warn_of_changed_model(folder)
    warn_of_other_languages(folder, recipe.languages)
    logger.warning(_NOT_COMPARED, folder, "the folder does not say which those are")


def warn_of_other_languages(folder: Path, languages: tuple[str, str]) -> None:
    """Warn if the model of a folder, perhaps a published one, was trained for other languages."""
    if values := recipe_values(folder):
        known = make_recipe({name: values.get(name) for name in LANGUAGES}).languages
        if told := differences(*({"languages": "-".join(it)} for it in (known, languages))):
            logger.warning("These are not the pairs of %s: %s.", folder, "; ".join(told))


def _changed_files(recipe: Recipe, recorded: Data) -> dict[str, str]:
    """Return, by split, which files of a run's pairs are not those that it began with."""
    now = data_identity(recipe, revision=recorded.get("revision") or "").get("files", {})
    changed = {
        split: differences({split: files}, {split: now.get(split)})
        for split, files in recorded.get("files", {}).items()
    }
    return {split: "; ".join(lines) for split, lines in changed.items() if lines}


def _warn_of_training_pairs(
    run: Path, trained: Recipe, recorded: Data, changed: str, sets: Mapping[str, TextPairs]
) -> None:
    """Count the test pairs that a run was trained on, if its training pairs are still there."""
    has_files = TRAINING_FILES & recorded.get("files", {}).keys()
    reason = changed if has_files else f"they are those of {trained.dataset} on the Hub"
    if reason:
        logger.warning(_NOT_COMPARED, run, reason)
    else:
        shared_with_training(trained, training_pairs(trained), sets)


def texts_as_dataset(recipe: Recipe, pairs: Iterable[tuple[str, str]]) -> "Dataset":
    """Return text pairs as a data set, like `load_pairs`."""
    source, target = recipe.languages
    return load_pairs([*pairs], source_language=source, target_language=target, show_progress=False)


def shared_with_training(
    recipe: Recipe, pairs: "Dataset", sets: Mapping[str, TextPairs]
) -> dict[str, int]:
    """Count the pairs of each set that are training pairs too, if any, and warn."""
    counts = {}
    for name, texts in sets.items():
        if len(texts) and (count := shared_pairs(texts_as_dataset(recipe, texts.pairs()), pairs)):
            counts[name] = count
            logger.warning(
                "%d of %d %s pairs are training pairs too: they make the scores too high.",
                *(count, len(texts), name),
            )
    return counts
