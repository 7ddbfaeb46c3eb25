"""Weights in half precision, all of a network's in one kernel, and their gradients back in another.

Autocast casts the weights of every layer by themselves, and autograd every gradient: some thirty kernels a step, each
shorter than the pause before it. What is computed here is what autocast computes, to the last bit. An optimiser that
takes gradients in half precision saves the way back, too.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from splitpu.engine.outputs import called_through
from splitpu.kernels import is_thin
from splitpu.networks.backbone import Backbone
from splitpu.networks.ensemble import Ensemble

_KINDS = (nn.Conv2d, nn.Linear)  # what autocast runs in half precision
_HALF, _FULL = torch.bfloat16, torch.float32

_Place = tuple[nn.Module, str]  # a layer and the name of one of its weights
_Takes = Callable[[Tensor, Tensor], bool]  # whether a weight's gradient in half precision has found its user


def _never(weight: Tensor, half_gradient: Tensor) -> bool:
    return False


class HalfWeights:
    """How networks and heads of our own are called so that their weights are cast at once.

    At every call, not once a step: gradients of two calls are then added up in full precision, as they always were.
    A network of the user's may do anything with its weights, and is left alone. `takes` is offered every gradient, and
    autograd gets those that it leaves.
    """

    def __init__(self, module: nn.Module, takes: _Takes = _never) -> None:
        self._places = {part: _places(part) for part in _own_parts(module)}
        self._takes = takes

    def active(self) -> AbstractContextManager[None]:
        """Inside the block every call goes this way; outside it the layers are as if nothing had ever been done."""
        return called_through(self._places, self._with_half_weights)

    def _with_half_weights(self, part: nn.Module, whole: Callable[..., Any]) -> Callable[..., Any]:
        return partial(_called_with_half_weights, whole, self._places[part], self._takes)


def _own_parts(module: nn.Module) -> list[nn.Module]:
    """What can be called as a whole: networks that agree to it, and heads beside them."""
    if isinstance(module, Backbone) and not isinstance(module, Ensemble):
        return [module] if module.reads_weights_when_called else []
    if isinstance(module, nn.Sequential):
        return [module]
    return [part for child in module.children() for part in _own_parts(child)]


def _places(part: nn.Module) -> list[_Place]:
    return [
        (layer, name)
        for layer in part.modules()
        # Not a class derived from them, and not where the weights are cast on the way into a matrix product anyway.
        if type(layer) in _KINDS and not (isinstance(layer, nn.Conv2d) and is_thin(layer))
        for name, weight in layer.named_parameters(recurse=False)
        if weight.requires_grad and weight.dtype == _FULL
    ]


def _called_with_half_weights(whole: Callable[..., Any], places: list[_Place], takes: _Takes, *given: Any) -> Any:
    weights = [layer._parameters[name] for layer, name in places]
    halves: tuple[Tensor, ...] = _Halved.apply(takes, *weights) if weights else ()  # type: ignore[no-untyped-call]
    with _in_place_of(places, halves):
        return whole(*given)


@contextmanager
def _in_place_of(places: list[_Place], halves: tuple[Tensor, ...]) -> Iterator[None]:
    """Inside the block the layers hold the copies, and find them under the names of their weights."""
    before = [layer._parameters[name] for layer, name in places]
    try:
        for (layer, name), half in zip(places, halves, strict=True):
            layer._parameters[name] = cast(nn.Parameter, half)
        yield
    finally:
        for (layer, name), weight in zip(places, before, strict=True):
            layer._parameters[name] = weight


class _Halved(torch.autograd.Function):
    """All weights in half precision. A copy lies in memory as its original does: only so they are one kernel."""

    @staticmethod
    def forward(ctx: Any, takes: _Takes, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that no loss depends on gets no gradient
        ctx.takes, ctx.weights = takes, weights
        return tuple(_copied(weights, _HALF))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        pairs = zip(ctx.weights, gradients, strict=True)
        left = [None if half is None or ctx.takes(weight, half) else half for weight, half in pairs]
        copies = iter(_copied([gradient for gradient in left if gradient is not None], _FULL))
        return None, *(None if gradient is None else next(copies) for gradient in left)


def _copied(tensors: tuple[Tensor, ...] | list[Tensor], kind: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=kind) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, tensors)
    return copies
