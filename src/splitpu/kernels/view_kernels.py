"""Weak, strong and plain views of small images in one kernel: in torch's own operations they are up to a hundred."""

from collections.abc import Mapping

import torch
from torch import Tensor

from splitpu.kernels.dispatch import family, runs_on, triton_kernels

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
        and runs_on(raw.device, "view")
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
    `part` (four numbers from 0 to 1, a column an image), `factors` (from 0 to 1, a row an image) with `chosen`, `grey`,
    `cut_row` and `cut_column`. How far each may go is among the strengths: resized_crop with sides_ratio, brightness,
    contrast, saturation, hue, jitter, grey, cut_side."""
    view = triton_kernels("view_kernels").view
    made: Tensor = view(raw, mean, inverse_std, offset, scale, dict(draws), dict(strengths)).permute(0, 3, 1, 2)
    return made


@family("view")
def _attempt(device: torch.device) -> bool:
    """An image that is shifted by a row and loses its first pixel, in colours that the draws leave as they are."""
    raw = torch.arange(32 * 32 * 3, device=device).remainder(256).to(torch.uint8).view(1, 32, 32, 3)
    one, zero = (torch.full((1, 1), value, device=device, dtype=torch.int64) for value in (1, 0))
    places = {"row_shift": one, "column_shift": zero, "mirrored": zero, "cut_row": zero, "cut_column": zero}
    draws = {**places, "factors": torch.full((1, 4), 0.5, device=device)}
    strengths = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "cut_side": 1}
    zeros, ones = torch.zeros(3, device=device), torch.ones(3, device=device)
    found = fused_view(raw, zeros, ones, offset=0.0, scale=1 / 255, draws=draws, strengths=strengths)
    expected = torch.zeros_like(found)
    expected[:, :, :31] = raw[:, 1:].permute(0, 3, 1, 2) / 255
    expected[:, :, 0, 0] = 0.0
    return torch.allclose(found, expected, atol=1e-4)
