"""The kernels behind `loss_terms`, in Triton, in float32: a batch of logits fits into one program.

Logits are never turned into probabilities and back: every logarithm comes from `_log_sigmoid`, so that predictions that
are sure of themselves keep their loss and their slope, as in `splitpu.losses`.

What is given to the kernels in tuples, and why sizes are not: see `batch_norm_triton`."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _WARPS = 2048, 8
_PROGRAMS = 264  # two a multiprocessor on the largest GPUs
_SHORTEST = 1024  # vectors that are filled up to this share one kernel
_SMALLEST_SQUARED_LENGTH = 1e-12  # as in `splitpu.losses`
_LABEL_WARPS = 8
_BLOCKS = (1024, 4096)  # logits that a program holds: few sizes, because each is compiled by itself
# One kernel for all of these.
_SIZES = ["easy", "positives", "consistent", "population"]
_FLAGS = ["jensen_shannon", "has_easy", "has_positive", "has_prediction", "non_negative"]


@triton.jit(do_not_specialize=["count"])
def _squared_difference(first, second, partial, count, share, block: tl.constexpr):
    """Every program's part of the mean squared difference; `share` is one over the number of values."""
    total = tl.zeros((block,), tl.float32)
    for start in range(tl.program_id(0) * block, count, tl.num_programs(0) * block):
        place = start + tl.arange(0, block)
        mask = place < count
        one = tl.load(first + place, mask=mask, other=0.0).to(tl.float32)
        difference = one - tl.load(second + place, mask=mask, other=0.0).to(tl.float32)
        total += difference * difference
    tl.store(partial + tl.program_id(0), tl.sum(total, 0) * share)


@triton.jit(do_not_specialize=["count", "adds"])
def _difference_gradient(first, second, upstream, gradient, count, share, adds, block: tl.constexpr):
    """The gradient of the mean squared difference, put into a tensor or added to what is in it."""
    factor = 2.0 * share * tl.load(upstream).to(tl.float32)
    place = tl.program_id(0) * block + tl.arange(0, block)
    mask = place < count
    one = tl.load(first + place, mask=mask, other=0.0).to(tl.float32)
    result = factor * (one - tl.load(second + place, mask=mask, other=0.0).to(tl.float32))
    result += tl.load(gradient + place, mask=place < count * adds, other=0.0).to(tl.float32)
    tl.store(gradient + place, result.to(gradient.dtype.element_ty), mask=mask)


@triton.jit
def _inverse_length(vector, smallest: tl.constexpr):
    """One over the length, and 0 for a vector of no length."""
    squared = tl.sum(vector * vector, 0)
    return tl.where(squared > smallest, 1.0 / tl.sqrt(tl.where(squared > smallest, squared, 1.0)), 0.0)


@triton.jit(do_not_specialize=["rows", "width"])
def _cosines(given, found, rows, width, share, smallest: tl.constexpr, block: tl.constexpr):
    """How far a prediction agrees with the other view's feature, times `share`, and what moves the prediction."""
    predicted, features = given
    values, slopes = found
    row = tl.program_id(0)
    partner = (row + rows // 2) % rows
    column = tl.arange(0, block)
    exists = column < width
    one = tl.load(predicted + row * width + column, mask=exists, other=0.0).to(tl.float32)
    other = tl.load(features + partner * width + column, mask=exists, other=0.0).to(tl.float32)
    inverse = _inverse_length(one, smallest)
    one_unit, other_unit = one * inverse, other * _inverse_length(other, smallest)
    cosine = tl.sum(one_unit * other_unit, 0)
    tl.store(values + row, cosine * share)
    slope = share * inverse * (other_unit - cosine * one_unit)
    tl.store(slopes + row * width + column, slope.to(slopes.dtype.element_ty), mask=exists)


def mean_squared_difference(first: Tensor, second: Tensor) -> Tensor:
    """Of two tensors that lie in memory in the same order."""
    count = first.numel()
    programs = min(_PROGRAMS, triton.cdiv(count, _BLOCK))
    partial = torch.empty(programs, device=first.device, dtype=torch.float32)
    _squared_difference[(programs,)](first, second, partial, count, 1 / count, block=_BLOCK, num_warps=_WARPS)
    return partial.sum()


def difference_gradient(first: Tensor, second: Tensor, upstream: Tensor, gradient: Tensor, *, adds: bool) -> None:
    """Put the gradient of `first` into `gradient`, which lies in the same order, or add it there."""
    count = first.numel()
    grid = (triton.cdiv(count, _BLOCK),)
    _difference_gradient[grid](
        first, second, upstream, gradient, count, 1 / count, int(adds), block=_BLOCK, num_warps=_WARPS
    )


def negative_cosines(predicted: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the mean cosine of every row with the other half's, and its gradient."""
    rows, width = predicted.shape
    values, slopes = torch.empty(rows, device=predicted.device), torch.empty_like(predicted)
    _cosines[(rows,)](
        (predicted, features), (values, slopes), rows, width, -1 / rows,
        smallest=_SMALLEST_SQUARED_LENGTH, block=triton.next_power_of_2(max(width, _SHORTEST)), num_warps=4,
    )  # fmt: skip
    return values.sum(), slopes


@triton.jit
def _log_of_one_more(small):
    """log(1 + x) for x from 0 to 1, exact also where 1 + x rounds to 1."""
    sum_ = 1.0 + small
    lost = sum_ == 1.0
    return tl.where(lost, small, tl.log(sum_) * (small / tl.where(lost, 1.0, sum_ - 1.0)))


@triton.jit
def _log_sigmoid(logit):
    return tl.minimum(logit, 0.0) - _log_of_one_more(tl.exp(-tl.abs(logit)))


@triton.jit
def _sigmoid(logit):
    small = tl.exp(-tl.abs(logit))
    return tl.where(logit >= 0.0, 1.0, small) / (1.0 + small)


@triton.jit
def _log_of_sum(first, second):
    """log(exp(first) + exp(second)); one of them may be minus infinity."""
    larger, smaller = tl.maximum(first, second), tl.minimum(first, second)
    return larger + _log_of_one_more(tl.exp(smaller - larger))


@triton.jit
def _log_or_nothing(value):
    return tl.where(value > 0.0, tl.log(tl.where(value > 0.0, value, 1.0)), float("-inf"))


@triton.jit
def _times_log(value):
    return value * tl.log(tl.where(value > 0.0, value, 1.0))


@triton.jit
def _jensen_shannon(target, log_p, log_not_p, rho, log_rho, log_rest, scale):
    """The divergence and its slope, which is (1 - rho) p (1 - p) (logit of p - logit of the mixture)."""
    log_m = _log_of_sum(log_rho + _log_or_nothing(target), log_rest + log_p)
    log_not_m = _log_of_sum(log_rho + _log_or_nothing(1.0 - target), log_rest + log_not_p)
    from_label = _times_log(target) - target * log_m + _times_log(1.0 - target) - (1.0 - target) * log_not_m
    from_prediction = tl.exp(log_p) * (log_p - log_m) + tl.exp(log_not_p) * (log_not_p - log_not_m)
    slope = (1.0 - rho) * tl.exp(log_p + log_not_p) * (log_p - log_m - log_not_p + log_not_m)
    return (rho * from_label + (1.0 - rho) * from_prediction) * scale, slope * scale


@triton.jit
def _mean_where(chosen, values, count):
    return tl.sum(tl.where(chosen, values, 0.0), 0) / tl.maximum(count, 1).to(tl.float32)


@triton.jit(do_not_specialize=_SIZES + _FLAGS)
def _label_terms(places, terms, easy, positives, consistent, constants, jensen_shannon, block: tl.constexpr):
    logits, labels, rows, slopes = places
    easy_term, positive_term, agreement_term, prediction_term = terms
    rho, log_rho, log_rest, scale, confidence = constants
    place = tl.arange(0, block)
    first_weak = easy + positives
    first_strong = first_weak + consistent
    exists = place < first_strong + consistent
    is_easy, is_strong = place < easy, (place >= first_strong) & exists
    is_positive = (place >= easy) & (place < first_weak)
    logit = tl.load(logits + place, mask=exists, other=0.0).to(tl.float32)
    log_p, log_not_p = _log_sigmoid(logit), _log_sigmoid(-logit)
    p, not_p = _sigmoid(logit), _sigmoid(-logit)

    row = tl.load(rows + place, mask=is_easy, other=0)
    target = tl.load(labels + row, mask=is_easy, other=1.0).to(tl.float32)  # labelled positives are certain
    loss = -(target * log_p + (1.0 - target) * log_not_p)
    slope = (1.0 - target) * p - target * not_p
    tl.store(positive_term, _mean_where(is_positive, loss, positives))
    slope_of_all = tl.where(is_positive, slope / tl.maximum(positives, 1).to(tl.float32), 0.0)
    divergence, its_slope = _jensen_shannon(target, log_p, log_not_p, rho, log_rho, log_rest, scale)
    loss, slope = tl.where(jensen_shannon != 0, divergence, loss), tl.where(jensen_shannon != 0, its_slope, slope)
    tl.store(easy_term, _mean_where(is_easy, loss, easy))
    slope_of_all += tl.where(is_easy, slope / tl.maximum(easy, 1).to(tl.float32), 0.0)
    agrees = (logit > 0.0) == (target > 0.5)
    tl.store(agreement_term, _mean_where(is_easy, agrees.to(tl.float32), easy))

    weak = tl.load(logits + place - consistent, mask=is_strong, other=0.0).to(tl.float32)
    weak_p, weak_not_p = _sigmoid(weak), _sigmoid(-weak)
    divergence = weak_p * (_log_sigmoid(weak) - log_p) + weak_not_p * (_log_sigmoid(-weak) - log_not_p)
    kept = (_sigmoid(tl.abs(weak)) >= confidence).to(tl.float32)
    tl.store(prediction_term, _mean_where(is_strong, divergence * kept, consistent))
    slope = kept * (weak_not_p * p - weak_p * not_p) / tl.maximum(consistent, 1).to(tl.float32)
    tl.store(slopes + place, slope_of_all + tl.where(is_strong, slope, 0.0), mask=exists)


@triton.jit
def _gradient_of(term, exists):
    return tl.load(term, mask=exists != 0, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=_SIZES + _FLAGS)
def _label_gradients(places, easy, positives, consistent, has_easy, has_positive, has_prediction, block: tl.constexpr):
    slopes, easy_gradient, positive_gradient, prediction_gradient, result = places
    place = tl.arange(0, block)
    exists = place < easy + positives + 2 * consistent
    behind = tl.where(
        place < easy + positives,
        _gradient_of(positive_gradient, has_positive),
        _gradient_of(prediction_gradient, has_prediction),
    )
    upstream = tl.where(place < easy, _gradient_of(easy_gradient, has_easy), behind)
    slope = tl.load(slopes + place, mask=exists, other=0.0)
    tl.store(result + place, (slope * upstream).to(result.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=_SIZES + _FLAGS)
def _pu_risk(logits, numbers, slopes, positives, population, constants, non_negative, block: tl.constexpr):
    objective, value, positive_risk, negative_risk, recall = numbers
    prior, beta, gamma = constants
    place = tl.arange(0, block)
    exists, is_positive = place < positives + population, place < positives
    is_population = (place >= positives) & exists
    logit = tl.load(logits + place, mask=exists, other=0.0).to(tl.float32)
    p, not_p = _sigmoid(logit), _sigmoid(-logit)
    positive = prior * _mean_where(is_positive, not_p, positives)
    negative = _mean_where(is_population, p, population) - prior * _mean_where(is_positive, p, positives)
    steps_back = (non_negative != 0) & ~(negative >= -beta)
    # What the objective takes of the two.
    of_positive, of_negative = tl.where(steps_back, 0.0, 1.0), tl.where(steps_back, -gamma, 1.0)
    clamped = tl.where((non_negative != 0) & (negative < -beta), -beta, negative)
    tl.store(objective, of_positive * positive + of_negative * negative)
    tl.store(value, positive + clamped)
    tl.store(positive_risk, positive)
    tl.store(negative_risk, negative)
    tl.store(recall, _mean_where(is_positive, (logit > 0.0).to(tl.float32), positives))
    on_positives = -prior * (of_positive + of_negative) / tl.maximum(positives, 1).to(tl.float32)
    on_population = of_negative / tl.maximum(population, 1).to(tl.float32)
    slope = p * not_p * tl.where(is_positive, on_positives, on_population)
    tl.store(slopes + place, slope.to(slopes.dtype.element_ty), mask=exists)


def _numbers(count: int, device: torch.device) -> list[Tensor]:
    """So many single numbers, each a tensor of its own: autograd minds outputs that share their memory."""
    return [torch.empty((), device=device, dtype=torch.float32) for _ in range(count)]


def _launch(count: int) -> dict[str, int]:
    return {"block": next(block for block in _BLOCKS if count <= block), "num_warps": _LABEL_WARPS}


def label_terms(
    logit: Tensor, labels: Tensor, rows: Tensor, counts: tuple[int, int, int], rho: float | None, confidence: float
) -> tuple[list[Tensor], Tensor]:
    """The terms easy, positive, agreement, prediction, and the slope of each logit in its own term."""
    terms = _numbers(4, logit.device)
    slopes = torch.empty(logit.shape, device=logit.device, dtype=torch.float32)
    share = 0.5 if rho is None else rho
    constants = (share, math.log(share), math.log1p(-share), 1 / (-(1 - share) * math.log1p(-share)), confidence)
    _label_terms[(1,)](
        (logit, labels, rows, slopes), tuple(terms), *counts, constants, int(rho is not None), **_launch(len(logit))
    )
    return terms, slopes


def label_gradients(
    slopes: Tensor, upstream: list[Tensor | None], counts: tuple[int, int, int], dtype: torch.dtype
) -> Tensor:
    """The slopes times the gradients of easy, positive and prediction; a missing gradient is zero."""
    result = torch.empty(slopes.shape, device=slopes.device, dtype=dtype)
    given = [slopes if gradient is None else gradient for gradient in upstream]
    there = [int(gradient is not None) for gradient in upstream]
    _label_gradients[(1,)]((slopes, *given, result), *counts, *there, **_launch(len(slopes)))
    return result


def pu_risk(
    logit: Tensor, positives: int, prior: float, beta: float | None, gamma: float
) -> tuple[list[Tensor], Tensor]:
    """Objective, value, positive and negative risk and recall, and the objective's gradient; no beta: the uPU risk."""
    numbers, slopes = _numbers(5, logit.device), torch.empty_like(logit)
    constants = float(prior), float(beta or 0.0), float(gamma)
    _pu_risk[(1,)](
        logit, tuple(numbers), slopes, positives, len(logit) - positives, constants, int(beta is not None),
        **_launch(len(logit)),
    )  # fmt: skip
    return numbers, slopes
