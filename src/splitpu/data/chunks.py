"""Walking over rows a few megabytes at a time, so that a memory-mapped array larger than the RAM can be read."""

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

VALUES_PER_CHUNK = 1 << 21  # 16 MB once they are float64


def row_slices(features: Array) -> Iterator[slice]:
    """Slices that together cover all rows once, in order."""
    rows = len(features)
    step = max(1, VALUES_PER_CHUNK * rows // max(1, features.size))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
