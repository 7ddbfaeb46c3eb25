"""How tensors lie in memory: kernels that go through it from end to end need tensors that lie alike."""

import torch
from torch import Tensor


def lie_alike(first: Tensor, second: Tensor) -> bool:
    """Whether both are dense and in the same order in memory; the stride of a dimension of one is nothing to go by.

    >>> weight = torch.zeros(2, 3, 4, 4)
    >>> lie_alike(weight, torch.ones(2, 3, 4, 4)), lie_alike(weight, weight.to(memory_format=torch.channels_last))
    (True, False)
    """
    return (
        first.shape == second.shape
        and _is_dense(first)
        and all(
            size == 1 or one == other
            for size, one, other in zip(first.shape, first.stride(), second.stride(), strict=True)
        )
    )


def layout_of(tensor: Tensor) -> torch.memory_format:
    """Of a dense tensor."""
    return torch.contiguous_format if tensor.is_contiguous() else torch.channels_last


def _is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
