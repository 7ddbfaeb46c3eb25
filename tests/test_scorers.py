"""Splitters and scorers for searches of scikit-learn: no negatives needed, and laziness never rewarded."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from splitpu import InputError, NNPUClassifier, SplitPUClassifier
from splitpu.evaluation.metrics import evaluate_pu
from splitpu.evaluation.scikit_learn import (
    AT_THE_THRESHOLD,
    CHOICES,
    PUStratifiedKFold,
    cross_fitted_decisions,
    decisions,
    make_pu_scorer,
    pu_train_test_split,
)


@settings(max_examples=40, deadline=None)
@given(
    metric=st.sampled_from(CHOICES),
    prior=st.floats(0.1, 0.8),
    apart=st.floats(1.0, 4.0),
    lift=st.floats(1e-3, 1e3),
    scenario=st.sampled_from(["single-training-set", "case-control"]),
    seed=st.integers(0, 99),
)
def test_no_scorer_rewards_a_model_that_calls_everything_positive(metric, prior, apart, lift, scenario, seed):
    """Whatever the prior and however poor the honest model: all positive is never the better choice."""
    rng = np.random.default_rng(seed)
    hidden = round(1500 * prior)
    honest = np.concatenate([rng.normal(apart / 2, 1, 150 + hidden), rng.normal(-apart / 2, 1, 1500 - hidden)])
    labels = np.arange(len(honest)) < 150
    share = (hidden + 150) / len(honest) if scenario == "single-training-set" else hidden / 1500
    score = make_pu_scorer(metric, prior=share, scenario=scenario)
    lazy = [np.full(len(honest), lift)]  # one constant
    if metric in AT_THE_THRESHOLD:  # or positive everywhere with any ranking, even the honest one
        lazy.append(honest - honest.min() + lift)
    assert all(score(Fixed(honest), honest, labels) > score(Fixed(one), honest, labels) for one in lazy)


class Fixed:
    """A model that has its decisions already."""

    def __init__(self, decision: np.ndarray) -> None:
        self.decision = decision

    def decision_function(self, X: object) -> np.ndarray:
        return self.decision


def test_cross_fitted_decisions_are_of_unseen_rows():
    """A model that learns rows by heart: its own rows look perfect, unseen ones do not."""
    X, s, truth = pu_rows(rows=400, labelled=100)
    known, others = cross_fitted_decisions(KNeighborsClassifier(1), X, s, folds=4)
    assert len(known) == 100 and len(others) == 300
    assert (decisions(KNeighborsClassifier(1).fit(X, s), X)[s == 1] > 0).all() and (known > 0).mean() < 0.7
    found = cross_fitted_decisions(LogisticRegression(class_weight="balanced"), X, s)
    assert evaluate_pu(*found, float(truth.mean()))["roc_auc"].value > 0.9


def test_a_scorer_refuses_at_once_what_a_search_would_pass_over():
    with pytest.raises(InputError, match="is not a share"):
        make_pu_scorer("accuracy", prior=37.0)
    with pytest.raises(InputError, match="scenario='some' is unknown"):
        make_pu_scorer("accuracy", prior=0.3, scenario="some")  # type: ignore[arg-type]


def test_folds_keep_the_labelled_share():
    labels = np.r_[np.ones(10), -np.ones(40)]
    folds = list(PUStratifiedKFold(5, random_state=0).split(np.zeros((50, 1)), labels))
    assert all((labels[test] == 1).sum() == 2 and len(test) == 10 for _, test in folds)
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(50))
    words = np.where(labels == 1, "seen", "unknown")
    assert len(list(PUStratifiedKFold(2, positive="seen").split(words, words))) == 2
    with pytest.raises(InputError, match="too many for 10 labelled positives"):
        next(PUStratifiedKFold(11).split(labels, labels))
    with pytest.raises(InputError, match="at least 2"):
        PUStratifiedKFold(1)


def test_train_test_split_keeps_the_labelled_share():
    labels = np.arange(100) < 20
    X_train, X_test, s_train, s_test = pu_train_test_split(np.arange(100), s=labels, test_size=0.25, random_state=0)
    assert s_train.sum() == 15 and s_test.sum() == 5 and set(X_train) | set(X_test) == set(range(100))
    with pytest.raises(InputError, match="leaves none"):
        pu_train_test_split(np.arange(100), s=labels, test_size=0.01)
    for size in (np.float32(0.25), np.int64(25)):
        assert len(pu_train_test_split(np.arange(100), s=labels, test_size=size)[1]) == 25
    for size in (float("nan"), float("inf"), np.complex64(0.25), True):
        with pytest.raises(InputError, match=r"test_size=.* is not a number: give a share"):
            pu_train_test_split(np.arange(100), s=labels, test_size=size)


def pu_rows(seed: int = 0, rows: int = 600, labelled: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < 0.5
    features = rng.normal(size=(rows, 3)).astype(np.float32)
    features[truth, 0] += 3
    s = np.zeros(rows, dtype=int)
    s[rng.choice(np.flatnonzero(truth), labelled, replace=False)] = 1
    return features, s, truth


def test_scorer_in_a_grid_search():
    X, s, truth = pu_rows()
    # Heavy penalties leave a classifier that calls nothing positive; the scorer has to see that without negatives.
    search = GridSearchCV(
        LogisticRegression(class_weight="balanced"),
        {"C": [1e-6, 1.0], "fit_intercept": [True, False]},
        scoring=make_pu_scorer("accuracy", prior=0.5),
        cv=PUStratifiedKFold(3, random_state=0),
    ).fit(X, s)
    by_truth = [
        ((LogisticRegression(class_weight="balanced", **setting).fit(X, s).predict(X) == 1) == truth).mean()
        for setting in search.cv_results_["params"]
    ]
    assert by_truth[search.best_index_] >= max(by_truth) - 0.005


def test_scorer_with_our_classifier():
    X, s, _ = pu_rows(rows=200, labelled=40)
    model = SplitPUClassifier(prior=0.5, config={"base.epochs": 5}, rounds=0, random_state=0)
    for metric in ("accuracy", "nnpu"):  # the prior is the model's own
        found = cross_val_score(model, X, s, scoring=make_pu_scorer(metric), cv=PUStratifiedKFold(2, random_state=0))
        assert np.isfinite(found).all()


def test_scorer_takes_the_scenario_of_the_model():
    rng = np.random.default_rng(0)
    truth = rng.random(300) < 0.55
    X = np.r_[rng.normal(size=(300, 5)) + 2, rng.normal(size=(300, 5)) + 2 * truth[:, None]]
    s = np.arange(600) < 300
    quick = {"base.epochs": 10}
    case_control = NNPUClassifier(prior=0.55, scenario="case-control", config=quick, random_state=0).fit(X, s)
    told = make_pu_scorer(scenario="case-control")(case_control, X, s)
    assert make_pu_scorer()(case_control, X, s) == told
    assert make_pu_scorer(scenario="single-training-set")(case_control, X, s) < told - 0.05


def test_a_search_with_the_scorer_can_be_pickled():
    X, s, _ = pu_rows(rows=200, labelled=40)
    scorer = make_pu_scorer(prior=0.5)
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer, cv=PUStratifiedKFold(2)).fit(X, s)
    again = pickle.loads(pickle.dumps(search))
    assert again.score(X, s) == search.score(X, s) and again.scoring == scorer


@pytest.mark.parametrize(
    ("seen", "unknown", "positive"), [(1, 0, None), (True, False, None), ("a seen one", "unknown", "a seen one")]
)
def test_a_threshold_is_tuned_without_negatives(seen, unknown, positive):
    """Whoever takes unlabelled rows for negatives cuts too high; the scorer moves the cut to where it belongs."""
    X, s, truth = pu_rows()
    labels = np.where(s == 1, seen, unknown)
    scorer = make_pu_scorer("accuracy", prior=0.5, scenario="single-training-set", positive=positive)
    tuned = TunedThresholdClassifierCV(LogisticRegression(), scoring=scorer, cv=3).fit(X, labels)
    untuned = LogisticRegression().fit(X, labels)
    accuracy = [((model.predict(X) == seen) == truth).mean() for model in (tuned, untuned)]
    assert accuracy[0] > 0.9 > 0.7 > accuracy[1]
    assert (pickle.loads(pickle.dumps(tuned)).predict(X) == tuned.predict(X)).all()


@pytest.mark.parametrize(
    ("scorer", "sentence"),
    [
        (make_pu_scorer("roc_auc", prior=0.5), "choose one of accuracy, f1, precision"),
        (make_pu_scorer(), "give both, as in make_pu_scorer"),
        (make_pu_scorer("f1", prior=0.5), "give both, as in make_pu_scorer"),
    ],
)
def test_a_scorer_that_cannot_tune_a_threshold_says_which_one_can(scorer, sentence):
    X, s, _ = pu_rows()
    with pytest.raises(InputError, match=sentence):
        TunedThresholdClassifierCV(LogisticRegression(), scoring=scorer).fit(X, s)


def test_scorer_understands_labels_the_other_way_round():
    X, s, _ = pu_rows(rows=200, labelled=40)
    words = np.where(s == 1, "a seen one", "unknown")
    model = SplitPUClassifier(prior=0.5, config={"base.epochs": 20}, rounds=0, random_state=0, pos_label="a seen one")
    assert make_pu_scorer("roc_auc", prior=0.5)(model.fit(X, words), X, words) > 0.8


def test_scorers_that_are_refused():
    with pytest.raises(InputError, match="calls everything positive"):
        make_pu_scorer("recall")
    with pytest.raises(InputError, match="unknown"):
        make_pu_scorer("kappa")
    X, s, _ = pu_rows()
    with pytest.raises(InputError, match="give make_pu_scorer a prior"):
        make_pu_scorer()(LogisticRegression().fit(X, s), X, s)
