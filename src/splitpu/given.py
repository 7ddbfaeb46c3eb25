"""What is given to judge a model by, refused or warned of where it cannot be what it is taken for."""

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError, SplitPUWarning

Floats = npt.NDArray[np.float64]
_WHAT_GIVES = {
    "decisions": "what decision_function returns, above 0 meaning positive",
    "probabilities": "the column of predict_proba that belongs to positives",
}


def warn_of_probabilities(positive: Floats, unlabelled: Floats) -> None:
    """Scores from 0 to 1 are most probably those of predict_proba, all of which would count as called positive."""
    both = np.concatenate([positive, unlabelled])
    if both.min() > 0 and both.max() <= 1 and both.min() < both.max():
        warnings.warn(
            "all decisions lie between 0 and 1, so every row counts as called positive: if they are probabilities, "
            "subtract 1/2 from them, or give what decision_function returns",
            SplitPUWarning,
            stacklevel=3,
        )


def checked_scores(
    given: npt.ArrayLike, name: str, what: Literal["decisions", "probabilities"] = "decisions"
) -> Floats:
    """Decisions as one flat array of finite numbers; `name` says in messages whose they are.

    >>> checked_scores([1, -2], "positives").tolist()
    [1.0, -2.0]
    """
    try:
        scores = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the {what} on {name} are not numbers: give {_WHAT_GIVES[what]}") from None
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"the {what} on {name} have the shape {scores.shape}: give at least one, as a flat array")
    if not np.isfinite(scores).all():
        raise InputError(f"the {what} on {name} hold NaN or infinite values: check the model that made them")
    return scores
