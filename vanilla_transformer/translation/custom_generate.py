"""The paper's search in `generate` of transformers, with its arguments and outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.generation import (
    EosTokenCriteria,
    ForcedEOSTokenLogitsProcessor,
    GenerationMode,
    LogitNormalization,
    MaxLengthCriteria,
    NoBadWordsLogitsProcessor,
    SuppressTokensLogitsProcessor,
)
from transformers.modeling_outputs import BaseModelOutput

from ..beam_search import BeamSearchOutput, beam_search
from ..errors import RequestError
from ..generation_limits import CACHE_NAMES
from ..input_checks import READ_ON_THE_WAY
from ..ranges import EXTRA_TOKENS
from ..search_settings import SAVED, settings_of_other_searches

# Inputs that `generate` would hand to the model, and that this search reads.
_READ_INPUTS = {"attention_mask", "decoder_attention_mask", "decoder_input_ids", "encoder_outputs"}
# Outputs of single steps, which a `BeamSearchOutput` does not have.
_OUTPUTS = ("output_attentions", "output_hidden_states", "output_logits", "output_scores")


def paper_beam_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    *,
    generation_config: GenerationConfig,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    **model_kwargs: Any,
) -> Tensor | BeamSearchOutput:
    """Run the paper's search in `model.generate(..., custom_generate=paper_beam_search)`.

    `generate` repeats each source; only one of its rows is used. Translations end at the call's
    `max_new_tokens` or, without it, at their source's length + 50 tokens. The search also reads
    `SAVED` settings, the special ids and `return_dict_in_generate` from the generation config.
    Settings that neither the call nor the model sets are the paper's, as in `beam_search`.

    Returns:
        Target ids with the start symbol, (B * n, T + 1), as `generate` returns them, or with
        `return_dict_in_generate` a `BeamSearchOutput`.

    Raises:
        ValueError: An argument is out of range, or this search does not have it.
    """
    config = generation_config
    parts = (*logits_processor, *stopping_criteria)
    foreign = {type(part).__name__ for part in parts if not _is_read(config, part)}
    foreign.update(settings_of_other_searches(config))
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH):
        foreign.add(mode.value)
    # As `generate` would call the model: an adapter may put a prefix in its cache.
    prepare: Callable[..., dict[str, Any]] = model.prepare_inputs_for_generation  # type: ignore[assignment]  # GenerationMixin's
    first = prepare(input_ids, is_first_iteration=True, **model_kwargs)
    inputs = {name for name, value in first.items() if value is not None}
    foreign |= inputs - READ_ON_THE_WAY - {*_READ_INPUTS, *CACHE_NAMES}
    caches = [first.get(name) for name in CACHE_NAMES]
    if any(cache is not None and cache.get_seq_length() for cache in caches):
        foreign.add("a cache (keys and values of earlier tokens)")
    foreign |= {name for name in _OUTPUTS if getattr(config, name, None)}
    if foreign:
        raise RequestError(
            f"Got {', '.join(sorted(foreign))}, which the paper's search does not have; leave them "
            "out, or call generate without custom_generate."
        )
    prefix_mask = model_kwargs.get("decoder_attention_mask")
    if prefix_mask is not None and not prefix_mask.all():
        raise RequestError(
            "decoder_attention_mask has padding; give the prefixes to beam_search (prefix=...), "
            "which takes some of different lengths."
        )
    # One of a source's rows: as many as beams, since `generate` refuses to return more than these.
    each = slice(None, None, config.num_beams)
    mask = model_kwargs.get("attention_mask")
    for name in set(SAVED).intersection(getattr(config, "left_open", ())):
        setattr(config, name, None)
    result = beam_search(
        model,
        None,
        None if mask is None else mask[each],
        max_extra_tokens=None if getattr(config, "bounded_by_call", False) else EXTRA_TOKENS,
        max_new_tokens=config.max_length - 1,
        prefix=input_ids[each, 1:].tolist(),
        suppress_tokens=config.suppress_tokens,
        encoder_outputs=BaseModelOutput(model_kwargs["encoder_outputs"][0][each]),
        generation_config=config,
    )
    if config.return_dict_in_generate:
        return result
    sequences = result.sequences.flatten(0, 1)  # (B * n, T)
    return torch.cat((input_ids[:1, :1].expand(len(sequences), 1), sequences), dim=1)


def _is_read(config: GenerationConfig, part: object) -> bool:
    """Return whether `generate` built a part of a search from settings that this search reads."""
    if type(part) is MaxLengthCriteria:
        return part.max_length == config.max_length
    if type(part) is EosTokenCriteria:
        ends = config.eos_token_id
        return part.eos_token_id.tolist() == (ends if isinstance(ends, list) else [ends])
    if type(part) is SuppressTokensLogitsProcessor:
        return part.suppress_tokens.tolist() == list(config.suppress_tokens or ())
    if type(part) is NoBadWordsLogitsProcessor:
        return all(len(word) == 1 for word in config.bad_words_ids or [[]])
    return type(part) in (ForcedEOSTokenLogitsProcessor, LogitNormalization)  # change nothing
