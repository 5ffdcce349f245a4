"""Read files of other systems without running code in them; refuse damaged files."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...storage import saved_model
from ...storage.pickles import NUMPY_NUMBERS, read_pickle
from ...storage.reading import own_file, read_json

_Config = TypeVar("_Config", bound=PreTrainedConfig)

_NAMES_IN_AN_ERROR = 4
_AVERAGED = "n_averaged"  # the counter of torch's AveragedModel
# Harmless classes in checkpoints: options (argparse) and NumPy numbers.
PLAIN_CLASSES = (*NUMPY_NUMBERS, (argparse.Namespace, "argparse.Namespace"))


def state_dict(found: object, origin: object) -> dict[str, Tensor]:
    """Return a state dict as a plain dict; refuse anything else.

    Raises:
        ValueError: `found` is not a state dict.
    """
    if not isinstance(found, Mapping) or not found:
        got = f"a {type(found).__name__}" if found else "nothing"
        raise RequestError(f"{origin} holds {got} instead of tensors by name; give a state_dict.")
    found = {str(key): value for key, value in found.items() if key != _AVERAGED}
    odd = [name for name, value in found.items() if not isinstance(value, Tensor)]
    if odd:
        raise RequestError(f"{origin} holds more than tensors ({listed(odd)}); give a state_dict.")
    return found


def read_state_dict(path: Path) -> tuple[dict[str, Tensor], object]:
    """Return the state dict in a file, and the hyperparameters saved with it.

    The file holds only a state dict, or, if torch.save wrote it, one under any name, as training
    checkpoints do: `model_state_dict` in PyTorch's tutorials, `state_dict` of Lightning.

    Raises:
        ValueError: The file is damaged, could run code, or does not hold one state dict.
    """
    if path.suffix == ".safetensors":
        return state_dict(_read_part(path), path), None
    found = read_pickle(path, PLAIN_CLASSES)
    entries = found if isinstance(found, Mapping) else {}
    models = {str(name): entry for name, entry in entries.items() if _is_state_dict(entry)}
    if len(models) > 1 and "state_dict" not in models:
        raise RequestError(f"{path} holds several models ({listed([*models])}); save one alone.")
    if not models:
        return state_dict(found, path), None
    name = "state_dict" if "state_dict" in models else next(iter(models))
    return state_dict(models[name], f"{path}: {name}"), entries.get("hyper_parameters")


def _is_state_dict(entry: object) -> bool:
    """Return True if an entry looks like model weights, not the state of a random generator."""
    tensors = list(entry.values()) if isinstance(entry, Mapping) else []
    return all(isinstance(tensor, Tensor) for tensor in tensors) and any(
        tensor.dim() == 2 and tensor.is_floating_point() for tensor in tensors
    )


def read_checkpoint(
    path: Path, system: str, parts: Sequence[str], *, allowed: Iterable[tuple[type, str]]
) -> Mapping[str, Any]:
    """Return the content of another system's checkpoint as a dict.

    Args:
        path: File to read.
        system: Name of the system in errors.
        parts: Keys that every checkpoint of the system has.
        allowed: See `read_pickle`.

    Raises:
        ValueError: The file is damaged, could run code, or is not a checkpoint of the system.
    """
    found = read_pickle(path, allowed)
    content = found if isinstance(found, Mapping) else {}
    if missing := [f"`{name}`" for name in parts if name not in content]:
        raise RequestError(f"{path} is not a checkpoint of {system}: no {listed(missing)}.")
    return content


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove prefixes that all names share, such as the `module.` of DDP and AveragedModel."""
    found = dict(tensors)
    while all("." in name for name in found) and len({name.split(".")[0] for name in found}) == 1:
        found = {name.partition(".")[2]: tensor for name, tensor in found.items()}
    return found


def read_directory(directory: Path) -> dict[str, Tensor]:
    """Return the tensors of a transformers directory, from one file or several.

    Raises:
        ValueError: There is no file with tensors, or one is damaged.
    """
    parts = saved_model.weight_files(directory, pickled=True)
    return {key: tensor for part in parts for key, tensor in _read_part(part).items()}


def _read_part(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return dict(saved_model.read_tensors(path))
    return state_dict(read_pickle(path), path)


def read_config(directory: Path, kind: type[_Config]) -> tuple[_Config, dict[str, Any]]:
    """Return the configuration of a transformers directory, and the raw content of config.json.

    Raises:
        ValueError: The configuration is of another architecture, or has values of wrong types.
        OSError: There is no config.json.
    """
    settings = read_json(directory / saved_model.CONFIG)
    config = saved_model.read_config(directory)
    if not isinstance(config, kind):
        raise RequestError(f"{directory} holds a {config.model_type} model, not {kind.model_type}.")
    return config, settings


def generation_settings(source: Path, config: VanillaTransformerConfig) -> GenerationConfig:
    """Return the source's generation config, changed to never produce `<pad>`.

    Raises:
        ValueError: The generation config is damaged.
    """
    settings = saved_model.read_generation_config(source)
    # transformers loads options that have no effect, but does not save them again.
    if settings.num_beams in (None, 1):
        for name in ("early_stopping", "length_penalty"):
            setattr(settings, name, None)
    if not settings.do_sample:
        for name in ("temperature", "top_k", "top_p", "min_p", "typical_p"):
            setattr(settings, name, None)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        setattr(settings, name, getattr(config, name))
    settings.suppress_tokens = sorted({*(settings.suppress_tokens or []), config.pad_token_id})
    return settings


def tokenizer_files(source: Path, tokenizer_class: str) -> dict[str, bytes]:
    """Return the source's tokenizer files, with the tokenizer class set; empty if none exist.

    Args:
        source: A transformers directory.
        tokenizer_class: The class that opens the files, unless there is a tokenizer.json.

    Raises:
        ValueError: A file is a link that leaves the directory, or the settings are damaged.
    """
    there = [name for name in saved_model.TOKENIZER_FILES if (source / name).is_file()]
    files = {name: own_file(source / name).read_bytes() for name in there}
    name = saved_model.TOKENIZER_SETTINGS
    if files and "tokenizer.json" not in files:
        settings = read_json(source / name) if name in files else {}
        settings.setdefault("tokenizer_class", tokenizer_class)
        files[name] = json.dumps(settings, indent=2).encode()
    return files


def listed(names: list[str]) -> str:
    """Join the first few names, and say how many more there are."""
    more = len(names) - _NAMES_IN_AN_ERROR
    return ", ".join(names[:_NAMES_IN_AN_ERROR]) + (f" and {more} more" if more > 0 else "")
