# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The paper's beam search (Section 6.1), as the authors' code has it, sentence by sentence.

A hypothesis of L tokens, `</s>` among them, scores log P(Y | X) / ((5 + L) / 6)^alpha (Wu et al.,
2016, arXiv 1609.08144, Eq. 14 without coverage). Of each position's best 2 * beam extensions those
that end may enter the `beam` best ended ones, and the best `beam` others live on. A sentence is
done when its ended hypotheses beat whatever its best living one can still become, or at its limit.

Deviation: the authors apply bound and limit to the whole batch, so that a translation may depend on
its neighbours. Here each sentence has its own, and leaves the batch when it is done.

Shapes: B sources still searched, n hypotheses returned of each, w = number of living hypotheses of
each (1, then the beam), C candidates, S source length, t tokens so far, T longest, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from .incremental import IncrementalDecoder, keep_order
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .prepacking import packed_linears

EXTRA_TOKENS = 50  # Section 6.1: "maximum output length during inference to input length + 50"
BLOCK = 64  # tokens of which a maximum is taken before the best are looked for
FIRST_POSITIONS = 32  # for which keys and values have room at first
# What `generate` makes of settings that this search has too.
_SERVED = {"SuppressTokensLogitsProcessor", "MaxLengthCriteria", "EosTokenCriteria"}


@dataclasses.dataclass
class BeamSearchOutput(ModelOutput):
    """What `beam_search` found, the best hypothesis of each source first.

    Args:
        sequences: Target ids without the start symbol, (B, n, T), padding after the end.
        scores: log P / ((5 + L) / 6)^alpha, (B, n), in float32 at least; -inf where there are
            fewer than n hypotheses.
        lengths: L, tokens of each hypothesis with its `</s>`, (B, n).
        finished: Which hypotheses have ended, (B, n). The others met the limit on the length, and
            come after those that have.
        alignments: Attention of each target token to the source's, (B, n, T, S), each row summing
            to one, zeros after the end; if asked for.
    """

    sequences: Tensor | None = None
    scores: Tensor | None = None
    lengths: Tensor | None = None
    finished: Tensor | None = None
    alignments: Tensor | None = None


def length_penalty_of(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + L) / 6)^alpha of a hypothesis of L tokens."""
    return ((5 + length) / 6) ** alpha


def beam_search(
    model: VanillaTransformerForConditionalGeneration,
    input_ids: Tensor | None,
    attention_mask: Tensor | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    num_return_sequences: int = 1,
    max_extra_tokens: int | None = EXTRA_TOKENS,
    max_new_tokens: int | None = None,
    prefix: Sequence[Sequence[int]] | None = None,
    suppress_tokens: Sequence[int] | None = None,
    encoder_outputs: BaseModelOutput | None = None,
    return_alignments: bool = False,
    alignment_layer: int | None = None,
    prepack: bool = True,
) -> BeamSearchOutput:
    """Translates a batch with the paper's search; a sentence's result is its own in any batch.

    Args:
        model: The model; on return in the mode (training or not) it was in.
        input_ids: Source ids, (B, S); None if the encoder's output is given.
        attention_mask: 1 at tokens and 0 at padding, (B, S); None: no padding.
        num_beams: Hypotheses that live at each position; 1 is greedy search. None: the generation
            config's, the paper's 4 in a model made here.
        length_penalty: alpha; 0 prefers short translations, more prefers longer ones. None: the
            generation config's, the paper's 0.6 in a model made here.
        num_return_sequences: n. A search goes on until so many have ended or the limit is met;
            a longer list begins with the shorter one.
        max_extra_tokens: Each translation has at most its source's tokens plus these; None: no
            such bound.
        max_new_tokens: Most tokens of any translation; None: no such bound.
        prefix: Target ids with which each translation begins, a list for each source, empty for
            none. They count in scores and lengths like any others, and may be ids never produced.
        suppress_tokens: Ids never produced. None: those of the generation config, or padding,
            start and unknown.
        encoder_outputs: What the encoder gave for these sources before.
        return_alignments: Whether to return the attention to the source.
        alignment_layer: Decoder layer whose heads are averaged for it, counted as a list's; None:
            the last but one, which aligns words best (Garg et al., 2019, arXiv 1909.02074).
        prepack: Whether to keep a second copy of the weights, laid out for speed, where the
            processor gains by it; see `prepacking` and `fused_layer`.

    Returns:
        The n best hypotheses of each source.

    Raises:
        ValueError: An argument is out of range, or a prefix does not fit.
    """
    num_beams = _setting(model, "num_beams", num_beams)
    length_penalty = _setting(model, "length_penalty", length_penalty)
    bounds = (max_extra_tokens, max_new_tokens)
    _check_arguments(num_beams, num_return_sequences, length_penalty, bounds)
    layer = _alignment_layer(model, alignment_layer) if return_alignments else None
    packed = packed_linears(*([model] if prepack else []))
    with evaluation_mode(model), torch.inference_mode(), packed:
        if encoder_outputs is None:
            encoder_outputs = model.model.encoder(input_ids, attention_mask=attention_mask)
        source = encoder_outputs[0]  # (B, S, d)
        mask = attention_mask
        mask = torch.ones(source.shape[:2], device=source.device) if mask is None else mask
        limits = _limits(model, mask.long(), *bounds)  # (B,)
        room = num_beams * min(FIRST_POSITIONS, int(limits.max()))
        decoder = IncrementalDecoder(model, source, mask, room, alignment_layer=layer, fuse=prepack)
        search = _Search(
            model,
            limits,
            num_beams=num_beams,
            alpha=length_penalty,
            num_return_sequences=num_return_sequences,
            suppressed=suppress_tokens,
            prefix=_padded_prefix(model, prefix, limits),
        )
        search.run(decoder)
        found = search.result()
    # Cloned out of inference mode, so that the caller may do with them what tensors can do.
    return BeamSearchOutput(
        **{name: tensor.clone() for name, tensor in found.items() if tensor is not None}
    )


def paper_beam_search(
    model: VanillaTransformerForConditionalGeneration,
    input_ids: Tensor,
    *,
    generation_config: GenerationConfig,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    **model_kwargs: object,
) -> Tensor | BeamSearchOutput:
    """The paper's search for `model.generate(..., custom_generate=paper_beam_search)`.

    `generate` hands over each source num_beams times; every such row is taken. Translations end at
    their source's length + 50 tokens, or at the config's bound if that is smaller. Of the rest of
    the generation config `num_beams`, `length_penalty`, `num_return_sequences`, `suppress_tokens`
    and `return_dict_in_generate` count.

    Returns:
        Target ids with the start symbol, (B * n, T + 1), as `generate` returns them, or with
        `return_dict_in_generate` a `BeamSearchOutput`.

    Raises:
        ValueError: An argument is out of range, or asks for what this search does not have.
    """
    config = generation_config
    wanted = {type(part).__name__ for part in (*logits_processor, *stopping_criteria)}
    foreign = sorted(wanted - _SERVED) + ["do_sample"] * bool(config.do_sample)
    if foreign:
        raise ValueError(
            f"Got {', '.join(foreign)}, which the paper's search does not have; leave them out, or "
            "call generate without custom_generate."
        )
    num_beams, count = config.num_beams or 1, config.num_return_sequences or 1
    each = slice(None, None, max(num_beams, count))  # of the rows that generate has repeated
    mask = model_kwargs.get("attention_mask")
    found = beam_search(
        model,
        None,
        None if mask is None else mask[each],
        num_beams=num_beams,
        length_penalty=1.0 if config.length_penalty is None else config.length_penalty,
        num_return_sequences=count,
        max_new_tokens=config.max_length - 1,
        prefix=input_ids[each, 1:].tolist(),
        suppress_tokens=config.suppress_tokens,
        encoder_outputs=BaseModelOutput(model_kwargs["encoder_outputs"][0][each]),
    )
    if config.return_dict_in_generate:
        return found
    return with_start(model, found.sequences).flatten(0, 1)


def with_start(model: PreTrainedModel, sequences: Tensor) -> Tensor:
    """Sequences, (..., T), behind the decoder's start symbol, (..., T + 1)."""
    start = sequences.new_full((*sequences.shape[:-1], 1), _special_id(model, "decoder_start"))
    return torch.cat((start, sequences), dim=-1)


def longest_sequence(model: PreTrainedModel) -> int | None:
    """Tokens for which the model has a table of positions; None where there is no end of them."""
    kind = getattr(model.config, "position_encoding", None)
    if kind == "learned" or getattr(model.config, "model_type", None) == "marian":
        return model.config.max_position_embeddings
    return None


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switches dropout off, and leaves every module afterwards as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class _Search:
    """The state of a search: hypotheses that live and that have ended, for each sentence.

    A history, (B, hypotheses, 2, t), holds the tokens of a hypothesis and the decoder's rows that
    predicted them; -1 behind the end of those that have ended.
    """

    def __init__(
        self,
        model: VanillaTransformerForConditionalGeneration,
        limits: Tensor,
        *,
        num_beams: int,
        alpha: float,
        num_return_sequences: int,
        suppressed: Sequence[int] | None,
        prefix: Tensor | None,
    ) -> None:
        batch, device = limits.numel(), limits.device
        self.beam, self.alpha, self.count = num_beams, alpha, num_return_sequences
        self.ends = limits.new_tensor(_end_ids(model))
        self.never = limits.new_tensor(_never_produced(model, suppressed))
        self.pad = _special_id(model, "pad")
        # The authors look at twice the beam, so that enough go on when others end.
        self.candidates = 1 if num_beams == 1 else num_beams * (1 + len(self.ends))
        self.limits, self.prefix = limits, prefix  # (B,), (B, longest prefix)
        self.sentences = torch.arange(batch, device=device)  # places in the batch as it was given
        dtype = torch.promote_types(model.dtype, torch.float32)
        self.tokens = limits.new_full((batch, 1), _special_id(model, "decoder_start"))  # (B, w)
        self.scores = torch.zeros((batch, 1), dtype=dtype, device=device)  # log P, (B, w)
        self.history = limits.new_empty((batch, 1, 2, 0))
        self.ended_scores = torch.full((batch, num_beams), -torch.inf, dtype=dtype, device=device)
        self.ended_history = limits.new_empty((batch, num_beams, 2, 0))
        self.room = self.scores.new_empty(0)
        self.results: list[tuple[Tensor, ...]] = []

    def run(self, decoder: IncrementalDecoder) -> None:
        """Searches until every sentence is done."""
        while self.sentences.numel():
            row = decoder.rows
            logits = decoder.step(self.tokens, self.history[:, :, 1])  # (B, w, V)
            log_probs = self._log_probs(logits)
            self._forbid(log_probs)
            self._grow(log_probs, row)
            done = self._done()
            if done.any():
                self._report(done, decoder)
                order = keep_order(~done)
                self._keep(order)
                decoder.keep(order)

    def _log_probs(self, logits: Tensor) -> Tensor:
        """Normalizes logits, (B, w, V), in float32 at least."""
        if logits.dtype != self.scores.dtype:
            return logits.log_softmax(-1, dtype=self.scores.dtype)
        # Into the same memory at each step: fresh pages for so large a tensor cost time.
        if self.room.numel() < logits.numel():
            self.room = torch.empty_like(logits).flatten()
        return torch.log_softmax(logits, -1, out=self.room[: logits.numel()].view_as(logits))

    def _forbid(self, log_probs: Tensor) -> None:
        """Leaves of the next tokens, (B, w, V), those that may be produced."""
        position = self.history.size(-1)
        if self.prefix is None or position >= self.prefix.size(1):
            log_probs.index_fill_(-1, self.never, -torch.inf)
            return
        forced = self.prefix[:, position, None]  # (B, 1), -1 where the prefix is over
        ids = torch.arange(log_probs.size(-1), device=forced.device)
        barred = torch.where(forced < 0, torch.isin(ids, self.never), ids != forced)  # (B, V)
        log_probs.masked_fill_(barred[:, None], -torch.inf)

    def _grow(self, log_probs: Tensor, row: int) -> None:
        """Extends the living hypotheses by one token each, from log_probs, (B, w, V)."""
        # The best of each hypothesis before the best of all: its score is the same for all its V.
        best, tokens = best_tokens(log_probs, min(self.candidates, log_probs.size(-1)))  # (B, w, c)
        scores = (self.scores[..., None] + best).flatten(1)  # (B, w * c)
        scores, picked = scores.topk(min(self.candidates, scores.size(1)))  # (B, C)
        tokens = tokens.flatten(1).gather(1, picked)  # (B, C)
        parents = picked.div(best.size(-1), rounding_mode="floor")  # (B, C)
        newest = torch.stack((tokens, parents + row), dim=-1)[..., None]  # (B, C, 2, 1)
        history = torch.cat((_pick(self.history, parents), newest), dim=-1)  # (B, C, 2, t)

        ended = torch.isin(tokens, self.ends)
        penalty = length_penalty_of(history.size(-1), self.alpha)
        penalized = (scores / penalty).masked_fill(~ended, -torch.inf)
        pool = torch.cat((self.ended_scores, penalized), dim=1)  # (B, beam + C)
        self.ended_scores, picked = pool.topk(self.beam)
        earlier = nn.functional.pad(self.ended_history, (0, 1), value=-1)
        self.ended_history = _pick(torch.cat((earlier, history), dim=1), picked)

        scores = scores.masked_fill(ended, -torch.inf)
        self.scores, picked = scores.topk(min(self.beam, scores.size(1)))  # (B, w)
        self.history = _pick(history, picked)
        self.tokens = self.history[:, :, 0, -1]

    def _done(self) -> Tensor:
        """Which sentences, (B,), are done: nothing better can come, nothing lives, or the limit.

        The authors wait until the worst of all ended hypotheses beats the bound. As what ends later
        cannot beat the bound, the n best are final, and the same, once the n-th of them does.
        """
        limits = self.limits.to(self.scores.dtype)
        best = self.scores[:, 0]
        reachable = best / length_penalty_of(limits, self.alpha)
        decided = self.ended_scores[:, self.count - 1] > reachable
        return decided | (best == -torch.inf) | (self.limits <= self.history.size(-1))

    def _report(self, done: Tensor, decoder: IncrementalDecoder) -> None:
        """Notes the n best of the sentences that are done: the ended ones, then living ones."""
        penalty = length_penalty_of(self.history.size(-1), self.alpha)
        scores = torch.cat((self.ended_scores[done], self.scores[done] / penalty), dim=1)
        history = torch.cat((self.ended_history[done], self.history[done]), dim=1)
        missing = scores == -torch.inf
        finished = (torch.arange(scores.size(1), device=scores.device) < self.beam) & ~missing
        # Both parts are sorted; what is missing goes behind them.
        picked = missing.long().argsort(dim=1, stable=True)[:, : self.count]  # (B, n)
        scores, finished = scores.gather(1, picked), finished.gather(1, picked)
        history = _pick(history, picked)
        history = history.masked_fill((scores == -torch.inf)[..., None, None], -1)
        alignments = ()
        if decoder.alignment_layer is not None:
            alignments = (decoder.alignments_of(done, history[:, :, 1]),)
        self.results.append((self.sentences[done], scores, finished, history[:, :, 0], *alignments))

    def _keep(self, order: Tensor) -> None:
        """Keeps the sentences of `order`, (B',)."""
        self.sentences, self.limits = self.sentences[order], self.limits[order]
        self.tokens, self.scores, self.history = (
            part[order] for part in (self.tokens, self.scores, self.history)
        )
        self.ended_scores = self.ended_scores[order]
        self.ended_history = self.ended_history[order]
        if self.prefix is not None:
            self.prefix = self.prefix[order]

    def result(self) -> dict[str, Tensor]:
        """The fields of `BeamSearchOutput`, in the order in which the sources were given."""
        longest = max((tokens.size(-1) for _, _, _, tokens, *_ in self.results), default=0)
        parts = []
        for sentences, scores, finished, tokens, *alignments in self.results:
            room = longest - tokens.size(-1)
            tokens = nn.functional.pad(tokens, (0, room), value=-1)
            rows = [nn.functional.pad(part, (0, 0, 0, room)) for part in alignments]
            parts.append((sentences, scores, finished, tokens, *rows))
        order, scores, finished, tokens, *alignments = map(torch.cat, zip(*parts, strict=True))
        back = order.argsort()
        return {
            "sequences": tokens.masked_fill(tokens < 0, self.pad)[back],
            "scores": scores[back],
            "lengths": (tokens >= 0).sum(-1)[back],
            "finished": finished[back],
            "alignments": alignments[0][back] if alignments else None,
        }


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of the last dimension, (..., V), and their places, as `topk` has them.

    On a CPU they are looked for in those `count` blocks that hold the largest maxima: one pass that
    only compares, several times as fast as sorting by selection in all of V.
    """
    blocks = log_probs.size(-1) // BLOCK
    if log_probs.device.type != "cpu" or blocks < 4 * count:
        return log_probs.topk(count)
    whole = log_probs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    places = whole.amax(-1).topk(count).indices[..., None]  # (..., count, 1)
    chosen = whole.gather(-2, places.expand(*places.shape[:-1], BLOCK)).flatten(-2)
    ids = torch.arange(log_probs.size(-1), device=log_probs.device)
    rest = ids[blocks * BLOCK :].expand(*places.shape[:-2], -1)
    ids = torch.cat(((places * BLOCK + ids[:BLOCK]).flatten(-2), rest), dim=-1)
    best, picked = torch.cat((chosen, log_probs[..., blocks * BLOCK :]), dim=-1).topk(count)
    return best, ids.gather(-1, picked)


def _pick(history: Tensor, picked: Tensor) -> Tensor:
    """The picked, (B, m), of the hypotheses, (B, hypotheses, 2, t)."""
    index = picked[:, :, None, None].expand(-1, -1, *history.shape[2:])
    return history.gather(1, index)


def _special_id(model: PreTrainedModel, name: str) -> int | list[int] | None:
    """An id of the generation config, as `generate` takes it, or else of the model's config."""
    value = getattr(model.generation_config, f"{name}_token_id", None)
    return getattr(model.config, f"{name}_token_id") if value is None else value


def _setting(model: PreTrainedModel, name: str, value: float | None) -> float:
    """The caller's value, or the generation config's; `generate` takes 1 where there is none."""
    value = getattr(model.generation_config, name, None) if value is None else value
    return 1 if value is None else value


def _end_ids(model: PreTrainedModel) -> list[int]:
    ends = _special_id(model, "eos")
    return list(ends) if isinstance(ends, (list, tuple)) else [] if ends is None else [ends]


def _never_produced(model: PreTrainedModel, suppressed: Sequence[int] | None) -> list[int]:
    """Ids never produced; those that end a sentence are, unless suppressed by name."""
    if suppressed is None:
        suppressed = model.generation_config.suppress_tokens
    if suppressed is None:
        names = ("pad", "bos", "unk", "decoder_start")
        ids = {getattr(model.config, f"{name}_token_id", None) for name in names}
        suppressed = ids - {None, *_end_ids(model)}
    return sorted(set(suppressed))


def _limits(
    model: PreTrainedModel, mask: Tensor, extra_tokens: int | None, new_tokens: int | None
) -> Tensor:
    """Most tokens of each translation, (B,), by the smallest of its bounds."""
    longest = min(bound for bound in (new_tokens, longest_sequence(model), 2**31) if bound)
    if extra_tokens is None:
        return torch.full_like(mask[:, 0], longest, dtype=torch.long)
    return (mask.sum(1) + extra_tokens).clamp(max=longest)


def _padded_prefix(
    model: PreTrainedModel, prefix: Sequence[Sequence[int]] | None, limits: Tensor
) -> Tensor | None:
    """The prefixes, (B, longest), -1 behind the end of each; None if all are empty."""
    if prefix is None:
        return None
    if len(prefix) != limits.numel():
        raise ValueError(
            f"Got {len(prefix)} prefixes for {limits.numel()} sources; give one for each source, "
            "an empty one where a translation is free."
        )
    entries = model.model.decoder.embed_tokens.num_embeddings
    rows = [torch.as_tensor(ids, dtype=torch.long, device=limits.device) for ids in prefix]
    for number, (row, limit) in enumerate(zip(rows, limits.tolist(), strict=True), start=1):
        if row.numel() > limit:
            raise ValueError(
                f"Prefix {number} has {row.numel()} tokens, but its translation may have {limit}; "
                "give a shorter one, or raise the bound on the length."
            )
        if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < entries:
            raise ValueError(
                f"Prefix {number} holds ids from {int(row.min())} to {int(row.max())}; allowed are "
                f"0 to {entries - 1}. Was another tokenizer used?"
            )
    if not any(row.numel() for row in rows):
        return None
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def _alignment_layer(model: PreTrainedModel, layer: int | None) -> int:
    layers = len(model.model.decoder.layers)
    chosen = max(layers - 2, 0) if layer is None else layer
    if not -layers <= chosen < layers:
        raise ValueError(f"Got alignment_layer={layer}; allowed are {-layers} to {layers - 1}.")
    return chosen % layers


def _check_arguments(beams: int, count: int, alpha: float, bounds: Sequence[int | None]) -> None:
    if beams < 1:
        raise ValueError(f"Got num_beams={beams}; it must be at least 1, which is greedy.")
    if not 1 <= count <= beams:
        raise ValueError(f"Got num_return_sequences={count}; allowed are 1 to num_beams={beams}.")
    if alpha < 0:
        raise ValueError(f"Got length_penalty={alpha}; it must be at least 0, the paper's is 0.6.")
    extra, new = bounds
    if new is not None and new < 1:
        raise ValueError(f"Got max_new_tokens={new}; it must be at least 1.")
    if extra is None and new is None:
        raise ValueError("Got neither max_extra_tokens nor max_new_tokens; give a bound.")
    if extra is not None and extra < 0:
        raise ValueError(f"Got max_extra_tokens={extra}; it must be at least 0.")


__all__ = ["BeamSearchOutput", "beam_search", "paper_beam_search"]
