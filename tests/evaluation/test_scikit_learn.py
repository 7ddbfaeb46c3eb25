"""Splitters and scorers for searches of scikit-learn: no negatives needed, and laziness never rewarded.

The everyday work of somebody who compares PU methods with scikit-learn: searches, folds, frames, kept models.
"""

import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from estimator_tools import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from splitpu import (
    InputError,
    Model,
    NNPUClassifier,
    PUData,
    PUStratifiedKFold,
    SplitPUClassifier,
    SplitPUWarning,
    estimate_prior,
    evaluate_pu,
    load_named,
    make_pu,
    make_pu_scorer,
    preset,
    pu_train_test_split,
    train,
)
from splitpu.config.parse import config_from_dict
from splitpu.data.pudata import HeldOut
from splitpu.estimators.base import PUEstimator
from splitpu.evaluation.diagnostics import check_random_labelling
from splitpu.evaluation.scikit_learn import AT_THE_THRESHOLD, CHOICES, cross_fitted_decisions, decisions
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.runner import smoke
from splitpu.training import Runtime, TrainSpec


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


RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(2, 1, (60, 3)), RNG.normal(-2, 1, (60, 3))]).astype(np.float32)
LABELLED = np.arange(120) < 30
IN_WORDS = np.where(LABELLED, "known", "other")  # the positive label is the first in sorted order
DATA = PUData.from_arrays(ROWS, LABELLED)
QUICKEST = config_from_dict({"method": "nnpu", "base.epochs": 1}, preset("default"))
TABLE = pyarrow.table({name: ROWS[:, column] for column, name in enumerate("abc")})


def nnpu(**parameters):
    return NNPUClassifier(**{"prior": 0.5, "config": {"base.epochs": 5}, "random_state": 0, **parameters})


def trained(data=DATA, **named):
    return train(data, TrainSpec(**{"prior": 0.5, "config": QUICKEST, **named}), Runtime(device="cpu"))


def test_a_seed_may_come_from_numpy() -> None:
    assert trained(seed=np.arange(2)[1]).model.network_name == trained(seed=1).model.network_name


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
@pytest.mark.parametrize("make", [lambda: nnpu(pos_label="known"), lambda: LogisticRegression()], ids=["nnpu", "other"])
def test_a_scorer_means_the_positive_label_inside_a_pipeline_too(make, metric) -> None:
    def scores(labels, **named):
        pipeline = make_pipeline(StandardScaler(), clone(make()).set_params(**({} if named else plain)))
        folds = PUStratifiedKFold(2, random_state=0, **named)
        return cross_val_score(pipeline, ROWS, labels, scoring=make_pu_scorer(metric, prior=0.5, **named), cv=folds)

    plain = {"pos_label": None} if isinstance(make(), PUEstimator) else {}
    np.testing.assert_allclose(scores(IN_WORDS, positive="known"), scores(LABELLED))


def test_a_scorer_finds_prior_and_label_in_the_last_step_and_in_the_best_candidate() -> None:
    pipeline = make_pipeline(StandardScaler(), nnpu(pos_label="known")).fit(ROWS, IN_WORDS)
    search = GridSearchCV(pipeline, {"nnpuclassifier__random_state": [0]}, scoring=make_pu_scorer(prior=0.5), cv=2)
    search.fit(ROWS, IN_WORDS)
    for fitted in (pipeline, search):
        assert make_pu_scorer("roc_auc")(fitted, ROWS, IN_WORDS) > 0.9


@pytest.mark.parametrize("threshold", [0.001, 0.2, 0.5, 0.8, 0.999])
@pytest.mark.parametrize("piped", [False, True])
def test_a_scorer_heeds_a_threshold_that_was_put_on_a_classifier(threshold: float, piped: bool) -> None:
    cut = FixedThresholdClassifier(nnpu(pos_label="known"), threshold=threshold, pos_label="known")
    fitted = (make_pipeline(StandardScaler(), cut) if piped else cut).fit(ROWS, IN_WORDS)
    np.testing.assert_array_equal(decisions(fitted, ROWS) > 0, fitted.predict(ROWS) == "known")


def test_cross_fitting_leaves_data_frames_and_sparse_matrices_as_they_are() -> None:
    first_column = FunctionTransformer(lambda table: np.asarray(table["a"])[:, np.newaxis])
    plain = cross_fitted_decisions(LogisticRegression(), ROWS[:, :1], LABELLED, folds=2)
    framed = cross_fitted_decisions(make_pipeline(first_column, LogisticRegression()), TABLE, LABELLED, folds=2)
    thin = cross_fitted_decisions(LogisticRegression(), sparse.csr_matrix(ROWS[:, :1]), LABELLED, folds=2)
    for found in (framed, thin):
        np.testing.assert_allclose(found[0], plain[0], atol=1e-3)


def test_cross_fitting_takes_the_positive_label_from_the_estimator() -> None:
    positive, unlabelled = cross_fitted_decisions(nnpu(pos_label="known"), ROWS, IN_WORDS, folds=2)
    assert len(positive) == 30 and positive.mean() > unlabelled.mean()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda: GridSearchCV(nnpu(pos_label=0), {"prior": [0.5]}, scoring=make_pu_scorer(prior=0.5), cv=2),
        lambda: make_pipeline(StandardScaler(), BaggingClassifier(nnpu(pos_label=0), n_estimators=2, random_state=0)),
        lambda: FixedThresholdClassifier(LogisticRegression(), pos_label=0),
    ],
    ids=["search", "bagging", "the wrapper says it"],
)
def test_cross_fitting_finds_the_positive_label_in_what_is_wrapped(wrapped) -> None:
    positive, unlabelled = cross_fitted_decisions(wrapped(), ROWS, (~LABELLED).astype(int), folds=2)
    assert len(positive) == 30 and positive.mean() > unlabelled.mean()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PUStratifiedKFold("3"), "n_splits='3' is not a split"),
        (lambda: PUStratifiedKFold(2.5), "n_splits=2.5 is not a split"),
        (lambda: next(PUStratifiedKFold(2).split(ROWS)), "y is missing"),
        (lambda: next(PUStratifiedKFold(2).split(ROWS, LABELLED[:-5])), "y has 115 labels for 120 rows"),
        (lambda: pu_train_test_split(ROWS, s=LABELLED, test_size="half"), "test_size='half' is not a number"),
        (lambda: pu_train_test_split(ROWS[1:], s=LABELLED), "s has 120 labels for 119 rows"),
        (lambda: evaluate_pu(["high"], ["low"], 0.5), "decisions on positives are not numbers"),
        (lambda: evaluate_pu([1.0], [-1.0, 1.0], 0.5, prior_interval=0.1), "prior_interval=0.1 is not a range"),
        (lambda: make_pu("digits", 50, 0), "'digits' is not a named set: give what load_named returns"),
        (lambda: make_pu(load_named("breast-cancer"), 20.5, 0), "positives=20.5 is not a whole number"),
        (
            lambda: train(ROWS, TrainSpec(prior=0.5, config=preset("default"))),
            "data is a ndarray: give rows and labels together",
        ),
        (
            lambda: train(PUData.from_arrays(ROWS, LABELLED), TrainSpec(prior=0.5, config={})),
            "config is a dict: give a Config",
        ),
        (lambda: trained(seed=0.5), "seed=0.5 is not a whole number"),
        (lambda: trained(config=None), "config is a NoneType: give a Config"),
        *(
            (lambda interval=interval: trained(prior_interval=interval), sentence)
            for interval, sentence in (
                (0.1, "prior_interval=0.1 is not a range"),
                ((0.6, 0.4), "lower end first"),
                ((-0.1, 0.6), "lower end first"),
                ((0.1, 0.2), "prior_interval=(0.1, 0.2) does not hold the prior, 0.5"),
            )
        ),
        (lambda: evaluate_pu([1.0], [-1.0, 1.0], 0.5, prior_interval=(0.1, 0.2)), "does not hold the prior, 0.5"),
        (lambda: train(DATA, TrainSpec(prior=0.5, config=QUICKEST, seed=None)), "seed=None is not a whole number"),
        (lambda: estimate_prior(DATA, seed=None), "seed=None is not a whole number"),
        (lambda: evaluate_pu([1.0], [-1.0, 1.0], 0.5, seed=None), "seed=None is not a whole number"),
        (lambda: nnpu(random_state=-1).fit(ROWS, LABELLED), "random_state=-1 is negative: give a whole number"),
        (lambda: trained(seed=-1), "seed=-1 is negative"),
        (lambda: estimate_prior(DATA, seed=-1), "seed=-1 is negative"),
        (lambda: evaluate_pu([1.0], [-1.0, 1.0], 0.5, seed=-1), "seed=-1 is negative"),
        (lambda: estimate_prior(ROWS), "data is a ndarray: give rows and labels together"),
        (lambda: check_random_labelling(ROWS), "data is a ndarray: give rows and labels together"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(call, sentence) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_number_of_test_rows_is_as_good_as_a_share() -> None:
    *_, s_train, s_test = pu_train_test_split(ROWS, s=LABELLED, test_size=40, random_state=0)
    assert (len(s_train), len(s_test), int(s_test.sum())) == (80, 40, 10)


def test_folds_say_what_they_are() -> None:
    assert repr(PUStratifiedKFold(3, random_state=0)).startswith("PUStratifiedKFold(n_splits=3, shuffle=True")


@pytest.mark.parametrize("missing", [np.nan, None])
def test_missing_labels_are_told_to_be_unlabelled_rows(missing) -> None:
    with pytest.raises(InputError, match="in 90 rows: write 0 for unlabelled rows"):
        nnpu().fit(ROWS, np.where(LABELLED, 1, missing))


def test_columns_that_are_not_numbers_are_named() -> None:
    worded = TABLE.append_column("ward", [["north"] * 120]).append_column("seen", [np.full(120, "2026-01-01", "M8[s]")])
    fitted = nnpu().fit(ROWS, LABELLED)
    for call in (lambda: PUData.from_arrays(worded, LABELLED), lambda: fitted.predict(worded)):
        with pytest.raises(InputError, match=r"not numbers \('ward', 'seen'\): give the frame to a classifier"):
            call()
    assert nnpu().fit(worded, LABELLED).n_features_in_ == 5  # which encodes them


def test_a_kept_model_still_knows_its_columns_and_how_its_rows_were_sampled(tmp_path: Path) -> None:
    fitted = nnpu(scenario="case-control").fit(TABLE, LABELLED)
    fitted.save(tmp_path / "model")
    again = NNPUClassifier.load(tmp_path / "model")
    assert again.scenario == "case-control"
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(again.decision_function(TABLE), fitted.decision_function(TABLE))
    with pytest.raises(ValueError, match="same order as they were in fit"):
        again.predict(TABLE.select(["c", "b", "a"]))
    again.save(tmp_path / "copy")
    assert NNPUClassifier.load(tmp_path / "copy").feature_names_in_.tolist() == ["a", "b", "c"]


def test_models_take_paths_as_text(tmp_path: Path) -> None:
    nnpu().fit(ROWS, LABELLED).save(tmp_path)
    assert Model.load(str(tmp_path)).scenario == "single-training-set"


def test_a_network_without_layers_is_answered_in_the_words_of_the_classifiers() -> None:
    from torch import nn

    with pytest.raises(InputError, match="layers="):
        tiny(backbone=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))).fit(ROWS, LABELLED)


def test_probabilities_in_place_of_decisions_are_warned_of() -> None:
    probabilities = np.linspace(0.01, 0.99, 50)
    with pytest.warns(SplitPUWarning, match="subtract 1/2 from them"):
        evaluate_pu(probabilities[25:], probabilities, 0.5, scenario="case-control", intervals=False)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("decisions", [np.linspace(-0.5, 0.5, 50), np.arange(50) % 2])
def test_decisions_are_not_warned_of(decisions) -> None:
    evaluate_pu(decisions[25:], decisions, 0.5, scenario="case-control", intervals=False)


def test_every_classifier_shows_what_it_takes() -> None:
    for one in (SplitPUClassifier, NNPUClassifier):
        assert "PUEstimator" in (one.__doc__ or "")


def test_smoke_of_one_experiment_runs_that_one(tmp_path: Path) -> None:
    smoke([experiments()["competitor-choice"]], tmp_path, tell=lambda _: None)
    assert [path.stem for path in (tmp_path / "results").iterdir()] == ["competitor-choice"]


class FrameOfObjects:
    """As pandas' frames of nullable columns, or of booleans among floats: numpy makes objects of them."""

    def __init__(self, columns):
        self._columns = columns
        self.columns, self.dtypes = list(columns), [np.asarray(one).dtype for one in columns.values()]

    def __getitem__(self, name):
        return self._columns[name]

    def __array__(self, dtype=None, copy=None):
        return np.array(list(zip(*self._columns.values(), strict=True)), dtype=object)


def test_frames_of_numbers_that_numpy_calls_objects_become_data() -> None:
    frame = FrameOfObjects({"a": ROWS[:, 0].tolist(), "above": (ROWS[:, 1] > 0).tolist()})
    expected = PUData.from_arrays(np.stack([ROWS[:, 0], ROWS[:, 1] > 0], axis=1), LABELLED)
    np.testing.assert_array_equal(PUData.from_arrays(frame, LABELLED).features, expected.features)
    missing = type("NAType", (), {})()  # as pandas calls it
    with pytest.raises(InputError, match=r"missing values.*\(columns 'above'\)"):
        PUData.from_arrays(FrameOfObjects({"a": [0.5] * 120, "above": [True, missing] * 60}), LABELLED)
    with pytest.raises(InputError, match=r"X_test holds columns that are not numbers \('ward'\)"):
        HeldOut.from_arrays(FrameOfObjects({"a": [0.5] * 120, "ward": ["north"] * 120}), LABELLED)


def test_the_base_model_knows_the_columns_as_well() -> None:
    fitted = tiny(rounds=0).fit(TABLE, LABELLED)
    np.testing.assert_array_equal(fitted.base_.predict_proba(TABLE), fitted.predict_proba(TABLE))
    with pytest.raises(ValueError, match="same order as they were in fit"):
        fitted.base_.predict(TABLE.select(["c", "b", "a"]))
    objects = ROWS.astype(object)
    np.testing.assert_array_equal(tiny(rounds=0).fit(ROWS, LABELLED).base_.predict(objects), fitted.predict(TABLE))
    assert not hasattr(tiny(), "base_")
