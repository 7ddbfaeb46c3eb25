"""Moving weights: optimisers, the rate over time, and the running average of weights."""

import math

import torch
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig
from splitpu.engine.fused_optimiser import FusedOptimiser, Optimiser
from splitpu.kernels import kernels_allowed


def build_optimiser(module: nn.Module, config: OptimiserConfig, device: torch.device) -> Optimiser:
    """Make the optimiser, fused; on a GPU with its rate in a device tensor, so that a captured step can read it."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    on_gpu = device.type == "cuda"
    rate: float | Tensor = torch.tensor(config.rate, device=device) if on_gpu else config.rate
    if all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters):
        return FusedOptimiser(parameters, config, rate, kernels=kernels_allowed(module))
    # What has no fused kernel takes torch's usual way.
    decay = config.weight_decay
    if config.name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=config.momentum)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(parameters, lr=rate, betas=(config.beta1, config.beta2), weight_decay=decay, capturable=on_gpu)


def rate_at(config: OptimiserConfig, step: int, steps: int) -> float:
    """The rate at one step of a stage that takes `steps` of them, counted from 0.

    >>> rate_at(OptimiserConfig(rate=1.0), 0, 100), round(rate_at(OptimiserConfig(rate=1.0), 50, 100), 3)
    (1.0, 0.5)
    >>> halving = OptimiserConfig(rate=1.0, schedule="halving", halvings=2.5)
    >>> [rate_at(halving, step, 100) for step in (39, 40, 79, 80)]
    [1.0, 0.5, 0.5, 0.25]
    >>> [rate_at(OptimiserConfig(rate=1.0, schedule="constant", warmup=0.1), step, 15) for step in (0, 1)]
    [0.66..., 1.0]
    """
    warmup = config.warmup * steps
    if step < warmup:
        return config.rate * min(1.0, (step + 1) / warmup)
    if config.schedule == "constant":
        return config.rate
    progress = (step - warmup) / max(1.0, steps - warmup)
    if config.schedule == "halving":
        # The small number makes up for rounding: a halving that is due at this step must not wait for the next.
        return config.rate * 0.5 ** math.floor(progress * config.halvings + 1e-9)
    return config.rate * 0.5 * (1 + math.cos(math.pi * progress))


def average_weight_at(decay: float, step: int) -> float:
    """How far a step moves the average towards the new weights: far at first, so that the start is soon forgotten."""
    return max(1 - decay, 9 / (10 + step))


class WeightAverage:
    """An exponential average of a module's parameters, updated inside the step."""

    def __init__(self, module: nn.Module) -> None:
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        self._live: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        self.values = [p.detach().clone() for p in self._live]

    @torch.no_grad()
    def update(self, weight: Tensor) -> None:
        """Move the average by `weight` of its distance to the live parameters."""
        if weight.device.type == "cpu":  # here reading the number costs nothing, and one pass replaces three
            torch._foreach_lerp_(self.values, self._live, float(weight))
            return
        difference = torch._foreach_sub(self._live, self.values)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(self.values, difference)

    @torch.no_grad()
    def copy_into_module(self) -> None:
        """Make the average the module's weights. Batch-norm statistics no longer fit: recompute them."""
        torch._foreach_copy_(self._live, self.values)


def batch_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Every batch-norm layer that keeps running statistics."""
    kind = nn.modules.batchnorm._BatchNorm
    return [m for m in module.modules() if isinstance(m, kind) and m.track_running_stats]
