"""What the student's features cost: read once instead of a dozen times. Defined in `splitpu.losses`."""

from typing import Any

import torch
from torch import Tensor, nn

from splitpu.kernels.layout import layout_of, lie_alike
from splitpu.kernels.switch import kernels_allowed
from splitpu.kernels.trial import family, runs_on

_LONGEST_VECTOR = 8192  # that one program holds
_KINDS = (torch.bfloat16, torch.float16, torch.float32)


def fused_consistency_applies(module: nn.Module, *features: Tensor) -> bool:
    """Whether terms of these features may come from the kernels."""
    first = features[0]
    return (
        first.is_cuda
        and kernels_allowed(module)
        and all(one.dtype in _KINDS and one.numel() > 0 for one in features)
        and runs_on(first.device, "consistency")
    )


def low_level_term(low: Tensor, teacher: Tensor, *, own_gradient: bool) -> Tensor | None:
    """The mean squared difference of the last rows of `low` from the teacher's features; None where they lie apart.

    `own_gradient` promises that the gradient which reaches `low` from elsewhere belongs to nobody else. Then this
    term's is added to it in place; else a gradient of all rows has to be made and added, most of it zeros.
    """
    tail = low.detach()[len(low) - len(teacher) :]
    if not lie_alike(tail, teacher):
        return None
    left: list[Tensor] | None = [] if own_gradient and low.requires_grad else None
    term: Tensor = _LowLevel.apply(low, teacher, left)  # type: ignore[no-untyped-call]
    if left is not None:
        low.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: _with_what_was_left(gradient, tail, teacher, left)
        )
    return term


def feature_term(predicted: Tensor, features: Tensor) -> Tensor | None:
    """The SimSiam agreement of both halves of a batch with one another; None for vectors that are too long."""
    if predicted.ndim != 2 or predicted.shape != features.shape or predicted.shape[1] > _LONGEST_VECTOR:
        return None
    term: Tensor = _Feature.apply(predicted.contiguous(), features.detach().contiguous())  # type: ignore[no-untyped-call]
    return term


class _LowLevel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, low: Tensor, teacher: Tensor, left: list[Tensor] | None) -> Tensor:
        from splitpu.kernels import consistency_triton as kernels

        tail = low[len(low) - len(teacher) :]
        ctx.save_for_backward(low, teacher)
        ctx.left = left
        return kernels.mean_squared_difference(tail, teacher)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        from splitpu.kernels import consistency_triton as kernels

        low, teacher = ctx.saved_tensors
        if ctx.left is not None:
            ctx.left.append(gradients[0])  # for the hook, which runs when all gradients of `low` have come together
            return None, None, None
        whole = torch.empty_like(low)  # in the layout of `low`
        first = len(low) - len(teacher)
        whole[:first].zero_()
        kernels.difference_gradient(low[first:], teacher, gradients[0], whole[first:], adds=False)
        return whole, None, None


class _Feature(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, predicted: Tensor, features: Tensor) -> Tensor:
        from splitpu.kernels import consistency_triton as kernels

        term, slopes = kernels.negative_cosines(predicted, features)
        ctx.save_for_backward(slopes)
        return term

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0], None


def _with_what_was_left(gradient: Tensor, tail: Tensor, teacher: Tensor, left: list[Tensor]) -> Tensor | None:
    """The gradient of the whole batch with that of its last rows."""
    from splitpu.kernels import consistency_triton as kernels

    if not left:
        return None
    upstream, first = left.pop(), len(gradient) - len(tail)
    if not lie_alike(gradient[first:], tail):
        gradient = torch.empty_like(gradient, memory_format=layout_of(tail)).copy_(gradient)
    kernels.difference_gradient(tail, teacher, upstream, gradient[first:], adds=True)
    return gradient


@family("consistency")
def _attempt(device: torch.device) -> bool:
    from splitpu.kernels import consistency_triton as kernels

    ones, zeros = (torch.full((2, 4), value, device=device, dtype=torch.bfloat16) for value in (1.0, 0.0))
    term, gradient = kernels.mean_squared_difference(ones, zeros), torch.ones_like(ones)
    kernels.difference_gradient(ones, zeros, term, gradient, adds=True)
    feature, slopes = kernels.negative_cosines(ones, ones)
    found = torch.stack([term, feature, gradient.float().mean(), slopes.float().abs().max()]).tolist()
    return all(abs(one - other) < 1e-2 for one, other in zip(found, [1.0, -1.0, 1.25, 0.0], strict=True))
