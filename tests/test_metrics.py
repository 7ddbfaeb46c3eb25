"""The figures agree with scikit-learn, and are None where rows cannot give them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from splitpu.evaluation.metrics import evaluate_scores, finite_or_none


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
