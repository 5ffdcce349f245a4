"""Find a saved model by name, and load it and its tokenizer without running code in its folder.

transformers builds the model and reports weights that do not fit. Weights come only from
safetensors, and nothing in the directory can choose code or files elsewhere, or prompt the user to
run code.
"""

import atexit
import hashlib
import importlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from huggingface_hub import errors, snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerationConfig
from transformers.models.auto import CONFIG_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

from ..errors import RequestError, quoted
from ..target_tokenizer import TARGET_TOKENIZER, target_tokenizer
from .extras import require
from .foreign_models import foreign_model
from .reading import JSON_BYTES, checked, own_file, read_json, reason_of
from .run_files import CHECKPOINTS, CURVES, HISTORY, METRICS, RECIPE, TRAINER_STATE, digests
from .shipped import local_model, pretrained_models

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # index of weights in several files
PICKLED_WEIGHTS = "pytorch_model.bin"
TOKENIZER_SETTINGS = "tokenizer_config.json"  # every tokenizer has this file
# Our tokenizers have tokenizer.json; those of imported models may have other files instead.
VOCABULARY_FILES = ("tokenizer.json", "vocab.json", "vocab-src.json")
PIECES = (
    *VOCABULARY_FILES,
    *("vocab-tgt.json", "target_vocab.json", "merges.txt"),
    *("source.spm", "target.spm"),  # SentencePiece, like the following
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"),
)
TOKENIZER_FILES = (*PIECES, TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json")
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
SETTINGS = (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES)
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SHORTLIST = "shortlist.safetensors"  # has a digest of its own; see fast/shortlist.py
MODEL = (*SETTINGS, WEIGHTS, WEIGHTS_INDEX, SHORTLIST)
# Files of a run that other commands read.
RECORDED = (*SETTINGS, WEIGHTS, WEIGHTS_INDEX, RECIPE, HISTORY, CURVES)
# Files to download: no code, and no weights that can run it; *.model files are SentencePiece's.
# The metrics say which languages the model was trained for, and the model card its licence.
_OF_HUB = [*SETTINGS, ADAPTER, "*.safetensors*", "*.model", METRICS, "README.md"]
# Tokenizers of transformers, and the package that each needs.
TOKENIZER_PACKAGES = {"FSMTTokenizer": "sacremoses", "MarianTokenizer": "sentencepiece"}
# Fields of config.json that make transformers load code, kernels or weights from elsewhere.
CHOOSE_CODE = {
    *("attn_implementation", "experts_implementation", "fusion_config", "quantization_config"),
    *("transformers_weights", "auto_map", "custom_pipelines"),
}
_HEADER_BYTES = 2**23  # maximum size of a safetensors header, about 100 bytes per tensor
_NOT_SAVED = 10**7  # upper limit of weights that are computed, not saved, such as positions
_IDS = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ModelConfig(TypedDict, total=False):
    """The fields of config.json that this package reads itself."""

    model_type: str | None
    architectures: list[str] | None
    vocab_size: int | None
    max_position_embeddings: int
    pad_token_id: int | None
    eos_token_id: int | list[int] | None


class _Generation(TypedDict, total=False):
    """The fields of generation_config.json that nothing else checks before they are used."""

    bad_words_ids: list[list[int]] | None
    decoder_start_token_id: int | None
    doubtful_below: float | None
    forced_bos_token_id: int | None


class _WeightsIndex(TypedDict):
    weight_map: dict[str, str]


class _Adapter(TypedDict, total=False):
    """The fields of adapter_config.json that this package reads itself."""

    peft_type: str
    base_model_name_or_path: str | None
    revision: str | None


def model_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model, and download the model from the Hub if necessary.

    A model on this machine or in the package comes first (`local_model`). Code on the Hub is
    neither downloaded nor run. A LoRA adapter is merged with the model that it was trained on.

    Args:
        name: Path of a folder, or name in the package or on the Hub.
        revision: Branch, tag or commit on the Hub. None takes the main branch.

    Raises:
        ValueError: There is no such model, or it cannot be downloaded.
        ImportError: It is an adapter, and peft is not installed.
    """
    folder = local_model(name)
    if folder is None:
        folder = _hub_folder(name, revision)
    elif revision is not None:
        raise RequestError(f"{name} is a local model; leave out --revision.")
    if (folder / CONFIG).is_file():
        return folder
    if (folder / ADAPTER).is_file():
        return _merged_adapter(folder.resolve())
    raise nothing_trained(folder, CONFIG)


def _hub_folder(name: str, revision: str | None) -> Path:
    """Download a model from the Hub, unless it is in the cache."""
    try:
        # Not the files of checkpoints or exports, which are in subfolders.
        chosen: Any = {"allow_patterns": _OF_HUB, "ignore_patterns": "*/*"}
        folder = Path(snapshot_download(name, revision=revision, **chosen))
    except (errors.HFValidationError, errors.HTTPError, OSError) as error:
        what = f"There is no folder {name}, and no model of that name could be loaded from the Hub"
        raise RequestError(f"{what}: {reason_of(error)}; try `hf auth login`.") from error
    if not any((folder / file).is_file() for file in (CONFIG, ADAPTER)):
        raise RequestError(f"{name} on the Hub has no model (no config.json).")
    return folder


def _merged_adapter(folder: Path) -> Path:
    """Merge a LoRA adapter with the model that it was trained on.

    Args:
        folder: Folder with adapter_config.json and adapter_model.safetensors. It may have a
            tokenizer; otherwise the base model's is used.

    Returns:
        A folder with the merged model in float32 and the tokenizer, for as long as this process
        lives.

    Raises:
        ValueError: It is not a LoRA adapter, is damaged, or does not fit the base model.
        ImportError: peft is not installed.
    """
    require("a LoRA adapter", "peft")
    from peft import PeftModel, get_peft_model_state_dict

    settings = checked(read_json(own_file(folder / ADAPTER)), _Adapter, folder / ADAPTER)
    name, kind = settings.get("base_model_name_or_path"), settings.get("peft_type")
    if not name or kind != "LORA":
        what = f"peft_type {quoted(str(kind))} and base_model_name_or_path {quoted(str(name))}"
        raise RequestError(f"{folder / ADAPTER} has {what}; give a LoRA adapter of a base model.")
    base = model_folder(name, settings.get("revision"))
    model = load_saved_model(base, dtype=torch.float32)
    own = {key for key, _ in read_tensors(own_file(folder / ADAPTER_WEIGHTS))}
    with named_errors(f"{folder} does not fit its base model {base}"):
        adapted = PeftModel.from_pretrained(model, str(folder))
        if own != get_peft_model_state_dict(adapted).keys():
            raise RequestError(f"{folder} is not an adapter of the model {base}.")
        merged = adapted.merge_and_unload()
    target = Path(tempfile.mkdtemp(prefix="vanilla-transformer-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    merged.save_pretrained(target)
    copy_own_files(folder if (folder / TOKENIZER_SETTINGS).is_file() else base, target)
    copy_own_files(folder, target, (METRICS, TRAINER_STATE))  # for the merged model's card
    return target


def load_saved_model(
    directory: str | os.PathLike[str], *, dtype: torch.dtype | None = None, device: str = "cpu"
) -> PreTrainedModel:
    """Load the sequence-to-sequence model of a directory, in evaluation mode.

    Args:
        directory: Run directory, or one that `save_pretrained` wrote.
        dtype: Data type of the weights. None keeps the saved one.
        device: Device of the model; `auto` takes the GPU if there is one.

    Raises:
        ValueError: A file is missing or damaged, holds NaN or another kind of model, or needs code.
    """
    directory = Path(directory)
    config, generation = read_config(directory), read_generation_config(directory)
    kind: Any = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)]  # Any: one of many classes
    tensors = {name: it for path in weight_files(directory) for name, it in read_tensors(path)}
    with named_errors(f"{directory} does not load"):
        _check_class(directory, kind, config)
        with torch.device("meta"):
            described = sum(weight.numel() for weight in kind(config).parameters())
        saved = sum(tensor.numel() for tensor in tensors.values())
        if described > 2 * saved + _NOT_SAVED:  # initializing the missing ones could fill memory
            raise RequestError(f"config.json needs {described:,} weights; found only {saved:,}.")
        # Given tensors, transformers opens no file of the directory: no code, pickle or adapter.
        model, report = kind.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            generation_config=generation,
            dtype="auto" if dtype is None else dtype,
            ignore_mismatched_sizes=True,  # reported below, with missing tensors
            output_loading_info=True,
        )
    # transformers accepts integers as weights.
    weights = tensors.keys() & dict(model.named_parameters()).keys()
    report["mismatched_keys"] |= {it for it in weights if not tensors[it].is_floating_point()}
    # transformers only warns about these, and initializes missing weights randomly.
    for problem in ("missing", "unexpected", "mismatched"):
        if keys := sorted(map(str, report[f"{problem}_keys"])):
            raise RequestError(f"{directory}: {problem} weights, such as {keys[0]}.")
    model.config.name_or_path = model.name_or_path = str(directory)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.eval().to(device)


def load_saved_tokenizer(directory: str | os.PathLike[str]) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a directory, and check that its ids fit the model beside it.

    Raises:
        ValueError: There is none, one of its files is damaged, or it has more ids than the model.
        ImportError: It needs a package that is not installed; `name` says which.
    """
    directory = Path(directory)
    settings, files = directory / TOKENIZER_SETTINGS, [*directory.glob("*")]
    if not settings.is_file() or not any(
        path.name in VOCABULARY_FILES or path.suffix == ".model" for path in files
    ):
        raise RequestError(f"{directory} has no tokenizer; save the tokenizer beside the model.")
    # The tokenizer libraries read files of any size.
    for path in files:
        if path.name in TOKENIZER_FILES and path.stat().st_size > JSON_BYTES:
            raise RequestError(f"{path} is larger than {JSON_BYTES // 2**20} MiB; copy it again.")
    package = TOKENIZER_PACKAGES.get(str(read_json(settings).get("tokenizer_class")))
    if package is not None:
        importlib.import_module(package)
    with named_errors(f"the tokenizer in {directory} does not load"):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        target_tokenizer(tokenizer)  # load it too, if there is one
        largest = max(tokenizer.get_vocab().values(), default=0)
        tokenizer("a", verbose=False)  # damaged settings show when they are used
    if tokenizer.pad_token_id is None:
        raise RequestError(f"the tokenizer in {directory} has no pad_token; give it one.")
    path = directory / CONFIG
    config = checked(read_json(path) if path.is_file() else {}, ModelConfig, path)
    size = config.get("vocab_size")
    if size is not None and largest >= size:
        sizes = f"ids up to {largest}, but config.json says vocab_size={size}"
        raise RequestError(f"the tokenizer in {directory} has {sizes}; use the model's own.")
    own, ends = tokenizer.eos_token_id, config.get("eos_token_id")
    if None not in (own, ends) and own not in (ends if isinstance(ends, list) else [ends]):
        message = "The tokenizer in %s has eos_token_id=%s, config.json %s; is it the model's own?"
        logger.warning(message, directory, own, ends)
    return tokenizer


def copy_own_files(source: Path, target: Path, names: Iterable[str] = TOKENIZER_FILES) -> None:
    """Copy the named files (by default the tokenizer's) that exist in `source` to `target`.

    Raises:
        ValueError: One of them is a link that leaves the directory.
    """
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(own_file(source / name), target / name)


def tokenizer_digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each part of the tokenizer that determines pieces and ids, by name."""
    settings = directory / TOKENIZER_SETTINGS
    found = digests(directory, PIECES)
    target = read_json(settings).get(TARGET_TOKENIZER) if settings.is_file() else None
    if target is not None:
        found[TARGET_TOKENIZER] = hashlib.sha256(str(target).encode()).hexdigest()
    return found


def weight_files(directory: Path, *, pickled: bool = False) -> list[Path]:
    """Return the files with a model's weights: one file, or the shards that its index lists.

    Args:
        directory: Folder of the model.
        pickled: Whether files of `torch.save` will do if there are none of safetensors.

    Raises:
        ValueError: There are none, or the index is damaged or names other files.
    """
    for name in (WEIGHTS, PICKLED_WEIGHTS):
        file, index = directory / name, directory / f"{name}.index.json"
        if not (file.is_file() or index.is_file()):
            continue
        if name == PICKLED_WEIGHTS and not pickled:
            raise RequestError(f"{directory} has only {name}, which could run code; use {WEIGHTS}.")
        return [file] if file.is_file() else indexed_files(index)
    if pickled:
        raise RequestError(f"{directory} holds neither {WEIGHTS} nor {PICKLED_WEIGHTS}.")
    raise nothing_trained(directory, WEIGHTS)


def nothing_trained(directory: Path, missing: str) -> RequestError:
    """Return the error for a file or folder without a trained model."""
    if foreign := foreign_model(directory):
        return RequestError(f"{directory} is {foreign}.")
    advice = f"give a run directory, or a model of the package: {', '.join(pretrained_models())}"
    if (folder := directory / CHECKPOINTS).is_dir():
        advice = f"its training is not finished: repeat it, or give a checkpoint in {folder}"
    return RequestError(f"{directory} has no trained model (no {missing}); {advice}.")


def indexed_files(index: Path) -> list[Path]:
    """Return the files that an index of sharded weights lists.

    Args:
        index: File such as `model.safetensors.index.json`, whose files end in `.safetensors`.

    Raises:
        ValueError: The index is damaged, or names a file that is missing or in another folder.
    """
    ending = index.suffixes[-3]
    names = sorted({*checked(read_json(index), _WeightsIndex, index)["weight_map"].values()})
    for name in names:
        path = index.parent / name
        if path.parent != index.parent or path.suffix != ending or not path.is_file():
            raise RequestError(f"{index} lists {name!r}, which is not a {ending} file beside it.")
    return [own_file(index.parent / name) for name in names]


def read_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Read a safetensors file tensor by tensor, and refuse NaN and infinity.

    Yields:
        Names and tensors, memory-mapped from the file.

    Raises:
        ValueError: The file is damaged, or a tensor holds NaN or infinity.
    """
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
        if size > _HEADER_BYTES:  # enough for 80,000 tensors
            raise SafetensorError(f"header too large: {size:,} bytes")
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, it is not a dict
                tensor = tensors.get_tensor(name)
                check_finite(name, tensor, path)
                yield name, tensor
    except SafetensorError as error:
        raise RequestError(f"{path} is damaged ({error}); copy or save it again.") from error


def check_finite(name: str, tensor: torch.Tensor, path: Path) -> None:
    """Refuse a tensor that holds NaN or infinity.

    Args:
        name: Name of the tensor.
        tensor: Weights; whole numbers are always finite.
        path: File of the tensor.
    """
    # Sum first: that is fast and takes no memory. If the sum is infinite or NaN, check each number.
    if tensor.dtype in _FLOATS and not tensor.sum().isfinite() and not tensor.isfinite().all():
        raise RequestError(f"{name} in {path} holds NaN or infinity; use an earlier checkpoint.")


def read_generation_config(directory: Path) -> GenerationConfig:
    """Return the settings of generation_config.json; ids that it lacks come from config.json.

    Raises:
        ValueError: The file is damaged. The search checks the values that it reads.
    """
    path = directory / GENERATION_CONFIG
    with named_errors(f"{path} is not a valid generation config"):
        config = read_json(directory / CONFIG)
        if not path.exists():  # saved by an older version of transformers
            return GenerationConfig.from_model_config(config)
        ids = {name: config[name] for name in _IDS if name in config}
        settings = {**ids, **checked(read_json(path), _Generation, path)}
        return GenerationConfig.from_dict(_without_code(settings, GenerationConfig))


def read_config(directory: Path) -> PreTrainedConfig:
    """Return the config of a sequence-to-sequence model, without fields that would load code.

    Raises:
        ValueError: There is none, it is damaged, or it is of another kind.
    """
    path = directory / CONFIG
    if not path.is_file():
        raise nothing_trained(directory, path.name)
    settings = checked(read_json(path), ModelConfig, path)
    name = settings.get("model_type") or "None"
    known = name in CONFIG_MAPPING
    if not known or CONFIG_MAPPING[name] not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        if foreign := foreign_model(directory):
            raise RequestError(f"{directory} is {foreign}.")
        kind = "no sequence-to-sequence model of transformers; code of a model is not run"
        raise RequestError(f"{path} is of model_type {name!r}, which is {kind}.")
    with named_errors(f"{path} is not a model configuration"):
        try:
            return CONFIG_MAPPING[name].from_dict(_without_code(settings, CONFIG_MAPPING[name]))
        except RequestError as error:  # it names a wrong field or size
            raise RequestError(f"{path}: {error}") from error


def _check_class(directory: Path, kind: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    """Refuse a model that a custom class saved, because the code of that class is not run."""
    known = vars(sys.modules[kind.__module__])
    for name in config.architectures or ():
        if name not in known:
            what = f"{directory} was saved by the class {quoted(name)}, whose code is not run"
            remedy = f"if {kind.__name__} computes the same, name that one in config.json"
            raise RequestError(f"{what}; {remedy}.")


def _without_code(settings: Mapping[str, Any], kind: type) -> dict[str, object]:
    """Drop config fields that would make transformers load code, or override config methods."""
    known = {field.name for field in fields(kind)} if is_dataclass(kind) else ()
    return {
        name: _without_code(value, object) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name in known
        or not (name.strip("_").removesuffix("_internal") in CHOOSE_CODE or hasattr(kind, name))
    }


@contextmanager
def named_errors(problem: str) -> Iterator[None]:
    """Replace errors of transformers within the block by one line that names the problem."""
    try:
        yield
    except (RequestError, ImportError, KeyboardInterrupt, SystemExit):
        raise
    # Damaged files can raise any kind of error, and Rust's panics are no Exception.
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise RequestError(f"{problem}: {reason_of(error)}; copy or save it again.") from error
