# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""A decoder layer at one position, in as few calls as its formulas allow.

For the few rows of a decoding step, calling the modules of a layer one by one takes a third of the
time. Here their formulas are written out: queries, keys and values are one product, and what
follows a product, ReLU or residual, is a part of it.

Shapes: as in `incremental`.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .layer_memory import GrowingRows, LayerMemory
from .modeling_vanilla_transformer import DecoderLayer, MultiHeadAttention, PositionwiseFeedForward
from .prepacking import is_hooked, packable, packed_linear, packed_together

_KNOWN = {MultiHeadAttention, PositionwiseFeedForward, nn.Linear, nn.LayerNorm, nn.Dropout}


def is_fusable(layer: nn.Module) -> bool:
    """Whether the layer and all its parts are the plain ones, on which nobody acts."""
    if type(layer) is not DecoderLayer:
        return False
    activation = layer.feed_forward.activation  # is called, if it is no ReLU
    parts = [part for part in layer.modules() if part not in (layer, activation)]
    linears = [part for part in parts if isinstance(part, nn.Linear)]
    return all(type(part) in _KNOWN and not is_hooked(part) for part in parts) and all(
        packable(linear) and linear.bias is not None for linear in linears
    )


class FusedLayer:
    """A fusable layer and what it attends to."""

    def __init__(self, layer: DecoderLayer, memory: LayerMemory) -> None:
        """Packs the layer's weights, or takes those that were packed before."""
        own, cross, ffn = layer.self_attn, layer.cross_attn, layer.feed_forward
        self.memory, self.norm_first = memory, layer.norm_first
        self.widths = (own.q_proj.out_features, own.k_proj.out_features + own.v_proj.out_features)
        self.split_queries = functools.partial(own.split_heads, head_dim=own.d_k)
        self.split_rows = functools.partial(own.split_heads, head_dim=own.d_k + own.d_v)
        self.split_source_queries = functools.partial(cross.split_heads, head_dim=cross.d_k)
        self.qkv = packed_together(
            own, (own.q_proj, own.k_proj, own.v_proj), functools.partial(_by_head, own.num_heads)
        )
        self.out, self.fc1, self.fc2 = map(packed_linear, (own.out_proj, ffn.fc1, ffn.fc2))
        memory.fold_source()
        if memory.folded is None:
            self.source_query, self.source_out = map(packed_linear, (cross.q_proj, cross.out_proj))
        self.inner = self.fc1.relu
        if type(ffn.activation) is not nn.ReLU or is_hooked(ffn.activation):
            self.inner = lambda x: ffn.activation(self.fc1(x))
        self.own_norm, self.source_norm, self.ffn_norm = (
            _norm(part)
            for part in (layer.self_attn_norm, layer.cross_attn_norm, layer.feed_forward_norm)
        )

    def __call__(
        self, x: Tensor, mask: Tensor, source_mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """One layer of Section 3.1: (B, w, d) -> (B, w, d); see `PlainLayer`."""
        memory = self.memory

        def to_target(x: Tensor, residual: Tensor) -> Tensor:
            query, row = self.qkv(x).split_with_sizes(self.widths, dim=-1)
            heads = memory.attend(self.split_queries(query), self.split_rows(row), mask)
            return self.out.plus(heads, residual)

        def to_source(x: Tensor, residual: Tensor) -> Tensor:
            if memory.folded is not None:
                return memory.folded.attend(x, residual, source_mask, alignments)
            query = self.split_source_queries(self.source_query(x))
            return self.source_out.plus(
                memory.attend_to_source(query, source_mask, alignments), residual
            )

        def feed_forward(x: Tensor, residual: Tensor) -> Tensor:
            return self.fc2.plus(self.inner(x), residual)

        x = self._residual(x, to_target, self.own_norm)
        x = self._residual(x, to_source, self.source_norm)
        return self._residual(x, feed_forward, self.ffn_norm)

    def _residual(
        self,
        x: Tensor,
        sublayer: Callable[[Tensor, Tensor], Tensor],
        norm: Callable[[Tensor], Tensor],
    ) -> Tensor:
        return sublayer(norm(x), x) if self.norm_first else norm(sublayer(x, x))


def _by_head(heads: int, parts: list[Tensor]) -> Tensor:
    """Rows of queries, then for each head those of its keys and its values, (h * d, ...)."""
    query, *others = parts
    rows = torch.cat([part.unflatten(0, (heads, -1)) for part in others], dim=1).flatten(0, 1)
    return torch.cat((query, rows))


def _norm(module: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """The module's formula, without the calls around it."""
    shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
