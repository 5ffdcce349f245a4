# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The decoder of Section 3, one position at a time, for several hypotheses of each source.

The modules are the model's own; plain layers on a processor that gains by it are computed by
`FusedLayer`, the others module by module. What differs from the whole decoder is what they attend
to: see `layer_memory`.

Shapes: B sources, w hypotheses of each, S source length, h heads, d_k and d_v widths of a head's
keys and values, d = d_model, V vocabulary, t positions so far, R rows: one for each hypothesis at
each position, in layers without those that are forgotten.
"""

import math

import torch
from torch import Tensor

from .fused_layer import FusedLayer, is_fusable
from .layer_memory import GrowingRows, LayerMemory
from .modeling_vanilla_transformer import DecoderLayer, VanillaTransformerForConditionalGeneration

FIRST_POSITIONS = 32  # for which keys and values have room at first
FORGET_EVERY = 8  # positions between two looks for keys and values that are of no more use


def _forbidden(dtype: torch.dtype) -> float:
    """What is added to a score that must not count: no sum with it is -inf.

    -inf everywhere, as in a source that is all padding, would make NaN.
    """
    return torch.finfo(dtype).min / 2


def keep_order(keep: Tensor) -> Tensor:
    """Places of the rows to keep, (B',): those beyond B' in the places of those that leave."""
    kept = keep.nonzero().squeeze(1)
    order = torch.arange(kept.numel(), device=keep.device)
    holes = (~keep[: kept.numel()]).nonzero().squeeze(1)
    order[holes] = kept[kept.numel() - holes.numel() :]
    return order


class PlainLayer:
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
        self.length = length
        self.encodings = source.new_empty(0)  # of the positions so far and some more, (P, d)
        room = width * min(FIRST_POSITIONS, length)  # more is made as it is needed
        self.layers: list[FusedLayer | PlainLayer] = []
        for layer in self.decoder.layers:
            kind = FusedLayer if fuse and is_fusable(layer) else PlainLayer
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
        weights = self.alignments.view()[sources]  # (b, R, S)
        index = rows.clamp(min=0).flatten(1)[..., None].expand(-1, -1, weights.size(-1))
        picked = weights.gather(1, index).unflatten(1, rows.shape[1:])  # (b, n, t, S)
        return picked.masked_fill(rows[..., None] < 0, 0)
