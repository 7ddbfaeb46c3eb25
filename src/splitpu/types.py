"""The arrays that everything here is made of, and the callbacks it tells its progress by; each named once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]  # pictures
Vectors = npt.NDArray[np.float32]  # embeddings
Flags = npt.NDArray[np.bool_]
Mask = npt.NDArray[np.bool_]  # one entry a row: is it in the set or not
Rows = npt.NDArray[np.int64]  # row numbers
Indices = Rows
Shape = tuple[int, ...]  # of one row: (d,), (H, W, C) or (S, H, W, C)
Watch = Callable[[str, int, int], None]  # what is being done, how many are done, of how many
