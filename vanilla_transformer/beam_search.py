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

from .incremental import IncrementalDecoder
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .prepacking import packed_linears
from .search import Search

EXTRA_TOKENS = 50  # Section 6.1: "maximum output length during inference to input length + 50"
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
        decoder = IncrementalDecoder(
            *(model, source, mask),
            width=num_beams,
            length=int(limits.max()),
            alignment_layer=layer,
            fuse=prepack,
        )
        search = Search(
            limits,
            torch.promote_types(model.dtype, torch.float32),
            num_beams=num_beams,
            alpha=length_penalty,
            num_return_sequences=num_return_sequences,
            start=_special_id(model, "decoder_start"),
            pad=_special_id(model, "pad"),
            ends=_end_ids(model),
            never=_never_produced(model, suppress_tokens),
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
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


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
