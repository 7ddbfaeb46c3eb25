"""The kernels behind `consistency`, in Triton; all arithmetic in float32."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _WARPS = 2048, 8
_PROGRAMS = 264  # two a multiprocessor on the largest GPUs
_SHORTEST = 1024  # vectors that are filled up to this share one kernel
_SMALLEST_SQUARED_LENGTH = 1e-12  # as in `splitpu.losses`


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
def _cosines(predicted, features, values, slopes, rows, width, share, smallest: tl.constexpr, block: tl.constexpr):
    """How far a prediction agrees with the other view's feature, times `share`, and what moves the prediction."""
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
        predicted, features, values, slopes, rows, width, -1 / rows,
        smallest=_SMALLEST_SQUARED_LENGTH, block=triton.next_power_of_2(max(width, _SHORTEST)), num_warps=4,
    )  # fmt: skip
    return values.sum(), slopes
