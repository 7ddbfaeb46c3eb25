"""Batch normalisation, what may be added to it, and the ReLU behind it: read and written once instead of three times.

On a GPU these layers cost memory traffic only, and in a convolutional network as much time as half the convolutions.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.errors import SplitPUWarning
from splitpu.kernels.switch import kernels_allowed


def normalise(layer: nn.Module, batch: Tensor, *, added: Tensor | None = None, relu: bool = True) -> Tensor:
    """`relu(layer(batch) + added)`, in one kernel where the layer is a batch norm in training on a GPU."""
    if isinstance(layer, nn.BatchNorm2d) and _fused_applies(layer, batch, added):
        output: Tensor = _FusedNormalise.apply(  # type: ignore[no-untyped-call]
            batch, layer.weight, layer.bias, added, layer, relu
        )
        return output
    normalised: Tensor = layer(batch)
    if added is not None:
        normalised = normalised + added
    # In place where the tensor is certainly our own: a batch norm that was folded away hands its input through.
    own = added is not None or isinstance(layer, nn.BatchNorm2d)
    return functional.relu(normalised, inplace=own) if relu else normalised


def _fused_applies(layer: nn.BatchNorm2d, batch: Tensor, added: Tensor | None) -> bool:
    return (
        batch.is_cuda
        and layer.training
        and kernels_allowed(layer)
        and type(layer) is nn.BatchNorm2d  # among several processes the layer is of another class
        and layer.weight is not None
        and layer.running_mean is not None
        and layer.momentum is not None
        and batch.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and batch.is_contiguous(memory_format=torch.channels_last)
        and (added is None or _alike(batch, added))
        and not layer._forward_hooks
        and _kernels_work(batch.device)
    )


def _alike(batch: Tensor, added: Tensor) -> bool:
    same = batch.shape == added.shape and batch.dtype == added.dtype
    return same and added.is_contiguous(memory_format=torch.channels_last)


class _FusedNormalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, batch: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, layer: nn.BatchNorm2d, relu: bool
    ) -> Tensor:
        from splitpu.kernels import norm_relu_triton as kernels

        statistics = kernels.statistics(batch, layer)
        output = kernels.normalised(batch, statistics, added, relu)
        # With something added the sign before the ReLU cannot be had from the batch alone: the output tells it.
        ctx.save_for_backward(batch, output if added is not None and relu else None, statistics)
        ctx.relu, ctx.has_added = relu, added is not None
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        from splitpu.kernels import norm_relu_triton as kernels

        batch, output, statistics = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        sums = kernels.gradient_sums(batch, gradient, output, statistics, ctx.relu)
        for_batch, for_added = kernels.gradients(
            batch, gradient, output, statistics, sums, ctx.relu, with_added=ctx.has_added
        )
        return for_batch, sums[1], sums[0], for_added, None, None


@cache
def _kernels_work(device: torch.device) -> bool:
    """Try a tiny case once: the compiler behind the kernels may be missing, or too old for the device.

    A step is taken a few times before it is captured, so this never happens inside a capture.
    """
    layer, images = nn.BatchNorm2d(4).to(device), torch.randn(2, 4, 3, 3, device=device)
    images = images.to(memory_format=torch.channels_last)
    try:
        fused = _FusedNormalise.apply(images, layer.weight, layer.bias, None, layer, True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        expected = functional.relu(functional.batch_norm(images, None, None, training=True))
        return bool(torch.allclose(fused, expected, atol=1e-4))
    except Exception as error:  # whatever a compiler may raise: the plain layers are always there
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = (
            f"the fused batch-norm kernels do not run here ({reason}); torch's own layers are used, a little slower."
        )
        warnings.warn(message, SplitPUWarning, stacklevel=2)
        return False
