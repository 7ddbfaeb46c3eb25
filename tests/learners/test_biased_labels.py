"""Labels that depend on columns which can be named: made on purpose, and a learner that makes up for them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from cli_tools import run_cli
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.metrics import roc_auc_score

from splitpu import InputError, PUData, SAREMClassifier, SplitPUClassifier, load_named, make_pu
from splitpu.learners import auto, biased_labels
from splitpu.learners.auto import choose
from splitpu.learners.biased_labels import BiasedLabels, how_positive

SITE = 1  # the second column, which says nothing of the class


def visits(seed: int, rows: int = 1500) -> tuple[NDArray, NDArray, NDArray]:
    """Positives are labelled the likelier, the larger the second column."""
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) < 0.4 * rows
    table = np.stack([rng.normal(size=rows) + 1.5 * truth, rng.normal(size=rows)], axis=1)
    return table, truth, truth & (rng.random(rows) < 0.4 / (1 + np.exp(-4 * table[:, SITE])))


def test_it_ranks_by_the_class_where_a_learner_ranks_by_the_label() -> None:
    for seed in range(3):
        rows, truth, known = visits(seed)
        plain, found = (
            choose(rows, known, candidates=[one]).fitted.scores(rows) for one in ("logistic", BiasedLabels((SITE,)))
        )
        assert roc_auc_score(truth, found) > roc_auc_score(truth, plain) + 0.02


def test_the_columns_named_have_no_part_in_the_scores_and_may_lack_values() -> None:
    rows, _, known = visits(0)
    rows[::7, SITE] = np.nan
    fitted = BiasedLabels((SITE,)).fit(rows, known)
    moved = rows.copy()
    moved[:, SITE] = np.random.default_rng(0).normal(size=len(rows)) * 5
    np.testing.assert_allclose(fitted.scores(moved), fitted.scores(rows))


def test_how_positive_finds_the_share_of_positives_that_labels_hide() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(3000) < 1000
    others, site = (rng.normal(size=3000) + 4 * truth)[:, None], rng.normal(size=(3000, 1))
    known = truth & (rng.random(3000) < 1 / (1 + np.exp(-2 * site[:, 0])))
    found = how_positive(others, site, known.astype(float), np.ones(3000))
    assert (found[known] == 1).all() and found[truth].mean() > 0.85 and found[~truth].mean() < 0.1


def test_of_many_rows_it_is_fitted_on_some_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, truth, known = visits(0, 3000)
    whole = BiasedLabels((SITE,)).fit(rows, known).scores(rows)
    monkeypatch.setattr(biased_labels, "ROWS", 1000)
    some = BiasedLabels((SITE,)).fit(rows, known).scores(rows)
    assert roc_auc_score(truth, some) > roc_auc_score(truth, whole) - 0.02
    assert abs(1 / (1 + np.exp(-some)) - 1 / (1 + np.exp(-whole))).mean() < 0.1  # rows left out count nevertheless
    monkeypatch.setattr(auto, "CHOOSE_ROWS", 1000)
    said = list[tuple[str, int, int]]()
    choose(rows, known, candidates=[BiasedLabels((SITE,))], watch=lambda *news: said.append(news))
    assert said == [("learners judged", 0, 1), *(("parts of all rows scored", part, 3) for part in range(3))]


def test_soft_labels_are_taken_as_they_are() -> None:
    rows, truth, _ = visits(0)
    soft = np.where(truth, 0.8, 0.2)
    assert roc_auc_score(truth, BiasedLabels((SITE,)).fit(rows, soft).scores(rows)) > 0.8


def test_sparse_rows_are_refused() -> None:
    rows, _, known = visits(0)
    with pytest.raises(InputError, match="dense rows"):
        BiasedLabels((SITE,)).fit(csr_matrix(rows), known)


def test_columns_go_by_name_with_all_their_categories(tmp_path: Path) -> None:
    rows, truth, known = visits(1)
    names = np.where(rows[:, SITE] > 0.5, "north", np.where(rows[:, SITE] > -0.5, "middle", "south"))
    frame = pandas.DataFrame({"score": rows[:, 0], "site": names})
    model = SAREMClassifier(config={"labelled_by": "site"}, prior=0.4, random_state=0).fit(frame, known)
    usual = SplitPUClassifier(prior=0.4, random_state=0).fit(frame, known)
    assert (model.predict(frame) == truth).mean() > (usual.predict(frame) == truth).mean() + 0.02
    model.save(tmp_path / "model")
    again = SAREMClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))
    answered = SAREMClassifier(config={"labelled_by": "site"}, prior=0.4, random_state=0)
    negatives = ~truth & (np.arange(len(truth)) % 20 == 0)
    answered.fit(frame, known, negatives=negatives).save(tmp_path / "answered")
    assert SAREMClassifier.load(tmp_path / "answered").predict(frame).mean() == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("columns", ["", "2", "0,1"])
def test_columns_that_cannot_be_are_refused_before_anything_is_trained(columns: str) -> None:
    rows, _, known = visits(0)
    with pytest.raises(InputError, match="name some, not all, of '0', '1'"):
        SAREMClassifier(config={"labelled_by": columns}).fit(rows, known)
    assert PUData.from_arrays(rows, known).features_of(" 1 ,") == (1,)
    named = replace(PUData.from_arrays(rows, known), columns=("score", "site, year"))
    assert named.features_of("site, year") == (1,)


def test_it_is_a_method_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _, known = visits(2, 600)
    table = tmp_path / "visits.csv"
    pandas.DataFrame({"score": rows[:, 0], "age": rows[:, 1], "known": known.astype(int)}).to_csv(table, index=False)
    words = ["compare", str(table), "--label", "known", "--method", "logistic,sar-em", "--set", "labelled_by=age"]
    code, out, err = run_cli(capsys, *words, "--prior", "0.4", "--json", "--out", str(tmp_path / "compared"))
    assert code == 0, err
    assert [one["method"] for one in json.loads(out)["methods"]] == ["logistic", "sar-em"]


def test_made_labels_prefer_a_column() -> None:
    named = load_named("breast-cancer")
    usual, biased = (make_pu(named, 60, seed=0, column=column)[0] for column in (None, 9))
    value = usual.features.reshape(len(usual), -1)[:, 9]
    assert len(biased.positives) == 60 and biased.truth is not None and biased.truth[biased.positives].all()
    assert value[biased.positives].mean() > value[usual.positives].mean() + 0.5 * value[usual.truth].std()
