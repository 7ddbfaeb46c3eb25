"""Weak, strong and plain views of small images in one kernel: in torch's own operations they are up to a hundred."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from splitpu.kernels.trial import runs_on

_MOST_PIXELS = 4096  # of an image: what one program holds
_CHANNELS = (1, 3, 4)


def fused_view_applies(raw: Tensor) -> bool:
    """Whether the kernel can make views of these raw images (B, H, W, C)."""
    return (
        raw.is_cuda
        and raw.ndim == 4
        and len(raw) > 0
        and raw.shape[-1] in _CHANNELS
        and raw.shape[1] * raw.shape[2] <= _MOST_PIXELS
        and raw.dtype in (torch.uint8, torch.float32)
        and raw.is_contiguous()
        and runs_on(raw.device, "view", _attempt)
    )


def fused_view(
    raw: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    *,
    offset: float,
    scale: float,
    draws: Mapping[str, Tensor],
    strengths: Mapping[str, float],
) -> Tensor:
    """A view (B, C, H, W) in channels-last memory, in float32.

    What is not among the draws, which are one an image, is not done: `row_shift` and `column_shift` with `mirrored`,
    `factors` (from 0 to 1, a row an image) with `chosen`, `grey`, `cut_row` and `cut_column`. How far each may go is
    among the strengths: brightness, contrast, saturation, hue, jitter, grey, cut_side.
    """
    from splitpu.kernels import views_triton

    made = views_triton.view(raw, mean, inverse_std, offset, scale, dict(draws), dict(strengths))
    return made.permute(0, 3, 1, 2)


def _attempt(device: torch.device) -> bool:
    """One image, shifted by a row and made twice as bright, and its other half cut away."""
    raw = torch.arange(12, device=device, dtype=torch.uint8).view(1, 2, 2, 3)
    number: dict[str, Any] = {"device": device, "dtype": torch.int64}
    draws = {
        "row_shift": torch.tensor([[1]], **number),
        "column_shift": torch.tensor([[0]], **number),
        "factors": torch.tensor([[1.0, 0.5, 0.5, 0.5]], device=device),
        "cut_row": torch.tensor([[0]], **number),
        "cut_column": torch.tensor([[1]], **number),
    }
    zeros, ones = torch.zeros(3, device=device), torch.ones(3, device=device)
    strengths = {"brightness": 1.0, "cut_side": 1}
    found = fused_view(raw, zeros, ones, offset=0.0, scale=1 / 64, draws=draws, strengths=strengths)
    expected = torch.zeros(1, 3, 2, 2)
    expected[0, :, 0, 0] = torch.tensor([6.0, 7.0, 8.0]) / 32
    return torch.allclose(found.cpu(), expected, atol=1e-6)
