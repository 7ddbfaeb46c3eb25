"""Networks, views and rows that are known to the last digit, and formulas in numpy, for whole steps of the methods."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splitpu.engine.stage import Batch
from splitpu.networks.backbones import Backbone, Outputs

Array = NDArray[np.float64]
PRIOR = 0.4


class Line(Backbone):
    """A network with nothing hidden: one weight a feature."""

    feature_dim = 2

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights or (0.0, 0.0), dtype=torch.float32))

    def forward(self, batch: Tensor) -> Outputs:
        return Outputs(batch, batch, batch @ self.weights)


class Views:
    """Rows as they are; a step that is told not to augment must not ask for weak views."""

    def plain(self, raw: Tensor) -> Tensor:
        return raw


class Weights:
    """Mixing weights that are known beforehand."""

    def __init__(self, *weights: float) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float32)

    def draw(self, count: int) -> Tensor:
        return self.weights.repeat(-(-count // len(self.weights)))[:count]


X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32).astype(np.float64)
POSITIVES, POPULATION = [0, 1, 2], [1, 3, 4, 5, 6, 7]
W, V = np.array([0.8, -0.5]), np.array([-0.3, 1.1])


def batch(**groups: list[int]) -> dict[str, Batch]:
    raw = torch.from_numpy(X).float()
    return {name: Batch(torch.tensor(rows), raw[rows]) for name, rows in groups.items()}


def stepped(task: Any, seed: int = 0, **groups: list[int]) -> dict[str, Tensor]:
    groups = groups or {"positives": POSITIVES, "population": POPULATION}
    return task.step(batch(**groups), Views(), torch.Generator().manual_seed(seed))  # type: ignore[no-any-return]


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def cross_entropy(z: Array, y: Any) -> Any:
    return np.mean(-y * np.log(sigmoid(z)) - (1 - y) * np.log(sigmoid(-z)))


def entropy(z: Array) -> Any:
    p = sigmoid(z)
    return np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p))


def slope(function: Any, at: Array) -> Array:
    """The gradient, by differences."""
    small = 1e-6 * np.eye(len(at))
    return np.array([(function(at + one) - function(at - one)) / 2e-6 for one in small])


def close(found: Any, expected: Any) -> None:
    assert np.asarray(found.detach(), dtype=np.float64) == pytest.approx(np.asarray(expected), rel=1e-4, abs=1e-5)
