"""Load files of `torch.save` without running any code in them."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

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
        ValueError: The file names another class or function, it is damaged, or it would take more
            memory than its size.
        OSError: It cannot be opened; `filename` says which.
    """
    try:
        _check_stored(path)
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files that torch warns about are refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
        _check_storages(content)
        return content
    except Exception as error:  # damaged files can make torch raise any kind of error
        if isinstance(error, OSError) and error.filename is not None:  # there is no such file
            raise
        # Quote only the problem from torch's message: the rest advises how to run the code.
        found = str(error).rpartition("WeightsUnpickler error: ")[2]
        what = f"not a torch.save file of plain tensors ({reason_of(found)})"
        raise RequestError(f"{path} is {what}; no code in it was run.") from error


def _check_stored(path: Path) -> None:
    """Refuse a compressed archive: torch.save never compresses."""
    if is_zipfile(path):
        with ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > path.stat().st_size:
            raise RequestError(f"it decompresses to {unpacked:,} bytes")


def _check_storages(content: object) -> None:
    """Refuse a tensor whose shape needs more numbers than the file holds."""
    values, seen = [content], set()
    while values:
        value = values.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            is_whole = value.layout is torch.strided and not value.is_meta
            if not is_whole or value.nbytes > value.untyped_storage().nbytes():
                raise RequestError(f"a tensor of shape {[*value.shape]} is not stored completely")
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple | set):
            values += value
