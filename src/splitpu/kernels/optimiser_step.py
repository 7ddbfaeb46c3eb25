"""Adam, AdamW and plain SGD for all weights of a network in one kernel that keeps a whole GPU busy.

Torch's own give 65,536 weights to each program: too few programs for a network of some million weights. Gradients may
be in half precision here, and copies of weights in half precision are made on the way: neither needs a pass of its own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splitpu.kernels.dispatch import family, lie_alike, runs_on

BLOCK = 1024  # weights that a program moves: some thousand programs, so that all of a GPU is busy to the end
_ALIGNMENT = 16  # bytes, for blocks that are whole: these are read four values at a time
_MOST_WEIGHTS = 2**31 - 2**16  # of a tensor: places in it are counted in 32 bits


class Rule(NamedTuple):
    """How weights follow their gradients. Without an epsilon they follow the gradient itself, as in plain SGD."""

    weight_decay: float = 0.0
    decoupled: bool = False  # the decay, as in AdamW; else it is a part of the gradient
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float | None = None


class Moved(NamedTuple):
    """Weights and what moves them: a gradient, and for Adam the step's number and averages of gradients and squares.

    A copy of the weights in half precision is kept equal to them.
    """

    weight: Tensor
    gradient: Tensor
    step: Tensor | None = None
    mean: Tensor | None = None
    square: Tensor | None = None
    copy: Tensor | None = None


def weights_can_be_moved_on(device: torch.device) -> bool:
    """Whether the kernels run there. It may wait for a compiler, so it is to be asked where a step begins."""
    return device.type == "cuda" and runs_on(device, "optimiser")


def can_be_moved(weight: Tensor, gradient: Tensor) -> bool:
    """Whether the kernels are made for these two."""
    return (
        weight.dtype == torch.float32
        and gradient.dtype in (torch.float32, torch.bfloat16)
        and 0 < weight.numel() < _MOST_WEIGHTS
        and weight.device == gradient.device
        and weight.data_ptr() % _ALIGNMENT == 0
        and lie_alike(weight, gradient)
    )


class WeightMover:
    """Moves weights by a rule, and remembers where they lie: the device is told of it once, not in every step.

    What it has told is never forgotten, because a captured step may be reading it.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._tables: dict[tuple[int, ...], Any]  # the kernels' Table, which only a GPU can import = {}

    def move(self, all_moved: Sequence[Moved], rate: float | Tensor) -> None:
        """Move all of them, which must be `can_be_moved`; what has a step is one step further then."""
        from splitpu.kernels.optimiser_step_triton import Table

        device = all_moved[0].weight.device
        key = tuple(number for moved in all_moved for number in _whereabouts(moved))
        if key not in self._tables:
            self._tables[key] = Table(key, self._rule.epsilon is not None, device)
        rate = rate if isinstance(rate, Tensor) else torch.full((), rate, device=device, dtype=torch.float32)
        self._tables[key].move([_aligned(moved.gradient) for moved in all_moved], rate, self._rule)


def _aligned(gradient: Tensor) -> Tensor:
    """Most are new tensors, which are; a part of another one may not be."""
    lies_well = gradient.data_ptr() % _ALIGNMENT == 0 or gradient.numel() < BLOCK
    return gradient if lies_well else gradient.clone()


def _whereabouts(moved: Moved) -> tuple[int, ...]:
    """What the table says of these weights: addresses of all but the gradient, their number, its precision."""
    weight, gradient, *others = moved
    addresses = (0 if tensor is None else tensor.data_ptr() for tensor in (weight, *others))
    return *addresses, weight.numel(), int(gradient.dtype == torch.bfloat16)


@family("optimiser")
def _attempt(device: torch.device) -> bool:
    """A first step of Adam goes as far as the rate, whatever the gradient; one of SGD goes by both."""
    rate, ways = torch.full((), 0.5, device=device), torch.ones(1100, device=device)
    ways[::2] = -1.0
    for rule, distance in ((Rule(beta1=0.9, beta2=0.999, epsilon=1e-8), 0.5), (Rule(), 1.0)):
        weights = [torch.zeros(1100, device=device) for _ in range(2)]
        gradients, copy = [2.0 * ways, (2.0 * ways).bfloat16()], ways.bfloat16()
        moved = [
            Moved(weight, gradient, torch.zeros((), device=device), weight.clone(), weight.clone(), copied)
            for weight, gradient, copied in zip(weights, gradients, (None, copy), strict=True)
        ]
        WeightMover(rule).move(moved, rate)
        if not all(torch.allclose(weight, -distance * ways, rtol=1e-5) for weight in weights):
            return False
        if not torch.allclose(copy.float(), -distance * ways, rtol=1e-2):
            return False
    return True
