"""The decoder of Section 3, one position at a time, for several hypotheses of each source.

The hypotheses of one source are rows of one query, so the source's keys and values exist once per
source; a hypothesis' own keys and values are written once and stay where they are, and a mask says
which of them are its ancestors. Steps copy nothing that earlier ones have left, but every few
positions keys and values of hypotheses that died out are dropped.

`FusedLayer` computes a layer in as few calls as its formulas allow: for the few rows of a decoding
step, calling its modules one by one takes a third of the time. `ModuleLayer` calls them.

Shapes: B sources, w hypotheses of each, S source length, h heads, d_k and d_v widths of a head's
keys and values, d = d_model, V vocabulary, t positions so far, R rows: one for each hypothesis at
each position, in layers without those that were dropped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..beam_search import Inputs, weights_at
from ..modeling_vanilla_transformer import (
    DecoderLayer,
    MultiHeadAttention,
    VanillaTransformerForConditionalGeneration,
    eager_attention_forward,
)
from .onednn import packable, packed_linear, packed_linears, packed_together
from .plain import is_plain

FIRST_POSITIONS = 32  # for which keys and values have room at first
MANY_HEADS = 32  # of all sources of a batch; for fewer the host's fused attention is faster
FORGET_EVERY = 8  # positions between two looks for keys and values that are of no more use


def incremental_decoder(
    model: PreTrainedModel,
    inputs: Inputs,
    *,
    width: int,
    length: int,
    alignment_layer: int | None,
    prepack: bool,
) -> IncrementalDecoder | None:
    """A decoder for `beam_search`; None for a model that somebody has changed.

    Args:
        model: The model, in evaluation mode.
        inputs: The sources.
        width: Most hypotheses of each source.
        length: Most positions.
        alignment_layer: Decoder layer whose attention to the source is kept; None: none is.
        prepack: Whether to compute with packed weights, of which a copy is kept.
    """
    if not is_plain(model):
        return None
    states = inputs.encoder_outputs
    with packed_linears(*([model.model] if prepack else [])):  # for what is computed of the source
        if states is None:
            states = model.model.encoder(inputs.input_ids, attention_mask=inputs.attention_mask)
        return IncrementalDecoder(
            model,
            states[0],
            inputs.attention_mask,
            width=width,
            length=length,
            alignment_layer=alignment_layer,
            fuse=prepack,
        )


class IncrementalDecoder:
    """Decoder and softmax of a model over encoded sources, called once for each position."""

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        source: Tensor,
        source_mask: Tensor | None,
        *,
        width: int,
        length: int,
        alignment_layer: int | None = None,
        fuse: bool = False,
    ) -> None:
        """Computes what the decoder reads of the sources, once for all.

        Args:
            model: The model, in evaluation mode.
            source: The encoder's output, (B, S, d).
            source_mask: 1 at tokens, 0 at padding, (B, S); None where there is no padding.
            width: Most hypotheses of each source.
            length: Most positions.
            alignment_layer: Decoder layer whose attention to the source is kept; None: none is.
            fuse: Whether to compute plain layers with few calls, on packed weights.
        """
        self.decoder, self.lm_head = model.model.decoder, model.lm_head
        if fuse and packable(model.lm_head):
            self.lm_head = packed_linear(model.lm_head)
        self.length = length
        self.encodings = source.new_empty(0)  # of the positions so far and some more, (P, d)
        room = width * min(FIRST_POSITIONS, length)  # more is made as it is needed
        self.layers: list[FusedLayer | ModuleLayer] = []
        for layer in self.decoder.layers:
            kind = FusedLayer if fuse and is_fusable(layer) else ModuleLayer
            self.layers.append(kind(layer, LayerMemory(layer, source, room)))
        self.source_mask = None  # (B, 1, 1, S), added to the scores
        if source_mask is not None and not source_mask.bool().all():
            padding = source_mask[:, None, None, :] == 0
            self.source_mask = torch.zeros_like(padding, dtype=source.dtype)
            self.source_mask.masked_fill_(padding, _forbidden(source.dtype))
        self.alignment_layer = alignment_layer
        self.alignments = GrowingRows(room)  # (B, R, S)
        self.position, self.rows = 0, 0
        self.kept = 0  # rows whose keys and values are still there
        self.places: Tensor | None = None  # where those of each row are, (B, R); None: all in order

    def step(self, tokens: Tensor, ancestors: Tensor) -> Tensor:
        """Logits of the next token, (B, w, V), after the last tokens of the hypotheses, (B, w).

        `ancestors`, (B, w, t), are the rows of each hypothesis at the earlier positions. Its row at
        this position is `rows`, as it was before the call, plus its number.
        """
        batch, width = tokens.shape
        x = self._embed(tokens)  # (B, w, d)
        if self.position % FORGET_EVERY == FORGET_EVERY - 1:
            self._forget(ancestors)
        # In the dtype of what it masks: the fused attention of a CPU misreads a narrower one.
        mask = x.new_full((batch, 1, width, self.kept + width), _forbidden(x.dtype))
        mask.scatter_(3, self._places_of(ancestors)[:, None], 0.0)
        mask.diagonal(self.kept, 2, 3).zero_()  # (B, 1, w, kept + w): ancestors and itself
        for number, layer in enumerate(self.layers):
            alignments = self.alignments if number == self.alignment_layer else None
            x = layer(x, mask, self.source_mask, alignments)
        if self.places is not None:
            new = torch.arange(self.kept, self.kept + width, device=tokens.device)
            self.places = torch.cat((self.places, new.expand(batch, -1)), dim=1)
        self.position += 1
        self.rows, self.kept = self.rows + width, self.kept + width
        return self.lm_head(self.decoder.norm(x))

    def _places_of(self, rows: Tensor) -> Tensor:
        """Where the keys and values of rows, (B, w, t), are."""
        if self.places is None:
            return rows
        return self.places.gather(1, rows.flatten(1)).view_as(rows)

    def _forget(self, ancestors: Tensor) -> None:
        """Frees keys and values of which no living hypothesis is a descendant, if they are many.

        Hypotheses of one source soon have the same ancestors but for the last few: what each of
        them attends to becomes a fraction of all rows.
        """
        batch = len(ancestors)
        used = torch.zeros((batch, self.kept), dtype=torch.bool, device=ancestors.device)
        used.scatter_(1, self._places_of(ancestors).flatten(1), True)
        most = int(used.sum(1).max())
        if 2 * most >= self.kept:
            return
        kept = used.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
        for layer in self.layers:
            layer.memory.rows.compact(kept)
        places = (used.cumsum(1) - 1).clamp(min=0)  # new ones of the old; any for what is gone
        self.places = places if self.places is None else places.gather(1, self.places)
        self.kept = most

    def _embed(self, tokens: Tensor) -> Tensor:
        """What `decoder.embed` makes of tokens at this position: (B, w) -> (B, w, d)."""
        x = self.decoder.embed_tokens(tokens) * math.sqrt(self.decoder.config.d_model)
        if self.position == len(self.encodings):  # sinusoids of many take as long as of one
            many = min(FIRST_POSITIONS, self.length - self.position)
            more = self.decoder.embed_positions(x.new_empty(1, many, 0), None, self.position)
            self.encodings = torch.cat((self.encodings.view(-1, x.size(-1)), more))
        return self.decoder.dropout(x + self.encodings[self.position])

    def keep(self, order: Tensor) -> None:
        """Keeps the sources of `order`, (B',); the others leave the batch.

        Those of its places below B' that stay are where they were, so that few rows move.
        """
        moved = (order != torch.arange(order.numel(), device=order.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.memory.keep(order, moved)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[order]
        if self.places is not None:
            self.places = self.places[order]
        if self.alignment_layer is not None:
            self.alignments.keep(order, moved)

    def alignments_of(self, sources: Tensor, rows: Tensor) -> Tensor:
        """Weights on the source, (b, n, t, S), at rows, (b, n, t), of the sources marked, (B,).

        Zeros where a row is negative.
        """
        return weights_at(self.alignments.view()[sources], rows)


class ModuleLayer:
    """A decoder layer, called module by module, and what it attends to."""

    def __init__(self, layer: DecoderLayer, memory: LayerMemory) -> None:
        self.layer, self.memory = layer, memory

    def __call__(
        self, x: Tensor, mask: Tensor, source_mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """One layer of Section 3.1: (B, w, d) -> (B, w, d).

        The masks, (B, 1, w, R) and (B, 1, 1, S), are added to the scores; the weights on the source
        to the alignments, if there are any.
        """
        layer, memory = self.layer, self.memory
        own, cross = layer.self_attn, layer.cross_attn

        def to_target(x: Tensor) -> Tensor:
            query = own.split_heads(own.q_proj(x), own.d_k)  # (B, h, w, d_k)
            rows = torch.cat(own.keys_and_values(x, None), dim=-1)
            return own.out_proj(memory.attend(query, rows, mask))

        def to_source(x: Tensor) -> Tensor:
            query = cross.split_heads(cross.q_proj(x), cross.d_k)
            return cross.out_proj(memory.attend_to_source(query, source_mask, alignments))

        x = layer.residual(x, to_target, layer.self_attn_norm)
        x = layer.residual(x, to_source, layer.cross_attn_norm)
        return layer.residual(x, layer.feed_forward, layer.feed_forward_norm)


def is_fusable(layer: DecoderLayer) -> bool:
    """Whether all weights of a plain layer are of a kind that is packed."""
    linears = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    return all(packable(linear) and linear.bias is not None for linear in linears)


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
        if type(ffn.activation) is not nn.ReLU:
            self.inner = lambda x: ffn.activation(self.fc1(x))
        self.own_norm, self.source_norm, self.ffn_norm = (
            _norm(part)
            for part in (layer.self_attn_norm, layer.cross_attn_norm, layer.feed_forward_norm)
        )

    def __call__(
        self, x: Tensor, mask: Tensor, source_mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """One layer of Section 3.1: (B, w, d) -> (B, w, d); see `ModuleLayer`."""
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


def _forbidden(dtype: torch.dtype) -> float:
    """What is added to a score that must not count: no sum with it is -inf.

    -inf everywhere, as in a source that is all padding, would make NaN.
    """
    return torch.finfo(dtype).min / 2


# ------------------------------------------------------ keys and values


class GrowingRows:
    """A tensor, (B, ..., R, width), that grows along R; it is copied only when its room doubles."""

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.buffer = torch.empty(0, 0)  # (B, ..., room, width)

    def append(self, rows: Tensor) -> Tensor:
        """Writes rows, (B, ..., r, width), behind the others; returns a view of all of them."""
        start, end = self.length, self.length + rows.size(-2)
        if end > self.buffer.size(-2):
            self.room = max(end, 2 * self.room if start else self.room)
            grown = rows.new_empty((*rows.shape[:-2], self.room, rows.size(-1)))
            if start:
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
        self.keys, self.values = (  # (B, h, S, d_k), (B, h, S, d_v)
            part.contiguous() for part in self.cross.keys_and_values(source, None)
        )
        self.folded: FoldedSource | None = None

    def fold_source(self) -> None:
        """Folds the projections of plain linear layers into a source that is short enough."""
        if FoldedSource.is_smaller(self.cross, self.keys):
            self.folded = FoldedSource(self.cross, self.keys, self.values)
            self.keys = self.values = self.keys.new_empty(0)

    def attend(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Each hypothesis to its ancestors and itself (Section 3.2.3), all heads: (B, w, h * d_v).

        Queries are (B, h, w, d_k); the hypotheses' own keys and values, (B, h, w, d_k + d_v), are
        written behind the others; the mask, (B, 1, w, R), is added to the scores.
        """
        keys, values = self.rows.append(rows).split_with_sizes((self.own.d_k, self.own.d_v), dim=-1)
        return _attend(self.own, query, keys, values, mask)

    def attend_to_source(
        self, query: Tensor, mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """Each hypothesis to the source, all heads: (B, w, h * d_v).

        The mean of the heads' weights, (B, w, S), is added to the alignments, if there are any.
        """
        if alignments is None:
            return _attend(self.cross, query, self.keys, self.values, mask)
        heads, weights = eager_attention_forward(
            self.cross, query, self.keys, self.values, mask, scaling=self.cross.scaling
        )  # (B, w, h, d_v), (B, h, w, S)
        alignments.append(weights.mean(1))
        return heads.flatten(2)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keeps the sources of `order`; see `GrowingRows.keep`."""
        self.rows.keep(order, moved)
        if self.folded is not None:
            self.folded.keep(order, moved)
            return
        self.keys, self.values = (_kept(part, order, moved) for part in (self.keys, self.values))


def _attend(
    attention: MultiHeadAttention, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    """Eq. 1 for the rows of one query a source, all heads: (B, w, h * d_v)."""
    scaling = attention.scaling
    if query.device.type == "cpu" and query.size(0) * query.size(1) >= MANY_HEADS:
        # The fused attention of a CPU multiplies each head of each source by itself.
        heads, _ = eager_attention_forward(attention, query, keys, values, mask, scaling=scaling)
        return heads.flatten(2)
    # A whole formula in one call: for so few rows, calls are a good part of the time.
    heads = nn.functional.scaled_dot_product_attention(
        query, keys, values, mask, scale=scaling
    )  # (B, h, w, d_v)
    return heads.transpose(1, 2).flatten(2)


def _kept(tensor: Tensor, order: Tensor, moved: Tensor) -> Tensor:
    if moved.numel():
        tensor[moved] = tensor[order[moved]]
    return tensor[: order.numel()]
