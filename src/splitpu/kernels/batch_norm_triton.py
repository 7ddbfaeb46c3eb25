"""Batch norm with ReLU on a GPU: the kernels, and which of them run over which parts of a batch.

A channels-last batch is a matrix of pixels by channels. Several pixels are put side by side into one row, so that a row
is a whole number of blocks of 128 values whatever the number of channels is: "columns" below are those of such rows,
and a column's channel is its number modulo the channels.

Statistics are per channel. Every program adds up some rows, a second kernel adds up the programs; all sums are in
float32 and around the first pixel's value, so that a mean far from zero does not swallow the variance. Sums run through
the batch backwards and what uses them runs forwards: each begins with what the kernel before it, a convolution or the
sums, has touched last and left in the cache.

Of all sizes only the width is compiled in: vectors of several values want it as a multiple of theirs, and every further
variant would have to be compiled at the start of a run.

Kernels are given tuples: tensors in one, numbers in another, what is known when they are compiled in a named one. For
every pattern of ones and multiples of 16 among integers in a tuple Triton makes a kernel of its own, whatever
`do_not_specialize` says, so sizes stay outside; its interpreter takes no booleans there before 3.9. A tensor that is
not there is None, which is known when a kernel is compiled. No field can be called `values` or `type`: Triton's tuples
have attributes of these names."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_SIZES = ["rows", "channels", "pixels", "parts"]
_COLUMNS = 128  # values of a row that a program takes: sixteen loads of eight
_SUM_ROWS, _SUM_UNROLL, _SUM_WARPS = 8, 8, 4  # few accumulators, many loads in flight
_APPLY_ROWS, _APPLY_WARPS = 32, 4
_PROGRAMS = 528  # four a multiprocessor on the largest GPUs; more have more to add up afterwards
_FINISH_ROWS, _FINISH_CHANNELS, _FINISH_WARPS = 512, 8, 8


class _Tile(NamedTuple):
    """What a program takes at a time."""

    rows: tl.constexpr
    columns: tl.constexpr
    unroll: tl.constexpr = tl.constexpr(1)


class _Layer(NamedTuple):
    """What only training needs is not given outside it: unused, it would still change how the rest is loaded."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_variance: Tensor
    batches: Tensor | None
    momentum: float | None
    epsilon: float


class _Forward(NamedTuple):
    batch: Tensor
    added: Tensor | None
    output: Tensor


class _Backward(NamedTuple):
    """Without an output the ReLU is worked out again; the sums are those of every program while they are added up."""

    gradients: Tensor
    batch: Tensor
    output: Tensor | None
    statistics: Tensor
    sums: Tensor
    for_batch: Tensor | None = None
    for_added: Tensor | None = None


@triton.jit
def _columns(width, columns: tl.constexpr):
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    return column, column < width


@triton.jit
def _channel_numbers(statistics, number: tl.constexpr, column, exists, channels):
    """One of the four numbers a channel has, for every column."""
    return tl.load(statistics + number * channels + column % channels, mask=exists, other=0.0)


@triton.jit
def _all_channel_numbers(statistics, column, exists, channels):
    """Mean, inverse deviation, scale and shift, for every column."""
    mean = _channel_numbers(statistics, 0, column, exists, channels)
    inverse = _channel_numbers(statistics, 1, column, exists, channels)
    scale = _channel_numbers(statistics, 2, column, exists, channels)
    shift = _channel_numbers(statistics, 3, column, exists, channels)
    return mean, inverse, scale, shift


@triton.jit
def _tile(start, rows, width, column, exists, tile_rows: tl.constexpr):
    """Offsets of a tile, and which of them exist."""
    row = start + tl.arange(0, tile_rows)
    return row[:, None].to(tl.int64) * width + column[None, :], (row < rows)[:, None] & exists[None, :]


@triton.jit
def _loaded(values, offsets, mask, whole: tl.constexpr):
    """In float32; without a look at the mask where the batch is a whole number of tiles, which is faster."""
    if whole:
        return tl.load(values + offsets).to(tl.float32)
    else:
        return tl.load(values + offsets, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _store_sums(partial, first, second, width, column, exists):
    place = partial + tl.program_id(0) * width + column
    tl.store(place, tl.sum(first, 0), mask=exists)
    tl.store(place + tl.num_programs(0) * width, tl.sum(second, 0), mask=exists)


@triton.jit(do_not_specialize=_SIZES)
def _add_up_values(values, partial, rows, width, channels, tile, whole: tl.constexpr):
    column, exists = _columns(width, tile.columns)
    origin = tl.load(values + column % channels, mask=exists, other=0.0).to(tl.float32)
    total = tl.zeros((tile.rows, tile.columns), tl.float32)
    squares = tl.zeros((tile.rows, tile.columns), tl.float32)
    tiles = tl.cdiv(rows, tile.rows * tile.unroll)
    for number in range(tl.program_id(0), tiles, tl.num_programs(0)):
        start = (tiles - 1 - number) * tile.rows * tile.unroll
        for part in tl.static_range(tile.unroll):
            offsets, mask = _tile(start + part * tile.rows, rows, width, column, exists, tile.rows)
            distance = _loaded(values, offsets, mask, whole) - origin[None, :]
            if not whole:
                distance = tl.where(mask, distance, 0.0)
            total += distance
            squares += distance * distance
    _store_sums(partial, total, squares, width, column, exists)


@triton.jit
def _added_up(partial, parts, channel, channels, block: tl.constexpr, width: tl.constexpr):
    """The sum over all parts of (parts, channels). One at a time: two of them in one loop are slower."""
    total = tl.zeros((block, width), tl.float32)
    for start in range(0, parts, block):
        part = start + tl.arange(0, block)
        mask = (part < parts)[:, None] & (channel < channels)[None, :]
        total += tl.load(partial + part[:, None] * channels + channel[None, :], mask=mask, other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=_SIZES)
def _finish_statistics(values, partial, statistics, layer, pixels, channels, parts, tile):
    channel = tl.program_id(0) * tile.columns + tl.arange(0, tile.columns)
    exists = channel < channels
    distance = _added_up(partial, parts, channel, channels, tile.rows, tile.columns) / pixels
    squares = _added_up(partial + parts * channels, parts, channel, channels, tile.rows, tile.columns) / pixels
    variance = tl.maximum(squares - distance * distance, 0.0)
    mean = tl.load(values + channel, mask=exists, other=0.0).to(tl.float32) + distance
    inverse = 1.0 / tl.sqrt(variance + layer.epsilon)
    scale = tl.load(layer.weight + channel, mask=exists, other=0.0) * inverse
    shift = tl.load(layer.bias + channel, mask=exists, other=0.0) - mean * scale
    tl.store(statistics + channel, mean, mask=exists)
    tl.store(statistics + channels + channel, inverse, mask=exists)
    tl.store(statistics + 2 * channels + channel, scale, mask=exists)
    tl.store(statistics + 3 * channels + channel, shift, mask=exists)
    old_mean = tl.load(layer.running_mean + channel, mask=exists, other=0.0)
    old_variance = tl.load(layer.running_variance + channel, mask=exists, other=0.0)
    unbiased = variance * (pixels / tl.maximum(pixels - 1.0, 1.0))
    new_variance = old_variance + layer.momentum * (unbiased - old_variance)
    tl.store(layer.running_mean + channel, old_mean + layer.momentum * (mean - old_mean), mask=exists)
    tl.store(layer.running_variance + channel, new_variance, mask=exists)
    if tl.program_id(0) == 0:
        tl.store(layer.batches, tl.load(layer.batches) + 1)


@triton.jit
def _with_scale(forward, scale, shift, offsets, mask, relu: tl.constexpr):
    result = tl.load(forward.batch + offsets, mask=mask, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if forward.added is not None:
        result += tl.load(forward.added + offsets, mask=mask, other=0.0).to(tl.float32)
    if relu:
        result = tl.maximum(result, 0.0)
    tl.store(forward.output + offsets, result.to(forward.output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=_SIZES)
def _apply(forward, statistics, rows, width, channels, relu: tl.constexpr, tile):
    column, exists = _columns(width, tile.columns)
    scale = _channel_numbers(statistics, 2, column, exists, channels)
    shift = _channel_numbers(statistics, 3, column, exists, channels)
    offsets, mask = _tile(tl.program_id(0) * tile.rows, rows, width, column, exists, tile.rows)
    _with_scale(forward, scale, shift, offsets, mask, relu)


@triton.jit(do_not_specialize=_SIZES)
def _apply_known(forward, layer, rows, width, channels, relu: tl.constexpr, tile):
    column, exists = _columns(width, tile.columns)
    inverse = 1.0 / tl.sqrt(_channel_numbers(layer.running_variance, 0, column, exists, channels) + layer.epsilon)
    scale = _channel_numbers(layer.weight, 0, column, exists, channels) * inverse
    shift = _channel_numbers(layer.bias, 0, column, exists, channels)
    shift -= _channel_numbers(layer.running_mean, 0, column, exists, channels) * scale
    offsets, mask = _tile(tl.program_id(0) * tile.rows, rows, width, column, exists, tile.rows)
    _with_scale(forward, scale, shift, offsets, mask, relu)


@triton.jit
def _behind_relu(backward, scale, shift, offsets, mask, relu: tl.constexpr, whole: tl.constexpr):
    """The gradient in front of the ReLU, and the values it belongs to."""
    gradient = _loaded(backward.gradients, offsets, mask, whole)
    value = _loaded(backward.batch, offsets, mask, whole)
    if relu:
        if backward.output is not None:
            passed = _loaded(backward.output, offsets, mask, whole) > 0.0
        else:
            passed = value * scale[None, :] + shift[None, :] > 0.0
        gradient = tl.where(passed, gradient, 0.0)
    return gradient, value


@triton.jit(do_not_specialize=_SIZES)
def _add_up_gradients(backward, rows, width, channels, relu: tl.constexpr, tile, whole: tl.constexpr):
    column, exists = _columns(width, tile.columns)
    mean, inverse, scale, shift = _all_channel_numbers(backward.statistics, column, exists, channels)
    total = tl.zeros((tile.rows, tile.columns), tl.float32)
    along = tl.zeros((tile.rows, tile.columns), tl.float32)
    tiles = tl.cdiv(rows, tile.rows * tile.unroll)
    for number in range(tl.program_id(0), tiles, tl.num_programs(0)):
        start = (tiles - 1 - number) * tile.rows * tile.unroll
        for part in tl.static_range(tile.unroll):
            offsets, mask = _tile(start + part * tile.rows, rows, width, column, exists, tile.rows)
            gradient, value = _behind_relu(backward, scale, shift, offsets, mask, relu, whole)
            total += gradient
            along += gradient * (value - mean[None, :])
    _store_sums(backward.sums, total, along * inverse[None, :], width, column, exists)


@triton.jit(do_not_specialize=_SIZES)
def _finish_gradient_sums(partial, sums, channels, parts, tile):
    channel = tl.program_id(0) * tile.columns + tl.arange(0, tile.columns)
    exists = channel < channels
    total = _added_up(partial, parts, channel, channels, tile.rows, tile.columns)
    along = _added_up(partial + parts * channels, parts, channel, channels, tile.rows, tile.columns)
    tl.store(sums + channel, total, mask=exists)
    tl.store(sums + channels + channel, along, mask=exists)


@triton.jit(do_not_specialize=_SIZES)
def _apply_gradients(backward, pixels, rows, width, channels, relu: tl.constexpr, tile):
    column, exists = _columns(width, tile.columns)
    mean, inverse, scale, shift = _all_channel_numbers(backward.statistics, column, exists, channels)
    mean_gradient = _channel_numbers(backward.sums, 0, column, exists, channels) / pixels
    slope = _channel_numbers(backward.sums, 1, column, exists, channels) * inverse / pixels
    offsets, mask = _tile(tl.program_id(0) * tile.rows, rows, width, column, exists, tile.rows)
    gradient, value = _behind_relu(backward, scale, shift, offsets, mask, relu, False)
    result = scale[None, :] * (gradient - mean_gradient[None, :] - (value - mean[None, :]) * slope[None, :])
    tl.store(backward.for_batch + offsets, result.to(backward.for_batch.dtype.element_ty), mask=mask)
    if backward.for_added is not None:
        tl.store(backward.for_added + offsets, gradient.to(backward.for_added.dtype.element_ty), mask=mask)


class _Layout:
    """A channels-last batch as the kernels see it."""

    def __init__(self, batch: Tensor) -> None:
        self.channels = batch.shape[1]
        self.pixels = batch.numel() // self.channels
        wanted = _COLUMNS // math.gcd(self.channels, _COLUMNS)
        self.folded = math.gcd(self.pixels, wanted)  # pixels side by side in a row
        self.rows, self.width = self.pixels // self.folded, self.folded * self.channels
        self.column_blocks = triton.cdiv(self.width, _COLUMNS)
        self.sizes = (self.rows, self.width, self.channels)
        self.whole = self.rows % (_SUM_ROWS * _SUM_UNROLL) == 0 and self.width % _COLUMNS == 0
        row_programs = triton.cdiv(self.rows, _SUM_ROWS * _SUM_UNROLL)
        self.sum_programs = min(row_programs, max(1, _PROGRAMS // self.column_blocks))
        self.sum_grid = (self.sum_programs, self.column_blocks)
        self.apply_grid = (triton.cdiv(self.rows, _APPLY_ROWS), self.column_blocks)
        self.finish_grid = (triton.cdiv(self.channels, _FINISH_CHANNELS),)
        self.parts = self.sum_programs * self.folded  # partial sums a channel has: of every program and pixel of a row

    def partial_sums(self, device: torch.device) -> Tensor:
        return torch.empty((2, self.sum_programs, self.width), device=device, dtype=torch.float32)


def _launch(warps: int, *sizes: int) -> dict[str, object]:
    return {"tile": _Tile(*(tl.constexpr(size) for size in sizes)), "num_warps": warps}


_SUM = _launch(_SUM_WARPS, _SUM_ROWS, _COLUMNS, _SUM_UNROLL)
_APPLY = _launch(_APPLY_WARPS, _APPLY_ROWS, _COLUMNS)
_FINISH = _launch(_FINISH_WARPS, _FINISH_ROWS, _FINISH_CHANNELS)


def _given(layer: nn.BatchNorm2d, *, training: bool) -> _Layer:
    moving = (layer.num_batches_tracked, layer.momentum) if training else (None, None)
    return _Layer(layer.weight, layer.bias, layer.running_mean, layer.running_var, *moving, layer.eps)


def statistics(batch: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """Mean, inverse deviation, scale and shift of every channel, (4, C); the layer's running statistics move on."""
    layout = _Layout(batch)
    partial = layout.partial_sums(batch.device)
    _add_up_values[layout.sum_grid](batch, partial, *layout.sizes, whole=layout.whole, **_SUM)
    found = torch.empty((4, layout.channels), device=batch.device, dtype=torch.float32)
    _finish_statistics[layout.finish_grid](
        batch, partial, found, _given(layer, training=True), layout.pixels, layout.channels, layout.parts, **_FINISH
    )
    return found


def normalised(batch: Tensor, found: Tensor, added: Tensor | None, relu: bool) -> Tensor:
    """The layer's output, with something added to it and the ReLU behind it where asked for."""
    layout, output = _Layout(batch), torch.empty_like(batch)
    _apply[layout.apply_grid](_Forward(batch, added, output), found, *layout.sizes, relu=relu, **_APPLY)
    return output


def normalised_by_running(batch: Tensor, layer: nn.BatchNorm2d, added: Tensor | None, relu: bool) -> Tensor:
    """The same outside training, by the layer's running statistics."""
    layout, output = _Layout(batch), torch.empty_like(batch)
    known = _given(layer, training=False)
    _apply_known[layout.apply_grid](_Forward(batch, added, output), known, *layout.sizes, relu=relu, **_APPLY)
    return output


def gradient_sums(batch: Tensor, gradient: Tensor, output: Tensor | None, found: Tensor, relu: bool) -> Tensor:
    """The gradients of bias and weight, (2, C), which those of the values depend on."""
    layout = _Layout(batch)
    partial = layout.partial_sums(batch.device)
    backward = _Backward(gradient, batch, output, found, partial)
    _add_up_gradients[layout.sum_grid](backward, *layout.sizes, relu=relu, whole=layout.whole, **_SUM)
    sums = torch.empty((2, layout.channels), device=batch.device, dtype=torch.float32)
    _finish_gradient_sums[layout.finish_grid](partial, sums, layout.channels, layout.parts, **_FINISH)
    return sums


def gradients(
    batch: Tensor, gradient: Tensor, output: Tensor | None, found: Tensor, sums: Tensor, relu: bool, *, with_added: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the values and of what was added."""
    layout, for_batch = _Layout(batch), torch.empty_like(batch)
    for_added = torch.empty_like(batch) if with_added else None
    backward = _Backward(gradient, batch, output, found, sums, for_batch, for_added)
    _apply_gradients[layout.apply_grid](backward, layout.pixels, *layout.sizes, relu=relu, **_APPLY)
    return for_batch, for_added
