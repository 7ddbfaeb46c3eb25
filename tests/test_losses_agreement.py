"""Losses that ask views to agree: consistency of predictions and features, and the contrastive ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from loss_tools import Array, gradient, kl, leaf, logits, quick, sigmoid, slope, tensor

from splitpu.errors import InputError
from splitpu.losses import feature_consistency, low_level_consistency, nt_xent, prediction_consistency


def reference_prediction(weak: Array, strong: Array) -> Array:
    return kl(sigmoid(weak), sigmoid(strong), sigmoid(-weak), sigmoid(-strong))


def reference_feature(f1: Array, f2: Array, x1: Array, x2: Array) -> float:
    def cosine(a: Array, b: Array) -> float:
        lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
        return float(a @ b) / lengths if lengths > 0 else 0.0

    return float(np.mean([-cosine(f1[i], x2[i]) / 2 - cosine(f2[i], x1[i]) / 2 for i in range(len(f1))]))


def reference_nt_xent(first: Array, second: Array, temperature: float, decoupled: bool) -> float:
    """View by view, in plain sums."""
    views = np.concatenate([first, second])
    views = views / np.linalg.norm(views, axis=1, keepdims=True)
    losses = []
    for i, view in enumerate(views):
        partner = (i + len(first)) % len(views)
        others = [j for j in range(len(views)) if j != i and not (decoupled and j == partner)]
        rivals = sum(math.exp(float(view @ views[j]) / temperature) for j in others)
        losses.append(math.log(rivals) - float(view @ views[partner]) / temperature)
    return float(np.mean(losses))


# ---- consistency -----------------------------------------------------------------------------------------------------


def test_low_level_consistency_moves_the_student_only() -> None:
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(size=(3, 2, 4, 4)), draw.normal(size=(3, 2, 4, 4))
    student, teacher = leaf(ours), leaf(theirs)
    loss = low_level_consistency(student, teacher)
    assert loss.item() == pytest.approx(((ours - theirs) ** 2).mean(), rel=1e-12)
    by_student, by_teacher = gradient(loss, student, teacher)
    np.testing.assert_allclose(by_student, 2 * (ours - theirs) / ours.size, rtol=1e-12)
    assert by_teacher is None
    with pytest.raises(InputError, match="shape"):
        low_level_consistency(torch.zeros(3, 2), torch.zeros(3, 1))


WEAK = np.array([-4.0, -1.0, 0.0, 0.5, 3.5])
STRONG = np.array([-1.0, 2.0, 0.3, 0.5, -2.0])


def test_prediction_consistency_value_and_gradient() -> None:
    weak, strong = leaf(WEAK), leaf(STRONG)
    loss = prediction_consistency(weak, strong)
    assert loss.item() == pytest.approx(reference_prediction(WEAK, STRONG).mean(), rel=1e-11)
    by_weak, by_strong = gradient(loss, weak, strong)
    assert by_weak is None
    np.testing.assert_allclose(by_strong, (sigmoid(STRONG) - sigmoid(WEAK)) / len(WEAK), atol=1e-12)
    expected = slope(lambda x: float(reference_prediction(WEAK, x).mean()), STRONG)
    np.testing.assert_allclose(by_strong, expected, atol=1e-9)


@quick
@given(logits, logits)
def test_prediction_consistency_is_a_divergence(weak: float, strong: float) -> None:
    loss = prediction_consistency(tensor([weak]), tensor([strong])).item()
    expected = reference_prediction(np.array([weak]), np.array([strong])).item()
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert loss >= -1e-12
    assert prediction_consistency(tensor([weak]), tensor([weak])).item() == 0
    assert prediction_consistency(tensor([-weak]), tensor([-strong])).item() == pytest.approx(loss, rel=1e-12)


def test_confidence_keeps_each_confident_sample_of_either_class_and_divides_by_the_batch() -> None:
    kept = np.array([True, False, False, False, True])  # sigmoid(4) and sigmoid(3.5) reach 0.95
    weak, strong = leaf(WEAK), leaf(STRONG)
    loss = prediction_consistency(weak, strong, confidence=0.95)
    assert loss.item() == pytest.approx(reference_prediction(WEAK, STRONG)[kept].sum() / len(WEAK), rel=1e-11)
    expected = np.where(kept, sigmoid(STRONG) - sigmoid(WEAK), 0) / len(WEAK)
    np.testing.assert_allclose(gradient(loss, strong)[0], expected, atol=1e-12)


def test_confidence_is_reached_and_not_only_passed() -> None:
    weak, strong = torch.zeros(1), torch.ones(1)  # p = 1/2 exactly
    assert prediction_consistency(weak, strong, confidence=0.5).item() > 0
    assert prediction_consistency(weak, strong, confidence=0.51).item() == 0


def test_prediction_consistency_does_not_hide_a_logit_that_is_no_number() -> None:
    broken = torch.tensor([math.nan, 0.0])
    assert prediction_consistency(broken, torch.zeros(2)).isnan()
    assert prediction_consistency(torch.zeros(2), broken).isnan()


@pytest.mark.parametrize(("weak", "strong"), [((4,), (4, 1)), ((4, 1), (4,)), ((4, 1), (4, 1)), ((4,), (1,)), ((), ())])
def test_prediction_consistency_refuses_to_broadcast(weak: tuple[int, ...], strong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        prediction_consistency(torch.zeros(weak), torch.zeros(strong))


def test_feature_consistency_value_and_gradient() -> None:
    draw = np.random.default_rng(1)
    f1, f2, x1, x2 = draw.normal(size=(4, 3, 5)) * np.array([0.1, 2.0, 1.0, 30.0])[:, None, None]
    leaves = [leaf(part) for part in (f1, f2, x1, x2)]
    loss = feature_consistency(*leaves)
    assert loss.item() == pytest.approx(reference_feature(f1, f2, x1, x2), rel=1e-11)
    by_f1, by_f2, by_x1, by_x2 = gradient(loss, *leaves)
    np.testing.assert_allclose(by_f1, slope(lambda x: reference_feature(x, f2, x1, x2), f1), atol=1e-8)
    np.testing.assert_allclose(by_f2, slope(lambda x: reference_feature(f1, x, x1, x2), f2), atol=1e-8)
    assert by_x1 is None and by_x2 is None


def test_feature_consistency_is_least_for_views_that_agree() -> None:
    x1, x2 = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)).unbind()
    assert feature_consistency(3 * x2, 0.01 * x1, x1, x2).item() == pytest.approx(-1)
    assert feature_consistency(-x2, -x1, x1, x2).item() == pytest.approx(1)
    assert feature_consistency(x2, -x1, x1, x2).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-7])
def test_features_of_no_length_cost_nothing_and_pull_nowhere(length: float) -> None:
    predictions = torch.ones(2, 3)
    predictions[0] *= length
    predictions.requires_grad_()
    features = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    loss = feature_consistency(predictions, predictions, features, features)
    assert loss.item() == pytest.approx(-0.5)  # the second row agrees fully, the first not at all
    (by_predictions,) = gradient(loss, predictions)
    assert torch.equal(by_predictions[0], torch.zeros(3)) and by_predictions.isfinite().all()
    alive = torch.ones(2, 3, requires_grad=True)
    loss = feature_consistency(alive, alive, features * length, features * length)
    assert loss.isfinite() and gradient(loss, alive)[0].isfinite().all()


def test_short_features_still_have_a_direction() -> None:
    short = torch.full((1, 3), 1e-5)
    assert feature_consistency(short, short, short, short).item() == pytest.approx(-1)


def test_feature_consistency_wants_one_vector_a_sample() -> None:
    good = torch.ones(4, 3)
    for place in range(4):
        parts = [good] * 4
        parts[place] = torch.ones(1, 3)
        with pytest.raises(InputError, match="shape"):
            feature_consistency(*parts)
    with pytest.raises(InputError, match="one vector per sample"):
        feature_consistency(*[torch.ones(4)] * 4)


# ---- contrastive -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_nt_xent_value_and_gradient(temperature: float, decoupled: bool) -> None:
    draw = np.random.default_rng(0)
    first, second = draw.normal(size=(5, 3)), draw.normal(size=(5, 3))
    moved, other = leaf(first), leaf(second)
    loss = nt_xent(moved, other, temperature, decoupled=decoupled)
    assert loss.item() == pytest.approx(reference_nt_xent(first, second, temperature, decoupled), rel=1e-12)
    by_first, by_second = gradient(loss, moved, other)
    for found, at, whole in (
        (by_first, first, lambda x: reference_nt_xent(x.reshape(5, 3), second, temperature, decoupled)),
        (by_second, second, lambda x: reference_nt_xent(first, x.reshape(5, 3), temperature, decoupled)),
    ):
        assert found is not None
        steps = [(whole(at.ravel() + 1e-6 * e) - whole(at.ravel() - 1e-6 * e)) / 2e-6 for e in np.eye(15)]
        np.testing.assert_allclose(found.numpy().ravel(), steps, rtol=1e-5, atol=1e-8)


def test_nt_xent_is_least_where_partners_meet_and_others_part() -> None:
    together, apart = torch.eye(4), torch.eye(4).roll(1, dims=0)
    assert nt_xent(together, together, 0.5) < nt_xent(together, torch.ones(4, 4), 0.5) < nt_xent(together, apart, 0.5)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("length", [1e-30, 1e-5, 1e15])
@pytest.mark.parametrize("temperature", [1e-3, 0.5])
def test_nt_xent_survives_extremes(length: float, temperature: float, decoupled: bool) -> None:
    """Vectors of no and of enormous length, equal and opposite ones, and a temperature close to nothing."""
    shapes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    moved, other = leaf(shapes * length, torch.float32), leaf(-shapes, torch.float32)
    loss = nt_xent(moved, other, temperature, decoupled=decoupled)
    assert loss.isfinite()
    for found in gradient(loss, moved, other):
        assert found is not None and found.isfinite().all()


def test_nt_xent_of_one_pair_has_nothing_to_beat() -> None:
    one, other = leaf([[1.0, 2.0]]), tensor([[2.0, 1.0]])
    assert nt_xent(one, other, 0.5).item() == 0
    alone = nt_xent(one, other, 0.5, decoupled=True)
    assert alone.item() == pytest.approx(-0.8 / 0.5)
    (pull,) = gradient(alone, one)
    assert pull is not None and pull.isfinite().all()


def test_nt_xent_refuses_what_it_cannot_compare() -> None:
    with pytest.raises(InputError, match="one vector per sample"):
        nt_xent(torch.ones(4), torch.ones(4), 0.5)
    with pytest.raises(InputError, match="shape"):
        nt_xent(torch.ones(4, 2), torch.ones(1, 2), 0.5)
    with pytest.raises(InputError, match="temperature"):
        nt_xent(torch.ones(4, 2), torch.ones(4, 2), 0.0)
