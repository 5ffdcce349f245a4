"""Section 6.1: one model from the mean of the last checkpoints (5 for base, 20 for big).

Only safetensors are read, so nothing is unpickled. A checkpoint holds each tied tensor once, and so
does the mean.
"""

import logging
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import RequestError
from ..storage.atomic import files_written_aside
from ..storage.reading import read_json
from ..storage.saved_model import WEIGHTS, check_finite, own_file

logger = logging.getLogger(__name__)

# Fields of config.json that say where a model comes from and not what it is.
_PROVENANCE = frozenset({"transformers_version", "_name_or_path"})
# What a checkpoint needs to be loaded, besides the weights: never optimizer or trainer state.
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "*.py",  # the code of a model saved for trust_remote_code
)


def average_checkpoints(
    checkpoint_dirs: Iterable[str | os.PathLike[str]], output_dir: str | os.PathLike[str]
) -> Path:
    """Write the arithmetic mean of some checkpoints as a model that Auto classes load.

    The sums are float64, and each tensor keeps its dtype. Integer tensors are counters or tables,
    not weights: those of the last checkpoint are taken. Configuration and tokenizer are copied
    from the last one as well. One tensor at a time is read; the result is held in memory.

    Other files in `output_dir` stay. The new files are written aside and renamed only when all of
    them are whole, so that a crash leaves the old model as it was.

    Args:
        checkpoint_dirs: directories with config.json and model.safetensors, oldest first.
        output_dir: where the mean goes; created if missing. May be one of the checkpoints.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: if there is no checkpoint, or one is incomplete, damaged, not finite, or not of
            the same model as the others; the message names it.
    """
    checkpoints = [Path(directory) for directory in checkpoint_dirs]
    if not checkpoints:
        raise RequestError("got no checkpoints to average; name at least one directory.")
    _check_same_config(checkpoints)
    mean, metadata = _mean_of_weights([directory / WEIGHTS for directory in checkpoints])
    output = Path(output_dir)
    _replace_model_files(output, mean, metadata, companions_from=checkpoints[-1])
    names = ", ".join(directory.name for directory in checkpoints)
    logger.info("%s: the mean of %d checkpoint(s), %s.", output, len(checkpoints), names)
    return output


def _check_same_config(checkpoints: list[Path]) -> None:
    configs = [_read_config(directory) for directory in checkpoints]
    for directory, config in zip(checkpoints, configs, strict=True):
        differing = [
            f"{field}={config.get(field)!r} (there {configs[0].get(field)!r})"
            for field in sorted(config.keys() | configs[0].keys())
            if config.get(field) != configs[0].get(field)
        ]
        if differing:
            raise RequestError(
                f"{directory} is not the same model as {checkpoints[0]}: {', '.join(differing)}; "
                "average checkpoints of one run."
            )


def _read_config(directory: Path) -> dict[str, object]:
    path = directory / "config.json"
    if not path.is_file():
        raise RequestError(f"{directory} holds no config.json; name directories of checkpoints.")
    config = read_json(path, remedy="leave this checkpoint out")
    return {field: value for field, value in config.items() if field not in _PROVENANCE}


def _mean_of_weights(paths: list[Path]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with ExitStack() as stack:
        files = [_open_weights(stack, path) for path in paths]
        keys = sorted(files[0].keys())
        for path, file in zip(paths, files, strict=True):
            if differing := sorted(set(keys) ^ set(file.keys())):
                raise RequestError(
                    f"{path} and {paths[0]} do not hold the same tensors: only one of them has "
                    f"{', '.join(differing[:5])}{' ...' if len(differing) > 5 else ''}; "
                    "average checkpoints of one run."
                )
        mean = {key: _mean_of_tensor(key, paths, files) for key in keys}
        return mean, files[-1].metadata() or {"format": "pt"}


def _open_weights(stack: ExitStack, path: Path) -> safe_open:
    if not path.is_file():
        raise RequestError(
            f"{path.parent} holds no {WEIGHTS}; save it with save_pretrained, in one shard."
        )
    try:
        # The header is checked against the length of the file here: a cut file does not open.
        return stack.enter_context(safe_open(path, framework="pt"))
    except SafetensorError as error:
        raise RequestError(f"{path} is damaged ({error}); leave this checkpoint out.") from error


def _mean_of_tensor(key: str, paths: list[Path], files: list[safe_open]) -> torch.Tensor:
    last = files[-1].get_tensor(key)
    total = torch.zeros(last.shape, dtype=torch.float64)
    for path, file in zip(paths, files, strict=True):
        tensor = file.get_tensor(key)
        if (tensor.shape, tensor.dtype) != (last.shape, last.dtype):
            raise RequestError(
                f"{key} is {tensor.dtype} {list(tensor.shape)} in {path} but {last.dtype} "
                f"{list(last.shape)} in {paths[-1]}; average checkpoints of one run."
            )
        check_finite(key, tensor, path, remedy="leave this checkpoint out")
        total += tensor
    return (total / len(files)).to(last.dtype) if last.is_floating_point() else last


def _replace_model_files(
    output: Path, mean: dict[str, torch.Tensor], metadata: dict[str, str], *, companions_from: Path
) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with files_written_aside(output, last=WEIGHTS) as aside:
        for pattern in _COMPANIONS:
            for path in companions_from.glob(pattern):
                shutil.copyfile(own_file(path), aside / path.name)
        save_file(mean, aside / WEIGHTS, metadata=metadata)
