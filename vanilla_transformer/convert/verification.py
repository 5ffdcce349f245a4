"""The proof that an export is the same model: a few sentences, and how far the two may differ."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..errors import RequestError
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .engines import never_produced

SENTENCES = 4
LONGEST = 12  # tokens of the longest sentence; the others are shorter, so that padding counts


class Probe(NamedTuple):
    """Sentence pairs to compare two models on."""

    source: Tensor  # ids, (B, S)
    mask: Tensor  # 1 at tokens and 0 at padding, (B, S)
    target: Tensor  # the decoder's input, all of one length, (B, T)


def probe(config: VanillaTransformerConfig) -> Probe:
    """Random pairs, always the same: they touch more of the vocabulary than a few real ones."""
    generator = torch.Generator().manual_seed(0)
    longest = min(LONGEST, config.max_position_embeddings)
    shape = (SENTENCES, longest)
    source = torch.randint(config.vocab_size, shape, generator=generator)
    target = torch.randint(config.target_vocab_size, shape, generator=generator)
    start, pad = config.start_and_pad_ids()
    target[:, 0] = start
    lengths = torch.arange(longest, longest - SENTENCES, -1).clamp(min=1)
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return Probe(source.masked_fill(mask == 0, pad), mask, target)


@torch.inference_mode()
def translated(model: VanillaTransformerForConditionalGeneration, probe: Probe) -> Probe:
    """The same sources with the model's own translations of as many tokens."""
    new = probe.target.size(1) - 1
    target: Tensor = model.generate(  # type: ignore[misc, assignment]
        probe.source, attention_mask=probe.mask, num_beams=1, min_new_tokens=new, max_new_tokens=new
    )
    return probe._replace(target=target)


@torch.inference_mode()
def log_probabilities(
    model: torch.nn.Module | VanillaTransformerForConditionalGeneration, probe: Probe
) -> Tensor:
    """Log-probabilities of every next token after each of the target's, (B, T, V), float32."""
    logits = model(
        input_ids=probe.source, attention_mask=probe.mask, decoder_input_ids=probe.target
    ).logits
    return logits.float().log_softmax(dim=-1)


def check_equal(
    got: Tensor, expected: Tensor, *, tolerance: float, name: str, on_average: bool = False
) -> float:
    """The largest or mean difference, which must not exceed the tolerance.

    Raises:
        ValueError: it does, or is no number; nothing has been written then.
    """
    differences = (got - expected).abs()
    difference = (differences.mean() if on_average else differences.max()).item()
    if not difference <= tolerance:  # NaN is no proof
        raise RequestError(
            f"The export as {name} differs from the model by {'' if on_average else 'up to '}"
            f"{difference:.1e} in its log-probabilities (allowed {tolerance:.0e}); nothing was "
            "written. Please report it."
        )
    return difference


@torch.inference_mode()
def check_greedy(
    model: VanillaTransformerForConditionalGeneration,
    probe: Probe,
    found: Tensor,
    *,
    tolerance: float,
    name: str,
) -> None:
    """Refuses a greedy translation, (B, T) with the start symbol, that is not the model's.

    At each position the token must be the one that the model prefers, but for ties.

    Raises:
        ValueError: it is not.
    """
    logits = model(
        input_ids=probe.source, attention_mask=probe.mask, decoder_input_ids=found[:, :-1]
    ).logits
    never = [ids[0] for ids in never_produced(model.generation_config) if len(ids) == 1]
    logits[..., never] = -torch.inf
    gap = logits.amax(-1) - logits.gather(2, found[:, 1:, None]).squeeze(2)
    ends = torch.isin(found[:, :-1], torch.tensor(model.generation_config.eos_token_id))
    gap = gap.masked_fill(ends.cummax(dim=1).values, 0.0)  # padding
    if not gap.max() <= tolerance:
        raise RequestError(
            f"The export as {name} translates otherwise than the model, by tokens up to "
            f"{gap.max():.1e} less likely; nothing was written. Please report it."
        )


def foreign_tensors(model: VanillaTransformerForConditionalGeneration) -> list[str]:
    """Names of tensors that the architecture does not have, such as those of an adapter."""
    with torch.device("meta"):
        plain = VanillaTransformerForConditionalGeneration(model.config)
    return sorted(model.state_dict().keys() - plain.state_dict().keys())
