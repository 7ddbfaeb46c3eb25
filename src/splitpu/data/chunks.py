"""Walking over rows a few megabytes at a time, so that a memory-mapped array larger than the RAM can be read."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

VALUES_PER_CHUNK = 1 << 21  # 16 MB once they are float64


def row_slices(features: Array) -> Iterator[slice]:
    """Slices that together cover all rows once, in order."""
    rows = len(features)
    step = max(1, VALUES_PER_CHUNK * rows // max(1, features.size))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
        let_go(features)


def let_go(features: Array) -> None:
    """Give the pages of a memory-mapped file that have been read back to the system, which may keep them or not.

    Else they would count as this process's memory until all of the file does. The content is safe: in these modes the
    pages are the file's own.
    """
    if isinstance(features, np.memmap) and features.mode in ("r", "r+"):
        mapped: Any = getattr(features, "_mmap", None)
        if hasattr(mapped, "madvise"):  # not on Windows
            mapped.madvise(mmap.MADV_DONTNEED)
