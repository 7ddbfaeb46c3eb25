"""Out-of-fold scores never come from a model that knew the row, and intervals of the AUC cover."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from splitpu.errors import InputError
from splitpu.evaluation.ranking import corrected_auc
from splitpu.learners.auto import choose
from splitpu.learners.catalogue import Logistic
from splitpu.learners.crossfit import Task, auc_of, compare_auc, fold_numbers, out_of_fold, platt


def test_folds_spread_the_labelled_and_keep_groups_together() -> None:
    labelled = np.arange(100) < 10
    assert np.bincount(fold_numbers(labelled, 5, 0)[:10]).tolist() == [2] * 5
    groups = np.arange(100) % 20
    folds = fold_numbers(labelled, 3, 0, groups)
    assert all(len(set(folds[groups == one])) == 1 for one in range(20))
    with pytest.raises(InputError, match="too few"):
        fold_numbers(labelled, 5, 0, np.where(labelled, 0, groups))
    with pytest.raises(InputError, match="too few"):
        fold_numbers(np.arange(100) < 2, 5, 0)
    with pytest.raises(InputError, match="one per row"):
        fold_numbers(labelled, 3, 0, groups[:-1])


def test_the_auc_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        labelled = rng.random(80) < 0.3
        scores = np.round(rng.normal(size=80) + labelled, 1)
        assert auc_of(scores, labelled).value == pytest.approx(roc_auc_score(labelled, scores))
    with pytest.raises(InputError):
        auc_of(scores, np.ones(80, dtype=bool))


def test_intervals_cover() -> None:
    rng = np.random.default_rng(1)
    truth = 0.7602  # of two normals one apart
    labelled = np.arange(150) < 30
    inside = 0
    for _ in range(400):
        found = auc_of(rng.normal(size=150) + labelled, labelled)
        inside += found.low <= truth <= found.high
    assert 0.92 <= inside / 400 <= 0.98


def test_a_perfect_ranking_has_an_interval_too() -> None:
    found = auc_of(np.arange(20.0), np.arange(20) > 9)
    assert found.value == 1 and found.high == 1 and 0.5 < found.low < 0.99


def test_differences_are_paired() -> None:
    """Two rankings that nearly agree are told apart far better than their own intervals would allow."""
    rng = np.random.default_rng(2)
    labelled = np.arange(300) < 60
    scores = rng.normal(size=300) + labelled
    worse = scores + rng.normal(size=300) * 0.1
    found = compare_auc(scores, worse, labelled)
    assert found.error < 0.3 * auc_of(scores, labelled).error
    assert compare_auc(scores, rng.normal(size=300), labelled).low > 0
    assert compare_auc(scores, scores, labelled).low <= 0


def test_the_true_auc_comes_back_from_p_against_u() -> None:
    rng = np.random.default_rng(3)
    truth = np.arange(20000) < 6000
    labelled = np.arange(20000) < 2000
    scores = rng.normal(size=20000) + 1.5 * truth
    found = corrected_auc(auc_of(scores, labelled).value, 4000 / 18000)
    assert found == pytest.approx(roc_auc_score(truth[2000:], scores[2000:]), abs=0.02)


def test_scores_are_by_models_that_never_saw_the_row() -> None:
    rng = np.random.default_rng(4)
    rows, labelled = rng.normal(size=(120, 60)), np.arange(120) % 3 == 0
    folds = fold_numbers(labelled, 4, 0)
    assert roc_auc_score(labelled, Logistic(strength=100).fit(rows, labelled).scores(rows)) > 0.95
    for scores in (
        out_of_fold(Logistic(), Task(rows, labelled, np.ones(120)), folds),
        choose(rows, labelled, candidates=["boosting"]).scores,
    ):
        assert 0.3 < roc_auc_score(labelled, scores) < 0.7


def test_calibration_finds_the_logits() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=20000) * 2
    labelled = rng.random(20000) < 1 / (1 + np.exp(-logits))
    slope, offset = platt(3 * logits + 7, labelled)
    assert slope == pytest.approx(1 / 3, rel=0.05) and offset == pytest.approx(-7 / 3, rel=0.05)
    assert platt(-logits, labelled)[0] > 0  # a ranking that is upside down is not turned round behind one's back


def test_fold_numbers_in_short() -> None:
    folds = fold_numbers(np.arange(10) < 4, 2, seed=0)
    assert (np.bincount(folds).tolist(), np.bincount(folds[:4]).tolist()) == ([5, 5], [2, 2])


def test_out_of_fold_in_short() -> None:
    from splitpu.learners.catalogue import Logistic

    rows = np.random.default_rng(0).normal(size=(60, 2)) + (np.arange(60) < 20)[:, None]
    labelled = np.arange(60) < 15
    assert out_of_fold(Logistic(), Task(rows, labelled), fold_numbers(labelled, 3, seed=0)).shape == (60,)


def test_auc_of_in_short() -> None:
    found = auc_of(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, False, False]))
    assert found.value == 0.75


def test_compare_auc_in_short() -> None:
    same = np.arange(6.0)
    assert compare_auc(same, same, same > 3).value == 0.0
