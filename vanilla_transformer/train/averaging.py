"""Section 6.1: average the last checkpoints into one model (5 for base, 20 for big).

Only safetensors are read, so nothing is unpickled. Tied tensors are stored once, in checkpoints and
in the mean.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import RequestError
from ..storage.atomic import files_written_aside
from ..storage.identity import Identity, config_identity, differences, digests
from ..storage.reading import own_file, read_json
from ..storage.run_files import CHECKPOINTS, RECIPE
from ..storage.saved_model import (
    TOKENIZER_FILES,
    VOCABULARY_FILES,
    WEIGHTS,
    ModelConfig,
    check_finite,
    weight_files,
)

logger = logging.getLogger(__name__)

# Files besides the weights that loading a model needs; no optimizer or trainer state.
GENERATION_CONFIG = "generation_config.json"
_COMPANIONS = (
    "config.json",
    GENERATION_CONFIG,
    *TOKENIZER_FILES,
    "*.model",  # of SentencePiece
    "chat_template.jinja",
    "*.py",  # the code of a model saved for trust_remote_code
)


def average_checkpoints(
    checkpoint_dirs: Iterable[str | os.PathLike[str]], output_dir: str | os.PathLike[str]
) -> Path:
    """Write the arithmetic mean of some checkpoints as a model that Auto classes load.

    Sums are float64, and each tensor keeps its dtype. Integer tensors, which are counters or tables
    rather than weights, come from the last checkpoint, as do configuration and tokenizer. If it has
    no tokenizer, which can happen with a stock Trainer, the log says so. One tensor is read at a
    time; the result is held in memory and written as one file.

    Other files in `output_dir` stay. The new files are written aside and renamed once all are
    complete, so that a crash leaves the old model unchanged.

    Args:
        checkpoint_dirs: directories with config.json and safetensors (one file, or several with an
            index), oldest first.
        output_dir: directory for the mean; created if missing. It may be one of the checkpoints.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: if there is no checkpoint, or one is incomplete, damaged, not finite, or of
            another model than the rest; the message names it.
    """
    checkpoints = [Path(directory) for directory in checkpoint_dirs]
    if not checkpoints:
        raise RequestError("got no checkpoints to average; name at least one directory.")
    _check_same_model(checkpoints)
    mean = mean_of_weights(checkpoints)
    output = Path(output_dir)
    _replace_model_files(output, mean, companions_from=checkpoints[-1])
    names = ", ".join(directory.name for directory in checkpoints)
    logger.info("The mean of %d checkpoint(s), %s.", len(checkpoints), names)
    if not (output / "tokenizer_config.json").is_file():
        logger.warning(
            "%s holds no tokenizer, so neither does the mean; save one there with "
            "tokenizer.save_pretrained.",
            checkpoints[-1],
        )
    return output


def _check_same_model(checkpoints: list[Path]) -> None:
    """Refuse checkpoints of different models or tokenizers: their mean would be no model."""
    first = _identity(checkpoints[0])
    for directory in checkpoints[1:]:
        identity = _identity(directory)
        # A stock Trainer may save without a tokenizer.
        shared = {name: value for name, value in identity.items() if value and first[name]}
        if differing := differences({name: first[name] for name in shared}, shared):
            raise RequestError(
                f"{directory} is not the same model as {checkpoints[0]} ({'; '.join(differing)}); "
                "average checkpoints of one run."
            )


def _identity(directory: Path) -> Identity:
    config = read_json(directory / "config.json", ModelConfig, remedy="leave this checkpoint out")
    return {"config": config_identity(config), "tokenizer": digests(directory, VOCABULARY_FILES)}


def mean_of_weights(checkpoints: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the arithmetic mean of the weights of some checkpoints.

    Raises:
        ValueError: as for `average_checkpoints`.
    """
    with ExitStack() as stack:
        weights = [_open_weights(stack, directory) for directory in checkpoints]
        keys = sorted(weights[0])
        for directory, found in zip(checkpoints, weights, strict=True):
            if differing := sorted(weights[0].keys() ^ found.keys()):
                raise RequestError(
                    f"{directory} and {checkpoints[0]} do not hold the same tensors: only one of "
                    f"them has {', '.join(differing[:5])}{' ...' if len(differing) > 5 else ''}; "
                    "average checkpoints of one run."
                )
        return {key: _mean_of_tensor(key, checkpoints, weights) for key in keys}


def _open_weights(stack: ExitStack, directory: Path) -> dict[str, safe_open]:
    """Open the weights of a checkpoint; return the file of each tensor."""
    found: dict[str, safe_open] = {}
    for path in weight_files(directory):
        try:
            # This compares the header with the file's length, so a truncated file does not open.
            file = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise RequestError(
                f"{path} is damaged ({error}); leave this checkpoint out."
            ) from error
        found |= dict.fromkeys(file.keys(), file)
    return found


def _mean_of_tensor(
    key: str, checkpoints: Sequence[Path], weights: Sequence[dict[str, safe_open]]
) -> torch.Tensor:
    last = weights[-1][key].get_tensor(key)
    total = torch.zeros(last.shape, dtype=torch.float64)
    for directory, found in zip(checkpoints, weights, strict=True):
        tensor = found[key].get_tensor(key)
        if (tensor.shape, tensor.dtype) != (last.shape, last.dtype):
            raise RequestError(
                f"{key} is {tensor.dtype} {list(tensor.shape)} in {directory} but {last.dtype} "
                f"{list(last.shape)} in {checkpoints[-1]}; average checkpoints of one run."
            )
        check_finite(key, tensor, directory, remedy="leave this checkpoint out")
        total += tensor
    return (total / len(checkpoints)).to(last.dtype) if last.is_floating_point() else last


def _replace_model_files(
    output: Path, mean: dict[str, torch.Tensor], *, companions_from: Path
) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with files_written_aside(output, last=WEIGHTS) as aside:
        for pattern in _COMPANIONS:
            for path in companions_from.glob(pattern):
                shutil.copyfile(own_file(path), aside / path.name)
        # A run's search settings lie beside its final model, not in its checkpoints.
        companions_from = companions_from.absolute()  # it may be named from within `checkpoints`
        run = companions_from.parent.parent
        if companions_from.parent.name == CHECKPOINTS and (run / RECIPE).is_file():
            for path in run.glob(GENERATION_CONFIG):
                shutil.copyfile(own_file(path), aside / path.name)
        save_file(mean, aside / WEIGHTS, metadata={"format": "pt"})
