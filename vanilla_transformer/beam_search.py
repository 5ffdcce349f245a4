# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The paper's beam search (Section 6.1), as in the authors' code.

A hypothesis of L tokens, including `</s>`, scores log P(Y | X) / ((5 + L) / 6)^alpha (Wu et al.,
2016, arXiv 1609.08144, Eq. 14 without coverage). At each position the 2 * beam best extensions are
candidates (one in greedy search; more if several symbols end a sentence). Those that end compete
for the `beam` places of finished hypotheses; the best `beam` others go on. A sentence is done at
its length limit, or when its n best finished hypotheses beat the bound, the best score that an
unfinished one can still reach; with `early_stopping` also when `beam` hypotheses are finished.

Deviation: the authors apply bound and limit to the whole batch, so that a translation may depend on
its neighbours. Here each sentence has its own, and leaves the batch when it is done.

Shapes: B sources still searched, b of them in a part of the logits, n hypotheses returned for each,
w unfinished ones (1, then the beam), c best tokens of each, C candidates, S source length, t tokens
so far, T longest, V vocabulary, R rows: one for each hypothesis at each position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput

from .errors import NotFiniteError, RequestError, quoted
from .generation_limits import CACHE, longest_sequence
from .input_checks import check_ends, check_mask
from .modeling_vanilla_transformer import MultiHeadAttention, eager_attention_forward
from .ranges import Range
from .search_settings import SearchSettings, search_settings, settings_of_other_searches

BLOCK = 64  # tokens; only the blocks with the largest maxima are searched for the best


@dataclasses.dataclass
class BeamSearchOutput(ModelOutput):
    """The hypotheses that `beam_search` found, the best of each source first.

    Args:
        sequences: Target ids without the start symbol, (B, n, T), padding after the end.
        scores: Log P / ((5 + L) / 6)^alpha, (B, n), in float32 at least; -inf where there are
            fewer than n hypotheses.
        token_scores: log P / L, the mean per token, (B, n). Whatever the length, sentences like the
            model's training sources have higher values than other text.
        lengths: L, tokens of each hypothesis including its `</s>`, (B, n).
        finished: Which hypotheses are finished, (B, n). The others, which come after them, reached
            the length limit or, with a score of -inf, are missing.
        alignments: Attention of each target token to the source tokens, (B, n, T, S); rows sum to
            one, and are zero after the end. None unless requested.
    """

    sequences: Tensor
    scores: Tensor | None = None
    token_scores: Tensor | None = None
    lengths: Tensor | None = None
    finished: Tensor | None = None
    alignments: Tensor | None = None


def beam_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    prefix: Sequence[Sequence[int]] | None = None,
    return_alignments: bool = False,
    alignment_layer: int | None = None,
    prepack: bool = True,
    **given: Any,
) -> BeamSearchOutput:
    """Find the n best translations of each source, independently of the other sentences.

    Args:
        model: The model; its mode (training or evaluation) is restored.
        input_ids: Source ids, (B, S).
        attention_mask: 1 at tokens and 0 at padding, (B, S); None: no padding.
        prefix: Target ids that each translation begins with, a list for each source, empty for
            none. They count in scores and lengths like any others, and may be suppressed ids.
        return_alignments: Whether to return the cross-attention.
        alignment_layer: Index of the decoder layer whose heads' weights are averaged, -1 for the
            last. None: the last but one, which aligns words best (Garg et al., 2019, arXiv
            1909.02074); with two layers, the last (LOG.md).
        prepack: Whether the fast path may keep a second copy of the weights; see `fast`.
        **given: Settings of the search, such as `num_beams`: see `SearchSettings`. One that is
            missing or None is taken from the generation config or else the paper, except that None
            for `max_extra_tokens` means no limit.

    Raises:
        ValueError: A setting is out of range, a prefix does not fit, the model has a learned
            prompt, or its outputs are not finite.
    """
    if adds_prompt(model):
        raise RequestError("beam_search cannot use an adapter's learned prompt; call translate.")
    if others := settings_of_other_searches(model.generation_config):
        what = f"Got {', '.join(others)} of the generation config"
        raise RequestError(f"{what}, which beam_search does not support; call generate.")
    settings = search_settings(model.generation_config, **given)
    special_ids = _special_ids(model, settings)
    if given.get("suppress_tokens") is None:  # only a caller may forbid every end-of-sentence id
        check_ends(settings.suppress_tokens, special_ids.ends)
    mask = _checked_mask(input_ids, attention_mask)
    layer = _alignment_layer(model, alignment_layer) if return_alignments else None
    with evaluation_mode(model), torch.inference_mode():
        limits = length_limits(model, mask, settings)  # (B,)
        sizes: dict[str, Any] = {"width": settings.num_beams, "length": int(limits.max())}
        sizes |= {"prepack": prepack, "special_ids": special_ids if prefix is None else None}
        makers = (*FASTER_DECODERS, ModelDecoder)
        decoders = (make(model, input_ids, mask, alignment_layer=layer, **sizes) for make in makers)
        decoder = next(decoder for decoder in decoders if decoder is not None)
        search = Search(
            settings,
            special_ids,
            limits,
            torch.promote_types(model.dtype, torch.float32),
            prefix=None if prefix is None else _padded_prefix(model, prefix, limits, special_ids),
        )
        switches = return_alignments and isinstance(decoder, ModelDecoder)
        with returned_attention_weights(model) if switches else nullcontext():
            search.run(decoder)
        result = search.result()
        if (pieces := getattr(decoder, "pieces", None)) is not None:  # shortlisted ids, (B, 1, U)
            result["sequences"] = pieces.take_along_dim(result["sequences"], -1)
    if result["scores"][:, 0].isnan().any():
        what = f"its weights are broken, or too large for {model.dtype}; load it in float32"
        raise NotFiniteError(f"The model's outputs are not finite (NaN): {what}.")
    # Cloned outside of inference mode, so that callers get ordinary tensors.
    return BeamSearchOutput(**{name: tensor.clone() for name, tensor in result.items()})


class Search:
    """Beam search over B sentences, each with its own score bound and length limit.

    A history, (B, hypotheses, 2, t), holds the tokens of a hypothesis and the decoder's rows that
    predicted them, then -1 if the hypothesis is finished.
    """

    def __init__(
        self,
        settings: SearchSettings,
        special_ids: SpecialIds,
        limits: Tensor,
        dtype: torch.dtype,
        *,
        prefix: Tensor | None,
    ) -> None:
        """Begin with one hypothesis of each sentence: the start symbol.

        `limits` are the maximum lengths of translations, (B,), `dtype` is that of the scores, and
        `prefix` holds the ids that translations begin with, (B, longest), padded with -1.
        """
        batch, device = limits.numel(), limits.device
        self.beam, self.alpha = settings.num_beams, settings.length_penalty
        self.early_stopping, self.count = settings.early_stopping, settings.num_return_sequences
        self.pad = special_ids.pad
        self.ends = limits.new_tensor(special_ids.ends)
        self.never = limits.new_tensor(special_ids.never)
        # The authors take twice the beam, so that enough hypotheses continue when others end.
        self.candidates = 1 if self.beam == 1 else self.beam * (1 + len(self.ends))
        self.limits, self.prefix = limits, prefix
        self.limit_penalties = length_penalty_of(limits.to(dtype), self.alpha)  # (B,)
        self.sentences = torch.arange(batch, device=device)  # places in the original batch
        self.tokens = limits.new_full((batch, 1), special_ids.start)  # (B, w)
        self.scores = torch.zeros((batch, 1), dtype=dtype, device=device)  # log P, (B, w)
        self.history = limits.new_empty((batch, 1, 2, 0))
        self.ended_scores = torch.full((batch, self.beam), -torch.inf, dtype=dtype, device=device)
        self.ended_history = limits.new_empty((batch, self.beam, 2, 0))  # see `_ended_so_far`
        self.results: list[tuple[Tensor, ...]] = []

    def run(self, decoder: ModelDecoder) -> None:
        """Search until every sentence is done."""
        while self.sentences.numel():
            row = decoder.rows
            logits = decoder.step(self.tokens, self.history[:, :, 1])
            self._grow(*self._best_tokens(logits), row)
            done = self._done()
            if done.any():
                self._report(done, decoder)
                order = keep_order(~done)
                self._keep(order)
                decoder.keep(order)

    def _best_tokens(self, parts: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the c largest log-probabilities of each hypothesis and their tokens, (B, w, c)."""
        best_of_parts, first = [], 0
        for logits in parts:
            log_probs = logits.log_softmax(-1, dtype=self.scores.dtype)  # in float32 at least
            sources = slice(first, first := first + len(logits))
            self._forbid(log_probs, sources)
            best_of_parts.append(best_tokens(log_probs, min(self.candidates, log_probs.size(-1))))
        best, tokens = map(torch.cat, zip(*best_of_parts, strict=True))
        return best, tokens

    def _forbid(self, log_probs: Tensor, sources: slice) -> None:
        """Set to -inf the log-probabilities, (b, w, V), of tokens that must not come next."""
        position = self.history.size(-1)
        if self.prefix is None or position >= self.prefix.size(1):
            log_probs.index_fill_(-1, self.never, -torch.inf)
            return
        forced = self.prefix[sources, position, None]  # (b, 1), -1 where the prefix is over
        ids = torch.arange(log_probs.size(-1), device=forced.device)
        barred = torch.where(forced < 0, torch.isin(ids, self.never), ids != forced)  # (b, V)
        log_probs.masked_fill_(barred[:, None], -torch.inf)

    def _grow(self, best: Tensor, tokens: Tensor, row: int) -> None:
        """Extend each unfinished hypothesis by one of its `tokens`, (B, w, c), with scores `best`.

        The score of a hypothesis so far does not change the order of its own tokens.
        """
        scores = (self.scores[..., None] + best).flatten(1)  # (B, w * c)
        scores, picked = scores.topk(min(self.candidates, scores.size(1)))  # (B, C), sorted
        tokens = tokens.flatten(1).gather(1, picked)  # (B, C)
        ended = torch.isin(tokens, self.ends)
        any_ended = bool(ended.any())
        if not any_ended:  # then the candidates beyond the beam are not needed
            scores, tokens, picked = (part[:, : self.beam] for part in (scores, tokens, picked))
        parents = picked // best.size(-1)  # (B, C)
        newest = torch.stack((tokens, parents + row), dim=-1)[..., None]  # (B, C, 2, 1)
        history = torch.cat((_pick(self.history, parents), newest), dim=-1)  # (B, C, 2, t)
        if any_ended:
            entering = ended
            if self.early_stopping:  # hypotheses outside the best `beam` must not stop the search
                entering = ended & (torch.arange(ended.size(1), device=ended.device) < self.beam)
            self._end(scores.masked_fill(~entering, -torch.inf), history)
            scores = scores.masked_fill(ended, -torch.inf)
            scores, picked = scores.topk(min(self.beam, scores.size(1)))
            history = _pick(history, picked)
        self.scores, self.history, self.tokens = scores, history, history[:, :, 0, -1]

    def _end(self, scores: Tensor, history: Tensor) -> None:
        """Merge candidates, (B, C), into the finished hypotheses; skip those that score -inf."""
        penalized = scores / length_penalty_of(history.size(-1), self.alpha)
        pool = torch.cat((self.ended_scores, penalized), dim=1)  # (B, beam + C)
        self.ended_scores, picked = pool.topk(self.beam)
        self.ended_history = _pick(torch.cat((self._ended_so_far(history), history), dim=1), picked)

    def _ended_so_far(self, history: Tensor) -> Tensor:
        """Return the finished hypotheses' histories, (B, beam, 2, t), padded to `history`'s t."""
        longer = history.size(-1) - self.ended_history.size(-1)
        return nn.functional.pad(self.ended_history, (0, longer), value=-1)

    def _done(self) -> Tensor:
        """Return a mask of the sentences that are done, (B,).

        The authors wait until the worst finished hypothesis beats the bound. No hypothesis that
        ends later can exceed the bound, so the n best are final once the n-th of them beats it.
        """
        best = self.scores[:, 0]
        decided = self.ended_scores[:, self.count - 1] > best / self.limit_penalties
        if self.early_stopping:
            decided = decided | (self.ended_scores[:, -1] > -torch.inf)  # `beam` hypotheses ended
        return decided | (best == -torch.inf) | (self.limits <= self.history.size(-1))

    def _report(self, done: Tensor, decoder: ModelDecoder) -> None:
        """Store the n best hypotheses of done sentences: finished ones first, then unfinished."""
        penalty = length_penalty_of(self.history.size(-1), self.alpha)
        scores = torch.cat((self.ended_scores, self.scores / penalty), dim=1)[done]
        history = torch.cat((self._ended_so_far(self.history), self.history), dim=1)[done]
        missing = scores == -torch.inf
        finished = (torch.arange(scores.size(1), device=scores.device) < self.beam) & ~missing
        # Finished, then unfinished hypotheses, each sorted by score; move missing ones to the end.
        picked = missing.long().argsort(dim=1, stable=True)[:, : self.count]  # (B, n)
        scores, finished = scores.gather(1, picked), finished.gather(1, picked)
        history = _pick(history, picked)
        history = history.masked_fill((scores == -torch.inf)[..., None, None], -1)
        tokens, rows = history.unbind(2)
        weights = rows.new_empty((*rows.shape, 0))  # no attention weights
        if decoder.alignment_layer is not None:
            weights = decoder.alignments_of(done, rows)
        self.results.append((self.sentences[done], scores, finished, tokens, weights))

    def _keep(self, order: Tensor) -> None:
        """Keep only the sentences at the indices `order`, (B',)."""
        parts = ("sentences", "limits", "limit_penalties", "tokens", "scores", "history")
        for name in (*parts, "ended_scores", "ended_history"):
            setattr(self, name, getattr(self, name)[order])
        if self.prefix is not None:
            self.prefix = self.prefix[order]

    def result(self) -> dict[str, Tensor]:
        """Return the fields of `BeamSearchOutput`, in the order of the sources."""
        parts = []
        for sentences, scores, finished, tokens, weights in self.results:
            room = self.history.size(-1) - tokens.size(-1)
            tokens = nn.functional.pad(tokens, (0, room), value=-1)
            weights = nn.functional.pad(weights, (0, 0, 0, room))
            parts.append((sentences, scores, finished, tokens, weights))
        order, scores, finished, tokens, weights = map(torch.cat, zip(*parts, strict=True))
        back = order.argsort()
        lengths = (tokens >= 0).sum(-1)
        of_tokens = scores * length_penalty_of(lengths, self.alpha) / lengths.clamp(min=1)
        found = {
            "sequences": tokens.masked_fill(tokens < 0, self.pad),
            "scores": scores,
            "token_scores": of_tokens,
            "lengths": lengths,
            "finished": finished,
        }
        if weights.size(-1):
            found["alignments"] = weights
        return {name: tensor[back] for name, tensor in found.items()}


def length_penalty_of(length: Tensor | int, alpha: float) -> Tensor | float:
    """Return ((5 + L) / 6)^alpha for a hypothesis of L tokens."""
    return ((5 + length) / 6) ** alpha


def keep_order(keep: Tensor) -> Tensor:
    """Return the indices of True in `keep`, (B',), in an order that moves few entries.

    Entries below B' stay in place; the others fill the places that became free.
    """
    kept = keep.nonzero().squeeze(1)
    order = torch.arange(kept.numel(), device=keep.device)
    holes = (~keep[: kept.numel()]).nonzero().squeeze(1)
    order[holes] = kept[kept.numel() - holes.numel() :]
    return order


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of the last dimension, (..., V), and indices, like `topk`.

    On a CPU only the `count` blocks with the largest maxima are searched. The maxima take one pass
    that only compares, several times as fast as a selection from all of V.
    """
    blocks = log_probs.size(-1) // BLOCK
    if log_probs.device.type != "cpu" or blocks < 4 * count:
        return log_probs.topk(count)
    whole = log_probs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    places = whole.amax(-1).topk(count).indices  # (..., count)
    chosen = whole.gather(-2, places[..., None].expand(*places.shape, BLOCK)).flatten(-2)
    best, picked = torch.cat((chosen, log_probs[..., blocks * BLOCK :]), dim=-1).topk(count)
    places = nn.functional.pad(places, (0, 1), value=blocks)  # the rest counts as one more block
    return best, places.gather(-1, picked // BLOCK) * BLOCK + picked % BLOCK


def _pick(history: Tensor, picked: Tensor) -> Tensor:
    """Pick m hypotheses of each source from a history, (B, hypotheses, 2, t), by index, (B, m)."""
    index = picked[:, :, None, None].expand(-1, -1, *history.shape[2:])
    return history.gather(1, index)


# ------------------------------------------------------ the model, one position at a time


class ModelDecoder:
    """Decode one position of all hypotheses at a time, by calling the model with its cache.

    It calls the model itself, so whatever a user has changed in it takes effect. Faster decoders
    have the same methods, the number of `rows` so far, and `alignment_layer`, the layer whose
    cross-attention is kept (None: no layer's). Some have `pieces`, ids of the logits' columns.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        alignment_layer: int | None,
        **_sizes: object,  # used only by faster decoders
    ) -> None:
        self.model, self.alignment_layer = model, alignment_layer
        self.input_ids, self.mask = input_ids, attention_mask  # (B, S)
        self.memory = attention_mask.new_empty(0)  # (B, S, d), from the first position on
        self.cache: EncoderDecoderCache | None = None
        self.cached = torch.arange(len(attention_mask), device=attention_mask.device)
        self.rows, self.width = 0, 1  # width: hypotheses of each source in the cache
        self.alignments: list[Tensor] = []  # at each position, (B, w, S)

    def step(self, tokens: Tensor, ancestors: Tensor) -> Iterator[Tensor]:
        """Return the logits of the next token in parts of the batch, given each last token, (B, w).

        Each part, (b, w, V), is for the next b sources.
        `ancestors`, (B, w, t), are the rows of each hypothesis at the earlier positions. The call
        adds w rows: hypothesis i of a source gets row `rows` + i, with `rows` from before the call.
        """
        batch, width = tokens.shape
        sources: dict[str, Any] = {"input_ids": self.input_ids}
        if self.cache is not None:
            parents = ancestors[:, :, -1] - (self.rows - self.width)  # (B, w)
            rows = (self.cached[:, None] * self.width + parents).flatten()
            self.cache.reorder_cache(rows)  # type: ignore[arg-type]  # any integer tensor works
            memory = self.memory.repeat_interleave(width, 0)  # (B * w, S, d)
            sources = {"encoder_outputs": BaseModelOutput(memory)}
        if self.alignment_layer is not None:
            sources["output_attentions"] = True
        outputs = self.model(
            **sources,
            attention_mask=self.mask.repeat_interleave(width, 0),
            decoder_input_ids=tokens.view(-1, 1),
            cache=self.cache,
            use_cache=True,
            return_dict=True,
        )
        if self.alignment_layer is not None:
            weights = self._alignments(outputs, self.alignment_layer)
            self.alignments.append(weights.unflatten(0, (batch, width)))
        if self.cache is None:
            self.memory = outputs.encoder_last_hidden_state
        self.cache, self.cached = outputs[CACHE], torch.arange(batch, device=tokens.device)
        self.rows, self.width = self.rows + width, width
        return iter([outputs.logits[:, -1].unflatten(0, (batch, width))])

    def _alignments(self, outputs: Seq2SeqLMOutput, layer: int) -> Tensor:
        """Return the mean cross-attention of the heads at the last position, (B * w, S)."""
        weights = outputs.cross_attentions or ()
        if len(weights) != len(self.model.get_decoder().layers):
            raise no_attention_weights(self.model)
        return weights[layer][:, :, -1].mean(1)

    def keep(self, order: Tensor) -> None:
        """Keep only the sources at the indices `order`, (B',)."""
        self.mask, self.memory = self.mask[order], self.memory[order]
        self.cached = self.cached[order]
        self.alignments = [weights[order] for weights in self.alignments]

    def alignments_of(self, sources: Tensor, rows: Tensor) -> Tensor:
        """Return the cross-attention weights, (b, n, t, S), of the decoder rows `rows`, (b, n, t).

        `sources`, (B,), marks the b sources of the rows. A negative row gives zeros.
        """
        return weights_at(torch.cat(self.alignments, dim=1)[sources], rows)


def no_attention_weights(model: PreTrainedModel) -> RequestError:
    """Return the error for a model that does not return the attention weights of all its layers."""
    return RequestError(
        f"The attention {model.config._attn_implementation!r} returns no weights; use eager. A "
        "module of your own in place of MultiHeadAttention must be a subclass of it."
    )


def weights_at(weights: Tensor, rows: Tensor) -> Tensor:
    """Pick cross-attention weights, (b, R, S), by row index, (b, n, t); negative ones give 0."""
    index = rows.clamp(min=0).flatten(1)[..., None].expand(-1, -1, weights.size(-1))
    picked = weights.gather(1, index).unflatten(1, rows.shape[1:])  # (b, n, t, S)
    return picked.masked_fill(rows[..., None] < 0, 0)


# Tried in order before `ModelDecoder`; each returns a decoder for a model, or None. The package
# registers one (`fast`); code that is uploaded with a model has none.
FASTER_DECODERS: list[Callable[..., Any]] = []


# ------------------------------------------------------ what a search reads from its arguments


def adds_prompt(model: nn.Module) -> bool:
    """Return whether an adapter adds a learned prompt, which only `generate` supports."""
    adapter = getattr(model, "active_peft_config", None)
    return adapter is not None and adapter.is_prompt_learning


def _checked_mask(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask, (B, S), all ones for None; each source must have at least one token."""
    shape = tuple(getattr(input_ids, "shape", ()))
    if len(shape) != 2 or not shape[0]:
        raise RequestError(f"Got sources of shape {shape}; give input_ids of shape (sentences, S).")
    if mask is None:
        mask = torch.ones_like(input_ids)
    check_mask(mask, *shape, "attention_mask")
    valid = ((mask == 0) | (mask == 1)).all(1) & mask.any(1)  # (B,)
    if mask.device.type == "cpu" and not valid.all():  # other devices would synchronize
        what = f"The attention_mask of sentence {int(valid.int().argmin()) + 1}"
        raise RequestError(f"{what} must be 0 at padding, 1 at tokens, and not all 0.")
    return mask


class SpecialIds(NamedTuple):
    """Special ids of a search: start, padding, ends, and ids that are never produced."""

    start: int
    pad: int
    ends: list[int]
    never: list[int]


def _special_ids(model: PreTrainedModel, settings: SearchSettings) -> SpecialIds:
    """Return the special ids of a model's generation config, or else of its config."""
    generation_config: Any = model.generation_config

    def ids(name: str) -> list[int]:
        value = getattr(generation_config, f"{name}_token_id", None)
        value = getattr(model.config, f"{name}_token_id") if value is None else value
        several = isinstance(value, (list, tuple))
        return _checked_ids(model, f"{name}_token_id", value if several else [value])

    (start,), (pad,), ends = ids("decoder_start"), ids("pad"), ids("eos")
    suppressed = settings.suppress_tokens
    if suppressed is None:
        suppressed = [n for n in model.config.ids_outside_of_text() if n not in ends]
    words = [word[0] for word in generation_config.bad_words_ids or () if len(word) == 1]
    bad = {*_checked_ids(model, "bad_words_ids", words)} - {*ends}
    never = {*_checked_ids(model, "suppress_tokens", suppressed)} | bad
    return SpecialIds(start, pad, ends, sorted(never))


def _checked_ids(model: PreTrainedModel, name: str, ids: Any) -> list[int]:
    """Return the ids as a list; refuse ids outside of the target's vocabulary."""
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    allowed = Range(0, model.config.target_vocab_size - 1)
    for value in ids:
        if value not in allowed:
            what = f"Got {quoted(value)} in {name}; an id must be {allowed}"
            raise RequestError(f"{what}. Was another tokenizer used?")
    return ids


def _alignment_layer(model: PreTrainedModel, layer: int | None) -> int:
    layers = range(len(model.get_decoder().layers))  # users may have removed some
    last_but_one = -2 if len(layers) > 2 else -1
    return layers[last_but_one if layer is None else layer]


def length_limits(model: PreTrainedModel, mask: Tensor, settings: SearchSettings) -> Tensor:
    """Return each translation's maximum length, (B,): the smallest limit that applies."""
    bounds = (settings.max_new_tokens, longest_sequence(model), 2**31)
    longest = min(bound for bound in bounds if bound)
    tokens = mask.bool().sum(1)
    if settings.max_extra_tokens is None:
        return torch.full_like(tokens, longest)
    return (tokens + settings.max_extra_tokens).clamp(max=longest)


def _padded_prefix(
    model: PreTrainedModel, prefix: Sequence[Sequence[int]], limits: Tensor, special_ids: SpecialIds
) -> Tensor:
    """Return the prefixes as one tensor, (B, longest), padded with -1."""
    rows = []
    for number, (ids, limit) in enumerate(zip(prefix, limits.tolist(), strict=True), start=1):
        row = _checked_ids(model, f"prefix {number}", ids)
        if len(row) > limit:
            what = f"Prefix {number} has {len(row)} tokens, but its translation may have {limit}"
            raise RequestError(f"{what}; give a shorter one, or raise the limit.")
        end = next((place for place, value in enumerate(row) if value in special_ids.ends), None)
        if end is not None and not {*row[end:]} <= {special_ids.pad, *special_ids.ends}:
            raise RequestError(f"Prefix {number}, {row}, has tokens after the end of its sentence.")
        rows.append(limits.new_tensor(row))
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


# ------------------------------------------------------ temporary changes of a model in a search


def _shared_by_threads(
    change: Callable[[Any], Iterator[None]],
) -> Callable[[Any], AbstractContextManager[None]]:
    """Let threads share a temporary change of a model: the first applies it, the last undoes it."""
    changes: dict[int, tuple[int, ExitStack]] = {}  # by model's id: number of threads, undo
    lock = Lock()

    @contextmanager
    def shared(model: nn.Module) -> Iterator[None]:
        with lock:
            users, stack = changes.get(id(model), (0, ExitStack()))
            if users == 0:
                stack.enter_context(contextmanager(change)(model))
            changes[id(model)] = (users + 1, stack)
        try:
            yield
        finally:
            with lock:
                users, stack = changes.pop(id(model))
                if users > 1:
                    changes[id(model)] = (users - 1, stack)
                else:
                    stack.close()

    return shared


@_shared_by_threads
def attention_of_any_shape(backends: Any) -> Iterator[None]:
    """Switch off cuDNN's attention, which takes up to a second to plan for each new shape."""
    before = backends.cudnn_sdp_enabled()
    backends.enable_cudnn_sdp(False)
    yield
    backends.enable_cudnn_sdp(before)


@_shared_by_threads
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout off; afterwards restore the mode of every module."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    with attention_of_any_shape(torch.backends.cuda):
        yield
    for module in training:
        module.training = True


@_shared_by_threads
def returned_attention_weights(model: PreTrainedModel) -> Iterator[None]:
    """Make the attention return its weights: replace `sdpa` by `eager`, which is equivalent.

    Other implementations are kept; if one returns no weights, the search raises an error.
    """
    before = model.config._attn_implementation
    replaces = attention_of(before) == SDPA and attention_of("eager") == EAGER
    if replaces:
        model.set_attn_implementation("eager")
    yield
    if replaces:
        model.set_attn_implementation(before)


# The attention and mask functions of the two implementations that compute the paper's formula.
EAGER = (eager_attention_forward, eager_mask)
SDPA = (sdpa_attention_forward, sdpa_mask)


def attention_of(implementation: str) -> tuple[object, object]:
    """Return the attention and mask functions registered under an implementation's name."""
    # The attention function of layers by default, from the module where they look it up.
    eager: Any = MultiHeadAttention.forward.__globals__.get("eager_attention_forward")
    mask = ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)  # None: transformers makes no mask
    return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager), mask
