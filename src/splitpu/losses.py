"""The losses of PU learning and of Split-PU: pure functions of tensors, nothing else. Four rules hold for all of them.

* Logits are one per sample, shape (B,). Anything else is refused: (B, 1) against (B,) broadcasts silently to (B, B).
* The arithmetic is float32 (float64 if given float64), whatever the precision of the network that made the inputs.
* No value of a tensor ever reaches Python, so a training step that uses them can be captured in a CUDA graph.
* An empty batch costs nothing: the loss is zero and can still be differentiated."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from splitpu.errors import InputError

# What one sample costs under a risk, given its logit and the sign of its class.
Surrogate = Callable[[Tensor, int], Tensor]

# Nearer to 0 or 1 the Jensen-Shannon divergence is a small difference over a small number, beyond float32's digits.
_EXTREME_RHO = 0.01

# A feature vector no longer than the square root of this has no direction worth comparing.
_SMALLEST_SQUARED_LENGTH = 1e-12


class PURisk(NamedTuple):
    """A PU risk. What to report and what to minimise are two numbers; to confuse them is the classic nnPU mistake."""

    value: Tensor  # what to report; cut off from the graph, so that it cannot be minimised by accident
    objective: Tensor  # what to minimise; no estimate of anything while nnPU steps back
    positive: Tensor  # `prior * E_P l(z, +1)`: the risk on positives
    negative: Tensor  # `E_U l(z, -1) - prior * E_P l(z, -1)`: the risk on negatives, unclamped: it may be below zero


def sigmoid_loss(logit: Tensor, sign: int) -> Tensor:
    """Return `sigmoid(-sign * logit)` per sample: bounded, so that one outlier cannot rule the risk."""
    if sign not in (+1, -1):
        raise InputError(f"The sign of the sigmoid loss is {sign}; give +1 (positive) or -1 (negative).")
    return torch.sigmoid(-sign * _as_logit(logit, "logit"))


def logistic_loss(logit: Tensor, sign: int) -> Tensor:
    """Return `log(1 + exp(-sign * logit))` per sample: unbounded, but its minimiser is the logit of a probability."""
    if sign not in (+1, -1):
        raise InputError(f"The sign of the logistic loss is {sign}; give +1 (positive) or -1 (negative).")
    return functional.softplus(-sign * _as_logit(logit, "logit"))


def prediction_entropy(logit: Tensor) -> Tensor:
    """Return the mean entropy of predictions in nats, which to minimise makes a network decide."""
    logit = _as_logit(logit, "logit")
    log_p, log_not_p = functional.logsigmoid(logit), functional.logsigmoid(-logit)
    return _mean(-(log_p.exp() * log_p + log_not_p.exp() * log_not_p))


def upu_risk(positive_logit: Tensor, population_logit: Tensor, prior: float) -> PURisk:
    """Return the unbiased PU risk, which a flexible network can drive far below zero."""
    positive, negative = _positive_and_negative_risk(positive_logit, population_logit, prior, sigmoid_loss, None)
    objective = positive + negative
    return PURisk(value=objective.detach(), objective=objective, positive=positive, negative=negative)


def nnpu_risk(
    positive_logit: Tensor,
    population_logit: Tensor,
    prior: float,
    *,
    beta: float = 0.0,
    gamma: float = 1.0,
    surrogate: Surrogate = sigmoid_loss,
    weight: Tensor | None = None,
) -> PURisk:
    """Return the non-negative PU risk, which steps back when the risk on negatives falls below `-beta`.

    A true risk on negatives cannot be negative, so there the network is overfitting: the objective becomes
    `-gamma * negative` *alone*, and only the reported value is clamped. With a `weight` for each row of the population,
    their mean is a weighted one."""
    if beta < 0 or gamma < 0:
        raise InputError(f"nnPU was given beta = {beta} and gamma = {gamma}; give two numbers that are not negative.")
    positive, negative = _positive_and_negative_risk(positive_logit, population_logit, prior, surrogate, weight)
    objective = torch.where(negative >= -beta, positive + negative, -gamma * negative)
    value = (positive + negative.clamp_min(-beta)).detach()
    return PURisk(value=value, objective=objective, positive=positive, negative=negative)


def pnu_risk(known: PURisk, negative_logit: Tensor, prior: float, *, share: float, surrogate: Surrogate) -> PURisk:
    """Return the PNU risk (Sakai et al. 2017): `share` of a supervised risk of P and N, the rest a PU risk.

    Both have the same term for positives, so N is a second opinion on the risk on negatives: `(1 - prior) E_N l(z, -1)`
    beside `E_U l(z, -1) - prior E_P l(z, -1)`. It cannot fall below zero, so where nnPU steps back it still pulls."""
    if not 0 <= share <= 1:
        raise InputError(f"The share of the supervised risk is {share}; give a number from 0 to 1.")
    of_negatives = (1 - prior) * _mean(surrogate(_as_logit(negative_logit, "negative_logit"), -1))
    supervised = known.positive + of_negatives
    return PURisk(
        value=(1 - share) * known.value + share * supervised.detach(),
        objective=(1 - share) * known.objective + share * supervised,
        positive=known.positive,
        negative=(1 - share) * known.negative + share * of_negatives,
    )


def generalised_jensen_shannon(logit: Tensor, target: Tensor, rho: float, *, weight: Tensor | None = None) -> Tensor:
    """Return the generalised Jensen-Shannon divergence of predictions from labels that may be soft, and may be wrong.

    With `p = sigmoid(logit)`, `q = target` (in [0, 1], a constant) and `m = rho * q + (1 - rho) * p` it is
    `[rho * KL(q||m) + (1 - rho) * KL(p||m)] / (-(1 - rho) * log(1 - rho))`, averaged over the samples. Towards
    `rho = 0` it becomes cross-entropy (less the entropy of the label), which learns fast; towards `rho = 1`, for
    certain labels, the mean absolute error, which tolerates noise. It lies between 0 (`p = q`) and
    `1 + rho * log(rho) / ((1 - rho) * log(1 - rho))` (`p` and `q` certain of opposite classes)."""
    if not 0 < rho < 1:
        raise InputError(f"The Jensen-Shannon weight rho is {rho}; give a number strictly between 0 and 1.")
    logit = _as_logit(logit, "logit")
    kind = logit.dtype
    if not _EXTREME_RHO <= rho <= 1 - _EXTREME_RHO:
        logit = logit.double()
    target = _as_target(target, logit)
    # The mixture is formed from log-probabilities: a saturated sigmoid is exactly 0, and its logarithm would be -inf.
    log_p, log_not_p = functional.logsigmoid(logit), functional.logsigmoid(-logit)
    log_m = torch.logaddexp(math.log(rho) + torch.log(target), math.log1p(-rho) + log_p)
    log_not_m = torch.logaddexp(math.log(rho) + torch.log1p(-target), math.log1p(-rho) + log_not_p)
    label_to_mixture = (
        torch.xlogy(target, target) - target * log_m + torch.xlogy(1 - target, 1 - target) - (1 - target) * log_not_m
    )
    # `exp` and not `sigmoid`, whose gradient y (1 - y) is lost once y rounds to 1.
    prediction_to_mixture = log_p.exp() * (log_p - log_m) + log_not_p.exp() * (log_not_p - log_not_m)
    divergence = rho * label_to_mixture + (1 - rho) * prediction_to_mixture
    return (_mean(divergence, weight) / (-(1 - rho) * math.log1p(-rho))).to(kind)


def soft_cross_entropy(logit: Tensor, target: Tensor, *, weight: Tensor | None = None) -> Tensor:
    """Return the cross-entropy of predictions against labels that may lie between 0 and 1, for labels to be trusted."""
    logit = _as_logit(logit, "logit")
    target = _as_target(target, logit)
    # Two terms of one sign: unlike the usual `softplus(z) - q * z`, nothing cancels for confident, correct predictions.
    losses = -(target * functional.logsigmoid(logit) + (1 - target) * functional.logsigmoid(-logit))
    return _mean(losses, weight)


def low_level_consistency(student: Tensor, teacher: Tensor, *, norm: bool = False) -> Tensor:
    """Return the mean squared difference between two networks' early features; only the student is moved.

    With `norm` the mean length of a sample's difference, which is the paper's Eq. 8: as its features are many, a far
    larger number with far larger gradients."""
    _require_same_shape(student, teacher, "student's and teacher's features")
    difference = _as_full_precision(student) - _as_full_precision(teacher.detach())
    # torch's norm has a gradient of 0 where the difference is 0, which the root of a sum of squares has not.
    return _mean(torch.linalg.vector_norm(difference.flatten(1), dim=1) if norm else difference.square())


def prediction_consistency(weak_logit: Tensor, strong_logit: Tensor, *, confidence: float = 0.0) -> Tensor:
    """Return `KL(p_weak || p_strong)`, so that the strong view learns what the weak view already says.

    Only the strong side is moved. With a `confidence`, only samples with `max(p, 1 - p) >= confidence` in the weak
    view count, positive or negative alike. Their sum is still divided by the size of the *whole* batch (as FixMatch
    does), so that a handful of confident samples early in training does not weigh as much as a batch full of them."""
    weak_logit, strong_logit = _as_logit(weak_logit, "weak_logit").detach(), _as_logit(strong_logit, "strong_logit")
    _require_same_shape(weak_logit, strong_logit, "weak and strong logits")
    divergence = torch.sigmoid(weak_logit) * (functional.logsigmoid(weak_logit) - functional.logsigmoid(strong_logit))
    divergence = divergence + torch.sigmoid(-weak_logit) * (
        functional.logsigmoid(-weak_logit) - functional.logsigmoid(-strong_logit)
    )
    kept = torch.sigmoid(weak_logit.abs()) >= confidence
    # A product and not a selection: a logit that is not a number must show in the loss, not vanish from it.
    return _mean(divergence * kept)


def feature_consistency(predicted_first: Tensor, predicted_second: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return `-cos(f(x1), sg(x2)) / 2 - cos(f(x2), sg(x1)) / 2`, the SimSiam agreement of two views' features.

    Only the predictions `f` are moved; the features they aim at are constants, without which every feature would
    collapse to one point. A vector of no length agrees with nothing: its cosine and its gradient are zero."""
    for other in (predicted_second, first, second):
        _require_same_shape(predicted_first, other, "predictions and features of the two views")
    if predicted_first.ndim != 2:
        shape = tuple(predicted_first.shape)
        raise InputError(f"The predictions and features have shape {shape}; give one vector per sample, shape (B, d).")
    agreement = _cosine(predicted_first, second.detach()) + _cosine(predicted_second, first.detach())
    return -_mean(agreement) / 2


def nt_xent(first: Tensor, second: Tensor, temperature: float, *, decoupled: bool = False) -> Tensor:
    """Return how badly two views of each row find one another among all views of the batch, by cosine.

    Every view is compared with all others; the loss is the cross-entropy of picking its partner at this temperature
    (SimCLR). `decoupled` leaves the partner out of what the pair has to beat: an easy pair then keeps pulling."""
    if temperature <= 0:
        raise InputError(f"The temperature of the contrastive loss is {temperature}; give a number above 0.")
    _require_same_shape(first, second, "features of the two views")
    if first.ndim != 2:
        shape = tuple(first.shape)
        raise InputError(f"The features of the views have shape {shape}; give one vector per sample, shape (B, d).")
    mixed = torch.amp.is_autocast_available(first.device.type)  # it would round the products to 8 bits
    with torch.autocast(first.device.type, enabled=False) if mixed else nullcontext():
        one, other = _unit(first), _unit(second)
        together = (one * other).sum(dim=1).repeat(2) / temperature
        views = torch.cat([one, other])
        similarity = views @ views.T / temperature
    if decoupled and len(first) < 2:
        return -_mean(together)  # a single pair has nobody to be told from
    left_out = torch.eye(len(views), dtype=torch.bool, device=views.device)  # nothing is its own partner
    if decoupled:
        left_out = left_out | left_out.roll(len(first), dims=1)
    return _mean(torch.logsumexp(similarity.masked_fill(left_out, -math.inf), dim=1) - together)


def _positive_and_negative_risk(
    positive_logit: Tensor, population_logit: Tensor, prior: float, surrogate: Surrogate, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    if not 0 <= prior <= 1:
        raise InputError(f"The class prior is {prior}; give the share of positives in the population, from 0 to 1.")
    positive_logit = _as_logit(positive_logit, "positive_logit")
    population_logit = _as_logit(population_logit, "population_logit")
    if positive_logit.numel() == 0 or population_logit.numel() == 0:
        # Half a risk estimates nothing: without a population, nnPU would step back from positives that are well placed.
        nothing = 0 * (positive_logit.sum() + population_logit.sum())
        return nothing, nothing
    positive = prior * _mean(surrogate(positive_logit, +1))
    negative = _mean(surrogate(population_logit, -1), weight) - prior * _mean(surrogate(positive_logit, -1))
    return positive, negative


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return (_unit(first) * _unit(second)).sum(dim=1)


def _unit(vectors: Tensor) -> Tensor:
    """Scale each row to length one, and a row of no length to zero: its true gradient would be endless."""
    vectors = _as_full_precision(vectors)
    squared_length = vectors.square().sum(dim=1, keepdim=True)
    has_length = squared_length > _SMALLEST_SQUARED_LENGTH
    return vectors * has_length * squared_length.masked_fill(~has_length, 1.0).rsqrt()


def _mean(losses: Tensor, weight: Tensor | None = None) -> Tensor:
    """Average, weighted if asked; nothing to average, or no weight at all, gives zero and not 0/0."""
    if weight is None:
        return losses.sum() / max(losses.numel(), 1)
    _require_same_shape(losses, weight, "losses and weights")
    weight = weight.to(losses.dtype)
    total = weight.sum()
    return (weight * losses).sum() / total.masked_fill(total == 0, 1.0)


def _as_full_precision(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _as_logit(logit: Tensor, name: str) -> Tensor:
    if logit.ndim != 1:
        raise InputError(f"`{name}` has shape {tuple(logit.shape)}; give one logit per sample, shape (B,).")
    return _as_full_precision(logit)


def _as_target(target: Tensor, logit: Tensor) -> Tensor:
    """Labels are constants of the logit's kind, whatever network or file they came from."""
    _require_same_shape(logit, target, "logits and targets")
    return target.detach().to(logit.dtype)


def _require_same_shape(first: Tensor, second: Tensor, what: str) -> None:
    if first.shape != second.shape:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise InputError(f"The {what} have shapes {shapes}; give tensors of one shape, sample by sample.")
