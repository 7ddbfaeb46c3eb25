"""Data frames in Python: missing values, categories, words, dates and text, as in a table file; columns are checked."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from splitpu.cli import main
from splitpu.errors import InputError, SplitPUWarning
from splitpu.estimators.classifiers import PULogisticClassifier, SplitPUClassifier
from splitpu.evaluation.scikit_learn import make_pu_scorer

pandas = pytest.importorskip("pandas")

POSITIVE = np.arange(120) % 2 == 0
LABELLED = (POSITIVE & (np.arange(120) % 6 == 0)).astype(int)


def patients(seed: int = 0) -> Any:
    """Patients with gaps in every kind of column; age and ward tell the positives."""
    random = np.random.default_rng(seed)
    days = pandas.Timestamp("2026-01-01") + pandas.to_timedelta(random.integers(0, 9, 120), unit="D")
    frame = pandas.DataFrame(
        {
            "age": random.normal(40 + 20 * POSITIVE, 5),
            "ward": np.where(POSITIVE, "north", random.choice(["south", "east"], 120)),
            "code": pandas.Categorical(random.integers(0, 3, 120)),
            "seen": random.random(120) < 0.5,
            "visits": pandas.array(random.integers(0, 9, 120), dtype="Int64"),
            "day": days,
        }
    )
    frame.loc[3, "age"], frame.loc[4, "ward"], frame.loc[5, "visits"], frame.loc[6, "day"] = (
        np.nan,
        None,
        None,
        pandas.NaT,
    )
    return frame


def quick(**given: Any) -> SplitPUClassifier:
    return SplitPUClassifier(**{"prior": 0.5, "learner": "logistic", "random_state": 0, **given})


def test_a_frame_is_encoded_as_a_table_is_and_asked_by_its_columns(tmp_path: Path) -> None:
    frame = patients()
    fitted = quick().fit(frame, LABELLED)
    assert fitted.n_features_in_ == 6 and list(fitted.feature_names_in_) == list(frame.columns)
    names = [column["name"] for column in fitted.model_.inputs["columns"]]
    kinds = {column["name"]: column["categories"] for column in fitted.model_.inputs["columns"]}
    assert names == list(frame.columns) and kinds["code"] == ["0", "1", "2"] and kinds["age"] is None
    assert ((fitted.predict(frame) == 1) == POSITIVE).mean() > 0.9
    fitted.save(tmp_path / "model")
    loaded = SplitPUClassifier.load(tmp_path / "model")
    expected = fitted.predict_proba(patients(1))
    np.testing.assert_array_equal(loaded.predict_proba(patients(1)), expected)
    np.testing.assert_array_equal(loaded.model_.predict_proba(patients(1)), expected)
    # The same file serves the command line: the frame that pandas writes is the table that it reads.
    patients(1).to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    said = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, usecols=2)
    np.testing.assert_allclose(said, expected[:, 1], atol=1e-5)


def test_a_file_and_the_frame_of_it_give_the_same_rows(tmp_path: Path) -> None:
    frame = patients().assign(s=LABELLED)
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = [
        "fit",
        tmp_path / "a.csv",
        "--label",
        "s",
        "--prior",
        0.5,
        "--learner",
        "logistic",
        "--out",
        tmp_path / "run",
    ]
    assert main([str(word) for word in words]) == 0
    # Numbers of categories are numbers in a file, which does not know the type of its columns.
    same = frame.drop(columns="s").astype({"code": int})
    fitted, loaded = quick().fit(same, LABELLED), SplitPUClassifier.load(tmp_path / "run")
    np.testing.assert_allclose(loaded.predict_proba(frame)[:, 1], fitted.predict_proba(same)[:, 1], atol=1e-6)


def test_columns_that_are_wrong_are_named() -> None:
    frame = patients()
    fitted = quick().fit(frame, LABELLED)
    with pytest.raises(ValueError, match=r"(?s)now missing.*age"):
        fitted.predict(frame.drop(columns="age"))
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(frame[frame.columns[::-1]])
    with pytest.raises(InputError, match="'age' of X holds 'old'"):
        fitted.predict(frame.assign(age="old"))
    with (
        pytest.raises(InputError, match="to be converted first"),
        pytest.warns(UserWarning, match="feature names"),
    ):
        fitted.predict(frame.to_numpy())
    with pytest.warns(SplitPUWarning, match="categories that the model does not know"):
        fitted.predict(frame.assign(ward="west"))
    with pytest.raises(InputError, match="more than one column 'age'"):
        quick().fit(pandas.concat([frame, frame[["age"]]], axis=1), LABELLED)
    with pytest.raises(InputError, match=r"no column 'note'.*check text="):
        quick(text=["note"]).fit(frame, LABELLED)
    with pytest.warns(SplitPUWarning, match=r"holds dates.*X\.drop\(columns='day'\)"):
        quick().fit(frame, LABELLED)


def test_numbers_in_a_frame_give_the_model_of_the_array() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 3)) + 2 * POSITIVE[:, None]
    frame = pandas.DataFrame(rows, columns=list("abc"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = quick().fit(frame, LABELLED).predict_proba(frame)
    np.testing.assert_allclose(found, quick().fit(rows, LABELLED).predict_proba(rows), atol=1e-6)
    numbered = pandas.DataFrame(rows)  # whose columns have no names but numbers
    np.testing.assert_allclose(quick().fit(numbered, LABELLED).predict_proba(numbered), found, atol=1e-6)


def test_text_weights_groups_and_searches_work_with_frames() -> None:
    random = np.random.default_rng(1)
    good, bad = ["works", "well", "and", "quietly", "too"], ["broke", "and", "leaks", "after", "weeks"]
    texts = [" ".join(random.choice(bad if one else good, 7)) for one in POSITIVE]
    frame = patients().assign(review=texts)[["age", "review"]]
    per_row = {"sample_weight": np.ones(120), "groups": np.arange(120) // 4}
    fitted = quick().fit(frame, LABELLED, **per_row)
    assert fitted.model_.preprocessing.sparse and ((fitted.predict(frame) == 1) == POSITIVE).mean() > 0.9
    short = frame.assign(review=[" ".join(text.split()[:2]) for text in texts])
    assert not quick().fit(short, LABELLED).model_.preprocessing.sparse
    assert clone(quick(text=["review"])).fit(short, LABELLED).model_.preprocessing.sparse
    scores = cross_val_score(
        PULogisticClassifier(prior=0.5), frame, LABELLED, cv=3, scoring=make_pu_scorer("accuracy", prior=0.5)
    )
    assert scores.mean() > 0.5
    search = GridSearchCV(
        quick(learner=LogisticRegression()),
        {"learner__C": [0.01, 1.0]},
        scoring=make_pu_scorer("accuracy", prior=0.5),
        cv=3,
    ).fit(patients(), LABELLED)
    assert search.best_params_["learner__C"] == search.best_estimator_.learner.C


def test_single_settings_are_parameters_that_a_search_can_reach() -> None:
    given = SplitPUClassifier(config={"base": {"epochs": 3}, "rounds": 0}, prior=0.5)
    changed = clone(given).set_params(config__base__epochs=2, config__base__optimiser__rate=0.01, rounds=0)
    assert changed.config == {"base.epochs": 2, "rounds": 0, "base.optimiser.rate": 0.01} and changed.rounds == 0
    assert given.config == {"base": {"epochs": 3}, "rounds": 0}
    frame = patients()
    search = GridSearchCV(
        given, {"config__base__epochs": [1, 2]}, scoring=make_pu_scorer("accuracy", prior=0.5), cv=2
    ).fit(frame, LABELLED)
    assert len(search.best_estimator_.history_) == search.best_params_["config__base__epochs"]
    with pytest.raises(InputError, match=r"config='a\.toml' is a file"):
        SplitPUClassifier(config="a.toml").set_params(config__base__epochs=2)
