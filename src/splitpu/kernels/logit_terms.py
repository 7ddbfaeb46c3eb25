"""Every term of a step that depends on logits alone, with its gradient, in one kernel.

In torch's own operations they are two hundred kernels, each shorter than the pause before it. What they compute is
defined in `splitpu.losses`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from splitpu.kernels.switch import kernels_allowed
from splitpu.kernels.trial import family, runs_on

_MOST_LOGITS = 4096  # that one program holds


class FusedRisk(NamedTuple):
    """A PU risk: only the objective can be minimised, the rest is reported."""

    objective: Tensor
    value: Tensor
    positive: Tensor
    negative: Tensor
    recall: Tensor  # share of the labelled positives that are called positive


def fused_terms_apply(module: nn.Module, logit: Tensor) -> bool:
    """Whether the terms of this network's logits may come from the kernels."""
    return (
        logit.is_cuda
        and kernels_allowed(module)
        and logit.ndim == 1
        and 0 < len(logit) <= _MOST_LOGITS
        and logit.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and runs_on(logit.device, "loss")
    )


def label_terms(
    logit: Tensor,
    labels: Tensor,
    rows: Tensor,
    counts: tuple[int, int, int],
    *,
    rho: float | None,
    confidence: float = 0.0,
) -> Mapping[str, Tensor]:
    """The terms `easy`, `positive`, `agreement` and `prediction` of logits that stand in this order:

    easy rows, whose labels are `labels[rows]` (Jensen-Shannon with `rho`, cross-entropy without); labelled positives;
    rows in a weak view; the same rows in a strong view. `counts` are the numbers of the first three.
    """
    easy, positives, consistent = counts
    if easy + positives + 2 * consistent != len(logit) or len(rows) != easy:
        raise ValueError(f"{len(logit)} logits and {len(rows)} labelled rows do not fit groups of {counts}")
    terms = _LabelTerms.apply(logit.contiguous(), labels, rows, counts, rho, confidence)  # type: ignore[no-untyped-call]
    return dict(zip(("easy", "positive", "agreement", "prediction"), terms, strict=True))


def pu_risk(logit: Tensor, positives: int, prior: float, *, beta: float | None, gamma: float = 1.0) -> FusedRisk:
    """The nnPU risk, or without a beta the uPU risk, of logits whose first `positives` belong to labelled positives."""
    return FusedRisk(*_Risk.apply(logit.contiguous(), positives, prior, beta, gamma))  # type: ignore[no-untyped-call]


class _LabelTerms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logit: Tensor,
        labels: Tensor,
        rows: Tensor,
        counts: tuple[int, int, int],
        rho: float | None,
        confidence: float,
    ) -> tuple[Tensor, ...]:
        from splitpu.kernels import logit_terms_triton as kernels

        terms, slopes = kernels.label_terms(logit, labels, rows, counts, rho, confidence)
        ctx.save_for_backward(slopes)
        ctx.counts, ctx.dtype = counts, logit.dtype
        ctx.mark_non_differentiable(terms[2])
        ctx.set_materialize_grads(False)
        return tuple(terms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        from splitpu.kernels import logit_terms_triton as kernels

        easy, positive, _, prediction = gradients
        (slopes,) = ctx.saved_tensors
        return kernels.label_gradients(slopes, [easy, positive, prediction], ctx.counts, ctx.dtype), *(None,) * 5


class _Risk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logit: Tensor, positives: int, prior: float, beta: float | None, gamma: float
    ) -> tuple[Tensor, ...]:
        from splitpu.kernels import logit_terms_triton as kernels

        numbers, slopes = kernels.pu_risk(logit, positives, prior, beta, gamma)
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(*numbers[1:])
        return tuple(numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0], *(None,) * 4


@family("loss")
def _attempt(device: torch.device) -> bool:
    """Two certain labels of which the network is sure, one of them wrongly, of divergence 2 at rho = 1/2."""
    from splitpu.kernels import logit_terms_triton as kernels

    logit = torch.tensor([60.0, -60.0, 0.0], device=device, dtype=torch.bfloat16)
    rows, counts = torch.tensor([0, 0], device=device), (2, 1, 0)
    terms, slopes = kernels.label_terms(logit, torch.ones(1, device=device), rows, counts, 0.5, 0.0)
    gradients = kernels.label_gradients(slopes, [terms[0], torch.ones_like(terms[1]), None], counts, logit.dtype)
    risk, _ = kernels.pu_risk(logit, 1, 0.5, 0.0, 1.0)
    found = torch.stack([*terms[:3], risk[1], gradients[2].float()]).tolist()
    expected = [1.0, 0.6931, 0.5, 0.0, -0.5]
    return all(abs(one - other) < 1e-3 for one, other in zip(found, expected, strict=True))
