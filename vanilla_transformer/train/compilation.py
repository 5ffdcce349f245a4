"""Compile the model for training: one graph for all shapes, in a limited time."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from ..fast.unmodified import changes
from .cpu_settings import without_training_changes

logger = logging.getLogger(__name__)

_MOST_SECONDS = 90.0


def may_compile(plugin: Any, model: PreTrainedModel) -> bool:
    """Return whether a model will be compiled: if requested, and if the model is unmodified.

    Args:
        plugin: Compilation settings of accelerate, which are set to one graph for all shapes.
        model: The model.
    """
    plugin.dynamic = True
    with without_training_changes(model):
        change = next(changes(model, whole=True), None)
    if plugin.backend != "NO" and change is not None:
        logger.warning("Skipping compilation, which could bypass model changes: %s.", change)
        plugin.backend = type(plugin.backend)("NO")
    return plugin.backend != "NO"


@contextmanager
def limited_compilation() -> Iterator[None]:
    """Log torch's compile time; after some 90 seconds, run new shapes uncompiled.

    A compilation that has begun is completed, however long it takes.
    """
    from torch._dynamo import callback_handler, config

    started = seconds = 0.0

    def start(*_: object) -> None:
        nonlocal started
        started = time.monotonic()

    def end(*_: object) -> None:
        nonlocal seconds
        seconds += time.monotonic() - started
        logger.info("Compiling has taken %.0f seconds.", seconds)
        if seconds > _MOST_SECONDS:
            logger.warning("Compilation stopped; batches of new shapes run uncompiled.")
            torch.compiler.set_stance("eager_on_recompile")

    callback_handler.register_start_callback(start)
    callback_handler.register_end_callback(end)
    try:
        # Treat floats of the config as constants; otherwise everything would be traced twice.
        with config.patch(specialize_float=True):
            yield
    finally:
        callback_handler.remove_start_callback(start)
        callback_handler.remove_end_callback(end)
        torch.compiler.set_stance("default")
