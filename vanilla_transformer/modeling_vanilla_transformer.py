# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017, arXiv 1706.03762).

The file follows Section 3 of the paper: stacks of layers (3.1), attention (3.2), feed-forward
networks (3.3), positions (3.5), embeddings and softmax (3.4), and with them the whole model.

Shapes: B batch, S source length, T target length, L length of the keys, h heads, d_k and d_v widths
of a head's keys and values, d = d_model, V vocabulary. Users' masks are 1 at tokens, 0 at padding;
the layers' masks are described at Eq. 1. The memory is the encoder's output.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions as DecoderOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import can_return_tuple, is_tracing
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .errors import RequestError
from .generation_limits import CACHE, LimitedGenerationMixin, one_cache
from .input_checks import Flags, check_mask, check_masked, check_read
from .loss import IGNORED, is_only_weight, smoothed_cross_entropy
from .masks import mask_for_all_layers, mask_gaps

# ------------------------------------------------------ Section 3.1: encoder and decoder stacks


class Layer(GradientCheckpointingLayer):
    """Base class of both stacks' layers: self-attention, feed-forward, residual connections."""

    def __init__(
        self, config: VanillaTransformerConfig, heads: int, ffn_dim: int, *, is_causal: bool
    ) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.dropout = nn.Dropout(config.dropout)  # Section 5.4
        self.self_attn = MultiHeadAttention(config, heads, is_causal=is_causal)
        self.self_attn_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.feed_forward = PositionwiseFeedForward(config, ffn_dim)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def residual(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.LayerNorm
    ) -> Tensor:
        """LayerNorm(x + Sublayer(x)), (B, T, d); with norm_first x + Sublayer(LayerNorm(x))."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x).to(x.dtype)))
        # Post-norm, as in the paper. Autocast makes norms float32 on GPUs; x keeps its dtype.
        return norm(x + self.dropout(sublayer(x))).to(x.dtype)


class EncoderLayer(Layer):
    """One encoder layer: self-attention, then the feed-forward network."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        heads = config.encoder_attention_heads
        super().__init__(config, heads, config.encoder_ffn_dim, is_causal=False)

    def forward(self, x: Tensor, mask: Tensor | None, /, **kwargs: object) -> Tensor:
        """Map source states to new ones, (B, S, d); the mask is (B, 1, 1 or S, S) or None."""
        x = self.residual(x, lambda x: self.self_attn(x, mask, **kwargs)[0], self.self_attn_norm)
        return self.residual(x, self.feed_forward, self.feed_forward_norm)


class DecoderLayer(Layer):
    """One decoder layer: masked self-attention, cross-attention to the encoder, feed-forward."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        heads = config.decoder_attention_heads
        super().__init__(config, heads, config.decoder_ffn_dim, is_causal=True)
        self.cross_attn = MultiHeadAttention(config, heads, is_cross=True)
        self.cross_attn_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor,
        memory_mask: Tensor | None,
        /,
        **kwargs: object,
    ) -> Tensor:
        """Map target states, (B, T, d), to new ones, attending to the memory, (B, S, d)."""
        x = self.residual(x, lambda x: self.self_attn(x, mask, **kwargs)[0], self.self_attn_norm)
        x = self.residual(
            x, lambda x: self.cross_attn(x, memory_mask, memory, **kwargs)[0], self.cross_attn_norm
        )
        return self.residual(x, self.feed_forward, self.feed_forward_norm)


# -------------------------------------------------------------------------- Section 3.2: attention


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, Tensor]:
    """Return Eq. 1, softmax(Q K^T / sqrt(d_k)) V, and the attention weights.

    Q is (B, h, T, d_k), K (B, h, L, d_k), V (B, h, L, d_v), scaling 1 / sqrt(d_k). The mask,
    (B, 1, 1 or T, L), is 0 where attention is allowed and the most negative number where it is not,
    or as for `sdpa` True and False; None masks nothing. Returns the heads' outputs, (B, T, h, d_v),
    and the weights, (B, h, T, L).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling  # (B, h, T, L)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        # In float16 a score plus the most negative number is -inf; softmax of only -inf is NaN.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) + attention_mask
    weights = scores.softmax(dim=-1).to(value.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights  # (B, T, h, d_v)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Section 3.2.2), in its three uses (Section 3.2.3).

    Queries come from x; keys and values from x too (self-attention, causal in the decoder), or
    from the memory (cross-attention).
    """

    def __init__(
        self,
        config: VanillaTransformerConfig,
        num_heads: int,
        *,
        is_causal: bool = False,
        is_cross: bool = False,
    ) -> None:
        super().__init__()
        self.config, self.num_heads = config, num_heads
        self.d_k, self.d_v = config.head_dims(num_heads)
        self.scaling = self.d_k**-0.5  # of one head's d_k, not of d_model
        self.attention_dropout = config.attention_dropout
        self.is_causal, self.is_cross = is_causal, is_cross
        # Deviation: with biases, as in the authors' code; the paper's projections have none.
        self.q_proj = nn.Linear(config.d_model, num_heads * self.d_k)  # W^Q of all heads
        self.k_proj = nn.Linear(config.d_model, num_heads * self.d_k)  # W^K
        self.v_proj = nn.Linear(config.d_model, num_heads * self.d_v)  # W^V
        self.out_proj = nn.Linear(num_heads * self.d_v, config.d_model)  # W^O
        # The authors draw Q, K and V as one Glorot-uniform matrix (in cross-attention K and V), so
        # that each of its parts has the smaller variance of the whole.
        parts = (self.k_proj, self.v_proj) if is_cross else (self.q_proj, self.k_proj, self.v_proj)
        fan_in, fan_out = config.d_model, sum(part.out_features for part in parts)
        for part in parts:
            gain = math.sqrt((fan_in + part.out_features) / (fan_in + fan_out))
            part.init_gain = gain  # type: ignore[assignment]  # not a tensor

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        memory: Tensor | None = None,
        /,
        past: tuple[EncoderDecoderCache, int] | None = None,  # the cache, this layer's index in it
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute Concat(head_1, ..., head_h) W^O.

        x, (B, T, d), attends to itself, or in cross-attention to the memory, (B, L, d), where the
        mask, (B, 1, 1 or T, L), allows it. Returns the output, (B, T, d), and the weights,
        (B, h, T, L), if the implementation has them. Raises ValueError for kwargs it does not read.
        """
        query = self.split_heads(self.q_proj(x), self.d_k)  # (B, h, T, d_k)
        attended = memory if self.is_cross else x
        key, value = self.keys_and_values(attended, past)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.attention_dropout if self.training else 0.0
        own = {"scaling": self.scaling, "dropout": dropout, "is_causal": self.is_causal}
        check_read(kwargs, attend)  # refuses options that nothing reads
        heads, weights = attend(self, query, key, value, attention_mask, **own | kwargs)
        return self.out_proj(heads.flatten(2)), weights  # from (B, T, h, d_v)

    def split_heads(self, x: Tensor, head_dim: int) -> Tensor:
        """(B, L, h * head_dim) -> (B, h, L, head_dim): each head is a slice of the projection."""
        return x.view(*x.shape[:2], self.num_heads, head_dim).transpose(1, 2)

    def keys_and_values(
        self, attended: Tensor | None, past: tuple[Any, int] | None
    ) -> tuple[Tensor, Tensor]:
        """Project (B, L, d) to (B, h, L, d_k) and (B, h, L, d_v); a cache adds earlier ones."""
        cache, layer = past or (None, 0)
        if cache is not None and self.is_cross and cache.is_updated.get(layer):
            cached = cache.cross_attention_cache.layers[layer]
            return cached.keys, cached.values
        key = self.split_heads(self.k_proj(attended), self.d_k)
        value = self.split_heads(self.v_proj(attended), self.d_v)
        if cache is None:
            return key, value
        if not self.is_cross:
            return cache.self_attention_cache.update(key, value, layer)
        cache.is_updated[layer] = True
        return cache.cross_attention_cache.update(key, value, layer)


# ----------------------------------------------- Section 3.3: position-wise feed-forward networks


class PositionwiseFeedForward(nn.Module):
    """Eq. 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, config: VanillaTransformerConfig, ffn_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.activation = ACT2FN[config.activation_function]  # ReLU: max(0, x)
        self.dropout = nn.Dropout(config.activation_dropout)  # the paper has none here

    def forward(self, x: Tensor) -> Tensor:
        """Compute Eq. 2: (B, T, d) -> (B, T, d)."""
        return self.fc2(self.dropout(self.activation(self.fc1(x))))


# --------------------------------------------------------------- Section 3.5: positional encoding


def sinusoids(positions: Tensor, d_model: int, *, style: str = "sinusoidal") -> Tensor:
    """Return the sinusoids of Section 3.5, for any positions.

    PE(pos, 2i) = sin(pos / 10000^(2i / d)) and PE(pos, 2i+1) = cos(pos / 10000^(2i / d)).
    `style="tensor2tensor"` follows the authors' code: all sines, then all cosines, with
    wavelengths that reach 10000 * 2 pi exactly, and zeros in the last column of an odd d.
    Positions are integers, (..., T); the result is (..., T, d), float64 if the device has it.
    """
    # The sine of a large position needs more digits than float32 has.
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    pairs = torch.arange(d_model // 2, dtype=dtype, device=positions.device)
    steps = d_model / 2 if style == "sinusoidal" else max(d_model // 2 - 1, 1)
    frequencies = torch.exp(pairs * (-math.log(10000.0) / steps))  # from 1 to 1/10000, (d / 2,)
    angles = positions[..., None].to(dtype) * frequencies  # (..., T, d / 2)
    if style == "sinusoidal":
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (..., T, d)
    return nn.functional.pad(torch.cat((angles.sin(), angles.cos()), dim=-1), (0, d_model % 2))


class PositionalEncoding(nn.Module):
    """Positional encodings (Section 3.5): sinusoids for any length, or a learned table (Table 3 E).

    The sinusoids of the first positions are kept in a table, which grows as needed.
    """

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__()
        self.d_model, self.offset = config.d_model, config.position_offset
        self.style = config.position_encoding
        self.table: tuple[tuple, Tensor] = ((), torch.empty(0))  # settings and sinusoids; not saved
        if self.style == "learned":
            self.weight = nn.Parameter(torch.empty(config.max_position_embeddings, config.d_model))

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, past_length: int | Tensor
    ) -> Tensor:
        """Return the encodings, (T, d) or (B, T, d), of x, which follows `past_length` positions.

        With a mask, (B, past + T), only tokens are counted, so that padding on the left means the
        same as padding on the right; with a mask of four dimensions, padding is counted too. Raises
        ValueError beyond the end of a learned table, unless `past_length` is a tensor, as in static
        caches: reading it would synchronize the device.
        """
        length = x.size(1)
        if attention_mask is not None and attention_mask.dim() == 2:
            positions = attention_mask.bool().long().cumsum(-1) - 1
            positions = positions.clamp(min=0)[:, -length:]  # (B, T)
        elif self.style != "learned" and isinstance(past_length, int) and not is_tracing(x):
            return self.first(past_length + length, x)[past_length:]  # (T, d)
        else:
            positions = torch.arange(length, device=x.device) + past_length  # (T,)
        if self.style != "learned":
            return sinusoids(positions + self.offset, self.d_model, style=self.style).to(x.dtype)
        width = past_length + length if isinstance(past_length, int) else 0  # including padding
        if width > len(self.weight) and (tokens := positions.max() + 1) > len(self.weight):
            learned = f"only max_position_embeddings={len(self.weight)} positions were learned"
            raise RequestError(f"The sequence has {tokens} tokens, but {learned}; shorten it.")
        return nn.functional.embedding(positions, self.weight)

    def first(self, count: int, x: Tensor) -> Tensor:
        """Return the sinusoids of the first positions, (count, d), in the dtype of x."""
        made_of, table = self.table
        wanted = (sinusoids, self.style, self.offset, x.device)  # all that sinusoids depend on
        if made_of != wanted or len(table) < count:
            positions = torch.arange(2 * count, device=x.device) + self.offset
            table = sinusoids(positions, self.d_model, style=self.style)
            self.table = wanted, table
        return table[:count].to(x.dtype)


# ---------------------------------------- Section 3.4: embeddings and softmax, and the whole model


class VanillaTransformerPreTrainedModel(PreTrainedModel):
    """Base class of the models: configuration, initialization and supported features."""

    config: VanillaTransformerConfig
    base_model_prefix = "model"
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]
    _skip_keys_device_placement = ["cache", "past_key_values"]
    _supports_sdpa = _supports_flex_attn = True  # flash attention misreads padded sources
    supports_gradient_checkpointing = _supports_attention_backend = _can_compile_fullgraph = True

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize as the authors' code does; the paper does not say how.

        Matrices are Glorot-uniform with zero biases, embeddings N(0, 1 / d_model), so that scaled
        by sqrt(d_model) they have the size of the sinusoids.
        """
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight, gain=getattr(module, "init_gain", 1.0))
        elif isinstance(module, nn.Embedding | PositionalEncoding) and hasattr(module, "weight"):
            init.normal_(module.weight, std=self.config.d_model**-0.5)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the shared vocabulary as in transformers; separate ones cannot be resized."""
        if not self.config.share_encoder_decoder_embeddings:
            raise RequestError("Separate source and target vocabularies cannot be resized.")
        self.config.decoder_vocab_size = None  # there is only vocab_size
        return super().resize_token_embeddings(*args, **kwargs)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does; warn that a custom attention function is not saved."""
        name = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention_forward)
        if str(attend.__module__).split(".")[0] not in ("transformers", __name__.split(".")[0]):
            remedy = f"give from_pretrained attn_implementation={name!r}, or it will use Eq. 1"
            warnings.warn(f"The attention {name!r} is not saved; {remedy}.", stacklevel=2)
        super().save_pretrained(*args, **kwargs)


class Stack(VanillaTransformerPreTrainedModel):
    """Base class of encoder and decoder: embeddings plus positions, dropout, then N layers."""

    def __init__(self, config: VanillaTransformerConfig, size: int, layers: list[Layer]) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(size, config.d_model)
        self.embed_positions = PositionalEncoding(config)
        self.dropout = nn.Dropout(config.dropout)  # Section 5.4: on the sums in both stacks
        self.layers = nn.ModuleList(layers)
        self.norm: nn.Module = nn.Identity()  # the paper has no norm after the last layer's
        if config.norm_first or config.final_norm:
            self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def embed(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        past_length: int | Tensor = 0,
    ) -> Tensor:
        """Add embeddings times sqrt(d_model) (Section 3.4) and positional encodings, (B, T, d)."""
        name = type(self).__name__
        if (input_ids is None) == (inputs_embeds is None):
            raise RequestError(
                f"{name} needs either ids or embeddings. If Trainer removed the labels (as with "
                "label_smoothing_factor), collate with DataCollatorForSeq2Seq(tokenizer, model)."
            )
        check_masked(self.config._attn_implementation)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        rows, length, _ = inputs_embeds.shape
        width = past_length + length if isinstance(past_length, int) else None
        check_mask(attention_mask, rows, width, f"{name} attention_mask")
        x = inputs_embeds * math.sqrt(self.config.d_model)
        return self.dropout(x + self.embed_positions(x, attention_mask, past_length))


class Encoder(Stack):
    """The encoder: N layers over the embedded source (Section 3.1)."""

    _can_record_outputs = {"hidden_states": EncoderLayer, "attentions": MultiHeadAttention}

    def __init__(self, config: VanillaTransformerConfig) -> None:
        layers: list[Layer] = [EncoderLayer(config) for _ in range(config.encoder_layers)]
        super().__init__(config, config.vocab_size, layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: object,
    ) -> BaseModelOutput:
        """Encode source ids, (B, S), or unscaled embeddings, (B, S, d), under a mask, (B, S).

        Returns `last_hidden_state`, (B, S, d); kwargs can ask for `attentions`, `hidden_states`.
        """
        # The decoder needs no check: its padding is at the end, where the causal mask hides it.
        if input_ids is not None and not input_ids.is_meta:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        x = self.embed(input_ids, inputs_embeds, attention_mask)
        mask = create_bidirectional_mask(self.config, x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask, **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class Decoder(Stack):
    """The decoder: N layers over the embedded target, which also attend to the encoder's output."""

    _can_record_outputs = {
        "hidden_states": DecoderLayer,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig) -> None:
        layers: list[Layer] = [DecoderLayer(config) for _ in range(config.decoder_layers)]
        super().__init__(config, config.target_vocab_size, layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        past_key_values: Cache | None = None,
        **kwargs: object,
    ) -> DecoderOutput:
        """Decode target ids shifted right, (B, T); with a cache, only the new ones.

        Each position sees the ones before it, under a mask, (B, past + T), and the encoder's
        output, (B, S, d), under the mask of the source, (B, S). Returns `last_hidden_state`,
        (B, T, d), and the cache; kwargs can ask for `attentions`, `hidden_states`.
        """
        cache = one_cache(cache, past_key_values, make=use_cache)  # by either of its two names
        replays = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        if replays and cache is not None:  # each layer would fill the cache twice
            raise RequestError("Got a cache in training with gradient checkpointing; leave it out.")
        own_cache = cache.self_attention_cache if cache is not None else None
        past_length = own_cache.get_seq_length() if own_cache is not None else 0
        x = self.embed(input_ids, inputs_embeds, attention_mask, past_length)
        mask = create_causal_mask(self.config, x, attention_mask, own_cache)
        memory, source_mask = encoder_hidden_states, encoder_attention_mask
        if memory is None:
            raise RequestError("The decoder needs encoder_hidden_states, the encoder's output.")
        rows, length, _ = memory.shape
        check_mask(source_mask, rows, length, "Decoder encoder_attention_mask")
        memory_mask = create_bidirectional_mask(self.config, x, source_mask, memory)
        for index, layer in enumerate(self.layers):
            past = None if cache is None else (cache, index)
            x = layer(x, mask, memory, memory_mask, past=past, **kwargs)
        return DecoderOutput(self.norm(x), cache)  # by position: the cache has two names


class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
    """Encoder and decoder over one shared embedding table (Figure 1 without the softmax)."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model)
            self._tied_weights_keys = {
                f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")
            }
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return the tied embeddings: `tie_word_embeddings` affects only the softmax, not these."""
        return dict(self._tied_weights_keys or {})

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the source's table, which both stacks share by default."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:  # type: ignore[override]
        """Replace the shared table, or the source's if each language has its own."""
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = self.shared = value
        self.encoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[Flags],
    ) -> Seq2SeqModelOutput:
        """Run both stacks; arguments as in `VanillaTransformerForConditionalGeneration`.

        Returns the decoder's `last_hidden_state`, (B, T, d), and the encoder's, (B, S, d).
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        if isinstance(encoder_outputs, (tuple, list)):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        outputs = self.decoder(
            decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=one_cache(cache, past_key_values),
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
            **{CACHE: outputs.get(CACHE)},
        )


class VanillaTransformerForConditionalGeneration(
    VanillaTransformerPreTrainedModel, LimitedGenerationMixin
):
    """The whole Transformer of Figure 1: encoder, decoder, and the softmax over the vocabulary."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        super().__init__(config)
        table = "shared" if config.share_encoder_decoder_embeddings else "decoder.embed_tokens"
        self._tied_weights_keys = {"lm_head.weight": f"model.{table}.weight"}
        self.model = VanillaTransformerModel(config)
        self.lm_head = nn.Linear(config.d_model, config.target_vocab_size, bias=config.lm_head_bias)
        # Section 3.4: tied. Untied, it is drawn with the variance of the embedding it replaces.
        self.lm_head.init_gain = math.sqrt((self.lm_head.out_features / config.d_model + 1) / 2)
        self.post_init()
        # Padding, start and unknown are never produced; training adds the beam size of Section 6.1.
        self.generation_config.suppress_tokens = config.ids_outside_of_text()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        right_padded: bool = False,
        return_dict: bool | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[Flags],
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """Return next-token logits, and the loss if there are labels.

        Args:
            input_ids: Source ids, (B, S).
            attention_mask: Mask of the source, 1 at tokens and 0 at padding, (B, S).
            decoder_input_ids: Target ids shifted right, (B, T), else made from labels. -100 before
                a token is a gap, which is skipped: packed or prompted targets have such labels.
            decoder_attention_mask: Mask of the target, (B, past + T). Right padding needs none.
            encoder_outputs: The encoder's output for this source, if it is known already.
            cache: Keys and values of earlier target positions.
            inputs_embeds: Unscaled embeddings instead of source ids, (B, S, d).
            decoder_inputs_embeds: Unscaled embeddings instead of target ids, (B, T, d).
            labels: Gold target ids, not shifted, (B, T), -100 or padding where there is none.
            use_cache: Return the cache for the next step; never with labels.
            return_logits: Whether to compute the logits. None: not in training with labels, where
                the loss avoids this largest of all tensors, but always for a tuple.
            num_items_in_batch: Number of labels other than -100 in the whole update, as Trainer
                counts them, if more than in this batch. It also counts labels that are padding ids;
                their share is estimated from this batch.
            right_padded: Whether padding stands at the ends of rows only, without gaps, and is -100
                in labels. A GPU then need not synchronize to look for padding and gaps.
            return_dict: False: return a tuple.
            past_key_values: What transformers before 5.24 call the cache.
            **kwargs: Only `output_attentions`, `output_hidden_states`, options of the attention.

        Returns:
            `logits`, (B, T, V), and `loss` in nats per label: smoothed in training mode, plain in
            evaluation mode (its exponential is the paper's perplexity). The rest as the base model.
        """
        if labels is not None:
            use_cache, given = False, labels
            labels = labels if right_padded else self.without_padding(labels)
            if num_items_in_batch is not None and not right_padded:  # some labels may be padding
                share = (labels != IGNORED).sum() / (given != IGNORED).sum().clamp(min=1)
                num_items_in_batch = num_items_in_batch * share
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        cache = one_cache(cache, past_key_values)
        if right_padded:
            attends = self.config._attn_implementation
            attention_mask = mask_for_all_layers(attention_mask, attends, self.dtype)
        # Not when generating with a cache: later steps would not know which of its keys are gaps.
        elif decoder_input_ids is not None and (cache is None or labels is not None):
            decoder_input_ids, decoder_attention_mask = mask_gaps(
                decoder_input_ids,
                decoder_attention_mask,
                filler=self.config.pad_token_id,
                cached=0 if cache is None else cache.get_seq_length(),
            )
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state  # (B, T, d)
        loss = logits = None
        if return_logits is None:  # without logits, the other entries of a tuple would move
            return_logits = labels is None or not self.training or return_dict is False
        # A plain head is only a matrix, which the loss can multiply chunk by chunk.
        if return_logits or not is_only_weight(self.lm_head):
            logits = self.lm_head(hidden_states)  # (B, T, V)
        if labels is not None:  # Section 5.4
            eps = self.config.label_smoothing if self.training else 0.0
            x, table = (hidden_states, self.lm_head.weight) if logits is None else (logits, None)
            loss = smoothed_cross_entropy(
                x, table, labels, label_smoothing=eps, num_items=num_items_in_batch
            )
        rest = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        output = Seq2SeqLMOutput(loss=loss, logits=logits, **rest)
        return output.to_tuple() if return_dict is False else output

    def without_padding(self, labels: Tensor) -> Tensor:
        """Replace padding in labels, (B, T), by -100, unless its id also ends sentences."""
        padding = self.config.pad_token_id
        is_end = padding not in self.config.ids_outside_of_text()
        return labels if is_end else labels.masked_fill(labels == padding, IGNORED)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift labels, (B, T), right by one, after the start token (Section 3.1).

        Labels are shifted past gaps, which stay -100; after the last label comes padding.
        """
        labels = self.without_padding(labels)
        is_gap = labels == IGNORED
        rank = (~is_gap).cumsum(1)  # labels so far, (B, T)
        # The start token, then the labels in order. Gaps go to index 0, which the start overwrites.
        packed = labels.new_zeros(len(labels), 1 + labels.size(1))  # (B, 1 + T)
        packed.scatter_(1, rank.masked_fill(is_gap, 0), labels)
        packed[:, 0] = self.config.decoder_start_token_id
        shifted = packed.gather(1, rank - (~is_gap).long())
        follows_gap = nn.functional.pad(is_gap, (1, -1))
        shifted = shifted.masked_fill(is_gap & follows_gap, self.config.pad_token_id)
        return shifted.masked_fill(is_gap & (rank < rank[:, -1:]), IGNORED)
