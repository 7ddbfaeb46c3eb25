"""What the tests of the losses share: points to try, and gradients by autograd and by central differences."""

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
quick = settings(max_examples=60, deadline=None)
logits = st.floats(-30, 30)


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def kl(a: Array, b: Array, not_a: Array, not_b: Array) -> Array:
    """KL of Bernoulli distributions; each class's probability is given, so that neither is a lossy 1 - x."""
    ratio = np.where(a > 0, a, 1) / np.where(a > 0, b, 1)
    not_ratio = np.where(not_a > 0, not_a, 1) / np.where(not_a > 0, not_b, 1)
    return a * np.log(ratio) + not_a * np.log(not_ratio)


def tensor(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64)).to(dtype)


def leaf(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    return tensor(values, dtype).requires_grad_()


def gradient(loss: Tensor, *of: Tensor) -> list[Tensor | None]:
    return list(torch.autograd.grad(loss, of, allow_unused=True, retain_graph=True))


def slope(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Central differences."""
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        slopes[index] = (function(up) - function(down)) / (2 * step)
    return slopes


Z = np.array([-7.5, -2.0, -0.3, 0.0, 0.4, 1.7, 6.0])
Q = np.array([0.0, 0.9, 0.25, 0.5, 1.0, 0.6, 0.05])
