"""The scikit-learn face: scikit-learn's own checks and machinery, labels of every kind, and parameters.

What a fitted classifier answers, for vectors and for images, and when it warns of itself.
"""

import json
import warnings

import numpy as np
import pytest
import torch
from cli_tools import TINY as TINY_CLI
from cli_tools import run_cli
from estimator_tools import TINY, quick, tiny
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from splitpu.config.parse import config_to_toml
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.data.pudata import PUData
from splitpu.engine import hardware as hardware_module
from splitpu.errors import InputError, SplitPUWarning
from splitpu.estimators.base import usual_positive
from splitpu.estimators.classifiers import NNPUClassifier, SplitPUClassifier, VPUClassifier

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


@pytest.mark.parametrize(("estimator", "check"), list(single_training_set_checks()))
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


@pytest.mark.parametrize("words", [("unl", "pos"), ("Unlabelled", "ill"), ("u", "p"), ("unlabeled", "Positive")])
def test_usual_words_need_no_pos_label(vectors, words):
    X, s, _ = vectors
    with warnings.catch_warnings():
        warnings.simplefilter("error", SplitPUWarning)
        found = tiny().fit(X, np.array(words)[s])
    assert found.pos_label_ == words[1]
    assert np.array_equal(found.predict(X) == words[1], tiny().fit(X, s).predict(X) == 1)


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


@pytest.mark.parametrize("question", ["decision_function", "predict", "predict_proba"])
def test_rows_without_a_finite_answer_are_not_called_negative(vectors, question):
    X, s, _ = vectors
    hardly_varies = np.zeros((len(X), 1), np.float32)
    hardly_varies[0] = 1e-30
    classifier = tiny(rounds=0).fit(np.hstack([X, hardly_varies]), s)
    ask = getattr(classifier, question)
    far = np.hstack([X, np.where(np.arange(len(X))[:, None] == 7, np.float32(1e10), hardly_varies)])
    with pytest.raises(InputError, match=r"1 of 200 rows \(row 7\).*look at these rows"):
        ask(far)
    with torch.no_grad():
        next(classifier.model_.final.network.parameters()).fill_(float("nan"))
    with pytest.raises(InputError, match=r"200 of 200 rows.*may be damaged"):
        ask(np.hstack([X, hardly_varies]))


def test_numbers_far_from_nought_are_told_apart_and_saved_so(vectors, tmp_path):
    X, s, _ = vectors
    far = X.astype(np.float64) + 1e8
    usual, classifier = tiny(rounds=0).fit(X, s), tiny(rounds=0).fit(far, s)
    decision = classifier.decision_function(far)
    assert np.allclose(decision, usual.decision_function(X), atol=1e-4)
    assert np.allclose([classifier.decision_function(row[None])[0] for row in far[:5]], decision[:5], atol=1e-12)
    classifier.save(tmp_path)
    assert np.array_equal(SplitPUClassifier.load(tmp_path).decision_function(far), decision)


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


def test_other_numbers_of_channels_need_a_word_and_are_known_afterwards(images, tmp_path):
    X, s = images
    two = X[:, :, :7, :2]  # not square, so that a wrong axis would show
    with pytest.raises(InputError, match="say channels='last' or channels='first'"):
        tiny(rounds=0).fit(two, s)
    fitted = tiny(rounds=0, channels="last").fit(two, s)
    expected = fitted.decision_function(two)
    first = np.ascontiguousarray(two.transpose(0, 3, 1, 2))
    other_way = tiny(rounds=0, channels="first").fit(first, s)
    assert np.array_equal(other_way.decision_function(first), expected)
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    for layout in (two, first):
        assert np.array_equal(loaded.decision_function(layout), expected)
    with pytest.raises(InputError, match=r"images of shape \(8, 8, 2\).*images of shape \(8, 7, 2\)"):
        loaded.predict(np.zeros((2, 8, 8, 2)))


def test_small_grey_images_with_an_axis_of_their_own(images):
    small = images[0][:, :4, :4, :1]
    fitted = tiny(rounds=0, channels="last").fit(small, images[1])
    assert fitted.predict(small).shape == (60,)


@pytest.mark.parametrize("channels", ["first", "last"])
def test_images_that_fit_either_way_are_read_as_the_classifier_was_told(images, channels, tmp_path):
    cubes = images[0][:, :3, :3]
    fitted = tiny(rounds=0, channels=channels).fit(cubes, images[1])
    fitted.save(tmp_path)
    loaded = SplitPUClassifier.load(tmp_path)
    with pytest.raises(InputError, match="say channels='last' or channels='first'"):
        loaded.predict(cubes)
    told = loaded.set_params(channels=channels).decision_function(cubes)
    assert np.array_equal(told, fitted.decision_function(cubes))


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


# --- models that learned nothing ---


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


def test_nothing_is_said_of_a_model_that_learned(vectors):
    X, labels, _ = vectors
    assert told_of_worthlessness(quick(), X, labels) == []


def test_a_model_without_a_prior_is_looked_at_as_well(vectors):
    X, labels, _ = vectors
    without_prior = VPUClassifier(prior=None, config={"vpu.epochs": 1}, random_state=0)
    (said,) = told_of_worthlessness(without_prior, np.ones_like(X), labels)
    assert said.startswith("VPU: the model gives every row the same score")


def test_vpu_classifier_in_short() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    y = (X[:, 0] > 0) & (X[:, 1] > 0)
    assert VPUClassifier(prior=None, config={"vpu.epochs": 2}, random_state=0).fit(X, y).predict(X).shape == (60,)


def test_usual_positive_in_short() -> None:
    assert (usual_positive("pos", "unl"), usual_positive("Unlabelled", "ill"), usual_positive("a", "b")) == (
        "pos",
        "ill",
        None,
    )
