"""Export to the stock `MarianMTModel`, which every version of transformers and many engines know.

Marian's network is the paper's but for names and one thing: its sinusoids are all sines, then all
cosines, where Section 3.5 interleaves them. The columns of the residual stream are therefore put in
Marian's order in every tensor that touches it, which changes no number that the network computes.
What Marian cannot hold is refused. What it does differently at the edges remains: its positions end
at `max_position_embeddings`, it counts padding on the left as positions, its loss is not smoothed,
and its encoder takes `inputs_embeds` that are scaled already.
"""

import copy
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ...storage.atomic import folder_written_aside
from ...storage.saved_model import copy_tokenizer
from ..tensor_names import (
    LOGITS_BIAS,
    MARIAN_LAYER_NORM_EPS,
    SHARED_FIELDS,
    marian_columns,
    tensor_map,
)
from ..verification import check_equal, log_probabilities, probe
from .source import check_folders, load_source

logger = logging.getLogger(__name__)

# Fields of Marian's that make it the paper's model.
MARIAN_FIELDS: dict[str, Any] = {
    "scale_embedding": True,  # Section 3.4
    "forced_eos_token_id": None,  # Marian's own default is an id of its own vocabularies
}
TOLERANCE = 1e-4  # of log-probabilities; rounding in another order of columns


def _reorder(tensor: torch.Tensor, axis: int | None, columns: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.clone() if axis is None else tensor.index_select(axis, columns.to(tensor.device))


def to_marian_tensors(
    state_dict: Mapping[str, torch.Tensor], config: VanillaTransformerConfig
) -> dict[str, torch.Tensor]:
    """Tensors under Marian's names with columns in Marian's order, all of them copies."""
    columns = marian_columns(config.d_model)
    tensors = {
        marian.key: _reorder(state_dict[key], marian.axis, columns)
        for key, marian in tensor_map(config).items()
    }
    if LOGITS_BIAS in tensors:
        tensors[LOGITS_BIAS] = tensors[LOGITS_BIAS][None]
    return tensors


def _obstacles(config: VanillaTransformerConfig) -> Iterator[str]:
    """What in this configuration Marian has no place for."""
    if config.position_encoding != "sinusoidal":
        yield (
            f"position_encoding={config.position_encoding!r}; allowed 'sinusoidal', which Marian "
            "computes itself"
        )
    if config.position_offset:
        yield f"position_offset={config.position_offset}; allowed 0, where Marian starts to count"
    if config.norm_first:
        yield "norm_first=True; allowed False, Marian normalizes after each sub-layer"
    if config.final_norm:
        yield "final_norm=True; allowed False, Marian has no norm after its stacks"
    if config.layer_norm_eps != MARIAN_LAYER_NORM_EPS:
        yield f"layer_norm_eps={config.layer_norm_eps}; allowed {MARIAN_LAYER_NORM_EPS}"
    for side in ("encoder", "decoder"):
        heads = getattr(config, f"{side}_attention_heads")
        d_k, d_v = config.head_dims(heads)
        if d_k * heads != config.d_model or d_v * heads != config.d_model:
            yield (
                f"d_k={d_k} and d_v={d_v} with {heads} {side} heads; allowed d_k = d_v = d_model "
                f"/ heads = {config.d_model / heads:g}"
            )


def _check_exportable(model: VanillaTransformerForConditionalGeneration) -> None:
    obstacles = list(_obstacles(model.config))
    if not obstacles:
        table = model.model.shared.weight
        # Stored beside the one table are only its ties, and an unused one where nothing is tied.
        known = {*tensor_map(model.config), "model.shared.weight"}
        unknown = [
            key
            for key, tensor in model.state_dict(keep_vars=True).items()
            if key not in known and tensor is not table
        ]
        if unknown:
            obstacles.append(
                f"{len(unknown)} tensors beside the Transformer's own, such as {unknown[0]}; "
                "allowed none, merge adapters first"
            )
    if obstacles:
        raise RequestError(
            f"MarianMTModel cannot hold this model: got {'; got '.join(obstacles)}. Train one with "
            "the allowed values, or export to another format."
        )


def marian_config(config: VanillaTransformerConfig) -> MarianConfig:
    """Marian's configuration of the same model."""
    fields: dict[str, Any] = {field: getattr(config, field) for field in SHARED_FIELDS}
    fields["share_encoder_decoder_embeddings"] &= config.tie_word_embeddings
    return MarianConfig(
        **fields, **MARIAN_FIELDS, decoder_vocab_size=config.target_vocab_size, dtype=config.dtype
    )


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """The same function as a stock `MarianMTModel`: equal logits, equal translations.

    Args:
        model: stays as it is; the export shares no memory with it.

    Returns:
        A model in evaluation mode with the dtype, device, ties and generation settings of `model`.

    Raises:
        ValueError: Marian cannot hold this model; the message lists every reason.
    """
    _check_exportable(model)
    with torch.random.fork_rng(devices=[]):  # its random weights are of no use to anybody
        marian = MarianMTModel(marian_config(model.config))
    marian.to(device=model.device, dtype=model.dtype)  # type: ignore[call-arg]
    # Not strict: each tied tensor comes once, sinusoids and final_logits_bias (zero) not at all.
    marian.load_state_dict(to_marian_tensors(model.state_dict(), model.config), strict=False)
    marian.generation_config = copy.deepcopy(model.generation_config)
    return marian.eval()


def export_marian(model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str]) -> Path:
    """Write a saved model as a directory that stock `AutoModelForSeq2SeqLM` loads.

    What was written is loaded again and compared with the model before it appears.

    Args:
        model_dir: model and tokenizer, as a training run or `save_pretrained` leaves them.
        output_dir: must not exist yet, or be empty. It appears only when all of it is written.

    Returns:
        `output_dir` as a path.

    Raises:
        ValueError: a directory is not as it must be, Marian cannot hold the model, or the two
            differ.
    """
    source, output = check_folders(model_dir, output_dir)
    marian = to_marian(load_source(source))
    with folder_written_aside(output) as aside:
        marian.save_pretrained(aside)
        copy_tokenizer(source, aside)
        difference = _verify(source, aside)
    logger.info(
        "Wrote %s as a MarianMTModel to %s; log-probabilities differ by at most %.1e.",
        source,
        output,
        difference,
    )
    return output


def _verify(source: Path, written: Path) -> float:
    """Compares in float32, in which both are exact, whatever they were saved in."""
    model = load_source(source, dtype=torch.float32)
    marian = MarianMTModel.from_pretrained(written, dtype=torch.float32).eval()
    sentences = probe(model.config)
    got, expected = (log_probabilities(side, sentences) for side in (marian, model))
    return check_equal(got, expected, tolerance=TOLERANCE, name="MarianMTModel")
