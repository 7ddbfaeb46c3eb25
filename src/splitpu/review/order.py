"""Which sample to ask about next, and what answers in a random order say about the whole.

What answers are worth was measured with an oracle (benchmarks/review.py): those about rows near the cut teach most. To
mix in what the teacher says, or to spread the questions far apart, taught less; so `gain` asks about the rows nearest
to the cut, and only puts back those that are nearly the same as one that was asked about."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from splitpu.types import Floats, Indices, Mask

Order = Literal["gain", "likely", "random"]
_NORMAL = 1.959964
SPREAD_AMONG = 400  # of the most doubtful rows the questions are spread; those behind them follow as they are
NEARLY_SAME = 20.0  # a row that is so many times as near to another as rows usually are, is hardly another question


@dataclass(frozen=True)
class Opinions:
    """What the model of a run says of its unlabelled rows."""

    rows: Indices  # which training rows they are
    probability: Floats  # of the final model


def in_order(opinions: Opinions, order: Order, features: Floats | None = None, seed: int = 0) -> Indices:
    """The unlabelled rows, those to ask about first in front.

    >>> said = np.array([0.9, 0.5, 0.1])
    >>> in_order(Opinions(np.array([4, 7, 9]), said), "likely").tolist()
    [4, 7, 9]
    """
    if order == "random":
        first = np.random.default_rng(seed).permutation(len(opinions.rows))
    elif order == "likely":
        first = np.argsort(-opinions.probability, kind="stable")
    else:
        first = np.argsort(-doubt(opinions), kind="stable")
        if features is not None:
            first = spread(first, features, doubt(opinions))
    found: Indices = opinions.rows[first]
    return found


def doubt(opinions: Opinions) -> Floats:
    """How little the final model knows of a row: how near it is to one half, where the decision changes."""
    found: Floats = 0.5 - np.abs(opinions.probability - 0.5)
    return found


def spread(first: Indices, features: Floats, doubt: Floats) -> Indices:
    """The most doubtful rows in an order in which no question is asked twice: each puts those back that it is like.

    `features` are those of the first `SPREAD_AMONG` rows of the order."""
    count = len(features)
    if count < 3:
        return first
    head, worth = first[:count], doubt[first[:count]].copy()
    centred = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1.0)
    squares = (centred * centred).sum(1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * centred @ centred.T, 0.0))
    usual = float(apart.mean()) or 1.0
    chosen: list[int] = []
    for _ in range(count):
        place = int(np.argmax(worth))
        chosen.append(place)
        worth = worth * (1 - np.exp(-NEARLY_SAME * apart[place] / usual))
        worth[chosen] = -1.0
    found: Indices = np.concatenate([head[chosen], first[count:]])
    return found


def audit(truth: Mask, decisions: Mask, among: int, known: tuple[int, int] = (0, 0)) -> dict[str, Any] | None:
    """Accuracy on the rows that answers are a random draw of, and the prior: values with 95 % intervals.

    None where nobody answered. `among` is how many rows they were drawn from; `known` how many positives and negatives
    the population has besides: labelled rows that belong to it, and what was answered in another order.

    >>> found = audit(np.arange(100) < 30, np.arange(100) < 40, 1000, (100, 0))
    >>> round(found["accuracy"][0], 2), round(found["prior"][0], 3)
    (0.9, 0.364)
    """
    if not len(truth):
        return None
    right = share_of(int((truth == decisions).sum()), len(truth), among)
    shares = share_of(int(truth.sum()), len(truth), among)
    value, low, high = ((one * among + known[0]) / (among + sum(known)) for one in shares)
    return {"answered": len(truth), "accuracy": right, "prior": (value, low, high)}


def share_of(number: int, drawn: int, among: int) -> tuple[float, float, float]:
    """A share with Wilson's interval, narrower the more of all rows were drawn: what is looked at is known.

    >>> [round(one, 3) for one in share_of(5, 10, 10)]
    [0.5, 0.5, 0.5]
    """
    value = number / drawn
    left = math.sqrt(max(among - drawn, 0) / max(among - 1, 1))
    z = _NORMAL * left
    centre = (value + z * z / (2 * drawn)) / (1 + z * z / drawn)
    reach = z / (1 + z * z / drawn) * math.sqrt(value * (1 - value) / drawn + z * z / (4 * drawn * drawn))
    return value, max(0.0, centre - reach), min(1.0, centre + reach)
