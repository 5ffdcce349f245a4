"""Shared code of the exporters: load the model, write the tokenizer and the folder."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from transformers import GenerationConfig

from ...errors import RequestError
from ...generation_limits import HOSTS_LENGTH
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from ...storage import saved_model
from ...storage.atomic import folder_written_aside, write_json
from ...storage.reading import StrPath, read_json

logger = logging.getLogger(__name__)


def write_export(
    model_dir: StrPath, output_dir: StrPath, kind: str, write: Callable[[Path, Path], str]
) -> Path:
    """Write an export into a new folder, which appears only after `write` has verified it.

    Args:
        model_dir: A directory with model and tokenizer, from a training run or `save_pretrained`.
        output_dir: A new or empty directory, or an earlier export; it is written as a whole.
        kind: What is written, for the log.
        write: Function of `model_dir` and a folder to create; returns the difference between the
            log-probabilities of the export and the model, in words.

    Returns:
        `output_dir` as a path.
    """
    source, output = Path(model_dir), Path(output_dir)
    with folder_written_aside(output) as aside:
        by = write(source, aside)
    logger.info("Wrote %s as %s to %s; log-probabilities differ by %s.", source, kind, output, by)
    return output


def load_source(source: Path, *, dtype: torch.dtype | None = None) -> Model:
    """Load the model to export, after checking that its tokenizer can be read.

    Args:
        source: The `model_dir` of `write_export`.
        dtype: Data type of the weights. None keeps the saved one.

    Raises:
        ValueError: The folder holds another architecture, a damaged file, or a weight that is not
            finite.
        OSError: A file is missing.
    """
    config = saved_model.read_config(source)
    if config.model_type != "vanilla_transformer":
        raise RequestError(f"{source} is of type {config.model_type!r}, not 'vanilla_transformer'.")
    vocabularies = [source / name for name in saved_model.VOCABULARY_FILES]
    vocabulary = next(filter(Path.is_file, vocabularies), vocabularies[0])
    for path in (source / saved_model.TOKENIZER_SETTINGS, vocabulary):
        read_json(path)  # the export copies this file, so refuse a damaged one now
    return cast("Model", saved_model.load_saved_model(source, dtype=dtype))


def bounded_generation_config(model: Model) -> GenerationConfig:
    """Return the generation config with a length limit added, since other programs need one."""
    config = copy.deepcopy(model.generation_config)
    if config.max_new_tokens is None and config.max_length in (None, HOSTS_LENGTH):
        config.max_new_tokens = model.config.max_position_embeddings
    return config


def export_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer, with settings that make other programs encode like transformers 5.

    Raises:
        ValueError: A file of the tokenizer is a link that leaves `source`.
    """
    saved_model.copy_own_files(source, target)
    path = target / saved_model.TOKENIZER_SETTINGS
    settings = read_json(path)
    if settings.get("tokenizer_class") == "TokenizersBackend":
        # transformers 4 knows this class by its old name, and adds token_type_ids by default.
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings.setdefault("model_input_names", ["input_ids", "attention_mask"])
    # Transformers.js and transformers 4 would take out spaces before punctuation.
    settings.setdefault("clean_up_tokenization_spaces", False)
    write_json(path, settings)
