"""The kernel behind `views`, in Triton: one program an image, which is read once and written once.

It does what `splitpu.views` and `splitpu.augmentation` do to images, in their order; see there for what and why.
What is given to the kernel in tuples, and why sizes are not: see `batch_norm_triton`."""

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_WARPS, _PIXELS_A_WARP = 4, 512
_COLOURS = ("brightness", "contrast", "saturation", "hue")
_DRAWS = ("row_shift", "column_shift", "mirrored", "part", "factors", "chosen", "grey", "cut_row", "cut_column")
_CHANGES = ("row_shift", "mirrored", "part", "factors", "chosen", "grey", "cut_row")  # with a bit of `changes` each
_REAL = ("part", "factors", "chosen", "grey")  # draws that are no integers


class _Kind(NamedTuple):
    """What a kernel is compiled for."""

    channels: tl.constexpr
    brightens: tl.constexpr
    contrasts: tl.constexpr
    saturates: tl.constexpr
    turns_hue: tl.constexpr
    block: tl.constexpr


@triton.jit
def _in_unit_range(value):
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def _between(start, end, weight):
    return start + weight * (end - start)


@triton.jit
def _all_between(start, red, green, blue, weight):
    red, green, blue = _between(start, red, weight), _between(start, green, weight), _between(start, blue, weight)
    return _in_unit_range(red), _in_unit_range(green), _in_unit_range(blue)


@triton.jit
def _grey(red, green, blue):
    return red * 0.299 + green * 0.587 + blue * 0.114


@triton.jit
def _without_circles(angle):
    """The hue in sixths of the circle, from 0 to 6."""
    return angle - 6.0 * tl.floor(angle / 6.0)


@triton.jit
def _from_hue(hue, lead, value, chroma):
    position = _without_circles(hue + lead)
    return _in_unit_range(value - chroma * _in_unit_range(tl.minimum(position, 4.0 - position)))


@triton.jit
def _turned_hue(red, green, blue, turn):
    value = tl.maximum(tl.maximum(red, green), blue)
    chroma = value - tl.minimum(tl.minimum(red, green), blue)
    divisor = tl.where(chroma == 0.0, 1.0, chroma)
    near_green, near_blue = 2.0 + (blue - red) / divisor, 4.0 + (red - green) / divisor
    hue = tl.where(value == red, (green - blue) / divisor, tl.where(value == green, near_green, near_blue))
    hue += turn * 6.0
    return (_from_hue(hue, 5.0, value, chroma), _from_hue(hue, 3.0, value, chroma), _from_hue(hue, 1.0, value, chroma))


@triton.jit
def _mean_over(values, counted):
    """The mean of the pixels that count."""
    return tl.sum(tl.where(counted, values, 0.0), 0) / tl.sum(counted.to(tl.float32), 0)


@triton.jit
def _unit(raw, place, exists, offset, scale, beyond, resizes):
    """A pixel's value, where parts are enlarged between those of four pixels."""
    right, below, right_share, below_share = beyond
    value = tl.load(raw + place, mask=exists, other=0).to(tl.float32)
    if resizes != 0:
        beside = tl.load(raw + place + right, mask=exists, other=0).to(tl.float32)
        under = tl.load(raw + place + below, mask=exists, other=0).to(tl.float32)
        across = tl.load(raw + place + right + below, mask=exists, other=0).to(tl.float32)
        value = _between(_between(value, beside, right_share), _between(under, across, right_share), below_share)
    return (value - offset) * scale


@triton.jit
def _place_in_part(number, side, length, shift):
    """Where a row or column of the enlarged part lies in the image, kept inside it."""
    middle = (2.0 * number.to(tl.float32) + 1.0) / side - 1.0
    place = ((length * middle + shift + 1.0) * side - 1.0) * 0.5
    return tl.minimum(tl.maximum(place, 0.0), side - 1.0)


@triton.jit
def _put(output, place, channel, unit, exists, visible, mean, inverse_std):
    normal = (unit - tl.load(mean + channel)) * tl.load(inverse_std + channel)
    tl.store(output + place + channel, tl.where(visible, normal, 0.0), mask=exists)


@triton.jit
def _factor(draws, drawn, image, number: tl.constexpr, numbers: tl.constexpr, strength, changed, usual: tl.constexpr):
    draw = tl.load(draws + image * numbers + number, mask=drawn != 0, other=0.5) * 2.0 - 1.0
    return usual + draw * changed * strength


# What differs between the views of one configuration is decided when the kernel runs, so that it is compiled once.
@triton.jit(do_not_specialize=["height", "width", "cut_side", "changes"])
def _view(images, drawn, strengths, height, width, cut_side, changes, kind):
    channels: tl.constexpr = kind.channels
    block: tl.constexpr = kind.block
    raw, output, mean, inverse_std = images
    row_shift, column_shift, mirrored, parts, draws, chosen, grey_draws, cut_row, cut_column = drawn
    offset, scale, brightness, contrast, saturation, hue, jitter_share, grey_share, smallest_part, log_ratio = strengths
    moves, flips, resizes, colours = changes & 1, changes & 2, changes & 4, changes & 8
    chooses, greys, cuts = changes & 16, changes & 32, changes & 64
    image = tl.program_id(0)
    pixel = tl.arange(0, block)
    exists = pixel < height * width
    row, column = pixel // width, pixel % width
    first = image.to(tl.int64) * height * width
    is_mirrored = tl.load(mirrored + image, mask=flips != 0, other=0) != 0
    seen_row = row + tl.load(row_shift + image, mask=moves != 0, other=0).to(tl.int32)
    seen_column = tl.where(is_mirrored, width - 1 - column, column)
    seen_column += tl.load(column_shift + image, mask=moves != 0, other=0).to(tl.int32)
    nearest_row = tl.minimum(tl.maximum(seen_row, 0), height - 1)
    nearest_column = tl.minimum(tl.maximum(seen_column, 0), width - 1)
    inside = exists & (nearest_row == seen_row) & (nearest_column == seen_column)
    right, below = pixel * 0, pixel * 0
    right_share, below_share = right.to(tl.float32), below.to(tl.float32)
    if resizes != 0:
        count = tl.num_programs(0)
        area = smallest_part + tl.load(parts + image) * (1.0 - smallest_part)
        ratio = tl.exp((2.0 * tl.load(parts + count + image) - 1.0) * log_ratio)
        part_width, part_height = tl.minimum(tl.sqrt(area * ratio), 1.0), tl.minimum(tl.sqrt(area / ratio), 1.0)
        to_the_right = (2.0 * tl.load(parts + 2 * count + image) - 1.0) * (1.0 - part_width)
        down_by = (2.0 * tl.load(parts + 3 * count + image) - 1.0) * (1.0 - part_height)
        at_column = _place_in_part(column, width, part_width, to_the_right)
        at_row = _place_in_part(row, height, part_height, down_by)
        nearest_row, nearest_column = at_row.to(tl.int32), at_column.to(tl.int32)
        right_share, below_share = at_column - nearest_column, at_row - nearest_row
        right = tl.where(nearest_column < width - 1, tl.where(is_mirrored, -channels, channels), 0)
        below = tl.where(nearest_row < height - 1, width * channels, 0)
        nearest_column = tl.where(is_mirrored, width - 1 - nearest_column, nearest_column)
    place = nearest_row * width + nearest_column
    down = row - tl.load(cut_row + image, mask=cuts != 0, other=0).to(tl.int32) + cut_side // 2
    across = column - tl.load(cut_column + image, mask=cuts != 0, other=0).to(tl.int32) + cut_side // 2
    cut = (down >= 0) & (down < cut_side) & (across >= 0) & (across < cut_side) & (cuts != 0)
    visible = inside & ~cut
    numbers: tl.constexpr = 4 if channels == 3 else 2
    changed = (tl.load(chosen + image, mask=chooses != 0, other=-1.0) < jitter_share).to(tl.float32)
    beyond = (right, below, right_share, below_share)
    source, target = (first + place) * channels, (first + pixel) * channels
    if channels == 3:
        red = _unit(raw, source, exists, offset, scale, beyond, resizes)
        green = _unit(raw, source + 1, exists, offset, scale, beyond, resizes)
        blue = _unit(raw, source + 2, exists, offset, scale, beyond, resizes)
        if colours != 0:
            if kind.brightens:
                factor = _factor(draws, colours, image, 0, numbers, brightness, changed, 1.0)
                red, green, blue = _all_between(0.0, red, green, blue, factor)
            if kind.contrasts:
                factor = _factor(draws, colours, image, 1, numbers, contrast, changed, 1.0)
                centre = _mean_over(_grey(red, green, blue), inside)
                red, green, blue = _all_between(centre, red, green, blue, factor)
            if kind.saturates:
                factor = _factor(draws, colours, image, 2, numbers, saturation, changed, 1.0)
                red, green, blue = _all_between(_grey(red, green, blue), red, green, blue, factor)
            if kind.turns_hue:
                turn = _factor(draws, colours, image, 3, numbers, hue, changed, 0.0)
                red, green, blue = _turned_hue(red, green, blue, turn)
        loses = tl.load(grey_draws + image, mask=greys != 0, other=2.0) < grey_share
        grey = _grey(red, green, blue)
        red, green, blue = tl.where(loses, grey, red), tl.where(loses, grey, green), tl.where(loses, grey, blue)
        _put(output, target, 0, red, exists, visible, mean, inverse_std)
        _put(output, target, 1, green, exists, visible, mean, inverse_std)
        _put(output, target, 2, blue, exists, visible, mean, inverse_std)
    else:
        light = _factor(draws, colours, image, 0, numbers, brightness, changed, 1.0) if kind.brightens else 1.0
        stretch = _factor(draws, colours, image, 1, numbers, contrast, changed, 1.0) if kind.contrasts else 1.0
        total = tl.zeros((block,), tl.float32)
        for channel in tl.static_range(channels):
            unit = _unit(raw, source + channel, exists, offset, scale, beyond, resizes)
            total += _in_unit_range(unit * light) if kind.brightens else unit
        centre = _mean_over(total / channels, inside)
        for channel in tl.static_range(channels):
            unit = _unit(raw, source + channel, exists, offset, scale, beyond, resizes)
            if colours != 0:
                if kind.brightens:
                    unit = _in_unit_range(unit * light)
                if kind.contrasts:
                    unit = _in_unit_range(_between(centre, unit, stretch))
            _put(output, target, channel, unit, exists, visible, mean, inverse_std)


@cache
def _nothing(device: torch.device) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=device)


@cache  # a launch is quicker with the tuple of the one before
def _kind(*known: int) -> _Kind:
    return _Kind(*map(tl.constexpr, known))


def view(
    raw: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    offset: float,
    scale: float,
    draws: dict[str, Tensor],
    strengths: dict[str, float],
) -> Tensor:
    """The images (B, H, W, C), changed as the draws say, normalised, in float32; see `splitpu.kernels.view_kernels`."""
    count, height, width, channels = raw.shape
    output = torch.empty(raw.shape, device=raw.device, dtype=torch.float32)
    block = triton.next_power_of_2(height * width)

    def of(name: str) -> Tensor:
        """What is not there is not read, but decides by its kind which kernel is compiled."""
        return draws[name] if name in draws else mean if name in _REAL else _nothing(raw.device)

    def strength(name: str) -> float:
        return float(strengths.get(name, 0.0))

    numbers = (
        float(offset), float(scale), *(strength(name) for name in _COLOURS),
        strength("jitter") if "chosen" in draws else 1.0, strength("grey"), strength("resized_crop"),
        math.log(strengths.get("sides_ratio", 1.0)),
    )  # fmt: skip
    _view[(count,)](
        (raw, output, mean, inverse_std), tuple(of(name) for name in _DRAWS), numbers,
        height, width, int(strengths.get("cut_side", 0)),
        sum(1 << bit for bit, name in enumerate(_CHANGES) if name in draws),
        _kind(channels, *(strength(name) > 0 for name in _COLOURS), block),
        num_warps=max(_WARPS, min(16, block // _PIXELS_A_WARP)),
    )  # fmt: skip
    return output
