"""The paper's search in fewer calls, for models that nobody has changed.

It finds what the search over `model(...)` finds; the package's own `__init__` puts it in place.
"""

from .incremental_decoding import incremental_decoder
from .onednn import release
from .plain import is_plain, plain_decoding

__all__ = ["incremental_decoder", "is_plain", "plain_decoding", "release"]
