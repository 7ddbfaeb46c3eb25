"""Labels that are no random draw of the positives, made on purpose."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_seed

Preference = Literal["random", "clear", "border", "feature"]


def preferred_labels(
    features: npt.ArrayLike,
    truth: npt.ArrayLike,
    count: int,
    *,
    preference: Preference = "clear",
    strength: float = 2.0,
    column: int | None = None,
    seed: int = 0,
) -> Flags:
    """Label some positives with a preference, to try out what becomes of methods and figures.

    A positive is labelled with a probability proportional to sigmoid(2 * strength * v), where v is standardised over
    the positives: how clearly a linear model trained on the truth takes the row for positive (`clear`), or how little
    (`border`), or a `column` or else the positives' first principal component, which need not tell classes apart
    (`feature`).

    >>> rng = np.random.default_rng(0)
    >>> rows, truth = rng.normal(size=(200, 3)), np.arange(200) < 100
    >>> labels = preferred_labels(rows, truth, 30, preference="feature", seed=1)
    >>> int(labels.sum()), bool((labels & ~truth).any())
    (30, False)
    """
    rows, positive = np.asarray(features, dtype=np.float64), np.asarray(truth).astype(np.bool_)
    if preference not in get_args(Preference):
        raise InputError(f"preference={preference!r} is unknown: choose one of {', '.join(get_args(Preference))}")
    if rows.ndim != 2 or positive.shape != (len(rows),):
        raise InputError(f"features of shape {rows.shape} and truth of shape {positive.shape} do not fit: give a table")
    if not 1 <= count <= positive.sum():
        raise InputError(f"count={count} cannot be labelled: there are {int(positive.sum())} positives")
    rng = np.random.default_rng(checked_seed(seed))
    along = _along(rows, positive, preference, column)
    chances = 1 / (1 + np.exp(-2 * strength * along))
    chosen = rng.choice(np.flatnonzero(positive), count, replace=False, p=chances / chances.sum())
    labels = np.zeros(len(rows), dtype=np.bool_)
    labels[chosen] = True
    return labels


def _along(rows: Floats, positive: Flags, preference: Preference, column: int | None) -> Floats:
    """What the preference goes by, standardised over the positives."""
    scaled = _standardised(rows)
    if preference == "random":
        return np.zeros(int(positive.sum()))
    if preference == "feature":
        centred = scaled[positive] - scaled[positive].mean(0)
        axis = np.linalg.svd(centred, full_matrices=False)[2][0] if column is None else np.eye(rows.shape[1])[column]
        along = centred @ axis
    else:
        from sklearn.linear_model import LogisticRegression

        along = LogisticRegression(C=0.1, max_iter=500).fit(scaled, positive).decision_function(scaled[positive])
        along = along if preference == "clear" else -along
    standardised: Floats = (along - along.mean()) / max(float(along.std()), 1e-9)
    return standardised


def _standardised(rows: Floats) -> Floats:
    spread = rows.std(0)
    scaled: Floats = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled
