"""Split-PU for learners that are no networks: a teacher, an early-stopped split, a student of the easy rows.

1. The teacher tells P from U. Its out-of-fold scores (never its own training scores, which a forest knows by heart)
   become posteriors `q` of the unlabelled rows: by Elkan and Noto's odds, or scaled so that their mean is the prior.
2. A temporary boosting with a small rate learns the teacher's decisions; its stages are the epochs. At the first stage
   that agrees with the teacher on more than `tau` of U it stops: agreeing rows are easy, the others hard.
3. A student learns P as positive and the easy rows with their soft `q`, each with as much weight as the teacher is sure
   of it (which is what the bounded loss of the paper does to networks). Hard rows are left out.

Sparse rows have no boosting; there the epochs are logistic regressions with a falling penalty, which take up the
strongest words first."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from splitpu.data.sparse_rows import is_sparse_matrix
from splitpu.errors import InputError
from splitpu.learners.catalogue import Boosting, Fitted, Forest, Learner, Logistic, Rows, checked, fewer_rows, is_soft
from splitpu.learners.crossfit import Task, platt
from splitpu.types import Floats, Indices, Mask

SPLIT_ROWS = 20_000  # the temporary model needs no more to find out what is easy
PENALTY_PATH = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class Split:
    """Which unlabelled rows a small model takes up first, and how many stages it took."""

    easy: Mask
    agreement: float
    stages: int


@dataclass(frozen=True)
class SplitLearner:
    """A student of a base learner, itself a learner: fitting it runs the whole procedure on the rows it is given.

    `prior` is the share of positives among the unlabelled rows; without it Elkan and Noto's estimate is used."""

    base: Learner = field(default_factory=Forest)
    student: Learner | None = None  # None: as the base
    prior: float | None = None
    tau: float = 0.92

    def __post_init__(self) -> None:
        if not 0.5 <= self.tau < 1:
            raise InputError(f"tau must be from 0.5 to below 1, not {self.tau}")
        if self.prior is not None and not 0 < self.prior < 1:
            raise InputError(f"the prior must be between 0 and 1, not {self.prior}")

    @property
    def name(self) -> str:
        pupil = "" if self.student is None or self.student.name == self.base.name else f" to {self.student.name}"
        return f"split, {self.base.name}{pupil}"

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> Fitted:
        if is_soft(target):
            raise InputError("a student makes its own soft labels: give a mask of the labelled rows")
        _, weight = checked(rows, target, sample_weight)
        labelled = np.asarray(target) == 1
        scores, _ = Task(rows, labelled, sample_weight, seed=seed).out_of_fold(self.base, 3)
        posterior = posteriors(scores, labelled, self.prior)
        easy = split(rows, labelled, posterior, self.tau, seed=seed).easy
        kept = np.flatnonzero((labelled | easy) & (weight > 0))
        taught = np.where(labelled, 1.0, posterior)[kept]
        sure = weight[kept] * np.abs(2 * taught - 1)
        return (self.student or self.base).fit(rows[kept], taught, sample_weight=sure, seed=seed)


def posteriors(scores: Floats, labelled: Mask, prior: float | None = None) -> Floats:
    """P(positive | x) of every row from scores of "labelled"; labelled rows get 1.

    Elkan and Noto: a calibrated p = P(labelled | x) means odds of (1 - c) / c * p / (1 - p) that an unlabelled row is
    positive, with c the mean p over the labelled. With a prior, the odds are scaled until their mean over U is the
    prior, whatever the calibration did."""
    slope, offset = platt(scores, labelled)
    p = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -30, 30)))
    odds = p / np.maximum(1 - p, 1e-12)
    c = float(np.clip(p[labelled].mean(), 1e-6, 1 - 1e-6))
    factor = (1 - c) / c
    if prior is not None:
        low, high = -60.0, 60.0
        for _ in range(80):  # a bisection: the mean only grows with the factor
            middle = (low + high) / 2
            if float(np.minimum(np.exp(middle) * odds[~labelled], 1.0).mean()) < prior:
                low = middle
            else:
                high = middle
        factor = float(np.exp((low + high) / 2))
    found: Floats = np.where(labelled, 1.0, np.minimum(factor * odds, 1.0))
    return found


def split(rows: Rows, labelled: Mask, posterior: Floats, tau: float, *, seed: int = 0) -> Split:
    """Easy and hard unlabelled rows, by the first stage of a small model that agrees with the teacher enough."""
    unlabelled = np.flatnonzero(~labelled)
    decision = posterior > 0.5
    if decision[unlabelled].all() or not decision[unlabelled].any():
        return Split(~labelled, 1.0, 0)  # nothing to tell apart: all of it is easy
    seen = unlabelled
    if len(seen) > SPLIT_ROWS:
        seen = unlabelled[fewer_rows(decision[unlabelled], SPLIT_ROWS, seed)]
    agreeing, share, stages = np.ones(len(unlabelled), dtype=bool), 1.0, 0
    for number, scores in _stages(rows, seen, decision, unlabelled, seed=seed):
        agreeing, stages = (scores > 0) == decision[unlabelled], number
        share = float(agreeing.mean())
        if share > tau:
            break
    easy = np.zeros(len(labelled), dtype=bool)
    easy[unlabelled[agreeing]] = True
    return Split(easy, share, stages)


def _stages(rows: Rows, seen: Indices, decision: Mask, asked: Indices, *, seed: int) -> Iterator[tuple[int, Floats]]:
    """The small model's logits of the asked rows after each of its stages."""
    if is_sparse_matrix(rows):
        # The logistic gives both classes the same weight: moved back, or rare positives would never agree.
        share = float(decision[seen].mean())
        back = float(np.log(share / (1 - share)))
        for number, strength in enumerate(PENALTY_PATH, start=1):
            fitted = Logistic("", strength).fit(rows[seen], decision[seen], seed=seed)
            yield number, fitted.scores(rows[asked]) + back
        return
    model = Boosting(stages=60, rate=0.05, leaves=8).fit(rows[seen], decision[seen], seed=seed)
    yield from model.at_stages(rows[asked], range(2, 61, 2)).items()
