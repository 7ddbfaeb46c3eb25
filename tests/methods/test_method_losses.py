"""The methods' own losses against plain numpy formulas in float64, and at the edges of floating point."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from splitpu.losses import logistic_loss, nnpu_risk, prediction_entropy
from splitpu.methods.common import half_of_largest, mixed
from splitpu.methods.dan import adversarial_value
from splitpu.methods.dist_pu import distribution_loss
from splitpu.methods.pubn import pubn_risk
from splitpu.methods.puupl import mutual_information
from splitpu.methods.self_pu import gated_agreement, partly_trusted_risk
from splitpu.methods.vpu import mixing_penalty, variational_loss
from splitpu.networks.backbones import mean_probability_logit

Array = NDArray[np.float64]
Scored = tuple[Array, Array]  # logits and scores

quick = settings(max_examples=60, deadline=None)
priors = st.floats(0.05, 0.95)


def batches(size: int | None = None, low: float = -15, high: float = 15) -> st.SearchStrategy[Array]:
    """Some numbers; logits unless told otherwise."""
    shape = st.integers(1, 8) if size is None else st.just(size)
    return hnp.arrays(np.float64, shape, elements=st.floats(low, high))


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def entropy(p: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * np.log(p), 0) - np.where(p < 1, (1 - p) * np.log1p(-p), 0)


def cross_entropy(z: Array, y: Array) -> Array:
    return -y * np.log(sigmoid(z)) - (1 - y) * np.log(sigmoid(-z))


def of(array: Array) -> torch.Tensor:
    return torch.from_numpy(array)


@quick
@given(batches(), batches())
def test_variational_loss(positive: Array, population: Array) -> None:
    expected = np.log(sigmoid(population).mean()) - np.log(sigmoid(positive)).mean()
    assert float(variational_loss(of(positive), of(population))) == pytest.approx(expected, abs=1e-9)


def test_variational_loss_is_least_at_the_share_of_positives() -> None:
    # Where population and positives lie in two places, the best Phi is 1 among the positives and 0 elsewhere.
    population = torch.tensor([20.0, -20.0, -20.0, -20.0])
    best = variational_loss(torch.tensor([20.0]), population)
    assert float(best) == pytest.approx(np.log(0.25), abs=1e-6)
    assert float(variational_loss(torch.tensor([20.0]), population + 5)) > float(best)


@quick
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n), batches(n, 0.0, 1.0))))
def test_mixing_penalty(arrays: tuple[Array, Array, Array]) -> None:
    z, x, g = arrays
    expected = np.mean((np.log(g * sigmoid(x) + 1 - g) - np.log(sigmoid(z))) ** 2)
    assert float(mixing_penalty(of(z), of(x), of(g))) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_mixing_penalty_is_finite_where_one_side_has_all_the_weight() -> None:
    x = torch.tensor([-200.0, 200.0, -200.0, 200.0], requires_grad=True)
    z = torch.tensor([1.0, 1.0, -200.0, 200.0], requires_grad=True)
    loss = mixing_penalty(z, x, torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert all(torch.isfinite(one).all() for one in (loss, *torch.autograd.grad(loss, (x, z))))


@quick
@given(batches(), st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n))))
def test_adversarial_value(on_positives: Array, on_population: tuple[Array, Array]) -> None:
    opposed, logit = on_population
    phi = sigmoid(logit)
    expected = np.log(sigmoid(on_positives)).mean() + (phi * np.log(sigmoid(-opposed))).mean() / phi.mean()
    assert float(adversarial_value(of(on_positives), of(opposed), of(logit))) == pytest.approx(expected, abs=1e-9)


def test_adversarial_value_survives_predictions_that_are_all_tiny() -> None:
    value = adversarial_value(torch.zeros(1), torch.tensor([1.0, 2.0]), torch.tensor([-150.0, -150.0]))
    expected = np.log(0.5) + np.log(sigmoid(-np.array([1.0, 2.0]))).mean()
    assert float(value) == pytest.approx(expected, abs=1e-5)


scored = st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n, 0.01, 0.99)))


@quick
@given(scored, scored, priors, st.floats(0, 1))
def test_pubn_risk(positives: Scored, population: Scored, prior: float, border: float) -> None:
    (zp, sp), (zu, su) = positives, population
    on_positives = prior * np.mean(np.log1p(np.exp(-zp)))
    above = sum(np.log1p(np.exp(z)) * (1 - s) / s for z, s in zip(zp, sp, strict=True) if s > border) / len(zp)
    below = sum(np.log1p(np.exp(z)) * (1 - s) for z, s in zip(zu, su, strict=True) if s <= border) / len(zu)
    found = pubn_risk(of(zp), of(zu), of(sp), of(su), prior, border)
    assert [float(part) for part in found] == pytest.approx([on_positives, prior * above + below], rel=1e-6, abs=1e-9)


@quick
@given(batches(), batches(), priors)
def test_distribution_loss(positive: Array, population: Array, prior: float) -> None:
    expected = abs(sigmoid(positive).mean() - 1) + abs(sigmoid(population).mean() - prior) / (2 * prior)
    assert float(distribution_loss(of(positive), of(population), prior)) == pytest.approx(expected, abs=1e-9)


@quick
@given(batches(), st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n, -1, 1))), priors)
def test_partly_trusted_risk(positive: Array, population: tuple[Array, Array], prior: float) -> None:
    logit, trusted = population[0], np.sign(population[1])  # -1 = nobody
    rest, known = logit[trusted < 0], trusted >= 0
    expected = 0.0
    if len(rest):
        on_positives = prior * sigmoid(-positive).mean()
        negative = sigmoid(rest).mean() - prior * sigmoid(positive).mean()
        expected += (1 - known.mean()) * (on_positives + negative if negative >= 0 else -negative)
    if known.any():
        expected += known.mean() * cross_entropy(logit[known], trusted[known]).mean()
    found = partly_trusted_risk(of(positive), of(logit), of(trusted), prior)
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@quick
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n))), st.floats(0, 3), st.floats(0, 1))
def test_gated_agreement(logits: tuple[Array, Array], loss: float, limit: float) -> None:
    difference = np.mean((sigmoid(logits[0]) - sigmoid(logits[1])) ** 2)
    found = float(gated_agreement(of(logits[0]), of(logits[1]), torch.tensor(loss, dtype=torch.float64), limit))
    if abs(difference - limit * loss) > 1e-9:
        assert found == pytest.approx(difference if difference < limit * loss else 0.0, abs=1e-9)


@quick
@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 4), st.integers(1, 5)), elements=st.floats(0, 1)))
def test_mutual_information(probabilities: Array) -> None:
    expected = entropy(probabilities.mean(0)) - entropy(probabilities).mean(0)
    assert mutual_information(of(probabilities)).numpy() == pytest.approx(np.maximum(expected, 0), abs=1e-9)


@quick
@given(batches())
def test_prediction_entropy(logit: Array) -> None:
    assert float(prediction_entropy(of(logit))) == pytest.approx(entropy(sigmoid(logit)).mean(), abs=1e-6)


@quick
@given(batches(), batches(), priors)
def test_nnpu_with_the_logistic_loss(positive: Array, population: Array, prior: float) -> None:
    on_positives = prior * np.log1p(np.exp(-positive)).mean()
    negative = np.log1p(np.exp(population)).mean() - prior * np.log1p(np.exp(positive)).mean()
    risk = nnpu_risk(of(positive), of(population), prior, surrogate=logistic_loss)
    assert float(risk.value) == pytest.approx(on_positives + max(negative, 0), abs=1e-9)
    assert float(risk.objective) == pytest.approx(on_positives + negative if negative >= 0 else -negative, abs=1e-9)


@quick
@given(batches(), st.integers(1, 6).flatmap(lambda n: st.tuples(batches(n), batches(n, 0.0, 3.0))), priors)
def test_nnpu_with_weights_is_that_of_repeated_rows(positive: Array, rows: tuple[Array, Array], prior: float) -> None:
    population, weight = rows[0], np.round(rows[1])
    repeated = np.repeat(population, weight.astype(int))
    if len(repeated):
        found = nnpu_risk(of(positive), of(population), prior, weight=of(weight))
        assert float(found.negative) == pytest.approx(float(nnpu_risk(of(positive), of(repeated), prior).negative))


@quick
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.floats(-20, 20)))
def test_mean_probability_logit(logits: Array) -> None:
    mean, not_mean = sigmoid(logits).mean(0), sigmoid(-logits).mean(0)
    assert mean_probability_logit(of(logits)).numpy() == pytest.approx(np.log(mean / not_mean), rel=1e-6, abs=1e-9)


@quick
@given(batches())
def test_half_of_the_largest_probability(logits: Array) -> None:
    assert sigmoid(np.array(half_of_largest(of(logits)))) == pytest.approx(sigmoid(logits).max() / 2, rel=1e-9)


def test_mixing_gives_each_row_its_own_weight() -> None:
    first, second = torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4)
    weight = torch.tensor([0.0, 0.25, 1.0])
    expected = torch.stack([w * a + (1 - w) * b for w, a, b in zip(weight, first, second, strict=True)])
    assert torch.allclose(mixed(first, second, weight), expected)


LOSSES = {
    "variational": lambda z: variational_loss(z[:3], z[3:]),
    "mixing": lambda z: mixing_penalty(z[:3], z[3:], torch.tensor([0.2, 0.0, 1.0], dtype=z.dtype)),
    "adversarial": lambda z: adversarial_value(z[:2], z[2:4], z[4:]),
    "pubn": lambda z: sum(pubn_risk(z[:3], z[3:], *2 * [torch.tensor([0.1, 0.5, 0.9], dtype=z.dtype)], 0.4, 0.3)),
    "distribution": lambda z: distribution_loss(z[:3], z[3:], 0.4),
    "trusted": lambda z: partly_trusted_risk(z[:3], z[3:], torch.tensor([1.0, 0.0, -1.0], dtype=z.dtype), 0.4),
    "entropy": prediction_entropy,
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str) -> None:
    z = torch.tensor([-2.0, 0.3, 1.1, -0.4, 2.2, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LOSSES[name], (z,))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extreme_logits_give_finite_values_and_gradients(name: str, sign: float) -> None:
    z = (sign * torch.tensor([-80.0, 60.0, 80.0, -70.0, 80.0, -80.0])).requires_grad_()
    loss = LOSSES[name](z)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(z.grad).all()
