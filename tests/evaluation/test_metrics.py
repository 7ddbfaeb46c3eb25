"""The figures agree with scikit-learn, and are None where rows cannot give them.

Figures without negatives, against simulations whose truth is known.
"""

import math

import numpy as np
import pytest
from evaluation_tools import pu_sample, scores
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from splitpu import InputError
from splitpu.errors import SplitPUWarning
from splitpu.evaluation.calibration import PUCalibrator, reliability
from splitpu.evaluation.diagnostics import find_degeneracies
from splitpu.evaluation.held_out import nnpu_value, pu_criterion
from splitpu.evaluation.metrics import (
    METRICS,
    among_unlabelled,
    evaluate_pu,
    evaluate_scores,
    finite_or_none,
    if_truth_is_swapped,
    written,
)
from splitpu.prior.estimate import PriorEstimate


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.floats(-5, 5, allow_subnormal=False)), min_size=1, max_size=40))
def test_figures_are_those_of_scikit_learn(rows: list[tuple[bool, float]]) -> None:
    truth = np.array([row[0] for row in rows])
    decision = np.array([row[1] for row in rows])
    called = decision > 0
    figures = evaluate_scores(truth, decision)
    assert figures["accuracy"] == pytest.approx(reference.accuracy_score(truth, called))
    assert (figures["f1"] or 0) == pytest.approx(reference.f1_score(truth, called, zero_division=0))
    assert (figures["precision"] or 0) == pytest.approx(reference.precision_score(truth, called, zero_division=0))
    assert (figures["recall"] or 0) == pytest.approx(reference.recall_score(truth, called, zero_division=0))
    assert figures["positive_rate"] == called.mean() and figures["true_rate"] == truth.mean()
    if truth.any() and not truth.all():
        assert figures["roc_auc"] == pytest.approx(reference.roc_auc_score(truth, decision))
        assert figures["average_precision"] == pytest.approx(reference.average_precision_score(truth, decision))


@pytest.mark.parametrize("truth", [[1, 1, 1], [0, 0, 0]])
def test_one_class_alone_has_no_ranking_figures(truth: list[int]) -> None:
    figures = evaluate_scores(truth, [1.0, -1.0, 2.0])
    assert figures["roc_auc"] is None and figures["average_precision"] is None
    assert all(value is None or math.isfinite(value) for value in figures.values())


def test_nothing_called_positive_has_no_precision() -> None:
    assert evaluate_scores([1, 0], [-1.0, -1.0])["precision"] is None


def test_scores_that_are_not_numbers_give_no_ranking_figures() -> None:
    assert evaluate_scores([1, 0], [np.nan, 1.0])["roc_auc"] is None


def test_prior_gap_only_with_a_prior() -> None:
    assert "prior_gap" not in evaluate_scores([1, 0], [1.0, -1.0])
    assert evaluate_scores([1, 0], [1.0, -1.0], prior=0.3)["prior_gap"] == pytest.approx(0.2)


def test_every_convention_of_truth_is_understood_alike() -> None:
    decision = [1.0, -1.0, 2.0]
    assert evaluate_scores([1, -1, 1], decision) == evaluate_scores([True, False, True], decision)


@pytest.mark.parametrize(("truth", "decision"), [([1, 0], [1.0]), ([], []), ([[1, 0]], [[1.0, 2.0]])])
def test_rows_that_do_not_match_are_refused(truth: list[int], decision: list[float]) -> None:
    with pytest.raises(ValueError):
        evaluate_scores(truth, decision)


def test_json_never_sees_nan() -> None:
    assert finite_or_none({"a": [float("inf"), 1, "x", None, {"b": float("nan")}]}) == {
        "a": [None, 1, "x", None, {"b": None}]
    }


ESTIMATE = PriorEstimate(0.5, (0.4, 0.6), "consensus", (), {}, ())


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
    assert len(found) == len(dict(found)) == len(found.figures) and found.get("unheard of") is None
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


def test_a_model_that_ranks_upside_down_is_not_flattered():
    positive, unlabelled = pu_sample(0.4, 300, 3000, "case-control", np.random.default_rng(3))
    upright = evaluate_pu(positive, unlabelled, 0.4, scenario="case-control")
    with pytest.warns(SplitPUWarning, match=r"positives rank below unlabelled rows \(ROC AUC 0.0.*sign"):
        turned = evaluate_pu(-positive, -unlabelled, 0.4, scenario="case-control")
    assert upright["roc_auc"].value > 0.9 and turned["roc_auc"].value < 0.1
    assert turned["accuracy"].value < 0.3


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


def test_an_interval_that_is_none():
    with pytest.raises(InputError, match="lower end first"):
        evaluate_pu([1.0, 2.0], [1.0, -1.0], 0.5, prior_interval=(0.6, 0.4))


def test_a_few_more_labelled_rows_than_the_prior_says_are_chance():
    """Of all positives labelled, half of the draws have more than the prior says; and no figure exceeds 1."""
    found = evaluate_pu(np.ones(55), -np.ones(95), 0.35)
    assert all(0 <= figure.low <= figure.value <= figure.high <= 1 for figure in found.figures.values())


def test_if_truth_is_swapped_in_short() -> None:
    assert if_truth_is_swapped({"roc_auc": 0.49, "true_rate": 0.5}, 100) == []


def test_among_unlabelled_in_short() -> None:
    assert float(among_unlabelled(0.6, 2, 8, "single-training-set")) == 0.5


def test_written_in_short() -> None:
    assert written(0.123456789) == "0.123457"
