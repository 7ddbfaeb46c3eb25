"""Teacher, early-stopped split and student for learners that are no networks."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

from splitpu.errors import InputError
from splitpu.learners.catalogue import Bagging, Boosting, Logistic
from splitpu.learners.crossfit import Task
from splitpu.learners.split_learner import SplitLearner, posteriors, split


def a_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.arange(500) < 200
    rows = rng.normal(size=(500, 3)) + np.outer(truth, [1.5, 1.5, 0])
    return rows, truth, np.arange(500) < 70


def test_posteriors_have_the_prior_as_their_mean() -> None:
    rows, truth, labelled = a_table()
    scores = Logistic().fit(rows, labelled).scores(rows)
    for prior in (0.05, 130 / 430, 0.8):
        found = posteriors(scores, labelled, prior)
        assert found[~labelled].mean() == pytest.approx(prior, abs=1e-3)
        assert (found[labelled] == 1).all() and found.max() <= 1
    assert 0.1 < posteriors(scores, labelled)[~labelled].mean() < 0.5
    assert roc_auc_score(truth[~labelled], posteriors(scores, labelled)[~labelled]) > 0.85


def test_easy_rows_carry_fewer_wrong_labels_than_hard_ones() -> None:
    rows, truth, labelled = a_table()
    q = posteriors(Task(rows, labelled).out_of_fold(Bagging(trees=40), 3)[0], labelled, 0.3)
    found = split(rows, labelled, q, tau=0.85)
    wrong = (q > 0.5) != truth
    hard = ~found.easy & ~labelled
    assert found.agreement > 0.85 and found.stages >= 2
    assert wrong[found.easy].mean() < wrong[hard].mean()
    assert not found.easy[labelled].any()


def test_a_teacher_who_says_one_thing_only_makes_everything_easy() -> None:
    rows, _, labelled = a_table()
    found = split(rows, labelled, np.zeros(500), tau=0.9)
    assert found.easy.sum() == 430 and found.agreement == 1


def test_sparse_rows_are_split_along_the_penalty() -> None:
    rows, _, labelled = a_table()
    flat = sparse.csr_matrix(np.maximum(rows, 0))
    q = posteriors(rows[:, 0], labelled, 0.3)
    found = split(flat, labelled, q, tau=0.6)
    assert 1 <= found.stages <= 7 and found.easy.any()
    assert SplitLearner(Logistic()).fit(flat, labelled).scores(flat).shape == (500,)


@pytest.mark.parametrize(
    "student",
    [
        SplitLearner(Bagging(trees=20)),
        SplitLearner(Logistic(), Boosting(stages=20)),
        SplitLearner(Logistic(), prior=0.3),
        SplitLearner(Logistic(), tau=0.8),
    ],
)
def test_students_rank(student: SplitLearner) -> None:
    rows, truth, labelled = a_table()
    scores = student.fit(rows, labelled, seed=1).scores(rows)
    assert roc_auc_score(truth[~labelled], scores[~labelled]) > 0.85
    assert student.name.startswith("split, ")


def test_what_makes_no_sense_is_refused() -> None:
    rows, _, _ = a_table()
    for wrong in ({"tau": 1.0}, {"prior": 0.0}):
        with pytest.raises(InputError):
            SplitLearner(Logistic(), **wrong)
    with pytest.raises(InputError, match="mask"):
        SplitLearner(Logistic()).fit(rows, np.full(500, 0.5))


def test_posteriors_in_short() -> None:
    rng = np.random.default_rng(0)
    labelled = np.arange(1000) < 100
    scores = np.where(np.arange(1000) < 300, 2.0, -2.0) + rng.normal(size=1000)
    assert round(float(posteriors(scores, labelled, prior=200 / 900)[100:300].mean()), 1) == 0.8
