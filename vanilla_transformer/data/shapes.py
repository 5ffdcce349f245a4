"""Collate batches that have few shapes and need no synchronization of a GPU.

Each value that Python reads from a GPU makes both wait. So whatever the model would look for in a
batch, such as gaps between labels, is found here, on the CPU. And a graph of a GPU's work, recorded
once, can be replayed for a batch of the same shape only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..loss import IGNORED
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .dataset import Features

_FILLERS = {"input_ids": 0, "decoder_input_ids": 0, "attention_mask": 0, "labels": IGNORED}


@dataclass(frozen=True)
class ShapedCollator:
    """Collator that marks batches padded only on the right, and can pad them to fixed lengths.

    Args:
        collate: The collator that makes the batches.
        model: The model, whose padding token is used.
        lengths: Lengths to pad to: `lengths` of the sampler. A batch then has one of that many
            shapes, unless `collate` makes rows longer. None: batches keep their shapes.
        max_tokens: The sampler's budget of tokens, which gives the number of rows of each shape.
    """

    collate: Callable[[Features], dict[str, torch.Tensor]]
    model: VanillaTransformerForConditionalGeneration
    lengths: Sequence[int] | None
    max_tokens: int

    def __call__(self, features: Features) -> dict[str, Any]:
        """Collate, pad labels with -100, and add `right_padded` if all padding is on the right."""
        batch: dict[str, Any] = dict(self.collate(features))
        if not {"attention_mask", "labels"} <= batch.keys() <= _FILLERS.keys():
            return batch  # the shape and meaning of other inputs are unknown
        batch["labels"] = self.model.without_padding(batch["labels"])
        if self.lengths is not None:
            longest = max(len(row[name]) for row in features for name in ("input_ids", "labels"))
            rows, width = self.max_tokens // self._length(longest), batch["labels"].size(1)
            width = self._length(max(width, batch["input_ids"].size(1)))
            batch = {name: self._padded(name, side, rows, width) for name, side in batch.items()}
        shown = (batch["attention_mask"] != 0, batch["labels"] != IGNORED)
        is_plain = all((side[:, 1:] <= side[:, :-1]).all() for side in shown)
        if is_plain and (batch.get("decoder_input_ids", shown[0]) != IGNORED).all():
            batch["right_padded"] = True
        return batch

    def _padded(self, name: str, side: torch.Tensor, rows: int, width: int) -> torch.Tensor:
        """Pad to `width`, and add copies of the first row, without labels, up to `rows` rows."""
        filler = self.model.config.pad_token_id if "input_ids" in name else _FILLERS[name]
        padded = side.new_full((max(rows, len(side)), width), filler)
        if name != "labels":
            padded[:, : side.size(1)] = side[0]
        padded[: len(side), : side.size(1)] = side
        return padded

    def _length(self, longest: int) -> int:
        """Return the length to pad rows to; after BPE-dropout it may exceed all `lengths`."""
        return next(int(each) for each in (*(self.lengths or ()), longest) if each >= longest)
