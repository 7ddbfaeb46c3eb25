"""Splits, scorers and decisions for scikit-learn: each part a PU sample of its own, models chosen without negatives."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import binary_truth, check_scenario, check_share, labelled_mask
from splitpu.errors import InputError
from splitpu.evaluation.diagnostics import SAID_OF_ALL, find_degeneracies
from splitpu.evaluation.metrics import evaluate_pu
from splitpu.types import Floats, Mask, Rows
from splitpu.utils.arrays import sklearn_seed


class PUStratifiedKFold:
    """Folds for cross-validation; takes any of the PU label conventions, and works wherever scikit-learn wants `cv`.

    >>> folds = PUStratifiedKFold(2, random_state=0)
    >>> [int(np.array([1, 1, 0, 0, 0, 0])[test].sum()) for _, test in folds.split(np.zeros((6, 1)), [1, 1, 0, 0, 0, 0])]
    [1, 1]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None, positive: object = None
    ) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int | np.integer) or n_splits < 2:
            raise InputError(f"n_splits={n_splits!r} is not a split: give a whole number that is at least 2")
        self.n_splits, self.shuffle, self.random_state, self.positive = int(n_splits), shuffle, random_state, positive

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"

    def split(self, X: Any, y: npt.ArrayLike | None = None, groups: object = None) -> Iterator[tuple[Rows, Rows]]:
        """Row numbers of training and test part, fold by fold."""
        from sklearn.model_selection import StratifiedKFold

        if groups is not None:
            raise InputError("groups would be cut apart, with rows in both parts: use PUStratifiedGroupKFold")
        if y is None:
            raise InputError("y is missing: the folds follow the labels, so give them as well, split(X, y)")
        labelled = labelled_mask(y, name="y", positive=self.positive)
        _check_rows(X, labelled, "y")
        fewest = min(int(labelled.sum()), int((~labelled).sum()))
        if fewest < self.n_splits:
            kind = "labelled positives" if labelled.sum() == fewest else "unlabelled rows"
            raise InputError(
                f"n_splits={self.n_splits} is too many for {fewest} {kind}: every fold needs one; give at most {fewest}"
            )
        seed = self.random_state if self.shuffle else None
        inner = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
        yield from inner.split(np.zeros(len(labelled)), labelled)

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """How many folds there are, as scikit-learn asks."""
        return self.n_splits


class PUStratifiedGroupKFold(PUStratifiedKFold):
    """Folds that never cut a group apart (a patient, a site, an author), labelled rows spread as evenly as that allows.

    >>> folds = PUStratifiedGroupKFold(2, random_state=0)
    >>> rows, labels, patients = np.zeros((8, 1)), [1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3]
    >>> [len({patients[row] for row in test}) for _, test in folds.split(rows, labels, patients)]
    [2, 2]
    """

    def split(self, X: Any, y: npt.ArrayLike | None = None, groups: object = None) -> Iterator[tuple[Rows, Rows]]:
        from splitpu.learners.crossfit import fold_numbers

        if y is None or groups is None:
            raise InputError("y or groups is missing: give both, split(X, y, groups)")
        labelled = labelled_mask(y, name="y", positive=self.positive)
        _check_rows(X, labelled, "y")
        seed = sklearn_seed(self.random_state or 0)
        folds = fold_numbers(labelled, self.n_splits, seed, np.asarray(groups))
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)


def pu_train_test_split(
    *arrays: Any, s: npt.ArrayLike, test_size: float = 0.25, random_state: Any = None, positive: object = None
) -> list[Any]:
    """Split arrays and PU labels `s` (which come last in the result) with the same labelled share in both parts.

    `test_size` is a share of the rows or, as a whole number, how many of them.

    >>> X_train, X_test, s_train, s_test = pu_train_test_split(np.arange(8), s=[1, 1, 0, 0, 0, 0, 0, 0], test_size=0.5)
    >>> int(s_train.sum()), int(s_test.sum())
    (1, 1)
    """
    from sklearn.model_selection import train_test_split

    labelled = labelled_mask(s, name="s", positive=positive)
    for array in arrays:
        _check_rows(array, labelled, "s")
    # As Python's own number, because scikit-learn takes no other ones of numpy's than float64.
    if isinstance(test_size, int | np.integer) and not isinstance(test_size, bool):
        test_size = int(test_size)
    elif isinstance(test_size, float | np.floating) and math.isfinite(test_size):
        test_size = float(test_size)
    else:
        raise InputError(f"test_size={test_size!r} is not a number: give a share such as 0.25, or a number of rows")
    share = test_size / len(labelled) if isinstance(test_size, int) else test_size
    for kind, count in (("labelled positives", int(labelled.sum())), ("unlabelled rows", int((~labelled).sum()))):
        if not 1 <= round(share * count) <= count - 1:
            why = f"test_size={test_size:g} of {count} {kind} leaves none on one side"
            raise InputError(f"{why}: choose another test_size or label more rows")
    how = {"test_size": test_size, "random_state": random_state, "stratify": labelled}
    parts: list[Any] = train_test_split(*arrays, np.asarray(s), **how)
    return parts


def _check_rows(X: Any, labelled: Mask, name: str) -> None:
    """Refuse labels that belong to other rows: row numbers of a shorter list would silently leave rows out."""
    shape = getattr(X, "shape", None)
    rows = shape[0] if shape else len(X) if hasattr(X, "__len__") else None
    if rows is not None and rows != len(labelled):
        raise InputError(f"{name} has {len(labelled)} labels for {rows} rows: give one label per row")


CHOICES = ("accuracy", "f1", "precision", "roc_auc", "average_precision", "nnpu")
WORST = {"accuracy": 0.0, "f1": 0.0, "precision": 0.0, "nnpu": -1.0}
AT_THE_THRESHOLD = tuple(WORST)  # metrics that look at decisions, not only at their order
OF_LABELS = ("accuracy", "f1", "precision")  # metrics that look at nothing but what each row is called


@dataclass(frozen=True)
class PUScorer:
    """Judges a fitted estimator by held-out P and U; what `make_pu_scorer` gives, and can be pickled."""

    metric: str
    prior: float | None
    scenario: Scenario | None
    positive: object

    def __call__(self, estimator: Any, X: Any, y: npt.ArrayLike) -> float:
        """The value of the metric; greater is better."""
        *_, learner = _from_outside_in(estimator)
        labelled = labelled_mask(y, name="y", positive=_positive_label(estimator, self.positive))
        decision = decisions(estimator, X, positive=self.positive)
        prior = self.prior if self.prior is not None else getattr(learner, "prior_", None)
        if prior is None:
            raise InputError(f"{type(learner).__name__} has no prior_ of its own: give make_pu_scorer a prior")
        scenario = self.scenario or getattr(learner, "scenario", None) or "single-training-set"
        return _value(self.metric, decision[labelled], decision[~labelled], prior, scenario)

    # The rest is what TunedThresholdClassifierCV takes of a scorer. It does not call it, but asks for a function of
    # labels, in a way that scikit-learn keeps to itself.

    _sign = 1  # greater is better

    @property
    def _kwargs(self) -> dict[str, object]:
        return {"pos_label": self.positive}

    @property
    def _score_func(self) -> Callable[..., float]:
        if self.metric not in OF_LABELS:
            raise InputError(
                f"metric={self.metric!r} is computed from decisions, and TunedThresholdClassifierCV shows the scorer "
                f"labels alone: choose one of {', '.join(OF_LABELS)}"
            )
        if self.prior is None or self.scenario is None:
            raise InputError(
                "TunedThresholdClassifierCV shows the scorer no model to take prior and scenario from: give both, "
                f"as in make_pu_scorer({self.metric!r}, prior=0.3, scenario='single-training-set')"
            )
        return self._value_of_labels

    def _value_of_labels(self, y: npt.ArrayLike, called: npt.ArrayLike, pos_label: object = None) -> float:
        """Of rows that are `called` one label or the other, without a model to ask further."""
        assert self.prior is not None and self.scenario is not None
        labelled = labelled_mask(y, name="y", positive=pos_label)
        decision = np.where(binary_truth(called, positive=pos_label), 1.0, -1.0)
        return _value(self.metric, decision[labelled], decision[~labelled], self.prior, self.scenario)

    def get_metadata_routing(self) -> Any:
        """What else scikit-learn is to pass on when it scores: nothing."""
        from sklearn.utils.metadata_routing import MetadataRequest

        return MetadataRequest(owner=self)


def _value(metric: str, known: Floats, other: Floats, prior: float, scenario: Scenario) -> float:
    """The value of a metric for decisions on P and on U; the worst one for a model that says the same of all rows."""
    if metric in AT_THE_THRESHOLD:
        found_wanting = find_degeneracies(known, other, prior, scenario=scenario)
        if any(one.kind in SAID_OF_ALL for one in found_wanting):
            return WORST[metric]
    found = evaluate_pu(known, other, prior, scenario=scenario, intervals=False)
    return -found.nnpu if metric == "nnpu" else found[metric].value


def make_pu_scorer(
    metric: str = "accuracy", *, prior: float | None = None, scenario: Scenario | None = None, positive: object = None
) -> PUScorer:
    """A scorer for `GridSearchCV`, `cross_val_score` and whatever else calls one with an estimator and rows.

    It is computed from held-out P and U; greater is better. Give the `prior`, one for all candidates; without it each
    fitted model's own `prior_` is taken, which is not fair when candidates differ in it; likewise the `scenario`.
    Recall is refused: a model that calls everything positive has the best one. For the same reason a model that says
    the same of all rows gets the worst value of a metric that looks at its decisions.

    `TunedThresholdClassifierCV` takes accuracy, f1 and precision, and wants `prior` and `scenario` to be given, and
    `positive` unless that is 1 or True: it shows a scorer what rows are called, never the model.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, s = rng.normal(size=(60, 2)), np.arange(60) % 3 == 0
    >>> 0 <= make_pu_scorer("accuracy", prior=0.5)(LogisticRegression().fit(X, s), X, s) <= 1
    True
    """
    if metric == "recall":
        raise InputError("metric='recall' is best for a model that calls everything positive: use 'accuracy' or 'f1'")
    if metric not in CHOICES:
        raise InputError(f"metric={metric!r} is unknown: choose one of {', '.join(CHOICES)}")
    # At once: inside a search scikit-learn would turn the sentence into a score of NaN.
    if scenario is not None:
        check_scenario(scenario)
    return PUScorer(metric, None if prior is None else check_share(prior), scenario, positive)


def cross_fitted_decisions(
    estimator: Any, X: Any, y: npt.ArrayLike, *, folds: int = 5, seed: int = 0, positive: object = None
) -> tuple[Floats, Floats]:
    """Decisions on P and on U for `evaluate_pu`, each by a copy of the estimator that was not trained on the row.

    So every labelled row can serve both sides: with a single part held out, most of them would say nothing of how good
    the model is. What is judged is a model trained on a little less than all rows.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, s = rng.normal(size=(60, 2)), np.arange(60) % 3 == 0
    >>> [len(part) for part in cross_fitted_decisions(LogisticRegression(), X, s)]
    [20, 40]
    """
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing

    labels = np.asarray(y)
    labelled = labelled_mask(labels, name="y", positive=_positive_label(estimator, positive))
    # Data frames and sparse matrices stay what they are: steps of a pipeline may ask for their columns.
    rows = X if hasattr(X, "shape") else np.asarray(X)
    found = np.empty(len(labelled))
    for training, held_out in PUStratifiedKFold(folds, random_state=sklearn_seed(seed)).split(rows, labelled):
        fitted = clone(estimator).fit(_safe_indexing(rows, training), labels[training])
        found[held_out] = decisions(fitted, _safe_indexing(rows, held_out), positive=positive)
    return found[labelled], found[~labelled]


def decisions(estimator: Any, X: Any, *, positive: object = None) -> Floats:
    """How clearly an estimator calls each row positive; above nought = positive.

    `positive` is the label of positives, if the estimator does not know it: decisions are for the label that is later
    in sorted order, which need not be that one."""
    from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    else:
        scores = np.asarray(estimator.predict_proba(X), dtype=np.float64)[:, 1] - 0.5
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return scores
    # Where scikit-learn has put another threshold on a classifier, only `predict` knows of it.
    kinds = (FixedThresholdClassifier, TunedThresholdClassifierCV)
    if any(isinstance(one, kinds) for one in _from_outside_in(estimator)):
        called = np.asarray(estimator.predict(X)) == classes[1]
        if called.all():
            cut = np.nextafter(scores.min(), -np.inf)
        elif not called.any():
            cut = np.nextafter(scores.max(), np.inf)
        else:
            cut = (scores[~called].max() + scores[called].min()) / 2
        scores = scores - cut
    return -scores if _positive_label(estimator, positive) == classes[0] else scores


def _positive_label(estimator: Any, positive: object) -> object:
    """What positives are called: as the caller says, else as the fitted estimator found or was told."""
    if positive is not None:
        return positive
    named = (getattr(one, "pos_label_", getattr(one, "pos_label", None)) for one in _from_outside_in(estimator))
    return next((label for label in named if label is not None), None)


def _from_outside_in(estimator: Any) -> Iterator[Any]:
    """The estimator and what it wraps, down to the learner; of a search that is not fitted yet, what it will try."""
    while estimator is not None:
        yield estimator
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
            continue
        wrapped = (getattr(estimator, name, None) for name in ("best_estimator_", "estimator_", "estimator"))
        estimator = next((one for one in wrapped if one is not None), None)
