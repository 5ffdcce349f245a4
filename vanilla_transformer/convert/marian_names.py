"""Map from our tensors and configuration to Marian's, for importers and exporters.

fairseq and FSMT use Marian's names inside the layers and other names outside them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from transformers import MarianConfig

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from .layer_names import STACKS, LayerNames

# Fields that mean the same in our configuration and in Marian's.
SHARED_FIELDS = (
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "max_position_embeddings",
    "tie_word_embeddings",
    "use_cache",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "activation_function",
    "share_encoder_decoder_embeddings",
)
# Marian's fields that make it compute the paper's model.
MARIAN_FIELDS: dict[str, Any] = {
    "scale_embedding": True,  # Section 3.4
    "forced_eos_token_id": None,  # Marian's default is an id of its own vocabularies
}
MARIAN_LAYER_NORM_EPS = 1e-5  # fixed in Marian's code
LOGITS_BIAS = "final_logits_bias"  # (1, V); ours is (V,)

MARIAN_LAYERS = LayerNames(
    layers={stack: f"model.{stack}.layers" for stack in STACKS},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")},
    norms={
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    },
    projections=("q_proj", "k_proj", "v_proj", "out_proj"),
    feed_forward=("fc1", "fc2"),
    last_norm="model.{}.layer_norm",
)
# Modules that read the residual stream; the others write it or normalize it.
_READING = ("q_proj", "k_proj", "v_proj", "fc1")


class MarianTensor(NamedTuple):
    """The place of one of our tensors in Marian."""

    key: str  # in the state dict of MarianMTModel
    axis: int | None  # the residual stream's axis, if the tensor has one


def tensor_map(config: VanillaTransformerConfig) -> dict[str, MarianTensor]:
    """Map every tensor of the model to its place in Marian; what Marian ties, once.

    Args:
        config: The configuration of a model that Marian can represent.

    Returns:
        For each key of our state dict, the key and axis in `MarianMTModel`'s.
    """
    source, target = (f"model.{stack}.embed_tokens.weight" for stack in STACKS)
    tables = [source, target]
    if not config.tie_word_embeddings:  # Marian then has three tables
        tables = [source, target, "lm_head.weight"]
    elif config.share_encoder_decoder_embeddings:
        tables = ["model.shared.weight"]
    tensors = {key: MarianTensor(key, 1) for key in tables}
    if config.lm_head_bias:
        tensors["lm_head.bias"] = MarianTensor(LOGITS_BIAS, None)
    for key, name in MARIAN_LAYERS.tensors(config).items():
        module, part = key.split(".")[-2:]
        axis: int | None = 0
        if module in _READING:
            axis = 1 if part == "weight" else None
        tensors[key] = MarianTensor(name, axis)
    return tensors


def marian_columns(d_model: int) -> torch.Tensor:
    """Return our residual-stream column for each of Marian's, (d,): the even, then the odd ones.

    The `argsort()` of the result is the inverse.
    """
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def marian_config(config: VanillaTransformerConfig) -> MarianConfig:
    """Return Marian's configuration of the same model."""
    fields: dict[str, Any] = {field: getattr(config, field) for field in SHARED_FIELDS}
    fields["share_encoder_decoder_embeddings"] &= config.tie_word_embeddings
    return MarianConfig(
        **fields, **MARIAN_FIELDS, decoder_vocab_size=config.target_vocab_size, dtype=config.dtype
    )


def shared_fields(marian: MarianConfig) -> dict[str, Any]:
    """Return the fields of our configuration that Marian's states."""
    fields = {field: getattr(marian, field, None) for field in SHARED_FIELDS}  # unk may be missing
    sizes_differ = marian.decoder_vocab_size != marian.vocab_size
    return fields | {"decoder_vocab_size": marian.decoder_vocab_size if sizes_differ else None}


def other_head_widths(config: VanillaTransformerConfig) -> Iterator[str]:
    """Yield widths of heads that Marian's configuration, which has no field for them, denies."""
    for stack in STACKS:
        heads = getattr(config, f"{stack}_attention_heads")
        d_k, d_v = config.head_dims(heads)
        if d_k * heads != config.d_model or d_v * heads != config.d_model:
            yield (
                f"d_k={d_k} and d_v={d_v} with {heads} {stack} heads; allowed d_k = d_v = d_model "
                f"/ heads = {config.d_model / heads:g}"
            )
