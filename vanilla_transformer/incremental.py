# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The decoder of Section 3, one position at a time, for several hypotheses of each source.

Every module is the model's own, called as its layers call it. What differs is what they attend to:
the hypotheses of one source are rows of one query, so the source's keys and values exist once per
source; a hypothesis' own keys and values are written once and stay where they are, and a mask says
which of them are its ancestors. No step copies what earlier steps have left.

Shapes: B sources, w hypotheses of each, S source length, h heads, d_k and d_v widths of a head's
keys and values, d = d_model, V vocabulary, t positions so far, R rows written so far: a row for
each hypothesis at each position.
"""

import torch
from torch import Tensor, nn

from .modeling_vanilla_transformer import (
    DecoderLayer,
    MultiHeadAttention,
    VanillaTransformerForConditionalGeneration,
    eager_attention_forward,
)


def _forbidden(dtype: torch.dtype) -> float:
    """What is added to a score that must not count: no sum with it is -inf.

    -inf everywhere, as in a source that is all padding, would make NaN.
    """
    return torch.finfo(dtype).min / 2


class GrowingRows:
    """A tensor, (B, ..., R, width), that grows along R; it is copied only when its room doubles."""

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.buffer: Tensor | None = None

    def append(self, rows: Tensor) -> Tensor:
        """Writes rows, (B, ..., r, width), behind the others; returns a view of all of them."""
        start, end = self.length, self.length + rows.size(-2)
        if self.buffer is None or end > self.buffer.size(-2):
            self.room = max(end, 2 * self.room if self.buffer is not None else self.room)
            grown = rows.new_empty((*rows.shape[:-2], self.room, rows.size(-1)))
            if self.buffer is not None:
                grown[..., :start, :] = self.buffer[..., :start, :]
            self.buffer = grown
        self.buffer[..., start:end, :] = rows
        self.length = end
        return self.view()

    def view(self) -> Tensor:
        """All rows so far, (B, ..., R, width)."""
        return self.buffer[..., : self.length, :]

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`, (B',), of which only those at `moved` change place."""
        if moved.numel():
            self.view()[moved] = self.view()[order[moved]]
        self.buffer = self.buffer[: order.numel()]


class LayerMemory:
    """What one decoder layer attends to: keys and values of the target so far and of the source."""

    def __init__(self, layer: DecoderLayer, source: Tensor, room: int) -> None:
        self.keys, self.values = GrowingRows(room), GrowingRows(room)  # (B, h, R, d_k), (.., d_v)
        self.source = tuple(  # (B, h, S, d_k), (B, h, S, d_v)
            part.contiguous() for part in layer.cross_attn.keys_and_values(source, None)
        )

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`; see `GrowingRows.keep`."""
        for rows in (self.keys, self.values):
            rows.keep(order, moved)
        self.source = tuple(_kept(part, order, moved) for part in self.source)


def _kept(tensor: Tensor, order: Tensor, moved: Tensor) -> Tensor:
    if moved.numel():
        tensor[moved] = tensor[order[moved]]
    return tensor[: order.numel()]


def keep_order(keep: Tensor) -> Tensor:
    """Places of the rows to keep, (B',): those beyond B' in the places of those that leave."""
    kept = keep.nonzero().squeeze(1)
    order = torch.arange(kept.numel(), device=keep.device)
    holes = (~keep[: kept.numel()]).nonzero().squeeze(1)
    order[holes] = kept[kept.numel() - holes.numel() :]
    return order


def self_attention(
    attention: MultiHeadAttention, x: Tensor, memory: LayerMemory, mask: Tensor
) -> Tensor:
    """Each hypothesis, (B, w, d), attends to its ancestors and itself (Section 3.2.3)."""
    key, value = attention.keys_and_values(x, None)  # (B, h, w, d_k), (B, h, w, d_v)
    keys, values = memory.keys.append(key), memory.values.append(value)  # (B, h, R, .)
    return _attend(attention, x, keys, values, mask)


def source_attention(
    attention: MultiHeadAttention, x: Tensor, memory: LayerMemory, mask: Tensor | None
) -> Tensor:
    """Each hypothesis, (B, w, d), attends to the source (Section 3.2.3)."""
    return _attend(attention, x, *memory.source, mask)


def source_attention_with_weights(
    attention: MultiHeadAttention, x: Tensor, memory: LayerMemory, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """As `source_attention`, by the plain formula; also the weights, (B, h, w, S)."""
    query = attention.split_heads(attention.q_proj(x), attention.d_k)  # (B, h, w, d_k)
    heads, weights = eager_attention_forward(
        attention, query, *memory.source, mask, scaling=attention.scaling
    )  # (B, w, h, d_v), (B, h, w, S)
    return attention.out_proj(heads.flatten(2)), weights


def _attend(
    attention: MultiHeadAttention, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    query = attention.split_heads(attention.q_proj(x), attention.d_k)  # (B, h, w, d_k)
    # A whole formula in one call: for so few rows, calls are a good part of the time.
    heads = nn.functional.scaled_dot_product_attention(
        query, keys, values, mask, scale=attention.scaling
    )  # (B, h, w, d_v)
    return attention.out_proj(heads.transpose(1, 2).flatten(2))


class IncrementalDecoder:
    """Decoder and softmax of a model over encoded sources, called once for each position."""

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        source: Tensor,
        source_mask: Tensor | None,
        *,
        room: int,
        alignment_layer: int | None = None,
    ) -> None:
        """Computes what the decoder reads of the sources, once for all.

        Args:
            model: The model, in evaluation mode.
            source: The encoder's output, (B, S, d).
            source_mask: 1 at tokens, 0 at padding, (B, S); None where there is no padding.
            room: Rows to make room for at first; more is made as it is needed.
            alignment_layer: Decoder layer whose attention to the source is kept; None: none is.
        """
        self.decoder, self.lm_head = model.model.decoder, model.lm_head
        self.layers = [(layer, LayerMemory(layer, source, room)) for layer in self.decoder.layers]
        self.source_mask = None  # (B, 1, 1, S), added to the scores
        if source_mask is not None and not source_mask.bool().all():
            padding = source_mask[:, None, None, :] == 0
            self.source_mask = torch.zeros_like(padding, dtype=source.dtype)
            self.source_mask.masked_fill_(padding, _forbidden(source.dtype))
        self.alignment_layer = alignment_layer
        self.alignments = GrowingRows(room)  # (B, R, S)
        self.position, self.rows = 0, 0

    def step(self, tokens: Tensor, ancestors: Tensor) -> Tensor:
        """Logits of the next token, (B, w, V), after the last tokens of the hypotheses, (B, w).

        `ancestors`, (B, w, t), are the rows of each hypothesis at the earlier positions. Its row at
        this position is `rows`, as it was before the call, plus its number.
        """
        batch, width = tokens.shape
        x = self.decoder.embed(tokens.reshape(-1, 1), None, None, self.position)
        x = x.view(batch, width, -1)  # (B, w, d)
        rows = self.rows + width
        # In the dtype of what it masks: the fused attention of a CPU misreads a narrower one.
        mask = x.new_full((batch, 1, width, rows), _forbidden(x.dtype))
        mask.scatter_(3, ancestors[:, None], 0.0)
        mask.diagonal(self.rows, 2, 3).zero_()  # (B, 1, w, R): ancestors and itself
        for number, (layer, memory) in enumerate(self.layers):
            x = self._layer(layer, x, memory, mask, is_kept=number == self.alignment_layer)
        self.position, self.rows = self.position + 1, rows
        return self.lm_head(self.decoder.norm(x))

    def _layer(
        self, layer: DecoderLayer, x: Tensor, memory: LayerMemory, mask: Tensor, *, is_kept: bool
    ) -> Tensor:
        """One layer of Section 3.1: (B, w, d) -> (B, w, d); its alignments are kept or not."""

        def to_target(x: Tensor) -> Tensor:
            return self_attention(layer.self_attn, x, memory, mask)

        def to_source(x: Tensor) -> Tensor:
            if not is_kept:
                return source_attention(layer.cross_attn, x, memory, self.source_mask)
            output, weights = source_attention_with_weights(
                layer.cross_attn, x, memory, self.source_mask
            )
            self.alignments.append(weights.mean(1))  # over the heads
            return output

        x = layer.residual(x, to_target, layer.self_attn_norm)
        x = layer.residual(x, to_source, layer.cross_attn_norm)
        return layer.residual(x, layer.feed_forward, layer.feed_forward_norm)

    def keep(self, order: Tensor) -> None:
        """Keeps the sources of `order`, (B',); the others leave the batch.

        Those of its places below B' that stay are where they were, so that few rows move.
        """
        moved = (order != torch.arange(order.numel(), device=order.device)).nonzero().squeeze(1)
        for _, memory in self.layers:
            memory.keep(order, moved)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[order]
        if self.alignment_layer is not None:
            self.alignments.keep(order, moved)

    def alignments_of(self, sources: Tensor, rows: Tensor) -> Tensor:
        """Weights on the source, (b, n, t, S), at rows, (b, n, t), of the sources marked, (B,).

        Zeros where a row is negative.
        """
        weights = self.alignments.view()[sources]  # (b, R, S)
        index = rows.clamp(min=0).flatten(1)[..., None].expand(-1, -1, weights.size(-1))
        picked = weights.gather(1, index).unflatten(1, rows.shape[1:])  # (b, n, t, S)
        return picked.masked_fill(rows[..., None] < 0, 0)
