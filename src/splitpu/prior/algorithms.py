"""BBE: the best bin of the scores, where the unlabelled rows hold positives and hardly anything else.

DEDPUL: densities of the scores, their monotone ratio, and the largest share of positives that it leaves possible.

KM2: how far the unlabelled mean can be pushed away from the positive one before it leaves what data can be.

PEN-L1: the share that makes the positives fit under the unlabelled density, by a penalised L1 divergence.

TIcE: somewhere in the data nearly all rows are positive, and there the labelled share is the label frequency."""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from splitpu.types import Flags, Floats, Rows
from splitpu.utils.arrays import checked_seed

CONFIDENCE = 0.1  # delta of the published bound
SLACK = 0.01  # gamma of the published bound


def best_bin(scores_positive: Floats, scores_unlabelled: Floats) -> tuple[float, float]:
    """The share of positives among the unlabelled rows, and the score above which it was read off.

    Above any cut the unlabelled rows contain at least their positives, so the ratio of the two shares above it is never
    below the wanted share; it comes closest where only positives are left. A cut with few rows above it is held back by
    the width of its confidence bound."""
    cuts = np.unique(np.concatenate([scores_positive, scores_unlabelled]))
    above_positive, above_unlabelled = (
        1 - np.searchsorted(np.sort(scores), cuts, side="left") / len(scores)
        for scores in (scores_positive, scores_unlabelled)
    )
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


_CELLS = 1024  # of the grid the densities live on
_SHARES = (0.0, 1.0, 201)  # candidates: from, to, how many
_STEP = 10  # candidates between the points of the second difference: 0.05, so that noise does not look like a bend


def dedpul(scores_positive: Floats, scores_unlabelled: Floats) -> float:
    """The share of positives among the unlabelled rows.

    With r = density of P / density of U, a share a makes the posteriors min(a * r, 1). Up to the true share their mean
    is a itself, beyond it the cap bites and the mean falls behind. The published fixed-point iteration looks for the
    last a whose mean keeps up, but any smoothing of the densities moves that point to nought; so the bend itself is
    found, as the largest second difference of a - mean posterior, which the publication falls back on."""
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


_DEEP = 0.25  # of the lower of the peaks beside it: so deep lies no dip between classes that overlap, nor by chance
_BELOW_DIP, _ABOVE_DIP = 0.15, 0.9  # so many of the unlabelled rows at least, and of the labelled ones
_ALIKE = 2.0  # standard errors by which labelled rows may rank other than the unlabelled ones above the dip


def share_above_dip(scores_positive: Floats, scores_unlabelled: Floats) -> tuple[float, float] | None:
    """The share of positives among the unlabelled rows and how far it may be off, if their scores fall into two groups.

    Where their density has a deep dip with nearly all labelled rows above it, and the unlabelled rows above it rank
    like those, about as many rows lie on the wrong side one way as the other: off it may be by what labelled rows below
    the dip stand for, and by half of the rows inside it."""
    from scipy.stats import beta

    from splitpu.evaluation.metrics import placements

    edges = np.linspace(scores_unlabelled.min(), scores_unlabelled.max() + 1e-9, _CELLS + 1)
    density, _ = _smoothed(scores_unlabelled, edges)
    peaks = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
    depth = density / np.maximum(peaks, 1e-12)
    deep, found = np.flatnonzero(depth <= _DEEP), []
    for dip in np.split(deep, np.flatnonzero(np.diff(deep) > 1) + 1) if len(deep) else ():
        cut = edges[dip[depth[dip].argmin()]]
        above, share = scores_positive[scores_positive > cut], float((scores_unlabelled > cut).mean())
        if len(above) >= _ABOVE_DIP * len(scores_positive) and 0 < share <= 1 - _BELOW_DIP:
            ranks = placements(above, scores_unlabelled[scores_unlabelled > cut])[0]
            error = ((1 / len(above) + 1 / share / len(scores_unlabelled)) / 12) ** 0.5
            if abs(ranks.mean() - 0.5) <= _ALIKE * error:
                least = float(beta.ppf(0.025, len(above), len(scores_positive) - len(above) + 1))
                inside = ((scores_unlabelled >= edges[dip[0]]) & (scores_unlabelled < edges[dip[-1] + 1])).mean()
                found.append((share, share * (1 - least) + float(inside) / 2))
    return min(found, default=None)


MOST_ROWS = 250  # of each kind; the cost grows with the square
SLOPE = 0.2  # share of the distance between the two means at which the distance counts as growing
_PUSHES = (1.0, 10.0, 46)  # lambda: from, to, how many; the share of positives is 1 - 1 / lambda
_ITERATIONS = 150


def km2(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample.

    The mean (in kernel space) of the negatives is lam * mean_U + (1 - lam) * mean_P with lam = 1 / (1 - share). For a
    larger lam this is no longer the mean of any rows, and its distance to the nearest such mean starts to grow."""
    rng = np.random.default_rng(checked_seed(seed))
    positive, unlabelled = (
        rows if len(rows) <= MOST_ROWS else rows[rng.choice(len(rows), MOST_ROWS, replace=False)]
        for rows in (positive, unlabelled)
    )
    rows = np.concatenate([positive, unlabelled])
    distance = _squared_distance(rows, rows)
    kernel = np.exp(-distance / (float(np.median(distance[np.triu_indices(len(rows), 1)])) or 1.0))
    is_positive = np.arange(len(rows)) < len(positive)
    mean_positive, mean_unlabelled = is_positive / len(positive), ~is_positive / len(unlabelled)
    apart = float(np.sqrt(max(_square(kernel, mean_unlabelled - mean_positive), 1e-12)))
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    weights, distances, pushes = mean_unlabelled, [], np.linspace(*_PUSHES)
    for push in pushes:
        target = push * mean_unlabelled + (1 - push) * mean_positive
        weights = _nearest_mixture(kernel, target, weights, 1 / largest)
        distances.append(np.sqrt(max(_square(kernel, target - weights), 0.0)))
    slopes = np.gradient(np.asarray(distances), pushes) / apart
    growing = np.flatnonzero(slopes >= SLOPE)
    return 1 - 1 / float(pushes[growing[0] if len(growing) else -1])


def gap_at(share: float) -> float:
    """How far apart the shares are that can be found near this one: resampled rows often give the very same."""
    first, last, count = _PUSHES
    return (last - first) / (count - 1) * (1 - share) ** 2


def _square(kernel: Floats, weights: Floats) -> float:
    return float(weights @ kernel @ weights)


def _nearest_mixture(kernel: Floats, target: Floats, start: Floats, rate: float) -> Floats:
    """The mixture of rows nearest to the target: accelerated gradient steps, each followed by a projection.

    What it projects onto are weights that are not negative and sum to one."""
    now = ahead = start
    momentum = 1.0
    for _ in range(_ITERATIONS):
        free = ahead - rate * (kernel @ (ahead - target))
        ordered = np.sort(free)[::-1]
        excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
        moved = np.maximum(free - excess[int(np.flatnonzero(ordered > excess)[-1])], 0)
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / grown * (moved - now)
        now, momentum = moved, grown
    return now


CENTRES = 200
_WIDTHS = (0.1, 0.3, 1.0)  # times the median squared distance
_PENALTIES = (0.001, 0.01, 0.1, 1.0)
_PENALISED_SHARES = (0.005, 0.995, 199)
_FOLDS = 4


@dataclass(frozen=True)
class PenL1:
    """The bumps that were chosen, with their heights over every row: resampled rows need no new kernel.

    `PenL1.fit(positive, unlabelled).share()` is the estimate, from features or scores, one row a sample."""

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
            pairs = list(zip(bumps, folds, strict=True))
            without = [_gains(*(rows[one != fold].mean(0) for rows, one in pairs)) for fold in range(_FOLDS)]
            within = [_gains(*(rows[one == fold].mean(0) for rows, one in pairs)) for fold in range(_FOLDS)]
            for penalty in _PENALTIES:
                # What heights fitted on three quarters find in the last one, less what the penalty takes.
                heights = [np.maximum(gains, 0) / penalty for gains in without]
                left = [high * gains - penalty / 2 * high**2 for high, gains in zip(heights, within, strict=True)]
                found = sum(float(one.sum()) for one in left)
                if found > best:
                    best, chosen = found, cls(bumps[0], bumps[1], penalty)
        assert chosen is not None
        return chosen

    def share(self, positive: Rows | slice = slice(None), unlabelled: Rows | slice = slice(None)) -> float:
        """The share that the rows of these numbers give.

        For a share a, the divergence sup_r E_P[a r] - E_U[r] - a + 1 over heights r >= 0 of the bumps grows as soon as
        a times the positive density sticks out of the unlabelled one anywhere. With a quadratic penalty the heights
        have a closed form."""
        gains = _gains(self.on_positive[positive].mean(0), self.on_unlabelled[unlabelled].mean(0))
        shares = np.linspace(*_PENALISED_SHARES)
        divergence = (np.maximum(gains, 0) * gains).sum(1) / self.penalty - shares + 1
        return float(shares[int(np.argmin(divergence))])


def _gains(mean_positive: Floats, mean_unlabelled: Floats) -> Floats:
    """What a unit of each bump adds to the divergence, one row a candidate share."""
    return np.outer(np.linspace(*_PENALISED_SHARES), mean_positive) - mean_unlabelled


def _squared_distance(rows: Floats, centres: Floats) -> Floats:
    distance: Floats = np.maximum((rows**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * rows @ centres.T, 0)
    return distance


MOST_SUBSETS = 300
FEWEST_ROWS = 10
_QUANTILES = (0.25, 0.5, 0.75)


def tice(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample.

    In any subset the labelled share is at most the label frequency c, the share of all positives that are labelled. A
    tree grown on one half of the rows proposes subsets rich in labels; the other half gives a lower bound for c in
    each, and the largest bound is taken. A second pass uses the c of the first in the width of its bounds."""
    rng = np.random.default_rng(checked_seed(seed))
    rows = np.concatenate([positive, unlabelled])
    labelled = np.arange(len(rows)) < len(positive)
    half = rng.permutation(len(rows)) % 2 == 0
    frequency = 0.5
    for _ in range(2):
        frequency = float(np.mean([_largest_bound(rows, labelled, grow, ~grow, frequency) for grow in (half, ~half)]))
    all_positives = len(positive) / max(frequency, len(positive) / len(rows))
    return float(np.clip((all_positives - len(positive)) / len(unlabelled), 0.0, 1.0))


def _largest_bound(rows: Floats, labelled: Flags, grow: Flags, judge: Flags, frequency: float) -> float:
    """Best-first: the subset with the highest labelled share in the growing half is split next."""
    delta = max(0.025, 1 / (1 + 0.004 * len(rows)))
    queue = [(0.0, 0, np.flatnonzero(grow), np.flatnonzero(judge))]
    best, born = 0.0, 1
    while queue and born < MOST_SUBSETS:
        _, _, growing, judging = heapq.heappop(queue)
        best = max(best, _lower_bound(labelled[judging], frequency, delta))
        for side_grow, side_judge in _best_split(rows, labelled, growing, judging):
            heapq.heappush(queue, (-float(labelled[side_grow].mean()), born, side_grow, side_judge))
            born += 1
    for _, _, _, judging in queue:
        best = max(best, _lower_bound(labelled[judging], frequency, delta))
    return best


def _lower_bound(labelled: Flags, frequency: float, delta: float) -> float:
    if len(labelled) < FEWEST_ROWS:
        return 0.0
    width = np.sqrt(frequency * (1 - frequency) * (1 - delta) / (delta * len(labelled)))
    return float(labelled.mean() - width)


def _best_split(rows: Floats, labelled: Flags, growing: Rows, judging: Rows) -> list[tuple[Rows, Rows]]:
    """The two sides of the cut that gathers the labels best; nothing where no cut leaves enough rows."""
    if len(growing) < 2 * FEWEST_ROWS:
        return []
    values, marks = rows[growing], labelled[growing].astype(np.float64)
    best, chosen = -1.0, None
    for cuts in np.quantile(values, _QUANTILES, axis=0):
        left = values <= cuts
        count = left.sum(0)
        share_left = marks @ left / np.maximum(count, 1)
        share_right = (marks.sum() - marks @ left) / np.maximum(len(marks) - count, 1)
        enough = (count >= FEWEST_ROWS) & (len(marks) - count >= FEWEST_ROWS)
        gain = np.where(enough, np.maximum(share_left, share_right), -1.0)
        feature = int(np.argmax(gain))
        if gain[feature] > best:
            best, chosen = float(gain[feature]), (feature, float(cuts[feature]))
    if chosen is None:
        return []
    feature, cut = chosen
    return [
        (growing[side(rows[growing, feature], cut)], judging[side(rows[judging, feature], cut)])
        for side in (np.less_equal, np.greater)
    ]
