"""Turn a recipe into the plan of a run, and choose a recipe by the number of pairs."""

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import RequestError
from ..machine.environment import resolve_precision
from ..storage.run_files import recipe_values, recorded_identity
from . import options
from .data import FILES, check_files, hub_revision, is_on_hub, named_files, training_pairs
from .options import Evaluation, Model, Tokenizer
from .plan import DataPlan, Plan
from .recipe import SHAPE, Recipe, load_recipe, make_recipe

logger = logging.getLogger(__name__)

Part = TypeVar("Part", Model, DataPlan, Tokenizer, Evaluation)

# Shipped recipes for your own pairs, by the largest number of pairs that each is for.
_BY_SIZE = {
    10_000: "fewest_pairs",
    70_000: "few_pairs",
    1_000_000: "many_pairs",
    math.inf: "wmt14_ende_base",
}


def plan_run(recipe: Recipe, run: Path, fixed: Iterable[str] = ()) -> Plan:
    """Derive the plan of a run from its recipe, and from what its directory already records.

    Args:
        recipe: A recipe from `load_recipe`.
        run: The run directory. A run that has begun keeps the revision of its data set, and the
            languages and BPE-dropout that it took from its initial model.
        fixed: Names of the settings that the user typed.

    Raises:
        ValueError: If there is no initial model, or the directory is inside a folder of pairs.
    """
    recipe = inherit(recipe, run)
    data = data_plan(recipe, run)
    _check_outside_of_pairs(data, run)
    return Plan(
        model=_part(recipe, Model),
        data=data,
        tokenizer=_tokenizer_plan(recipe),
        arguments=argument_values(recipe),
        evaluation=_part(recipe, Evaluation),
        back_translation=_back_translation(recipe, run, fixed),
        settings=json.loads(json.dumps(vars(recipe))),
        binding=_binding(recipe),
        fixed=frozenset(fixed),
    )


def _part(recipe: Recipe, part: type[Part]) -> Part:
    """Return one part of the plan, with the recipe's values for its options."""
    return part(**{field.name: getattr(recipe, field.name) for field in dataclasses.fields(part)})


def data_plan(recipe: Recipe, run: Path | None = None) -> DataPlan:
    """Return the part of the plan about the pairs, with the revision that a run recorded.

    Args:
        recipe: The recipe.
        run: The run directory. Without one, the Hub is not asked for the newest revision.
    """
    data = _part(recipe, DataPlan)
    if run is None or not is_on_hub(data):
        return data
    recorded, names = recorded_identity(run), ("dataset", "dataset_revision")
    is_same = all(recorded.get(name) == getattr(data, name) for name in names)
    known = recorded.get("revision") if is_same else None
    return dataclasses.replace(data, dataset_revision=known or hub_revision(data))


def argument_values(recipe: Recipe) -> dict[str, Any]:
    """Return the training arguments that a recipe sets."""
    values = {argument: getattr(recipe, name) for name, argument in options.ARGUMENTS.items()}
    values["bpe_dropout"] = recipe.bpe_dropout or 0.0
    values["train_weights"] = options.listed(recipe.train_weights) or None
    values["bf16"] = resolve_precision(recipe.precision) == "bf16"
    return {**options.TRAINER_DEFAULTS, **(recipe.trainer or {}), **values}


def _tokenizer_plan(recipe: Recipe) -> Tokenizer:
    from ..data.languages import language_of

    normalize = recipe.normalize_text
    if normalize is None:
        normalize = all(language_of(side) for side in recipe.languages)
    return dataclasses.replace(_part(recipe, Tokenizer), normalize_text=normalize)


def _binding(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that must not change on resuming; for files, only their names."""
    values = {name: value for name, value in vars(recipe).items() if name not in options.CHANGEABLE}
    values["trainer"] = {
        name: value
        for name, value in (recipe.trainer or {}).items()
        if not options.is_changeable(name)
    }
    for option in FILES.values():
        corpora = options.listed(values[option])
        names = [",".join(path.name for path in named_files(corpus)) for corpus in corpora]
        values[option] = ", ".join(names) or None
    return json.loads(json.dumps(values))


def _back_translation(recipe: Recipe, run: Path, fixed: Iterable[str]) -> Plan | None:
    """Return the plan to train a model of equal size for the opposite direction."""
    if recipe.monolingual_target is None:
        return None
    folder = run.absolute().with_name(f"{run.absolute().name}-back")
    source, target = recipe.languages
    opposite = dataclasses.replace(
        recipe,
        source_language=target,
        target_language=source,
        dataset=None,
        source_column="target",
        target_column="source",
        max_source_length=recipe.max_target_length,
        max_target_length=recipe.max_source_length,
        test_file=None,
        train_file=str(folder / "train.jsonl"),
        train_weights=None,
        validation_file=str(folder / "validation.jsonl"),
        held_out_pairs=0,
        teachers=None,
        monolingual_source=None,
        monolingual_target=None,
        clean=False,
        noise=0.0,  # the text to translate has no typos
        tokenizer=",".join(reversed(recipe.tokenizer.split(","))),
    )
    return plan_run(opposite, folder / "model", fixed)


def plan_stages(
    recipe: Recipe, run: Path, fixed: Iterable[str] = ()
) -> Iterator[tuple[Plan, Path]]:
    """Yield the plan and the directory of each run that a recipe requests.

    Without `siblings` it is one. With them, models that differ in their seed are trained in
    RUN/sibling-1, RUN/sibling-2, ... Then the first is trained further in RUN/taught, on the pairs
    and on the translations of their sources by all models. `max_minutes` is divided equally among
    these runs. Each plan must be run before the next one is requested.

    Args:
        recipe: See `plan_run`.
        run: The run directory, or with `siblings` the folder of all run directories.
        fixed: See `plan_run`.

    Raises:
        ValueError: A file of the recipe is missing, or see `plan_run`.
    """
    if recipe.siblings is None:
        yield plan_run(recipe, run, fixed), run
        return
    check_files(_part(recipe, DataPlan))  # even files that only the last run reads
    siblings = [run / f"sibling-{number + 1}" for number in range(recipe.siblings)]
    trainings = len(siblings) + 1
    minutes = recipe.max_minutes and recipe.max_minutes / trainings
    alone = dataclasses.replace(recipe, siblings=None, monolingual_source=None, max_minutes=minutes)
    if minutes:
        logger.info("Each of the %d trainings takes %g min at most.", trainings, minutes)
    for number, folder in enumerate([*siblings, run / "taught"]):
        logger.info("Training %d of %d: %s.", number + 1, trainings, folder)
        stage = dataclasses.replace(alone, seed=recipe.seed + number)
        if folder not in siblings:
            stage = _taught(siblings, recipe.monolingual_source)
        yield plan_run(stage, folder, fixed), folder


def _taught(siblings: Sequence[Path], text: str | None) -> Recipe:
    """Return the recipe that trains the first of several models further, with all as teachers.

    Its learning rate peaks at half of the first training's, after half of that one's warm-up. It
    does not stop early, because the validation loss may rise while BLEU still rises (LOG.md).
    """
    first = make_recipe(recipe_values(siblings[0]))  # with what was chosen to fit max_minutes
    # Shape and tokenizer are those of the first model, from which the training continues.
    of_model: dict[str, Any] = {name: options.OPTIONS[name].default for name in SHAPE}
    return dataclasses.replace(
        first,
        **of_model,
        init_from=str(siblings[0]),
        teachers=tuple(map(str, siblings)),
        monolingual_source=text,
        learning_rate=first.peak_rate(first.config(vocab_size=first.vocab_size).d_model) / 2,
        learning_rate_factor=1.0,  # without effect, as the rate is set
        warmup_steps=-(-first.warmup_steps // 2),
        trainer={**(first.trainer or {}), "early_stopping_patience": None},
    )


def _check_outside_of_pairs(data: DataPlan, run: Path) -> None:
    """Refuse a run directory inside a folder of pairs: its files would be read as pairs later."""
    names = [getattr(data, option) for option in (*FILES.values(), "dataset")]
    for path in named_files([each for name in names for each in options.listed(name)]):
        if path.is_dir() and run.resolve().is_relative_to(path.resolve()):
            raise RequestError(f"{run} is in {path}, a folder of pairs; give another --output-dir.")


def recipe_by_size(typed: Mapping[str, object], run: Path) -> Recipe:
    """Choose the shipped recipe for the number of training pairs.

    Args:
        typed: Values as on the command line, which must give the languages.
        run: The run directory.

    Raises:
        ValueError: If no pairs are named.
    """
    if not typed.keys() & {"train_file", "dataset"}:
        raise RequestError("Name a recipe, such as multi30k_en_de, or give --train-file.")
    of_pairs = options.names_of(options.Text, options.Data) | {"pair", "init_from", "tokenizer"}
    recipe = inherit(make_recipe({name: typed[name] for name in typed if name in of_pairs}), run)
    data = data_plan(recipe, run)
    check_files(data)
    number = len(training_pairs(data))
    names = (name for most, name in _BY_SIZE.items() if number <= most)
    name = next(name for name in names if name != "fewest_pairs" or _can_be_reversed(recipe))
    logger.info("Training pairs: %d; using model and schedule of the recipe %s.", number, name)
    return load_recipe(name, {**dict.fromkeys(options.LANGUAGES), **typed})


def _can_be_reversed(recipe: Recipe) -> bool:
    """Return whether the recipe `fewest_pairs`, which adds reversed pairs, suits these values.

    A summary cannot be turned back into its text, and symbol tokenizers lack the direction tag.
    Monolingual text, teachers and initial models were not tried with that recipe.
    """
    from ..data.languages import language_of

    languages = {language_of(side) for side in recipe.languages} - {None}
    further = recipe.init_from or recipe.teachers or recipe.monolingual_target
    return len(languages) == 2 and not further and recipe.tokenizer == Recipe.tokenizer


def inherit(recipe: Recipe, run: Path) -> Recipe:
    """Take languages and BPE-dropout from the initial model if a recipe does not set them.

    A run that has begun keeps its values, so that it can be resumed without that model.

    Raises:
        ValueError: There is no such model.
    """
    names = (*options.LANGUAGES, "bpe_dropout")
    missing = [name for name in names if getattr(recipe, name) is None]
    if recipe.init_from is None or not missing:
        return recipe
    from ..storage.saved_model import model_folder

    values = recipe_values(run)
    if values.get("init_from") != recipe.init_from:
        values = recipe_values(model_folder(recipe.init_from))
    return make_recipe({**vars(recipe), **{name: values.get(name) for name in missing}})
