"""Run the decoder of Section 3 one position at a time, for several hypotheses of each source.

The hypotheses of one source are rows of one query, so the source's keys and values are stored once
per source. The hypotheses' own keys and values are written once and stay in place; a mask says
which rows are a hypothesis' ancestors. No step copies what earlier steps have written, but every
few positions the keys and values of dead hypotheses are dropped.

`FusedLayer` computes a layer in as few calls as its formulas allow: with the few rows of a decoding
step, a third of the time is the overhead of calling its modules one by one, as `ModuleLayer` does.

Shapes: B sources, w hypotheses of each, S source length, h heads, d_k and d_v widths of a head's
keys and values, d = d_model, V vocabulary, t positions so far, R rows: one for each hypothesis at
each position; in layers, without dropped rows. With a shortlist: N usual pieces, P further ones, U
all of these, K likely pieces of each source piece.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..beam_search import SpecialIds, weights_at
from ..modeling_vanilla_transformer import (
    DecoderLayer,
    MultiHeadAttention,
    PositionwiseFeedForward,
    VanillaTransformerForConditionalGeneration,
    eager_attention_forward,
)
from .onednn import packable, packed_linear, packed_linears, packed_together
from .shortlist import SHORTLISTS, Shortlist
from .unmodified import is_unmodified

# Logits that a CPU computes at once, 16 MiB in float32. Larger tensors return their memory to the
# system when freed, which then has to clear it again for the next step.
LOGITS = 2**22
FIRST_POSITIONS = 32  # initial capacity for keys and values, in positions
MANY_HEADS = 32  # heads of all sources in a batch; with fewer, torch's fused attention is faster
FORGET_EVERY = 8  # positions after which keys and values that are no longer needed are dropped


def incremental_decoder(
    model: PreTrainedModel, *sources: Tensor, **sizes: Any
) -> IncrementalDecoder | None:
    """Return an `IncrementalDecoder` for `beam_search`, or None for a modified model."""
    return IncrementalDecoder(model, *sources, **sizes) if is_unmodified(model) else None


class IncrementalDecoder:
    """Decoder and softmax of a model for a batch of encoded sources, called at each position."""

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        width: int,
        length: int,
        special_ids: SpecialIds | None = None,
        alignment_layer: int | None = None,
        prepack: bool = False,
    ) -> None:
        """Encode the sources and compute their keys and values once.

        Args:
            model: The model, in evaluation mode.
            input_ids: Source ids, (B, S).
            attention_mask: 1 at tokens and 0 at padding, (B, S).
            width: Maximum number of hypotheses of each source.
            length: Maximum number of positions.
            special_ids: The only ids that the search itself uses; None: it may use any.
            alignment_layer: Decoder layer whose cross-attention is kept; None: no layer's.
            prepack: Whether to keep a packed second copy of the weights, and to compute plain
                layers with it in few calls.
        """
        self.decoder, self.lm_head = model.model.decoder, model.lm_head
        self.length = length
        room = width * min(FIRST_POSITIONS, length)  # grows as needed
        self.layers: list[FusedLayer | ModuleLayer] = []
        with packed_linears(*([model.model] if prepack else [])):
            source = model.model.encoder(input_ids, attention_mask=attention_mask)[0]  # (B, S, d)
            for layer in self.decoder.layers:
                kind = FusedLayer if prepack and is_fusable(layer) else ModuleLayer
                self.layers.append(kind(layer, LayerMemory(layer, source, room)))
        self.short: ShortProjection | None = None
        if special_ids is not None and model in SHORTLISTS:
            highest = max(special_ids.start, special_ids.pad, *special_ids.ends, *special_ids.never)
            batch = (input_ids, attention_mask, highest)
            self.short = ShortProjection(SHORTLISTS[model], model.lm_head, *batch)
        elif prepack and packable(model.lm_head):
            self.lm_head = packed_linear(model.lm_head)
        self.pieces = None if self.short is None else self.short.pieces
        self.encodings = source.new_empty(0)  # positional encodings, computed ahead, (P, d)
        self.source_mask = None  # (B, 1, 1, S), added to the scores
        if not attention_mask.bool().all():
            padding = attention_mask[:, None, None, :] == 0
            self.source_mask = torch.zeros_like(padding, dtype=source.dtype)
            self.source_mask.masked_fill_(padding, _forbidden(source.dtype))
        self.alignment_layer = alignment_layer
        self.alignments = GrowingRows(room)  # (B, R, S)
        self.position, self.rows = 0, 0
        self.kept = 0  # number of rows whose keys and values are kept
        # Storage index of each row in `LayerMemory`, (B, R); None: they are stored in order.
        self.places: Tensor | None = None

    def step(self, tokens: Tensor, ancestors: Tensor) -> Iterator[Tensor]:
        """Return the logits of the next token; see `beam_search.ModelDecoder.step`."""
        batch, width = tokens.shape
        x = self._embed(self.short.ids_of(tokens) if self.short else tokens)  # (B, w, d)
        if self.position % FORGET_EVERY == FORGET_EVERY - 1:
            self._forget(ancestors)
        # In the dtype of the queries: the fused attention of a CPU misreads a narrower mask.
        mask = x.new_full((batch, 1, width, self.kept + width), _forbidden(x.dtype))
        mask.scatter_(3, self._places_of(ancestors)[:, None], 0.0)
        mask.diagonal(self.kept, 2, 3).zero_()  # (B, 1, w, kept + w), 0 at ancestors and itself
        for number, layer in enumerate(self.layers):
            alignments = self.alignments if number == self.alignment_layer else None
            x = layer(x, mask, self.source_mask, alignments)
        if self.places is not None:
            new = torch.arange(self.kept, self.kept + width, device=tokens.device)
            self.places = torch.cat((self.places, new.expand(batch, -1)), dim=1)
        self.position += 1
        self.rows, self.kept = self.rows + width, self.kept + width
        sources = batch  # sources whose logits are computed at once
        if self.short is None and x.device.type == "cpu":
            sources = max(1, LOGITS // (width * self.decoder.config.target_vocab_size))
        return map(self.short or self.lm_head, self.decoder.norm(x).split(sources))

    def _places_of(self, rows: Tensor) -> Tensor:
        """Convert indices of decoder rows, (B, w, t), to those of their stored keys and values."""
        if self.places is None:
            return rows
        return self.places.gather(1, rows.flatten(1)).view_as(rows)

    def _forget(self, ancestors: Tensor) -> None:
        """Drop keys and values that no unfinished hypothesis needs, if these are more than half.

        The hypotheses of one source soon share all but their last few ancestors, so the rows that
        they attend to become a fraction of all rows.
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
        places = (used.cumsum(1) - 1).clamp(min=0)  # new index of each row; arbitrary if dropped
        self.places = places if self.places is None else places.gather(1, self.places)
        self.kept = most

    def _embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens at this position as `decoder.embed` does: (B, w) -> (B, w, d)."""
        x = self.decoder.embed_tokens(tokens) * math.sqrt(self.decoder.config.d_model)
        if self.position == len(self.encodings):  # computing many at once takes as long as one
            many = min(FIRST_POSITIONS, self.length - self.position)
            more = self.decoder.embed_positions(x.new_empty(1, many, 0), None, self.position)
            self.encodings = torch.cat((self.encodings.view(-1, x.size(-1)), more))
        return self.decoder.dropout(x + self.encodings[self.position])

    def keep(self, order: Tensor) -> None:
        """Keep only the sources at the indices `order`, (B',), of `beam_search.keep_order`."""
        moved = (order != torch.arange(order.numel(), device=order.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.memory.keep(order, moved)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[order]
        if self.places is not None:
            self.places = self.places[order]
        if self.short is not None:
            self.short.keep(order, moved)
        if self.alignment_layer is not None:
            self.alignments.keep(order, moved)

    def alignments_of(self, sources: Tensor, rows: Tensor) -> Tensor:
        """Return the cross-attention weights of decoder rows; see `ModelDecoder.alignments_of`."""
        return weights_at(self.alignments.view()[sources], rows)


class ModuleLayer:
    """A decoder layer that calls its modules one by one, with its cached keys and values."""

    def __init__(self, layer: DecoderLayer, memory: LayerMemory) -> None:
        self.layer, self.memory = layer, memory

    def __call__(
        self, x: Tensor, mask: Tensor, source_mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """Compute one layer of Section 3.1: (B, w, d) -> (B, w, d).

        The masks, (B, 1, w, R) and (B, 1, 1, S), are added to the scores. The weights on the source
        are appended to the alignments, if there are any.
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
    """Return whether an unmodified layer can run as a `FusedLayer` with packed weights.

    It cannot if a module was replaced by another one of torch's, such as a norm by `nn.Identity`.
    """
    own, cross, ffn = layer.self_attn, layer.cross_attn, layer.feed_forward
    if type(ffn) is not PositionwiseFeedForward:
        return False
    linears = [part for each in (own, cross) for part in (each.q_proj, each.k_proj, each.v_proj)]
    linears += [own.out_proj, cross.out_proj, ffn.fc1, ffn.fc2]
    norms = (layer.self_attn_norm, layer.cross_attn_norm, layer.feed_forward_norm)
    return (
        all(packable(linear) and linear.bias is not None for linear in linears)
        and all(type(norm) is nn.LayerNorm for norm in norms)
        and all(type(part) in (nn.Dropout, nn.Identity) for part in (layer.dropout, ffn.dropout))
    )


class FusedLayer:
    """A decoder layer computed in few calls with packed weights, with its keys and values."""

    def __init__(self, layer: DecoderLayer, memory: LayerMemory) -> None:
        """Pack the layer's weights, or reuse the copies packed before."""
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
        """Compute one layer of Section 3.1: (B, w, d) -> (B, w, d); see `ModuleLayer`."""
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
    """Join Q, K and V parts: first all rows of Q, then head by head the rows of K and V."""
    query, *others = parts
    rows = torch.cat([part.unflatten(0, (heads, -1)) for part in others], dim=1).flatten(0, 1)
    return torch.cat((query, rows))


def _norm(module: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Return a function that computes a norm without the overhead of calling the module."""
    shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def _forbidden(dtype: torch.dtype) -> float:
    """Return the number to add to masked scores, low enough for weights of 0 but not -inf.

    If all scores were -inf, as for a source that is all padding, the weights would be NaN.
    """
    return torch.finfo(dtype).min / 2


class ShortProjection:
    """The pre-softmax projection to shortlisted pieces: the usual ones, then each source's own.

    Each source has further pieces of its own, so that no sentence depends on its batch.
    """

    def __init__(
        self, shortlist: Shortlist, lm_head: nn.Linear, ids: Tensor, mask: Tensor, highest: int
    ) -> None:
        """Gather lm_head's shortlisted rows for sources, (B, S); the mask is 0 at padding.

        All ids up to `highest` count as usual pieces, so that each is the number of its column.
        """
        usual, likely = (part.to(ids.device) for part in shortlist)
        is_usual = torch.zeros(lm_head.out_features, dtype=torch.bool, device=ids.device)  # (V,)
        is_usual[: highest + 1] = is_usual[usual] = True
        pieces = likely[ids].masked_fill(mask[..., None] == 0, 0).flatten(1)  # (B, S * K)
        is_own = is_usual.new_zeros(len(ids), len(is_usual)).scatter_(1, pieces, True) & ~is_usual
        by_source = is_own.nonzero()[:, 1].split(is_own.sum(1).tolist())
        own = nn.utils.rnn.pad_sequence(by_source, batch_first=True, padding_value=-1)  # (B, P)
        usual = is_usual.nonzero()[:, 0]  # (N,), ascending
        bias = lm_head.weight.new_zeros(len(is_usual)) if lm_head.bias is None else lm_head.bias
        self.usual = (lm_head.weight[usual], bias[usual])  # (N, d), (N,)
        self.weight = lm_head.weight[own]  # (B, P, d)
        self.bias = bias[own].masked_fill(own < 0, -torch.inf)[:, None]  # (B, 1, P)
        # Ids of the columns of the logits, (B, 1, U).
        self.pieces = torch.cat((usual.expand(len(own), -1), own.clamp(min=0)), dim=1)[:, None]
        self.sources = torch.arange(len(own), device=own.device)  # indices of unfinished sources

    def ids_of(self, columns: Tensor) -> Tensor:
        """Return the vocabulary ids of columns of the logits, (B, w)."""
        return self.pieces[self.sources[:, None], 0, columns]

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the logits: (B, w, d) -> (B, w, U)."""
        usual = nn.functional.linear(x, *self.usual)
        return torch.cat((usual, torch.baddbmm(self.bias, x, self.weight.mT)), dim=-1)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keep only the sources at the indices `order`; see `GrowingRows.keep`."""
        self.weight, self.bias = (_kept(part, order, moved) for part in (self.weight, self.bias))
        self.sources = self.sources[order]


# ------------------------------------------------------ keys and values


class GrowingRows:
    """A tensor, (B, ..., R, width), that grows along R, by doubling its capacity when full."""

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.buffer = torch.empty(0, 0)  # (B, ..., room, width)

    def append(self, rows: Tensor) -> Tensor:
        """Append rows, (B, ..., r, width); return a view of all rows."""
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
        """Return all rows so far, (B, ..., R, width)."""
        return self.buffer.narrow(-2, 0, self.length)

    def compact(self, places: Tensor) -> None:
        """Keep only the rows at the given indices of each source, (B, r)."""
        sources = torch.arange(len(places), device=places.device)[:, None]
        kept = self.view().movedim(-2, 1)[sources, places].movedim(1, -2)  # (B, ..., r, width)
        self.length = places.size(1)
        self.view().copy_(kept)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keep only the sources at indices `order`, (B',); `moved`: each i with order[i] != i."""
        _kept(self.view(), order, moved)
        self.buffer = self.buffer[: order.numel()]


class FoldedSource:
    """Keys and values of a source, multiplied in advance by the query and output projections.

    The score of a key is (x W^Q + b^Q) . k = x . (W^Q k) + b^Q . k, and a value adds v W^O to the
    output. For a short source, W^Q k and v W^O of all positions and heads are fewer numbers than
    W^Q and W^O, and for a single sentence most of the time is spent on reading memory.
    """

    @staticmethod
    def is_smaller(cross: MultiHeadAttention, keys: Tensor) -> bool:
        """Return whether folding keys, (B, h, S, d_k), and their values takes less memory."""
        weights = cross.q_proj.weight.numel() + cross.out_proj.weight.numel()
        return 2 * keys[..., 0].numel() * cross.q_proj.in_features <= weights

    def __init__(self, cross: MultiHeadAttention, keys: Tensor, values: Tensor) -> None:
        """Multiply keys, (B, h, S, d_k), by W^Q and values, (B, h, S, d_v), by W^O."""
        self.heads = cross.num_heads
        by_head = (self.heads, -1)
        w_q = cross.q_proj.weight.unflatten(0, by_head)  # (h, d_k, d)
        b_q = cross.q_proj.bias.unflatten(0, by_head)[..., None]  # (h, d_k, 1)
        w_o = cross.out_proj.weight.mT.unflatten(0, by_head)  # (h, d_v, d)
        keys = keys * cross.scaling
        self.keys = (keys @ w_q).flatten(1, 2)  # (B, h * S, d)
        self.bias = (keys @ b_q).flatten(1)[:, None]  # (B, 1, h * S)
        # The weights of a head sum to one, so each position can carry the head's share of b^O.
        self.values = (values @ w_o + cross.out_proj.bias / self.heads).flatten(1, 2)

    def attend(
        self, x: Tensor, residual: Tensor, mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """Return the residual plus the output of cross-attention, (B, w, d).

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
        """Keep the sources at the indices `order`; see `GrowingRows.keep`."""
        self.keys, self.bias, self.values = (
            _kept(part, order, moved) for part in (self.keys, self.bias, self.values)
        )


class LayerMemory:
    """The keys and values of a decoder layer: of the target so far and of the source."""

    def __init__(self, layer: DecoderLayer, source: Tensor, room: int) -> None:
        self.own, self.cross = layer.self_attn, layer.cross_attn
        self.rows = GrowingRows(room)  # (B, h, R, d_k + d_v): each key beside its value
        self.keys, self.values = (  # (B, h, S, d_k), (B, h, S, d_v)
            part.contiguous() for part in self.cross.keys_and_values(source, None)
        )
        self.folded: FoldedSource | None = None

    def fold_source(self) -> None:
        """Fold the source if it is short enough that this takes less memory than W^Q and W^O."""
        if FoldedSource.is_smaller(self.cross, self.keys):
            self.folded = FoldedSource(self.cross, self.keys, self.values)
            self.keys = self.values = self.keys.new_empty(0)

    def attend(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Attend from each hypothesis to its ancestors and itself (Section 3.2.3): (B, w, h * d_v).

        Queries are (B, h, w, d_k). `rows`, the keys and values at this position, (B, h, w,
        d_k + d_v), are appended to the others. The mask, (B, 1, w, R), is added to the scores.
        """
        keys, values = self.rows.append(rows).split_with_sizes((self.own.d_k, self.own.d_v), dim=-1)
        return _attend(self.own, query, keys, values, mask)

    def attend_to_source(
        self, query: Tensor, mask: Tensor | None, alignments: GrowingRows | None
    ) -> Tensor:
        """Attend from each hypothesis to the source: (B, w, h * d_v).

        The mean of the heads' weights, (B, w, S), is appended to the alignments, if there are any.
        """
        if alignments is None:
            return _attend(self.cross, query, self.keys, self.values, mask)
        heads, weights = eager_attention_forward(
            self.cross, query, self.keys, self.values, mask, scaling=self.cross.scaling
        )  # (B, w, h, d_v), (B, h, w, S)
        alignments.append(weights.mean(1))
        return heads.flatten(2)

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keep the sources at the indices `order`; see `GrowingRows.keep`."""
        self.rows.keep(order, moved)
        if self.folded is not None:
            self.folded.keep(order, moved)
            return
        self.keys, self.values = (_kept(part, order, moved) for part in (self.keys, self.values))


def _attend(
    attention: MultiHeadAttention, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    """Compute Eq. 1 for all heads, with a query of w rows for each source: (B, w, h * d_v)."""
    scaling = attention.scaling
    if query.device.type == "cpu" and query.size(0) * query.size(1) >= MANY_HEADS:
        # On a CPU, the fused attention multiplies each head of each source separately.
        heads, _ = eager_attention_forward(attention, query, keys, values, mask, scaling=scaling)
        return heads.flatten(2)
    # The whole formula in one call: with so few rows, calls take much of the time.
    heads = nn.functional.scaled_dot_product_attention(
        query, keys, values, mask, scale=scaling
    )  # (B, h, w, d_v)
    return heads.transpose(1, 2).flatten(2)


def _kept(tensor: Tensor, order: Tensor, moved: Tensor) -> Tensor:
    if moved.numel():
        tensor[moved] = tensor[order[moved]]
    return tensor[: order.numel()]
