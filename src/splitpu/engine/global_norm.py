"""Batch normalisation over the rows of all processes, so that several of them compute what one would.

Torch has this for GPUs (`SyncBatchNorm`), which is used there; this is for the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from splitpu.engine.world import World


class _GlobalNormalise(torch.autograd.Function):
    """Normalise with statistics that depend on the rows of all processes; the backward pass knows that they do."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, count: Tensor, layer: Any
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, mean, variance, count)
        ctx.layer = layer
        return functional.batch_norm(rows, mean, variance, weight, bias, training=False, eps=layer.eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        rows, weight, mean, variance, count = ctx.saved_tensors
        layer, gradient = ctx.layer, gradients[0]
        direct, for_weight, for_bias = _with_constant_statistics(gradient, rows, weight, mean, variance, layer.eps)
        sums = layer.world.add_up(torch.stack([for_weight, for_bias]).to(mean)) / count
        # What mean and variance pass on to every row; linear in the row, so two numbers a channel are enough.
        inverse = torch.rsqrt(variance + layer.eps)
        slope = -weight * inverse * inverse * sums[0]
        shift = -weight * inverse * sums[1] - slope * mean
        for_rows = direct + torch.addcmul(_along(shift, rows), rows, _along(slope, rows))
        return for_rows.to(rows.dtype), for_weight, for_bias, None, None, None, None


def _with_constant_statistics(
    gradient: Tensor, rows: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rows, weight and bias; the latter two are also the sums over our own rows that others need."""
    if not len(rows):  # fewer rows than processes: torch would divide by their number, which ends the process
        return torch.zeros_like(rows), torch.zeros_like(weight), torch.zeros_like(weight)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
        gradient, rows, weight, mean, variance, None, None, False, eps, [True, True, True]
    )
    return found


class GlobalBatchNorm(_BatchNorm):
    """A batch-norm layer whose statistics in training are those of the rows of all processes."""

    world: World

    def forward(self, input: Tensor) -> Tensor:
        """Normalise; outside training as any batch-norm layer does."""
        if not self.training:
            return super().forward(input)
        count, mean, squares = self._statistics(input)
        variance = squares / count
        self._remember(count, mean, squares)
        weight = torch.ones_like(mean) if self.weight is None else self.weight
        bias = torch.zeros_like(mean) if self.bias is None else self.bias
        normalised: Tensor = _GlobalNormalise.apply(  # type: ignore[no-untyped-call]
            input, weight, bias, mean, variance, count, self
        )
        return normalised

    def _check_input_dim(self, input: Tensor) -> None:
        """Any shape with the channels second; the layer this one stands in for has been asked at the dry run."""

    @torch.no_grad()
    def _statistics(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Number of values a channel, their mean, and the sum of squared distances from it, over all processes."""
        dims = [dim for dim in range(rows.dim()) if dim != 1]
        exact = torch.promote_types(rows.dtype, torch.float32)  # half precision is too coarse for sums
        values = rows.numel() // rows.shape[1]
        if values:
            variance, mean = torch.var_mean(rows.to(exact), dims, correction=0)
        else:  # fewer rows than processes
            variance = mean = torch.zeros(rows.shape[1], dtype=exact, device=rows.device)
        counts = torch.full_like(mean, values)
        parts = self.world.gather(torch.stack([counts, mean, variance])[None], self.world.size)
        counts, means, variances = parts[:, 0], parts[:, 1], parts[:, 2]
        count = counts.sum(0)
        mean = (counts * means).sum(0) / count
        # Within and between the parts: as exact as two passes, in one exchange.
        squares = (counts * (variances + (means - mean) ** 2)).sum(0)
        return count, mean, squares

    @torch.no_grad()
    def _remember(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        momentum = 1.0 / float(self.num_batches_tracked or 1) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(squares / (count - 1), momentum)


@contextmanager
def global_batch_norms(module: nn.Module, world: World) -> Iterator[None]:
    """Inside the block the module's batch-norm layers count the rows of all processes.

    Only the class of a layer changes: weights, statistics, names and whoever holds the layer stay as they are.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    before = [layer.__class__ for layer in layers]
    try:
        for layer in layers:
            on_gpu = layer.weight is not None and layer.weight.is_cuda
            layer.__class__ = nn.SyncBatchNorm if on_gpu else GlobalBatchNorm
            layer.__dict__.update(process_group=None, world=world)  # None: all processes
        yield
    finally:
        for layer, kind in zip(layers, before, strict=True):
            layer.__class__ = kind
            for name in ("process_group", "world"):
                layer.__dict__.pop(name, None)


def _along(channels: Tensor, rows: Tensor) -> Tensor:
    return channels.view(1, -1, *(1 for _ in range(rows.dim() - 2)))
