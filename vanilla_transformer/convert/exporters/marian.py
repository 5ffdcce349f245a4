"""Export to the stock `MarianMTModel`, which transformers 4 and 5 load without this package.

Marian's network is the paper's except for names and the order of its sinusoids: first all sines,
then all cosines, while Section 3.5 interleaves them. The export therefore reorders the residual
stream's columns in every tensor that touches it; this changes no number that the network computes.
Models that Marian cannot represent are refused. A few differences remain: Marian's positions end
at `max_position_embeddings`, it counts padding on the left as positions, its loss is not smoothed,
and its encoder takes `inputs_embeds` that are already scaled.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from transformers import MarianMTModel

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..marian_names import (
    LOGITS_BIAS,
    MARIAN_LAYER_NORM_EPS,
    marian_columns,
    marian_config,
    other_head_widths,
    reordered,
    tensor_names,
)
from ..verification import check_equal, check_exportable, log_probabilities, probe
from .source import bounded_generation_config, export_tokenizer, load_source, write_export

# Fields of our configuration that Marian's code fixes.
_FIXED = {
    "position_encoding": "sinusoidal",
    "position_offset": 0,
    "norm_first": False,
    "final_norm": False,
    "layer_norm_eps": MARIAN_LAYER_NORM_EPS,
}


def to_marian_tensors(
    state_dict: Mapping[str, torch.Tensor], config: VanillaTransformerConfig
) -> dict[str, torch.Tensor]:
    """Return the tensors under Marian's names, with columns in Marian's order."""
    ours = {name: state_dict[key] for key, name in tensor_names(config).items()}
    tensors = reordered(ours, marian_columns(config.d_model))
    if LOGITS_BIAS in tensors:
        tensors[LOGITS_BIAS] = tensors[LOGITS_BIAS][None]
    return tensors


def _obstacles(config: VanillaTransformerConfig) -> Iterator[str]:
    """Yield what Marian cannot represent in this configuration."""
    for name, allowed in _FIXED.items():
        if getattr(config, name) != allowed:
            yield f"{name}={getattr(config, name)!r}; allowed {allowed!r}"
    yield from other_head_widths(config)


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Convert to a stock `MarianMTModel` with equal logits and equal translations.

    Args:
        model: The model; it is not changed, and the result shares no memory with it.

    Returns:
        A model in evaluation mode with the dtype, device, ties and generation settings of `model`.

    Raises:
        ValueError: Marian cannot represent this model; the message lists every reason.
    """
    check_exportable(model, name="MarianMTModel", obstacles=_obstacles(model.config))
    with torch.random.fork_rng(devices=[]):  # its random weights are overwritten
        marian = MarianMTModel(marian_config(model.config))
    marian.to(device=model.device, dtype=model.dtype)  # type: ignore[call-arg]  # a wrapper's signature
    # Not strict: tied tensors come once; sinusoids and a zero final_logits_bias are left out.
    marian.load_state_dict(to_marian_tensors(model.state_dict(), model.config), strict=False)
    marian.generation_config = bounded_generation_config(model)
    return marian.eval()


def export_marian(model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str]) -> Path:
    """Write a saved model as a directory that stock `AutoModelForSeq2SeqLM` loads.

    The export is loaded again and compared with the model before it appears.

    Arguments and result are as for `write_export`.

    Raises:
        ValueError: A directory is unsuitable, Marian cannot represent the model, or the export
            differs from it.
    """
    return write_export(model_dir, output_dir, "a MarianMTModel", _write)


def _write(source: Path, folder: Path) -> str:
    to_marian(load_source(source)).save_pretrained(folder)
    export_tokenizer(source, folder)
    # Compare both models in float32, which represents their weights exactly.
    model = load_source(source, dtype=torch.float32)
    marian = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    sentences = probe(model.config)
    got, expected = (log_probabilities(side, sentences) for side in (marian, model))
    difference = check_equal(got - expected, name="MarianMTModel")
    return f"at most {difference:.1e}"
