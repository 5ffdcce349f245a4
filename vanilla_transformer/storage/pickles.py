"""Files of `torch.save`, opened without running any code in them."""

import pickle
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import RequestError

_SCALAR: Any = np.float64().__reduce__()[0]
# Scores and counts in the checkpoints of trainers are numbers of numpy's.
NUMPY_NUMBERS = (
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (np.dtype, "numpy.dtype"),
    *((type(np.dtype(name.lower())), f"numpy.dtypes.{name}DType") for name in ("Float64", "Int64")),
)


def read_pickle(
    path: Path, allowed: Iterable[tuple[type, str]] = (), *, remedy: str | None = None
) -> object:
    """What a file of `torch.save` holds: tensors, plain values and what is allowed beside them.

    Args:
        path: of the file.
        allowed: classes that the format needs, each with the full name that the file has for it.
        remedy: what the error tells the user to do, if not to save or copy the file anew.

    Raises:
        ValueError: the file names another class or function, or it is damaged.
        OSError: it cannot be opened; `filename` says which.
    """
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch finds odd is refused here
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named:
            raise RequestError(
                f"{path} asks for {named[1]}, which could run code; it was not opened. Allowed are "
                f"tensors and plain values: {remedy or 'save the state_dict alone'}."
            ) from None
        raise _damaged(path, remedy) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # there is no such file
            raise
        if "TorchScript" in str(error):
            raise RequestError(
                f"{path} is a TorchScript program, which could run code; it was not opened. Save "
                "its tensors where it is trusted: torch.save(torch.jit.load(PATH).state_dict(), "
                "OTHER)."
            ) from None
        raise _damaged(path, remedy) from error


def _damaged(path: Path, remedy: str | None) -> RequestError:
    return RequestError(
        f"{path} is not a whole file of torch.save; {remedy or 'copy or download it again'}."
    )
