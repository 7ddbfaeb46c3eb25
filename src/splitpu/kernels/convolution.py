"""Convolutions that the libraries are slow at: with stride 2, whose gradient cuDNN passes back slowly for some numbers
of channels, and with very few channels on one side, which leave a GPU's matrix units nearly empty: as matrix products.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.kernels.dispatch import family, kernels_allowed, runs_on, triton_kernels

_kernels = partial(triton_kernels, "convolution")

_SLOW_CHANNELS = 96  # cuDNN takes four times as long for these as for 192, which it has a good kernel for
_GRADIENT_ALIGNMENT = 32  # gradient channels that the kernel multiplies at a time
_MOST_PATCH_VALUES = 64  # beyond this, patches need more memory traffic than they save
_ALIGNMENT = 8  # values: rows of a half-precision matrix must start at multiples of 16 bytes
_PARTS = 64  # the weight's gradient is a sum over all pixels: in parts, which run side by side


def slow_gradient(layer: nn.Conv2d, batch: Tensor) -> bool:
    """Whether the gradient of this layer's input should come from the kernel."""
    return (
        batch.requires_grad
        and (layer.kernel_size, layer.stride, layer.padding) == ((3, 3), (2, 2), (1, 1))
        and max(layer.in_channels, layer.out_channels) <= _SLOW_CHANNELS
        and layer.out_channels % _GRADIENT_ALIGNMENT == 0
        and layer.in_channels >= 16
        and all(side % 2 == 0 for side in batch.shape[2:])
        and batch.dtype == torch.bfloat16
        and batch.is_contiguous(memory_format=torch.channels_last)
        and runs_on(batch.device, "strided convolution")
    )


class _Strided(torch.autograd.Function):
    """The convolution with stride 2 and padding 1, in the batch's precision."""

    @staticmethod
    def forward(ctx: Any, batch: Tensor, weight: Tensor) -> Tensor:
        half = weight.to(batch.dtype).contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(batch, half)
        ctx.dtype = weight.dtype
        return functional.conv2d(batch, half, stride=2, padding=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        batch, half = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        how = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, its padding, groups
        backward = torch.ops.aten.convolution_backward
        of_weight = backward(gradient, batch, half, None, *how, [False, True, False])[1]
        return _kernels().strided_gradient(gradient, half), of_weight.to(ctx.dtype)


@family("strided convolution")
def _attempt_gradient(device: torch.device) -> bool:
    layout = torch.channels_last
    gradient, weight = (
        torch.arange(math.prod(shape), device=device).sin().view(shape).to(torch.bfloat16, memory_format=layout)
        for shape in ((2, 96, 4, 4), (96, 96, 3, 3))
    )
    found = _kernels().strided_gradient(gradient, weight).float()
    expected = functional.conv_transpose2d(gradient.float(), weight.float(), stride=2, padding=1, output_padding=1)
    return bool((found - expected).abs().max() < 0.05 * expected.abs().max())


def convolve(layer: nn.Conv2d, batch: Tensor) -> Tensor:
    """The layer's output, as a matrix product where that is faster: in half precision on a GPU, with few channels."""
    output: Tensor
    if batch.is_cuda and kernels_allowed(layer) and torch.is_autocast_enabled("cuda") and _is_plain(layer):
        if slow_gradient(layer, batch):
            output = _Strided.apply(batch, layer.weight)  # type: ignore[no-untyped-call]
            return output
        single = (layer.kernel_size, layer.stride, layer.padding) == ((1, 1), (1, 1), (0, 0))
        few_outputs = single and layer.out_channels % _ALIGNMENT != 0
        few_inputs = layer.weight[0].numel() <= _MOST_PATCH_VALUES
        if few_outputs or (few_inputs and not batch.requires_grad):
            stride, padding = layer.stride[0], int(layer.padding[0])
            with torch.autocast("cuda", enabled=False):
                return matrix_convolution(batch, layer.weight, stride, padding, torch.get_autocast_dtype("cuda"))
    output = layer(batch)
    return output


def matrix_convolution(
    batch: Tensor, weight: Tensor, stride: int, padding: int, dtype: torch.dtype | None = None
) -> Tensor:
    """The convolution of (B, C, H, W) with a square weight (O, C, K, K), in this precision or in the batch's."""
    side, dtype = weight.shape[-1], dtype or batch.dtype
    # Only for images: a gradient does not find its way through the kernel.
    by_kernel = batch.is_cuda and not batch.requires_grad and batch.permute(0, 2, 3, 1).is_contiguous()
    if side == 1 and stride == 1:
        pixels = batch.to(dtype).permute(0, 2, 3, 1)
    elif by_kernel and runs_on(batch.device, "patch"):
        pixels = fused_patches(batch, side, stride, padding, dtype)
    else:
        pixels = _patches(batch.to(dtype), side, stride, padding)
    product: Tensor = _RowProduct.apply(pixels.flatten(0, 2), weight)  # type: ignore[no-untyped-call]
    return product.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


def _is_plain(layer: nn.Conv2d) -> bool:
    """Square, without anything special."""
    usual = (layer.padding_mode, layer.dilation, layer.groups, layer.bias) == ("zeros", (1, 1), 1, None)
    sides = (layer.kernel_size, layer.stride, layer.padding)
    return usual and not layer._forward_hooks and all(not isinstance(s, str) and s[0] == s[1] for s in sides)


class _RowProduct(torch.autograd.Function):
    """`rows @ weight.flatten(1).T` for a great many rows, which may have more columns than that, filled with zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        outputs, inputs = len(weight), weight[0].numel()
        if _lack(outputs) == 0 and inputs == rows.shape[1]:
            matrix = weight.to(rows.dtype).flatten(1)
        else:  # the weight of every output in a row, filled up with zeros: all of it in one copy
            shape = outputs + _lack(outputs), rows.shape[1]
            matrix = torch.zeros(shape, device=weight.device, dtype=rows.dtype)
            matrix[:outputs, :inputs].view(weight.shape).copy_(weight)
        ctx.save_for_backward(rows, matrix)
        ctx.weight_shape, ctx.weight_dtype = weight.shape, weight.dtype
        return (rows @ matrix.T)[:, :outputs].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows, matrix = ctx.saved_tensors
        outputs, inputs = ctx.weight_shape[0], ctx.weight_shape[1:].numel()
        gradient = functional.pad(gradients[0], (0, _lack(outputs))) if _lack(outputs) else gradients[0]
        for_rows = gradient @ matrix if ctx.needs_input_grad[0] else None
        parts = next(parts for parts in range(min(_PARTS, len(rows)), 0, -1) if len(rows) % parts == 0)
        per_part = torch.bmm(gradient.view(parts, -1, len(matrix)).transpose(1, 2), rows.view(parts, -1, rows.shape[1]))
        for_weight = per_part.sum(0, dtype=torch.float32)[:outputs, :inputs]
        return for_rows, for_weight.to(ctx.weight_dtype).view(ctx.weight_shape)


def _lack(count: int) -> int:
    return -count % _ALIGNMENT


def fused_patches(batch: Tensor, side: int, stride: int, padding: int, dtype: torch.dtype) -> Tensor:
    """What `_patches` gives, in one kernel."""
    values = batch.shape[1] * side * side
    made: Tensor = _kernels().patches(batch.permute(0, 2, 3, 1), side, stride, padding, values + _lack(values), dtype)
    return made


@family("patch")
def _attempt(device: torch.device) -> bool:
    images = torch.arange(24.0, device=device).view(1, 4, 2, 3).permute(0, 3, 1, 2)
    how = {"side": 3, "stride": 1, "padding": 1}
    return torch.equal(fused_patches(images, dtype=torch.bfloat16, **how), _patches(images.bfloat16(), **how))


def _patches(batch: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """What every output pixel sees, (B, H, W, C*K*K), padded with zeros to a multiple of the alignment."""
    padded = functional.pad(batch, (padding, padding, padding, padding))
    seen = padded.unfold(2, side, stride).unfold(3, side, stride)  # (B, C, H, W, K, K), nothing copied yet
    count, channels, height, width = seen.shape[:4]
    values = channels * side * side
    patches = seen.new_zeros(count, height, width, values + _lack(values))
    by_tap = patches[..., :values].view(count, height, width, channels, side, side)
    by_tap.copy_(seen.permute(0, 2, 3, 1, 4, 5))
    return patches
