# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""What a decoder layer attends to while hypotheses grow.

The hypotheses of one source are rows of one query, so the source's keys and values exist once per
source; a hypothesis' own keys and values are written once and stay where they are, and a mask says
which of them are its ancestors. Steps copy nothing that earlier ones have left, but every few
positions what is of no more use is left out.

Shapes: as in `incremental`.
"""

import torch
from torch import Tensor, nn

from .modeling_vanilla_transformer import DecoderLayer, MultiHeadAttention, eager_attention_forward


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
        self.buffer.narrow(-2, start, end - start).copy_(rows)
        self.length = end
        return self.view()

    def view(self) -> Tensor:
        """All rows so far, (B, ..., R, width)."""
        return self.buffer.narrow(-2, 0, self.length)

    def compact(self, places: Tensor) -> None:
        """Keeps of each source the rows at its places, (B, r)."""
        sources = torch.arange(len(places), device=places.device)[:, None]
        kept = self.view().movedim(-2, 1)[sources, places].movedim(1, -2)  # (B, ..., r, width)
        self.length = places.size(1)
        self.view().copy_(kept)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`, (B',), of which only those at `moved` change place."""
        if moved.numel():
            self.view()[moved] = self.view()[order[moved]]
        self.buffer = self.buffer[: order.numel()]


class FoldedSource:
    """Keys and values of a source with the projections around the attention folded into them.

    The score of a key is (x W^Q + b^Q) . k = x . (W^Q k) + b^Q . k, and what a value adds to the
    output is v W^O. For a short source W^Q k and v W^O, of all positions and heads, are fewer
    numbers than W^Q and W^O, and reading numbers is what a single sentence takes its time for.
    """

    @staticmethod
    def is_smaller(cross: MultiHeadAttention, keys: Tensor) -> bool:
        """Whether it is for these keys, (B, h, S, d_k)."""
        weights = cross.q_proj.weight.numel() + cross.out_proj.weight.numel()
        return 2 * keys[..., 0].numel() * cross.q_proj.in_features <= weights

    def __init__(self, cross: MultiHeadAttention, keys: Tensor, values: Tensor) -> None:
        """Folds them, given as (B, h, S, d_k) and (B, h, S, d_v)."""
        self.heads = cross.num_heads
        by_head = (self.heads, -1)
        w_q = cross.q_proj.weight.unflatten(0, by_head)  # (h, d_k, d)
        b_q = cross.q_proj.bias.unflatten(0, by_head)[..., None]  # (h, d_k, 1)
        w_o = cross.out_proj.weight.mT.unflatten(0, by_head)  # (h, d_v, d)
        keys = keys * cross.scaling
        self.keys = (keys @ w_q).flatten(1, 2)  # (B, h * S, d)
        self.bias = (keys @ b_q).flatten(1)[:, None]  # (B, 1, h * S)
        # The weights of a head sum to one, so that each position may bear the head's share of b^O.
        self.values = (values @ w_o + cross.out_proj.bias / self.heads).flatten(1, 2)

    def attend(
        self, x: Tensor, residual: Tensor, mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """The residual + what each hypothesis, (B, w, d), gets of the source: (B, w, d).

        See `LayerMemory.attend_to_source`.
        """
        scores = torch.baddbmm(self.bias, x, self.keys.mT).unflatten(2, (self.heads, -1))
        if mask is not None:
            scores += mask
        weights = scores.softmax(-1)  # (B, w, h, S)
        if alignments is not None:
            alignments.append(weights.mean(2))
        return torch.baddbmm(residual, weights.flatten(2), self.values)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`; see `GrowingRows.keep`."""
        self.keys, self.bias, self.values = (
            _kept(part, order, moved) for part in (self.keys, self.bias, self.values)
        )


class LayerMemory:
    """What one decoder layer attends to: keys and values of the target so far and of the source."""

    def __init__(self, layer: DecoderLayer, source: Tensor, room: int) -> None:
        self.own, self.cross = layer.self_attn, layer.cross_attn
        self.rows = GrowingRows(room)  # (B, h, R, d_k + d_v): each key beside its value
        self.source = tuple(  # (B, h, S, d_k), (B, h, S, d_v)
            part.contiguous() for part in self.cross.keys_and_values(source, None)
        )
        self.folded: FoldedSource | None = None

    def fold_source(self) -> None:
        """Folds the projections of plain linear layers into a source that is short enough."""
        if FoldedSource.is_smaller(self.cross, self.source[0]):
            self.folded, self.source = FoldedSource(self.cross, *self.source), ()

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
        if self.folded is not None:
            self.folded.keep(order, moved)


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
