"""Shortlists: the few target pieces that are likely in the translation of a source.

Projecting each hypothesis to the vocabulary takes much of a small model's time. With a shortlist, a
search projects only to the most frequent pieces, and to those that most often occur in training
pairs together with the source's pieces (Jean et al., 2015, arXiv 1412.2007, Section 3.3). It may
then find other translations, and its probabilities sum to one over these pieces. So a shortlist is
used only by the fast path, for models that `use_shortlist` was called for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..batch_translation import DOUBTFUL_BELOW
from ..errors import RequestError
from ..storage.atomic import write_aside
from ..storage.saved_model import SHORTLIST, read_config, read_tensors, tokenizer_digests

logger = logging.getLogger(__name__)

USUAL = (512, 1024, 2048, 4096)  # candidates for the number of usual pieces
LIKELY = 8  # limit on target pieces for a source piece, besides the usual ones
MOST_PIECES = 60_000  # limit on a vocabulary's size, so that the file stays below 1 MiB
COUNTED = 200_000  # limit on training pairs to count pieces in


class Shortlist(NamedTuple):
    """The target pieces that any translation may have, and those likely for each source piece."""

    usual: Tensor  # (N,), int64
    likely: Tensor  # besides the usual ones, (source vocabulary, K), int64


# The shortlists that models search with.
SHORTLISTS: WeakKeyDictionary[PreTrainedModel, Shortlist] = WeakKeyDictionary()


def use_shortlist(model: PreTrainedModel, folder: Path) -> None:
    """Make a model search with the shortlist in its folder, if there is one.

    The generation config gets the threshold below which a translation of such a search is doubtful.
    If the file is damaged or another model's, a warning says so, and nothing changes.
    """
    if (folder / SHORTLIST).is_file():
        try:
            SHORTLISTS[model], doubtful_below = read_shortlist(folder)
            setattr(model.generation_config, DOUBTFUL_BELOW, doubtful_below)
        except RequestError as error:
            logger.warning("Searching the whole vocabulary, which is slower: %s", error)


def read_shortlist(folder: Path) -> tuple[Shortlist, float]:
    """Read a shortlist from a model's folder, and its threshold for doubting a translation.

    Raises:
        ValueError: The shortlist is damaged, or another model's.
    """
    tensors = dict(read_tensors(folder / SHORTLIST))
    written = tensors.pop("digest", torch.empty(0))
    if written.tolist() != _digest(folder, tensors):
        raise RequestError(f"{folder / SHORTLIST} is damaged or another model's; delete it.")
    doubtful_below = tensors.pop(DOUBTFUL_BELOW).item()
    return Shortlist(**{name: ids.long() for name, ids in tensors.items()}), doubtful_below


def write_shortlist(shortlist: Shortlist, folder: Path, doubtful_below: float) -> None:
    """Write a shortlist into the folder of its model and tokenizer; ids must be below 2^16.

    `doubtful_below` is the threshold of `set_doubt_threshold`, but for searches with this list.
    """
    tensors = {name: ids.to(torch.uint16) for name, ids in shortlist._asdict().items()}
    tensors[DOUBTFUL_BELOW] = torch.tensor(doubtful_below)
    tensors["digest"] = torch.tensor(_digest(folder, tensors), dtype=torch.uint8)
    write_aside(folder / SHORTLIST, lambda aside: aside.write_bytes(save(tensors)))


def _digest(folder: Path, tensors: dict[str, Tensor]) -> list[int]:
    """Return the SHA-256 of a shortlist's tensors and of the vocabulary they refer to."""
    config = read_config(folder)
    pieces = [tokenizer_digests(folder), config.vocab_size, config.target_vocab_size]
    return [*hashlib.sha256(json.dumps(pieces).encode() + save(tensors)).digest()]


def learn_shortlists(pairs: Any, config: Any) -> list[Shortlist]:
    """Find the target pieces that are most frequent, overall and with each source piece.

    Args:
        pairs: Training pairs, a data set with `input_ids` and `labels`.
        config: The config of the model.

    Returns:
        A shortlist for each number in `USUAL` below a quarter of the target vocabulary (longer ones
        save no time), the shortest first; none if a vocabulary is larger than `MOST_PIECES`.
    """
    sizes = (config.vocab_size, config.target_vocab_size)
    counts = [count for count in USUAL if 4 * count < sizes[1] and max(sizes) <= MOST_PIECES]
    counted = pairs[:: -(-len(pairs) // COUNTED)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its sparse matrices are in beta
        in_sources, in_targets = map(_occurrences, (counted["input_ids"], counted["labels"]), sizes)
        together = torch.sparse.mm(in_sources.T, in_targets).coalesce()
    order = together.values().argsort(descending=True)
    order = order[together.indices()[0, order].argsort(stable=True)]
    source, target = together.indices()[:, order]  # by source piece, then the most frequent first
    ranked = torch.sparse.sum(in_targets, 0).to_dense().argsort(descending=True)
    shortlists = []
    for usual in (ranked[:count] for count in counts):
        other = ~torch.isin(target, usual)
        rows = target[other].split(source[other].bincount(minlength=sizes[0]).tolist())
        # The padding, 0, is a usual piece.
        likely = pad_sequence([row[:LIKELY] for row in rows], batch_first=True)
        shortlists.append(Shortlist(usual, likely))
    return shortlists


def _occurrences(rows: Sequence[Sequence[int]], size: int) -> Tensor:
    """Return how often each row has each of `size` pieces: a sparse matrix, (rows, size)."""
    numbers = [number for number, row in enumerate(rows) for _ in row]
    places = torch.tensor([numbers, [piece for row in rows for piece in row]])
    return torch.sparse_coo_tensor(places, torch.ones(len(numbers)), (len(rows), size))
