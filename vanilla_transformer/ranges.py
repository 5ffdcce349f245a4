# Copyright 2026 The vanilla_transformer authors. Licensed under the Apache License, Version 2.0.
"""Allowed ranges of numeric arguments, and the error for values outside of them.

The bounds are far beyond any real use: a larger value is a slip, or is meant to exhaust the memory.
"""

import math
import numbers
from dataclasses import dataclass

from .errors import RequestError, quoted


@dataclass(frozen=True)
class Range:
    """An interval of numbers; NaN, infinity and booleans are outside of it."""

    least: float
    most: float = math.inf  # infinity means no bound
    whole: bool = True  # only integers; the float 2.0 is refused
    above: bool = False  # excludes `least` itself
    below: bool = False  # excludes `most` itself

    def __contains__(self, value: object) -> bool:
        """Return whether the value is in the range."""
        kind = numbers.Integral if self.whole else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind) or value in (math.inf, -math.inf):
            return False
        fits = value > self.least if self.above else value >= self.least  # type: ignore[operator]  # a number by now
        return fits and (value < self.most if self.below else value <= self.most)

    def __str__(self) -> str:
        """Describe the range as the end of a sentence: "a number, at least 0"."""
        number = "a whole number" if self.whole else "a number"
        lower = f"{'more than' if self.above else 'at least'} {self.least:g}"
        if self.most == math.inf:
            return f"{number}, {lower}"
        if not self.above and not self.below:
            return f"{number} from {self.least} to {self.most}"
        return f"{number}, {lower} and {'less than' if self.below else 'at most'} {self.most}"

    def check(self, **arguments: object) -> None:
        """Raise an error for values outside of the range."""
        for name, value in arguments.items():
            if value not in self:
                raise RequestError(f"Got {name}={quoted(value)}; it must be {self}.")


BELOW_ONE = Range(0, 1, whole=False, below=True)  # rates of dropout and label smoothing
COUNT = Range(1, 10**9)
COUNT_OR_ZERO = Range(0, 10**9)
EXTRA_TOKENS = 50  # Section 6.1: "maximum output length during inference to input length + 50"
# The widest beam that Koehn and Knowles studied (2017, arXiv 1706.03872).
NUM_BEAMS = Range(1, 1000)
LENGTH_PENALTY = Range(0, 10, whole=False)  # at 40,000 tokens, (40,005/6)**10 nears float32's limit

_LAYERS, _WIDTH, _ENTRIES = Range(1, 1000), Range(1, 65_536), Range(1, 10_000_000)
FIELDS = {  # ranges of the config's fields
    **dict.fromkeys(("encoder_layers", "decoder_layers"), _LAYERS),
    **dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "d_k", "d_v"), _WIDTH),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), _WIDTH),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "max_position_embeddings"), _ENTRIES),
    "position_offset": Range(0, 10_000_000),
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), BELOW_ONE),
    "label_smoothing": BELOW_ONE,
    "layer_norm_eps": Range(0, 1, whole=False, above=True),  # 0 would divide by zero
}
