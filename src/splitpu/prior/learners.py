"""Two quick classifiers of labelled against unlabelled rows; both score the rows they were trained on fairly, too."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from splitpu.seeds import checked_seed, sklearn_seed

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

LANDMARKS = 300
TREES = 50  # in each of several cross-fittings
_INNER_FOLDS = 3
_LEAST_PROBABILITY = 1e-3


class Judged(NamedTuple):
    """Scores of the rows that were asked for, and of the training rows as if they had not been trained on."""

    asked: Floats
    own: Floats


class Learner(Protocol):
    """Learns which of some rows are labelled, leaving out the dropped ones, and scores those rows and others."""

    def judge(self, training: Rows, kept: Flags, asked: Rows, seed: int) -> Judged:
        """All rows are given by number; `kept` runs over the training rows."""


@dataclass(frozen=True)
class KernelLogistic:
    """Logistic regression on the kernel values with some landmark rows (Nystroem): smooth borders of any shape."""

    mapped: Floats
    labelled: Flags
    strength: float  # C of the regression

    @classmethod
    def over(
        cls, features: Floats, labelled: Flags, *, sharpness: float, seed: int, strength: float = 10.0
    ) -> "KernelLogistic":
        """`sharpness` divides the squared width of the kernel, which is else the typical squared distance of rows."""
        from sklearn.kernel_approximation import Nystroem

        rng = np.random.default_rng(checked_seed(seed))
        one, other = (features[rng.integers(len(features), size=1000)] for _ in range(2))
        typical = float(np.median(((one - other) ** 2).sum(1))) or 1.0
        kernel = Nystroem(
            gamma=sharpness / typical, n_components=min(LANDMARKS, len(features)), random_state=sklearn_seed(seed)
        )
        mapped = kernel.fit_transform(features)
        return cls(mapped - mapped.mean(0), labelled, strength)

    def judge(self, training: Rows, kept: Flags, asked: Rows, seed: int) -> Judged:
        """The training rows are scored by cross-fitting."""
        from sklearn.model_selection import StratifiedKFold

        own = np.empty(len(training))
        folds = StratifiedKFold(_INNER_FOLDS, shuffle=True, random_state=sklearn_seed(seed))
        for inner, outer in folds.split(training, self.labelled[training]):
            some = inner[kept[inner]]
            if self.labelled[training[some]].all():  # of few unlabelled rows, those that are kept may all lie outside
                some = inner
            own[outer] = self._fitted(training[some]).decision_function(self.mapped[training[outer]])
        return Judged(self._fitted(training[kept]).decision_function(self.mapped[asked]), own)

    def _fitted(self, rows: Rows) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=self.strength, max_iter=300).fit(self.mapped[rows], self.labelled[rows])


@dataclass(frozen=True)
class RandomTrees:
    """Extremely randomised trees: indifferent to the scale of a feature and to features that say nothing."""

    features: Floats
    labelled: Flags

    def judge(self, training: Rows, kept: Flags, asked: Rows, seed: int) -> Judged:
        """A training row is scored by the trees that did not see it."""
        from sklearn.ensemble import ExtraTreesClassifier

        # A forest of this size leaves next to no row without a tree that did not see it; those few get 1/2.
        trees = ExtraTreesClassifier(
            TREES, min_samples_leaf=3, bootstrap=True, oob_score=_no_score, random_state=sklearn_seed(seed)
        )
        trees.fit(self.features[training[kept]], self.labelled[training[kept]])
        own = np.empty(len(training))
        own[kept] = _log_odds(np.nan_to_num(trees.oob_decision_function_[:, 1], nan=0.5))
        if not kept.all():
            own[~kept] = _log_odds(trees.predict_proba(self.features[training[~kept]])[:, 1])
        return Judged(_log_odds(trees.predict_proba(self.features[asked])[:, 1]), own)


def _no_score(truth: Any, guess: Any) -> float:
    """The forest insists on a figure for its unseen rows; only their probabilities are wanted."""
    return 0.0


def _log_odds(probability: Floats) -> Floats:
    inside = np.clip(probability, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return odds
