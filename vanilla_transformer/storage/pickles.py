"""Load files of `torch.save` without running any code in them."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import RequestError
from .reading import reason_of

_SCALAR: Any = np.float64().__reduce__()[0]
# Checkpoints of trainers hold scores and counts as NumPy numbers.
NUMPY_NUMBERS = (
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (np.dtype, "numpy.dtype"),
    *((type(np.dtype(name.lower())), f"numpy.dtypes.{name}DType") for name in ("Float64", "Int64")),
)


def read_pickle(path: Path, allowed: Iterable[tuple[type, str]] = ()) -> object:
    """Return the content of a `torch.save` file: tensors, plain values and allowed classes.

    Args:
        path: File to read.
        allowed: Classes that the format needs, each with its full name in the file.

    Raises:
        ValueError: The file names another class or function, or it is damaged.
        OSError: It cannot be opened; `filename` says which.
    """
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files that torch warns about are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises any kind for what a file may hold
        if isinstance(error, OSError) and error.filename is not None:  # there is no such file
            raise
        # Of torch's advice, only what it found: the rest says how to run the code.
        found = str(error).rpartition("WeightsUnpickler error: ")[2]
        raise RequestError(
            f"{path} is no torch.save file of tensors and plain values, and nothing in it was run "
            f"({reason_of(found)}); save only the state_dict, or copy it again."
        ) from error
