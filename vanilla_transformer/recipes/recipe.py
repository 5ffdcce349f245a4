"""A recipe: what to train, on which pairs and for how long, as YAML -> dataclass.

The defaults are the paper's (Sections 5 and 6.1), so that a recipe holds only what differs from it.
`run_recipe` does what a recipe says and leaves a run directory.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path

# Fields that may change between two starts of one run: they say when to stop, what to report, which
# checkpoints to average and how to search afterwards, and leave every update as it was.
CHANGEABLE = frozenset(
    {
        "max_steps",
        "max_minutes",
        "save_every_minutes",
        "checkpoints_to_average",
        "log_every_steps",
        "evaluate_every_steps",
        "evaluate_pairs",
        "num_beams",
        "length_penalty",
        "num_samples",
        "data_source",
        "data_license",
        "streaming",
    }
)
# Where training pairs can be; of several in one file the first counts.
_PLACES = ("train_file", "generated", "dataset")
_OF_A_DATASET = frozenset({"dataset_config", "dataset_revision", "streaming"})
_CHOICES = {"precision": ("auto", "fp32", "bf16"), "generated": ("cldr",)}
# Numbers that may be zero; every other one must be positive.
_MAY_BE_ZERO = frozenset(
    {
        *("dropout", "attention_dropout", "activation_dropout", "label_smoothing", "bpe_dropout"),
        *("max_grad_norm", "seed", "evaluate_every_steps", "save_every_minutes", "num_samples"),
        *("length_penalty", "adam_beta1", "adam_beta2"),
    }
)


def _option(default: object, help: str) -> typing.Any:
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a run. `help` of each field says what it is; None is "not given"."""

    # The model (Section 3).
    preset: str = _option("base", "base, big or a row of Table 3; the fields below override it")
    d_model: int | None = _option(None, "width of the model")
    encoder_layers: int | None = _option(None, "layers of the encoder")
    decoder_layers: int | None = _option(None, "layers of the decoder")
    attention_heads: int | None = _option(None, "heads of every attention")
    ffn_dim: int | None = _option(None, "inner width of the feed-forward networks")
    dropout: float | None = _option(None, "P_drop of Section 5.4")
    attention_dropout: float | None = _option(None, "dropout on the attention weights")
    activation_dropout: float | None = _option(None, "dropout after the ReLU")
    label_smoothing: float | None = _option(None, "eps_ls of Section 5.4")
    position_encoding: str | None = _option(None, "sinusoidal, learned or tensor2tensor")
    norm_first: bool | None = _option(None, "norm before the sub-layer instead of after it")
    # The pairs (Section 5.1).
    source_language: str | None = _option(None, "language to translate from, such as en")
    target_language: str | None = _option(None, "language to translate into, such as de")
    dataset: str | None = _option(None, "data set on the Hub with pairs in `translation` form")
    dataset_config: str | None = _option(None, "configuration of the data set, such as de-en")
    dataset_revision: str | None = _option(
        None, "commit or branch of the data set, or else its newest"
    )
    streaming: bool = _option(False, "read the data set without downloading it first")
    data_source: str | None = _option(None, "where the pairs are from, in words, for the card")
    data_license: str | None = _option(None, "licence of the pairs, in words, for the card")
    generated: str | None = _option(None, "cldr: pairs generated from CLDR, without a download")
    generated_pairs: int = _option(100_000, "training pairs to generate")
    generated_test_pairs: int = _option(500, "validation and test pairs to generate, of each sort")
    train_file: str | None = _option(None, "training pairs: .jsonl[.gz], or SOURCE,TARGET texts")
    validation_file: str | None = _option(None, "validation pairs, in the same forms")
    test_file: str | None = _option(None, "test pairs, in the same forms")
    strict: bool = _option(False, "refuse malformed lines instead of skipping them")
    max_source_length: int = _option(
        256, "leave out training pairs with a longer source, in tokens"
    )
    max_target_length: int = _option(
        256, "leave out training pairs with a longer target, in tokens"
    )
    vocab_size: int = _option(37_000, "entries of the shared byte-level BPE")
    split_digits: bool = _option(False, "each digit a piece of its own")
    bpe_dropout: float = _option(
        0.0, "probability of taking a piece of a word apart in training; 0: never"
    )
    # Batches, optimizer and schedule (Sections 5.1 to 5.3).
    batch_tokens: int = _option(3_125, "source and target tokens in a batch of one device")
    gradient_accumulation: int = _option(8, "batches of one device in an update: 8 * 3125 = 25000")
    warmup_steps: int = _option(4_000, "updates until the learning rate peaks (Eq. 3)")
    learning_rate_factor: float = _option(1.0, "multiple of Eq. 3")
    adam_beta1: float = _option(0.9, "Adam's beta_1")
    adam_beta2: float = _option(0.98, "Adam's beta_2")
    adam_epsilon: float = _option(1e-9, "Adam's epsilon")
    max_grad_norm: float = _option(0.0, "clip gradients at this norm; 0 does not clip")
    max_steps: int = _option(100_000, "updates")
    max_minutes: float | None = _option(None, "stop after so many minutes of training, if earlier")
    precision: str = _option("auto", "fp32, bf16, or auto: bf16 where the hardware has it")
    seed: int = _option(0, "of initialisation, order of the pairs and dropout")
    # Checkpoints (Section 6.1), logging, evaluation.
    save_every_steps: int = _option(
        1_500, "a checkpoint for averaging; 10 minutes of 0.4 s updates"
    )
    save_every_minutes: float = _option(
        10.0, "a checkpoint to resume from, if none is newer; 0: none"
    )
    checkpoints_to_average: int = _option(5, "last checkpoints in the final model")
    log_every_steps: int = _option(100, "updates between two lines of the log")
    evaluate_every_steps: int = _option(
        1_000, "updates between two evaluations; 0: at the end only"
    )
    evaluate_pairs: int = _option(500, "validation pairs for BLEU while training")
    num_beams: int = _option(4, "beams of the final evaluation")
    length_penalty: float | None = _option(
        None, "alpha of the final model's beam search; without one 0.6"
    )
    num_samples: int = _option(20, "translations in samples.md")

    def __post_init__(self) -> None:
        """Refuse values that no run can have, naming the field."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _CHOICES and value not in (*_CHOICES[field.name], None):
                allowed = ", ".join(_CHOICES[field.name])
                raise ValueError(f"{field.name}: got {value!r}; choose one of {allowed}.")
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value < 0 or (value == 0 and field.name not in _MAY_BE_ZERO):
                allowed = "0 or more" if field.name in _MAY_BE_ZERO else "more than 0"
                raise ValueError(f"{field.name}: got {value}; it must be {allowed}.")
        if self.bpe_dropout > 1:
            raise ValueError(f"bpe_dropout: got {self.bpe_dropout}; it must be from 0 to 1.")
        longest = max(self.max_source_length, self.max_target_length)
        if self.batch_tokens < longest:
            raise ValueError(
                f"batch_tokens: got {self.batch_tokens}, less than the longest sentence allowed; "
                f"give {longest} or more, or lower max_source_length and max_target_length."
            )

    def model_overrides(self) -> dict[str, object]:
        """The fields of `VanillaTransformerConfig` that this recipe sets beside its preset."""
        both = {"attention_heads": "attention_heads", "ffn_dim": "ffn_dim"}
        names = ("d_model", "encoder_layers", "decoder_layers", "dropout", "attention_dropout")
        names += ("activation_dropout", "label_smoothing", "position_encoding", "norm_first")
        overrides = {name: getattr(self, name) for name in names}
        for name in both:
            for side in ("encoder", "decoder"):
                overrides[f"{side}_{name}"] = getattr(self, name)
        return {name: value for name, value in overrides.items() if value is not None}

    def differences(self, other: "Recipe") -> list[str]:
        """The fields in which two recipes differ, as `name: this -> other`."""
        return [
            f"{field.name}: {getattr(self, field.name)!r} -> {getattr(other, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def to_yaml(self) -> str:
        """All fields, with the help of each as a comment."""
        import yaml

        lines = []
        for field in dataclasses.fields(self):
            text = yaml.safe_dump({field.name: getattr(self, field.name)}, allow_unicode=True)
            lines.append(f"# {field.metadata['help']}\n{text}")
        return "".join(lines)


def load_recipe(name_or_path: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe, by the name of one that is shipped or by path.

    Args:
        name_or_path: such as `demo` or `my/recipe.yaml`.
        overrides: fields that take the place of the file's; strings take the field's type. Other
            training pairs take the place of all that the file says of its own.

    Returns:
        The recipe, every value checked.

    Raises:
        ValueError: if there is no such recipe, or a key or value is not one that a recipe can have.
    """
    import yaml

    path = find_recipe(name_or_path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML: {reason}") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold `key: value` lines; got {type(content).__name__}.")
    try:
        values = _values(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Recipe(**_from_one_place(values, _values(dict(overrides or {}))))


def make_recipe(values: Mapping[str, object]) -> Recipe:
    """A recipe from keys and values as a YAML file or the command line gives them."""
    return Recipe(**_from_one_place(_values(dict(values)), {}))


def _from_one_place(values: dict[str, object], overrides: dict[str, object]) -> dict[str, object]:
    """Both together, with the one place that the training pairs come from."""
    given = [name for name in _PLACES if overrides.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"got {' and '.join(given)}; give one of them.")
    if given and overrides[given[0]] != values.get(given[0]):
        # What a recipe says of its own pairs is not true of these.
        untrue = {*_PLACES, *_OF_A_DATASET, "data_source", "data_license"}
        values = {name: value for name, value in values.items() if name not in untrue}
    values = {**values, **overrides}
    used = next((name for name in _PLACES if values.get(name) is not None), None)
    unused = {name for name in _PLACES if name != used}
    if used != "dataset":
        unused |= _OF_A_DATASET
    return {name: value for name, value in values.items() if name not in unused}


def find_recipe(name_or_path: str) -> Path:
    """The file of a recipe: a path, or the name of one in the clone or in the wheel."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if not path.is_file():
            raise ValueError(f"There is no recipe file {name_or_path}.")
        return path
    shipped = shipped_recipes()
    if name_or_path not in shipped:
        raise ValueError(
            f"There is no recipe {name_or_path!r}{_nearest(name_or_path, shipped)}; shipped are "
            f"{', '.join(shipped) or 'none'}. For a file of yours give its path, ending in .yaml."
        )
    return shipped[name_or_path]


def shipped_recipes() -> dict[str, Path]:
    """Names and files of the recipes that came with the package."""
    package = Path(__file__).resolve().parents[1]
    # The wheel carries them inside the package; a clone has them beside the results they produced.
    folders = (package / "_recipes", package.parent / "training" / "recipes")
    found = {path.stem: path for folder in folders for path in folder.glob("*.yaml")}
    return dict(sorted(found.items()))


def field_type(name: str) -> tuple[type, bool]:
    """The type of a field and whether it may be None."""
    hint = typing.get_type_hints(Recipe)[name]
    if isinstance(hint, types.UnionType):
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return inner, True
    return hint, False


def _values(content: dict[str, object]) -> dict[str, object]:
    known = {field.name for field in dataclasses.fields(Recipe)}
    values = {}
    for key, value in content.items():
        if key == "pair":
            values.update(_split_pair(value))
        elif key not in known:
            raise ValueError(
                f"unknown key {key!r}{_nearest(str(key), [*known, 'pair'])}; "
                "`vanilla-transformer train --help` lists all."
            )
        else:
            values[key] = _convert(key, value)
    return values


def _split_pair(value: object) -> dict[str, str]:
    parts = value.split("-") if isinstance(value, str) else []
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f"pair: got {value!r}; write SOURCE-TARGET, such as en-de, or give source_language "
            "(--source-language) and target_language (--target-language)."
        )
    return {"source_language": parts[0], "target_language": parts[1]}


def _convert(name: str, value: object) -> object:
    kind, optional = field_type(name)
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
        if optional:
            return None
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif kind is str:
        if isinstance(value, str):
            return value
    elif not isinstance(value, bool):
        try:
            # YAML reads 1e-9 as text, and the command line gives text for every number.
            number = kind(str(value).replace("_", ""))
        except ValueError:
            number = None
        if number is not None and number == number and abs(number) != float("inf"):
            return number
    # Unquoted, YAML 1.1 reads the language code no as false.
    hint = "; put it in quotes" if kind is str and isinstance(value, bool) else ""
    wanted = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    raise ValueError(f"{name}: got {value!r}; it must be {wanted[kind.__name__]}{hint}.")


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    matches = difflib.get_close_matches(name.replace("-", "_"), list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]}?)" if matches else ""
