"""Section 6.1: average the last checkpoints into one model (5 for base, 20 for big).

Only safetensors are read, so nothing is unpickled. Tied tensors are stored once, in checkpoints and
in the mean.
"""

import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from ..errors import RequestError
from ..storage.atomic import files_written_aside
from ..storage.identity import Identity, config_identity, differences, digests
from ..storage.reading import own_file, read_json
from ..storage.run_files import CHECKPOINTS, RECIPE
from ..storage.saved_model import (
    CONFIG,
    GENERATION_CONFIG,
    PIECES,
    TOKENIZER_FILES,
    TOKENIZER_SETTINGS,
    WEIGHTS,
    ModelConfig,
    read_tensors,
    weight_files,
)
from ..target_tokenizer import TARGET_TOKENIZER

logger = logging.getLogger(__name__)

# Files that lie beside the weights of some models; no optimizer or trainer state.
_COMPANIONS = (
    *(CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES),
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
    no tokenizer, which can happen with a stock Trainer, the log says so. The sums are held in
    memory, and the result is written as one file.

    Other files in `output_dir` stay. The new files are written aside and renamed once all are
    complete, so that a crash leaves the old model unchanged.

    Args:
        checkpoint_dirs: Directories with config.json and safetensors (one file, or several with an
            index), oldest first.
        output_dir: Directory for the mean; created if missing. It may be one of the checkpoints.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: If a checkpoint is incomplete, damaged, not finite, or of another model than
            the rest; the message names it.
    """
    checkpoints = [Path(directory) for directory in checkpoint_dirs]
    output, last = Path(output_dir), checkpoints[-1]
    mean = mean_of_weights(checkpoints)
    output.mkdir(parents=True, exist_ok=True)
    with files_written_aside(output, last=WEIGHTS) as aside:
        companions = [path for pattern in _COMPANIONS for path in last.glob(pattern)]
        # A run's search settings lie beside its final model, not in its checkpoints.
        folder = last.resolve().parent
        if folder.name == CHECKPOINTS and (folder.parent / RECIPE).is_file():
            companions += folder.parent.glob(GENERATION_CONFIG)
        for path in companions:
            shutil.copyfile(own_file(path), aside / path.name)
        save_file(mean, aside / WEIGHTS, metadata={"format": "pt"})
    names = ", ".join(directory.name for directory in checkpoints)
    logger.info("The mean of %d checkpoint(s), %s.", len(checkpoints), names)
    if not (output / TOKENIZER_SETTINGS).is_file():
        logger.warning(
            "%s holds no tokenizer, so neither does the mean; save one there with "
            "tokenizer.save_pretrained.",
            last,
        )
    return output


def mean_of_weights(checkpoints: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the arithmetic mean of the weights of some checkpoints.

    Raises:
        ValueError: As for `average_checkpoints`.
    """
    sums: dict[str, torch.Tensor] = {}
    first: Identity = {}
    for directory in checkpoints:
        files = [read_tensors(path) for path in weight_files(directory)]
        weights = dict(itertools.chain.from_iterable(files))  # mapped into memory
        identity = _identity(directory, weights)
        first = first or identity
        # A stock Trainer may save without a tokenizer.
        shared = {name: value for name, value in identity.items() if value and first[name]}
        if differing := differences({name: first[name] for name in shared}, shared):
            raise RequestError(
                f"{directory} is not the same model as {checkpoints[0]} ({'; '.join(differing)}); "
                "average checkpoints of one run."
            )
        for name, tensor in weights.items():
            total = sums.setdefault(name, torch.zeros(tensor.shape, dtype=torch.float64))
            total += tensor
    mean = {}
    for name, last in sorted(weights.items()):
        total = sums.pop(name) / len(checkpoints)
        mean[name] = total.to(last.dtype) if last.is_floating_point() else last
    return mean


def _identity(directory: Path, weights: Mapping[str, torch.Tensor]) -> Identity:
    """Return what must be the same in all checkpoints of a mean."""
    settings = directory / TOKENIZER_SETTINGS
    target = read_json(settings).get(TARGET_TOKENIZER) if settings.is_file() else None
    tokenizers = digests(directory, PIECES)
    if target is not None:
        tokenizers[TARGET_TOKENIZER] = hashlib.sha256(str(target).encode()).hexdigest()
    return {
        "config": config_identity(read_json(directory / CONFIG, ModelConfig)),
        "tokenizer": tokenizers,
        "tensors": {
            name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in weights.items()
        },
    }
