"""A recipe: what to train, on which pairs and for how long. YAML becomes a dataclass.

To add an option, add one entry to a table in options.py and the code that uses its value.
`run_recipe` trains what a recipe describes and writes a run directory.
"""

import dataclasses
import difflib
import logging
import re
import shlex
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError, quoted
from ..ranges import Range
from ..storage.identity import differences, shown
from ..storage.metrics import check_measures
from ..storage.reading import as_yaml, read_yaml
from ..storage.run_files import recipe_values
from ..storage.shipped import shipped_folder
from .options import (
    ARGUMENTS,
    LANGUAGES,
    OPTIONS,
    Data,
    Evaluation,
    Model,
    Regularization,
    Text,
    Tokenizer,
    Training,
    listed,
    names_of,
    option_type,
    takes_several,
)

if typing.TYPE_CHECKING:
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

logger = logging.getLogger(__name__)

_PAIRS = ("train_file", "dataset")  # where training pairs can come from
_RATES = ("learning_rate", "learning_rate_factor")  # two ways to set the peak learning rate
# What a typed option replaces of a recipe file, besides its own value.
_REPLACED = {
    **dict.fromkeys(_PAIRS, names_of(Data)),
    "preset": names_of(Model, Regularization),
    "init_from": names_of(Model, Regularization, Tokenizer) | {*LANGUAGES, "bpe_dropout"},
    **dict.fromkeys(_RATES, frozenset(_RATES)),
}
# Pairs of options that set the same thing, so that only one of the two can be given.
_EXCLUSIVE = [
    _PAIRS,
    _RATES,
    *(("init_from", name) for name in sorted(names_of(Model, Tokenizer) - {"init_from"})),
]
# Without the second of these, the first has no effect.
_NEEDED = {
    **dict.fromkeys(("dataset_config", "dataset_revision", "streaming"), "dataset"),
    "early_stopping_on": "early_stopping_patience",
}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # what no file name or UTF-8 holds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Evaluation, Training, Tokenizer, Data, Text, Regularization, Model):
    """All settings of a run, section by section; None means "not given".

    The config checks the model's sizes, because it knows which fit together.

    Raises:
        ValueError: If a value is not allowed; the message names the option.
    """

    def __post_init__(self) -> None:
        """Refuse values that no run can have, naming the option."""
        for name in OPTIONS:
            _check(name, getattr(self, name))
        _check_exclusive(
            {name: value for name, value in vars(self).items() if not _is_default(name, value)}
        )
        check_measures(self.measures)
        corpora = len(listed(self.train_file)) + (self.monolingual_target is not None)
        weights = len(listed(self.train_weights))
        if weights and (weights != corpora or corpora < 2):
            raise RequestError(
                f"train_weights: got {weights} for {corpora} corpora; give one for each "
                "--train-file, then one for --monolingual-target, of two corpora or more, or none."
            )
        if self.init_from is not None and self.monolingual_target is not None:
            raise RequestError(
                "monolingual_target: got init_from too, so that the model that translates back has "
                "no sizes; train without --init-from first, then continue with its translated "
                "pairs, RUN-back/translated.jsonl, as one more --train-file."
            )
        if self.monolingual_target is not None and (self.join_pairs or self.both_directions):
            raise RequestError(
                "monolingual_target: got join_pairs or both_directions too, which would join and "
                "turn around what is translated back; leave them out, or the text."
            )
        sides = self.tokenizer.split(",")
        if len(sides) > 2 or not all(sides):
            raise RequestError(
                f"tokenizer: got {quoted(self.tokenizer)}; give one, or SOURCE,TARGET."
            )
        if self.early_stopping_on not in ("loss", *self.measures):
            raise RequestError(
                f"early_stopping_on: got {quoted(self.early_stopping_on)}; it must be loss, or one "
                f"of --metric {self.metric}."
            )
        self.check_model(self.config(vocab_size=self.vocab_size))

    def check_model(self, config: "VanillaTransformerConfig") -> None:
        """Refuse a model that cannot be trained as this recipe says.

        Raises:
            ValueError: If its learned positions are too few for the longest sentence allowed.
        """
        longest = max(self.max_source_length, self.max_target_length)
        if config.position_encoding == "learned" and longest > config.max_position_embeddings:
            raise RequestError(
                f"max_source_length, max_target_length: got {longest}, but learned positions end "
                f"at {config.max_position_embeddings}; give that or less."
            )

    @property
    def measures(self) -> list[str]:
        """Names of the measures; the first one decides."""
        return self.metric.split(",")

    def config(self, **vocabulary: Any) -> "VanillaTransformerConfig":
        """Return the config of the model.

        Args:
            **vocabulary: Fields that the tokenizer decides.

        Raises:
            ValueError: If no model has these sizes.
        """
        from huggingface_hub.errors import StrictDataclassError

        from ..configuration_vanilla_transformer import VanillaTransformerConfig

        values = {**self.model_overrides(), **vocabulary}
        try:
            return VanillaTransformerConfig.from_preset(self.preset, **values)
        except StrictDataclassError as error:
            raise RequestError(str(error.__cause__ or error)) from error

    @property
    def languages(self) -> tuple[str, str]:
        """Names of the two sides: language codes, or else "source" and "target"."""
        return self.source_language or "source", self.target_language or "target"

    def model_overrides(self) -> dict[str, Any]:
        """Return the config fields that this recipe sets in addition to its preset."""
        overrides: dict[str, Any] = {}
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if value is not None:
                overrides |= dict.fromkeys(option.metadata["config"], value)
        return overrides

    def argument_values(self) -> dict[str, Any]:
        """Return the training arguments that this recipe sets."""
        values = {argument: getattr(self, name) for name, argument in ARGUMENTS.items()}
        values["bpe_dropout"] = self.bpe_dropout or 0.0
        values["train_weights"] = listed(self.train_weights) or None
        return {**values, "eval_strategy": "steps" if self.evaluate_every_steps else "no"}

    def differences(self, other: "Recipe") -> list[str]:
        """Return the options in which two recipes differ, as `name: this -> other`."""
        return differences(vars(self), vars(other))

    def to_yaml(self) -> str:
        """Return all options as YAML, with the help of each as a comment."""
        return "".join(
            f"# {option.metadata['help']}\n{as_yaml({name: getattr(self, name)})}"
            for name, option in OPTIONS.items()
        )


def paper_values(preset: str) -> dict[str, object]:
    """Return the paper's value of each option for which it has one.

    Args:
        preset: The paper's model, one of `PRESETS`.
    """
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

    config = VanillaTransformerConfig.from_preset(preset)
    values = {}
    for name, option in OPTIONS.items():
        paper = option.metadata["paper"]
        if option.metadata["config"]:
            paper = getattr(config, option.metadata["config"][0])
        if preset == "big" and option.metadata["big"] is not None:
            paper = option.metadata["big"]
        if paper is not None:
            values[name] = paper
    return values


def load_recipe(name_or_path: str, typed: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe by path, or by the name of one that is shipped.

    Args:
        name_or_path: Name or path, such as `demo` or `my/recipe.yaml`.
        typed: Values that win over the file's, as on the command line. Training pairs replace all
            that the file says about its pairs except languages, a preset its model, `init_from` its
            model, regularization, tokenizer and languages, and one way to set the learning rate the
            other.

    Returns:
        The recipe, with every value checked.

    Raises:
        ValueError: If there is no such recipe, or a key or value is not allowed.
    """
    path = find_recipe(name_or_path)
    try:
        recipe = make_recipe(read_yaml(path))
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    values = _converted(typed or {})
    given = {name: value for name, value in values.items() if value is not None}
    _check_exclusive(given)
    kept = vars(recipe)
    for name, replaced in _REPLACED.items():
        if name in given:
            kept = _without(kept, replaced - given.keys(), name, given[name])
    if "symbols" in str(given.get("tokenizer")).split(","):  # symbols are not made by merges
        kept = _without(kept, {"bpe_dropout"} - given.keys(), "tokenizer", given["tokenizer"])
    made = Recipe(**{**kept, **values})
    _check_effect(made, given)
    return made


def make_recipe(values: Mapping[str, object]) -> Recipe:
    """Return a recipe from keys and values as in a YAML file or on the command line."""
    return Recipe(**_converted(values))


def _without(
    values: Mapping[str, Any], replaced: Iterable[str], by: str, value: object
) -> dict[str, Any]:
    """Return a recipe's values with the defaults of those that an option replaces."""
    lost = {
        name: values[name]
        for name in OPTIONS
        if name in replaced and not _is_default(name, values[name])
    }
    if lost:
        text = ", ".join(f"{name} {shown(value)}" for name, value in lost.items())
        logger.info("%s %s replaces these values of the recipe: %s.", by, shown(value), text)
    return {**values, **{name: OPTIONS[name].default for name in lost}}


def _is_default(name: str, value: object) -> bool:
    return value == OPTIONS[name].default


def _check_effect(recipe: Recipe, typed: Mapping[str, object]) -> None:
    """Refuse typed options that have no effect in a recipe."""
    for name, value in typed.items():
        needed = _NEEDED.get(name)
        if needed and not _is_default(name, value) and _is_default(needed, getattr(recipe, needed)):
            raise RequestError(
                f"{name}: got {shown(value)}, which has no effect without {needed}; give that too, "
                "or leave it out."
            )
    if typed.get("held_out_pairs") and (recipe.validation_file or recipe.test_file):
        raise RequestError(
            "held_out_pairs: got validation_file or test_file too, beside which no pairs are held "
            "out; give both files, or none."
        )


def _check_exclusive(given: Mapping[str, object]) -> None:
    """Refuse options that set the same thing."""
    for names in _EXCLUSIVE:
        if given.keys() >= {*names}:
            both = " and ".join(f"{name}={shown(given[name])}" for name in names)
            raise RequestError(f"got {both}, which set the same thing; leave one of them out.")


def _check(name: str, value: object) -> None:
    """Refuse a value of the wrong type, or outside its option's choices or range."""
    kind, optional = option_type(name)
    allowed = OPTIONS[name].metadata["allowed"]
    if value is None and optional:
        return
    if isinstance(value, tuple) and takes_several(name) and value:
        for each in value:  # one of several is neither None nor several
            _check(name, [each] if each is None or isinstance(each, tuple) else each)
        return
    if isinstance(allowed, Range):
        wanted, fits = str(allowed), value in allowed
    elif kind is bool:
        wanted, fits = "true or false", isinstance(value, bool)
    elif allowed:
        wanted, fits = f"one of {', '.join(allowed)}", value in allowed
    else:
        wanted = "text in UTF-8, or none" if optional else "text in UTF-8"
        fits = isinstance(value, str) and bool(value.strip()) and not _NO_TEXT.search(value)
    # Unquoted, YAML 1.1 reads the language code `no` as false, and a column's number as an int.
    hint = "; put it in quotes" if kind is str and isinstance(value, bool | int) else ""
    if not fits:
        raise RequestError(f"{name}: got {quoted(value)}; it must be {wanted}{hint}.")


def find_recipe(name_or_path: str) -> Path:
    """Return the file of a recipe: a path, or one of the shipped recipes by name."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    shipped = shipped_recipes()
    if name_or_path not in shipped:
        raise RequestError(
            f"There is no recipe {quoted(name_or_path)}{_nearest(name_or_path, shipped)}; shipped "
            f"are {', '.join(shipped) or 'none'}. For a file of your own, give its path (.yaml)."
        )
    return shipped[name_or_path]


def shipped_recipes() -> dict[str, Path]:
    """Return the names and files of the recipes that come with the package."""
    folder = shipped_folder("_recipes", "training/recipes")
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def train_command(values: Mapping[str, Any], output_dir: str) -> str:
    """Return the shortest `train` command that gives a recipe; files are named as in its values.

    A shipped recipe of other languages is used only if this saves two options or more.

    Args:
        values: The recipe's values, as in metrics.json; missing ones have the default.
        output_dir: The run directory.
    """
    wanted = {**vars(Recipe()), **values}
    commands = []
    for recipe in shipped_recipes():
        own = dict(vars(load_recipe(recipe)))
        foreign = any(own[side] != wanted[side] for side in LANGUAGES)
        for name, replaced in _REPLACED.items():
            if wanted[name] is not None and wanted[name] != own[name]:
                own |= {other: OPTIONS[other].default for other in replaced - {name}}
        words = ["vanilla-transformer", "train", recipe]
        for name in OPTIONS:
            value, flag = wanted[name], name.replace("_", "-")
            # The card states these two itself, and metrics need not have them.
            unsaid = value is None and name in ("data_source", "data_license")
            if value == own[name] or unsaid:
                continue
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", *map(str, listed(value) or ["none"])]
        commands.append((len(words) + 3 * foreign, [*words, "--output-dir", output_dir]))
    return shlex.join(min(commands)[1])


def _converted(content: Mapping[str, object]) -> dict[str, Any]:
    """Return values by option, in the option's type if possible; refuse unknown names."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key == "pair":
            values |= _split_pair(value)
        elif key not in OPTIONS:
            raise RequestError(
                f"unknown key {quoted(key)}{_nearest(str(key), [*OPTIONS, 'pair'])}; "
                "`vanilla-transformer train --help` lists all."
            )
        else:
            values[key] = _convert(key, value)
    return values


def languages_of_model(
    folder: Path, pair: str | None, *, unnamed: tuple[str | None, str | None] = (None, None)
) -> tuple[str, str]:
    """Return source and target language of a model: those typed, or its recipe's.

    Args:
        folder: Folder of the model.
        pair: What was typed, if anything.
        unnamed: Names of the sides for a recipe that has none. None: it must have.

    Raises:
        ValueError: If neither says them.
    """
    known = recipe_values(folder) if pair is None else _split_pair(pair)
    names = zip(LANGUAGES, unnamed if known else (None, None), strict=True)
    source, target = (known.get(name) or other for name, other in names)
    if source is None or target is None:
        raise RequestError(f"{folder} does not say its languages; give --pair, such as en-de.")
    return source, target


def _split_pair(value: object) -> dict[str, str]:
    # No slash: the pair is a part of a run directory's name.
    if not isinstance(value, str) or not re.fullmatch(r"[^\s/-]+-[^\s/-]+", value):
        raise RequestError(
            f"pair: got {quoted(value)}; write SOURCE-TARGET, such as en-de; a code of several "
            "parts takes underscores, such as pt_BR-en."
        )
    return dict(zip(LANGUAGES, value.split("-"), strict=True))


def _convert(name: str, value: object) -> object:
    """Convert a value to its option's type if possible; `_check` refuses the rest."""
    kind, optional = option_type(name)
    if isinstance(value, list) and takes_several(name):
        # Not into lists in it: a few lines of YAML can expand to billions.
        values = tuple(each if isinstance(each, list) else _convert(name, each) for each in value)
        return values[0] if len(values) == 1 else values
    if isinstance(value, str) and optional and value.lower() in ("none", "null"):
        return None
    if isinstance(value, str) and kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    number_as_text = isinstance(value, str) and value.isascii() and kind in (int, float)
    if number_as_text or (kind is float and type(value) is int):
        try:
            return kind(value)
        except (ValueError, OverflowError):
            return value
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]}?)" if matches else ""
