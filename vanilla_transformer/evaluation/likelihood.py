"""Log-probabilities of given translations: log P(target | source) of each pair.

Shapes: B pairs in a batch, T target length, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from tqdm.auto import tqdm

from ..batch_translation import encode
from ..beam_search import evaluation_mode
from ..errors import NotFiniteError, RequestError
from ..target_tokenizer import target_ids
from ..translation.many_texts import WINDOW, input_device, length_sorted_batches, pad_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Likelihood(NamedTuple):
    """The log-probability of one given translation, and its length."""

    log_probability: float  # log P(target, </s> | source), natural logarithm
    target_tokens: int  # with </s>


def log_probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Iterable[tuple[str, str]],
    *,
    batch_tokens: int = 4096,
    max_sentences: int = 256,
    progress: bool = False,
) -> Iterator[Likelihood]:
    """Yield the log-probability of each translation, in order and within bounded memory.

    It is the sum over the target's tokens and `</s>`, without label smoothing or dropout: what beam
    search divides by its length penalty.

    Args:
        model: A sequence-to-sequence model. Its mode (training or evaluation) is restored.
        tokenizer: Its tokenizer.
        pairs: Any iterable of (source, target), read one window at a time.
        batch_tokens: Maximum of pairs x longest side in a batch. A longer pair goes alone.
        max_sentences: Maximum number of pairs in a batch.
        progress: Whether to show a progress bar.

    Returns:
        An iterator with one `Likelihood` per pair. It reads nothing before you ask for the first.

    Raises:
        ValueError: `check_pair` refuses a pair, or a log-probability is not finite.
    """
    remaining, done = iter(pairs), 0
    with tqdm(unit="pair", disable=not progress) as bar:
        while window := list(islice(remaining, WINDOW)):
            sources, targets = _ids(model, tokenizer, window, first=done + 1)
            found: dict[int, Likelihood] = {}
            lengths = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
            for batch in length_sorted_batches(lengths, batch_tokens, max_sentences):
                sums = _log_probabilities(
                    model, [sources[index] for index in batch], [targets[index] for index in batch]
                )
                for index, value in zip(batch, sums, strict=True):
                    if not math.isfinite(value):
                        raise NotFiniteError(
                            f"Pair {done + index + 1} has the log-probability {value}; the model's "
                            "weights are broken."
                        )
                    found[index] = Likelihood(value, len(targets[index]))
                bar.update(len(batch))
            done += len(window)
            yield from (found[index] for index in range(len(window)))


def check_pair(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pair: tuple[str, str],
    *,
    number: int = 1,
) -> None:
    """Refuse a pair that cannot be scored; the error calls it by its number.

    Raises:
        ValueError: It is not two texts, its source is blank or has more tokens than can be
            translated, or a side is longer than the model's table of positions.
    """
    _ids(model, tokenizer, [pair], first=number)


def _ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    window: Sequence[tuple[str, str]],
    first: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of both sides; errors number the pairs from `first`."""
    for number, pair in enumerate(window, start=first):
        two = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not two or not all(isinstance(side, str) for side in pair):
            raise RequestError(f"Pair {number} is not a pair of two texts, (source, target).")
        if not pair[0].strip():
            raise RequestError(f"Pair {number} has a blank source; leave it out.")
    sources = encode(model, tokenizer, [source for source, _ in window], first=first)
    targets = target_ids(model, tokenizer, [target for _, target in window], first=first)
    return sources, targets


@torch.inference_mode()
def _log_probabilities(
    model: PreTrainedModel, sources: list[list[int]], targets: list[list[int]]
) -> list[float]:
    """Return the sum over the tokens of each target; the logits are (B, T, V)."""
    config = model.config
    ids, mask = pad_ids(sources, config.pad_token_id)
    inputs, _ = pad_ids(
        [[config.decoder_start_token_id, *row[:-1]] for row in targets], config.pad_token_id
    )
    device = input_device(model)
    with evaluation_mode(model):
        logits = model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            decoder_input_ids=inputs.to(device),
        ).logits
    rows = []
    for row, target in zip(logits, targets, strict=True):  # one at a time: no second (B, T, V)
        row = row[: len(target)].to(torch.promote_types(row.dtype, torch.float32))
        gold = torch.tensor(target, device=row.device)[:, None]
        rows.append(row.log_softmax(-1).gather(-1, gold).flatten())
    tokens = torch.cat(rows).cpu().double()
    return [row.sum().item() for row in tokens.split([len(target) for target in targets])]
