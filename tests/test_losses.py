"""Losses against plain numpy formulas in float64, at the edges of floating point, and for what they must not do."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from torch import Tensor

from splitpu.errors import InputError
from splitpu.losses import (
    PURisk,
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    nt_xent,
    prediction_consistency,
    sigmoid_loss,
    soft_cross_entropy,
    upu_risk,
)

Array = NDArray[np.float64]

quick = settings(max_examples=60, deadline=None)
logits = st.floats(-30, 30)
probabilities = st.floats(0, 1)
rhos = st.floats(0.05, 0.95)


# ---- references: the formulas as one would write them on paper -------------------------------------------------------


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def kl(a: Array, b: Array, not_a: Array, not_b: Array) -> Array:
    """KL of Bernoulli distributions; each class's probability is given, so that neither is a lossy 1 - x."""
    ratio = np.where(a > 0, a, 1) / np.where(a > 0, b, 1)
    not_ratio = np.where(not_a > 0, not_a, 1) / np.where(not_a > 0, not_b, 1)
    return a * np.log(ratio) + not_a * np.log(not_ratio)


def reference_js(z: Array, q: Array, rho: float) -> Array:
    p, not_p, not_q = sigmoid(z), sigmoid(-z), 1 - q
    m, not_m = rho * q + (1 - rho) * p, rho * not_q + (1 - rho) * not_p
    divergence = rho * kl(q, m, not_q, not_m) + (1 - rho) * kl(p, m, not_p, not_m)
    return divergence / (-(1 - rho) * np.log(1 - rho))


def reference_cross_entropy(z: Array, q: Array) -> Array:
    return -q * np.log(sigmoid(z)) - (1 - q) * np.log(sigmoid(-z))


def reference_prediction(weak: Array, strong: Array) -> Array:
    return kl(sigmoid(weak), sigmoid(strong), sigmoid(-weak), sigmoid(-strong))


def reference_risks(positive: Array, population: Array, prior: float) -> tuple[float, float]:
    """The risk on positives and the risk on negatives, each sample summed by hand over its own number of rows."""
    on_positives = prior * sum(1 / (1 + math.exp(z)) for z in positive) / len(positive)
    surplus = prior * sum(1 / (1 + math.exp(-z)) for z in positive) / len(positive)
    return on_positives, sum(1 / (1 + math.exp(-z)) for z in population) / len(population) - surplus


def reference_feature(f1: Array, f2: Array, x1: Array, x2: Array) -> float:
    def cosine(a: Array, b: Array) -> float:
        lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
        return float(a @ b) / lengths if lengths > 0 else 0.0

    return float(np.mean([-cosine(f1[i], x2[i]) / 2 - cosine(f2[i], x1[i]) / 2 for i in range(len(f1))]))


# ---- tools -----------------------------------------------------------------------------------------------------------


def tensor(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64)).to(dtype)


def leaf(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    return tensor(values, dtype).requires_grad_()


def gradient(loss: Tensor, *of: Tensor) -> list[Tensor | None]:
    return list(torch.autograd.grad(loss, of, allow_unused=True, retain_graph=True))


def slope(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Central differences."""
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        slopes[index] = (function(up) - function(down)) / (2 * step)
    return slopes


Z = np.array([-7.5, -2.0, -0.3, 0.0, 0.4, 1.7, 6.0])
Q = np.array([0.0, 0.9, 0.25, 0.5, 1.0, 0.6, 0.05])
W = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.25, 1.5])
EXTREME = [-1e4, -200.0, -90.0, -17.0, 0.0, 17.0, 90.0, 200.0, 1e4]


# ---- sigmoid loss and PU risks ---------------------------------------------------------------------------------------


def test_sigmoid_loss_is_small_where_the_sign_is_right() -> None:
    np.testing.assert_allclose(sigmoid_loss(tensor(Z), +1), 1 / (1 + np.exp(Z)), rtol=1e-12)
    np.testing.assert_allclose(sigmoid_loss(tensor(Z), -1), 1 / (1 + np.exp(-Z)), rtol=1e-12)
    with pytest.raises(InputError, match="sign"):
        sigmoid_loss(tensor(Z), 0)


# P and U differ in number, so that dividing by the wrong one shows.
FITTED_P, FITTED_U = np.array([4.0, 2.5, 3.0]), np.array([-5.0, -3.0, -4.0, -6.0, 1.0, -2.0, -2.5])  # R_neg < 0
FRESH_P, FRESH_U = np.array([0.3, -1.0, 0.8]), np.array([0.2, 1.0, -0.5, 2.0, 0.7])  # R_neg > 0


@pytest.mark.parametrize(("positive", "population"), [(FITTED_P, FITTED_U), (FRESH_P, FRESH_U)])
def test_upu_risk(positive: Array, population: Array) -> None:
    p, u = leaf(positive), leaf(population)
    risk = upu_risk(p, u, 0.4)
    on_positives, on_negatives = reference_risks(positive, population, 0.4)
    assert risk.positive.item() == pytest.approx(on_positives, rel=1e-12)
    assert risk.negative.item() == pytest.approx(on_negatives, rel=1e-12)
    assert risk.objective.item() == pytest.approx(on_positives + on_negatives, rel=1e-12)
    assert risk.value.item() == risk.objective.item()
    by_p, by_u = gradient(risk.objective, p, u)
    np.testing.assert_allclose(by_p, slope(lambda x: sum(reference_risks(x, population, 0.4)), positive), atol=1e-9)
    np.testing.assert_allclose(by_u, slope(lambda x: sum(reference_risks(positive, x, 0.4)), population), atol=1e-9)


def test_the_references_cover_both_nnpu_branches() -> None:
    assert reference_risks(FITTED_P, FITTED_U, 0.4)[1] < -0.15
    assert reference_risks(FRESH_P, FRESH_U, 0.4)[1] > 0.15


def test_nnpu_is_upu_while_the_negative_risk_is_tolerable() -> None:
    for positive, population, beta in [(FRESH_P, FRESH_U, 0.0), (FITTED_P, FITTED_U, 0.35)]:
        p, u = leaf(positive), leaf(population)
        risk, unbiased = nnpu_risk(p, u, 0.4, beta=beta, gamma=0.5), upu_risk(p, u, 0.4)
        assert risk.value.item() == risk.objective.item() == unbiased.objective.item()
        for ours, theirs in zip(gradient(risk.objective, p, u), gradient(unbiased.objective, p, u), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("beta", "gamma"), [(0.0, 1.0), (0.05, 0.3), (0.0, 0.0)])
def test_nnpu_steps_back_on_the_negative_risk_alone(beta: float, gamma: float) -> None:
    p, u = leaf(FITTED_P), leaf(FITTED_U)
    risk = nnpu_risk(p, u, 0.4, beta=beta, gamma=gamma)
    on_positives, on_negatives = reference_risks(FITTED_P, FITTED_U, 0.4)
    assert on_negatives < -beta
    assert risk.positive.item() == pytest.approx(on_positives, rel=1e-12)
    assert risk.negative.item() == pytest.approx(on_negatives, rel=1e-12)  # unclamped
    assert risk.objective.item() == pytest.approx(-gamma * on_negatives, rel=1e-12)
    assert risk.value.item() == pytest.approx(on_positives - beta, rel=1e-12)
    by_p, by_u = gradient(risk.objective, p, u)
    negative_by_p, negative_by_u = gradient(risk.negative, p, u)
    torch.testing.assert_close(by_p, -gamma * negative_by_p, rtol=1e-13, atol=0)
    torch.testing.assert_close(by_u, -gamma * negative_by_u, rtol=1e-13, atol=0)
    expected_by_p = slope(lambda x: -gamma * reference_risks(x, FITTED_U, 0.4)[1], FITTED_P)
    expected_by_u = slope(lambda x: -gamma * reference_risks(FITTED_P, x, 0.4)[1], FITTED_U)
    np.testing.assert_allclose(by_p, expected_by_p, atol=1e-9)
    np.testing.assert_allclose(by_u, expected_by_u, atol=1e-9)


def test_nnpu_does_not_step_back_exactly_at_the_tolerance() -> None:
    p, u = torch.zeros(2, requires_grad=True), torch.full((3,), -1e4)  # R_neg = 0 - 0.5 * 0.5, exact in binary
    risk = nnpu_risk(p, u, 0.5, beta=0.25)
    assert risk.negative.item() == -0.25
    assert risk.objective.item() == 0.0  # 0.25 - 0.25; stepping back would give +0.25
    assert nnpu_risk(p, u, 0.5, beta=0.2499).objective.item() == 0.25


def test_nnpu_defaults_tolerate_nothing_and_step_back_in_full() -> None:
    by_default = nnpu_risk(tensor(FITTED_P), tensor(FITTED_U), 0.4)
    assert by_default == nnpu_risk(tensor(FITTED_P), tensor(FITTED_U), 0.4, beta=0.0, gamma=1.0)
    assert by_default.value.item() == by_default.positive.item()
    assert by_default.objective.item() == -by_default.negative.item()


@quick
@given(
    hnp.arrays(np.float64, st.integers(1, 6), elements=logits),
    hnp.arrays(np.float64, st.integers(1, 6), elements=logits),
    st.floats(0.01, 0.99),
    st.floats(0, 0.5),
)
def test_what_nnpu_reports_is_never_below_the_tolerance(p: Array, u: Array, prior: float, beta: float) -> None:
    risk = nnpu_risk(tensor(p), tensor(u), prior, beta=beta)
    on_positives, on_negatives = reference_risks(p, u, prior)
    assert risk.value.item() == pytest.approx(on_positives + max(on_negatives, -beta), abs=1e-12)
    assert risk.value.item() >= -beta


def test_the_reported_value_cannot_be_minimised() -> None:
    for risk in (upu_risk(leaf(FRESH_P), leaf(FRESH_U), 0.4), nnpu_risk(leaf(FRESH_P), leaf(FRESH_U), 0.4)):
        assert isinstance(risk, PURisk)
        assert risk._fields == ("value", "objective", "positive", "negative")
        assert not risk.value.requires_grad and risk.objective.requires_grad
        assert all(part.shape == () for part in risk)


def test_a_risk_without_one_of_its_samples_is_zero() -> None:
    some, none = leaf([3.0, -1.0]), leaf([])
    for risk in (nnpu_risk(some, none, 0.5), nnpu_risk(none, some, 0.5), upu_risk(none, some, 0.5)):
        assert [part.item() for part in risk] == [0.0] * 4
        (by_some,) = gradient(risk.objective, some)
        assert by_some is not None and torch.equal(by_some, torch.zeros_like(some))


@pytest.mark.parametrize("prior", [-0.1, 1.1, math.nan])
def test_impossible_priors_are_refused(prior: float) -> None:
    for risk in (nnpu_risk, upu_risk):
        with pytest.raises(InputError, match="prior"):
            risk(tensor(Z), tensor(Z), prior)


def test_negative_nnpu_options_are_refused() -> None:
    with pytest.raises(InputError, match="beta"):
        nnpu_risk(tensor(Z), tensor(Z), 0.5, beta=-0.1)
    with pytest.raises(InputError, match="gamma"):
        nnpu_risk(tensor(Z), tensor(Z), 0.5, gamma=-1.0)


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


# ---- weights, shared by both ----------------------------------------------------------------------------------------


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
    with pytest.raises(InputError, match="one vector a sample"):
        feature_consistency(*[torch.ones(4)] * 4)


# ---- contrastive -----------------------------------------------------------------------------------------------------


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
    with pytest.raises(InputError, match="one vector a sample"):
        nt_xent(torch.ones(4), torch.ones(4), 0.5)
    with pytest.raises(InputError, match="shape"):
        nt_xent(torch.ones(4, 2), torch.ones(1, 2), 0.5)
    with pytest.raises(InputError, match="temperature"):
        nt_xent(torch.ones(4, 2), torch.ones(4, 2), 0.0)


# ---- what holds for every loss ---------------------------------------------------------------------------------------


Loss = Callable[[Tensor, Tensor], Tensor]  # of two vectors of the same size, the first of which is moved

EVERY_LOSS: dict[str, Loss] = {
    "sigmoid": lambda a, b: sigmoid_loss(a, +1).sum() + sigmoid_loss(b, -1).sum(),
    "upu": lambda a, b: upu_risk(a, b, 0.4).objective,
    "nnpu": lambda a, b: nnpu_risk(a, b, 0.4).objective,
    "nnpu stepping back": lambda a, b: nnpu_risk(a + 3, b - 6, 0.9).objective,
    "js": lambda a, b: generalised_jensen_shannon(a, torch.sigmoid(b), 0.7),
    "js weighted": lambda a, b: generalised_jensen_shannon(a, torch.sigmoid(b), 0.3, weight=b.abs()),
    "ce": lambda a, b: soft_cross_entropy(a, torch.sigmoid(b)),
    "ce weighted": lambda a, b: soft_cross_entropy(a, torch.sigmoid(b), weight=b.abs()),
    "low level": low_level_consistency,
    "prediction": lambda a, b: prediction_consistency(b, a),
    "confident prediction": lambda a, b: prediction_consistency(b, a, confidence=0.7),
    "contrastive": lambda a, b: nt_xent(a[:, None] * b, a[:, None] + b, 0.5),
    "decoupled contrastive": lambda a, b: nt_xent(a[:, None] * b, a[:, None] + b, 0.5, decoupled=True),
    "feature": lambda a, b: feature_consistency(a[:, None] * b, a[:, None] + b, b[:, None] + b, b[:, None] * b),
}

every_loss = pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS)


@every_loss
def test_gradcheck(loss: Loss) -> None:
    moved, fixed = leaf([-2.1, 0.2, 0.9, 1.4]), tensor([-1.2, 0.4, 2.0, -0.6])
    assert torch.autograd.gradcheck(lambda a: loss(a, fixed), (moved,))


@every_loss
def test_extreme_logits_give_finite_values_and_gradients(loss: Loss) -> None:
    pairs = np.array([(a, b) for a in EXTREME for b in EXTREME])
    moved, other = leaf(pairs[:, 0], torch.float32), leaf(pairs[:, 1], torch.float32)
    value = loss(moved, other)
    assert value.isfinite()
    (by_moved, by_other) = gradient(value, moved, other)
    assert by_moved is not None and by_moved.isfinite().all()
    assert by_other is None or by_other.isfinite().all()


@every_loss
def test_arithmetic_is_float32_unless_the_input_is_float64(loss: Loss) -> None:
    rounded = tensor(Z, torch.bfloat16), torch.sign(tensor(Z + 0.1)).bfloat16()  # signs: made labels are exact enough
    assert loss(tensor(Z), tensor(Q)).dtype == torch.float64
    assert loss(tensor(Z, torch.float32), tensor(Q, torch.float32)).dtype == torch.float32
    moved = rounded[0].clone().requires_grad_()
    value = loss(moved, rounded[1])
    assert value.dtype == torch.float32
    (by_moved,) = gradient(value, moved)
    assert by_moved is not None and by_moved.dtype == torch.bfloat16 and by_moved.isfinite().all()
    # Only what the test itself computes in bfloat16 (labels, feature products) may differ.
    assert value.item() == pytest.approx(loss(rounded[0].float(), rounded[1].float()).item(), rel=2e-2, abs=2e-3)


def test_bfloat16_logits_lose_nothing_further() -> None:
    z, q = tensor(Z, torch.bfloat16), tensor(Q, torch.bfloat16)
    pairs = [
        (nnpu_risk(z, q, 0.4).objective, nnpu_risk(z.float(), q.float(), 0.4).objective),
        (generalised_jensen_shannon(z, q, 0.7), generalised_jensen_shannon(z.float(), q.float(), 0.7)),
        (soft_cross_entropy(z, q), soft_cross_entropy(z.float(), q.float())),
        (low_level_consistency(z, q), low_level_consistency(z.float(), q.float())),
        (prediction_consistency(z, q), prediction_consistency(z.float(), q.float())),
        (feature_consistency(*[z[:, None] * q] * 4), feature_consistency(*[(z[:, None] * q).float()] * 4)),
        (sigmoid_loss(z, 1), sigmoid_loss(z.float(), 1)),
    ]
    for narrow, wide in pairs:
        assert narrow.dtype == torch.float32 and torch.equal(narrow, wide)


@every_loss
def test_autocast_changes_nothing(loss: Loss) -> None:
    z, other = tensor(Z, torch.float32), tensor(Q, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(z, other)
    assert inside.dtype == torch.float32 and torch.equal(inside, loss(z, other))


@every_loss
def test_an_empty_batch_costs_nothing_and_can_be_differentiated(loss: Loss) -> None:
    moved = torch.zeros(0, requires_grad=True)
    value = loss(moved, torch.zeros(0))
    assert value.shape == () and value.item() == 0 and value.requires_grad
    (by_moved,) = gradient(value, moved)
    assert by_moved is not None and by_moved.shape == (0,)


@every_loss
def test_no_value_reaches_the_host(loss: Loss) -> None:
    """Tensors on the meta device have no values: reading one, or branching on one, raises."""
    moved = torch.zeros(5, device="meta", requires_grad=True)
    value = loss(moved, torch.zeros(5, device="meta"))
    value.backward()
    assert value.device.type == "meta" and moved.grad is not None


@pytest.mark.parametrize("shape", [(), (4, 1), (1, 4), (2, 2)])
def test_logits_are_one_a_sample(shape: tuple[int, ...]) -> None:
    bad, good = torch.zeros(shape), torch.zeros(4)
    for call in (
        lambda: sigmoid_loss(bad, +1),
        lambda: upu_risk(bad, good, 0.5),
        lambda: upu_risk(good, bad, 0.5),
        lambda: nnpu_risk(bad, good, 0.5),
        lambda: nnpu_risk(good, bad, 0.5),
        lambda: generalised_jensen_shannon(bad, bad, 0.5),
        lambda: soft_cross_entropy(bad, bad),
        lambda: prediction_consistency(bad, bad),
    ):
        with pytest.raises(InputError, match=r"one logit a sample, shape \(B,\)"):
            call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_loss
def test_capture_in_a_cuda_graph(loss: Loss) -> None:
    moved = tensor(Z, torch.float32).cuda().requires_grad_()
    other = tensor(Q, torch.float32).cuda()

    def step() -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(moved, other)
        return value, torch.autograd.grad(value, moved)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        moved.neg_()  # a replay must follow its inputs, through either branch
    graph.replay()
    for replayed, eager in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, eager)
