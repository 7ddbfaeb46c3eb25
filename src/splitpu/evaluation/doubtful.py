"""Which samples give most reason to doubt: one order for the command, the report and Python."""

import numpy as np
import numpy.typing as npt

from splitpu.given import Floats


def written(probability: float) -> str:
    """A probability as files keep it.

    >>> written(0.123456789)
    '0.123457'
    """
    return f"{probability:.6g}"


def most_doubtful(teacher: Floats, student: Floats, among: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
    """Positions where the student is unsure or contradicts its teacher, the worst first; both on one scale.

    >>> most_doubtful(np.array([0.9, 0.5, 1.0]), np.array([0.9, 0.5, 0.0]), np.array([True, True, True]), 2).tolist()
    [2, 1]
    """
    candidates = np.flatnonzero(among)
    # Rounded as files are, or near ties would have one order in the training and another when its files are read.
    taught, said = (np.array([float(written(one)) for one in both[candidates]]) for both in (teacher, student))
    doubt = np.abs(taught - said) + (0.5 - np.abs(said - 0.5))
    return candidates[np.argsort(-doubt, kind="stable")][:count]
