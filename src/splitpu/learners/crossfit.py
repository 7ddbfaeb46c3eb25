"""Scores of rows by models that never saw them, and what P against U says about a ranking.

Under random labelling the AUC of P against U is `(1 - share) * AUC + share / 2`, with the share of positives among the
unlabelled rows: it puts rankings in the order of their true AUC without a single known negative, as long as no row was
scored by a model that it taught."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.evaluation.metrics import placements
from splitpu.learners.catalogue import Bagging, Fitted, Learner, Rows, fewer_rows
from splitpu.types import Floats, Indices, Mask, Watch

_REACH = NormalDist().inv_cdf(0.975)  # standard errors on either side of a 95 % interval


@dataclass(frozen=True)
class Auc:
    """An AUC, or a difference of two, with its interval and standard error."""

    value: float
    low: float
    high: float
    error: float


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
            f"the labelled rows are of {len(np.unique(given[labelled]))} groups, too few for {number} folds"
        )
    splitter = StratifiedGroupKFold(number, shuffle=True, random_state=seed)
    for place, (_, held) in enumerate(splitter.split(np.zeros(len(labelled)), labelled, given)):
        folds[held] = place
    return folds


@dataclass
class Task:
    """Rows, labels and all that a fit of them needs."""

    rows: Rows
    labelled: Any  # a mask, or what else the learner is to be taught
    weight: Floats | None = None
    groups: npt.NDArray[Any] | None = None
    seed: int = 0
    watch: Watch = lambda *_: None

    def fewer(self, most: int) -> "Task":
        kept = fewer_rows(self.labelled, most, self.seed)
        weight = None if self.weight is None else self.weight[kept]
        groups = None if self.groups is None else self.groups[kept]
        return Task(self.rows[kept], self.labelled[kept], weight, groups, self.seed)

    def folds(self, number: int) -> Indices:
        number = max(2, min(number, int(self.labelled.sum())))
        return fold_numbers(self.labelled, number, self.seed, self.groups)

    def out_of_fold(self, one: Learner, number: int) -> tuple[Floats, Fitted | None]:
        """Scores of all rows by parts of a learner that never saw them, and that on all rows where it came with them.

        Out of bag where the learner has that, else out of fold."""
        if isinstance(one, Bagging) and self.groups is None and self.weight is None:
            fitted = one.fit(self.rows, self.labelled, seed=self.seed)
            if fitted.out_of_bag is not None:
                return fitted.out_of_bag, fitted
        return out_of_fold(one, self, self.folds(number)), None


def fitted_in_folds(learner: Learner, task: Task, folds: Indices) -> Iterator[tuple[Indices, Any]]:
    """The rows of every fold, with the learner fitted without them."""
    for done, fold in enumerate(np.unique(folds)):
        task.watch("parts of all rows scored", done, int(folds.max()) + 1)
        held, taught = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        weight = None if task.weight is None else task.weight[taught]
        yield held, learner.fit(task.rows[taught], task.labelled[taught], sample_weight=weight, seed=task.seed)


def out_of_fold(learner: Learner, task: Task, folds: Indices) -> Floats:
    """The score of every row by the learner fitted without the row's fold."""
    scores = np.empty(len(folds))
    for held, fitted in fitted_in_folds(learner, task, folds):
        scores[held] = fitted.scores(task.rows[held])
    return scores


def auc_of(scores: Floats, labelled: Mask) -> Auc:
    """How often a labelled row ranks above an unlabelled one (ties count half), with DeLong's interval.

    The interval is made on the logit scale, so that it stays between 0 and 1; a perfect ranking gets one too."""
    of_positive, of_other = _placements(scores, labelled)
    value, error = float(of_positive.mean()), math.sqrt(_variance(of_positive) + _variance(of_other))
    edge = 0.5 / (min(len(of_positive), len(of_other)) + 1)
    inside = min(max(value, edge), 1 - edge)
    wide = error  # at 0 or 1 that of half a row in the wrong place
    if inside != value:
        wide = max(error, math.sqrt(inside * (1 - inside) / (len(labelled) + 2)))
    middle, reach = math.log(inside / (1 - inside)), _REACH * wide / (inside * (1 - inside))
    low, high = (1 / (1 + math.exp(-min(max(end, -700.0), 700.0))) for end in (middle - reach, middle + reach))
    return Auc(value, min(low, value), max(high, value), error)


def compare_auc(first: Floats, second: Floats, labelled: Mask) -> Auc:
    """The AUC of the first less that of the second on the same rows (paired DeLong)."""
    (of_positive, of_other), (other_positive, other_other) = (_placements(one, labelled) for one in (first, second))
    error = math.sqrt(_variance(of_positive - other_positive) + _variance(of_other - other_other))
    gain = float(of_positive.mean()) - float(other_positive.mean())
    return Auc(gain, gain - _REACH * error, gain + _REACH * error, error)


def platt(scores: Floats, labelled: Mask) -> tuple[float, float]:
    """Slope and offset that make scores the logits of "labelled": a logistic curve through them, never falling.

    Learners speak on scales of their own (a forest's shares, a boosting's logits); for a mean of several, and for a
    posterior, they must be brought to one."""
    from sklearn.linear_model import LogisticRegression

    centre, spread = float(scores.mean()), float(scores.std()) or 1.0
    model = LogisticRegression(C=1e3, max_iter=200).fit(((scores - centre) / spread)[:, None], labelled)
    slope = max(float(model.coef_[0, 0]), 1e-3) / spread
    return slope, float(model.intercept_[0]) - slope * centre


def _placements(scores: Floats, labelled: Mask) -> tuple[Floats, Floats]:
    if labelled.all() or not labelled.any():
        raise InputError("an AUC needs labelled rows and unlabelled rows: one of the two is missing")
    return placements(scores[labelled], scores[~labelled])


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.25
