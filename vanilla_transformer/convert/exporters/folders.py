"""What every exporter reads and writes: a saved model in, a folder that is whole or absent out."""

import os
import shutil
from pathlib import Path

import torch

from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ...storage.atomic import check_new_folder, read_json
from ...storage.saved_model import VOCABULARY_FILES, load_saved_model

TOKENIZER_FILES = (
    *(*VOCABULARY_FILES, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab-tgt.json", "target_vocab.json", "merges.txt", "source.spm", "target.spm"),
)


def check_folders(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str]
) -> tuple[Path, Path]:
    """The two folders of an export as paths.

    Args:
        model_dir: model and tokenizer, as a training run or `save_pretrained` leaves them.
        output_dir: must not exist yet, or be empty.

    Raises:
        ValueError: a folder is not as it must be.
    """
    source, output = Path(model_dir), Path(output_dir)
    vocabulary = next(
        (name for name in VOCABULARY_FILES if (source / name).is_file()), VOCABULARY_FILES[0]
    )
    for name in ("config.json", "tokenizer_config.json", vocabulary):
        if not (source / name).is_file():
            raise ValueError(
                f"{source} holds no {name}; name a directory with a saved model and its tokenizer."
            )
        read_json(source / name)  # which an export copies
    check_new_folder(output)
    return source, output


def load_model(
    source: Path, *, dtype: torch.dtype | None = None
) -> VanillaTransformerForConditionalGeneration:
    """The model of a folder in evaluation mode, in the dtype that it was saved in or a given one.

    Raises:
        ValueError: the folder holds another architecture, or not every weight as a number.
    """
    saved_type = read_json(source / "config.json").get("model_type")
    if saved_type != "vanilla_transformer":
        raise ValueError(
            f"{source} holds a model of type {saved_type!r}; allowed is 'vanilla_transformer'."
        )
    model = load_saved_model(source, dtype=dtype)
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise ValueError(f"{source}: {name} holds NaN or infinity; export a sound checkpoint.")
    return model


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copies the tokenizer."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
