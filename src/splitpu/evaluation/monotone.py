"""How scores are spread among positives and negatives, told from P and U by one assumption: a higher score is no worse.

If the share of positives does not fall as the score rises, most of what single labelled rows do at random can be told
from what they say. Counting labelled rows alone, as the usual formulas do, has a quarter more error (docs/LOG.md).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_CELLS = 400


class Spread(NamedTuple):
    """Shares of the positives and of the negatives in each cell, from the lowest score to the highest."""

    positive: Floats
    negative: Floats

    @property
    def auc(self) -> float:
        """The share of pairs of both kinds in the right order; within a cell, half of them."""
        return float(self.positive @ (np.cumsum(self.negative) - self.negative / 2))

    def average_precision(self, prior: float) -> float:
        """The precision at every cell, weighed with its share of the positives."""
        recalled, alarmed = (np.cumsum(shares[::-1])[::-1] for shares in self)
        hits = prior * recalled
        return float(self.positive @ (hits / np.maximum(hits + (1 - prior) * alarmed, 1e-12)))


@dataclass(frozen=True, eq=False)
class ScoreCells:
    """How many rows of P and U have a score in each cell; the threshold, nought, is the border of two cells."""

    positive: Floats  # counts
    unlabelled: Floats
    above: npt.NDArray[np.bool_]  # whether a cell lies above the threshold

    @classmethod
    def of(cls, positive: Floats, unlabelled: Floats) -> "ScoreCells":
        """Cells with about as many rows each, or one for every score if there are few."""
        both = np.unique(np.concatenate([positive, unlabelled, [0.0]]))
        borders = both
        if len(both) > MOST_CELLS:
            pooled = np.concatenate([positive, unlabelled])
            inner = np.quantile(pooled, np.linspace(0, 1, MOST_CELLS + 1)[1:], method="higher")
            borders = np.unique(np.concatenate([inner, [0.0, both[-1]]]))
        # A cell reaches up to its border and includes it, so that a score of nought counts as below.
        counts = [
            np.bincount(np.searchsorted(borders, scores, "left"), minlength=len(borders)).astype(np.float64)
            for scores in (positive, unlabelled)
        ]
        return cls(counts[0], counts[1], borders > 0)

    def weights(self, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The counts of P and of U, and below them as many random weightings of their rows (the Bayesian bootstrap).

        In these one more labelled row is thought of, half above and half below the threshold and spread like the
        other rows: even 20 positives out of 20 leave room for a missed one.
        """
        thought = np.zeros_like(self.positive)
        for side in (self.above, ~self.above):
            rows = self.unlabelled[side] + self.positive[side]
            if rows.sum() > 0:
                thought[side] = 0.5 * rows / rows.sum()
        positive = rng.standard_gamma(np.tile(self.positive + thought, (draws, 1)))
        unlabelled = rng.standard_gamma(np.tile(self.unlabelled, (draws, 1)))
        return np.vstack([self.positive, positive]), np.vstack([self.unlabelled, unlabelled])


def monotone_spread(positive: Floats, unlabelled: Floats, share: float) -> Spread:
    """Split what lies in each cell of U into positives and negatives, whose odds rise from cell to cell.

    >>> monotone_spread(np.array([0.0, 4.0]), np.array([6.0, 2.0]), 0.25)
    Spread(positive=array([0., 1.]), negative=array([1., 0.]))
    """
    from sklearn.isotonic import isotonic_regression

    of_positive = share * positive / max(positive.sum(), 1e-12)
    of_unlabelled = unlabelled / max(unlabelled.sum(), 1e-12)
    weight = of_positive + of_unlabelled
    seen = weight > 0
    odds = np.zeros_like(weight)
    fitted = isotonic_regression(of_positive[seen] / weight[seen], sample_weight=weight[seen], y_min=0.0, y_max=0.5)
    odds[seen] = fitted / (1 - fitted)  # of P weighed with its share against U: the probability of being positive
    return Spread(
        _as_shares(odds * of_unlabelled, positive), _as_shares((1 - odds) * of_unlabelled, np.ones_like(odds))
    )


def _as_shares(mass: Floats, otherwise: Floats) -> Floats:
    """Summing up to 1; with nothing to go by, spread like `otherwise`."""
    total = mass.sum()
    shares: Floats
    if total > 1e-12:
        shares = mass / total
        return shares
    shares = otherwise / max(float(otherwise.sum()), 1e-12)
    return shares
