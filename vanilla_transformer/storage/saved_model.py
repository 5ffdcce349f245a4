"""Load a saved model and its tokenizer from a directory, or say in one line why they do not load.

Files are read and checked here before transformers uses them. Weights come only from safetensors,
and nothing in the directory can choose code or files elsewhere, or prompt the user to run code.
"""

import copy
import importlib
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..errors import RequestError, quoted
from ..target_tokenizer import target_tokenizer
from .reading import read_json
from .run_files import CHECKPOINTS, RECIPE

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # of weights in several files
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# Our tokenizer is one file; those of imported models have others instead.
VOCABULARY_FILES = ("tokenizer.json", "vocab.json", "vocab-src.json")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab-tgt.json",
    "target_vocab.json",
    "merges.txt",
    *("source.spm", "target.spm"),  # of SentencePiece, like the following
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"),
)
# Tokenizers of transformers, and the package that each needs.
_PACKAGES = {"FSMTTokenizer": "sacremoses", "MarianTokenizer": "sentencepiece"}
# Fields of a config.json that make transformers load code, kernels or weights from elsewhere.
CHOOSE_CODE = frozenset(
    {
        "attn_implementation",
        "experts_implementation",
        "fusion_config",
        "quantization_config",
        "transformers_weights",
        "auto_map",
        "custom_pipelines",
    }
)
_FLOATS = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
# Types of the settings in generation_config.json that change translations.
_LISTS_OF_IDS = ("suppress_tokens", "begin_suppress_tokens", "eos_token_id", "forced_eos_token_id")
_SETTINGS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("pad_token_id", "bos_token_id", "decoder_start_token_id"), (int,)),
    **dict.fromkeys(("num_beams", "num_return_sequences", "num_beam_groups", "top_k"), (int,)),
    **dict.fromkeys(("max_length", "max_new_tokens", "min_length", "min_new_tokens"), (int,)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), (int,)),
    **dict.fromkeys(("length_penalty", "repetition_penalty", "temperature"), (int, float)),
    **dict.fromkeys(("top_p", "diversity_penalty", "guidance_scale", "max_time"), (int, float)),
    **dict.fromkeys(("do_sample", "use_cache", "renormalize_logits"), (bool,)),
    **dict.fromkeys(("eos_token_id", "forced_eos_token_id"), (int, list)),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "bad_words_ids"), (list,)),
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty"), (list,)),
    "forced_bos_token_id": (int,),
    "early_stopping": (bool, str),
}
# What transformers raises for an unexpected value in a file; none of these errors names the file.
_UNEXPECTED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RuntimeError, MemoryError, OSError, StrictDataclassError),
)
_REASON = 200  # characters of a message of transformers that an error repeats
_SPARE = 2**24  # numbers that are computed and often not saved, such as positions


def load_saved_model(
    directory: str | os.PathLike[str], *, dtype: torch.dtype | None = None, device: str = "cpu"
) -> PreTrainedModel:
    """Load the sequence-to-sequence model of a directory, in evaluation mode.

    Args:
        directory: run directory, or one that `save_pretrained` wrote.
        dtype: data type of the weights. None keeps the saved one.
        device: device of the model; `auto` takes the GPU if there is one.

    Raises:
        ValueError: something is missing, damaged, not finite, of another kind, or would run code.
    """
    directory = Path(directory)
    config = read_config(directory)
    generation = read_generation_config(directory)
    tensors = _read_weights(directory)
    kind: Any = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)]  # their types differ
    _check_class(directory, kind, config)
    _check_fit(directory, kind, config, tensors)
    # Given all this, transformers opens no file of the directory.
    model, report = kind.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        generation_config=generation,
        dtype="auto" if dtype is None else dtype,
        output_loading_info=True,
    )
    # transformers only warns about these, and fills missing weights with random numbers.
    for problem in ("missing_keys", "unexpected_keys"):
        if report[problem]:
            raise RequestError(
                f"{directory}: {problem.replace('_keys', '')} weights, such as "
                f"{min(map(str, report[problem]))}; give a whole checkpoint."
            )
    model.config.name_or_path = model.name_or_path = str(directory)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.eval().to(device)


def load_saved_tokenizer(directory: str | os.PathLike[str]) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a directory.

    Raises:
        ValueError: there is none, a file of it is damaged, or it has more ids than the model.
        ImportError: it needs a package that is not installed; `name` says which.
    """
    directory = Path(directory)
    settings = directory / "tokenizer_config.json"
    there = any((directory / name).is_file() for name in VOCABULARY_FILES)
    if not settings.is_file() or not (there or list(directory.glob("*.model"))):
        raise RequestError(
            f"{directory} holds no tokenizer; save the tokenizer beside the model with "
            "tokenizer.save_pretrained."
        )
    for name in TOKENIZER_FILES:
        if name.endswith(".json") and (directory / name).exists():
            _check_numbers(directory / name, read_json(directory / name))
    package = _PACKAGES.get(str(read_json(settings).get("tokenizer_class")))
    if package is not None:
        importlib.import_module(package)
    with _explain_errors(f"the tokenizer in {directory} does not load"):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        target_tokenizer(tokenizer)  # load it too, if there is one
        largest = max(tokenizer.get_vocab().values(), default=0)
        tokenizer("a", verbose=False)  # damaged settings show when they are used
    if tokenizer.pad_token_id is None:
        raise RequestError(f"the tokenizer in {directory} has no pad_token; give it one.")
    path = directory / "config.json"
    config = read_json(path) if path.is_file() else {}
    size = config.get("vocab_size")
    if isinstance(size, int) and largest >= size:
        raise RequestError(
            f"the tokenizer in {directory} has ids up to {largest}, but config.json says "
            f"vocab_size={size}; copy the tokenizer that was saved with the model."
        )
    for name in ("pad_token_id", "eos_token_id"):
        own, of_model = getattr(tokenizer, name), config.get(name)
        if own is not None and isinstance(of_model, int) and own != of_model:
            logger.warning(
                "The tokenizer in %s has %s=%d, but config.json says %d; check that it was saved "
                "with the model.",
                directory,
                name,
                own,
                of_model,
            )
    return tokenizer


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the files of a tokenizer to another directory.

    Raises:
        ValueError: one of them is a link that leaves the directory.
    """
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(own_file(source / name), target / name)


def own_file(path: Path) -> Path:
    """Return the path of a file that may be copied elsewhere, such as to the Hub.

    Raises:
        ValueError: it is a link to a file outside its directory.
    """
    target, directory = path.resolve(), path.parent.resolve()
    if target.is_relative_to(directory):
        return path
    # The Hub's cache keeps the files of all snapshots of a repository in one folder.
    if directory.parent.name == "snapshots" and target.parent == directory.parents[1] / "blobs":
        return path
    raise RequestError(
        f"{path} is a link to {target}, which lies outside its directory; replace the link by a "
        "copy if the file belongs there."
    )


def check_weights(directory: Path) -> None:
    """Raise ValueError unless a directory holds weights in a format that runs no code."""
    weight_files(directory)


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files with the weights of a directory: one, or those of its index.

    Raises:
        ValueError: there are none, or the index is damaged or names other files.
    """
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if (directory / WEIGHTS_INDEX).is_file():
        return indexed_files(directory / WEIGHTS_INDEX)
    if any((directory / name).is_file() for name in PICKLED_WEIGHTS):
        raise RequestError(
            f"{directory} holds weights only as {PICKLED_WEIGHTS[0]}, which could run code; "
            f"allowed is {WEIGHTS}: save the model again where it is trusted."
        )
    raise nothing_trained(directory, WEIGHTS)


def nothing_trained(directory: Path, missing: str) -> RequestError:
    """Return the error for a directory that lacks a file of every model, or does not exist."""
    if not directory.exists():
        return RequestError(f"There is no folder {directory}; give a run directory.")
    if (directory / RECIPE).is_file() and (directory / CHECKPOINTS).is_dir():
        return RequestError(
            f"{directory} holds no trained model yet, because its training did not end; repeat the "
            f"command that started it, or give a checkpoint in {directory / CHECKPOINTS}."
        )
    if (directory / "adapter_config.json").is_file():
        return RequestError(
            f"{directory} holds only an adapter; merge it into its model, with peft's "
            "AutoPeftModelForSeq2SeqLM.from_pretrained(...).merge_and_unload(), and save that."
        )
    return RequestError(f"{directory} holds no trained model (no {missing}); give a run directory.")


def indexed_files(index: Path) -> list[Path]:
    """Return the files that an index of weights names, all in its own directory.

    Args:
        index: file such as `model.safetensors.index.json`, whose files end in `.safetensors`.

    Raises:
        ValueError: it is damaged, or names a file that is not there or lies elsewhere.
    """
    ending = index.suffixes[-3]
    names = read_json(index, keys={"weight_map": dict})["weight_map"].values()
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(ending):
            raise RequestError(
                f"{index} names {name!r}; allowed are files of its own directory that end in "
                f"{ending}: copy or download it again."
            )
    paths = [index.with_name(name) for name in sorted(set(names))]
    for path in paths:
        if not path.is_file():
            raise RequestError(
                f"There is no {path}, which {index.name} names; copy the whole directory."
            )
        own_file(path)
    if not paths:
        raise RequestError(f"{index} names no files; copy or download it again.")
    return paths


def read_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Read a safetensors file tensor by tensor, and check that each is finite.

    Yields:
        Names and tensors, memory-mapped from the file.

    Raises:
        ValueError: the file is damaged, or a tensor holds NaN or infinity.
    """
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118, it is not a dict
                tensor = file.get_tensor(name)
                check_finite(name, tensor, path)
                yield name, tensor
    except SafetensorError as error:
        raise RequestError(f"{path} is damaged ({error}); copy or save it again.") from error


def check_finite(
    name: str, tensor: torch.Tensor, path: Path, *, remedy: str = "use an earlier checkpoint"
) -> None:
    """Raise a ValueError that names the tensor and its file if it holds NaN or infinity.

    Args:
        name: name of the tensor.
        tensor: weights; whole numbers are always finite.
        path: file of the tensor.
        remedy: what the error tells the user to do.
    """
    # A sum takes one pass and no memory. It may overflow, so only then look at each number.
    if (
        tensor.dtype in _FLOATS.values()
        and not tensor.sum().isfinite()
        and not tensor.isfinite().all()
    ):
        raise RequestError(
            f"{name} in {path} holds NaN or infinity; look at the training curves and {remedy}."
        )


def read_generation_config(directory: Path) -> GenerationConfig:
    """Return the generation settings in generation_config.json, or else in config.json.

    Raises:
        ValueError: the file is damaged, or a setting has the wrong type.
    """
    path = directory / "generation_config.json"
    if not path.exists():  # saved by an older version of transformers
        with _explain_errors(f"{directory / 'config.json'} does not say how to generate"):
            return GenerationConfig.from_model_config(read_json(directory / "config.json"))
    found = read_json(path)
    _check_numbers(path, found)
    for name, types in _SETTINGS.items():
        value = found.get(name)
        # True is an int in Python, but not a number in JSON.
        fits = bool in types if isinstance(value, bool) else isinstance(value, types)
        if isinstance(value, list) and name in _LISTS_OF_IDS:
            fits = all(type(item) is int for item in value)
        if value is not None and not fits:
            raise RequestError(
                f"{name!r} in {path} is {json.dumps(value)[:_REASON]}, a value of the wrong type; "
                "copy or save it again."
            )
    with _explain_errors(f"{path} does not say how to generate"):
        return GenerationConfig.from_dict(_without_code(found, GenerationConfig))


def read_config(directory: Path) -> PreTrainedConfig:
    """Return the configuration of a sequence-to-sequence model.

    Raises:
        ValueError: there is none, it is damaged, or it is of another kind.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise nothing_trained(directory, path.name)
    found = read_json(path)
    _check_numbers(path, found)
    name = found.get("model_type")
    if not isinstance(name, str) or name not in CONFIG_MAPPING:
        raise RequestError(
            f"{path} is of model_type {name!r}, which is unknown here; code that comes with a "
            "model is not run."
        )
    kind = CONFIG_MAPPING[name]
    if kind not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        raise RequestError(
            f"{path} is of model_type {name!r}, which is not a sequence-to-sequence model."
        )
    dtype = found.pop("torch_dtype", None)  # its name in older versions of transformers
    found.setdefault("dtype", dtype)
    if found["dtype"] not in (None, *_FLOATS):
        raise RequestError(
            f"{path} says dtype={found['dtype']!r}; allowed are {', '.join(_FLOATS)}."
        )
    with _explain_errors(f"{path} is not a model configuration"):
        return kind.from_dict(_without_code(found, kind))


def _read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a directory by name, checked to be finite."""
    return {name: tensor for path in weight_files(directory) for name, tensor in read_tensors(path)}


def _check_class(directory: Path, kind: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    """Refuse a model that was saved by a user's class, which may compute something else."""
    known = vars(sys.modules[kind.__module__])
    for name in config.architectures or ():
        if name not in known:
            raise RequestError(
                f"{directory} was saved by the class {quoted(name)}, which is not run here, and "
                f"which may compute something else than {kind.__name__}; load it in Python by "
                f"that class's from_pretrained. If both compute the same, write {kind.__name__} in "
                "its place under architectures in config.json."
            )


def _check_fit(
    directory: Path,
    kind: type[PreTrainedModel],
    config: PreTrainedConfig,
    tensors: dict[str, torch.Tensor],
) -> None:
    """Refuse weights that do not fit the configuration, before any memory is allocated for it.

    Raises:
        ValueError: a tensor has another shape or type, or most of the weights are missing.
    """
    layers = [getattr(config, f"{side}_layers", 0) for side in ("encoder", "decoder")]
    if sum(layers) > len(tensors):  # less than one tensor per layer
        raise RequestError(
            f"{directory / 'config.json'} describes {sum(layers)} layers, but the weights are "
            f"{len(tensors)} tensors: mismatched weights; give a whole checkpoint."
        )
    with _explain_errors(f"{directory / 'config.json'} describes no model that can be built"):
        with torch.device("meta"):  # only shapes
            skeleton = kind(copy.deepcopy(config))
        expected = skeleton.state_dict()
        needed = sum(weight.numel() for weight in skeleton.parameters())
    for name, tensor in tensors.items():
        wanted = expected.get(name, tensor)
        fits = tensor.dtype in _FLOATS.values() or not wanted.is_floating_point()
        if tensor.shape != wanted.shape or not fits:
            raise RequestError(
                f"{directory}: mismatched weights, such as {name}, {tensor.dtype} "
                f"{list(tensor.shape)} instead of {list(wanted.shape)}; give a whole checkpoint."
            )
    held = sum(tensor.numel() for tensor in tensors.values())
    if needed > 2 * held + _SPARE:
        raise RequestError(
            f"{directory}: missing weights; config.json describes {needed:,} numbers, and the "
            f"files hold {held:,}; give a whole checkpoint."
        )


def _without_code(found: dict[str, object], kind: type) -> dict[str, object]:
    """Return a file's settings without those that would choose code or replace a method."""
    known = {field.name for field in fields(kind)} if is_dataclass(kind) else ()
    return {
        name: _without_code(value, object) if isinstance(value, dict) else value
        for name, value in found.items()
        if name in known
        or not (name.strip("_").removesuffix("_internal") in CHOOSE_CODE or hasattr(kind, name))
    }


def _check_numbers(path: Path, found: dict[str, object]) -> None:
    """Refuse NaN and infinity, which are not JSON numbers."""
    values: list[object] = [found]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        elif isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"{path} holds {value} instead of a number; copy or save it again.")


@contextmanager
def _explain_errors(problem: str) -> Iterator[None]:
    """Replace an error of transformers that names no file by a one-line error that does."""
    try:
        yield
    except (RequestError, ImportError):
        raise
    except Exception as error:
        # The package tokenizers raises Exception itself.
        if not isinstance(error, _UNEXPECTED) and type(error) is not Exception:
            raise
        if isinstance(error, OSError) and error.filename is not None:
            raise
        cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
        reason = " ".join(str(cause or error).split())[:_REASON]
        raise RequestError(f"{problem}: {reason}; copy or save it again.") from error
