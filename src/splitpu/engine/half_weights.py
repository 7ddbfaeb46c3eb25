"""Half-precision copies of the weights that matrix units read, made by one kernel a step instead of one a layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from splitpu.engine.outputs import networks_in
from splitpu.networks.cnn import PlainCNN
from splitpu.networks.resnet import ResNet18

_KINDS = (nn.Conv2d, nn.Linear)  # what autocast runs in half precision, casting its weights one by one


class HalfWeights:
    """Stand-ins for the weights of our own networks during a step. What is computed is what autocast computes."""

    def __init__(self, module: nn.Module) -> None:
        self._places = [
            (layer, name)
            for network in networks_in(module)
            if isinstance(network, PlainCNN | ResNet18)  # a network of the user's may use its weights in any way
            for layer in network.modules()
            if type(layer) in _KINDS
            for name, weight in layer.named_parameters(recurse=False)
            if weight.requires_grad
        ]
        self._full: list[Tensor] = [layer.get_parameter(name) for layer, name in self._places]
        self._half: list[Tensor] = [nn.Parameter(weight.detach().to(torch.bfloat16)) for weight in self._full]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside the block the layers hold the copies; after it the gradients are where the optimiser looks."""
        with torch.no_grad():
            torch._foreach_copy_(self._half, self._full)
        self._put(self._half)
        try:
            yield
        finally:
            self._put(self._full)
        self._hand_over()

    def _put(self, weights: list[Tensor]) -> None:
        for (layer, name), weight in zip(self._places, weights, strict=True):
            layer._parameters[name] = cast(nn.Parameter, weight)

    @torch.no_grad()
    def _hand_over(self) -> None:
        pairs = [(full, half.grad) for full, half in zip(self._full, self._half, strict=True) if half.grad is not None]
        gradients: list[Tensor] = [torch.empty_like(full) for full, _ in pairs]
        if pairs:
            torch._foreach_copy_(gradients, [half for _, half in pairs])
        for (full, _), gradient in zip(pairs, gradients, strict=True):
            full.grad = gradient if full.grad is None else full.grad + gradient
        for half in self._half:
            half.grad = None
