"""Figures, selection, calibration and checks without negatives, against simulations whose truth is known."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from splitpu import InputError, NNPUClassifier, SplitPUClassifier
from splitpu.evaluation import (
    PUCalibrator,
    PUStratifiedKFold,
    cross_fitted_decisions,
    evaluate_pu,
    find_degeneracies,
    make_pu_scorer,
    pu_train_test_split,
    reliability,
)
from splitpu.evaluation.pu_metrics import METRICS
from splitpu.evaluation.scoring import AT_THE_THRESHOLD, CHOICES, decisions
from splitpu.metrics import evaluate_scores
from splitpu.prior import PriorEstimate
from splitpu.selection import nnpu_value, pu_criterion

SHIFT = 1.2
ESTIMATE = PriorEstimate(0.5, (0.4, 0.6), "consensus", (), {}, ())


def scores(positives: int, negatives: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of an imperfect classifier on rows of both classes."""
    return rng.normal(SHIFT, 1, positives), rng.normal(-SHIFT, 1, negatives)


def pu_sample(prior: float, labelled: int, rows: int, scenario: str, rng: np.random.Generator):
    """Decisions on P and U as the scenario draws them: `rows` from the population, labelled ones in or beside it."""
    hidden = rng.binomial(rows, prior)
    positive, negative = scores(hidden + labelled, rows - hidden, rng)
    if scenario == "single-training-set":
        positive = positive[:hidden]  # the labelled ones are among them
    return positive[:labelled], np.concatenate([positive[labelled:], negative])


def truth_at(prior: float) -> dict[str, float]:
    positive, negative = scores(round(400_000 * prior), round(400_000 * (1 - prior)), np.random.default_rng(99))
    truth = np.r_[np.ones(len(positive)), np.zeros(len(negative))]
    return evaluate_scores(truth, np.concatenate([positive, negative]))  # type: ignore[return-value]


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
@pytest.mark.parametrize("prior", [0.2, 0.5])
def test_figures_are_close_and_intervals_cover(prior, scenario):
    truth, rng = truth_at(prior), np.random.default_rng(5)
    simulations = 50
    found = [
        evaluate_pu(*pu_sample(prior, 150, 1500, scenario, rng), prior, scenario=scenario, seed=i)
        for i in range(simulations)
    ]
    for name in METRICS:
        values = np.array([one[name].value for one in found])
        covered = np.mean([one[name].low <= truth[name] <= one[name].high for one in found])
        assert abs(values.mean() - truth[name]) < 0.02, name
        assert covered >= 0.86, (name, covered)
        widths = np.array([one[name].high - one[name].low for one in found])
        assert widths.mean() < 6 * values.std(), name  # and not by being wide


def test_all_labelled_positives_found_leaves_doubt():
    found = evaluate_pu(np.ones(20), np.r_[np.ones(30), -np.ones(70)], 0.3, scenario="case-control")
    assert found["recall"].value == 1.0 and 0.8 < found["recall"].low < 0.95


def test_an_uncertain_prior_widens_the_intervals():
    sample = pu_sample(0.4, 200, 2000, "case-control", np.random.default_rng(0))
    sure = evaluate_pu(*sample, 0.4, scenario="case-control")
    unsure = evaluate_pu(*sample, 0.4, scenario="case-control", prior_interval=(0.3, 0.5))
    for name in ("accuracy", "f1", "precision", "roc_auc"):
        assert unsure[name].high - unsure[name].low > sure[name].high - sure[name].low


def test_intervals_hold_the_truth_of_a_model_that_is_nearly_always_right():
    """Its false positives cannot be fewer than none, which used to pull estimate and interval down together."""
    held, draws = 0, 60
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        truth = rng.random(500) < 0.4
        decision = rng.normal(size=500) + np.where(truth, 2.5, -2.5)  # right in 99.4 of 100
        labelled = rng.permutation(np.flatnonzero(truth))[:40]
        found = evaluate_pu(decision[labelled], np.delete(decision, labelled), 0.4, seed=seed)["accuracy"]
        held += found.low <= 0.9938 <= found.high
    assert held >= 0.9 * draws


def test_agrees_with_the_selection_criterion():
    rng = np.random.default_rng(1)
    positive, unlabelled = pu_sample(0.4, 200, 2000, "single-training-set", rng)
    found = evaluate_pu(positive, unlabelled, 0.4)
    population = np.concatenate([positive, unlabelled])
    assert found["accuracy"].value == pytest.approx(pu_criterion(positive, population, 0.4), abs=0.01)
    assert found.nnpu == pytest.approx(nnpu_value(positive, population, 0.4))


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


def test_a_model_that_ranks_upside_down_is_not_flattered():
    positive, unlabelled = pu_sample(0.4, 300, 3000, "case-control", np.random.default_rng(3))
    upright, turned = (
        evaluate_pu(sign * positive, sign * unlabelled, 0.4, scenario="case-control") for sign in (1, -1)
    )
    assert upright["roc_auc"].value > 0.9 and turned["roc_auc"].value < 0.1
    assert turned["accuracy"].value < 0.3


def test_cross_fitted_decisions_are_of_unseen_rows():
    """A model that learns rows by heart: its own rows look perfect, unseen ones do not."""
    X, s, truth = pu_rows(rows=400, labelled=100)
    known, others = cross_fitted_decisions(KNeighborsClassifier(1), X, s, folds=4)
    assert len(known) == 100 and len(others) == 300
    assert (decisions(KNeighborsClassifier(1).fit(X, s), X)[s == 1] > 0).all() and (known > 0).mean() < 0.7
    found = cross_fitted_decisions(LogisticRegression(class_weight="balanced"), X, s)
    assert evaluate_pu(*found, float(truth.mean()))["roc_auc"].value > 0.9


def test_all_positive_is_never_rewarded():
    positive, unlabelled = pu_sample(0.3, 200, 2000, "case-control", np.random.default_rng(2))
    honest = evaluate_pu(positive, unlabelled, 0.3, scenario="case-control")
    lazy = evaluate_pu(np.ones(200), np.ones(2000), 0.3, scenario="case-control")
    for name in ("accuracy", "f1", "precision", "roc_auc", "average_precision"):
        assert lazy[name].value < honest[name].value, name
    assert lazy["accuracy"].value == pytest.approx(0.3) and lazy["roc_auc"].value == pytest.approx(0.5, abs=0.3)
    assert lazy.nnpu > honest.nnpu


@pytest.mark.parametrize(("bad", "saying"), [([], "at least one"), ([np.nan, 1.0], "NaN"), ([[1.0]], "flat")])
def test_bad_decisions(bad, saying):
    with pytest.raises(InputError, match=saying):
        evaluate_pu(bad, [1.0, -1.0], 0.5)


@pytest.mark.parametrize(
    ("prior", "options", "saying"),
    [
        (0.5, {}, "300 of the 400 rows are labelled, more than a prior of 0.5"),
        (1.5, {"scenario": "case-control"}, "prior=1.5 is not a share"),
        (float("nan"), {"scenario": "case-control"}, "prior=nan is not a share"),
        (0.5, {"scenario": "some"}, "scenario='some' is unknown"),
    ],
)
def test_priors_that_the_judged_rows_cannot_have(prior, options, saying):
    with pytest.raises(InputError, match=saying):
        evaluate_pu(np.ones(300), np.zeros(100), prior, **options)


@pytest.mark.parametrize("prior", [2.0, float("nan"), 0.0, "auto", None, True, ESTIMATE])
@pytest.mark.parametrize(
    "judge", [evaluate_pu, PUCalibrator.fit, reliability, find_degeneracies, pu_criterion, nnpu_value]
)
def test_nothing_is_judged_with_what_is_no_share(judge, prior):
    with pytest.raises(InputError, match=r"is not a share: give|not a number: give"):
        judge([0.9, 0.8, 0.4], [0.7, 0.2, 0.1, 0.3], prior)


def test_a_scorer_refuses_at_once_what_a_search_would_pass_over():
    with pytest.raises(InputError, match="is not a share"):
        make_pu_scorer("accuracy", prior=37.0)
    with pytest.raises(InputError, match="scenario='some' is unknown"):
        make_pu_scorer("accuracy", prior=0.3, scenario="some")  # type: ignore[arg-type]


def test_an_interval_that_is_none():
    with pytest.raises(InputError, match="lower end first"):
        evaluate_pu([1.0, 2.0], [1.0, -1.0], 0.5, prior_interval=(0.6, 0.4))


def test_a_few_more_labelled_rows_than_the_prior_says_are_chance():
    """Of all positives labelled, half of the draws have more than the prior says; and no figure exceeds 1."""
    found = evaluate_pu(np.ones(55), -np.ones(95), 0.35)
    assert all(0 <= figure.low <= figure.value <= figure.high <= 1 for figure in found.figures.values())


# ---------------------------------------------------------------------------------------------------- degenerate models


def kinds(*arguments, **options) -> list[str]:
    return [one.kind for one in find_degeneracies(*arguments, **options)]


def test_degenerate_models_are_found():
    rng = np.random.default_rng(0)
    positive, unlabelled = pu_sample(0.4, 200, 2000, "case-control", rng)
    options = {"scenario": "case-control"}
    assert kinds(positive, unlabelled, 0.4, **options) == []
    assert kinds(np.ones(9), np.ones(50), 0.4, **options) == ["constant"]
    assert kinds(positive + 9, unlabelled + 9, 0.4, **options) == ["all positive"]
    assert kinds(positive - 9, unlabelled - 9, 0.4, **options) == ["all negative"]
    assert kinds(positive + 5, unlabelled, 0.4, **options) == ["memorised positives"]
    assert kinds(positive + 9, unlabelled, 0.4, held_out_positive=positive - 1, **options) == ["memorised positives"]
    assert kinds(positive, unlabelled, 0.4, held_out_positive=scores(100, 0, rng)[0], **options) == []


def test_figures_that_leave_no_room_for_the_prior_are_called_an_upper_limit():
    known, other = np.ones(40), np.r_[np.ones(21), -np.ones(39)]
    found = evaluate_pu(known, other, 0.514, scenario="case-control")
    assert found["accuracy"].value > 0.99  # though 51 % are positive and 35 % are called so
    (one,) = find_degeneracies(known, other, 0.514, scenario="case-control")
    assert one.kind == "too few positives" and "upper limit" in one.sentence
    assert "35.0 % of the unlabelled rows" in one.sentence and "51.4 % necessary" in one.sentence
    assert "at most 0.350 would fit" in one.sentence and "at least 16.4 %" in one.sentence
    *_, one = find_degeneracies(known, other, 0.8)
    assert "at most 0.610 would fit" in one.sentence  # where the labelled rows are part of the population
    assert kinds(known, np.r_[np.ones(27), -np.ones(33)], 0.514, scenario="case-control") == []


def test_labelled_rows_that_leave_no_positives_among_the_others_are_told_of():
    known, other = np.linspace(-0.1, 2, 50), np.linspace(-2, 1, 60)
    evaluate_pu(known, other, 0.4)  # 44 of 110 are expected, and 50 may be by chance
    (one,) = find_degeneracies(known, other, 0.4)
    assert one.kind == "no positives left" and "50 of the 110 rows are labelled" in one.sentence
    assert "expects 44 positives" in one.sentence and "scenario='case-control'" in one.sentence
    assert "no positives left" not in kinds(known, other, 0.4, scenario="case-control") + kinds(known, other, 0.6)


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
@pytest.mark.parametrize("prior", [0.2, 0.5])
def test_chance_alone_seldom_calls_too_few_positive(prior, scenario):
    """Of a model that makes no mistakes the share that is called positive is low by chance half of the time."""
    rng = np.random.default_rng(1)
    found = [kinds(*pu_sample_without_mistakes(prior, scenario, rng), prior, scenario=scenario) for _ in range(400)]
    assert sum("too few positives" in one for one in found) < 0.05 * len(found)


def pu_sample_without_mistakes(prior: float, scenario: str, rng: np.random.Generator):
    hidden = rng.binomial(600, prior) - (50 if scenario == "single-training-set" else 0)
    unlabelled = 550 if scenario == "single-training-set" else 600
    return np.ones(50), np.r_[np.ones(hidden), -np.ones(unlabelled - hidden)]


# ------------------------------------------------------------------------------------------------ splitters and scorers


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
