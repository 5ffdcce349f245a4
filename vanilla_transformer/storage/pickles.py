"""Load files of `torch.save` without running any code in them."""

import pickle
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import RequestError

_REASON = 200  # characters of a message of torch that an error repeats
_SCALAR: Any = np.float64().__reduce__()[0]
# Checkpoints of trainers hold scores and counts as NumPy numbers.
NUMPY_NUMBERS = (
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (np.dtype, "numpy.dtype"),
    *((type(np.dtype(name.lower())), f"numpy.dtypes.{name}DType") for name in ("Float64", "Int64")),
)


def read_pickle(
    path: Path, allowed: Iterable[tuple[type, str]] = (), *, remedy: str | None = None
) -> object:
    """Return the content of a `torch.save` file: tensors, plain values and allowed classes.

    Args:
        path: file to read.
        allowed: classes that the format needs, each with its full name in the file.
        remedy: what the error tells the user to do. None says to save or copy the file again.

    Raises:
        ValueError: the file names another class or function, or it is damaged.
        OSError: it cannot be opened; `filename` says which.
    """
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files that torch warns about are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except (
        *(pickle.UnpicklingError, RuntimeError, EOFError, OSError),
        *(ValueError, LookupError, TypeError),
    ) as error:
        if isinstance(error, OSError) and error.filename is not None:  # there is no such file
            raise
        # Of torch's advice, only what it found: the rest says how to run the code.
        reason = " ".join(str(error).rpartition("WeightsUnpickler error: ")[2].split())[:_REASON]
        raise RequestError(
            f"{path} is no torch.save file of tensors and plain values, and nothing in it was run "
            f"({reason}); {remedy or 'save only the state_dict, or copy it again'}."
        ) from error
