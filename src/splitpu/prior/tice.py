"""TIcE: somewhere in the data nearly all rows are positive, and there the labelled share is the label frequency."""

import heapq

import numpy as np
import numpy.typing as npt

from splitpu.seeds import checked_seed

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

MOST_SUBSETS = 300
FEWEST_ROWS = 10
_QUANTILES = (0.25, 0.5, 0.75)


def tice(positive: Floats, unlabelled: Floats, seed: int = 0) -> float:
    """The share of positives among the unlabelled rows, from features or scores, one row a sample.

    In any subset the labelled share is at most the label frequency c, the share of all positives that are labelled. A
    tree grown on one half of the rows proposes subsets rich in labels; the other half gives a lower bound for c in
    each, and the largest bound is taken. A second pass uses the c of the first in the width of its bounds.
    """
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
