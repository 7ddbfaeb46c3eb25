"""Scores of rows by models that never saw them, and what P against U says about a ranking.

Under random labelling the AUC of P against U is `(1 - share) * AUC + share / 2`, with the share of positives among the
unlabelled rows: it puts rankings in the order of their true AUC without a single known negative, as long as no row was
scored by a model that it taught.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.learners.catalogue import Boosting, FittedStages, Learner, Rows
from splitpu.types import Floats, Indices, Mask

LEVEL = 0.95


@dataclass(frozen=True)
class Auc:
    """An AUC with its interval and standard error."""

    value: float
    low: float
    high: float
    error: float


@dataclass(frozen=True)
class Difference(Auc):
    """How much higher the AUC of the first is, on the same rows, with interval and standard error."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no doubt about which of the two ranks better."""
        return self.low > 0 or self.high < 0


def fold_numbers(labelled: Mask, number: int, seed: int, groups: npt.ArrayLike | None = None) -> Indices:
    """The fold of every row: labelled rows spread evenly, a group never cut apart."""
    folds: Indices = np.zeros(len(labelled), dtype=np.int64)
    if groups is None:
        if labelled.sum() < number or (~labelled).sum() < number:
            raise InputError(f"{int(labelled.sum())} labelled rows are too few for {number} folds")
        rng = np.random.default_rng(seed)
        for kind in (labelled, ~labelled):
            places = rng.permutation(np.flatnonzero(kind))
            folds[places] = np.arange(len(places)) % number
        return folds
    from sklearn.model_selection import StratifiedGroupKFold

    given = np.asarray(groups)
    if len(given) != len(labelled):
        raise InputError(f"groups has {len(given)} entries for {len(labelled)} rows: give one per row")
    if len(np.unique(given[labelled])) < number:
        raise InputError(
            f"the labelled rows come from {len(np.unique(given[labelled]))} groups, too few for {number} folds"
        )
    splitter = StratifiedGroupKFold(number, shuffle=True, random_state=seed)
    for place, (_, held) in enumerate(splitter.split(np.zeros(len(labelled)), labelled, given)):
        folds[held] = place
    return folds


def out_of_fold(
    learner: Learner, rows: Rows, labelled: Mask, folds: Indices, *, sample_weight: Floats | None = None, seed: int = 0
) -> Floats:
    """The score of every row by the learner fitted without the row's fold."""
    scores = np.empty(len(labelled))
    for fold in np.unique(folds):
        held = folds == fold
        weight = None if sample_weight is None else sample_weight[~held]
        fitted = learner.fit(rows[np.flatnonzero(~held)], labelled[~held], sample_weight=weight, seed=seed)
        scores[held] = fitted.scores(rows[np.flatnonzero(held)])
    return scores


def stages_out_of_fold(
    learner: Boosting, rows: Rows, labelled: Mask, folds: Indices, stages: Sequence[int], *, seed: int = 0
) -> dict[int, Floats]:
    """Out-of-fold scores after several numbers of stages, for the price of the largest."""
    scores = {number: np.empty(len(labelled)) for number in stages}
    for fold in np.unique(folds):
        held = folds == fold
        fitted: FittedStages = learner.fit(rows[~held], labelled[~held], seed=seed)
        for number, found in fitted.at_stages(rows[held], stages).items():
            scores[number][held] = found
    return scores


def auc_of(scores: Floats, labelled: Mask) -> Auc:
    """How often a labelled row ranks above an unlabelled one (ties count half), with DeLong's interval.

    The interval is made on the logit scale, so that it stays between 0 and 1; a perfect ranking gets one too.
    """
    value, of_positive, of_other = _placements(scores, labelled)
    error = math.sqrt(_variance(of_positive) + _variance(of_other))
    low, high = _logit_interval(value, error, len(of_positive), len(of_other))
    return Auc(value, low, high, error)


def compare_auc(first: Floats, second: Floats, labelled: Mask) -> Difference:
    """The AUC of the first less that of the second on the same rows (paired DeLong)."""
    value, of_positive, of_other = _placements(first, labelled)
    other_value, other_positive, other_other = _placements(second, labelled)
    error = math.sqrt(_variance(of_positive - other_positive) + _variance(of_other - other_other))
    reach = normal_quantile(LEVEL) * error
    return Difference(value - other_value, value - other_value - reach, value - other_value + reach, error)


def platt(scores: Floats, labelled: Mask) -> tuple[float, float]:
    """Slope and offset that make scores the logits of "labelled": a logistic curve through them, never falling.

    Learners speak on scales of their own (a forest's shares, a boosting's logits); for a mean of several, and for a
    posterior, they must be brought to one.
    """
    from sklearn.linear_model import LogisticRegression

    centre, spread = float(scores.mean()), float(scores.std()) or 1.0
    model = LogisticRegression(C=1e3, max_iter=200).fit(((scores - centre) / spread)[:, None], labelled)
    slope = max(float(model.coef_[0, 0]), 1e-3) / spread
    return slope, float(model.intercept_[0]) - slope * centre


def normal_quantile(level: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + level / 2)


def _placements(scores: Floats, labelled: Mask) -> tuple[float, Floats, Floats]:
    """The AUC; for each labelled row the share of others below it, for each other the share of labelled above it."""
    positive, other = np.asarray(scores[labelled], dtype=np.float64), np.asarray(scores[~labelled], dtype=np.float64)
    if not len(positive) or not len(other):
        raise InputError("an AUC needs labelled rows and unlabelled rows: one of the two is missing")
    of_positive = _share_below(positive, np.sort(other))
    of_other = 1 - _share_below(other, np.sort(positive))
    return float(of_positive.mean()), of_positive, of_other


def _share_below(scores: Floats, ordered: Floats) -> Floats:
    below = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(below / (2 * len(ordered)))


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.25


def _logit_interval(value: float, error: float, positives: int, others: int) -> tuple[float, float]:
    """On the logit scale; at 0 or 1 the width is that of half a row in the wrong place."""
    edge = 0.5 / (min(positives, others) + 1)
    inside = min(max(value, edge), 1 - edge)
    error = max(error, math.sqrt(inside * (1 - inside) / (positives + others + 2)) if inside != value else error)
    middle, reach = math.log(inside / (1 - inside)), normal_quantile(LEVEL) * error / (inside * (1 - inside))
    low, high = (1 / (1 + math.exp(-min(max(end, -700.0), 700.0))) for end in (middle - reach, middle + reach))
    return min(low, value), max(high, value)
