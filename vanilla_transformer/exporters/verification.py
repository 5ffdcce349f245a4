"""The proof that an export is the same model: a few sentences, and how far the two may differ."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

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
    target[:, 0] = config.decoder_start_token_id
    lengths = torch.arange(longest, longest - SENTENCES, -1).clamp(min=1)
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return Probe(source.masked_fill(mask == 0, config.pad_token_id), mask, target)


@torch.inference_mode()
def log_probabilities(
    model: torch.nn.Module | VanillaTransformerForConditionalGeneration, probe: Probe
) -> Tensor:
    """Log-probabilities of every next token after each of the target's, (B, T, V), float32."""
    logits = model(
        input_ids=probe.source, attention_mask=probe.mask, decoder_input_ids=probe.target
    ).logits
    return logits.float().log_softmax(dim=-1)


def check_equal(got: Tensor, expected: Tensor, *, tolerance: float, name: str) -> float:
    """The largest difference, which must not exceed the tolerance.

    Raises:
        ValueError: it does, or is no number; nothing has been written then.
    """
    difference = (got - expected).abs().max().item()
    if not difference <= tolerance:  # NaN is no proof
        raise ValueError(
            f"The export as {name} differs from the model by up to {difference:.1e} in its "
            f"log-probabilities (allowed {tolerance:.0e}); nothing was written. Please report it."
        )
    return difference
