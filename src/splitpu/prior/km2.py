"""KM2: how far the unlabelled mean can be pushed away from the positive one before it leaves what data can be."""

import numpy as np
import numpy.typing as npt

from splitpu.seeds import checked_seed

Floats = npt.NDArray[np.float64]

MOST_ROWS = 250  # of each kind; the cost grows with the square
SLOPE = 0.2  # share of the distance between the two means at which the distance counts as growing
_PUSHES = np.linspace(1.0, 10.0, 46)  # lambda; the share of positives is 1 - 1 / lambda
_ITERATIONS = 150


def km2(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample.

    The mean (in kernel space) of the negatives is lam * mean_U + (1 - lam) * mean_P with lam = 1 / (1 - share). For a
    larger lam this is no longer the mean of any rows, and its distance to the nearest such mean starts to grow.
    """
    rng = np.random.default_rng(checked_seed(seed))
    positive, unlabelled = (_at_most(rows, rng) for rows in (positive, unlabelled))
    rows = np.concatenate([positive, unlabelled])
    kernel = _gaussian_kernel(rows)
    is_positive = np.arange(len(rows)) < len(positive)
    mean_positive, mean_unlabelled = is_positive / len(positive), ~is_positive / len(unlabelled)
    apart = float(np.sqrt(max(_square(kernel, mean_unlabelled - mean_positive), 1e-12)))
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    weights, distances = mean_unlabelled, []
    for push in _PUSHES:
        target = push * mean_unlabelled + (1 - push) * mean_positive
        weights = _nearest_mixture(kernel, target, weights, 1 / largest)
        distances.append(np.sqrt(max(_square(kernel, target - weights), 0.0)))
    slopes = np.gradient(np.asarray(distances), _PUSHES) / apart
    growing = np.flatnonzero(slopes >= SLOPE)
    push = float(_PUSHES[growing[0]]) if len(growing) else float(_PUSHES[-1])
    return 1 - 1 / push


def gap_at(share: float) -> float:
    """How far apart the shares are that can be found near this one: resampled rows often give the very same.

    >>> round(gap_at(0.5), 3)
    0.05
    """
    return float(_PUSHES[1] - _PUSHES[0]) * (1 - share) ** 2


def _at_most(rows: Floats, rng: np.random.Generator) -> Floats:
    return rows if len(rows) <= MOST_ROWS else rows[rng.choice(len(rows), MOST_ROWS, replace=False)]


def _gaussian_kernel(rows: Floats) -> Floats:
    squares = (rows**2).sum(1)
    distance = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0)
    width = float(np.median(distance[np.triu_indices(len(rows), 1)])) or 1.0
    kernel: Floats = np.exp(-distance / width)
    return kernel


def _square(kernel: Floats, weights: Floats) -> float:
    return float(weights @ kernel @ weights)


def _nearest_mixture(kernel: Floats, target: Floats, start: Floats, rate: float) -> Floats:
    """The mixture of rows nearest to the target: accelerated gradient steps, each followed by a projection."""
    now = ahead = start
    momentum = 1.0
    for _ in range(_ITERATIONS):
        moved = _onto_simplex(ahead - rate * (kernel @ (ahead - target)))
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / grown * (moved - now)
        now, momentum = moved, grown
    return now


def _onto_simplex(weights: Floats) -> Floats:
    """The nearest weights that are not negative and sum to one."""
    ordered = np.sort(weights)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    nearest: Floats = np.maximum(weights - excess[last], 0)
    return nearest
