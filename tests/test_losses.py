"""What holds for every loss: right gradients, finite at the edges of floating point, no value read by the host.

The sigmoid loss and the uPU and nnPU risks, against sums by hand in float64.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from loss_tools import Array, Q, Z, gradient, leaf, logits, quick, slope, tensor
from torch import Tensor

from splitpu.errors import InputError
from splitpu.losses import (
    PURisk,
    feature_consistency,
    generalised_jensen_shannon,
    logistic_loss,
    low_level_consistency,
    nnpu_risk,
    nt_xent,
    pnu_risk,
    prediction_consistency,
    sigmoid_loss,
    soft_cross_entropy,
    upu_risk,
)

EXTREME = [-1e4, -200.0, -90.0, -17.0, 0.0, 17.0, 90.0, 200.0, 1e4]
Loss = Callable[[Tensor, Tensor], Tensor]  # of two vectors of the same size, the first of which is moved
EVERY_LOSS: dict[str, Loss] = {
    "sigmoid": lambda a, b: sigmoid_loss(a, +1).sum() + sigmoid_loss(b, -1).sum(),
    "upu": lambda a, b: upu_risk(a, b, 0.4).objective,
    "nnpu": lambda a, b: nnpu_risk(a, b, 0.4).objective,
    "nnpu stepping back": lambda a, b: nnpu_risk(a + 3, b - 6, 0.9).objective,
    "pnu": lambda a, b: pnu_risk(nnpu_risk(a, b, 0.4), b, 0.4, share=0.3, surrogate=sigmoid_loss).objective,
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
        with pytest.raises(InputError, match=r"one logit per sample, shape \(B,\)"):
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


def test_the_pnu_risk_is_the_supervised_and_the_pu_risk_in_their_shares() -> None:
    known, population, negative = tensor([0.3, 2.0, -1.0]), tensor([-0.5, 1.5, 0.1, -2.0]), tensor([0.7, -1.2])
    p, u, n = (1 / (1 + np.exp(-one.numpy())) for one in (known, population, negative))  # the loss of "negative"
    prior, share = 0.35, 0.3
    pu = prior * (1 - p).mean() + u.mean() - prior * p.mean()
    pn = prior * (1 - p).mean() + (1 - prior) * n.mean()
    risk = pnu_risk(nnpu_risk(known, population, prior), negative, prior, share=share, surrogate=sigmoid_loss)
    assert risk.value.item() == pytest.approx((1 - share) * pu + share * pn, abs=1e-14)
    assert risk.objective.item() == pytest.approx(risk.value.item(), abs=1e-14) and not risk.value.requires_grad
    assert risk.negative.item() == pytest.approx(
        (1 - share) * (u.mean() - prior * p.mean()) + share * (1 - prior) * n.mean(), abs=1e-14
    )
    with pytest.raises(InputError, match="share of the supervised risk is 2"):
        pnu_risk(risk, negative, prior, share=2, surrogate=sigmoid_loss)


def test_where_nnpu_steps_back_known_negatives_still_pull() -> None:
    known, population, negative = leaf([9.0]), leaf([-9.0]), leaf([0.0])
    pu = nnpu_risk(known, population, 0.5)
    assert pu.negative < 0
    risk = pnu_risk(pu, negative, 0.5, share=0.5, surrogate=sigmoid_loss)
    (by_negative, by_population) = gradient(risk.objective, negative, population)
    assert by_negative is not None and by_negative.item() == pytest.approx(0.5 * 0.5 * 0.25)  # down
    assert by_population is not None and by_population.item() < 0  # back up


def test_logistic_loss_in_short() -> None:
    assert torch.allclose(logistic_loss(torch.tensor([0.0, -9.0]), +1), torch.tensor([0.6931, 9.0001]), atol=1e-4)


def test_nnpu_risk_in_short() -> None:
    risk = nnpu_risk(torch.tensor([9.0]), torch.tensor([-9.0]), prior=0.5)
    assert (bool(risk.negative < 0), bool(risk.objective > 0)) == (True, True)


def test_pnu_risk_in_short() -> None:
    pu = nnpu_risk(torch.tensor([9.0]), torch.tensor([-9.0]), prior=0.5)
    assert (
        float(pnu_risk(pu, torch.tensor([0.0]), 0.5, share=0.5, surrogate=sigmoid_loss).value.round(decimals=3))
        == 0.125
    )
