"""Decoding by the model itself, to compare the fast path with."""

from contextlib import contextmanager

from vanilla_transformer.beam_search import FASTER_DECODERS


@contextmanager
def without_fast_path():
    """Switch the fast path off: each search calls the model itself."""
    faster = FASTER_DECODERS.copy()
    FASTER_DECODERS.clear()
    try:
        yield
    finally:
        FASTER_DECODERS.extend(faster)
