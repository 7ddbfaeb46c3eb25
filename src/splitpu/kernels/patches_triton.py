"""The kernel behind the patches of `thin_convolution`, in Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS, _WARPS = 128, 4  # of a program; half as many pixels take twice as long


@triton.jit(do_not_specialize=["height", "width", "rows", "columns", "count"])
def _patch_values(
    images, patches, height, width, rows, columns, count, stride, padding,
    channels: tl.constexpr, side: tl.constexpr, values: tl.constexpr, block: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * tile + tl.arange(0, tile)
    value = tl.arange(0, block)
    channel, down, across = value // (side * side), value // side % side, value % side
    row = (pixel // columns % rows * stride - padding)[:, None] + down[None, :]
    column = (pixel % columns * stride - padding)[:, None] + across[None, :]
    exists = (pixel < count)[:, None] & (value < values)[None, :]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (channel < channels)[None, :]
    image = (pixel // (rows * columns)).to(tl.int64)[:, None]
    place = ((image * height + row) * width + column) * channels + channel[None, :]
    seen = tl.load(images + place, mask=exists & inside, other=0.0)
    target = pixel.to(tl.int64)[:, None] * values + value[None, :]
    tl.store(patches + target, seen.to(patches.dtype.element_ty), mask=exists)


def patches(images: Tensor, side: int, stride: int, padding: int, values: int, dtype: torch.dtype) -> Tensor:
    """What every output pixel sees of images (B, H, W, C): (B, H', W', values), filled up with zeros."""
    count, height, width, channels = images.shape
    rows, columns = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
    found = torch.empty((count, rows, columns, values), device=images.device, dtype=dtype)
    pixels = count * rows * columns
    _patch_values[(triton.cdiv(pixels, _PIXELS),)](
        images, found, height, width, rows, columns, pixels, stride, padding,
        channels=channels, side=side, values=values, block=triton.next_power_of_2(values), tile=_PIXELS,
        num_warps=_WARPS,
    )  # fmt: skip
    return found
