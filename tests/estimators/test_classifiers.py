"""One classifier a method: scikit-learn's own checks for every one of them, and what they share."""

import pickle
from typing import Any

import numpy as np
import pytest
from method_tools import METHODS
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import splitpu
from splitpu.data.pudata import PUData
from splitpu.errors import InputError, SplitPUWarning
from splitpu.estimators import classifiers as estimators
from splitpu.estimators.base import PUEstimator
from splitpu.prior.estimate import PriorEstimate, estimate_prior

SMALL = {"batch_size": 64, "positives_per_batch": 32, "augment": False, "optimiser.rate": 0.01}
# The base tolerates a negative risk below zero: in scikit-learn's data it is, since every positive is labelled.
BASE = {"base": SMALL | {"epochs": 25, "nn_beta": 0.1}}
SETTINGS: dict[str, dict[str, Any]] = {
    "nnpu": BASE,
    "upu": BASE,
    "naive": BASE,
    "vpu": {"vpu": SMALL | {"epochs": 15}},
    "dan": {"dan": SMALL | {"epochs": 15}},
    "pubn": {"pubn": SMALL | {"epochs": 12, "score_epochs": 12}},
    "self-pu": {"self_pu": SMALL | {"epochs": 15}},
    "p3mix": {"p3mix": SMALL | {"epochs": 15}},
    "puupl": {"puupl": SMALL | {"epochs": 12, "rounds": 2}},
    "dist-pu": {"dist_pu": SMALL | {"epochs": 4, "warmup_epochs": 15, "warmup_optimiser.rate": 0.01}},
}
RIVALS = [
    estimators.NNPUClassifier,
    estimators.UPUClassifier,
    estimators.VPUClassifier,
    estimators.DANClassifier,
    estimators.PUbNClassifier,
    estimators.SelfPUClassifier,
    estimators.P3MixClassifier,
    estimators.PUUPLClassifier,
    estimators.DistPUClassifier,
    estimators.NaivePUClassifier,
]

LEARNERS = [
    estimators.PULogisticClassifier,
    estimators.PUForestClassifier,
    estimators.PUBoostingClassifier,
    estimators.PUBaggingClassifier,
    estimators.ElkanNotoClassifier,
    estimators.SAREMClassifier,
]


def quick(kind: type[PUEstimator], prior: float = 0.5, **parameters: Any) -> PUEstimator:
    """A classifier that learns easy things in a moment; it gets a prior only if it cannot do without."""
    needed = prior if METHODS[kind.method].needs_prior else None
    config = {"threshold": "half", "engine.threads": 1, **SETTINGS[kind.method]}
    return kind(prior=needed, **{"config": config, "random_state": 0, **parameters})


def as_scikit_learn_asks(kind: type[PUEstimator]) -> PUEstimator:
    # The checks label every row with its class: nearly a case-control sample with few positives among the unlabelled.
    return quick(kind, prior=0.3 if kind.method == "pubn" else 0.05, scenario="case-control")


@parametrize_with_checks([as_scikit_learn_asks(kind) for kind in RIVALS])
@pytest.mark.filterwarnings("ignore::splitpu.errors.SplitPUWarning")
def test_scikit_learn_checks(estimator: PUEstimator, check: Any) -> None:
    check(estimator)


# --- what the classifiers have in common ---


@pytest.fixture(scope="module")
def estimate(vectors: Any) -> PriorEstimate:
    """Made once, as it takes longer than any of the fits."""
    return estimate_prior(PUData.from_arrays(*vectors[:2]))


def test_every_method_but_the_oracle_has_a_classifier() -> None:
    kinds = [estimators.SplitPUClassifier, *RIVALS]
    assert {kind.method for kind in (*kinds, *LEARNERS)} == set(METHODS) - {"supervised"}
    assert all(getattr(splitpu, kind.__name__) is kind for kind in kinds)


@pytest.mark.parametrize("kind", RIVALS)
def test_learns_saves_loads_and_pickles(kind: type[PUEstimator], vectors: Any, tmp_path: Any) -> None:
    X, s, truth = vectors
    fitted = quick(kind).fit(X, s)
    assert np.mean(fitted.predict(X) == truth) > (0.6 if kind is estimators.NaivePUClassifier else 0.85)
    assert fitted.prior_ == (0.5 if METHODS[kind.method].needs_prior else None)
    assert fitted.model_.config.method == kind.method and fitted.history_
    fitted.save(tmp_path)
    scores = fitted.decision_function(X)
    assert np.array_equal(kind.load(tmp_path).decision_function(X), scores)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).decision_function(X), scores)
    assert np.array_equal(quick(kind).fit(X, s).decision_function(X), scores)


@pytest.mark.parametrize("kind", LEARNERS)
def test_learners_save_without_pickle_and_answer_alike(kind: type[PUEstimator], vectors: Any, tmp_path: Any) -> None:
    X, s, truth = vectors
    config = {"labelled_by": "0"} if kind is estimators.SAREMClassifier else None
    fitted = kind(prior=0.5, random_state=0, config=config).fit(X, s)
    assert np.mean(fitted.predict(X) == truth) > 0.9
    fitted.save(tmp_path)
    scores = fitted.decision_function(X)
    assert np.array_equal(kind.load(tmp_path).decision_function(X), scores)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).decision_function(X), scores)


@parametrize_with_checks([estimators.PULogisticClassifier(prior=0.05, scenario="case-control", random_state=0)])
@pytest.mark.filterwarnings("ignore::splitpu.errors.SplitPUWarning")
def test_scikit_learn_checks_of_a_learner(estimator: PUEstimator, check: Any) -> None:
    check(estimator)


def test_a_model_is_loaded_by_its_own_class(vectors: Any, tmp_path: Any) -> None:
    quick(estimators.VPUClassifier).fit(*vectors[:2]).save(tmp_path)
    with pytest.raises(InputError, match="holds a model trained with VPU, not DAN"):
        estimators.DANClassifier.load(tmp_path)


def test_the_prior_is_estimated_unless_something_else_is_said() -> None:
    for kind in (estimators.SplitPUClassifier, *RIVALS):
        assert kind().prior == "auto", kind


@pytest.mark.parametrize("kind", [kind for kind in RIVALS if not METHODS[kind.method].needs_prior])
def test_the_threshold_of_a_method_that_learns_without_a_prior_follows_an_estimate(
    kind: type[PUEstimator], vectors: Any, estimate: PriorEstimate
) -> None:
    X, s, truth = vectors
    config = {"engine.threads": 1, **SETTINGS[kind.method]}
    with_one, without = (kind(prior=prior, config=config, random_state=0).fit(X, s) for prior in (estimate, None))
    low, high = estimate.interval
    assert (with_one.prior_, with_one.prior_interval_) == (estimate.value, (low, high))
    assert with_one.prior_source_ == "estimated by the order of scores"
    assert low - 0.01 < with_one.predict(X).mean() < high + 0.01 and np.mean(with_one.predict(X) == truth) > 0.9
    assert (without.prior_, without.prior_interval_, without.prior_source_) == (None, None, "not used")
    same = with_one.decision_function(X) + with_one.threshold_, without.decision_function(X) + without.threshold_
    assert np.allclose(*same, atol=1e-4) and with_one.threshold_ != without.threshold_


def test_where_no_prior_can_be_estimated_methods_that_need_none_go_on(vectors: Any) -> None:
    X, s, _ = vectors
    few = s * (np.cumsum(s) <= 5)
    with pytest.warns(SplitPUWarning, match="the training goes on without one: 5 labelled positives are too few"):
        fitted = quick(estimators.VPUClassifier).set_params(prior="auto").fit(X, few)
    assert fitted.prior_ is None and fitted.prior_source_ == "none could be estimated"
    with pytest.raises(InputError, match="5 labelled positives are too few"):
        quick(estimators.NNPUClassifier).set_params(prior="auto").fit(X, few)
    with pytest.raises(InputError, match=r"prior=1\.5 is not a share"):  # one that was given is never passed over
        estimators.VPUClassifier(prior=1.5).fit(X, s)


def test_without_its_prior_a_method_refuses(vectors: Any) -> None:
    with pytest.raises(InputError, match=r"method 'nnpu' needs the prior, .* have it estimated"):
        estimators.NNPUClassifier(prior=None).fit(*vectors[:2])


def test_the_class_decides_about_the_method(vectors: Any) -> None:
    fitted = quick(estimators.VPUClassifier, config={"method": "dan", "vpu.epochs": 1}).fit(*vectors[:2])
    assert {line["stage"] for line in fitted.history_} == {"vpu"}


def test_settings_can_be_searched(vectors: Any) -> None:
    X, s, _ = vectors
    grid = {"config": [{"vpu.epochs": 1}, {"vpu.epochs": 2}]}

    def labelled_found(estimator: PUEstimator, X: Any, s: Any) -> float:
        """Share of the labelled rows that are called positive: needs no truth."""
        return float(np.mean(estimator.predict(X)[s == 1] == 1))

    search = GridSearchCV(clone(quick(estimators.VPUClassifier)), grid, scoring=labelled_found, cv=2).fit(X, s)
    assert search.best_estimator_.predict(X).shape == (200,)
