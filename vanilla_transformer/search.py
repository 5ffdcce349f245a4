# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""The state of the paper's beam search (Section 6.1): hypotheses that live and that have ended.

For one sentence a call takes longer than what it computes, so what most positions do not need is
left out at them: nothing is sorted in among the ended where nothing ends.

Shapes: as in `decoding`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .incremental import IncrementalDecoder, keep_order

BLOCK = 64  # tokens of which a maximum is taken before the best are looked for


def length_penalty_of(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + L) / 6)^alpha of a hypothesis of L tokens."""
    return ((5 + length) / 6) ** alpha


class Search:
    """A search of B sentences, each of which has its own bound and limit.

    A history, (B, hypotheses, 2, t), holds the tokens of a hypothesis and the decoder's rows that
    predicted them; -1 behind the end of those that have ended.
    """

    def __init__(
        self,
        limits: Tensor,
        dtype: torch.dtype,
        *,
        num_beams: int,
        alpha: float,
        num_return_sequences: int,
        start: int,
        pad: int,
        ends: Sequence[int],
        never: Sequence[int],
        prefix: Tensor | None,
    ) -> None:
        """Begins with one hypothesis of each sentence, the start symbol.

        Args:
            limits: Most tokens of each translation, (B,).
            dtype: Of the scores.
            num_beams: Hypotheses that live at each position.
            alpha: Exponent of the length penalty.
            num_return_sequences: n.
            start: Id that each translation begins with.
            pad: Id behind the end of a translation.
            ends: Ids that end a translation.
            never: Ids never produced.
            prefix: Ids with which translations begin, (B, longest), -1 behind each; None: none.
        """
        batch, device = limits.numel(), limits.device
        self.beam, self.alpha, self.count, self.pad = num_beams, alpha, num_return_sequences, pad
        self.ends, self.never = limits.new_tensor(ends), limits.new_tensor(never)
        # The authors look at twice the beam, so that enough go on when others end.
        self.candidates = 1 if num_beams == 1 else num_beams * (1 + len(self.ends))
        self.limits, self.prefix = limits, prefix
        self.limit_penalties = length_penalty_of(limits.to(dtype), alpha)  # (B,)
        self.sentences = torch.arange(batch, device=device)  # places in the batch as it was given
        self.tokens = limits.new_full((batch, 1), start)  # (B, w)
        self.scores = torch.zeros((batch, 1), dtype=dtype, device=device)  # log P, (B, w)
        self.history = limits.new_empty((batch, 1, 2, 0))
        self.ended_scores = torch.full((batch, num_beams), -torch.inf, dtype=dtype, device=device)
        self.ended_history = limits.new_empty((batch, num_beams, 2, 0))  # as of the last end
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
        scores, picked = scores.topk(min(self.candidates, scores.size(1)))  # (B, C), sorted
        tokens = tokens.flatten(1).gather(1, picked)  # (B, C)
        ended = torch.isin(tokens, self.ends)
        any_ended = bool(ended.any())
        if not any_ended:  # the others are of no use then
            scores, tokens, picked = (part[:, : self.beam] for part in (scores, tokens, picked))
        parents = picked // best.size(-1)  # (B, C)
        newest = torch.stack((tokens, parents + row), dim=-1)[..., None]  # (B, C, 2, 1)
        history = torch.cat((_pick(self.history, parents), newest), dim=-1)  # (B, C, 2, t)
        if any_ended:
            self._end(scores.masked_fill(~ended, -torch.inf), history)
            scores = scores.masked_fill(ended, -torch.inf)
            scores, picked = scores.topk(min(self.beam, scores.size(1)))
            history = _pick(history, picked)
        self.scores, self.history, self.tokens = scores, history, history[:, :, 0, -1]

    def _end(self, scores: Tensor, history: Tensor) -> None:
        """Sorts candidates, (B, C), in among the ended; those that live score -inf."""
        penalized = scores / length_penalty_of(history.size(-1), self.alpha)
        pool = torch.cat((self.ended_scores, penalized), dim=1)  # (B, beam + C)
        self.ended_scores, picked = pool.topk(self.beam)
        self.ended_history = _pick(torch.cat((self._ended_so_far(history), history), dim=1), picked)

    def _ended_so_far(self, history: Tensor) -> Tensor:
        """Histories of the ended, (B, beam, 2, t), as long as these."""
        longer = history.size(-1) - self.ended_history.size(-1)
        return nn.functional.pad(self.ended_history, (0, longer), value=-1)

    def _done(self) -> Tensor:
        """Which sentences, (B,), are done: nothing better can come, nothing lives, or the limit.

        The authors wait until the worst of all ended hypotheses beats the bound. As what ends later
        cannot beat the bound, the n best are final, and the same, once the n-th of them does.
        """
        best = self.scores[:, 0]
        decided = self.ended_scores[:, self.count - 1] > best / self.limit_penalties
        return decided | (best == -torch.inf) | (self.limits <= self.history.size(-1))

    def _report(self, done: Tensor, decoder: IncrementalDecoder) -> None:
        """Notes the n best of the sentences that are done: the ended ones, then living ones."""
        penalty = length_penalty_of(self.history.size(-1), self.alpha)
        scores = torch.cat((self.ended_scores, self.scores / penalty), dim=1)[done]
        history = torch.cat((self._ended_so_far(self.history), self.history), dim=1)[done]
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
        for name in (
            *("sentences", "limits", "limit_penalties", "tokens", "scores", "history"),
            *("ended_scores", "ended_history"),
        ):
            setattr(self, name, getattr(self, name)[order])
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
    places = whole.amax(-1).topk(count).indices  # (..., count)
    chosen = whole.gather(-2, places[..., None].expand(*places.shape, BLOCK)).flatten(-2)
    best, picked = torch.cat((chosen, log_probs[..., blocks * BLOCK :]), dim=-1).topk(count)
    places = nn.functional.pad(places, (0, 1), value=blocks)  # what is left over, as one block more
    return best, places.gather(-1, picked // BLOCK) * BLOCK + picked % BLOCK


def _pick(history: Tensor, picked: Tensor) -> Tensor:
    """The picked, (B, m), of the hypotheses, (B, hypotheses, 2, t)."""
    index = picked[:, :, None, None].expand(-1, -1, *history.shape[2:])
    return history.gather(1, index)
