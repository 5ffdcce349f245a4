"""A recipe: all settings of a training run, read from YAML into a dataclass.

To add an option, add one entry to a table in options.py and the code that uses its value.
`planning.plan_run` turns a recipe into the plan of a run.
"""

import contextlib
import dataclasses
import difflib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError, quoted
from ..ranges import Range
from ..storage.metrics import check_measures
from ..storage.reading import read_yaml
from ..storage.run_files import recipe_values, shown
from ..storage.shipped import shipped_folder
from . import options
from .plan import DataPlan

logger = logging.getLogger(__name__)

_PAIRS = ("train_file", "dataset")  # where training pairs can come from
_RATES = ("learning_rate", "learning_rate_factor")  # two ways to set the peak learning rate
# Other values of a recipe file that an option on the command line resets to their defaults.
_REPLACED = {
    **dict.fromkeys(_PAIRS, options.names_of(options.Data)),
    "preset": options.names_of(options.Model),
    "init_from": options.names_of(options.Model, options.Tokenizer)
    | {*options.LANGUAGES, "bpe_dropout"},
    **dict.fromkeys(_RATES, frozenset(_RATES)),
}
# Options that are fixed by an initial model; only its regularization may change.
SHAPE = options.names_of(options.Model, options.Tokenizer) - {
    *("init_from", "dropout", "attention_dropout", "activation_dropout", "label_smoothing")
}
# Mutually exclusive options: they set the same thing, or one would undo the other.
_EXCLUSIVE = [
    _PAIRS,
    _RATES,
    *(("init_from", name) for name in sorted(SHAPE)),
    # The model for back-translation has the recipe's sizes, and no pairs from augmentation.
    *(("monolingual_target", name) for name in ("init_from", "join_pairs", "both_directions")),
    *(("siblings", name) for name in ("init_from", "train_weights", "teachers")),
    ("siblings", "monolingual_target"),
]
# Training arguments that a run sets itself.
_OF_RUN = frozenset({"output_dir", "bf16", "fp16", "save_strategy", "run_name", "use_cpu"})
_WORDS = {"none": "null", "true": "true", "false": "false"}  # as JSON spells them
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # not allowed in file names, or in UTF-8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(options.Evaluation, options.Training, options.Tokenizer, DataPlan, options.Model):
    """All settings of a run, section by section; None means "not given".

    The config checks the model's sizes, because it knows which fit together.

    Raises:
        ValueError: If a value is not allowed; the message names the option.
    """

    def __post_init__(self) -> None:
        """Refuse invalid values; the message names the option."""
        for name in options.OPTIONS:
            _check(name, getattr(self, name))
        given = {name: it for name, it in vars(self).items() if not _is_default(name, it)}
        _check_exclusive(given)
        check_measures(self.measures)
        corpora = len(options.listed(self.train_file) or options.listed(self.dataset))
        corpora += len(options.listed(self.teachers)) + (self.monolingual_target is not None)
        weights = len(options.listed(self.train_weights))
        if weights and (weights != corpora or corpora < 2):
            raise RequestError(
                f"train_weights: got {weights} for {corpora} corpora; give one for each."
            )
        if self.monolingual_source is not None and not (self.teachers or self.siblings):
            raise RequestError("monolingual_source needs models to translate it; give --teachers.")
        sides = self.tokenizer.split(",")
        if len(sides) > 2 or not all(sides):
            raise RequestError(f"tokenizer: got {quoted(self.tokenizer)}; give one, or two as A,B.")
        if taken := {*(self.trainer or {})} & ({*options.ARGUMENTS.values()} | _OF_RUN):
            raise RequestError(f"trainer: leave out {', '.join(sorted(taken))}; the run sets them.")
        self.check_positions(self.config(vocab_size=self.vocab_size))


def paper_values(preset: str) -> dict[str, object]:
    """Return the paper's value of each option that the paper specifies.

    Args:
        preset: The paper's model, one of `PRESETS`.
    """
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

    config = VanillaTransformerConfig.from_preset(preset)
    values = {}
    for name, option in options.OPTIONS.items():
        paper = option.metadata["paper"]
        if option.metadata["config"]:
            paper = getattr(config, option.metadata["config"][0])
        if paper is not None:
            values[name] = paper
    return {**values, **(options.PAPERS_BIG if preset == "big" else {})}


def load_recipe(name_or_path: str, typed: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe by path, or by the name of one that is shipped.

    Args:
        name_or_path: Name or path, such as `demo` or `my/recipe.yaml`.
        typed: Values that override the file's, as on the command line. Training pairs replace all
            that the file says about pairs, except languages. A preset replaces the file's model;
            `init_from` replaces its model, regularization, tokenizer, languages and `bpe_dropout`.
            One way to set the learning rate replaces the other. In `trainer`, only the arguments
            given are replaced.

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
    if "symbols" in str(given.get("tokenizer")).split(","):  # symbol tokenizers have no merges
        kept = _without(kept, {"bpe_dropout"} - given.keys(), "tokenizer", given["tokenizer"])
    if isinstance(values.get("trainer"), dict):
        values["trainer"] = {**(kept["trainer"] or {}), **values["trainer"]}
    return Recipe(**{**kept, **values})


def make_recipe(values: Mapping[str, object]) -> Recipe:
    """Make a recipe from keys and values as in a YAML file or on the command line."""
    return Recipe(**_converted(values))


def _without(
    values: Mapping[str, Any], replaced: Iterable[str], by: str, value: object
) -> dict[str, Any]:
    """Reset to their defaults the recipe values that an option makes invalid; log them."""
    names = [name for name in options.OPTIONS if name in replaced]
    lost = {name: values[name] for name in names if not _is_default(name, values[name])}
    if lost:
        text = ", ".join(f"{name} {shown(value)}" for name, value in lost.items())
        logger.info("%s %s resets recipe values to their defaults: %s.", by, shown(value), text)
    return {**values, **{name: options.OPTIONS[name].default for name in lost}}


def _is_default(name: str, value: object) -> bool:
    return value == options.OPTIONS[name].default


def _check_exclusive(given: Mapping[str, object]) -> None:
    """Refuse options that exclude each other."""
    for names in _EXCLUSIVE:
        if given.keys() >= {*names}:
            both = " and ".join(f"{name}={shown(given[name])}" for name in names)
            raise RequestError(f"got {both}, which exclude each other; leave one of them out.")


def _check(name: str, value: object) -> None:
    """Refuse a value of the wrong type, or outside its option's choices or range."""
    kind, optional = options.option_type(name)
    allowed = options.OPTIONS[name].metadata["allowed"]
    if value is None and optional:
        return
    if isinstance(value, tuple) and options.takes_several(name) and value:
        for each in value:  # None or a list inside of the list is refused
            _check(name, [each] if each is None or isinstance(each, tuple) else each)
        return
    if isinstance(allowed, Range):
        wanted, fits = str(allowed), value in allowed
    elif kind is bool:
        wanted, fits = "true or false", isinstance(value, bool)
    elif kind is Mapping:
        wanted = "NAME=VALUE, such as save_steps=500, or a mapping of these"
        fits = isinstance(value, dict) and _can_be_recorded(value)
    elif allowed:
        wanted, fits = f"one of {', '.join(allowed)}", value in allowed
    else:
        wanted = "text in UTF-8, or none" if optional else "text in UTF-8"
        fits = isinstance(value, str) and bool(value.strip()) and not _NO_TEXT.search(value)
    if not fits:
        raise RequestError(f"{name}: got {quoted(value)}; it must be {wanted}.")


def _can_be_recorded(values: Mapping[Any, Any]) -> bool:
    """Return whether a mapping has text keys and can be written as JSON in UTF-8."""
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        return False
    return all(isinstance(name, str) for name in values)


def find_recipe(name_or_path: str) -> Path:
    """Return the file of a recipe, given by path or by the name of a shipped recipe."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    shipped = shipped_recipes()
    if name_or_path not in shipped:
        name, known = quoted(name_or_path), ", ".join(shipped) or "none"
        near = _nearest(name_or_path, shipped)
        raise RequestError(f"There is no recipe {name}{near}; give one of {known}, or a .yaml.")
    return shipped[name_or_path]


def shipped_recipes() -> dict[str, Path]:
    """Return the names and files of the recipes that come with the package."""
    folder = shipped_folder("_recipes", "training/recipes")
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _converted(content: Mapping[str, object]) -> dict[str, Any]:
    """Convert values to their options' types if possible; refuse unknown names."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key == "pair":
            values |= _split_pair(value)
        elif key not in options.OPTIONS:
            near = _nearest(str(key), [*options.OPTIONS, "pair"])
            raise RequestError(f"unknown key {quoted(key)}{near}; see --help.")
        else:
            values[key] = _convert(key, value)
    return values


def languages_of_model(folder: Path, pair: str | None) -> tuple[str, str]:
    """Return a model's source and target language, from `pair` or else from its recipe.

    Args:
        folder: Folder of the model.
        pair: The languages that the user gave, such as en-de, if any.

    Raises:
        ValueError: If there is no `pair`, and the model has no recipe.
    """
    known = recipe_values(folder) if pair is None else _split_pair(pair)
    if not known:
        raise RequestError(f"{folder} does not record its languages; give --pair, such as en-de.")
    return make_recipe({name: known.get(name) for name in options.LANGUAGES}).languages


def _split_pair(value: object) -> dict[str, str]:
    # No slash: the pair is a part of a run directory's name.
    if not isinstance(value, str) or not re.fullmatch(r"[^\s/-]+-[^\s/-]+", value):
        raise RequestError(f"pair: got {quoted(value)}; write SOURCE-TARGET, as en-de or pt_BR-en.")
    return dict(zip(options.LANGUAGES, value.split("-"), strict=True))


def _convert(name: str, value: Any) -> object:
    """Convert a value to its option's type if possible; `_check` refuses the rest."""
    kind, optional = options.option_type(name)
    if kind is Mapping:
        if isinstance(value, list) and all(isinstance(it, str) and "=" in it for it in value):
            value = dict(it.split("=", 1) for it in value)
        return _plain(value) if isinstance(value, dict) else value
    if isinstance(value, list) and options.takes_several(name):
        # Not the items of nested lists: a few lines of YAML can expand to billions.
        values = tuple(each if isinstance(each, list) else _convert(name, each) for each in value)
        return values[0] if len(values) == 1 else values
    if isinstance(value, str) and optional and value.lower() in ("none", "null"):
        return None
    if isinstance(value, str) and kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    is_number = type(value) is int or (isinstance(value, str) and value.isascii())
    if kind in (int, float) and is_number:
        with contextlib.suppress(ValueError, OverflowError):
            return kind(value)
    return value


def _plain(value: Any) -> object:
    """Return a value in which each text that is JSON is parsed: "3" becomes 3."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    with contextlib.suppress(ValueError, AttributeError):
        return json.loads(_WORDS.get(value.lower(), value), parse_constant=str)
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]}?)" if matches else ""
