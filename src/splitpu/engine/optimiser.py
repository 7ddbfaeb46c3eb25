"""Moving weights: optimisers, the rate over time, and the running average of weights.

Torch's fused kernels are called directly, because `torch.optim` imports torch's compiler: seconds of every start."""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig

_EPSILON = 1e-8  # torch's own for Adam


class FusedOptimiser:
    """One pass over all parameters; the rate is a number or, for a captured step to read, a tensor on the device."""

    def __init__(self, parameters: list[nn.Parameter], config: OptimiserConfig, rate: float | Tensor) -> None:
        self._config, betas = config, (config.beta1, config.beta2)
        # What is remembered of a parameter.
        self._names = ("momentum_buffer",) if config.name == "sgd" else ("step", "exp_avg", "exp_avg_sq")
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, "lr": rate, "betas": betas}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, which come as new tensors either way."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Under "state" the tensors of every parameter that has been moved, by its number and their names."""
        parameters = self.param_groups[0]["params"]
        return {"state": {i: self.state[one] for i, one in enumerate(parameters) if one in self.state}}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        alike: dict[tuple[torch.device, torch.dtype], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        # The largest first: a GPU takes some dozens at a time, and each time as long as for the largest of them.
        for parameter in sorted(self.param_groups[0]["params"], key=lambda one: -one.numel()):
            if parameter.grad is not None:
                alike[parameter.device, parameter.dtype].append((parameter, parameter.grad.to(parameter.dtype)))
        config, group = self._config, self.param_groups[0]
        how = {"lr": group["lr"], "weight_decay": config.weight_decay, "maximize": False}
        for pairs in alike.values():
            parameters, gradients = (list(some) for some in zip(*pairs, strict=True))
            moved, by = _as_real(parameters), _as_real(gradients)
            if config.name == "sgd":
                (buffers,) = self._states(parameters) if config.momentum else ([],)
                how |= {"momentum": config.momentum, "dampening": 0.0, "nesterov": False}
                # From a buffer of zeros the first step is no different.
                torch._fused_sgd_(moved, by, _as_real(buffers), **how, is_first_step=False)
            else:
                steps, means, squares = self._states(parameters)
                torch._foreach_add_(steps, 1)
                beta1, beta2 = group["betas"]
                how |= {"beta1": beta1, "beta2": beta2, "eps": _EPSILON, "amsgrad": False}
                move = torch._fused_adamw_ if config.name == "adamw" else torch._fused_adam_
                move(moved, by, _as_real(means), _as_real(squares), [], steps, **how)
            for parameter in parameters:
                torch.autograd.graph.increment_version(parameter)  # which torch's fused kernels leave out

    def prepare(self) -> None:
        """Remember zeros of every parameter, as a first step would, so that a checkpoint can be copied in."""
        if self._config.name != "sgd" or self._config.momentum:
            self._states(self.param_groups[0]["params"])

    def _states(self, parameters: list[Tensor]) -> list[list[Tensor]]:
        """What is remembered of every parameter, name by name; from the first time on, zeros."""
        for one in parameters:
            if one not in self.state:
                step = torch.zeros((), dtype=torch.float32, device=one.device)
                self.state[one] = {name: step if name == "step" else torch.zeros_like(one) for name in self._names}
        return [[self.state[one][name] for one in parameters] for name in self._names]


def _as_real(tensors: list[Tensor]) -> list[Tensor]:
    """The same memory; complex weights, for which there are no fused kernels, are two numbers each."""
    return [torch.view_as_real(one) if one.is_complex() else one for one in tensors]


def build_optimiser(module: nn.Module, config: OptimiserConfig, device: torch.device) -> FusedOptimiser:
    """Make the optimiser; on a GPU with its rate in a device tensor, so that a captured step can read it."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    rate: float | Tensor = torch.tensor(config.rate, device=device) if device.type == "cuda" else config.rate
    return FusedOptimiser(parameters, config, rate)


def rate_at(config: OptimiserConfig, step: int, steps: int) -> float:
    """The rate at one step of a stage that takes `steps` of them, counted from 0."""
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
