"""The paper's search in fewer calls, for unmodified models.

It finds what the search over `model(...)` finds. The package's `__init__` registers it.
"""

from .incremental_decoding import incremental_decoder
from .onednn import release
from .unmodified import is_unmodified

__all__ = ["incremental_decoder", "is_unmodified", "release"]
