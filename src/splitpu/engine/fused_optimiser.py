"""Adam, AdamW and SGD by torch's fused kernels, called directly.

They are what `torch.optim` calls, too. But its optimisers import torch's compiler when the first one is made, which no
step of ours uses: seconds at the start of every process.
"""

from collections import defaultdict
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig

_EPSILON = 1e-8  # torch's own for Adam


class Optimiser(Protocol):
    """What a step asks of an optimiser; those of `torch.optim` have it."""

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> Any:
        """Move every parameter that has a gradient."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Under "state", by the number of the parameter, its tensors by name."""


class FusedOptimiser:
    """One pass over all parameters; the rate is a number or, for a captured step to read, a tensor on the device."""

    def __init__(self, parameters: list[nn.Parameter], config: OptimiserConfig, rate: float | Tensor) -> None:
        self._config = config
        betas = (config.beta1, config.beta2)
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, "lr": rate, "betas": betas}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, which come as new tensors either way."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Only parameters that have been moved have a state."""
        parameters = self.param_groups[0]["params"]
        return {"state": {i: self.state[one] for i, one in enumerate(parameters) if one in self.state}}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        # The largest first: a GPU takes some dozens at a time, and each time as long as for the largest of them.
        for parameter in sorted(self.param_groups[0]["params"], key=lambda one: -one.numel()):
            if parameter.grad is not None:
                alike[parameter.device, parameter.dtype].append(parameter)
        for parameters in alike.values():
            if self._config.name == "sgd":
                self._sgd(parameters)
            else:
                self._adam(parameters)

    def _adam(self, parameters: list[Tensor]) -> None:
        config, (beta1, beta2) = self._config, self.param_groups[0]["betas"]
        states = [self._adam_state(parameter) for parameter in parameters]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        move = torch._fused_adamw_ if config.name == "adamw" else torch._fused_adam_
        move(
            parameters,
            _gradients(parameters),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=self.param_groups[0]["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=config.weight_decay,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _sgd(self, parameters: list[Tensor]) -> None:
        config, buffers = self._config, []
        if config.momentum:
            buffers = [self._momentum(parameter) for parameter in parameters]
        torch._fused_sgd_(
            parameters,
            _gradients(parameters),
            buffers,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            lr=self.param_groups[0]["lr"],
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,  # from a buffer of zeros the first step is no different
        )

    def _adam_state(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self.state:
            self.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self.state[parameter]

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state.setdefault(parameter, {"momentum_buffer": torch.zeros_like(parameter)})
        return state["momentum_buffer"]


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
