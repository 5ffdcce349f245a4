"""The model and the tokenizer that a training begins with: new ones, or those of `init_from`."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..data.dataset import sentences
from ..data.tokenizer import make_tokenizer, vocabulary_fields
from ..errors import RequestError
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..recipes.plan import DataPlan, ModelPlan, Tokenizer
from ..recipes.testing import warn_of_other_languages
from ..storage.atomic import files_written_aside
from ..storage.hub_model import model_folder
from ..storage.identity import digests
from ..storage.reading import read_json
from ..storage.run_files import warn_of_changed_model
from ..storage.saved_model import (
    CONFIG,
    TOKENIZER_FILES,
    TOKENIZER_SETTINGS,
    ModelConfig,
    copy_tokenizer,
    load_saved_model,
    load_saved_tokenizer,
    weight_files,
)
from ..target_tokenizer import hold_target_tokenizer
from .arguments import VanillaTransformerTrainingArguments
from .optimization import peak_rate

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


def identify_model(name: str) -> dict[str, Any]:
    """Return data that identifies a model exactly.

    Args:
        name: A folder, or a name on the Hub.

    Returns:
        `revision`, the commit on the Hub or None, and `files`, the SHA-256 of each file of weights
        or of the tokenizer by name.

    Raises:
        ValueError: If there is no such model, or a run cannot train it.
    """
    folder = model_folder(name)
    kind = read_json(folder / CONFIG, ModelConfig).get("model_type")
    if kind != VanillaTransformerConfig.model_type:
        raise RequestError(
            f"init_from: {name} is of model_type {kind!r}; `vanilla-transformer import` it first."
        )
    load_saved_tokenizer(folder)  # refuses an invalid one
    warn_of_changed_model(folder)
    # The cache names the folder of a Hub snapshot after its commit. A folder given by its path has
    # none, wherever it lies.
    of_hub = folder != Path(name) and folder.parent.name == "snapshots"
    names = (*(path.name for path in weight_files(folder)), *TOKENIZER_FILES)
    revision = folder.name if of_hub else None
    return {"revision": revision, "files": digests(folder, names)}


def run_tokenizer(
    plan: Tokenizer, run: Path, pairs: "Dataset", *, last: Path | None, initial: Path | None
) -> PreTrainedTokenizerBase:
    """Return the run's tokenizer; the first start trains it, or copies that of `init_from`.

    Args:
        plan: The plan of the tokenizer.
        run: The run directory.
        pairs: The training pairs.
        last: The last whole checkpoint, which holds the tokenizer that it was trained with.
        initial: Folder of the model that the run starts from, if any.
    """
    if last is not None:
        return load_saved_tokenizer(last)
    if not (run / TOKENIZER_SETTINGS).is_file():
        with files_written_aside(run, last=TOKENIZER_SETTINGS) as aside:
            if initial is not None:
                copy_tokenizer(initial, aside)
            else:
                _new_tokenizer(plan, pairs).save_pretrained(aside)
    return load_saved_tokenizer(run)


def _new_tokenizer(plan: Tokenizer, pairs: "Dataset") -> PreTrainedTokenizerBase:
    """Train a tokenizer: a shared one, or one for each side."""
    make = partial(
        make_tokenizer,
        vocab_size=plan.vocab_size,
        split_digits=plan.split_digits,
        normalize_text=bool(plan.normalize_text),
        keep_typography=plan.keep_typography,
        show_progress=sys.stderr.isatty(),
    )
    kinds = plan.tokenizer.split(",")
    if len(kinds) == 1:
        return make(kinds[0], sentences(pairs))
    source, target = (
        make(kind, sentences(pairs, side))
        for kind, side in zip(kinds, ("source", "target"), strict=True)
    )
    hold_target_tokenizer(source, target)
    return source


def run_model(
    plan: ModelPlan, data: DataPlan, tokenizer: PreTrainedTokenizerBase, start: Path | None
) -> VanillaTransformerForConditionalGeneration:
    """Return a new model, or with `init_from` the one to start or to resume from.

    Args:
        plan: The plan of the model.
        data: The plan of the pairs, whose longest sentences need positions.
        tokenizer: The tokenizer.
        start: Folder of the initial model, or of the last whole checkpoint, if any.

    Raises:
        ValueError: If the initial model does not load, or has too few positions.
    """
    if plan.init_from is None or start is None:
        return VanillaTransformerForConditionalGeneration(
            plan.config(**vocabulary_fields(tokenizer))
        )
    # In float32, with the plan's rates of dropout and label smoothing.
    saved = load_saved_model(start, dtype=torch.float32)
    for name, value in plan.fields().items():
        setattr(saved.config, name, value)
    assert isinstance(saved.config, VanillaTransformerConfig)  # checked by `identify_model`
    data.check_positions(saved.config)
    # A new model, because modules keep the rates that they were created with.
    model = VanillaTransformerForConditionalGeneration(saved.config)
    model.load_state_dict(saved.state_dict())
    model.generation_config = saved.generation_config
    return model


def warn_of_start(
    initial: Path, data: DataPlan, args: VanillaTransformerTrainingArguments, d_model: int
) -> None:
    """Warn if the settings of a training may spoil the model that it starts from.

    Args:
        initial: Folder of that model.
        data: The plan of the pairs.
        args: The training arguments.
        d_model: Width of the model.
    """
    warn_of_other_languages(initial, data.languages)
    if args.learning_rate is None:
        warmup = int(args.warmup_steps)
        rate = peak_rate(d_model=d_model, warmup_steps=warmup, factor=args.learning_rate_factor)
        logger.warning(
            "The learning rate rises to %.1e, as in a training from scratch; give --learning-rate, "
            "no higher than the last one in the model's history.tsv.",
            rate,
        )
