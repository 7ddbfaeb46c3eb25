"""The kernels behind the patches and the gradients of `convolution`, in Triton.

A 3x3 convolution with stride 2 and padding 1 reads row 2i + k - 1 for its row i, so row 2u of the input has been read
by k = 1 alone (for i = u), and row 2u + 1 by k = 2 (for i = u) and k = 0 (for i = u + 1); columns likewise. Pixels of
one kind of row and column have the same one, two or four taps: a matrix product for each kind.

What is given to the kernels in tuples, and why most sizes are not: see `batch_norm_triton`."""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS, _WARPS = 128, 4  # of a program; half as many pixels take twice as long
_GRADIENT_PIXELS, _STEP = 64, 32  # of a tile; gradient channels that are multiplied at a time
_GRADIENT_WARPS, _STAGES = 4, 4


class _Patch(NamedTuple):
    channels: tl.constexpr
    side: tl.constexpr
    size: tl.constexpr  # numbers it has, with the zeros it is filled up with
    block: tl.constexpr
    tile: tl.constexpr


class _Shape(NamedTuple):
    """Of a product: pixels by channels."""

    tile: tl.constexpr
    block: tl.constexpr


@cache  # a launch is quicker with the tuple of the one before
def _patch(channels: int, side: int, values: int) -> _Patch:
    return _Patch(*map(tl.constexpr, (channels, side, values, triton.next_power_of_2(values), _PIXELS)))


@cache
def _shape(inputs: int) -> _Shape:
    return _Shape(tl.constexpr(_GRADIENT_PIXELS), tl.constexpr(triton.next_power_of_2(inputs)))


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "count"])
def _patch_values(places, height, width, rows, columns, count, strides, patch):
    images, patches = places
    stride, padding = strides
    pixel = tl.program_id(0) * patch.tile + tl.arange(0, patch.tile)
    value = tl.arange(0, patch.block)
    channel, down, across = value // (patch.side * patch.side), value // patch.side % patch.side, value % patch.side
    row = (pixel // columns % rows * stride - padding)[:, None] + down[None, :]
    column = (pixel % columns * stride - padding)[:, None] + across[None, :]
    exists = (pixel < count)[:, None] & (value < patch.size)[None, :]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (channel < patch.channels)[None, :]
    image = (pixel // (rows * columns)).to(tl.int64)[:, None]
    place = ((image * height + row) * width + column) * patch.channels + channel[None, :]
    seen = tl.load(images + place, mask=exists & inside, other=0.0)
    target = pixel.to(tl.int64)[:, None] * patch.size + value[None, :]
    tl.store(patches + target, seen.to(patches.dtype.element_ty), mask=exists)


def patches(images: Tensor, side: int, stride: int, padding: int, values: int, dtype: torch.dtype) -> Tensor:
    """What every output pixel sees of images (B, H, W, C): (B, H', W', values), filled up with zeros."""
    count, height, width, channels = images.shape
    rows, columns = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
    found = torch.empty((count, rows, columns, values), device=images.device, dtype=dtype)
    pixels = count * rows * columns
    _patch_values[(triton.cdiv(pixels, _PIXELS),)](
        (images, found), height, width, rows, columns, pixels, (stride, padding), _patch(channels, side, values),
        num_warps=_WARPS,
    )  # fmt: skip
    return found


@triton.jit(do_not_specialize=["rows", "columns", "pixels"])
def _strided_gradient(
    places, rows, columns, pixels, shape, inputs: tl.constexpr, outputs: tl.constexpr, step: tl.constexpr
):
    gradients, weight, result = places
    kind = 3 - tl.program_id(1)  # those with most taps first: the last programs to end should be short ones
    odd_row, odd_column = kind // 2, kind % 2
    pixel = tl.program_id(0) * shape.tile + tl.arange(0, shape.tile)
    image, row, column = pixel // (rows * columns), pixel // columns % rows, pixel % columns
    channel, part = tl.arange(0, shape.block), tl.arange(0, step)
    total = tl.zeros((shape.tile, shape.block), tl.float32)
    taps = (1 + odd_row) * (1 + odd_column)
    for number in range(taps * (outputs // step)):
        tap, first = number // (outputs // step), number % (outputs // step) * step
        below, right = tap // (1 + odd_column), tap % (1 + odd_column)
        # Even rows have tap 1; odd ones have tap 2 of their own row and tap 0 of the row below.
        down, across = odd_row * (2 - 2 * below) + (1 - odd_row), odd_column * (2 - 2 * right) + (1 - odd_column)
        there = (pixel < pixels) & (row + below < rows) & (column + right < columns)
        place = ((image * rows + row + below) * columns + column + right).to(tl.int64) * outputs + first
        gradient = tl.load(gradients + place[:, None] + part[None, :], mask=there[:, None], other=0.0)
        own = ((first + part) * 9 + down * 3 + across) * inputs
        taken = tl.load(weight + own[:, None] + channel[None, :], mask=(channel < inputs)[None, :], other=0.0)
        total = tl.dot(gradient, taken, total)
    target = ((image * 2 * rows + 2 * row + odd_row) * 2 * columns + 2 * column + odd_column).to(tl.int64) * inputs
    mask = (pixel < pixels)[:, None] & (channel < inputs)[None, :]
    tl.store(result + target[:, None] + channel[None, :], total.to(result.dtype.element_ty), mask=mask)


def strided_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the input (B, C, 2H, 2W) from that of the output (B, O, H, W), all of them channels-last."""
    count, outputs, rows, columns = gradient.shape
    inputs = weight.shape[1]
    result = torch.empty((count, 2 * rows, 2 * columns, inputs), device=gradient.device, dtype=gradient.dtype)
    pixels = count * rows * columns
    _strided_gradient[(triton.cdiv(pixels, _GRADIENT_PIXELS), 4)](
        (gradient, weight, result), rows, columns, pixels, _shape(inputs), inputs=inputs, outputs=outputs, step=_STEP,
        num_warps=_GRADIENT_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return result.permute(0, 3, 1, 2)
