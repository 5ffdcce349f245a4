"""What every exporter reads, a saved model of this architecture, and the tokenizer it writes."""

import copy
import os
from pathlib import Path
from typing import cast

import torch
from transformers import GenerationConfig

from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ...storage.atomic import write_json
from ...storage.reading import read_json
from ...storage.saved_model import (
    VOCABULARY_FILES,
    ModelConfig,
    copy_tokenizer,
    load_saved_model,
    nothing_trained,
)


def check_source(model_dir: str | os.PathLike[str]) -> Path:
    """Check the folder that an export reads and return it as a path.

    Args:
        model_dir: a directory with model and tokenizer, from a training run or `save_pretrained`.

    Raises:
        ValueError: a file is missing or damaged.
    """
    source = Path(model_dir)
    vocabulary = next(
        (name for name in VOCABULARY_FILES if (source / name).is_file()), VOCABULARY_FILES[0]
    )
    if not (source / "config.json").is_file():
        raise nothing_trained(source, "config.json")
    read_json(source / "config.json")
    for name in ("tokenizer_config.json", vocabulary):
        if not (source / name).is_file():
            raise RequestError(
                f"{source} holds no {name}; name a directory with a saved model and its tokenizer."
            )
        read_json(source / name)  # the export copies it: refuse it now if damaged
    return source


def load_source(
    source: Path, *, dtype: torch.dtype | None = None
) -> VanillaTransformerForConditionalGeneration:
    """Load the model in a folder with `load_saved_model`.

    Raises:
        ValueError: the folder holds another architecture, or a weight that is not finite.
    """
    saved_type = read_json(source / "config.json", ModelConfig).get("model_type")
    if saved_type != "vanilla_transformer":
        raise RequestError(
            f"{source} holds a model of type {saved_type!r}; allowed is 'vanilla_transformer'."
        )
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
    path = target / "tokenizer_config.json"
    settings = read_json(path)
    if settings.get("tokenizer_class") == "TokenizersBackend":
        # transformers 4 knows only its other name, and gives the model other inputs by default.
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings.setdefault("model_input_names", ["input_ids", "attention_mask"])
        write_json(path, settings)
