"""Batch norm with ReLU on a GPU: which kernels run over which parts of a batch; imported only where there is one."""

import math

import torch
import triton
from torch import Tensor, nn

from splitpu.kernels.norm_relu_parts_triton import (
    _add_up_gradients,
    _add_up_values,
    _apply,
    _apply_gradients,
    _apply_known,
    _finish_gradient_sums,
    _finish_statistics,
)

_COLUMNS = 128  # values of a row that a program takes: sixteen loads of eight
_SUM_ROWS, _SUM_UNROLL, _SUM_WARPS = 8, 8, 4  # few accumulators, many loads in flight
_APPLY_ROWS, _APPLY_WARPS = 32, 4
_PROGRAMS = 528  # four a multiprocessor on the largest GPUs; more have more to add up afterwards
_FINISH_ROWS, _FINISH_CHANNELS, _FINISH_WARPS = 512, 8, 8


class _Layout:
    """A channels-last batch as the kernels see it."""

    def __init__(self, batch: Tensor) -> None:
        self.channels = batch.shape[1]
        self.pixels = batch.numel() // self.channels
        wanted = _COLUMNS // math.gcd(self.channels, _COLUMNS)
        self.folded = math.gcd(self.pixels, wanted)  # pixels side by side in a row
        self.rows, self.width = self.pixels // self.folded, self.folded * self.channels
        self.column_blocks = triton.cdiv(self.width, _COLUMNS)
        self.sizes = (self.rows, self.width, self.channels)
        self.whole = self.rows % (_SUM_ROWS * _SUM_UNROLL) == 0 and self.width % _COLUMNS == 0
        row_programs = triton.cdiv(self.rows, _SUM_ROWS * _SUM_UNROLL)
        self.sum_programs = min(row_programs, max(1, _PROGRAMS // self.column_blocks))

    @property
    def sum_grid(self) -> tuple[int, int]:
        return self.sum_programs, self.column_blocks

    @property
    def apply_grid(self) -> tuple[int, int]:
        return triton.cdiv(self.rows, _APPLY_ROWS), self.column_blocks

    @property
    def finish_grid(self) -> tuple[int]:
        return (triton.cdiv(self.channels, _FINISH_CHANNELS),)

    def partial_sums(self, device: torch.device) -> Tensor:
        return torch.empty((2, self.sum_programs, self.width), device=device, dtype=torch.float32)

    @property
    def parts(self) -> int:
        """Partial sums a channel has: one of every program and every pixel of its rows."""
        return self.sum_programs * self.folded


_SUM = {"columns": _COLUMNS, "tile_rows": _SUM_ROWS, "unroll": _SUM_UNROLL, "num_warps": _SUM_WARPS}
_APPLY = {"columns": _COLUMNS, "tile_rows": _APPLY_ROWS, "num_warps": _APPLY_WARPS}
_FINISH = {"block": _FINISH_ROWS, "width": _FINISH_CHANNELS, "num_warps": _FINISH_WARPS}


def statistics(batch: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """Mean, inverse deviation, scale and shift of every channel, (4, C); the layer's running statistics move on."""
    layout = _Layout(batch)
    partial = layout.partial_sums(batch.device)
    _add_up_values[layout.sum_grid](batch, partial, *layout.sizes, whole=layout.whole, **_SUM)
    found = torch.empty((4, layout.channels), device=batch.device, dtype=torch.float32)
    _finish_statistics[layout.finish_grid](
        batch, partial, found, layer.weight, layer.bias, layer.running_mean, layer.running_var,
        layer.num_batches_tracked, layout.pixels, layout.channels, layout.parts, layer.momentum, layer.eps, **_FINISH,
    )  # fmt: skip
    return found


def normalised(batch: Tensor, found: Tensor, added: Tensor | None, relu: bool) -> Tensor:
    """The layer's output, with something added to it and the ReLU behind it where asked for."""
    layout, output = _Layout(batch), torch.empty_like(batch)
    _apply[layout.apply_grid](
        batch, batch if added is None else added, output, found, *layout.sizes,
        has_added=added is not None, relu=relu, **_APPLY,
    )  # fmt: skip
    return output


def normalised_by_running(batch: Tensor, layer: nn.BatchNorm2d, added: Tensor | None, relu: bool) -> Tensor:
    """The same outside training, by the layer's running statistics."""
    layout, output = _Layout(batch), torch.empty_like(batch)
    _apply_known[layout.apply_grid](
        batch, batch if added is None else added, output, layer.running_mean, layer.running_var, layer.weight,
        layer.bias, layer.eps, *layout.sizes, has_added=added is not None, relu=relu, **_APPLY,
    )  # fmt: skip
    return output


def gradient_sums(batch: Tensor, gradient: Tensor, output: Tensor | None, found: Tensor, relu: bool) -> Tensor:
    """The gradients of bias and weight, (2, C), which those of the values depend on."""
    layout = _Layout(batch)
    partial = layout.partial_sums(batch.device)
    _add_up_gradients[layout.sum_grid](
        gradient, batch, batch if output is None else output, found, partial, *layout.sizes,
        has_output=output is not None, relu=relu, whole=layout.whole, **_SUM,
    )  # fmt: skip
    sums = torch.empty((2, layout.channels), device=batch.device, dtype=torch.float32)
    _finish_gradient_sums[layout.finish_grid](partial, sums, layout.channels, layout.parts, **_FINISH)
    return sums


def gradients(
    batch: Tensor, gradient: Tensor, output: Tensor | None, found: Tensor, sums: Tensor, relu: bool, *, with_added: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the values and of what was added."""
    layout, for_batch = _Layout(batch), torch.empty_like(batch)
    for_added = torch.empty_like(batch) if with_added else None
    _apply_gradients[layout.apply_grid](
        gradient, batch, batch if output is None else output, found, sums, for_batch,
        for_batch if for_added is None else for_added, layout.pixels, *layout.sizes,
        with_added=with_added, has_output=output is not None, relu=relu, **_APPLY,
    )  # fmt: skip
    return for_batch, for_added
