"""Check on a few sentence pairs that an export computes the same as the model."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..errors import RequestError
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration as Model

SENTENCES = 4
TOLERANCE = 1e-4  # of log-probabilities in float32, because sums may be rounded differently
LONGEST = 12  # tokens of the longest sentence; the others are shorter, to test padding


class Probe(NamedTuple):
    """Sentence pairs to compare two models on."""

    source: Tensor  # ids, (B, S)
    mask: Tensor  # 1 at tokens and 0 at padding, (B, S)
    target: Tensor  # the decoder's input, all of one length, (B, T)


def probe(config: VanillaTransformerConfig) -> Probe:
    """Return fixed random pairs; they cover more of the vocabulary than real sentences."""
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
def log_probabilities(model: torch.nn.Module | Model, probe: Probe) -> Tensor:
    """Return log-probabilities of the next token at each target position, (B, T, V), float32."""
    logits = model(
        input_ids=probe.source, attention_mask=probe.mask, decoder_input_ids=probe.target
    ).logits
    return logits.float().log_softmax(dim=-1)


def check_equal(differences: Tensor, *, name: str) -> float:
    """Return the largest difference from the model, or raise if it exceeds the tolerance.

    Raises:
        ValueError: The difference exceeds the tolerance, or is NaN.
    """
    difference = differences.abs().max().item()
    if not difference <= TOLERANCE:  # true for NaN too
        raise RequestError(f"{name} export: log-probabilities are off by {difference:.1e}.")
    return difference


def check_exportable(model: Model, *, name: str, obstacles: Iterable[str] = ()) -> None:
    """Refuse a model that a format cannot represent, and list all reasons.

    Args:
        model: The model.
        name: The name of the format in errors.
        obstacles: What the format cannot represent. Tensors outside of the architecture, such as
            an adapter's, are refused for every format.

    Raises:
        ValueError: There are obstacles.
    """
    reasons = list(obstacles)
    with torch.device("meta"):
        plain = Model(model.config)
    known = dict(plain.named_parameters())  # lists each tied tensor under one name
    unknown = [key for key, _ in model.named_parameters() if key not in known]
    if unknown:
        reasons.append(f"foreign tensors, such as {unknown[0]}; merge adapters first")
    if reasons:
        raise RequestError(f"{name} cannot represent this model's {'; its '.join(reasons)}.")
