"""Small volumes for tests."""

import numpy as np
import numpy.typing as npt


def volumes(truth: npt.NDArray[np.bool_], *, slices: int, side: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Noise (n, S, H, W, 1) without a zero; positives are bright in the middle of every slice."""
    random = np.random.default_rng(seed)
    made = random.integers(1, 120, (len(truth), slices, side, side, 1)).astype(np.uint8)
    middle = slice(side // 4, side - side // 4)
    made[truth, :, middle, middle] += 100
    return made
