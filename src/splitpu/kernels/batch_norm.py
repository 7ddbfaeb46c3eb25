"""Batch normalisation, what may be added to it, and the ReLU behind it: read and written once instead of three times.

On a GPU these layers cost memory traffic only, and in a convolutional network as much time as half the convolutions."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitpu.kernels.dispatch import family, kernels_allowed, runs_on, triton_kernels

_kernels = partial(triton_kernels, "batch_norm")


def normalise(layer: nn.Module, batch: Tensor, *, added: Tensor | None = None, relu: bool = True) -> Tensor:
    """`relu(layer(batch) + added)`, on a GPU in one kernel: in training, and where nothing is to be learned."""
    normalised: Tensor
    if isinstance(layer, nn.BatchNorm2d) and _fused_applies(layer, batch, added):
        if layer.training:
            given = (batch, layer.weight, layer.bias, added, layer, relu)
            normalised = _FusedNormalise.apply(*given)  # type: ignore[no-untyped-call]
        else:
            normalised = _kernels().normalised_by_running(batch, layer, added, relu)
        return normalised
    normalised = layer(batch)
    if added is not None:
        normalised = normalised + added
    # In place where the tensor is certainly our own: a batch norm that was folded away hands its input through.
    own = added is not None or isinstance(layer, nn.BatchNorm2d)
    return functional.relu(normalised, inplace=own) if relu else normalised


def _fused_applies(layer: nn.BatchNorm2d, batch: Tensor, added: Tensor | None) -> bool:
    families = ("batch-norm", "batch-norm gradient") if layer.training else ("batch-norm outside training",)
    return (
        batch.is_cuda
        and (layer.training or not torch.is_grad_enabled())
        and kernels_allowed(layer)
        and type(layer) is nn.BatchNorm2d  # among several processes the layer is of another class
        and layer.weight is not None
        and layer.running_mean is not None
        and layer.momentum is not None
        and batch.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and batch.is_contiguous(memory_format=torch.channels_last)
        and (added is None or (batch.shape, batch.dtype) == (added.shape, added.dtype))
        and (added is None or added.is_contiguous(memory_format=torch.channels_last))
        and not layer._forward_hooks
        and all(runs_on(batch.device, family) for family in families)
    )


class _FusedNormalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, batch: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, layer: nn.BatchNorm2d, relu: bool
    ) -> Any:
        statistics = _kernels().statistics(batch, layer)
        output = _kernels().normalised(batch, statistics, added, relu)
        # With something added the sign before the ReLU cannot be had from the batch alone: the output tells it.
        ctx.save_for_backward(batch, output if added is not None and relu else None, statistics)
        ctx.relu, ctx.has_added = relu, added is not None
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        kernels = _kernels()
        batch, output, statistics = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        sums = kernels.gradient_sums(batch, gradient, output, statistics, ctx.relu)
        for_batch, for_added = kernels.gradients(
            batch, gradient, output, statistics, sums, ctx.relu, with_added=ctx.has_added
        )
        return for_batch, sums[1], sums[0], for_added, None, None


@family("batch-norm")
def _attempt(device: torch.device) -> bool:
    kernels, layer, images = _kernels(), nn.BatchNorm2d(128).to(device), _some_images(device)
    output = kernels.normalised(images, kernels.statistics(images, layer), None, relu=True)
    expected = functional.relu(functional.batch_norm(images.float(), None, None, training=True))
    return torch.allclose(output.float(), expected, atol=2e-2, rtol=1e-2)


@family("batch-norm outside training")
def _attempt_outside_training(device: torch.device) -> bool:
    layer, images = nn.BatchNorm2d(128).to(device), _some_images(device)  # which changes nothing
    output = _kernels().normalised_by_running(images, layer, None, relu=True)
    return torch.allclose(output.float(), functional.relu(images.float()), atol=1e-2)


@family("batch-norm gradient")
def _attempt_gradient(device: torch.device) -> bool:
    """With the statistics of a layer that changes nothing: a gradient of 1 adds up to the pixels above zero."""
    kernels, images = _kernels(), _some_images(device)
    statistics = torch.tensor([[0.0], [1.0], [1.0], [0.0]], device=device).expand(4, 128).contiguous()
    sums = kernels.gradient_sums(images, torch.ones_like(images), None, statistics, relu=True)
    gradient, _ = kernels.gradients(
        images, torch.ones_like(images), None, statistics, torch.zeros_like(sums), relu=True, with_added=False
    )
    passed = (images > 0).float()
    return torch.equal(sums[0], passed.sum(dim=(0, 2, 3))) and torch.equal(gradient.float(), passed)


def _some_images(device: torch.device) -> Tensor:
    images = torch.arange(4.0 * 128 * 64, device=device).sin().view(4, 128, 8, 8)
    return images.to(torch.bfloat16, memory_format=torch.channels_last)
