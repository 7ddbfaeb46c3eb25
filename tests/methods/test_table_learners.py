"""Learners for tables in place of networks: what they are given, what they say, and how they are kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB

from splitpu import (
    InputError,
    Model,
    PUData,
    PUStratifiedGroupKFold,
    PUStratifiedKFold,
    SplitPUClassifier,
    TrainSpec,
    load_named,
    make_pu,
    make_pu_scorer,
    preset,
    train,
)
from splitpu.training import profile_of


@pytest.fixture(scope="module")
def table() -> tuple[PUData, Any]:
    return make_pu(load_named("breast-cancer"), 60, seed=0)


def test_the_default_of_a_table_is_chosen_out_of_fold(table: Any, tmp_path: Path) -> None:
    data, test = table
    spec = TrainSpec(config=preset("default", profile_of(data)), prior=0.373)
    training = train(data, spec)
    told = training.result.learners
    assert told is not None and any(one["chosen"] for one in told) and training.model.network_name == "learner"
    shipped, base = (
        roc_auc_score(test.truth, scorer.decision_function(test.features))
        for scorer in (training.model, Model.load(_saved(training.model, tmp_path)))
    )
    assert shipped == base > 0.95
    # What it says of its own rows is what learners said that had not seen them: less than the model itself says.
    own = training.result.final.logits.numpy()
    seen = training.model.decision_function(data.features)
    unlabelled = ~data.labelled
    honest, flattered = (roc_auc_score(data.labelled, scores) for scores in (own, seen))
    assert honest < flattered and np.corrcoef(own[unlabelled], seen[unlabelled])[0, 1] > 0.8


def _saved(model: Model, folder: Path) -> Path:
    model.save(folder)
    return folder


def test_few_rows_try_networks_too(table: Any) -> None:
    data, _ = table
    training = train(data, TrainSpec(config=preset("default", profile_of(data)), prior=0.373))
    names = [one["learner"] for one in training.result.learners or []]
    assert "network, split" in names
    off = TrainSpec(config=preset("default", profile_of(data)), prior=0.373, learner=GaussianNB())
    assert "network, split" not in [one["learner"] for one in train(data, off).result.learners or []]


def test_a_classifier_of_the_users_is_base_and_student(table: Any, tmp_path: Path) -> None:
    data, test = table
    own = HistGradientBoostingClassifier(max_iter=40)
    fitted = SplitPUClassifier(prior=0.373, learner=own, random_state=0).fit(data.features, data.labelled)
    assert roc_auc_score(test.truth, fitted.decision_function(test.features)) > 0.9
    assert not hasattr(own, "classes_")  # it is cloned
    fitted.save(tmp_path)
    again = SplitPUClassifier.load(tmp_path).decision_function(test.features)
    assert np.allclose(again, fitted.decision_function(test.features), atol=1e-6)


def test_one_that_is_no_arrays_predicts_and_says_why_it_is_not_saved(table: Any, tmp_path: Path) -> None:
    data, test = table
    fitted = SplitPUClassifier(prior=0.373, learner=GaussianNB(), random_state=0).fit(data.features, data.labelled)
    assert roc_auc_score(test.truth, fitted.decision_function(test.features)) > 0.9
    with pytest.raises(InputError, match="GaussianNB cannot be saved or exported"):
        fitted.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_of_networks_and_backbones_mean_networks(vectors: Any) -> None:
    X, s, _ = vectors
    for how in ({"config": {"base.epochs": 1, "student.epochs": 1}}, {"backbone": "mlp"}, {"learner": "network"}):
        short = {"rounds": 0, "prior": 0.5, "random_state": 0}
        assert SplitPUClassifier(**short, **how).fit(X, s).model_.network_name == "mlp"


def test_weights_and_groups(vectors: Any) -> None:
    X, s, _ = vectors
    classifier = SplitPUClassifier(prior=0.5, learner="logistic", random_state=0)
    plain = classifier.fit(X, s).decision_function(X)
    heavier = np.where(X[:, 0] > 3, 5.0, 1.0)
    assert not np.allclose(clone(classifier).fit(X, s, sample_weight=heavier).decision_function(X), plain)
    patients = np.arange(len(X)) // 4
    assert clone(classifier).fit(X, s, groups=patients).model_.network_name == "learner"
    for bad, said in ((heavier[1:], "sample_weight has 199 entries"), (-heavier, "negative")):
        with pytest.raises(InputError, match=said):
            clone(classifier).fit(X, s, sample_weight=bad)
    with pytest.raises(InputError, match="groups is for learners, and split-pu trains networks"):
        SplitPUClassifier(prior=0.5, learner="network", config={"base.epochs": 1}).fit(X, s, groups=patients)


def test_folds_keep_groups_together(vectors: Any) -> None:
    X, s, _ = vectors
    patients = np.arange(len(X)) // 4
    for training, test in PUStratifiedGroupKFold(5, random_state=0).split(X, s, patients):
        assert not set(patients[training]) & set(patients[test]) and s[test].any()
    with pytest.raises(InputError, match="use PUStratifiedGroupKFold"):
        next(PUStratifiedKFold(5).split(X, s, patients))
    folds = PUStratifiedGroupKFold(3, random_state=0)
    classifier = SplitPUClassifier(prior=0.5, learner="logistic", random_state=0)
    figures = cross_val_score(
        classifier, X, s, groups=patients, cv=folds, scoring=make_pu_scorer("accuracy", prior=0.5)
    )
    assert len(figures) == 3 and (figures > 0.8).all()


def test_a_grid_search_reaches_into_the_learner(vectors: Any) -> None:
    X, s, _ = vectors
    classifier = SplitPUClassifier(prior=0.5, learner=HistGradientBoostingClassifier(max_iter=10), random_state=0)
    grid = {"learner__max_leaf_nodes": [2, 7], "rounds": [0, 1]}
    search = GridSearchCV(
        classifier, grid, cv=PUStratifiedKFold(2, random_state=0), scoring=make_pu_scorer("accuracy", prior=0.5)
    )
    assert search.fit(X, s).best_params_["learner__max_leaf_nodes"] in (2, 7)


def test_known_negatives_and_confirmed_positives_teach_every_learner(table: Any) -> None:
    data, test = table
    rng = np.random.default_rng(0)
    asked = rng.choice(data.unlabelled, 60, replace=False)
    masks = [np.isin(np.arange(len(data)), asked[data.truth[asked] == kind]) for kind in (False, True)]
    y = data.labelled.astype(int)
    found = {}
    for learner in ("logistic", "auto", GaussianNB()):
        plain, told = (SplitPUClassifier(prior=0.373, learner=learner, random_state=0) for _ in range(2))
        plain.fit(data.features, y)
        told.fit(data.features, y, negatives=masks[0], confirmed=masks[1])
        found[str(learner)] = [roc_auc_score(test.truth, one.decision_function(test.features)) for one in (plain, told)]
        assert told.prior_ == plain.prior_
        split = told.model_
        assert split.scenario == "single-training-set"
    assert all(after > before - 0.005 for before, after in found.values())
    assert found["logistic"][1] > found["logistic"][0]


def test_an_estimated_prior_does_not_move_with_rows_that_a_review_chose(table: Any) -> None:
    """60 answers, all to rows that look positive: taken for a draw of the population they would more than double it."""
    data, _ = table
    y = data.labelled.astype(int)
    plain = SplitPUClassifier(random_state=0, learner="logistic").fit(data.features, y)
    looks = np.argsort(-plain.decision_function(data.features))
    asked = [row for row in looks.tolist() if not data.labelled[row]][:60]
    masks = [np.isin(np.arange(len(data)), [row for row in asked if data.truth[row] == kind]) for kind in (False, True)]
    told = SplitPUClassifier(random_state=0, learner="logistic")
    told.fit(data.features, y, negatives=masks[0], confirmed=masks[1])
    assert told.prior_ == plain.prior_
    low, high = told.prior_interval_
    assert low < 0.373 < high


def test_where_classes_overlap_a_table_is_cut_for_f1_unless_told_otherwise() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(900) < 300
    X = rng.normal(size=(900, 3)) + 0.5 * truth[:, None]
    s = np.where(rng.random(900) < 0.4, truth, 0)
    shares = {}
    for threshold in (None, "f1", "prior", "half"):
        config = None if threshold is None else {"threshold": threshold}
        fitted = SplitPUClassifier(prior=1 / 3, learner="logistic", config=config, random_state=0).fit(X, s)
        assert fitted.model_.network_name == "learner"
        shares[threshold] = fitted.predict(X).mean()
    assert shares[None] == shares["f1"] > 1.2 * shares["prior"]
    assert abs(shares["prior"] - 1 / 3) < 0.05 and shares["half"] != shares["prior"]
