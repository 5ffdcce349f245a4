"""Export to a stock class that transformers 4 and 5 load without this package.

Post-norm models become a `MarianMTModel`, pre-norm ones a `PegasusForConditionalGeneration`: both
are the paper's network except for names and the order of the sinusoids, first all sines, then all
cosines, while Section 3.5 interleaves them. The export therefore reorders the residual stream's
columns in every tensor that touches it; this changes no number that the network computes.
Models that neither can represent are refused. A few differences remain: positions end at
`max_position_embeddings`, padding on the left counts as positions, the loss is not smoothed, and
the encoder takes `inputs_embeds` that are already scaled.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from ...configuration_vanilla_transformer import VanillaTransformerConfig
from ...errors import RequestError
from ...modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from ...storage.reading import StrPath
from .. import marian_names as marian
from ..verification import check_equal, check_exportable, log_probabilities, probe
from .source import bounded_generation_config, export_tokenizer, load_source, write_export

StockModel: TypeAlias = MarianMTModel | PegasusForConditionalGeneration
# Fields of our configuration with the only values that both classes support.
_FIXED = {
    "position_encoding": "sinusoidal",
    "position_offset": 0,
    "layer_norm_eps": marian.MARIAN_NORM_EPS,
    "final_norm": False,  # for post-norm models; pre-norm ones always have a final norm
}
# Further such fields for Pegasus, which has a single embedding table.
_OF_PEGASUS = {"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True}
# Fields of Marian's configuration that Pegasus does not have.
_OF_MARIAN = ("share_encoder_decoder_embeddings", "decoder_vocab_size", "model_type")


def stock_class(config: VanillaTransformerConfig) -> type[StockModel]:
    """Return the transformers class for a config: Marian for post-norm, Pegasus for pre-norm."""
    return PegasusForConditionalGeneration if config.norm_first else MarianMTModel


def to_stock_tensors(
    state_dict: Mapping[str, torch.Tensor], config: VanillaTransformerConfig
) -> dict[str, torch.Tensor]:
    """Rename the tensors to those of the stock class, and permute d_model for its sinusoids."""
    ours = {name: state_dict[key] for key, name in marian.tensor_names(config).items()}
    tensors = marian.reordered(ours, config.d_model)
    if marian.LOGITS_BIAS in tensors:
        tensors[marian.LOGITS_BIAS] = tensors[marian.LOGITS_BIAS][None]
    return tensors


def _obstacles(config: VanillaTransformerConfig) -> Iterator[str]:
    """Yield the settings that the stock class cannot represent."""
    fixed: dict[str, Any] = dict(_FIXED)
    if config.norm_first:
        fixed |= {**_OF_PEGASUS, "decoder_vocab_size": None}
    for name, allowed in fixed.items():
        if getattr(config, name) != allowed:
            yield f"{name}={getattr(config, name)!r}; allowed {allowed!r}"
    yield from marian.other_head_widths(config)


def to_stock(model: Model) -> StockModel:
    """Convert to a stock class with equal logits and equal translations.

    Args:
        model: The model; it is not changed, and the result shares no memory with it.

    Returns:
        A model in evaluation mode with the dtype, device, ties and generation settings of `model`.

    Raises:
        ValueError: Neither class can represent this model; the message lists every reason.
    """
    kind = stock_class(model.config)
    check_exportable(model, name=kind.__name__, obstacles=_obstacles(model.config))
    config: Any = marian.marian_config(model.config)
    if kind is PegasusForConditionalGeneration:
        fields = {name: value for name, value in config.to_dict().items() if name not in _OF_MARIAN}
        config = PegasusConfig(**fields)
    with torch.random.fork_rng(devices=[]):  # the new model's random weights are overwritten
        stock = kind(config)
    stock.to(device=model.device, dtype=model.dtype)  # type: ignore[call-arg]  # a decorator hides its signature
    # Not strict: tied tensors come once; sinusoids and a zero final_logits_bias are left out.
    stock.load_state_dict(to_stock_tensors(model.state_dict(), model.config), strict=False)
    stock.generation_config = bounded_generation_config(model)
    return stock.eval()


def export_stock(model_dir: StrPath, output_dir: StrPath) -> Path:
    """Write a saved model as a directory that stock `AutoModelForSeq2SeqLM` loads.

    The export is loaded again and compared with the model before its folder appears.

    Arguments and result are as for `write_export`.

    Raises:
        ValueError: A directory is unsuitable, neither class can represent the model, or the export
            differs from it.
    """
    return write_export(model_dir, output_dir, "a stock model", _write)


def _write(source: Path, folder: Path) -> str:
    to_stock(load_source(source)).save_pretrained(folder)
    export_tokenizer(source, folder)
    # Compare both models in float32, which represents their weights exactly.
    model = load_source(source, dtype=torch.float32)
    kind = stock_class(model.config)
    stock = kind.from_pretrained(folder, dtype=torch.float32).eval()
    sentences = probe(model.config)
    got, expected = (log_probabilities(side, sentences) for side in (stock, model))
    difference = check_equal(got - expected, name=kind.__name__)
    length = sentences.target.size(1)  # fits in the model's table of positions
    search: dict[str, Any] = {"num_beams": 1, "min_length": 0, "max_new_tokens": length}
    search["attention_mask"] = sentences.mask
    found, wanted = (side.generate(sentences.source, **search) for side in (stock, model))
    if not torch.equal(found, wanted):
        raise RequestError(f"The export as {kind.__name__} translates differently; report a bug.")
    return f"at most {difference:.1e} ({kind.__name__})"
