"""Choose test pairs and metrics for a model, and warn if scores would be unreliable."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..storage import run_files
from ..storage.saved_model import weight_files
from .data import (
    TRAINING_FILES,
    TextPairs,
    data_identity,
    evaluation_sets,
    held_out,
    training_pairs,
    validation_pairs,
)
from .options import TEST_OPTIONS
from .plan import DataPlan
from .planning import data_plan
from .recipe import Recipe, languages_of_model, load_recipe, make_recipe

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_NOT_COMPARED = "Test pairs were not compared with the training pairs of %s: %s."


@dataclasses.dataclass(frozen=True)
class ModelTest:
    """Test pairs, measures and search settings to score a model with."""

    languages: tuple[str, str]
    measures: list[str]
    sets: dict[str, TextPairs]
    settings: dict[str, Any]  # values of the recipe
    num_beams: int | None  # None: as the model's generation config says

    @property
    def scoring(self) -> dict[str, Any]:
        """Arguments of the functions that compute scores: target language and measures."""
        return {"target_language": self.languages[1], "measures": self.measures}


def plan_test(run: Path, test_options: Mapping[str, object]) -> ModelTest:
    """Choose the test pairs and settings for the model of a run directory.

    Args:
        run: Run directory, or any directory with model and tokenizer if `pair` and `test_file` are
            given.
        test_options: Values of `TEST_OPTIONS`, which override the run's. None keeps the run's.

    Returns:
        The test, on the validation pairs if there are no test pairs.

    Raises:
        ValueError: If there is no model, no test or validation pairs, or an unknown option.
    """
    if unknown := sorted(test_options.keys() - {*TEST_OPTIONS}):
        raise RequestError(f"Got {unknown[0]}; options of a test: {', '.join(TEST_OPTIONS)}.")
    given = {name: value for name, value in test_options.items() if value is not None}
    weight_files(run)  # raises if there are none
    has_recipe = (run / run_files.RECIPE).is_file()
    if not has_recipe and not {"pair", "test_file"} <= given.keys():
        raise RequestError(f"{run} has no {run_files.RECIPE}; give both --pair and --test-file.")
    recipe = load_recipe(str(run / run_files.RECIPE), given) if has_recipe else make_recipe(given)
    if "test_file" in given:
        recipe = dataclasses.replace(recipe, dataset=None)
    data = data_plan(recipe, run)
    sets = evaluation_sets(data) or {"validation": validation_pairs(data)}
    if not has_recipe:
        warn_of_another_test(run, recipe.languages)
        return _test(recipe, sets, given)
    run_files.warn_of_changed_model(run)
    warn_of_other_languages(run, recipe.languages)
    trained = data_plan(load_recipe(str(run / run_files.RECIPE)), run)
    recorded = run_files.recorded_identity(run).get("files", {})
    changed = _changed_files(trained, recorded)
    split = "validation" if "validation" in sets else "test"
    if split in changed and "test_file" not in given:
        logger.warning("The test pairs differ from those of %s: %s.", run, changed[split])
    changed_training = "; ".join(changed[name] for name in TRAINING_FILES & changed.keys())
    if not any(map(len, sets.values())) and data.held_out_pairs != 0:
        # All texts together determine which pairs are held out.
        other = sorted({"pair", "source_column", "target_column"} & given.keys())
        if changed_training or other:
            how = f"files are read differently now ({changed_training or ', '.join(other)})"
            raise RequestError(f"{run} held out test pairs, but {how}; give --test-file.")
        sets = {"test": held_out(data, training_pairs(data, run))[2]}
    elif not changed_training and TRAINING_FILES & recorded.keys():
        shared_with_training(trained, training_pairs(trained), sets)
    else:
        reason = changed_training or f"those come from {trained.dataset or 'its teachers'}"
        logger.warning(_NOT_COMPARED, run, reason)
    if not any(map(len, sets.values())):
        raise RequestError(f"{run} has no test or validation pairs; give --test-file.")
    return _test(recipe, sets, given)


def _test(recipe: Recipe, sets: dict[str, TextPairs], given: Mapping[str, Any]) -> ModelTest:
    beams = given.get("num_beams")
    return ModelTest(recipe.languages, recipe.measures, sets, dict(vars(recipe)), beams)


def warn_of_another_test(folder: Path, languages: tuple[str, str]) -> None:
    """Warn that test pairs may be training pairs, and of a changed model or other languages."""
    run_files.warn_of_changed_model(folder)
    warn_of_other_languages(folder, languages)
    logger.warning(_NOT_COMPARED, folder, "the folder does not say what those were")


def warn_of_other_languages(folder: Path, languages: tuple[str, str]) -> None:
    """Warn if a model, from a run or published, was trained for other languages."""
    if run_files.recipe_values(folder):
        both = ({"languages": "-".join(it)} for it in (languages_of_model(folder, None), languages))
        if changes := run_files.differences(*both):
            logger.warning("The languages differ from those of %s: %s.", folder, "; ".join(changes))


def _changed_files(data: DataPlan, recorded: Mapping[str, Any]) -> dict[str, str]:
    """Describe, for each split, which files changed since their digests were recorded."""
    now = data_identity(data).get("files", {})
    changed = {
        split: run_files.differences({split: files}, {split: now.get(split)})
        for split, files in recorded.items()
    }
    return {split: "; ".join(lines) for split, lines in changed.items() if lines}


def as_dataset(data: DataPlan, pairs: Path | Iterable[tuple[str, str]]) -> "Dataset":
    """Return pairs of texts, or of a file, as a data set; see `load_pairs`."""
    from ..data.dataset import load_pairs

    source, target = data.languages
    return load_pairs(pairs, source_language=source, target_language=target, show_progress=False)


def shared_with_training(
    data: DataPlan, pairs: "Dataset", sets: Mapping[str, TextPairs]
) -> dict[str, int]:
    """Count the pairs of each set that are also training pairs, and warn of them."""
    from ..data.selection import shared_pairs

    counts = {}
    for name, texts in sets.items():
        if len(texts) and (count := shared_pairs(as_dataset(data, [*texts.pairs()]), pairs)):
            counts[name] = count
            message = "The training pairs contain %d of %d %s pairs, which makes scores too high."
            logger.warning(message, count, len(texts), name)
    return counts
