"""Map from our tensors to Marian's, for importers and exporters.

fairseq and FSMT use Marian's names inside the layers and other names outside them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from ..configuration_vanilla_transformer import VanillaTransformerConfig

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
MARIAN_LAYER_NORM_EPS = 1e-5  # fixed in Marian's code
LOGITS_BIAS = "final_logits_bias"  # (1, V); ours is (V,)

# Modules of a layer: our name, Marian's name, and the residual stream's axis in the weight and in
# the bias (None: it has no such axis).
_ATTENTION = (
    ("q_proj", "q_proj", 1, None),
    ("k_proj", "k_proj", 1, None),
    ("v_proj", "v_proj", 1, None),
    ("out_proj", "out_proj", 0, 0),
)
_FEED_FORWARD = (
    ("feed_forward.fc1", "fc1", 1, None),
    ("feed_forward.fc2", "fc2", 0, 0),
    ("feed_forward_norm", "final_layer_norm", 0, 0),
)


class MarianTensor(NamedTuple):
    """The place of one of our tensors in Marian."""

    key: str  # in the state dict of MarianMTModel
    axis: int | None  # the residual stream's axis, if the tensor has one


def _attention(ours: str, marian: str) -> Iterator[tuple[str, str, int | None, int | None]]:
    for our_part, marian_part, weight_axis, bias_axis in _ATTENTION:
        yield f"{ours}.{our_part}", f"{marian}.{marian_part}", weight_axis, bias_axis
    yield f"{ours}_norm", f"{marian}_layer_norm", 0, 0


def tensor_map(config: VanillaTransformerConfig) -> dict[str, MarianTensor]:
    """Map every tensor of the model to its place in Marian; what Marian ties, once.

    Args:
        config: the configuration of a model that Marian can represent.

    Returns:
        For each key of our state dict, the key and axis in `MarianMTModel`'s.
    """
    self_attention = tuple(_attention("self_attn", "self_attn"))
    cross_attention = tuple(_attention("cross_attn", "encoder_attn"))
    stacks = {
        "encoder": (config.encoder_layers, (*self_attention, *_FEED_FORWARD)),
        "decoder": (config.decoder_layers, (*self_attention, *cross_attention, *_FEED_FORWARD)),
    }
    source, target = (f"model.{stack}.embed_tokens.weight" for stack in stacks)
    tables = [source, target]
    if not config.tie_word_embeddings:  # Marian then has three tables
        tables = [source, target, "lm_head.weight"]
    elif config.share_encoder_decoder_embeddings:
        tables = ["model.shared.weight"]
    tensors = {key: MarianTensor(key, 1) for key in tables}
    if config.lm_head_bias:
        tensors["lm_head.bias"] = MarianTensor(LOGITS_BIAS, None)
    for stack, (num_layers, modules) in stacks.items():
        for layer in range(num_layers):
            prefix = f"model.{stack}.layers.{layer}"
            for ours, marian, weight_axis, bias_axis in modules:
                for part, axis in (("weight", weight_axis), ("bias", bias_axis)):
                    key = f"{prefix}.{marian}.{part}"
                    tensors[f"{prefix}.{ours}.{part}"] = MarianTensor(key, axis)
    return tensors


def marian_columns(d_model: int) -> torch.Tensor:
    """Return our residual-stream column for each of Marian's, (d,): the even, then the odd ones.

    The `argsort()` of the result is the inverse.
    """
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))
