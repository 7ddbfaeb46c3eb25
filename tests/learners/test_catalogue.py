"""Every learner ranks positives above others, dense, sparse and with soft labels."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from splitpu.errors import InputError
from splitpu.learners.catalogue import (
    LEARNERS,
    Bagging,
    Boosting,
    Forest,
    Given,
    Kernel,
    Logistic,
    NaiveBayes,
    _in_steps,
    as_two_classes,
    fewer_rows,
    guarded,
    learner,
)
from splitpu.learners.crossfit import auc_of

QUICK = [
    Logistic(),
    Kernel(landmarks=60),
    Bagging(trees=30),
    Forest(trees=30),
    Boosting(stages=30),
    Given(GaussianNB()),
]


def a_table(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, truth (40 % positive), and labels for a third of the positives."""
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) < 0.4 * rows
    table = rng.normal(size=(rows, 4)) * [1, 100, 1, 1] + np.outer(truth, [2.0, 150.0, 0, 0])
    return table, truth, truth & (rng.random(rows) < 0.33)


@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.name)
def test_learners_rank_hidden_positives_high(one: Any) -> None:
    rows, _, labelled = a_table()
    fitted = one.fit(rows, labelled, seed=1)
    fresh, truth, _ = a_table(seed=1)
    assert roc_auc_score(truth, fitted.scores(fresh)) > 0.88
    np.testing.assert_array_equal(one.fit(rows, labelled, seed=1).scores(fresh), fitted.scores(fresh))


@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.name)
def test_soft_labels_and_weights_are_learnt(one: Any) -> None:
    rows, truth, _ = a_table()
    soft = np.where(truth, 0.8, 0.1)
    weight = np.where(np.arange(len(rows)) % 2 == 0, 1.0, 0.0)
    fitted = one.fit(rows[weight > 0], soft[weight > 0], sample_weight=np.ones(200), seed=1)
    fresh, truth, _ = a_table(seed=1)
    assert roc_auc_score(truth, fitted.scores(fresh)) > 0.9


@pytest.mark.parametrize("one", [*QUICK[:5]], ids=lambda one: one.name)
def test_missing_values_need_no_care(one: Any) -> None:
    rows, _, labelled = a_table()
    rows[::5, 0] = np.nan
    rows[:, 3] = np.nan
    scores = one.fit(rows, labelled).scores(rows)
    assert np.isfinite(scores).all()


def test_a_missing_value_can_speak_for_itself() -> None:
    rng = np.random.default_rng(0)
    labelled = np.arange(200) < 60
    rows = rng.normal(size=(200, 2))
    rows[labelled, 1] = np.nan
    assert roc_auc_score(labelled, Logistic().fit(rows, labelled).scores(rows)) == 1


def test_sparse_rows_stay_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    def dense(*_: Any, **__: Any) -> None:
        raise AssertionError("made dense")

    for kind in (sparse.csr_matrix, sparse.csr_array):
        monkeypatch.setattr(kind, "toarray", dense)
        monkeypatch.setattr(kind, "todense", dense)
    rows = sparse.random(300, 5000, 0.001, format="csr", random_state=0) + sparse.csr_matrix(
        (np.full(100, 5.0), (np.arange(100), np.arange(100) % 3)), shape=(300, 5000)
    )
    labelled = np.arange(300) < 50
    for one in (Logistic(), NaiveBayes(), Bagging(trees=20)):
        scores = one.fit(rows, labelled).scores(rows)
        assert auc_of(scores, np.arange(300) < 100).value > 0.85
    soft = np.where(labelled, 1.0, 0.2)
    assert Logistic().fit(rows, soft).scores(rows).shape == (300,)


def test_out_of_bag_scores_are_honest() -> None:
    """Labels that mean nothing: the fit knows them by heart, the out-of-bag scores do not."""
    rng = np.random.default_rng(0)
    rows, labelled = rng.normal(size=(300, 4)), rng.random(300) < 0.3
    fitted = Bagging(trees=80).fit(rows, labelled)
    assert fitted.out_of_bag is not None
    assert roc_auc_score(labelled, fitted.scores(rows)) > 0.95
    assert abs(roc_auc_score(labelled, fitted.out_of_bag) - 0.5) < 0.12


def test_trees_are_told_the_nearest_of_a_few_values() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=2000), rng.integers(5, size=2000), np.full(2000, np.nan)])
    rows[::10, 0] = np.nan
    rare = np.argsort(-np.nan_to_num(rows[:, 0]))[:20]  # all of them above what one step would hold
    found = _in_steps(rows, np.isin(np.arange(2000), rare).astype(float), 64)
    assert len(np.unique(found[rare, 0])) == 20
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rows))
    np.testing.assert_array_equal(found[:, 1], rows[:, 1])  # so few values stay as they are
    there = ~np.isnan(rows[:, 0])
    kept = np.unique(found[there, 0])
    assert 32 < len(kept) <= 64 and np.isin(kept, rows[:, 0]).all()
    nearest = kept[np.abs(rows[there, :1] - kept).argmin(1)]
    np.testing.assert_allclose(np.abs(found[there, 0] - rows[there, 0]), np.abs(nearest - rows[there, 0]))


def test_a_bagging_shows_its_first_trees() -> None:
    rows, _, labelled = a_table()
    first, whole = Bagging(trees=70).growing(rows, labelled, seed=1)
    assert (len(first.trees), len(whole.trees)) == (Bagging.first, 70)
    np.testing.assert_array_equal(Bagging(trees=50).fit(rows, labelled, seed=1).scores(rows), first.scores(rows))
    assert len(list(Bagging(trees=20).growing(rows, labelled))) == 1


def test_boosting_tells_its_stages() -> None:
    rows, _, labelled = a_table()
    fitted = Boosting(stages=20).fit(rows, labelled)
    stages = fitted.at_stages(rows, (5, 20, 99))
    np.testing.assert_array_equal(stages[20], fitted.scores(rows))
    np.testing.assert_array_equal(stages[20], stages[99])
    np.testing.assert_allclose(fitted.model.decision_function(rows), stages[20], atol=1e-9)
    assert not np.array_equal(stages[5], stages[20])


def test_a_classifier_of_the_users_is_cloned() -> None:
    rows, _, labelled = a_table()
    mine = KNeighborsClassifier(5)
    assert roc_auc_score(labelled, learner(mine).fit(rows, labelled).scores(rows)) > 0.7
    assert not hasattr(mine, "classes_")
    assert learner(LinearSVC()).fit(rows, labelled).scores(rows).shape == (400,)
    with pytest.raises(InputError, match="sample_weight"):
        learner(mine).fit(rows, np.where(labelled, 1.0, 0.3))


def test_large_tables_are_cut_down_but_keep_their_positives() -> None:
    target = np.arange(1000) < 40
    rows, soft, weight = guarded(np.arange(1000.0)[:, None], target, None, seed=0, most=200)
    assert rows.shape == (200, 1) and soft.sum() == 40 and len(weight) == 200
    kept = fewer_rows(np.arange(1000) < 900, 200, seed=0)
    assert len(kept) == 200 and (kept < 900).sum() == 100


def test_what_cannot_be_learnt_is_said() -> None:
    rows, _, labelled = a_table()
    for wrong in ("nothing", 3, object()):
        with pytest.raises(InputError):
            learner(wrong)
    with pytest.raises(InputError, match="sparse"):
        Boosting().fit(sparse.csr_matrix(rows), labelled)
    with pytest.raises(InputError, match="negative"):
        NaiveBayes().fit(sparse.csr_matrix(rows - 1), labelled)
    with pytest.raises(InputError, match="one per row"):
        Logistic().fit(rows, labelled[:-1])
    with pytest.raises(InputError, match="missing"):
        Logistic().fit(rows, np.zeros(400, dtype=bool))
    assert {learner(name).name for name in LEARNERS} == set(LEARNERS)


def test_learner_in_short() -> None:
    from sklearn.naive_bayes import GaussianNB

    assert learner("forest").name == "forest"
    assert learner(GaussianNB()).name == "GaussianNB"


def test_fewer_rows_in_short() -> None:
    kept = fewer_rows(np.arange(1000) < 30, 100, seed=0)
    assert (len(kept), int((kept < 30).sum())) == (100, 30)


def test_as_two_classes_in_short() -> None:
    rows, label, weight = as_two_classes(np.array([[1.0], [2.0]]), np.array([1.0, 0.25]), np.ones(2))
    assert (rows.ravel().tolist(), label.tolist(), weight.tolist()) == (
        [1.0, 2.0, 2.0],
        [True, True, False],
        [1.0, 0.25, 0.75],
    )
