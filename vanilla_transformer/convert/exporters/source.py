"""What every exporter reads, a saved model of this architecture, and the tokenizer it writes."""

import copy
from pathlib import Path
from typing import cast

import torch
from transformers import GenerationConfig

from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ...storage.atomic import write_json
from ...storage.reading import read_json
from ...storage.saved_model import (
    TOKENIZER_SETTINGS,
    VOCABULARY_FILES,
    copy_tokenizer,
    load_saved_model,
    read_config,
)


def load_source(
    source: Path, *, dtype: torch.dtype | None = None
) -> VanillaTransformerForConditionalGeneration:
    """Load the model in a folder with `load_saved_model`, once its tokenizer is found whole.

    Args:
        source: a directory with model and tokenizer, from a training run or `save_pretrained`.
        dtype: data type of the weights. None keeps the saved one.

    Raises:
        ValueError: the folder holds another architecture, a damaged file, or a weight that is not
            finite.
        OSError: a file is missing.
    """
    config = read_config(source)
    if config.model_type != "vanilla_transformer":
        raise RequestError(
            f"{source} holds a model of type {config.model_type!r}; allowed is "
            "'vanilla_transformer'."
        )
    vocabularies = [source / name for name in VOCABULARY_FILES]
    vocabulary = next(filter(Path.is_file, vocabularies), vocabularies[0])
    for path in (source / TOKENIZER_SETTINGS, vocabulary):
        read_json(path)  # the export copies it: refuse it now if damaged
    return cast("VanillaTransformerForConditionalGeneration", load_saved_model(source, dtype=dtype))


def bounded_generation_config(
    model: VanillaTransformerForConditionalGeneration,
) -> GenerationConfig:
    """Return the generation config with a bound on the length, which other models do not have."""
    config = copy.deepcopy(model.generation_config)
    if config.max_new_tokens is None and config.max_length in (None, 20):  # 20: by Seq2SeqTrainer
        config.max_new_tokens = model.config.max_position_embeddings
    return config


def export_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer, with settings that transformers 4 reads as transformers 5 does.

    Raises:
        ValueError: a file of it is a link that leaves `source`.
    """
    copy_tokenizer(source, target)
    path = target / TOKENIZER_SETTINGS
    settings = read_json(path)
    if settings.get("tokenizer_class") == "TokenizersBackend":
        # transformers 4 knows only its other name, and gives the model other inputs by default.
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings.setdefault("model_input_names", ["input_ids", "attention_mask"])
        write_json(path, settings)
