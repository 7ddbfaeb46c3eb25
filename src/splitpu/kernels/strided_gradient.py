"""Convolutions with stride 2, whose gradient cuDNN passes back slowly for some numbers of channels."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.kernels.trial import family, runs_on

_SLOW_CHANNELS = 96  # cuDNN takes four times as long for these as for 192, which it has a good kernel for
_ALIGNMENT = 32  # gradient channels that the kernel multiplies at a time


def slow_gradient(layer: nn.Conv2d, batch: Tensor) -> bool:
    """Whether the gradient of this layer's input should come from the kernel."""
    return (
        batch.requires_grad
        and layer.kernel_size == (3, 3)
        and layer.stride == (2, 2)
        and layer.padding == (1, 1)
        and max(layer.in_channels, layer.out_channels) <= _SLOW_CHANNELS
        and layer.out_channels % _ALIGNMENT == 0
        and layer.in_channels >= 16
        and batch.shape[2] % 2 == 0
        and batch.shape[3] % 2 == 0
        and batch.dtype == torch.bfloat16
        and batch.is_contiguous(memory_format=torch.channels_last)
        and runs_on(batch.device, "strided convolution")
    )


def strided_convolution(batch: Tensor, weight: Tensor) -> Tensor:
    """The convolution with stride 2 and padding 1, in the batch's precision."""
    output: Tensor = _Strided.apply(batch, weight)  # type: ignore[no-untyped-call]
    return output


class _Strided(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: Tensor, weight: Tensor) -> Tensor:
        half = weight.to(batch.dtype).contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(batch, half)
        ctx.dtype = weight.dtype
        return functional.conv2d(batch, half, stride=2, padding=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        from splitpu.kernels import strided_gradient_triton

        batch, half = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        return strided_gradient_triton.strided_gradient(gradient, half), _of_weight(gradient, batch, half).to(ctx.dtype)


def _of_weight(gradient: Tensor, batch: Tensor, weight: Tensor) -> Tensor:
    how = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups
    found: Tensor = torch.ops.aten.convolution_backward(gradient, batch, weight, None, *how, [False, True, False])[1]
    return found


@family("strided convolution")
def _attempt(device: torch.device) -> bool:
    from splitpu.kernels import strided_gradient_triton

    layout = torch.channels_last
    gradient, weight = (
        torch.arange(math.prod(shape), device=device).sin().view(shape).to(torch.bfloat16, memory_format=layout)
        for shape in ((2, 96, 4, 4), (96, 96, 3, 3))
    )
    found = strided_gradient_triton.strided_gradient(gradient, weight).float()
    expected = functional.conv_transpose2d(gradient.float(), weight.float(), stride=2, padding=1, output_padding=1)
    return bool((found - expected).abs().max() < 0.05 * expected.abs().max())
