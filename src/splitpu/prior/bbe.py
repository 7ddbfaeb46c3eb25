"""BBE: the best bin of the scores, where the unlabelled rows hold positives and hardly anything else."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.1  # delta of the published bound
SLACK = 0.01  # gamma of the published bound


def best_bin(scores_positive: Floats, scores_unlabelled: Floats) -> tuple[float, float]:
    """The share of positives among the unlabelled rows, and the score above which it was read off.

    Above any cut the unlabelled rows contain at least their positives, so the ratio of the two shares above it is never
    below the wanted share; it comes closest where only positives are left. A cut with few rows above it is held back by
    the width of its confidence bound.
    """
    cuts = np.unique(np.concatenate([scores_positive, scores_unlabelled]))
    above_positive = share_at_or_above(scores_positive, cuts)
    above_unlabelled = share_at_or_above(scores_unlabelled, cuts)
    usable = above_positive > 0
    cuts, above_positive, above_unlabelled = cuts[usable], above_positive[usable], above_unlabelled[usable]
    ratio = above_unlabelled / above_positive
    width = math.log(4 / CONFIDENCE) / 2
    doubt = math.sqrt(width / len(scores_unlabelled)) + math.sqrt(width / len(scores_positive))
    best = int(np.argmin(ratio + (1 + SLACK) * doubt / above_positive))
    return min(float(ratio[best]), 1.0), float(cuts[best])


def bbe(scores_positive: Floats, scores_unlabelled: Floats) -> float:
    """The share of positives among the unlabelled rows.

    >>> rng = np.random.default_rng(0)
    >>> positives, negatives = rng.normal(3, 1, 4000), rng.normal(-3, 1, 1400)
    >>> round(bbe(positives[:2000], np.concatenate([positives[3400:], negatives])), 1)
    0.3
    """
    return best_bin(scores_positive, scores_unlabelled)[0]


def share_at_or_above(scores: Floats, cuts: Floats) -> Floats:
    """The share of the scores that reach each cut."""
    share: Floats = 1 - np.searchsorted(np.sort(scores), cuts, side="left") / len(scores)
    return share
