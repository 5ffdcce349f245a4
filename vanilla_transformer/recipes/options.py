"""All options of a recipe, in one dataclass for each section, whose docstring is a help heading.

The defaults are the paper's (Sections 5 and 6.1), so that a recipe lists only what differs. The
command line, recipe.yaml, the checks, the plan of a run and the card's list of differences from the
paper are derived from these tables.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..ranges import COUNT, COUNT_OR_ZERO, FIELDS, LENGTH_PENALTY, NUM_BEAMS, Range
from ..search_settings import SearchSettings, search_settings
from ..storage.metrics import TRANSLATION_MEASURES

if TYPE_CHECKING:
    from ..configuration_vanilla_transformer import VanillaTransformerConfig

_SAME = object()  # marks options whose default is the paper's value
_SHARE = Range(0, 1, whole=False)
_RATE = Range(0, 1000, whole=False, above=True)
_POSITIVE = Range(0, 10**7, whole=False, above=True)  # in minutes, at most nineteen years
_VOCABULARY = Range(260, 300_000)  # from 256 bytes + 4 special tokens to a tokenizer.json of 32 MiB
_ENCODINGS = ("sinusoidal", "learned", "tensor2tensor")  # positional encodings
_SEED = Range(0, 2**32 - 1)  # NumPy accepts no others


def _option(
    default: object,
    help: str,
    allowed: Range | tuple[str, ...] | None = None,
    *,
    common: bool = False,
    config: tuple[str, ...] = (),
    argument: str | None = None,
    paper: object = None,
) -> Any:
    """Return the dataclass field of one option; its metadata describe the option.

    Args:
        default: Value if the recipe has none.
        help: One line for `train --help`, recipe.yaml and the model card.
        allowed: Range of a number, or the allowed texts; None allows any text.
        common: Whether `train --help` lists it at the top, among the options most users give.
        config: Fields of `VanillaTransformerConfig` that it sets, all to the same value. The
            paper's value then comes from the preset.
        argument: Field of `VanillaTransformerTrainingArguments` that it sets; empty if the field
            has the option's name.
        paper: The paper's value; None if the paper has no such setting.
    """
    metadata: dict[str, Any] = {"help": help, "allowed": allowed, "common": common}
    metadata |= {"config": config, "argument": argument}
    metadata["paper"] = default if paper is _SAME else paper
    return dataclasses.field(default=default, metadata=metadata)


def _of_config(help: str, *config: str) -> Any:
    """Return an option that sets fields of the model's config, by default to the preset's value."""
    return _option(None, help, FIELDS.get(config[0]), config=config)


# `_option` for an option that sets a training argument and defaults to the paper's value.
_training = functools.partial(_option, argument="", paper=_SAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """Model (Section 3) and regularization (Section 5.4)."""

    init_from: str | None = _option(None, "model to start from: DIR or user/name", common=True)
    preset: str = _option("base", "model of the paper: base, big, or a row of Table 3 such as A_h1")
    d_model: int | None = _of_config("width of the model", "d_model")
    encoder_layers: int | None = _of_config("layers of the encoder", "encoder_layers")
    decoder_layers: int | None = _of_config("layers of the decoder", "decoder_layers")
    attention_heads: int | None = _of_config(
        "heads of each attention layer", "encoder_attention_heads", "decoder_attention_heads"
    )
    ffn_dim: int | None = _of_config("inner width of Eq. 2", "encoder_ffn_dim", "decoder_ffn_dim")
    position_encoding: str | None = _option(
        None, ", ".join(_ENCODINGS), _ENCODINGS, config=("position_encoding",)
    )
    norm_first: bool | None = _of_config("norm before each sub-layer, not after", "norm_first")
    dropout: float | None = _of_config("P_drop of Section 5.4", "dropout")
    attention_dropout: float | None = _of_config("dropout in attention", "attention_dropout")
    activation_dropout: float | None = _of_config("dropout after the ReLU", "activation_dropout")
    label_smoothing: float | None = _of_config("eps_ls of Section 5.4", "label_smoothing")

    def fields(self) -> dict[str, Any]:
        """Return the config fields to set in addition to the preset or the initial model."""
        fields: dict[str, Any] = {}
        for name, option in OPTIONS.items():
            if option.metadata["config"] and getattr(self, name) is not None:
                fields |= dict.fromkeys(option.metadata["config"], getattr(self, name))
        return fields

    def config(self, **vocabulary: Any) -> "VanillaTransformerConfig":
        """Return the config of a new model.

        Args:
            **vocabulary: Fields that depend on the tokenizer.

        Raises:
            ValueError: If no model has these sizes.
        """
        from huggingface_hub.errors import StrictDataclassError

        from ..configuration_vanilla_transformer import VanillaTransformerConfig

        try:
            return VanillaTransformerConfig.from_preset(self.preset, **(self.fields() | vocabulary))
        except StrictDataclassError as error:
            raise RequestError(str(error.__cause__ or error)) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """Languages, filters, and data augmentation."""

    source_language: str | None = _option(None, "language to translate from, such as en")
    target_language: str | None = _option(None, "language to translate into, such as de")
    strict: bool = _option(False, "refuse malformed lines instead of skipping them")
    clean: bool = _option(False, "leave out duplicates, copies, odd lengths, doubtful pairs")
    max_source_length: int = _option(256, "most tokens of a training pair's source", COUNT)
    max_target_length: int = _option(256, "most tokens of a training pair's target", COUNT)
    several_references: bool = _option(False, "merge test pairs with equal sources")
    join_pairs: bool = _option(False, "also train on pairs joined two by two", paper=_SAME)
    both_directions: bool = _option(False, "also train on the opposite direction", paper=_SAME)
    noise: float = _option(
        0.0, "share of sources as people type them: typos, no capitals ...", _SHARE, paper=_SAME
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """Training, validation and test pairs (Section 5.1)."""

    dataset: str | None = _option(
        None, "Hub data set, or folder: column `translation`, or one per language", common=True
    )
    dataset_config: str | None = _option(None, "configuration of the data set, such as de-en")
    dataset_revision: str | None = _option(None, "commit or branch (default: the newest commit)")
    streaming: bool = _option(False, "read the data set without downloading it first")
    data_source: str | None = _option(None, "where the pairs come from, in words, for the card")
    data_license: str | None = _option(None, "licence of the pairs, in words, for the card")
    train_file: str | tuple[str, ...] | None = _option(
        None, "training pairs: .tsv, .csv, .jsonl, .parquet, or texts SOURCE,TARGET", common=True
    )
    train_weights: float | tuple[float, ...] | None = _training(
        None,
        "shares of files, distilled and backtranslated pairs; 4 1 is 80 % and 20 %",
        _POSITIVE,
        paper="each pair once",
    )
    validation_file: str | None = _option(None, "validation pairs, as --train-file", common=True)
    test_file: str | tuple[str, ...] | None = _option(
        None, "test pairs, in the same formats; several are scored one by one", common=True
    )
    teachers: str | tuple[str, ...] | None = _option(None, "models that translate the sources")
    siblings: int | None = _option(None, "models to train that teach each other", Range(2, 100))
    monolingual_source: str | None = _option(None, "text for the teachers to translate")
    monolingual_target: str | None = _option(None, "text to translate back into new pairs")
    source_column: str | None = _option(None, "column of the sources: a name, or a number from 1")
    target_column: str | None = _option(None, "column of the targets")
    held_out_pairs: int | None = _option(
        None, "validation and test pairs to hold out (default: 5 %, up to 1000 each)", COUNT_OR_ZERO
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Tokenizer and its vocabulary (Section 5.1)."""

    tokenizer: str = _option(
        "bpe", "bpe, bytes, symbols, yours, or SOURCE,TARGET of these", common=True, paper=_SAME
    )
    vocab_size: int = _option(37_000, "entries at most", _VOCABULARY, common=True, paper=_SAME)
    split_digits: bool = _option(False, "each digit is a token of its own", paper=_SAME)
    normalize_text: bool | None = _option(
        None, "fold white space and compose accents (default: if both are languages)"
    )
    keep_typography: bool = _option(False, "do not read curly quotes and wide letters as ASCII")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Training (Sections 5.1 to 5.3) and checkpoints (Section 6.1)."""

    bpe_dropout: float | None = _training(
        None, "probability of undoing a merge of the BPE in training; 0 is off", _SHARE, paper=0.0
    )
    batch_tokens: int = _training(
        3_125, "most source tokens, and target tokens, in a batch, with padding", COUNT, common=True
    )
    gradient_accumulation: int = _training(
        8, "batches per update, on all devices", COUNT, argument="gradient_accumulation_steps"
    )
    warmup_steps: int = _training(4_000, "updates until the learning rate peaks (Eq. 3)", COUNT)
    learning_rate: float | None = _training(
        None, "peak; at most the --init-from model's last rate", _RATE, common=True, paper="Eq. 3"
    )
    learning_rate_factor: float = _training(1.0, "factor on the learning rate of Eq. 3", _RATE)
    max_steps: int = _training(100_000, "updates to make", COUNT, common=True)
    max_minutes: float | None = _training(
        None, "most minutes of training; siblings share them equally", _POSITIVE, common=True
    )
    precision: str = _option("auto", "fp32, bf16 or the faster one", ("auto", "fp32", "bf16"))
    seed: int = _training(0, "seed of weights, order and dropout", _SEED, common=True, paper=None)
    checkpoints_to_average: int = _training(
        5, "last checkpoints to average", COUNT, argument="checkpoints_to_keep"
    )
    trainer: Mapping[str, Any] | None = _option(None, "arguments of transformers: save_steps=500")

    def peak_rate(self, d_model: int) -> float:
        """Return the peak learning rate, by default Eq. 3's, rounded to two digits."""
        papers = self.learning_rate_factor * (d_model * self.warmup_steps) ** -0.5
        return float(f"{self.learning_rate or papers:.2g}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Log and evaluation (Section 6.1)."""

    evaluate_pairs: int = _option(500, "validation pairs for BLEU while training", COUNT)
    metric: str = _option(",".join(TRANSLATION_MEASURES), "metrics; the first one selects models")
    choose_on_validation: bool = _option(False, "choose average and length penalty by validation")
    num_beams: int = _option(SearchSettings.num_beams, "beams of a search", NUM_BEAMS, paper=_SAME)
    length_penalty: float | None = _option(
        None, "alpha of the beam search", LENGTH_PENALTY, paper=SearchSettings.length_penalty
    )
    stop_search_early: bool = _option(False, "stop once num_beams hypotheses ended", paper=_SAME)
    num_samples: int = _option(20, "samples of each test set, three at least", COUNT_OR_ZERO)

    @property
    def measures(self) -> list[str]:
        """Names of the metrics; the first one selects models."""
        return self.metric.split(",")

    def search(self) -> SearchSettings:
        """Return the search settings of the final model."""
        return search_settings(
            None,
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            early_stopping=self.stop_search_early,
        )


# In the order of `train --help` and recipe.yaml.
SECTIONS = (Model, Text, Data, Tokenizer, Training, Evaluation)
OPTIONS = {field.name: field for section in SECTIONS for field in dataclasses.fields(section)}

# The training argument that an option sets, by the option's name.
ARGUMENTS = {
    name: option.metadata["argument"] or name
    for name, option in OPTIONS.items()
    if option.metadata["argument"] is not None
}

LANGUAGES = ("source_language", "target_language")
# Options that choose the test pairs and measures; `pair` is short for both languages.
TEST_OPTIONS = (
    *("pair", "test_file", "source_column", "target_column", "strict", "several_references"),
    *("metric", "num_beams"),
)


def names_of(*sections: type) -> frozenset[str]:
    """Return the names of the options of some sections."""
    return frozenset(field.name for section in sections for field in dataclasses.fields(section))


# Options that may change when a run is resumed, because they affect no update. `precision` may
# because "auto" depends on the machine; the checkpoint refuses another precision anyway.
CHANGEABLE = names_of(Evaluation) | {
    *("precision", "max_steps", "max_minutes", "checkpoints_to_average"),
    *("several_references", "streaming", "data_source", "data_license"),
}
# Training arguments of a run, unless the recipe's section `trainer` overrides them.
TRAINER_DEFAULTS = {
    **{"logging_steps": 100, "eval_strategy": "steps", "eval_steps": 1_000},
    # The paper's interval is in minutes; how many updates that is depends on the machine.
    **{"save_steps": 1_500, "save_every_minutes": 10.0},
}
# The paper's values for the big model, where they differ.
PAPERS_BIG = {"max_steps": 300_000, "checkpoints_to_average": 20}
# The paper's values of arguments in the section `trainer`, for the card.
PAPERS_TRAINER = {
    **{"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9, "max_grad_norm": 0.0},
    **{"lr_scheduler_type": "Eq. 3", "optim": "Adam", "weight_decay": 0.0},
}
# Prefixes of training arguments that may change when a run is resumed.
_CHANGEABLE_ARGUMENTS = ("log", "eval", "report", "early_stopping", "save_every", "dataloader")


def is_changeable(argument: str) -> bool:
    """Return whether an argument in the section `trainer` may change when a run is resumed."""
    return argument.startswith(_CHANGEABLE_ARGUMENTS)


@functools.cache
def option_type(name: str) -> tuple[type, bool]:
    """Return the type of an option's value (or of each of several), and whether None is allowed."""
    hint: Any = OPTIONS[name].type
    if isinstance(hint, types.UnionType):
        kind = typing.get_args(hint)[0]
        return typing.get_origin(kind) or kind, True
    return hint, False


def takes_several(name: str) -> bool:
    """Return whether an option may have several values."""
    return any(typing.get_origin(part) is tuple for part in typing.get_args(OPTIONS[name].type))


def listed(value: object) -> list[Any]:
    """Return the value or values of an option as a list; an empty list for None."""
    return [*value] if isinstance(value, tuple | list) else [] if value is None else [value]
