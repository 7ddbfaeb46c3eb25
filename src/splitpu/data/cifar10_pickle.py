"""The Python version of CIFAR-10 without running what a pickle says.

Its batches are pickles, and a pickle is a program: read naively, it can call anything. Nowhere else does this package
read pickles. Here the reader knows only the names in `STAND_INS`, which lead to things in this file that can do nothing
but hold data, and refuses every other, so nothing outside this file is ever called.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.errors import InputError

PIXELS = 3 * 32 * 32


class _TypeName:
    """Stands in for numpy.dtype; remembers only the name it was called with."""

    def __init__(self, name: object = b"", *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which single bytes do not have."""


class _Bytes:
    """Stands in for numpy.ndarray; keeps the shape and bytes that the pickle gives."""

    def __init__(self, *_: object) -> None:
        self.pixels: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_order, content = state
        if not isinstance(kind, _TypeName) or kind.name not in (b"u1", "u1") or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array in it does not hold single bytes")
        self.pixels = np.frombuffer(content, np.uint8).reshape(shape, order="F" if column_order else "C")


def _reconstruct(*_: object) -> _Bytes:
    return _Bytes()


STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # as written by numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # as written by numpy 2
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _TypeName,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Reads dictionaries, lists, numbers, strings and arrays of bytes; refuses every other name unseen."""

    def find_class(self, module: str, name: str) -> Any:
        """Only the stand-ins."""
        try:
            return STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 batch needs") from None


def read_pickled_batch(path: Path) -> tuple[Array, Array]:
    """Pixels (n, 3072) and labels (n,) of one official batch file."""
    try:
        with path.open("rb") as file:
            batch = RestrictedUnpickler(file, encoding="bytes").load()
        pixels = batch[b"data"].pixels
        labels = np.array(batch[b"labels"], dtype=np.uint8)
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise InputError(f"{path} is not a CIFAR-10 batch ({error})") from error
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != PIXELS or labels.shape != (len(pixels),):
        raise InputError(f"{path} does not hold {PIXELS} pixel values and one label per image")
    return pixels, labels
