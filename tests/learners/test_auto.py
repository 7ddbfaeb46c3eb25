"""The choice is made out of fold, and what is shipped is what was judged."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

from splitpu.errors import InputError
from splitpu.learners import auto
from splitpu.learners.auto import choose
from splitpu.learners.catalogue import Bagging, Boosting, Kernel, Logistic


def rings(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positives in the middle: no straight border tells them apart."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, 2))
    truth = (table**2).sum(1) < 1
    return table, truth, truth & (rng.random(rows) < 0.5)


FEW = [Logistic(), Kernel(landmarks=60), Bagging(trees=30), Boosting()]


def test_the_best_out_of_fold_is_shipped() -> None:
    rows, _, labelled = rings()
    choice = choose(rows, labelled, candidates=FEW)
    assert "logistic" not in choice.name
    assert choice.table()[0]["auc"] >= choice.table()[-1]["auc"]
    assert choice.auc.low < choice.auc.value < choice.auc.high
    fresh, truth, _ = rings(seed=1)
    scores = choice.fitted.scores(fresh)
    assert roc_auc_score(truth, scores) > 0.9
    with torch.inference_mode():
        np.testing.assert_allclose(choice.fitted.as_network()(torch.from_numpy(fresh)), scores, atol=1e-5)
    # Calibrated: the mean probability of "labelled" out of fold is the share of labelled rows.
    assert (1 / (1 + np.exp(-choice.scores))).mean() == pytest.approx(labelled.mean(), abs=0.03)


def test_labels_that_mean_nothing_are_seen_through() -> None:
    rng = np.random.default_rng(0)
    choice = choose(rng.normal(size=(200, 3)), rng.random(200) < 0.3, candidates=FEW)
    assert choice.auc.value < 0.68


def test_a_student_is_taken_only_if_it_beats_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, labelled = rings(200)
    monkeypatch.setattr(auto, "suited", lambda *_: [Kernel(landmarks=40)])
    choice = choose(rows, labelled)
    student = next(one for one in choice.candidates if one.against_base is not None)
    assert student.name == "split, kernel" and not np.isnan(student.auc.value)
    if student.chosen:
        assert student.against_base.value > student.against_base.error
    monkeypatch.setattr(auto, "STEEP", 1e9)
    assert choose(rows, labelled).name == "kernel"


def test_a_bagging_that_is_behind_is_not_grown_to_its_end() -> None:
    rows, _, labelled = rings(400)
    choice = choose(rows, labelled, candidates=[Bagging("stumps", trees=70, leaf=100), Bagging(trees=70), Logistic()])
    trees = {one.name: len(one.fitted.trees) for one in choice.candidates if one.fitted is not None}
    assert trees == {"stumps": Bagging.first, "bagging": 70}
    assert "bagging" in choice.name and "stumps" not in choice.name
    assert [one.name for one in choice.candidates] == ["logistic", "stumps", "bagging"]


def test_many_rows_are_chosen_on_a_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "CHOOSE_ROWS", 150)
    rows, _, labelled = rings(400)
    choice = choose(rows, labelled, candidates=FEW[1:3])
    assert len(choice.base.scores) == 150 and choice.scores.shape == (400,)
    assert roc_auc_score(labelled, choice.scores) > 0.7


def test_groups_weights_and_sparse_rows() -> None:
    rows, _, labelled = rings(200)
    groups = np.arange(200) % 40
    choice = choose(rows, labelled, candidates=["kernel", Bagging(trees=20)], groups=groups, sample_weight=np.ones(200))
    assert choice.scores.shape == (200,)
    words = sparse.csr_matrix(np.maximum(rows, 0))
    assert {row["learner"] for row in choose(words, labelled).table()} >= {"logistic", "naive bayes"}
    assert choose(rows, labelled, candidates=[GaussianNB()]).name == "GaussianNB"


def test_groups_that_leak_are_not_believed() -> None:
    """Every patient has a mark of their own: rows of one patient tell each other's labels, unless kept together."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 8)
    labelled = np.repeat(rng.random(40) < 0.4, 8)
    rows = np.repeat(rng.normal(size=(40, 3)), 8, axis=0) + 0.01 * rng.normal(size=(320, 3))
    assert choose(rows, labelled, candidates=[Bagging(trees=30)]).auc.value > 0.95
    assert choose(rows, labelled, candidates=[Bagging(trees=30)], groups=groups).auc.value < 0.75


def test_what_cannot_be_chosen_is_said() -> None:
    rows, _, labelled = rings(60)
    with pytest.raises(InputError, match="one per row"):
        choose(rows, labelled[:-1])
    with pytest.raises(InputError, match="two labelled"):
        choose(rows, np.arange(60) == 0)


def test_choose_in_short() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 2)) + 2 * (np.arange(120) < 60)[:, None]
    choice = choose(rows, np.arange(120) < 30, candidates=["logistic", "bagging"])
    assert (sorted(row["learner"] for row in choice.table()), choice.scores.shape) == (["bagging", "logistic"], (120,))


def test_answers_alone_have_the_part_that_positives_have_in_u() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(600) % 3 == 0
    rows = rng.normal(size=(600, 4)) + truth[:, None]
    labelled = truth & (rng.random(600) < 0.3)
    choice = choose(rows, labelled, seed=0, candidates=["logistic", "forest"])
    answers = np.zeros(600, dtype=np.int8)
    few, enough = answers.copy(), answers.copy()
    few[np.flatnonzero(~truth)[:9]], enough[np.flatnonzero(~truth)[:40]] = -1, -1
    assert auto.taught_answers(choice, rows, labelled, few, share=0.25).name == choice.name
    told = auto.taught_answers(choice, rows, labelled, enough, share=0.25)
    assert told.name == f"{choice.name} + answers alone" and told.candidates[-1].chosen
    assert told.fitted.share.tolist() == pytest.approx([0.75, 0.25])
    by_network = told.fitted(torch.from_numpy(rows)).numpy()
    assert np.allclose(by_network, told.fitted.scores(rows), atol=1e-6)
    assert told.auc.value == pytest.approx(roc_auc_score(labelled, told.scores))


def test_negatives_that_everybody_expected_change_little() -> None:
    """Random rows among rare positives are negative anyway: with the weight of a surprise they would drown the rest."""
    rng = np.random.default_rng(1)
    truth = np.arange(1500) < 45
    rows = rng.normal(size=(1500, 5)) + 2 * truth[:, None]
    labelled = truth & (np.arange(1500) % 2 == 0)
    choice = choose(rows, labelled, seed=0, candidates=["logistic", "bagging"])
    answers = np.zeros(1500, dtype=np.int8)
    answers[rng.choice(np.flatnonzero(~truth), 50, replace=False)] = -1
    told = auto.taught_answers(choice, rows, labelled, answers, share=0.015)
    new = rng.normal(size=(2000, 5)) + 2 * (np.arange(2000) < 200)[:, None]
    before, after = (roc_auc_score(np.arange(2000) < 200, one.fitted.scores(new)) for one in (choice, told))
    assert after > before - 0.01
    assert np.corrcoef(choice.scores, told.scores)[0, 1] > 0.98  # the model without answers keeps most of its say
    kept = told.fitted.members[0].share.tolist()[0]
    likely = np.argsort(np.where(labelled, -np.inf, choice.scores))[-40:]
    surprising = np.where(np.isin(np.arange(1500), likely), -1, 0).astype(np.int8)
    learned = auto.taught_answers(choice, rows, labelled, surprising, share=0.015)
    assert kept > 0.5 > learned.fitted.members[0].share.tolist()[0]


def test_leaving_out_the_column_that_labels_depend_on_is_a_remedy() -> None:
    """Positives are labelled the likelier, the larger a column that says nothing of the class."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth = np.arange(1500) < 600
        rows = np.stack([rng.normal(size=1500) + 1.5 * truth, rng.normal(size=1500)], axis=1)
        known = truth & (rng.random(1500) < 0.4 / (1 + np.exp(-4 * rows[:, 1])))
        scores = [choose(part, known, seed=seed, candidates=["logistic"]).scores for part in (rows, rows[:, :1])]
        with_it, without = (roc_auc_score(truth, one) for one in scores)
        gains.append(without - with_it)
    assert min(gains) > 0.02
