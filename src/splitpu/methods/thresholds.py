"""Where a network's logits are cut: with as many rows above as the prior says, or nearly so where it is estimated."""

import torch
from torch import Tensor

# The version of everything that decides where an estimated prior leads to a cut. Splits, students and chosen epochs
# hold what followed from it, so it is part of their identity: raise it with any change, or a run that is continued
# after the change mixes both rules. A prior that is given is matched and has no version: that changed once, and only
# for cuts that would go through equal logits (2).
RULE = 2

_DEVIATIONS = 1.96  # from the middle of a 95 % interval to its end
_NEIGHBOURS = 0.005  # share of the rows on either side of a cut that tell how close together logits lie there
_CUTS = 200  # that are compared within an interval
_ROUNDING = 2e-6  # relative: by how much, at most, batches of different sizes make logits of the same row differ


def matched_threshold(logits: Tensor, prior: float) -> float:
    """The logit that a share `prior` of the population lies above; nearly so where equal logits are in the way."""
    ordered = logits.double().sort(descending=True).values
    return _cut(ordered, round(prior * len(ordered)))


def threshold_near(logits: Tensor, prior: float, interval: tuple[float, float]) -> float:
    """A cut where few logits lie, no farther from the prior than its 95 % interval makes plausible.

    Where classes are far apart, a prior that is off by a point cuts through one of them and costs a point of accuracy;
    the gap between them is then the better guess. Where logits lie evenly, this is the cut that matches the prior."""
    ordered, count = logits.double().sort(descending=True).values, len(logits)
    around = max(3, int(_NEIGHBOURS * count))
    low, high = (min(max(round(share * count), around), count - around - 1) for share in interval)
    if not low < high:
        return matched_threshold(logits, prior)
    above = torch.linspace(low, high, _CUTS, dtype=torch.float64, device=logits.device).round().long()
    width = ordered[above - around] - ordered[above + around - 1]
    deviation = (interval[1] - interval[0]) / (2 * _DEVIATIONS)
    # Density of logits times how implausible the share is, in logarithms.
    cost = -width.clamp_min(1e-12).log() + ((above / count - prior) / deviation).square() / 2
    best = int(cost.argmin())
    nearby = ordered[above[best] - around : above[best] + around]
    spaces = nearby[:-1] - nearby[1:]
    if spaces.max() > width[best] / 2:  # one gap makes the difference, and the cut belongs into it
        return _cut(nearby, int(spaces.argmax()) + 1)
    return _cut(ordered, int(above[best]))


def second_opinion(prior: float, interval: tuple[float, float], own_share: float) -> float:
    """Half way from an estimated prior to the share that a model calls positive by itself, within the 95 % interval.

    That share hardly depends on the prior that the model was trained with, so the two err in different directions."""
    low, high = interval
    return (prior + min(max(own_share, low), high)) / 2


def _cut(ordered: Tensor, above: int) -> float:
    """Half way between the logits that are to be above and the rest.

    There is always one of each, unless all are equal: then the cut is their logit, and none is above."""
    if len(ordered) == 1:
        return float(ordered[0])
    above = min(max(above, 1), len(ordered) - 1)
    equal = float(ordered[above])
    if float(ordered[above - 1]) == equal:
        # A cut through equal logits would be that logit, and rounding would decide which rows lie above: another answer
        # whenever they are computed anew. So to the nearest count that has them all on one side; logits of equal rows
        # may differ by rounding, and between these is no place for a cut if there is another.
        for rounding in (_ROUNDING * max(1.0, abs(equal)), 0.0):
            ends = int((ordered > equal + rounding).sum()), int((ordered >= equal - rounding).sum())
            possible = [end for end in ends if 0 < end < len(ordered)]
            if possible:
                above = min(possible, key=lambda end: abs(end - above))
                break
    higher, lower = ordered[above - 1 : above + 1].tolist()
    middle = float((higher + lower) / 2)
    return lower if middle == higher else middle  # of numbers with none between them, the higher one is to be above
