"""Weights in half precision, all of a network's in one kernel, and their gradients back in another.

Autocast casts the weights of every layer by themselves, and autograd every gradient: some thirty kernels a step, each
shorter than the pause before it. What is computed here is what autocast computes, to the last bit. Where the optimiser
takes gradients in half precision and keeps the copies up to date, both kernels are saved, too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from splitpu.engine.data_parallel import called_through
from splitpu.engine.optimiser import FusedOptimiser
from splitpu.kernels.convolution import is_thin
from splitpu.networks.backbones import Backbone, Ensemble

_KINDS = (nn.Conv2d, nn.Linear)  # what autocast runs in half precision
_HALF, _FULL = torch.bfloat16, torch.float32

_Place = tuple[nn.Module, str]  # a layer and the name of one of its weights


class HalfCopies:
    """Copies of weights, which are made again when a weight has changed.

    Torch counts what its operations change. A kernel of our own, which it knows nothing of, has to change the copies as
    well; so they can be had `by_weight`. A captured step that finds all copies up to date remembers no copying, because
    the step before it ended so, and then every replay does.
    """

    def __init__(self) -> None:
        self.by_weight: dict[Tensor, Tensor] = {}
        self._versions: dict[Tensor, int] = {}

    def of(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """The copies of these, all that have to be made at once."""
        changed = [weight for weight in weights if self._versions.get(weight) != weight._version]
        for weight in changed:
            if weight not in self.by_weight:
                self.by_weight[weight] = torch.empty_like(weight, dtype=_HALF)
        if changed:
            torch._foreach_copy_([self.by_weight[weight] for weight in changed], changed)
        self._versions.update((weight, weight._version) for weight in changed)
        return [self.by_weight[weight] for weight in weights]

    def refresh(self) -> None:
        """Make sure that all copies that there are equal their weights."""
        with torch.no_grad():
            self.of(list(self.by_weight))


class HalfWeights:
    """How networks and heads of our own are called so that their weights are cast at once.

    Every call has gradients of its own: those of two calls are then added up in full precision, as they always were.
    A network of the user's may do anything with its weights, and is left alone. An optimiser is offered every gradient,
    and autograd gets those that it leaves.
    """

    def __init__(self, module: nn.Module, optimiser: FusedOptimiser | None = None) -> None:
        self._places = {part: _places(part) for part in _own_parts(module)}
        self._optimiser, self.copies = optimiser, HalfCopies()
        if optimiser is not None:
            optimiser.half_copies = self.copies.by_weight

    def active(self) -> AbstractContextManager[None]:
        """Inside the block every call goes this way; outside it the layers are as if nothing had ever been done."""
        return called_through(self._places, self._with_half_weights)

    def _with_half_weights(self, part: nn.Module, whole: Callable[..., Any]) -> Callable[..., Any]:
        return partial(self._called, whole, self._places[part])

    def _called(self, whole: Callable[..., Any], places: list[_Place], *given: Any) -> Any:
        weights = [layer._parameters[name] for layer, name in places]
        if not weights:
            return whole(*given)
        # An optimiser of another kind may change weights without torch's counters: no copy is kept for the next call.
        copies = HalfCopies() if self._optimiser is None else self.copies
        halves = _Halved.apply(copies, self._optimiser, *weights)  # type: ignore[no-untyped-call]
        with _in_place_of(places, halves):
            return whole(*given)


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
    def forward(ctx: Any, copies: HalfCopies, optimiser: FusedOptimiser | None, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that no loss depends on gets no gradient
        ctx.optimiser, ctx.weights = optimiser, weights
        return tuple(copy.view_as(copy) for copy in copies.of(weights))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        left = [
            None if half is None or (ctx.optimiser is not None and ctx.optimiser.takes(weight, half)) else half
            for weight, half in zip(ctx.weights, gradients, strict=True)
        ]
        wanted = [half for half in left if half is not None]
        full = [torch.empty_like(half, dtype=_FULL) for half in wanted]
        if full:
            torch._foreach_copy_(full, wanted)
        each = iter(full)
        return None, None, *(None if half is None else next(each) for half in left)
