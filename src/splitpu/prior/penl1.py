"""PEN-L1: the share that makes the positives fit under the unlabelled density, by a penalised L1 divergence."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splitpu.seeds import checked_seed

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

CENTRES = 200
_WIDTHS = (0.1, 0.3, 1.0)  # times the median squared distance
_PENALTIES = (0.001, 0.01, 0.1, 1.0)
_SHARES = np.linspace(0.005, 0.995, 199)
_FOLDS = 4


def penl1(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample.

    >>> rng = np.random.default_rng(0)
    >>> positives, negatives = rng.normal(3, 1, (4000, 1)), rng.normal(-3, 1, (1400, 1))
    >>> round(penl1(positives[:2000], np.concatenate([positives[3400:], negatives])), 1)
    0.3
    """
    return PenL1.fit(positive, unlabelled, seed).share()


@dataclass(frozen=True)
class PenL1:
    """The bumps that were chosen, with their heights over every row: resampled rows need no new kernel."""

    on_positive: Floats
    on_unlabelled: Floats
    penalty: float

    @classmethod
    def fit(cls, positive: Floats, unlabelled: Floats, seed: int = 0) -> "PenL1":
        """Choose the width of the bumps and the penalty that find most divergence on rows kept aside."""
        rng = np.random.default_rng(checked_seed(seed))
        both = np.concatenate([positive, unlabelled])
        centres = both[rng.choice(len(both), min(CENTRES, len(both)), replace=False)]
        apart = [_squared_distance(rows, centres) for rows in (positive, unlabelled)]
        typical = float(np.median(apart[1])) or 1.0
        folds = [rng.permutation(len(rows)) % _FOLDS for rows in (positive, unlabelled)]
        best, chosen = -np.inf, None
        for width in _WIDTHS:
            bumps = [np.exp(-distance / (width * typical)) for distance in apart]
            means = [_means_without_and_within(*pair) for pair in zip(bumps, folds, strict=True)]
            for penalty in _PENALTIES:
                found = _divergence_kept_aside(means[0], means[1], penalty)
                if found > best:
                    best, chosen = found, cls(bumps[0], bumps[1], penalty)
        assert chosen is not None
        return chosen

    def share(self, positive: Rows | slice = slice(None), unlabelled: Rows | slice = slice(None)) -> float:
        """The share that the rows of these numbers give.

        For a share a, the divergence sup_r E_P[a r] - E_U[r] - a + 1 over heights r >= 0 of the bumps grows as soon as
        a times the positive density sticks out of the unlabelled one anywhere. With a quadratic penalty the heights
        have a closed form.
        """
        gains = _gains(self.on_positive[positive].mean(0), self.on_unlabelled[unlabelled].mean(0))
        divergence = (np.maximum(gains, 0) * gains).sum(1) / self.penalty - _SHARES + 1
        return float(_SHARES[int(np.argmin(divergence))])


def _gains(mean_positive: Floats, mean_unlabelled: Floats) -> Floats:
    """What a unit of each bump adds to the divergence, one row a candidate share."""
    return np.outer(_SHARES, mean_positive) - mean_unlabelled


def _means_without_and_within(bumps: Floats, folds: Rows) -> list[tuple[Floats, Floats]]:
    return [(bumps[folds != fold].mean(0), bumps[folds == fold].mean(0)) for fold in range(_FOLDS)]


def _divergence_kept_aside(
    positive: list[tuple[Floats, Floats]], unlabelled: list[tuple[Floats, Floats]], penalty: float
) -> float:
    """The divergence that heights fitted on three quarters find in the last one, less what the penalty takes."""
    total = 0.0
    for (train_p, test_p), (train_u, test_u) in zip(positive, unlabelled, strict=True):
        heights = np.maximum(_gains(train_p, train_u), 0) / penalty
        total += float((heights * _gains(test_p, test_u) - penalty / 2 * heights**2).sum())
    return total


def _squared_distance(rows: Floats, centres: Floats) -> Floats:
    distance: Floats = np.maximum((rows**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * rows @ centres.T, 0)
    return distance
