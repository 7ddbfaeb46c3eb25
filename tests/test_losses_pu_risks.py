"""The sigmoid loss and the uPU and nnPU risks, against sums by hand in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from loss_tools import Array, Z, gradient, leaf, logits, quick, slope, tensor

from splitpu.errors import InputError
from splitpu.losses import PURisk, nnpu_risk, sigmoid_loss, upu_risk


def reference_risks(positive: Array, population: Array, prior: float) -> tuple[float, float]:
    """The risk on positives and the risk on negatives, each sample summed by hand over its own number of rows."""
    on_positives = prior * sum(1 / (1 + math.exp(z)) for z in positive) / len(positive)
    surplus = prior * sum(1 / (1 + math.exp(-z)) for z in positive) / len(positive)
    return on_positives, sum(1 / (1 + math.exp(-z)) for z in population) / len(population) - surplus


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
