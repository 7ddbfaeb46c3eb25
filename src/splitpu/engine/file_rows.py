"""Rows read from a file instead of from memory mapped onto it.

The system may map much of a file for one row at a random place, and all of it counts as this process's memory. What is
read instead goes where it is wanted and nowhere else, so memory stays the same however large the file is.
"""

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError


class FileRows:
    """The rows of a memory-mapped array, by their place in the file."""

    def __init__(self, path: str, first_byte: int, row_bytes: int) -> None:
        self._path, self._first_byte, self._row_bytes = path, first_byte, row_bytes
        self._file = os.open(path, os.O_RDONLY)

    @classmethod
    def of(cls, features: npt.NDArray[Any]) -> "FileRows | None":
        """Find the array in its file; None if it is not one piece of a file as it is on disk."""
        if not isinstance(features, np.memmap) or not hasattr(os, "preadv"):
            return None
        mapped: Any = getattr(features, "_mmap", None)
        if mapped is None or features.filename is None or features.mode not in ("r", "r+"):
            return None
        if not features.flags.c_contiguous:
            return None
        # The array may be a part of the one that was mapped, and a map begins where a page does.
        into_map = features.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        map_begins = features.offset - features.offset % mmap.ALLOCATIONGRANULARITY
        return cls(str(features.filename), map_begins + into_map, features[:1].nbytes)

    def read(self, rows: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> None:
        """Fill `out` with the rows; neighbours in the file that are asked for one after the other are read at once."""
        if not len(rows):
            return
        room = out.reshape(-1).view(np.uint8).data
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            part = room[start * self._row_bytes : end * self._row_bytes]
            self._fill(part, self._first_byte + int(rows[start]) * self._row_bytes)

    def _fill(self, part: memoryview, place: int) -> None:
        while len(part):
            count = os.preadv(self._file, [part], place)
            if count == 0:
                raise InputError(f"{self._path} has become shorter while it was read; restore it and resume.")
            part, place = part[count:], place + count

    def __del__(self) -> None:
        os.close(self._file)
