"""A convolution whose weight gradient is computed beside the rest of the backward pass.

On the way back only the gradient of a layer's input is waited for; that of its weights is needed by the optimiser, much
later. On a stream of its own it fills the matrix units while batch norms, which only move memory, are at work.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_MOST_WAITING = 2  # layers; what their gradients are computed from cannot be freed before


def convolve_with_side_gradient(batch: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """The convolution of (B, C, H, W) with a leaf weight (O, C, K, K), in the batch's precision.

    The weight's gradient is in `weight.grad` when `backward` returns; `torch.autograd.grad` does not see it.
    """
    output: Tensor = _SideGradientConvolution.apply(batch, weight, stride, padding)  # type: ignore[no-untyped-call]
    return output


@dataclass(frozen=True)
class _Waiting:
    """A weight gradient that is being computed, and what must stay in memory until it is."""

    weight: Tensor
    gradient: Tensor
    done: torch.cuda.Event
    inputs: tuple[Tensor, ...]


class _Side:
    """The stream beside one stream, and the gradients that are under way on it."""

    def __init__(self, main: torch.cuda.Stream) -> None:
        self.main = main
        self.stream = torch.cuda.Stream(main.device)  # type: ignore[no-untyped-call]
        self.waiting: deque[_Waiting] = deque()
        self.will_finish = False

    def begin(self, weight: Tensor, gradient: Tensor, inputs: tuple[Tensor, ...]) -> None:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(self.stream)
        self.waiting.append(_Waiting(weight, gradient, done, inputs))
        while len(self.waiting) > _MOST_WAITING:
            self._finish_first()
        if not self.will_finish:
            self.will_finish = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish_all)

    def _finish_first(self) -> None:
        first = self.waiting.popleft()
        self.main.wait_event(first.done)
        with torch.cuda.stream(self.main):
            added = first.gradient if first.weight.grad is None else first.weight.grad + first.gradient
        first.weight.grad = added

    def _finish_all(self) -> None:
        while self.waiting:
            self._finish_first()
        self.will_finish = False


_SIDES: dict[tuple[int, int], _Side] = {}


def _side_of(main: torch.cuda.Stream) -> _Side:
    key = (main.device_index, main.cuda_stream)
    if key not in _SIDES:
        _SIDES[key] = _Side(main)
    return _SIDES[key]


class _SideGradientConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        used = weight.to(batch.dtype)
        ctx.save_for_backward(batch, used)
        ctx.weight, ctx.steps = weight, ([stride, stride], [padding, padding], [1, 1], False, [0, 0], 1)
        output: Tensor = torch.ops.aten.convolution(batch, used, None, *ctx.steps)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        batch, used = ctx.saved_tensors
        gradient = gradients[0]

        def back(of_batch: bool) -> Tensor:
            wanted = [of_batch, not of_batch, False]
            found: list[Tensor] = torch.ops.aten.convolution_backward(gradient, batch, used, None, *ctx.steps, wanted)
            return found[0] if of_batch else found[1]

        side = _side_of(torch.cuda.current_stream(gradient.device))
        side.stream.wait_stream(side.main)
        with torch.cuda.stream(side.stream):
            for_weight = back(of_batch=False).to(ctx.weight.dtype)
        side.begin(ctx.weight, for_weight, (gradient, batch, used))
        return back(of_batch=True) if ctx.needs_input_grad[0] else None, None, None, None
