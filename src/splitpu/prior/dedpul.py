"""DEDPUL: densities of the scores, their monotone ratio, and the largest share of positives that it leaves possible."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_CELLS = 1024  # of the grid the densities live on
_SHARES = np.linspace(0.0, 1.0, 201)  # candidates
_STEP = 10  # candidates between the points of the second difference: 0.05, so that noise does not look like a bend


def dedpul(scores_positive: Floats, scores_unlabelled: Floats) -> float:
    """The share of positives among the unlabelled rows.

    With r = density of P / density of U, a share a makes the posteriors min(a * r, 1). Up to the true share their mean
    is a itself, beyond it the cap bites and the mean falls behind. The published fixed-point iteration looks for the
    last a whose mean keeps up, but any smoothing of the densities moves that point to nought; so the bend itself is
    found, as the largest second difference of a - mean posterior, which the publication falls back on.

    >>> rng = np.random.default_rng(0)
    >>> positives, negatives = rng.normal(3, 1, 4000), rng.normal(-3, 1, 1400)
    >>> round(dedpul(positives[:2000], np.concatenate([positives[3400:], negatives])), 1)
    0.3
    """
    ratio, weight = density_ratio(scores_positive, scores_unlabelled)
    behind = _SHARES - np.minimum(np.outer(_SHARES, ratio), 1) @ weight
    bend = np.full(len(_SHARES), -np.inf)
    bend[_STEP:-_STEP] = behind[2 * _STEP :] - 2 * behind[_STEP:-_STEP] + behind[: -2 * _STEP]
    # Shares closer to 0 or 1 than a step have no second difference; a one-sided one stands in for it at the low end.
    low = np.arange(2, _STEP)
    bend[low] = behind[2 * low] - 2 * behind[low]
    bend[low] *= _STEP / low  # slopes change over a shorter way
    return float(_SHARES[int(np.argmax(bend))])


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
