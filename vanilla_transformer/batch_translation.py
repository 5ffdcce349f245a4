"""Which search decodes a batch: the paper's (Section 6.1), or one of the host library's.

Models of this package are decoded by `beam_search`; other models, and arguments of `generate` that
it does not have (sampling, assistants, penalties on repetition, ...), go to `model.generate`.

B batch, S source length, T target length, n sequences per source.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList
from transformers.utils import ModelOutput

from .beam_search import EXTRA_TOKENS, beam_search, evaluation_mode, longest_sequence, with_start
from .configuration_vanilla_transformer import VanillaTransformerConfig

# Arguments of `generate` that the paper's search has too; and those values of others that it means.
SEARCH_OPTIONS = {"num_beams", "length_penalty", "num_return_sequences", "suppress_tokens"}
SEARCH_OPTIONS |= {"max_new_tokens", "max_length"}
_NO_CHANGE = {"do_sample": False, "use_cache": True, "early_stopping": False}
# Settings of a generation config that change what a beam search finds, and ours does not have.
_FOREIGN = (
    *("do_sample", "min_new_tokens", "min_length", "no_repeat_ngram_size", "bad_words_ids"),
    *("encoder_no_repeat_ngram_size", "forced_bos_token_id", "forced_eos_token_id"),
    *("begin_suppress_tokens", "sequence_bias", "exponential_decay_length_penalty"),
    *("renormalize_logits", "stop_strings", "max_time", "guidance_scale", "watermarking_config"),
)
_FOREIGN_FACTORS = ("repetition_penalty", "encoder_repetition_penalty")  # 1 changes nothing


class SourceLengthLimit(StoppingCriteria):
    """Ends each translation at a limit of its own, whatever else is in its batch.

    Deviation: the authors' code adds the 50 tokens to the longest source of the batch, so that a
    translation may depend on its neighbours; the paper says "input length".
    """

    def __init__(self, limits: torch.Tensor) -> None:
        """Takes the largest number of tokens after the start symbol for each source, (B,)."""
        self.limits = limits

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: object
    ) -> torch.BoolTensor:
        """Which rows have reached their limit; several rows in succession belong to one source."""
        rows_per_source = input_ids.size(0) // self.limits.size(0)
        return self.limits.repeat_interleave(rows_per_source) <= input_ids.size(1) - 1


def generate_ids(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    **generation_kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Decodes one batch: the one place that calls a search.

    It is the paper's, for models of this package and arguments that it has; otherwise `generate`.

    Args:
        model: A sequence-to-sequence model that can generate.
        input_ids: Source ids, (B, S).
        attention_mask: 1 at tokens and 0 at padding, (B, S).
        **generation_kwargs: Arguments of `generate`; None is as good as not given. Without a bound
            on the length among them, each translation ends at its source's length + 50 tokens.

    Returns:
        Target ids with the start symbol, (B, n, T), n = `num_return_sequences`, and their scores,
        (B, n): the paper's, or those of `generate` where `return_dict_in_generate` and
        `output_scores` ask it for them; else None.
    """
    options = {name: value for name, value in generation_kwargs.items() if value is not None}
    if uses_paper_search(model, options):
        found = beam_search(model, input_ids, attention_mask, **_search_options(model, options))
        return with_start(model, found.sequences), found.scores
    if "max_length" in options:
        # Otherwise the bound in the model's own generation config would win over the caller's.
        options.setdefault("max_new_tokens", None)
    elif not _bounds_length(options):
        limits = attention_mask.sum(dim=1) + EXTRA_TOKENS  # (B,)
        longest = longest_sequence(model)
        limits = limits if longest is None else limits.clamp(max=longest)
        options["max_new_tokens"] = int(limits.max())
        criteria = options.get("stopping_criteria") or []
        options["stopping_criteria"] = StoppingCriteriaList([*criteria, SourceLengthLimit(limits)])
    with evaluation_mode(model), torch.inference_mode():
        output = model.generate(input_ids=input_ids, attention_mask=attention_mask, **options)
    sequences = output.sequences if isinstance(output, ModelOutput) else output
    sequences = sequences.view(input_ids.size(0), -1, sequences.size(-1))  # (B, n, T)
    scores = getattr(output, "sequences_scores", None)  # of beams alone
    return sequences, None if scores is None else scores.view(sequences.shape[:2])


def uses_paper_search(model: PreTrainedModel, options: Mapping[str, object]) -> bool:
    """Whether these arguments of `generate` leave the search to `beam_search`."""
    # By name: a model that came with its code from the Hub is of a class of its own.
    names = {f"{kind.__module__.split('.')[-1]}.{kind.__name__}" for kind in type(model).__mro__}
    kind = VanillaTransformerConfig.model_type
    ours = f"modeling_{kind}.VanillaTransformerForConditionalGeneration" in names
    if not ours or len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return False
    if any(
        name not in SEARCH_OPTIONS and _NO_CHANGE.get(name) is not value
        for name, value in options.items()
    ):
        return False
    config = model.generation_config
    return not any(getattr(config, name, None) for name in _FOREIGN) and not any(
        getattr(config, name, None) not in (None, 1) for name in _FOREIGN_FACTORS
    )


def _search_options(model: PreTrainedModel, options: Mapping[str, object]) -> dict[str, object]:
    """Arguments of `beam_search` for those of `generate`."""
    found = {name: value for name, value in options.items() if name in SEARCH_OPTIONS}
    found["num_return_sequences"] = generation_option(model, options, "num_return_sequences")
    bound = found.pop("max_length", None)
    if bound is not None:
        if bound < 2:
            raise ValueError(f"Got max_length={bound}; it counts the start symbol: give 2 or more.")
        found.setdefault("max_new_tokens", bound - 1)
    if "max_new_tokens" in found:
        found["max_extra_tokens"] = None
    return found


def generation_option(model: PreTrainedModel, options: dict[str, object], name: str) -> int:
    """A whole-number option of `generate` as the call will see it; 1 where nobody sets it.

    Raises:
        ValueError: It is less than 1.
    """
    configs = (options.get("generation_config"), model.generation_config)
    values = (options.get(name), *(getattr(config, name, None) for config in configs))
    value = next((int(value) for value in values if value is not None), 1)
    if value < 1:
        raise ValueError(f"Got {name}={value}; it must be at least 1.")
    return value


def _bounds_length(options: dict[str, object]) -> bool:
    """Whether the caller bounds the length of the output."""
    config = options.get("generation_config")
    bounds = [options.get("max_new_tokens")]
    if isinstance(config, GenerationConfig):
        bounds += [config.max_new_tokens, config.max_length]
    return any(bound is not None for bound in bounds)
