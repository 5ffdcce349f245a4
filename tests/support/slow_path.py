"""Decoding by the model itself, to compare the fast path with."""

from contextlib import contextmanager

import pytest
import torch

from vanilla_transformer.beam_search import FASTER_DECODERS
from vanilla_transformer.fast import onednn

only_where_onednn_packs = pytest.mark.skipif(
    not torch.inference_mode()(onednn._can_pack)(), reason="oneDNN packs nothing here"
)


@contextmanager
def without_fast_path():
    """Switch the fast path off: each search calls the model itself."""
    faster = FASTER_DECODERS.copy()
    FASTER_DECODERS.clear()
    try:
        yield
    finally:
        FASTER_DECODERS.extend(faster)
