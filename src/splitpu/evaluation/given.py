"""What is given to judge a model by, refused or warned of where it cannot be what it is taken for."""

import warnings

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError, SplitPUWarning

Floats = npt.NDArray[np.float64]


def warn_of_probabilities(positive: Floats, unlabelled: Floats) -> None:
    """Scores from 0 to 1 are most probably those of predict_proba, all of which would count as called positive."""
    both = np.concatenate([positive, unlabelled])
    if both.min() > 0 and both.max() <= 1 and both.min() < both.max():
        warnings.warn(
            "all decisions lie between 0 and 1, so every row counts as called positive: if they are probabilities, "
            "take 1/2 off them, or give what decision_function returns",
            SplitPUWarning,
            stacklevel=3,
        )


def checked_scores(decision: npt.ArrayLike, name: str) -> Floats:
    """Decisions as one flat array of finite numbers; `name` says in messages whose they are."""
    try:
        scores = np.asarray(decision, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"the decisions on {name} are not numbers: give what decision_function returns, above 0 meaning positive"
        ) from None
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"the decisions on {name} have the shape {scores.shape}: give at least one, as a flat array")
    if not np.isfinite(scores).all():
        raise InputError(f"the decisions on {name} hold NaN or infinite values: check the model that made them")
    return scores
