"""BBE: the best bin of the scores, where the unlabelled rows hold positives and hardly anything else.

DEDPUL: densities of the scores, their monotone ratio, and the largest share of positives that it leaves possible.

PEN-L1: the share that makes the positives fit under the unlabelled density, by a penalised L1 divergence.
"""

import math
from dataclasses import dataclass

import numpy as np

from splitpu.types import Floats, Rows
from splitpu.utils.arrays import checked_seed

CONFIDENCE = 0.1  # delta of the published bound
SLACK = 0.01  # gamma of the published bound


def best_bin(scores_positive: Floats, scores_unlabelled: Floats) -> tuple[float, float]:
    """The share of positives among the unlabelled rows, and the score above which it was read off.

    Above any cut the unlabelled rows contain at least their positives, so the ratio of the two shares above it is never
    below the wanted share; it comes closest where only positives are left. A cut with few rows above it is held back by
    the width of its confidence bound.
    """
    cuts = np.unique(np.concatenate([scores_positive, scores_unlabelled]))
    above_positive = share_at_or_above(scores_positive, cuts)
    above_unlabelled = share_at_or_above(scores_unlabelled, cuts)
    usable = above_positive > 0
    cuts, above_positive, above_unlabelled = cuts[usable], above_positive[usable], above_unlabelled[usable]
    ratio = above_unlabelled / above_positive
    width = math.log(4 / CONFIDENCE) / 2
    doubt = math.sqrt(width / len(scores_unlabelled)) + math.sqrt(width / len(scores_positive))
    best = int(np.argmin(ratio + (1 + SLACK) * doubt / above_positive))
    return min(float(ratio[best]), 1.0), float(cuts[best])


def bbe(scores_positive: Floats, scores_unlabelled: Floats) -> float:
    """The share of positives among the unlabelled rows."""
    return best_bin(scores_positive, scores_unlabelled)[0]


def share_at_or_above(scores: Floats, cuts: Floats) -> Floats:
    """The share of the scores that reach each cut."""
    share: Floats = 1 - np.searchsorted(np.sort(scores), cuts, side="left") / len(scores)
    return share


_CELLS = 1024  # of the grid the densities live on
_SHARES = (0.0, 1.0, 201)  # candidates: from, to, how many
_STEP = 10  # candidates between the points of the second difference: 0.05, so that noise does not look like a bend


def dedpul(scores_positive: Floats, scores_unlabelled: Floats) -> float:
    """The share of positives among the unlabelled rows.

    With r = density of P / density of U, a share a makes the posteriors min(a * r, 1). Up to the true share their mean
    is a itself, beyond it the cap bites and the mean falls behind. The published fixed-point iteration looks for the
    last a whose mean keeps up, but any smoothing of the densities moves that point to nought; so the bend itself is
    found, as the largest second difference of a - mean posterior, which the publication falls back on.
    """
    ratio, weight = density_ratio(scores_positive, scores_unlabelled)
    shares = np.linspace(*_SHARES)
    behind = shares - np.minimum(np.outer(shares, ratio), 1) @ weight
    bend = np.full(len(shares), -np.inf)
    bend[_STEP:-_STEP] = behind[2 * _STEP :] - 2 * behind[_STEP:-_STEP] + behind[: -2 * _STEP]
    # Shares closer to 0 or 1 than a step have no second difference; a one-sided one stands in for it at the low end.
    low = np.arange(2, _STEP)
    bend[low] = behind[2 * low] - 2 * behind[low]
    bend[low] *= _STEP / low  # slopes change over a shorter way
    return float(shares[int(np.argmax(bend))])


def density_ratio(scores_positive: Floats, scores_unlabelled: Floats) -> tuple[Floats, Floats]:
    """The ratio of the densities, rising with the score, at the cells of a grid, and the share of U in each cell."""
    from sklearn.isotonic import IsotonicRegression

    both = np.concatenate([scores_positive, scores_unlabelled])
    low, high = float(both.min()), float(both.max())
    margin = 0.1 * (high - low) + 1e-9
    edges = np.linspace(low - margin, high + margin, _CELLS + 1)
    positive, _ = _smoothed(scores_positive, edges)
    unlabelled, counts = _smoothed(scores_unlabelled, edges)
    occupied = counts > 0
    ratio = positive[occupied] / np.maximum(unlabelled[occupied], 1e-12)
    centres = ((edges[1:] + edges[:-1]) / 2)[occupied]
    weight = counts[occupied] / counts.sum()
    rising: Floats = IsotonicRegression().fit(centres, ratio, sample_weight=weight).predict(centres)
    return rising, weight


def _smoothed(scores: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """A kernel density on the grid (Silverman's width), and the plain counts."""
    counts = np.histogram(scores, edges)[0].astype(np.float64)
    quartile_range = float(np.subtract(*np.percentile(scores, [75, 25]))) / 1.34
    spread = min(float(scores.std()), quartile_range) or float(scores.std())
    cell = edges[1] - edges[0]
    width = max(0.9 * spread * len(scores) ** -0.2, cell)
    reach = min(int(np.ceil(4 * width / cell)), _CELLS // 2 - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * cell / width) ** 2)
    density: Floats = np.convolve(counts, kernel / kernel.sum(), mode="same") / (len(scores) * cell)
    return density, counts


CENTRES = 200
_WIDTHS = (0.1, 0.3, 1.0)  # times the median squared distance
_PENALTIES = (0.001, 0.01, 0.1, 1.0)
_PENALISED_SHARES = (0.005, 0.995, 199)
_FOLDS = 4


def penl1(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample."""
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
        shares = np.linspace(*_PENALISED_SHARES)
        divergence = (np.maximum(gains, 0) * gains).sum(1) / self.penalty - shares + 1
        return float(shares[int(np.argmin(divergence))])


def _gains(mean_positive: Floats, mean_unlabelled: Floats) -> Floats:
    """What a unit of each bump adds to the divergence, one row a candidate share."""
    return np.outer(np.linspace(*_PENALISED_SHARES), mean_positive) - mean_unlabelled


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
