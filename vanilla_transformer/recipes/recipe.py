"""A recipe: what to train, on which pairs and for how long. YAML becomes a dataclass.

The defaults are the paper's (Sections 5 and 6.1), so that a recipe lists only what differs. To add
an option, add one entry to `Recipe` and the code that uses its value. `run_recipe` trains what a
recipe describes and writes a run directory.
"""

import dataclasses
import difflib
import functools
import logging
import re
import shlex
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError, quoted
from ..ranges import BELOW_ONE, COUNT, COUNT_OR_ZERO, FIELDS, LENGTH_PENALTY, NUM_BEAMS, Range
from ..storage.reading import as_yaml, read_yaml
from ..storage.shipped import shipped_folder

if typing.TYPE_CHECKING:
    from transformers import PreTrainedConfig, TrainingArguments

    from ..configuration_vanilla_transformer import VanillaTransformerConfig

logger = logging.getLogger(__name__)

# Where training pairs can come from; if a file names several, the first of these counts.
_PLACES = ("train_file", "generated", "dataset")
# Two ways to set the peak learning rate.
_RATES = ("learning_rate", "learning_rate_factor")
_OF_A_DATASET = frozenset({"dataset_config", "dataset_revision", "streaming"})

# Headings of `train --help` for all but the common options.
_MODEL = "model (Section 3)"
_PAIRS = "pairs (Section 5.1)"
_TOKENIZER = "tokenizer (Section 5.1)"
_UPDATES = "batches, optimizer and schedule (Sections 5.1 to 5.3)"
_RUN = "length, precision and seed"
_CHECKPOINTS = "checkpoints (Section 6.1)"
_EVALUATION = "log and evaluation"

_DEFAULT = object()  # the paper's value is the default

_SHARE = Range(0, 1, whole=False)
_MINUTES = Range(0, 10**7, whole=False)  # nineteen years
_TEXT = 8192  # characters: room for two paths of maximum length
# Numbers as text: from a command line, or from YAML, which reads 1e-9 as text.
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_NUMBER = re.compile(r"[+-]?([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = 300  # more than any option needs, and within the range of a float


def _option(
    default: object,
    help: str,
    group: str,
    *,
    common: bool = False,
    choices: tuple[str, ...] = (),
    allowed: Range | None = None,
    changeable: bool = False,
    is_file: bool = False,
    of_a_test: bool = False,
    config: tuple[str, ...] = (),
    argument: str | None = None,
    strategy: str | None = None,
    inherited: bool = False,
    paper: object = None,
    big: object = None,
) -> Any:
    """Return the dataclass field of one option; all else is derived from its metadata.

    Args:
        default: value if the recipe has none.
        help: one line for `train --help`, recipe.yaml and the model card.
        group: heading in `train --help`.
        common: whether `train --help` lists it at the top, among the options most users give.
        choices: allowed texts; any if empty.
        allowed: range of a number, if the config does not have one.
        changeable: whether the value may change between two starts of one run, because it affects
            no update.
        is_file: whether the value is a path, or several with commas between; a card shows only the
            names of the files.
        of_a_test: whether it says what a trained model is tested on, and how.
        config: fields of `VanillaTransformerConfig` that it sets, all to the same value. The
            paper's value then comes from the preset.
        argument: field of `VanillaTransformerTrainingArguments` that it sets.
        strategy: the training argument that belongs to `argument`. A recipe sets it to "steps", or
            to "no" if the option is 0; a user's own arguments may say "epoch".
        inherited: whether it describes the model or its tokenizer, which `init_from` provides.
        paper: the paper's value; None if the paper has no such setting.
        big: the paper's value for the big model, if it differs.
    """
    if config:
        allowed = FIELDS.get(config[0], allowed)
    metadata = {
        "help": help,
        "group": group,
        "common": common,
        "choices": choices,
        "allowed": allowed,
        "changeable": changeable,
        "is_file": is_file,
        "of_a_test": of_a_test,
        "config": config,
        "argument": argument,
        "strategy": strategy,
        "inherited": inherited,
        "paper": default if paper is _DEFAULT else paper,
        "big": big,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run; None means "not given".

    This is the only table of options. The command line, recipe.yaml, the checks, the model's
    config, the training arguments and the card's list of differences from the paper are derived
    from it. The config checks the model's sizes, because it knows which fit together.

    Raises:
        ValueError: if a value is not allowed; the message names the option.
    """

    init_from: str | None = _option(
        None,
        "start from a trained model: a run directory, a folder, or user/name on the Hub",
        _MODEL,
        common=True,
    )
    preset: str = _option(
        "base",
        "base, big, or a row of Table 3 such as A_h1; replaces the whole model",
        _MODEL,
        inherited=True,
    )
    d_model: int | None = _option(
        None, "width of the model", _MODEL, config=("d_model",), inherited=True
    )
    encoder_layers: int | None = _option(
        None, "layers of the encoder", _MODEL, config=("encoder_layers",), inherited=True
    )
    decoder_layers: int | None = _option(
        None, "layers of the decoder", _MODEL, config=("decoder_layers",), inherited=True
    )
    attention_heads: int | None = _option(
        None,
        "heads of each attention layer",
        _MODEL,
        config=("encoder_attention_heads", "decoder_attention_heads"),
        inherited=True,
    )
    ffn_dim: int | None = _option(
        None,
        "inner width of the feed-forward networks",
        _MODEL,
        config=("encoder_ffn_dim", "decoder_ffn_dim"),
        inherited=True,
    )
    dropout: float | None = _option(None, "P_drop of Section 5.4", _MODEL, config=("dropout",))
    attention_dropout: float | None = _option(
        None, "dropout on the attention weights", _MODEL, config=("attention_dropout",)
    )
    activation_dropout: float | None = _option(
        None, "dropout after the ReLU", _MODEL, config=("activation_dropout",)
    )
    label_smoothing: float | None = _option(
        None, "eps_ls of Section 5.4", _MODEL, config=("label_smoothing",)
    )
    position_encoding: str | None = _option(
        None,
        "sinusoidal, learned or tensor2tensor",
        _MODEL,
        config=("position_encoding",),
        inherited=True,
    )
    norm_first: bool | None = _option(
        None,
        "norm before the sub-layer instead of after it",
        _MODEL,
        config=("norm_first",),
        inherited=True,
    )

    source_language: str | None = _option(None, "language to translate from, such as en", _PAIRS)
    target_language: str | None = _option(None, "language to translate into, such as de", _PAIRS)
    dataset: str | None = _option(
        None,
        "data set on the Hub, or a folder: column `translation`, or one per language",
        _PAIRS,
        common=True,
    )
    dataset_config: str | None = _option(
        None, "configuration of the data set, such as de-en", _PAIRS
    )
    dataset_revision: str | None = _option(
        None, "commit or branch of the data set (default: its newest commit)", _PAIRS
    )
    streaming: bool = _option(
        False, "read the data set without downloading it first", _PAIRS, changeable=True
    )
    data_source: str | None = _option(
        None, "where the pairs come from, in words, for the card", _PAIRS, changeable=True
    )
    data_license: str | None = _option(
        None, "licence of the pairs, in words, for the card", _PAIRS, changeable=True
    )
    generated: str | None = _option(
        None, "cldr: generate pairs from CLDR, without a download", _PAIRS, choices=("cldr",)
    )
    generated_pairs: int = _option(100_000, "training pairs to generate", _PAIRS, allowed=COUNT)
    generated_test_pairs: int = _option(
        500, "pairs to generate for validation and for each test set", _PAIRS, allowed=COUNT
    )
    train_file: str | None = _option(
        None,
        "training pairs: .tsv, .csv or .jsonl[.gz], .parquet, or two texts SOURCE,TARGET",
        _PAIRS,
        common=True,
        is_file=True,
    )
    validation_file: str | None = _option(
        None, "validation pairs, in the same formats", _PAIRS, common=True, is_file=True
    )
    test_file: str | None = _option(
        None, "test pairs, in the same formats", _PAIRS, common=True, is_file=True, of_a_test=True
    )
    clean: bool = _option(
        False, "leave out training pairs that are duplicates, copies or of odd length ratio", _PAIRS
    )
    held_out_pairs: int | None = _option(
        None,
        "pairs held out for validation, and as many for test (default: 5 %, up to 1000)",
        _PAIRS,
        allowed=COUNT_OR_ZERO,
    )
    source_column: str | None = _option(
        None, "column of the sources: a name, or a number from 1", _PAIRS, of_a_test=True
    )
    target_column: str | None = _option(None, "column of the targets", _PAIRS, of_a_test=True)
    strict: bool = _option(
        False, "refuse malformed lines instead of skipping them", _PAIRS, of_a_test=True
    )
    max_source_length: int = _option(
        256, "leave out training pairs with a longer source, in tokens", _PAIRS, allowed=COUNT
    )
    max_target_length: int = _option(
        256, "leave out training pairs with a longer target, in tokens", _PAIRS, allowed=COUNT
    )

    vocab_size: int = _option(
        37_000,
        "entries of the shared byte-level BPE vocabulary",
        _TOKENIZER,
        common=True,
        allowed=Range(260, 10_000_000),  # 256 bytes and 4 special tokens at least
        inherited=True,
        paper=_DEFAULT,
    )
    split_digits: bool = _option(
        False, "each digit is a token of its own", _TOKENIZER, inherited=True, paper=_DEFAULT
    )
    bpe_dropout: float = _option(
        0.0,
        "probability of undoing a merge of the BPE in training; 0 is off",
        _TOKENIZER,
        allowed=_SHARE,
        argument="bpe_dropout",
        paper=_DEFAULT,
    )

    batch_tokens: int = _option(
        3_125,
        "maximum number of source tokens, and of target tokens, in a batch, with padding",
        _UPDATES,
        common=True,
        allowed=COUNT,
        argument="batch_tokens",
        paper=_DEFAULT,
    )
    gradient_accumulation: int = _option(
        8,
        "batches per update, divided among the devices: 8 * 3125 = 25000 tokens",
        _UPDATES,
        allowed=COUNT,
        argument="gradient_accumulation_steps",
        paper=_DEFAULT,
    )
    warmup_steps: int = _option(
        4_000,
        "updates until the learning rate peaks (Eq. 3)",
        _UPDATES,
        allowed=COUNT,
        argument="warmup_steps",
        paper=_DEFAULT,
    )
    learning_rate: float | None = _option(
        None,
        "peak learning rate; with --init-from a small one, such as 2e-4",
        _UPDATES,
        common=True,
        allowed=Range(0, 1000, whole=False, above=True),
        argument="learning_rate",
        paper="Eq. 3",
    )
    learning_rate_factor: float = _option(
        1.0,
        "factor on the learning rate of Eq. 3",
        _UPDATES,
        allowed=Range(0, 1000, whole=False, above=True),
        argument="learning_rate_factor",
        paper=_DEFAULT,
    )
    adam_beta1: float = _option(
        0.9, "Adam's beta_1", _UPDATES, allowed=BELOW_ONE, argument="adam_beta1", paper=_DEFAULT
    )
    adam_beta2: float = _option(
        0.98, "Adam's beta_2", _UPDATES, allowed=BELOW_ONE, argument="adam_beta2", paper=_DEFAULT
    )
    adam_epsilon: float = _option(
        1e-9,
        "Adam's epsilon",
        _UPDATES,
        allowed=Range(1e-30, 1, whole=False),  # less is 0 in float32, and may give 0 / 0
        argument="adam_epsilon",
        paper=_DEFAULT,
    )
    max_grad_norm: float = _option(
        0.0,
        "clip gradients at this norm; 0 does not clip",
        _UPDATES,
        allowed=Range(0, 10**9, whole=False),
        argument="max_grad_norm",
        paper=_DEFAULT,
    )

    max_steps: int = _option(
        100_000,
        "updates to make",
        _RUN,
        common=True,
        allowed=COUNT,
        changeable=True,
        argument="max_steps",
        paper=_DEFAULT,
        big=300_000,
    )
    max_minutes: float | None = _option(
        None,
        "stop after this many minutes of training, if that is earlier",
        _RUN,
        common=True,
        allowed=dataclasses.replace(_MINUTES, above=True),
        changeable=True,
        argument="max_minutes",
    )
    early_stopping_patience: int | None = _option(
        None,
        "stop after this many evaluations without a lower validation loss",
        _RUN,
        allowed=COUNT,
        changeable=True,
        argument="early_stopping_patience",
    )
    precision: str = _option(
        "auto",
        "fp32, bf16, or auto: bf16 if the hardware supports it",
        _RUN,
        choices=("auto", "fp32", "bf16"),
    )
    seed: int = _option(
        0,
        "seed of initialisation, order of the pairs and dropout",
        _RUN,
        common=True,
        allowed=Range(0, 2**32 - 1),  # NumPy accepts no others
        argument="seed",
    )

    # The paper's interval is in minutes; how many updates that is depends on the machine.
    save_every_steps: int = _option(
        1_500,
        "updates between checkpoints to average; 1500 updates of 0.4 s take 10 minutes",
        _CHECKPOINTS,
        allowed=COUNT,
        argument="save_steps",
        strategy="save_strategy",
    )
    save_every_minutes: float = _option(
        10.0,
        "write a checkpoint when the newest is this many minutes old; 0: never",
        _CHECKPOINTS,
        allowed=_MINUTES,
        changeable=True,
        argument="save_every_minutes",
    )
    checkpoints_to_average: int = _option(
        5,
        "number of last checkpoints to average into the final model",
        _CHECKPOINTS,
        allowed=COUNT,
        changeable=True,
        argument="checkpoints_to_keep",
        paper=_DEFAULT,
        big=20,
    )
    choose_on_validation: bool = _option(
        False,
        "choose number of averaged checkpoints and length penalty on validation pairs",
        _CHECKPOINTS,
        changeable=True,
    )

    log_every_steps: int = _option(
        100,
        "updates between two lines of the log",
        _EVALUATION,
        allowed=COUNT,
        changeable=True,
        argument="logging_steps",
        strategy="logging_strategy",
    )
    evaluate_every_steps: int = _option(
        1_000,
        "updates between two evaluations; 0 evaluates at the end only",
        _EVALUATION,
        allowed=COUNT_OR_ZERO,
        changeable=True,
        argument="eval_steps",
        strategy="eval_strategy",
    )
    evaluate_pairs: int = _option(
        500, "validation pairs for BLEU while training", _EVALUATION, allowed=COUNT, changeable=True
    )
    num_beams: int = _option(
        4,
        "beams of the final model's search",
        _EVALUATION,
        of_a_test=True,
        allowed=NUM_BEAMS,
        changeable=True,
        paper=_DEFAULT,
    )
    length_penalty: float | None = _option(
        None,
        "alpha of the final model's beam search; 0.6 if not given",
        _EVALUATION,
        allowed=LENGTH_PENALTY,
        changeable=True,
        paper=0.6,
    )
    stop_search_early: bool = _option(
        False,
        "end a search once num_beams hypotheses have ended (early_stopping of generate)",
        _EVALUATION,
        changeable=True,
        paper=_DEFAULT,
    )
    report_to: str | None = _option(
        None,
        "also send the log to tensorboard, trackio or wandb",
        _EVALUATION,
        choices=("tensorboard", "trackio", "wandb"),
        changeable=True,
    )
    num_samples: int = _option(
        20,
        "translations of each test set in samples.md, three at least",
        _EVALUATION,
        allowed=COUNT_OR_ZERO,
        changeable=True,
    )

    def __post_init__(self) -> None:
        """Refuse values that no run can have, naming the option."""
        for field in dataclasses.fields(self):
            _check(field, getattr(self, field.name))
        if self.init_from is not None:
            _check_inherited(
                {
                    field.name: getattr(self, field.name)
                    for field in dataclasses.fields(self)
                    if getattr(self, field.name) != field.default
                }
            )
        self.check_model(self.config(self.vocab_size))
        longest = max(self.max_source_length, self.max_target_length)
        if self.learning_rate is not None and self.learning_rate_factor != 1:
            raise RequestError(
                f"learning_rate: got {self.learning_rate:g} and learning_rate_factor "
                f"{self.learning_rate_factor:g}, which both set the peak learning rate; give one "
                "of them."
            )
        if self.batch_tokens < longest:
            raise RequestError(
                f"batch_tokens: got {self.batch_tokens}, less than the longest sentence allowed; "
                f"give {longest} or more, or lower max_source_length and max_target_length."
            )

    def check_model(self, config: "VanillaTransformerConfig") -> None:
        """Refuse a model that cannot be trained as this recipe says.

        Raises:
            ValueError: if its learned positions are too few for the longest sentence allowed.
        """
        longest = max(self.max_source_length, self.max_target_length)
        if config.position_encoding == "learned" and longest > config.max_position_embeddings:
            raise RequestError(
                f"max_source_length, max_target_length: got {longest}, but learned positions end "
                f"at {config.max_position_embeddings}; give that or less."
            )

    def config(self, vocab_size: int) -> "VanillaTransformerConfig":
        """Return the config of the model with a vocabulary of this size.

        Raises:
            ValueError: if no model has these sizes.
        """
        from huggingface_hub.errors import StrictDataclassError

        from ..configuration_vanilla_transformer import VanillaTransformerConfig

        values = {**self.model_overrides(), "vocab_size": vocab_size}
        try:
            return VanillaTransformerConfig.from_preset(self.preset, **values)
        except StrictDataclassError as error:
            raise RequestError(str(error.__cause__ or error)) from error

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language.

        Raises:
            ValueError: if the recipe names none.
        """
        if not (self.source_language and self.target_language):
            raise RequestError("The recipe names no languages; give --pair, such as en-de.")
        return self.source_language, self.target_language

    def model_overrides(self) -> dict[str, Any]:
        """Return the config fields that this recipe sets in addition to its preset."""
        overrides: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                overrides |= dict.fromkeys(field.metadata["config"], value)
        return overrides

    def argument_values(self) -> dict[str, Any]:
        """Return the training arguments that this recipe sets."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            argument, strategy = field.metadata["argument"], field.metadata["strategy"]
            value = getattr(self, field.name)
            if strategy is not None:
                values[strategy] = "steps" if value else "no"
                values[argument] = value or None
            elif argument is not None:
                values[argument] = value
        return values

    def differences(self, other: "Recipe") -> list[str]:
        """Return the options in which two recipes differ, as `name: this -> other`."""
        return [
            f"{name}: " + " -> ".join("not set" if value is None else repr(value) for value in both)
            for name in vars(self)
            if (both := [getattr(self, name), getattr(other, name)])[0] != both[1]
        ]

    def to_yaml(self) -> str:
        """Return all options as YAML, with the help of each as a comment."""
        lines = []
        for field in dataclasses.fields(self):
            text = as_yaml({field.name: getattr(self, field.name)})
            lines.append(f"# {field.metadata['help']}\n{text}")
        return "".join(lines)


# Options that may change between two starts of one run.
CHANGEABLE = frozenset(
    field.name for field in dataclasses.fields(Recipe) if field.metadata["changeable"]
)
# Options that hold paths of this machine.
FILES = tuple(field.name for field in dataclasses.fields(Recipe) if field.metadata["is_file"])

# Options that say what a trained model is tested on, and how; `pair` is short for both languages.
TEST_OPTIONS = (
    "pair",
    *(field.name for field in dataclasses.fields(Recipe) if field.metadata["of_a_test"]),
)


def recipe_of(
    config: "PreTrainedConfig", args: "TrainingArguments", **known: object
) -> dict[str, Any]:
    """Return the recipe options that describe a training: the inverse of applying a recipe.

    Args:
        config: config of the model.
        args: `VanillaTransformerTrainingArguments` of the training.
        **known: options known from elsewhere; they override `config` and `args`.

    Returns:
        Values by option, in the order of the table; options without a known value are left out.
    """
    values = {}
    for field in dataclasses.fields(Recipe):
        names, argument = field.metadata["config"], field.metadata["argument"]
        if field.name in known:
            values[field.name] = known[field.name]
        elif names:
            values[field.name] = getattr(config, names[0])
        elif argument is not None:
            strategy = field.metadata["strategy"]
            counted_in = "steps" if strategy is None else getattr(args, strategy)
            if counted_in == "steps":
                values[field.name] = _whole(field.name, getattr(args, argument))
            elif counted_in == "no" and 0 in field.metadata["allowed"]:
                values[field.name] = 0
    return values


def differing_sides(config: "PreTrainedConfig") -> dict[str, Any]:
    """Return the config's values for the decoder where the encoder's differ.

    A recipe has one option for both sides, and `recipe_of` takes the encoder's value.
    """
    differing = {}
    for field in dataclasses.fields(Recipe):
        names = field.metadata["config"]
        for name in names[1:]:
            if getattr(config, name) != getattr(config, names[0]):
                differing[name] = getattr(config, name)
    return differing


def paper_values(preset: str) -> dict[str, object]:
    """Return the paper's value of each option for which it has one.

    Args:
        preset: the paper's model, one of `PRESETS`.
    """
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

    config = VanillaTransformerConfig.from_preset(preset)
    values = {}
    for field in dataclasses.fields(Recipe):
        paper = field.metadata["paper"]
        if field.metadata["config"]:
            paper = getattr(config, field.metadata["config"][0])
        if preset == "big" and field.metadata["big"] is not None:
            paper = field.metadata["big"]
        if paper is not None:
            values[field.name] = paper
    return values


def load_recipe(name_or_path: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe by path, or by the name of one that is shipped.

    Args:
        name_or_path: name or path, such as `demo` or `my/recipe.yaml`.
        overrides: values that override the file's; strings are converted to the option's type. A
            preset replaces all that the file says about the model; `init_from` replaces that and
            the tokenizer. Other training pairs replace the file's own, with their source, licence
            and data set options; if they are of another kind (files instead of a data set), the
            file's columns go too, and with them its validation and test files; a data set replaces
            those in any case. One way to set the
            learning rate replaces the other.

    Returns:
        The recipe, with every value checked.

    Raises:
        ValueError: if there is no such recipe, or a key or value is not allowed.
    """
    path = find_recipe(name_or_path)
    content = read_yaml(path)
    try:
        values = _values(content)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    given = _values(dict(overrides or {}))
    if given.get("init_from", values.get("init_from")) is not None:
        _check_inherited(given)
        if given.get("init_from") is not None:
            values = _without_inherited(values, given["init_from"])
    elif "preset" in given:
        values = _without_model(values, given["preset"])
    for one, other in (_RATES, _RATES[::-1]):
        if given.get(one) is not None and other not in given:
            values.pop(other, None)
    return Recipe(**_from_one_place(values, given))


def make_recipe(values: Mapping[str, object]) -> Recipe:
    """Return a recipe from keys and values as in a YAML file or on the command line."""
    return Recipe(**_from_one_place(_values(dict(values)), {}))


def _check_inherited(given: Mapping[str, object]) -> None:
    """Refuse options that describe the model or its tokenizer: `init_from` has both."""
    for field in dataclasses.fields(Recipe):
        value = given.get(field.name)
        if field.metadata["inherited"] and value is not None:
            raise RequestError(
                f"{field.name}: got {quoted(value)} beside init_from, whose model has its own "
                f"shape and tokenizer; leave {field.name} out."
            )


def _without_inherited(values: dict[str, Any], model: object) -> dict[str, Any]:
    """Return the file's values without its model and tokenizer, which `model` replaces."""
    fields = dataclasses.fields(Recipe)
    inherited = [field.name for field in fields if field.metadata["inherited"]]
    replaced = ", ".join(f"{name} {values[name]}" for name in inherited if values.get(name))
    if replaced:
        message = "Model and tokenizer come from %s; these values of the recipe are ignored: %s."
        logger.info(message, quoted(model), replaced)
    return {name: value for name, value in values.items() if name not in inherited}


def _without_model(values: dict[str, Any], preset: object) -> dict[str, Any]:
    """Return the file's values without its model, which the preset replaces."""
    from ..configuration_vanilla_transformer import PRESETS

    fields = dataclasses.fields(Recipe)
    of_model = ["preset", *(field.name for field in fields if field.metadata["config"])]
    replaced = {name: values[name] for name in of_model if values.get(name) is not None}
    if isinstance(preset, str) and preset in PRESETS:
        sets, before = (
            ", ".join(f"{name} {value}" for name, value in model.items())
            for model in (PRESETS[preset], replaced)
        )
        message = "Preset %s, the paper's base model%s, replaces the recipe's model: %s."
        logger.info(message, preset, sets and f" with {sets}", before or "the paper's base")
    return {name: value for name, value in values.items() if name not in replaced}


def _from_one_place(values: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Merge both, keeping only one source of training pairs."""
    given = [name for name in _PLACES if overrides.get(name) is not None]
    if len(given) > 1:
        raise RequestError(f"got {' and '.join(given)}; give one of them.")
    if given and overrides[given[0]] != values.get(given[0]):
        # Source, licence and data set options describe the recipe's own pairs. Its columns are kept
        # only if the new pairs are of the same kind. Its validation and test files cannot be read
        # without those columns, and a data set has its own, so they go too.
        untrue = {*_PLACES, *_OF_A_DATASET, "data_source", "data_license"}
        columns = [name for name in ("source_column", "target_column") if values.get(name)]
        if values.get(given[0]) is None and (columns or given == ["dataset"]):
            files = [f"{split}_file" for split in ("validation", "test")]
            replaced = columns + [name for name in files if values.get(name)]
            left_out = ", ".join(f"{n} {values[n]}" for n in replaced if n not in overrides)
            if left_out:
                logger.info("The recipe's own values are not used with other pairs: %s.", left_out)
            untrue |= {*replaced}
        values = {name: value for name, value in values.items() if name not in untrue}
    values = {**values, **overrides}
    used = next((name for name in _PLACES if values.get(name) is not None), None)
    unused = {name for name in _PLACES if name != used}
    if used != "dataset":
        unused |= _OF_A_DATASET
    return {name: value for name, value in values.items() if name not in unused}


def _check(field: dataclasses.Field[object], value: object) -> None:
    """Refuse a value of the wrong type, or outside its option's choices or range."""
    kind, optional = field_type(field.name)
    choices = field.metadata["choices"]
    if value is None and optional:
        return
    if kind in (int, float):
        wanted = field.metadata["allowed"]
        fits = value in wanted
    elif kind is bool:
        wanted, fits = "true or false", isinstance(value, bool)
    elif choices:
        wanted, fits = f"one of {', '.join(choices)}", value in choices
    else:
        wanted = "text, or none" if optional else "text"
        fits = isinstance(value, str) and bool(value.strip())
    # Unquoted, YAML 1.1 reads the language code `no` as false, and a column's number as an int.
    hint = "; put it in quotes" if kind is str and isinstance(value, bool | int) else ""
    if not fits:
        raise RequestError(f"{field.name}: got {quoted(value)}; it must be {wanted}{hint}.")
    if isinstance(value, str):
        check_text(field.name, value)


def check_text(name: str, text: str) -> None:
    """Refuse text that no file or file name can hold.

    Raises:
        ValueError: if it is too long, cannot be written in UTF-8 or has a NUL.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        reason = "it is not valid Unicode; write it in UTF-8"
    else:
        if len(text) <= _TEXT and "\0" not in text:
            return
        reason = f"it must have no NUL and at most {_TEXT} characters"
    raise RequestError(f"{name}: got {quoted(text)}; {reason}.")


def _whole(name: str, value: object) -> object:
    """Return a training argument in its option's type; `Trainer` allows 4000.0 for 4000."""
    kind, _ = field_type(name)
    return int(value) if kind is int and isinstance(value, float) and value.is_integer() else value


def find_recipe(name_or_path: str) -> Path:
    """Return the file of a recipe: a path, or one of the shipped recipes by name."""
    check_text("recipe", name_or_path)
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if not path.is_file():
            raise RequestError(f"There is no recipe file {quoted(name_or_path)}.")
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

    Args:
        values: the recipe's values, as in metrics.json; missing ones have the default.
        output_dir: the run directory.
    """
    values = {**vars(Recipe()), **values}
    # Other pairs replace a recipe's own, and what describes them.
    replaced = {*_PLACES, *_OF_A_DATASET, "data_source", "data_license"}
    commands = []
    for name in shipped_recipes():
        words = ["vanilla-transformer", "train", name]
        shipped = load_recipe(name)
        for field in dataclasses.fields(Recipe):
            value, option = values[field.name], field.name.replace("_", "-")
            if value == getattr(shipped, field.name) or (not value and field.name in replaced):
                continue
            if values["init_from"] and field.metadata["inherited"]:
                continue
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words += [f"--{option}", "none" if value is None else str(value)]
        commands.append([*words, "--output-dir", output_dir])
    shortest = min(commands, key=len)
    return shlex.join(shortest)


@functools.cache
def field_type(name: str) -> tuple[type, bool]:
    """Return the type of a field and whether it may be None."""
    hint = typing.get_type_hints(Recipe)[name]
    if isinstance(hint, types.UnionType):
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return inner, True
    return hint, False


def _values(content: dict[str, Any]) -> dict[str, Any]:
    known = {field.name: field for field in dataclasses.fields(Recipe)}
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key == "pair":
            values.update(_split_pair(value))
        elif key not in known:
            raise RequestError(
                f"unknown key {quoted(key)}{_nearest(str(key), [*known, 'pair'])}; "
                "`vanilla-transformer train --help` lists all."
            )
        else:
            values[key] = _convert(key, value)
            _check(known[key], values[key])
    return values


def _split_pair(value: object) -> dict[str, str]:
    # No slash: the pair is a part of a run directory's name.
    if not isinstance(value, str) or not re.fullmatch(r"[^\s/-]+-[^\s/-]+", value):
        raise RequestError(
            f"pair: got {quoted(value)}; write SOURCE-TARGET, such as en-de; a code of several "
            "parts takes underscores, such as pt_BR-en."
        )
    return dict(zip(("source_language", "target_language"), value.split("-"), strict=True))


def _convert(name: str, value: object) -> object:
    """Convert a value to its option's type if possible; `_check` refuses the rest."""
    kind, optional = field_type(name)
    if isinstance(value, str):
        if optional and value.lower() in ("none", "null"):
            return None
        if kind is bool:
            return {"true": True, "false": False}.get(value.lower(), value)
        form = {int: _WHOLE, float: _NUMBER}.get(kind)
        return kind(value) if form and len(value) <= _DIGITS and form.fullmatch(value) else value
    if kind is float and type(value) is int and abs(value) < 10**_DIGITS:
        return float(value)
    return value


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    matches = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]}?)" if matches else ""
