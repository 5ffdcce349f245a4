"""The model that a run starts from if its recipe sets `init_from`."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..errors import RequestError
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..recipes.recipe import Recipe
from ..storage.hub_model import model_folder
from ..storage.identity import differences, digests, warn_of_changed_model
from ..storage.reading import read_json
from ..storage.run_files import recipe_values
from ..storage.saved_model import (
    CONFIG,
    TOKENIZER_FILES,
    ModelConfig,
    load_saved_model,
    load_saved_tokenizer,
    weight_files,
)

logger = logging.getLogger(__name__)


def identify_model(name: str) -> dict[str, Any]:
    """Return data that identifies a model exactly.

    Args:
        name: A folder, or a name on the Hub.

    Returns:
        `revision`, the commit on the Hub or None, and `files`, the `name` and `sha256` of each file
        of weights or of the tokenizer.

    Raises:
        ValueError: If there is no such model, or a recipe cannot train it.
    """
    folder = model_folder(name)
    config = read_json(folder / CONFIG, ModelConfig)
    kind = config.get("model_type")
    if kind != VanillaTransformerConfig.model_type:
        raise RequestError(
            f"init_from: {name} is of model_type {kind!r}, not a model of this package; import it "
            "with `vanilla-transformer import`, if its kind is supported, or train it with "
            "Seq2SeqTrainer."
        )
    load_saved_tokenizer(folder)  # refuses an invalid one
    warn_of_changed_model(folder)
    # The cache names the folder of a Hub snapshot after its commit. A folder given by its path has
    # none, wherever it lies.
    of_hub = folder != Path(name) and folder.parent.name == "snapshots"
    return {"revision": folder.name if of_hub else None, "files": _files(folder)}


def _files(folder: Path) -> list[dict[str, str]]:
    names = (*(path.name for path in weight_files(folder)), *TOKENIZER_FILES)
    found = digests(folder, names)
    return [{"name": name, "sha256": digest} for name, digest in found.items()]


def initial_folder(name: str, identity: Mapping[str, Any] | None) -> Path:
    """Return the folder of the model that a run starts from.

    Args:
        name: `init_from` of the recipe.
        identity: Result of `identify_model` when the run began. None: it is lost, so do not check.

    Raises:
        ValueError: If the model is gone or has changed.
    """
    folder = model_folder(name, (identity or {}).get("revision"))
    if identity and (changed := differences(identity, {**identity, "files": _files(folder)})):
        raise RequestError(
            f"{name} is not the model that the run began with ({'; '.join(changed)}); put it back, "
            "or give another --output-dir."
        )
    return folder


def warn_of_other_languages(folder: Path, recipe: Recipe) -> None:
    """Log a warning if the model of a folder was trained for other languages than the recipe's."""
    values = recipe_values(folder)
    languages = (values.get("source_language"), values.get("target_language"))
    if None not in languages and languages != recipe.languages:
        logger.warning(
            "The model of init_from translates %s-%s, and this run %s-%s. If the pairs are of the "
            "model's languages, give --pair %s-%s, or BLEU and the card will be wrong; if not, its "
            "vocabulary and what it has learned may be of no use.",
            *languages,
            *recipe.languages,
            *languages,
        )


def load_initial_model(folder: Path, recipe: Recipe) -> VanillaTransformerForConditionalGeneration:
    """Load a model in float32, with the recipe's rates of dropout and label smoothing.

    Raises:
        ValueError: If it does not load, or cannot be trained with the recipe.
    """
    saved = load_saved_model(folder, dtype=torch.float32)
    for name, value in recipe.model_overrides().items():
        setattr(saved.config, name, value)
    assert isinstance(saved.config, VanillaTransformerConfig)  # checked by `identify_model`
    recipe.check_model(saved.config)
    # A new model, because modules keep the rates that they were created with.
    model = VanillaTransformerForConditionalGeneration(saved.config)
    model.load_state_dict(saved.state_dict())
    model.generation_config = saved.generation_config
    return model
