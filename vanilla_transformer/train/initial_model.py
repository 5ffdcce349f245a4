"""The model that a run begins with where its recipe names one: `init_from`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..errors import RequestError
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..recipes.recipe import Recipe
from ..storage.hub_model import model_folder
from ..storage.reading import read_json, sha256
from ..storage.saved_model import TOKENIZER_FILES, load_saved_model, weight_files


def identify_model(name: str) -> dict[str, Any]:
    """What says exactly which model this is.

    Args:
        name: of a folder, or on the Hub.

    Returns:
        `revision`, the commit of the Hub or None, and `files`, the `name` and `sha256` of each with
        weights or of the tokenizer.

    Raises:
        ValueError: there is no such model, or it is not one that a recipe can train.
    """
    folder = model_folder(name)
    kind = read_json(folder / "config.json").get("model_type")
    if kind != VanillaTransformerConfig.model_type:
        raise RequestError(
            f"init_from: {name} is of model_type {kind!r}, not a model of this package; bring it "
            "in with `vanilla-transformer import`, where it can be, or train it with "
            "Seq2SeqTrainer."
        )
    if read_json(folder / "config.json").get("decoder_vocab_size") is not None:
        raise RequestError(
            f"init_from: {name} has a vocabulary for each language, and a recipe trains one for "
            "both; train it with Seq2SeqTrainer."
        )
    if not (folder / "tokenizer.json").is_file():
        raise RequestError(
            f"init_from: {name} holds no tokenizer.json, which a recipe encodes pairs with; save "
            "the tokenizer beside the model, or train it with Seq2SeqTrainer."
        )
    tokenizer = [folder / file for file in TOKENIZER_FILES if (folder / file).is_file()]
    return {
        # A snapshot of the Hub lies in a folder that is named after its commit.
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "files": [
            {"name": path.name, "sha256": sha256(path)}
            for path in [*weight_files(folder), *tokenizer]
        ],
    }


def initial_folder(name: str, identity: Mapping[str, Any] | None) -> Path:
    """The folder of the model that a recipe names, as it was when the run began.

    Args:
        name: `init_from` of the recipe.
        identity: what `identify_model` said when the run began; None where that is lost.

    Raises:
        ValueError: it is gone, or has changed.
    """
    folder = model_folder(name, (identity or {}).get("revision"))
    if identity is not None and identify_model(str(folder))["files"] != identity["files"]:
        raise RequestError(
            f"{name} changed since the run began with it; put it back, or give another "
            "--output-dir."
        )
    return folder


def load_initial_model(folder: Path, recipe: Recipe) -> VanillaTransformerForConditionalGeneration:
    """The model of a folder in float32, with the rates of dropout and smoothing of the recipe.

    Raises:
        ValueError: it does not load, or cannot be trained as the recipe says.
    """
    saved = load_saved_model(folder, dtype=torch.float32)
    for name, value in recipe.model_overrides().items():
        setattr(saved.config, name, value)
    assert isinstance(saved.config, VanillaTransformerConfig)  # as `identify_model` has seen
    recipe.check_model(saved.config)
    # Made anew: its parts keep the rates that they were made with.
    model = VanillaTransformerForConditionalGeneration(saved.config)
    model.load_state_dict(saved.state_dict())
    model.generation_config = saved.generation_config
    return model
