"""The scikit-learn face: scikit-learn's own checks and machinery, labels of every kind, and parameters."""

import warnings

import numpy as np
import pytest
import torch
from estimator_tools import TINY, quick, tiny
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from splitpu.config.parse import config_to_toml
from splitpu.data.pudata import PUData
from splitpu.engine import hardware as hardware_module
from splitpu.errors import InputError, SplitPUWarning

# --- scikit-learn's own checks ---


# The checks label every row with its class, which is no PU sample. As case-control data with few positives among the
# unlabelled rows it is nearly one, and every check passes with one prior. As a single training set the prior must lie
# above the share of ones, which differs: up to 3/4, but half where accuracy is checked, and there 0.8 would be wrong.
ACCURACY_CHECK = "check_classifiers_train"


@parametrize_with_checks([quick(prior=0.05, scenario="case-control")])
@pytest.mark.filterwarnings("ignore::splitpu.errors.SplitPUWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def single_training_set_checks():
    for _, check in estimator_checks_generator(quick()):
        name = check.func.__name__
        prior = 0.55 if name == ACCURACY_CHECK else 0.8
        yield pytest.param(quick(prior=prior), check, id=f"{name}-{check.keywords}")


@pytest.mark.parametrize(("estimator", "check"), single_training_set_checks())
@pytest.mark.filterwarnings("ignore::splitpu.errors.SplitPUWarning")
def test_scikit_learn_checks_in_a_single_training_set(estimator, check):
    check(estimator)


# --- labels ---


@pytest.mark.parametrize(
    ("values", "positive"),
    [((0, 1), None), ((-1, 1), None), ((False, True), None), ((0.0, 1.0), None), (("u", "p"), "p"), ((7, 3), 3)],
)
def test_every_label_convention_gives_the_same_model(vectors, values, positive):
    X, s, _ = vectors
    expected = tiny().fit(X, s).predict_proba(X)[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SplitPUWarning)
        own = tiny(pos_label=positive).fit(X, np.array(values)[s])
    assert own.classes_.tolist() == sorted(values)
    assert own.pos_label_ == values[1]
    column = own.classes_.tolist().index(values[1])
    assert np.array_equal(own.predict_proba(X)[:, column], expected)
    assert set(own.predict(X).tolist()) <= set(values)


def test_other_labels_without_pos_label_take_the_later_one_and_say_so(vectors):
    X, s, _ = vectors
    with pytest.warns(SplitPUWarning, match="'seen', the later in sorted order.*pos_label='other'"):
        fitted = tiny().fit(X, np.array(["other", "seen"])[s])
    assert fitted.pos_label_ == "seen"


def test_a_positive_class_that_sorts_first_is_understood_by_scikit_learn(vectors):
    X, s, truth = vectors
    fitted = quick(pos_label="known").fit(X, np.array(["unknown", "known"])[s])
    assert fitted.classes_.tolist() == ["known", "unknown"]
    decision = fitted.decision_function(X)
    assert np.array_equal(decision > 0, fitted.predict(X) == "unknown")
    assert np.allclose(expit(decision), fitted.predict_proba(X)[:, 1])
    assert roc_auc_score(truth, fitted.predict_proba(X)[:, 0]) > 0.9
    named = np.where(truth, "known", "unknown")
    assert fitted.score(X, named) > 0.9
    search = GridSearchCV(quick(pos_label="known"), {"rounds": [0]}, scoring="roc_auc", cv=2)
    assert search.fit(X, np.array(["unknown", "known"])[s]).best_score_ > 0.6


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(200), "one class"),
        (np.eye(200)[0], "only 1 row"),
        (np.arange(200) % 3, "Only binary classification is supported. The type of the target is multiclass"),
        (np.linspace(0, 1, 200), "continuous"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(vectors, labels, message):
    with pytest.raises(ValueError, match=message):
        tiny().fit(vectors[0], labels)


def test_unknown_pos_label_is_refused(vectors):
    with pytest.raises(InputError, match="neither of which is pos_label='yes'"):
        tiny(pos_label="yes").fit(*vectors[:2])


# --- configuration ---


def test_config_may_be_an_object_a_dict_or_a_file(vectors, tmp_path):
    X, s, _ = vectors
    dotted = {"base.epochs": 2, "base.batch_size": 32, "student.epochs": 2, "split.tau": 0.01, "engine.threads": 1}
    by_dict = tiny().set_params(config=dotted).fit(X, s)
    whole = by_dict.model_.config
    (tmp_path / "settings.toml").write_text(config_to_toml(whole))
    for config in (whole, tmp_path / "settings.toml", str(tmp_path / "settings.toml")):
        estimator = tiny().set_params(config=config, rounds=1).fit(X, s)
        assert estimator.model_.config == whole
        assert np.array_equal(estimator.decision_function(X), by_dict.decision_function(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"config": {"student.epoch": 2}}, "did you mean 'student.epochs'"),
        ({"config": 3}, "give a Config, a dict or the path"),
        ({"config": {"rounds": 4}, "rounds": 2}, "rounds=None"),
        ({"rounds": -1}, "rounds = -1"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"prior": 1.5}, "prior=1.5"),
        ({"prior": 0.1}, "already labelled"),
        ({"scenario": "both"}, "scenario='both'"),
        ({"backbone": "cnn13"}, "needs images"),
        ({"device": "abacus"}, "abacus"),
        ({"device": None}, "device None is not one torch knows"),
        ({"preset": None}, "there is no preset 'None'; choose one of"),
        ({"verbose": None}, "verbose=None is not a whole number"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_fit(vectors, parameters, message):
    estimator = tiny().set_params(**parameters)
    with pytest.raises(InputError, match=message):
        estimator.fit(*vectors[:2])


def test_the_config_may_set_the_rounds(vectors):
    fitted = tiny(rounds=None).set_params(config=TINY | {"rounds": 3}).fit(*vectors[:2])
    assert len(fitted.rounds_) == 3


def test_verbose_prints_plain_lines(vectors, capsys):
    tiny().fit(*vectors[:2])
    assert capsys.readouterr().out == ""
    tiny(verbose=1).fit(*vectors[:2])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["base", "round1.split", "round1.student"]
    tiny(verbose=2).fit(*vectors[:2])
    assert "base: epoch 1/2, loss" in capsys.readouterr().out


# --- scikit-learn's own machinery ---


def test_clone_keeps_parameters_and_forgets_the_fit(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")


def test_grid_search_over_rounds_and_config(vectors):
    X, s, _ = vectors
    grid = {"rounds": [0, 1], "config": [TINY, TINY | {"threshold": "half"}]}

    def labelled_found(estimator, X, s):
        """Share of the labelled rows that are called positive: needs no truth."""
        return np.mean(estimator.predict(X)[s == 1] == 1)

    search = GridSearchCV(tiny(), grid, scoring=labelled_found, cv=2, error_score="raise").fit(X, s)
    assert search.best_estimator_.predict(X).shape == (200,)
    assert len(search.cv_results_["params"]) == 4


def test_works_in_a_pipeline(vectors):
    X, s, truth = vectors
    assert make_pipeline(StandardScaler(), quick()).fit(X, s).score(X, truth.astype(int)) > 0.9


def test_same_seed_same_model_bit_for_bit(vectors):
    X, s, _ = vectors
    first, second = (tiny(random_state=7).fit(X, s) for _ in range(2))
    assert np.array_equal(first.decision_function(X), second.decision_function(X))
    for name, tensor in first.model_.final.network.state_dict().items():
        assert torch.equal(tensor, second.model_.final.network.state_dict()[name])
    from_numpy = tiny(random_state=np.int64(7)).fit(X, s)
    assert np.array_equal(first.decision_function(X), from_numpy.decision_function(X))


def test_what_else_runs_here_changes_no_model(vectors, monkeypatch):
    X, s, _ = vectors
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # who sets it has chosen the number
    monkeypatch.setattr(hardware_module, "_cores", lambda: 7)
    used = {0: [], 5: []}  # by the number of busy cores
    for busy, numbers in used.items():
        monkeypatch.setattr(hardware_module, "_busy_cores", lambda busy=busy: busy)
        monkeypatch.setattr(torch, "set_num_threads", numbers.append)
        fitted = tiny(rounds=0, config=TINY | {"engine.threads": 0}).fit(X, s)
        trained_with = len(numbers)
        fitted.predict(X)
        assert 7 in numbers[:trained_with] and 7 in numbers[trained_with:]
    assert used[0] == used[5]


def test_other_seeds_give_other_models(vectors):
    X, s, _ = vectors
    reference = tiny(random_state=7).fit(X, s).decision_function(X)
    assert not np.array_equal(tiny(random_state=8).fit(X, s).decision_function(X), reference)


@pytest.mark.parametrize("seed", [2**31 - 2, 2**32 - 1, 2**40])
def test_a_prior_is_estimated_with_large_seeds(vectors, seed):
    X, s = vectors[:2]
    fitted = tiny(prior="auto", rounds=0, random_state=seed).fit(X, s)
    assert 0 < fitted.prior_ < 1


def test_what_a_mask_hides_is_not_learned(vectors):
    X, s = vectors[:2]
    with pytest.raises(InputError, match="X has masked entries"):
        tiny().fit(np.ma.masked_array(X, X > 1), s)
    with pytest.raises(InputError, match="nothing in 5 rows"):
        tiny().fit(X, np.ma.masked_array(np.asarray(s, dtype=int), np.arange(len(s)) < 5))
    with pytest.raises(InputError, match="X has masked entries"):
        tiny(rounds=0).fit(X, s).predict(np.ma.masked_array(X, X > 1))


def test_booleans_among_objects_are_labels(vectors):
    X, s = vectors[:2]
    labelled = np.asarray(s) == 1
    fitted = tiny(rounds=0, random_state=0).fit(X, labelled.astype(object))
    assert fitted.classes_.tolist() == [False, True]
    assert np.array_equal(fitted.predict(X), tiny(rounds=0, random_state=0).fit(X, labelled).predict(X))


@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (-1, 1), (0, True), (np.int64(0), 1)])
def test_numbers_among_objects_are_labels(vectors, values):
    X, s = vectors[:2]
    among_objects = np.array([values[one] for one in s], dtype=object)  # as y.fillna(0) leaves them
    fitted = tiny(rounds=0, random_state=0).fit(X, among_objects)
    assert fitted.classes_.tolist() == list(values) and fitted.pos_label_ == 1
    assert np.array_equal(fitted.predict(X) == 1, tiny(rounds=0, random_state=0).fit(X, s).predict(X) == 1)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_tensors_of_every_kind_are_taken(vectors, kind):
    X, s = vectors[:2]
    tensor = torch.from_numpy(X).to(kind).requires_grad_()
    rows = tensor.detach().float().numpy()
    fitted = tiny(rounds=0).fit(tensor, torch.from_numpy(s).float().requires_grad_())
    assert np.array_equal(fitted.predict_proba(tensor), tiny(rounds=0).fit(rows, s).predict_proba(rows))
    data = PUData.from_arrays(tensor, torch.from_numpy(s).float().requires_grad_())
    assert np.array_equal(data.features, rows) and np.array_equal(data.labelled, s == 1)


def test_what_is_doubtful_about_a_prior_is_told_where_fit_was_called(vectors):
    X, s = vectors[:2]
    few = s & (np.cumsum(s) < 6)
    with pytest.warns(SplitPUWarning, match="5 labelled positives are few") as told:
        tiny(rounds=0).fit(X, few)
    assert next(one for one in told if "are few" in str(one.message)).filename == __file__


def test_a_memory_mapped_table_is_streamed(vectors, tmp_path):
    X, s = vectors[:2]
    np.save(tmp_path / "rows.npy", np.asarray(X, dtype=np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    fitted = tiny(rounds=0, random_state=0).fit(mapped, s)
    assert fitted.engine_.endswith("streamed")
    assert np.array_equal(fitted.predict(mapped), tiny(rounds=0, random_state=0).fit(np.asarray(mapped), s).predict(X))


def test_random_state_object_is_drawn_from(vectors):
    X, s, _ = vectors
    source = np.random.RandomState(0)
    first, second = (tiny(rounds=0, random_state=source).fit(X, s).decision_function(X) for _ in range(2))
    assert not np.array_equal(first, second)
    same = tiny(rounds=0, random_state=np.random.RandomState(0)).fit(X, s).decision_function(X)
    assert np.array_equal(first, same)


def test_fitting_leaves_the_callers_generators_alone(vectors):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny().fit(*vectors[:2])
    assert torch.equal(torch.rand(3), expected)


def test_few_rows_do_not_break_batch_normalisation():
    X = np.arange(8.0).reshape(4, 2)
    one_unlabelled = np.array([1, 1, 1, 0])
    for settings in ({}, {"split.include_positives": False}, {"student.hard_loss": "none"}):
        fitted = tiny(scenario="case-control").set_params(config=TINY | settings).fit(X, one_unlabelled)
        assert np.isfinite(fitted.decision_function(X)).all()
