"""The scikit-learn face: scikit-learn's own checks, and what they do not ask for."""

import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from cli_tools import TINY as TINY_CLI
from cli_tools import run_cli
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from torch import nn

from splitpu.config import Config, config_to_toml
from splitpu.data import load_named, make_pu, true_prior
from splitpu.errors import InputError, ModelFileError, SplitPUWarning
from splitpu.estimators import NNPUClassifier, SplitPUClassifier, VPUClassifier

QUICK = {
    "threshold": "half",
    "base": {"epochs": 25, "batch_size": 64, "augment": False, "optimiser.rate": 0.01},
    "split": {"max_epochs": 5, "batch_size": 64, "optimiser.rate": 0.1, "tau": 0.8},
    "student": {"epochs": 10, "batch_size": 64, "optimiser.rate": 0.01},
    "engine.threads": 1,
}
TINY = {
    "base": {"epochs": 2, "batch_size": 32},
    "split": {"max_epochs": 2, "tau": 0.01},
    "student": {"epochs": 2, "batch_size": 32},
    "engine.threads": 1,
}


def quick(**parameters):
    """A classifier that learns easy things in a moment."""
    return SplitPUClassifier(**{"prior": 0.5, "config": QUICK, "rounds": 1, "random_state": 0, **parameters})


def tiny(**parameters):
    """A classifier that learns next to nothing, for everything that is not about learning."""
    return quick(**{"config": TINY, **parameters})


@pytest.fixture(scope="module")
def vectors():
    """Two clouds; half of the positive one is labelled."""
    random = np.random.default_rng(0)
    truth = random.random(200) < 0.5
    X = random.normal(size=(200, 4)).astype(np.float32) + 3 * truth[:, None].astype(np.float32)
    return X, (truth & (random.random(200) < 0.5)).astype(int), truth


@pytest.fixture(scope="module")
def images():
    """Small noisy colour images as bytes, the positive ones brighter on the left."""
    random = np.random.default_rng(1)
    truth = random.random(60) < 0.5
    pixels = random.integers(0, 150, size=(60, 8, 8, 3))
    pixels[truth, :, :4] += 100
    return pixels.astype(np.uint8), (truth & (random.random(60) < 0.6)).astype(int)


@pytest.fixture(scope="module")
def fitted(vectors):
    X, s, _ = vectors
    return quick(rounds=2).fit(X, s)


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
    with pytest.raises(InputError, match="none of which is pos_label='yes'"):
        tiny(pos_label="yes").fit(*vectors[:2])


# --- predictions ---


def test_learns_and_gives_probabilities(fitted, vectors):
    X, _, truth = vectors
    probabilities = fitted.predict_proba(X)
    assert np.mean(fitted.predict(X) == truth) > 0.9
    assert probabilities.min() >= 0 and probabilities.max() <= 1
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-15)
    decision = fitted.decision_function(X)
    assert np.array_equal(decision > 0, fitted.predict(X) == 1)
    assert np.allclose(expit(decision), probabilities[:, 1], atol=1e-15)


def test_extreme_inputs_still_give_probabilities(fitted):
    probabilities = fitted.predict_proba(np.array([[1e30] * 4, [-1e30] * 4], np.float32))
    assert np.isfinite(probabilities).all() and probabilities.min() >= 0 and probabilities.max() <= 1


def test_fitted_attributes_tell_what_happened(fitted, vectors):
    X, s, _ = vectors
    assert fitted.prior_ == 0.5 and fitted.n_features_in_ == 4 and fitted.threshold_ == 0.0
    assert [one.number for one in fitted.rounds_] == [1, 2]
    assert fitted.split_ is fitted.rounds_[-1].split
    assert np.array_equal(fitted.split_.rows, np.flatnonzero(s == 0))
    assert np.allclose(fitted.rounds_[-1].student_probabilities, fitted.predict_proba(X)[:, 1], atol=1e-5)
    assert {"base", "round1.split", "round1.student", "round2.student"} <= {line["stage"] for line in fitted.history_}
    assert "fp32" in fitted.engine_
    json.dumps(fitted.history_)


def test_without_rounds_the_base_model_is_the_model(vectors, tmp_path):
    X, s, _ = vectors
    fitted = tiny(rounds=0).fit(X, s)
    assert fitted.split_ is None and fitted.rounds_ == []
    assert np.array_equal(fitted.decision_function(X), fitted.base_.decision_function(X))
    fitted.save(tmp_path / "model")
    assert np.array_equal(SplitPUClassifier.load(tmp_path / "model").predict_proba(X), fitted.predict_proba(X))


def test_base_model_answers_for_comparison(fitted, vectors):
    X, s, truth = vectors
    base = fitted.base_
    assert np.mean(base.predict(X) == truth) > 0.8
    assert base.predict_proba(X).shape == (len(X), 2)
    assert not np.array_equal(base.decision_function(X), fitted.decision_function(X))
    alone = quick(rounds=0).fit(X, s)
    assert np.array_equal(base.decision_function(X), alone.decision_function(X))


def test_wrong_shape_at_predict_names_both_shapes(fitted, images):
    with pytest.raises(ValueError, match=r"3 features.*4 features"):
        fitted.predict(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"images of shape \(8, 8, 3\).*vectors of shape \(4,\)"):
        fitted.predict(images[0])
    on_images = tiny(rounds=0).fit(*images)
    with pytest.raises(InputError, match=r"images of shape \(9, 9, 3\).*images of shape \(8, 8, 3\)"):
        on_images.predict(np.zeros((2, 9, 9, 3), np.uint8))
    with pytest.raises(InputError, match=r"vectors of shape \(192,\).*images of shape \(8, 8, 3\)"):
        on_images.predict(np.zeros((2, 192)))


def test_predicting_before_fitting_is_refused(vectors):
    for question in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(tiny(), question)(vectors[0])
    with pytest.raises(NotFittedError):
        tiny().save("nowhere")


# --- images ---


def test_image_layouts_give_the_same_result(images):
    X, s = images
    fitted = tiny().fit(X, s)
    expected = fitted.decision_function(X)
    channels_first = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    assert np.array_equal(tiny().fit(channels_first, s).decision_function(channels_first), expected)
    assert np.array_equal(fitted.decision_function(channels_first), expected)
    assert fitted.n_features_in_ == 8 * 8 * 3


def test_bytes_and_floats_in_the_unit_range_give_nearly_the_same_result(images):
    X, s = images
    as_bytes = tiny(rounds=0).fit(X, s).decision_function(X)
    floats = X.astype(np.float64) / 255
    assert np.allclose(tiny(rounds=0).fit(floats, s).decision_function(floats), as_bytes, atol=1e-2)


def test_grey_images_need_no_channel_axis(images):
    X, s = images
    grey = X[..., 0]
    expected = tiny(rounds=0).fit(grey, s).decision_function(grey)
    with_axis = grey[..., None]
    assert np.array_equal(tiny(rounds=0).fit(with_axis, s).decision_function(with_axis), expected)


def test_refitting_on_images_forgets_the_vectors(vectors, images):
    estimator = tiny(rounds=0).fit(*vectors[:2])
    estimator.fit(*images)
    assert estimator.predict(images[0]).shape == (60,)
    assert not hasattr(estimator, "feature_names_in_")


def test_digits_with_a_tiny_budget_beat_chance():
    named = load_named("digits")
    data, held_out = make_pu(named, 100, seed=0)
    config = {"base.epochs": 4, "base.batch_size": 128, "student.epochs": 2, "split.max_epochs": 2, "engine.threads": 1}
    estimator = SplitPUClassifier(prior=true_prior(named), config=config, rounds=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitPUWarning)
        estimator.fit(data.features, data.labelled)
    assert estimator.score(held_out.features, held_out.truth) > 0.7


# --- networks of one's own ---


class ThreeOutputs(nn.Module):
    """Returns (low, high, logit) itself."""

    def __init__(self):
        super().__init__()
        self.low, self.high, self.head = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 1)

    def forward(self, batch):
        low = torch.relu(self.low(batch))
        high = torch.relu(self.high(low))
        return low, high, self.head(high)


def logit_alone():
    """A plain network that returns the logit."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))


@pytest.mark.parametrize("as_object", [True, False], ids=["object", "function"])
@pytest.mark.parametrize(("make", "layers"), [(ThreeOutputs, None), (logit_alone, ("1", "3"))], ids=["tuple", "logit"])
def test_own_network(vectors, tmp_path, make, layers, as_object):
    torch.manual_seed(1)
    backbone = make() if as_object else make
    X, s, truth = vectors
    # Without batch normalisation it takes longer.
    longer = QUICK | {"split": QUICK["split"] | {"max_epochs": 60}, "student": QUICK["student"] | {"epochs": 60}}
    fitted = quick(backbone=backbone, layers=layers, config=longer).fit(X, s)
    assert np.mean(fitted.predict(X) == truth) > 0.8
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path, backbone, layers=layers)
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))
    with pytest.raises(InputError, match="your own network"):
        SplitPUClassifier.load(tmp_path)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))


def told_of_worthlessness(classifier, X, y) -> list[str]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        classifier.fit(X, y)
    assert all(one.filename == __file__ for one in given if "rely" in str(one.message))  # where fit was called
    return [str(one.message) for one in given if "do not rely on it" in str(one.message)]


def test_a_model_that_learned_nothing_is_warned_of_once_in_the_words_of_the_command_line(vectors, tmp_path, capsys):
    X, labels, _ = vectors
    nothing = np.ones_like(X)
    (said,) = told_of_worthlessness(tiny(), nothing, labels)
    assert said.startswith("round 1 student: the model gives every row the same score")
    np.savez(tmp_path / "rows.npz", X=nothing, s=labels)
    run = ["fit", tmp_path / "rows.npz", "--prior", 0.5, "--rounds", 1, "--quiet", "--out", tmp_path / "run", *TINY_CLI]
    assert f"note: {said}\n" in run_cli(capsys, *run)[2]
    (said,) = told_of_worthlessness(NNPUClassifier(prior=0.5, config={"base.epochs": 2}), nothing, labels)
    assert said.startswith("nnPU: ") and "try another method" in said


def test_nothing_is_said_of_a_model_that_learned_or_cannot_be_judged(vectors):
    X, labels, _ = vectors
    assert told_of_worthlessness(quick(), X, labels) == []
    without_prior = VPUClassifier(prior=None, config={"vpu.epochs": 1}, random_state=0)
    assert told_of_worthlessness(without_prior, np.ones_like(X), labels) == []


def test_own_network_is_left_as_it_was(vectors):
    backbone = ThreeOutputs()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    tiny(backbone=backbone).fit(*vectors[:2])
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_loading_with_the_wrong_network_is_refused(fitted, tmp_path):
    fitted.save(tmp_path)
    with pytest.raises(ModelFileError, match="does not fit"):
        SplitPUClassifier.load(tmp_path, ThreeOutputs())


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
        ({"config": {"rounds": 4}}, "rounds=None"),
        ({"rounds": -1}, "rounds = -1"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"prior": 1.5}, "prior=1.5"),
        ({"prior": 0.1}, "already labelled"),
        ({"scenario": "both"}, "scenario='both'"),
        ({"backbone": "cnn13"}, "needs images"),
        ({"device": "abacus"}, "abacus"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_fit(vectors, parameters, message):
    estimator = tiny().set_params(**parameters)
    with pytest.raises(InputError, match=message):
        estimator.fit(*vectors[:2])


def test_rounds_none_takes_what_the_config_says(vectors):
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


def test_other_seeds_give_other_models(vectors):
    X, s, _ = vectors
    reference = tiny(random_state=7).fit(X, s).decision_function(X)
    assert not np.array_equal(tiny(random_state=8).fit(X, s).decision_function(X), reference)


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


# --- keeping ---


def test_pickle_keeps_predictions(fitted, vectors):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(vectors[0]), fitted.predict_proba(vectors[0]))
    assert np.array_equal(again.base_.predict(vectors[0]), fitted.base_.predict(vectors[0]))


def test_save_and_load_give_identical_predictions(fitted, vectors, tmp_path):
    X = vectors[0]
    fitted.save(tmp_path / "deep" / "model")
    loaded = SplitPUClassifier.load(str(tmp_path / "deep" / "model"))
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(loaded.base_.decision_function(X), fitted.base_.decision_function(X))
    assert loaded.classes_.tolist() == [0, 1] and loaded.n_features_in_ == 4 and loaded.prior_ == 0.5
    assert loaded.get_params()["rounds"] == 2 and isinstance(loaded.config, Config)
    assert sorted(path.name for path in (tmp_path / "deep" / "model").iterdir()) == ["model.json", "model.safetensors"]
    refitted = loaded.set_params(random_state=0).fit(*vectors[:2])
    assert np.array_equal(refitted.predict_proba(X), fitted.predict_proba(X))


def test_image_models_survive_saving_bit_for_bit(images, tmp_path):
    X, s = images
    fitted = tiny().fit(X, s)
    fitted.save(tmp_path)
    assert np.array_equal(SplitPUClassifier.load(tmp_path).decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize("values", [("known", "unknown"), (False, True), (-1, 1), (0.0, 1.0), ("1", "2")])
def test_classes_survive_saving(vectors, tmp_path, values):
    X, s, _ = vectors
    fitted = tiny(pos_label=values[1], rounds=0).fit(X, np.array(values)[s])
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert [type(value) for value in loaded.classes_.tolist()] == [type(value) for value in values]
    assert np.array_equal(loaded.predict(X), fitted.predict(X))


def test_a_positive_that_sorts_first_survives_saving(vectors, tmp_path):
    X, s, _ = vectors
    fitted = tiny(pos_label="known", rounds=0).fit(X, np.array(["unknown", "known"])[s])
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    assert loaded.pos_label_ == loaded.pos_label == "known"
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_files_cut_short_or_missing_are_reported_as_such(fitted, tmp_path, name):
    fitted.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    for length in (len(content) // 2, 3, 0):
        (tmp_path / name).write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=name):
            SplitPUClassifier.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        SplitPUClassifier.load(tmp_path)


def test_saving_onto_a_file_is_refused(fitted, tmp_path):
    (tmp_path / "taken").write_text("something")
    with pytest.raises(InputError, match="is a file"):
        fitted.save(tmp_path / "taken")
