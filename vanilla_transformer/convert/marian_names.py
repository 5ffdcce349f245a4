"""Map from our tensors and configuration to Marian's, for importers and exporters.

fairseq and FSMT use Marian's names inside the layers and other names outside them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import MarianConfig

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from .layer_names import STACKS, LayerNames

# Fields that mean the same in our configuration and in Marian's.
_BOTH = VanillaTransformerConfig.__annotations__.keys() & MarianConfig.__annotations__.keys()
SHARED_FIELDS = _BOTH - {"decoder_vocab_size", "is_encoder_decoder"} | {"unk_token_id"}
# Marian's fields that make it compute the paper's model.
MARIAN_FIELDS: dict[str, Any] = {
    "scale_embedding": True,  # Section 3.4
    "forced_eos_token_id": None,  # Marian's default is an id of its own vocabularies
}
MARIAN_NORM_EPS = 1e-5  # fixed in Marian's code
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
# Modules whose matrices have d_model as their columns; in all others it is the rows.
_READING = (
    *("q_proj", "k_proj", "v_proj", "fc1"),
    *("shared", "embed_tokens", "embed_positions", "lm_head"),
)


def tensor_names(config: VanillaTransformerConfig) -> dict[str, str]:
    """Map the tensors of our model to their names in Marian; tied tensors are listed once.

    Args:
        config: The configuration of a model that Marian can represent.
    """
    source, target = (f"model.{stack}.embed_tokens.weight" for stack in STACKS)
    tables = [source, target]
    if not config.tie_word_embeddings:  # Marian then has three tables
        tables = [source, target, "lm_head.weight"]
    elif config.share_encoder_decoder_embeddings:
        tables = ["model.shared.weight"]
    names = {key: key for key in tables}
    if config.lm_head_bias:
        names["lm_head.bias"] = LOGITS_BIAS
    return names | MARIAN_LAYERS.tensors(config)


def reordered(
    tensors: Mapping[str, torch.Tensor], d_model: int, *, from_marian: bool = False
) -> dict[str, torch.Tensor]:
    """Permute d_model in all tensors, which have Marian's names: even columns first, then odd ones.

    Marian's sinusoids are all sines, then all cosines. Tensors without that dimension are not
    changed. `from_marian` is the inverse.
    """
    columns = torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))
    columns = columns.argsort() if from_marian else columns
    found = dict(tensors)
    for name, tensor in tensors.items():
        # The biases of the modules in _READING have no dimension of d_model.
        axis = 1 if name.split(".")[-2:][0] in _READING else 0
        if tensor.dim() > axis and tensor.size(axis) == d_model and name != LOGITS_BIAS:
            found[name] = tensor.index_select(axis, columns.to(tensor.device))
    return found


def marian_config(config: VanillaTransformerConfig) -> MarianConfig:
    """Return Marian's configuration of the same model."""
    fields: dict[str, Any] = {field: getattr(config, field) for field in SHARED_FIELDS}
    fields["share_encoder_decoder_embeddings"] &= config.tie_word_embeddings
    return MarianConfig(
        **fields, **MARIAN_FIELDS, decoder_vocab_size=config.target_vocab_size, dtype=config.dtype
    )


def other_head_widths(config: VanillaTransformerConfig) -> Iterator[str]:
    """Yield head widths other than d_model / h, which Marian's configuration cannot express."""
    for stack in STACKS:
        heads = getattr(config, f"{stack}_attention_heads")
        d_k, d_v = config.head_dims(heads)
        if d_k * heads != config.d_model or d_v * heads != config.d_model:
            width = f"allowed {config.d_model / heads:g}"
            yield f"d_k={d_k} and d_v={d_v} with {heads} {stack} heads; {width}"
