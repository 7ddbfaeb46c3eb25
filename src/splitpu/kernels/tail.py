"""The last rows of a batch, for a term of the loss that concerns only them."""

from typing import Any

import torch
from torch import Tensor


def last_rows(batch: Tensor, count: int) -> Tensor:
    """`batch[-count:]`, whose gradient comes back in the memory layout of the whole batch.

    Torch's own slice answers with a gradient in the standard layout; adding that to a channels-last one takes as long
    as several convolutions.
    """
    rows: Tensor = _LastRows.apply(batch, count)  # type: ignore[no-untyped-call]
    return rows


class _LastRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: Tensor, count: int) -> Tensor:
        ctx.shape, ctx.strides, ctx.count = batch.shape, batch.stride(), count
        return batch[len(batch) - count :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        whole = torch.empty_strided(ctx.shape, ctx.strides, dtype=gradients[0].dtype, device=gradients[0].device)
        first = ctx.shape[0] - ctx.count
        whole[:first].zero_()
        whole[first:].copy_(gradients[0])
        return whole, None
