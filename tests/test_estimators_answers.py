"""What a fitted classifier answers, for vectors and for images, and when it warns of itself."""

import json
import warnings

import numpy as np
import pytest
import torch
from cli_tools import TINY as TINY_CLI
from cli_tools import run_cli
from estimator_tools import quick, tiny
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.errors import InputError, SplitPUWarning
from splitpu.estimators.classifiers import NNPUClassifier, SplitPUClassifier, VPUClassifier

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
