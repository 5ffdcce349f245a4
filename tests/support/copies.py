"""Child processes that begin as copies of the test process, so they need not import anything."""

import multiprocessing
import os
from collections.abc import Callable, Mapping

from accelerate.state import AcceleratorState, GradientState


def copy_of_this_process(
    function: Callable, *arguments: object, **variables: str
) -> multiprocessing.Process:
    """Return a process, not yet started, that calls a function with environment variables."""
    context = multiprocessing.get_context("fork")
    return context.Process(target=_call, args=(function, arguments, variables))


def _call(function: Callable, arguments: tuple, variables: Mapping[str, str]) -> None:
    os.environ.update(variables)
    # Accelerate keeps the device and the number of processes of the first training.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    function(*arguments)
