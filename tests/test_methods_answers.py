"""Where the right answer is known: two Gaussians, of which every consistent PU loss has to find the true posterior."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm
from torch import Tensor

from splitpu.losses import logistic_loss, nnpu_risk, upu_risk
from splitpu.methods.dan import adversarial_value
from splitpu.methods.pubn import pubn_risk
from splitpu.methods.vpu import variational_loss

# N(1, 1) is positive, N(-1, 1) negative: the true logit of x is 2 x + log(prior / (1 - prior)).
PRIOR, SLOPE = 0.4, 2.0
OFFSET = float(np.log(PRIOR / (1 - PRIOR)))


def quantiles(mean: float, count: int) -> Tensor:
    """A sample without chance: the middles of equal shares."""
    return torch.from_numpy(norm(mean).ppf((np.arange(count) + 0.5) / count))


P = quantiles(1, 4000)
X = torch.cat([quantiles(1, 4000), quantiles(-1, 6000)])  # two in five are positive
SCORES = [torch.sigmoid(SLOPE * x + OFFSET) for x in (P, X)]

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic nnPU": lambda p, x: nnpu_risk(p, x, PRIOR, surrogate=logistic_loss).objective,
    "PUbN": lambda p, x: torch.stack(pubn_risk(p, x, *SCORES, PRIOR, border=0.3)).sum(),
    "VPU": variational_loss,
}


def minimised(loss: Callable[[Tensor], Tensor], start: list[float]) -> NDArray[np.float64]:
    def with_slope(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = torch.from_numpy(at).requires_grad_()
        value = loss(weights)
        (slope,) = torch.autograd.grad(value, weights)
        return value.item(), slope.numpy()

    found: NDArray[np.float64] = minimize(with_slope, start, jac=True, tol=1e-9).x
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_the_least_loss_is_at_the_true_posterior(name: str) -> None:
    found = minimised(lambda w: LOSSES[name](w[0] * P + w[1], w[0] * X + w[1]), [0.5, 0.0])
    assert found == pytest.approx([SLOPE, OFFSET], abs=0.02)


@pytest.mark.parametrize("risk", [upu_risk, nnpu_risk])
def test_the_least_risk_is_at_the_true_border(risk: Callable[..., object]) -> None:
    steep = 20.0  # so that the sigmoid loss nearly counts errors
    (border,) = minimised(lambda b: risk(steep * (P - b), steep * (X - b), PRIOR).objective, [0.5])  # type: ignore[attr-defined]
    assert border == pytest.approx(-OFFSET / SLOPE, abs=0.01)


def test_nobody_gains_by_leaving_the_true_posterior_in_the_adversarial_game() -> None:
    # There the rows that are picked are spread as P is, and the adversary can do no better than to say one half.
    network = torch.tensor([SLOPE, OFFSET], dtype=torch.float64, requires_grad=True)
    adversary = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def value() -> Tensor:
        return adversarial_value(adversary[0] * P + adversary[1], adversary[0] * X + adversary[1], network @ features)

    features = torch.stack([X, torch.ones_like(X)])
    for one in torch.autograd.grad(value(), (network, adversary)):
        assert one.abs().max() < 2e-3
    assert value().item() == pytest.approx(-2 * np.log(2))
    # Elsewhere somebody does: of rows picked with a lower slope the adversary can tell P.
    with torch.no_grad():
        network[0] = 1.0
    assert torch.autograd.grad(value(), adversary)[0].abs().max() > 0.1
