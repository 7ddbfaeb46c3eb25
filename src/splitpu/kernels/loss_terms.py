"""Terms of the loss, as `splitpu.losses` defines them: features read once, all terms of logits in one kernel.

In torch's own operations they are two hundred kernels, each shorter than the pause before it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.kernels.dispatch import family, kernels_allowed, lie_alike, runs_on, triton_kernels
from splitpu.losses import PURisk

_LONGEST_VECTOR = 8192  # that one program holds
_KINDS = (torch.bfloat16, torch.float16, torch.float32)
_Counts = tuple[int, int, int]


_kernels = partial(triton_kernels, "loss_terms")
_MOST_LOGITS = 4096  # that one program holds


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
    """The mean squared difference of the last rows of `low` from the teacher's features; None where they lie apart."""
    # `own_gradient` promises that the gradient which reaches `low` from elsewhere belongs to nobody else. Then this
    # term's is added to it in place; else a gradient of all rows has to be made and added, most of it zeros.
    tail = low.detach()[len(low) - len(teacher) :]
    if not lie_alike(tail, teacher):
        return None
    left: list[Tensor] = []

    def with_what_was_left(gradient: Tensor) -> Tensor | None:
        """The gradient of the whole batch with that of its last rows."""
        if not left:
            return None
        upstream, first = left.pop(), len(gradient) - len(tail)
        if not lie_alike(gradient[first:], tail):
            layout = torch.contiguous_format if tail.is_contiguous() else torch.channels_last
            gradient = torch.empty_like(gradient, memory_format=layout).copy_(gradient)
        _kernels().difference_gradient(tail, teacher, upstream, gradient[first:], adds=True)
        return gradient

    adds = own_gradient and low.requires_grad
    term: Tensor = _LowLevel.apply(low, teacher, left if adds else None)  # type: ignore[no-untyped-call]
    if adds:
        low.register_hook(with_what_was_left)  # type: ignore[no-untyped-call]
    return term


def feature_term(predicted: Tensor, features: Tensor) -> Tensor | None:
    """The SimSiam agreement of both halves of a batch with one another; None for vectors that are too long."""
    if predicted.ndim != 2 or predicted.shape != features.shape or predicted.shape[1] > _LONGEST_VECTOR:
        return None

    def computed(vectors: Tensor) -> tuple[list[Tensor], Tensor]:
        term, slopes = _kernels().negative_cosines(vectors, features.detach().contiguous())
        return [term], slopes

    term: Tensor = _WithSlopes.apply(predicted.contiguous(), computed)[0]  # type: ignore[no-untyped-call]
    return term


class _LowLevel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, low: Tensor, teacher: Tensor, left: list[Tensor] | None) -> Any:
        tail = low[len(low) - len(teacher) :]
        ctx.save_for_backward(low, teacher)
        ctx.left = left
        return _kernels().mean_squared_difference(tail, teacher)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        low, teacher = ctx.saved_tensors
        if ctx.left is not None:
            ctx.left.append(gradients[0])  # for the hook, which runs when all gradients of `low` have come together
            return None, None, None
        whole = torch.empty_like(low)  # in the layout of `low`
        first = len(low) - len(teacher)
        whole[:first].zero_()
        _kernels().difference_gradient(low[first:], teacher, gradients[0], whole[first:], adds=False)
        return whole, None, None


class _WithSlopes(torch.autograd.Function):
    """Numbers that come with the gradient of the first of them; the others are only reported."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, computed: Callable[[Tensor], tuple[list[Tensor], Tensor]]) -> Any:
        numbers, slopes = computed(given)
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(*numbers[1:])
        return tuple(numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0], None


@family("consistency")
def _attempt(device: torch.device) -> bool:
    ones, zeros = (torch.full((2, 4), value, device=device, dtype=torch.bfloat16) for value in (1.0, 0.0))
    term, gradient = _kernels().mean_squared_difference(ones, zeros), torch.ones_like(ones)
    _kernels().difference_gradient(ones, zeros, term, gradient, adds=True)
    feature, slopes = _kernels().negative_cosines(ones, ones)
    found = torch.stack([term, feature, gradient.float().mean(), slopes.float().abs().max()]).tolist()
    return all(abs(one - other) < 1e-2 for one, other in zip(found, [1.0, -1.0, 1.25, 0.0], strict=True))


def fused_terms_apply(module: nn.Module, logit: Tensor) -> bool:
    """Whether the terms of this network's logits may come from the kernels."""
    return (
        logit.is_cuda
        and kernels_allowed(module)
        and logit.ndim == 1
        and 0 < len(logit) <= _MOST_LOGITS
        and logit.dtype in _KINDS
        and runs_on(logit.device, "loss")
    )


def label_terms(
    logit: Tensor, labels: Tensor, rows: Tensor, counts: _Counts, *, rho: float | None, confidence: float = 0.0
) -> Mapping[str, Tensor]:
    """The terms `easy`, `positive`, `agreement` and `prediction` of logits that stand in this order:

    easy rows, whose labels are `labels[rows]` (Jensen-Shannon with `rho`, cross-entropy without); labelled positives;
    rows in a weak view; the same rows in a strong view. `counts` are the numbers of the first three."""
    easy, positives, consistent = counts
    if easy + positives + 2 * consistent != len(logit) or len(rows) != easy:
        raise ValueError(f"{len(logit)} logits and {len(rows)} labelled rows do not fit groups of {counts}")
    terms = _LabelTerms.apply(logit.contiguous(), labels, rows, counts, rho, confidence)  # type: ignore[no-untyped-call]
    return dict(zip(("easy", "positive", "agreement", "prediction"), terms, strict=True))


def pu_risk(logit: Tensor, positives: int, prior: float, *, beta: float | None, gamma: float) -> tuple[PURisk, Tensor]:
    """The nnPU risk, or without a beta the uPU risk, of logits whose first `positives` belong to labelled positives.

    Only its objective can be minimised, the rest is reported. And the share of these positives that are called so."""
    computed = partial(_kernels().pu_risk, positives=positives, prior=prior, beta=beta, gamma=gamma)
    numbers = _WithSlopes.apply(logit.contiguous(), computed)  # type: ignore[no-untyped-call]
    objective, value, positive, negative, recall = numbers
    return PURisk(value, objective, positive, negative), recall


class _LabelTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logit: Tensor, labels: Tensor, rows: Tensor, counts: _Counts, *how: Any) -> Any:
        terms, slopes = _kernels().label_terms(logit, labels, rows, counts, *how)
        ctx.save_for_backward(slopes)
        ctx.counts, ctx.dtype = counts, logit.dtype
        ctx.mark_non_differentiable(terms[2])
        ctx.set_materialize_grads(False)
        return tuple(terms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        easy, positive, _, prediction = gradients
        (slopes,) = ctx.saved_tensors
        return _kernels().label_gradients(slopes, [easy, positive, prediction], ctx.counts, ctx.dtype), *(None,) * 5


@family("loss")
def _attempt_label_terms(device: torch.device) -> bool:
    """Two certain labels of which the network is sure, one of them wrongly, of divergence 2 at rho = 1/2."""
    logit = torch.tensor([60.0, -60.0, 0.0], device=device, dtype=torch.bfloat16)
    rows, counts = torch.tensor([0, 0], device=device), (2, 1, 0)
    terms, slopes = _kernels().label_terms(logit, torch.ones(1, device=device), rows, counts, 0.5, 0.0)
    gradients = _kernels().label_gradients(slopes, [terms[0], torch.ones_like(terms[1]), None], counts, logit.dtype)
    risk, _ = _kernels().pu_risk(logit, 1, 0.5, 0.0, 1.0)
    found = torch.stack([*terms[:3], risk[1], gradients[2].float()]).tolist()
    expected = [1.0, 0.6931, 0.5, 0.0, -0.5]
    return all(abs(one - other) < 1e-3 for one, other in zip(found, expected, strict=True))
