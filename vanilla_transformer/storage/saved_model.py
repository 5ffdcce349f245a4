"""A saved model and its tokenizer from a directory, or one line that says why they do not load.

Weights come from safetensors alone, and no code in the directory is run: nothing is asked either.
"""

import importlib
import os
import shutil
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..errors import RequestError
from .reading import read_json

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # of weights in several files
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# Ours is one file; the tokenizers of imported models have others in its place.
VOCABULARY_FILES = ("tokenizer.json", "vocab.json", "vocab-src.json")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab-tgt.json",
    "target_vocab.json",
    "merges.txt",
    "source.spm",
    "target.spm",
)
# Tokenizers that transformers has, and the package that each needs.
_PACKAGES = {"FSMTTokenizer": "sacremoses", "MarianTokenizer": "sentencepiece"}


def load_saved_model(
    directory: str | os.PathLike[str], *, dtype: torch.dtype | None = None, device: str = "cpu"
) -> PreTrainedModel:
    """Load the sequence-to-sequence model of a directory, in evaluation mode.

    Args:
        directory: a training run, or what `save_pretrained` has written.
        dtype: of the weights; as they were saved if None.
        device: `auto` for the GPU if there is one.

    Raises:
        ValueError: something is missing, damaged, of another kind, or would run code.
    """
    directory = Path(directory)
    config = _read_config(directory)
    check_weights(directory)
    try:
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            directory,
            config=config,
            dtype="auto" if dtype is None else dtype,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # the report names them
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise RequestError(
            f"the weights in {directory} are damaged ({error}); copy or save them again."
        ) from error
    # The host library only warns about these; what is missing it fills with random numbers.
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if report[problem]:
            raise RequestError(
                f"{directory}: {problem.replace('_keys', '')} weights, such as "
                f"{sorted(map(str, report[problem]))[0]}; give a whole checkpoint."
            )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.eval().to(device)


def load_saved_tokenizer(directory: str | os.PathLike[str]) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a directory.

    Raises:
        ValueError: there is none, or a file of it is damaged.
        ImportError: it needs a package that is not installed; `name` says which.
    """
    directory = Path(directory)
    vocabularies = [directory / name for name in VOCABULARY_FILES]
    vocabularies = [path for path in vocabularies if path.is_file()]
    settings = directory / "tokenizer_config.json"
    if not settings.is_file() or not (vocabularies or list(directory.glob("*.model"))):
        raise RequestError(
            f"{directory} holds no tokenizer, only weights for ids; save the tokenizer beside the "
            "model with tokenizer.save_pretrained."
        )
    for path in vocabularies:
        read_json(path)
    package = _PACKAGES.get(str(read_json(settings).get("tokenizer_class")))
    if package is not None:
        importlib.import_module(package)
    return AutoTokenizer.from_pretrained(directory, trust_remote_code=False)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the files of a tokenizer to another directory."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def check_weights(directory: Path) -> None:
    """Raise ValueError unless a directory holds weights in a format that runs no code."""
    if any((directory / name).is_file() for name in (WEIGHTS, WEIGHTS_INDEX)):
        return
    if any((directory / name).is_file() for name in PICKLED_WEIGHTS):
        raise RequestError(
            f"{directory} holds weights as {PICKLED_WEIGHTS[0]} alone, which could run code; "
            f"allowed is {WEIGHTS}: save the model again where it is trusted."
        )
    raise RequestError(f"{directory} holds no trained model (no {WEIGHTS}).")


def _read_config(directory: Path) -> PreTrainedConfig:
    path = directory / "config.json"
    if not path.is_file():
        raise RequestError(f"{directory} holds no trained model (no config.json).")
    kind = read_json(path).get("model_type")
    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except StrictDataclassError as error:
        raise RequestError(f"{path}: {error.__cause__ or error}") from error
    except ValueError as error:
        raise RequestError(
            f"{path} is of model_type {kind!r}, which nothing here knows; code that comes with a "
            "model is not run."
        ) from error
    if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        raise RequestError(
            f"{path} is of model_type {kind!r}, which is not a sequence-to-sequence model."
        )
    return config
