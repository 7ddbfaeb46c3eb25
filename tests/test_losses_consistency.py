"""Losses that ask views to agree: consistency of predictions and features, and the contrastive ones.

Jensen-Shannon divergence and cross-entropy with soft labels, against their formulas in float64.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_tools import Array, Q, Z, gradient, kl, leaf, logits, quick, sigmoid, slope, tensor
from torch import Tensor

from splitpu.errors import InputError
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nt_xent,
    prediction_consistency,
    soft_cross_entropy,
)


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


def test_low_level_consistency_as_in_equation_8_is_the_mean_length_of_the_difference() -> None:
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(size=(3, 2, 4, 4)), draw.normal(size=(3, 2, 4, 4))
    theirs[2] = ours[2]  # where nothing differs there is nothing to learn, and no NaN
    student = leaf(ours)
    loss = low_level_consistency(student, leaf(theirs), norm=True)
    lengths = [math.sqrt(((a - b) ** 2).sum()) for a, b in zip(ours, theirs, strict=True)]
    assert loss.item() == pytest.approx(sum(lengths) / 3, rel=1e-12)
    (slope,) = gradient(loss, student)
    np.testing.assert_allclose(slope[0], (ours[0] - theirs[0]) / lengths[0] / 3, rtol=1e-12)
    assert not slope[2].any()


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


probabilities = st.floats(0, 1)
rhos = st.floats(0.05, 0.95)
W = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.25, 1.5])


def reference_js(z: Array, q: Array, rho: float) -> Array:
    p, not_p, not_q = sigmoid(z), sigmoid(-z), 1 - q
    m, not_m = rho * q + (1 - rho) * p, rho * not_q + (1 - rho) * not_p
    divergence = rho * kl(q, m, not_q, not_m) + (1 - rho) * kl(p, m, not_p, not_m)
    return divergence / (-(1 - rho) * np.log(1 - rho))


def reference_cross_entropy(z: Array, q: Array) -> Array:
    return -q * np.log(sigmoid(z)) - (1 - q) * np.log(sigmoid(-z))


# ---- Jensen-Shannon --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.7, 0.9])
def test_js_value_and_gradient(rho: float) -> None:
    z = leaf(Z)
    loss = generalised_jensen_shannon(z, tensor(Q), rho)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(reference_js(Z, Q, rho).mean(), rel=1e-11)
    expected = slope(lambda x: float(reference_js(x, Q, rho).mean()), Z)
    np.testing.assert_allclose(gradient(loss, z)[0], expected, atol=1e-9)


@quick
@given(logits, probabilities, rhos)
def test_js_lies_between_zero_and_its_bound(z: float, q: float, rho: float) -> None:
    loss = generalised_jensen_shannon(tensor([z]), tensor([q]), rho).item()
    bound = 1 + rho * math.log(rho) / ((1 - rho) * math.log(1 - rho))
    assert -1e-12 <= loss <= bound + 1e-12
    assert loss == pytest.approx(reference_js(np.array([z]), np.array([q]), rho).item(), rel=1e-9, abs=1e-12)


@quick
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), rhos)
def test_js_is_zero_exactly_where_prediction_and_label_agree(p: float, q: float, rho: float) -> None:
    def loss_of(probability: float) -> float:
        logit = math.log(probability) - math.log1p(-probability)
        return generalised_jensen_shannon(tensor([logit]), tensor([q]), rho).item()

    assert abs(loss_of(q)) < 1e-13
    if abs(p - q) > 1e-3:
        # Pinsker: KL(a||b) >= 2 (a - b)^2, once for each side of the mixture.
        pinsker = 2 * rho * (1 - rho) * (p - q) ** 2 / (-(1 - rho) * math.log(1 - rho))
        assert loss_of(p) >= pinsker * (1 - 1e-6) > 0


@quick
@given(logits, probabilities, rhos)
def test_js_and_cross_entropy_do_not_care_which_class_is_called_positive(z: float, q: float, rho: float) -> None:
    # 1 - q is exact only for some q, hence the tolerance.
    js, ce = generalised_jensen_shannon, soft_cross_entropy
    flipped = js(tensor([-z]), tensor([1 - q]), rho).item()
    assert js(tensor([z]), tensor([q]), rho).item() == pytest.approx(flipped, rel=1e-9, abs=1e-12)
    assert ce(tensor([z]), tensor([q])).item() == pytest.approx(ce(tensor([-z]), tensor([1 - q])).item(), abs=1e-12)


@quick
@given(st.floats(-10, 10), st.floats(0.001, 0.999), rhos)
def test_js_of_swapped_roles_swaps_the_weights(z: float, q: float, rho: float) -> None:
    """But for its normaliser, JS with weight rho on the label is JS with weight 1 - rho on it once the two swap."""

    def unnormalised(logit: float, target: float, weight: float) -> float:
        loss = generalised_jensen_shannon(tensor([logit]), tensor([target]), weight).item()
        return loss * -(1 - weight) * math.log1p(-weight)

    swapped = unnormalised(math.log(q) - math.log1p(-q), 1 / (1 + math.exp(-z)), 1 - rho)
    assert unnormalised(z, q, rho) == pytest.approx(swapped, abs=1e-10)


def test_js_runs_from_cross_entropy_to_absolute_error() -> None:
    z, certain = tensor([-1.0, 0.5, 2.0]), tensor([1.0, 0.0, 1.0])
    near_zero = generalised_jensen_shannon(z, certain, 1e-6)
    assert near_zero.item() == pytest.approx(soft_cross_entropy(z, certain).item(), rel=1e-4)
    # The approach to absolute error is only logarithmic in 1 - rho: what is left is -H(p)-like over -log(1 - rho).
    near_one = [generalised_jensen_shannon(z, certain, 1 - gap).item() for gap in (1e-3, 1e-6, 1e-12)]
    distance = [abs(loss - (torch.sigmoid(z) - certain).abs().mean().item()) for loss in near_one]
    assert distance[0] > distance[1] > distance[2] and distance[2] < 0.02


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_js_survives_saturation(rho: float, dtype: torch.dtype) -> None:
    z = leaf([1e4, -1e4, 1e4, -1e4], dtype)
    losses = [generalised_jensen_shannon(z[i : i + 1], tensor([q], dtype), rho) for i, q in enumerate([1, 0, 0, 1])]
    bound = 1 + rho * math.log(rho) / ((1 - rho) * math.log(1 - rho))
    assert [loss.item() for loss in losses] == pytest.approx([0, 0, bound, bound], abs=1e-6)
    (by_z,) = gradient(torch.stack(losses).sum(), z)
    assert by_z is not None and by_z.tolist() == [0.0] * 4  # p (1 - p) underflows


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("q", [0.0, 0.02, 0.5, 1.0])
def test_js_gradient_keeps_its_digits_in_float32(rho: float, q: float) -> None:
    """The gradient is (1 - rho) p (1 - p) [log(p/m) - log((1-p)/(1-m))]: tiny for confident logits, but not noise."""
    points = np.array([-60.0, -25.0, -12.0, -3.0, -1.0, 0.7, 3.0, 12.0, 25.0, 60.0])
    z = leaf(points, torch.float32)
    (by_z,) = gradient(generalised_jensen_shannon(z, torch.full_like(z, q), rho) * len(points), z)
    p, not_p = sigmoid(points), sigmoid(-points)
    m, not_m = rho * q + (1 - rho) * p, rho * (1 - q) + (1 - rho) * not_p
    exact = p * not_p * (np.log(p / m) - np.log(not_p / not_m)) / -np.log(1 - rho)
    np.testing.assert_allclose(by_z, exact, rtol=1e-4)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.01, 0.99, 1 - 1e-3, 1 - 1e-6])
@pytest.mark.parametrize("q", [1e-7, 0.3, 1.0])
def test_js_keeps_its_digits_in_float32_for_extreme_weights(rho: float, q: float) -> None:
    for point in (-50.0, -3.0, 0.0, 2.0):
        z, exact_z = leaf([point], torch.float32), leaf([point], torch.float64)
        loss = generalised_jensen_shannon(z, torch.full_like(z, q), rho)
        target = torch.full_like(z, q).double()  # the same label, and not one that float32 rounds
        exact = generalised_jensen_shannon(exact_z, target, rho)
        assert loss.dtype == torch.float32 and loss.item() == pytest.approx(exact.item(), rel=1e-3, abs=1e-5)
        (by_z,), (exact_by_z,) = gradient(loss, z), gradient(exact, exact_z)
        assert by_z.item() == pytest.approx(exact_by_z.item(), rel=1e-3)


@pytest.mark.parametrize("rho", [0.0, 1.0, -0.5, 2.0, math.nan])
def test_js_refuses_a_weight_that_leaves_one_side_out(rho: float) -> None:
    with pytest.raises(InputError, match="rho"):
        generalised_jensen_shannon(tensor(Z), tensor(Q), rho)


# ---- cross-entropy ---------------------------------------------------------------------------------------------------


def test_cross_entropy_value_and_gradient() -> None:
    z = leaf(Z)
    loss = soft_cross_entropy(z, tensor(Q))
    assert loss.item() == pytest.approx(reference_cross_entropy(Z, Q).mean(), rel=1e-11)
    expected = slope(lambda x: float(reference_cross_entropy(x, Q).mean()), Z)
    np.testing.assert_allclose(gradient(loss, z)[0], expected, atol=1e-9)


def test_cross_entropy_survives_saturation_and_keeps_small_losses() -> None:
    z = leaf([1e4, -1e4, 1e4, -1e4], torch.float32)
    losses = [soft_cross_entropy(z[i : i + 1], tensor([q])) for i, q in enumerate([1, 0, 0, 1])]
    assert [loss.item() for loss in losses] == [0.0, 0.0, 1e4, 1e4]
    (by_z,) = gradient(torch.stack(losses).sum(), z)
    assert by_z is not None and by_z.tolist() == [0.0, 0.0, 1.0, -1.0]
    for certain in (1.0, 0.0):
        small = leaf([40.0 * (2 * certain - 1)], torch.float32)
        loss = soft_cross_entropy(small, tensor([certain]))
        assert loss.item() == pytest.approx(math.exp(-40), rel=1e-4, abs=0)
        assert abs(gradient(loss, small)[0].item()) == pytest.approx(math.exp(-40), rel=1e-4, abs=0)


@pytest.mark.parametrize("labels", [[True, False, True], [1, 0, 1]])
def test_labels_may_be_booleans_or_integers(labels: list[object]) -> None:
    z, as_floats = tensor([0.5, 1.0, -2.0]), tensor([1, 0, 1])
    assert torch.equal(soft_cross_entropy(z, torch.tensor(labels)), soft_cross_entropy(z, as_floats))
    js = generalised_jensen_shannon
    assert torch.equal(js(z, torch.tensor(labels), 0.7), js(z, as_floats, 0.7))


# ---- weights, shared by both -----------------------------------------------------------------------------------------


def js_at_07(logit: Tensor, target: Tensor, *, weight: Tensor | None = None) -> Tensor:
    return generalised_jensen_shannon(logit, target, 0.7, weight=weight)


weighted_losses = pytest.mark.parametrize("loss", [js_at_07, soft_cross_entropy])


@weighted_losses
def test_weight_means_weighted_mean(loss: Callable[..., Tensor]) -> None:
    each = np.array([loss(tensor(Z[i : i + 1]), tensor(Q[i : i + 1])).item() for i in range(len(Z))])
    weighted = loss(tensor(Z), tensor(Q), weight=tensor(W)).item()
    assert weighted == pytest.approx((each * W).sum() / W.sum(), rel=1e-11)
    assert loss(tensor(Z), tensor(Q)).item() == pytest.approx(each.mean(), rel=1e-11)
    assert loss(tensor(Z), tensor(Q), weight=tensor(W / 1e3)).item() == pytest.approx(weighted, rel=1e-11)
    mask = torch.tensor(W > 1)
    assert loss(tensor(Z), tensor(Q), weight=mask).item() == pytest.approx(each[W > 1].mean(), rel=1e-11)


@weighted_losses
def test_no_weight_at_all_costs_nothing(loss: Callable[..., Tensor]) -> None:
    z = leaf(Z)
    value = loss(z, tensor(Q), weight=torch.zeros(len(Z)))
    assert value.item() == 0
    assert torch.equal(gradient(value, z)[0], torch.zeros_like(z))


@weighted_losses
def test_labels_are_constants(loss: Callable[..., Tensor]) -> None:
    z, q = leaf(Z), leaf(np.clip(Q, 0.1, 0.9))
    by_z, by_q = gradient(loss(z, q), z, q)
    assert by_z is not None and by_q is None


@weighted_losses
def test_labels_and_weights_must_match_the_logits(loss: Callable[..., Tensor]) -> None:
    z, q, wrong = torch.zeros(4), torch.full((4,), 0.5), torch.ones(4, 1)
    for bad in (wrong, torch.ones(1), torch.ones(3), torch.tensor(1.0)):
        with pytest.raises(InputError, match="shape"):
            loss(z, bad)
        with pytest.raises(InputError, match="shape"):
            loss(z, q, weight=bad)
    with pytest.raises(InputError, match="shape"):
        loss(wrong, wrong)
