# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""What a decoder layer attends to while hypotheses grow.

The hypotheses of one source are rows of one query, so the source's keys and values exist once per
source; a hypothesis' own keys and values are written once and stay where they are, and a mask says
which of them are its ancestors. No step copies what earlier steps have left.

Shapes: as in `incremental`.
"""

from torch import Tensor, nn

from .modeling_vanilla_transformer import DecoderLayer, eager_attention_forward


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
        self.own, self.cross = layer.self_attn, layer.cross_attn
        self.rows = GrowingRows(room)  # (B, h, R, d_k + d_v): each key beside its value
        self.source = tuple(  # (B, h, S, d_k), (B, h, S, d_v)
            part.contiguous() for part in self.cross.keys_and_values(source, None)
        )

    def attend(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Each hypothesis to its ancestors and itself (Section 3.2.3), all heads: (B, w, h * d_v).

        Queries are (B, h, w, d_k); the hypotheses' own keys and values, (B, h, w, d_k + d_v), are
        written behind the others; the mask, (B, 1, w, R), is added to the scores.
        """
        keys, values = self.rows.append(rows).split_with_sizes((self.own.d_k, self.own.d_v), dim=-1)
        return _attend(query, keys, values, mask, self.own.scaling)

    def attend_to_source(
        self, query: Tensor, mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """Each hypothesis to the source, all heads: (B, w, h * d_v).

        The mean of the heads' weights, (B, w, S), is added to the alignments, if there are any.
        """
        if alignments is None:
            return _attend(query, *self.source, mask, self.cross.scaling)
        heads, weights = eager_attention_forward(
            self.cross, query, *self.source, mask, scaling=self.cross.scaling
        )  # (B, w, h, d_v), (B, h, w, S)
        alignments.append(weights.mean(1))
        return heads.flatten(2)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`; see `GrowingRows.keep`."""
        self.rows.keep(order, moved)
        self.source = tuple(_kept(part, order, moved) for part in self.source)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float
) -> Tensor:
    # A whole formula in one call: for so few rows, calls are a good part of the time.
    heads = nn.functional.scaled_dot_product_attention(
        query, keys, values, mask, scale=scaling
    )  # (B, h, w, d_v)
    return heads.transpose(1, 2).flatten(2)


def _kept(tensor: Tensor, order: Tensor, moved: Tensor) -> Tensor:
    if moved.numel():
        tensor[moved] = tensor[order[moved]]
    return tensor[: order.numel()]
