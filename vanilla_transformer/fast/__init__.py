"""The fast path of beam search: decode unmodified models in fewer and faster calls.

It finds the same translations as a search that calls `model(...)`. The package's `__init__`
registers it.
"""

from .incremental_decoding import incremental_decoder
from .onednn import release
from .unmodified import is_unmodified

__all__ = ["incremental_decoder", "is_unmodified", "release"]
