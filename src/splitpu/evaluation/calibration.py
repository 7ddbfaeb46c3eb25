"""Probabilities that mean what they say, learned and judged from held-out P and U.

And how scores are spread among positives and negatives if a higher score is no worse: that tells most of what single
labelled rows do at random from what they say. Counting labelled rows alone has a quarter more error (docs/LOG.md)."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import check_prior_of_sample
from splitpu.errors import InputError
from splitpu.types import Floats
from splitpu.utils.arrays import checked_scores, log_odds

CalibrationMethod = Literal["temperature", "platt", "isotonic"]

# How far a slope may go. Held-out rows with fewer positives than the prior says, which is every second draw of a model
# that tells classes apart well, ask for infinity; what a bound costs where a steep slope is right is next to nothing.
_STEEPEST, _FLATTEST = 5.0, 0.02
SUREST_MISS = 1e-6  # an isotonic map may say 0 or 1, of which there are no log odds


@dataclass(frozen=True)
class PUCalibrator:
    """A rising map from decisions to probabilities of being positive; make one with `PUCalibrator.fit`."""

    method: CalibrationMethod
    slope: float = 1.0
    offset: float = 0.0
    knots: Floats | None = None  # of the isotonic map
    heights: Floats | None = None

    @classmethod
    def fit(
        cls,
        decision_positive: npt.ArrayLike,
        decision_unlabelled: npt.ArrayLike,
        prior: float,
        *,
        method: CalibrationMethod = "platt",
        scenario: Scenario = "single-training-set",
    ) -> "PUCalibrator":
        """Fit on rows that the model was not trained on.

        Temperature and Platt minimise the unbiased PU estimate of the log loss, -prior * mean_P z + mean_population
        log(1 + exp z), which is convex. Isotonic estimates prior * density of P / density of the population directly,
        rising with the decision; it needs hundreds of positives."""
        samples = (decision_positive, "held-out positives"), (decision_unlabelled, "held-out unlabelled rows")
        positive, population, prior = _with_population(*samples, prior, scenario)
        if method == "isotonic":
            return cls(method, 1.0, 0.0, *_isotonic(positive, population, prior))
        if method in ("temperature", "platt"):
            return cls(method, *_logistic(positive, population, prior, with_offset=method == "platt"))
        raise InputError(f"method={method!r} is unknown: choose temperature, platt or isotonic")

    def probability(self, decision: npt.ArrayLike) -> Floats:
        """Probabilities of being positive."""
        scores = np.asarray(decision, dtype=np.float64)
        if self.knots is not None and self.heights is not None:
            interpolated: Floats = np.interp(scores, self.knots, self.heights)
            return interpolated
        return sigmoid(self.slope * scores + self.offset)

    def decision(self, decision: npt.ArrayLike) -> Floats:
        """The log odds of these probabilities: what a model says once it is calibrated, nought at probability 1/2.

        >>> PUCalibrator("platt", slope=2.0, offset=1.0).decision([0.5, -0.5]).tolist()
        [2.0, 0.0]
        """
        if self.knots is None:
            scaled: Floats = self.slope * np.asarray(decision, dtype=np.float64) + self.offset
            return scaled
        return log_odds(self.probability(decision), SUREST_MISS)

    def cut(self) -> float:
        """The decision above which the probability is above 1/2; infinite where an isotonic map stays on one side.

        >>> PUCalibrator("platt", slope=2.0, offset=1.0).cut()
        -0.5
        """
        if self.knots is None or self.heights is None:
            return -self.offset / self.slope
        above = int(np.searchsorted(self.heights, 0.5, side="right"))  # the first one
        if above in (0, len(self.heights)):
            return math.inf if above else -math.inf
        ends = slice(above - 1, above + 1)  # of the stretch that rises through 1/2
        return float(np.interp(0.5, self.heights[ends], self.knots[ends]))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which a model file keeps."""
        if self.knots is None or self.heights is None:
            return {"method": self.method, "slope": self.slope, "offset": self.offset}
        return {"method": self.method, "knots": self.knots.tolist(), "heights": self.heights.tolist()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "PUCalibrator":
        """From what a model file kept."""
        parts: dict[str, Any] = {key: np.array(one) if isinstance(one, list) else one for key, one in stored.items()}
        return cls(**parts)


@dataclass(frozen=True)
class ReliabilityBin:
    """The rows whose probability lies in one range: what was promised, and what P and U say came true."""

    low: float
    high: float
    share: float  # of the population
    promised: float
    estimated: float


@dataclass(frozen=True)
class Reliability:
    """How far probabilities are from frequencies."""

    bins: tuple[ReliabilityBin, ...]
    error: float  # expected calibration error: mean distance, weighted by the share of rows


def reliability(
    probability_positive: npt.ArrayLike,
    probability_unlabelled: npt.ArrayLike,
    prior: float,
    *,
    scenario: Scenario = "single-training-set",
    bins: int = 10,
) -> Reliability:
    """Compare probabilities with the share of positives that P, U and the prior imply, bin by bin.

    In a bin that holds a share p of the labelled positives and a share q of the population, prior * p / q of the rows
    are positive. Bins hold equal numbers of rows where probabilities pile up at the ends."""
    samples = (probability_positive, "positives"), (probability_unlabelled, "unlabelled rows")
    positive, population, prior = _with_population(*samples, prior, scenario, "probabilities")
    if min(population.min(), positive.min()) < 0 or max(population.max(), positive.max()) > 1:
        raise InputError("some values lie outside 0 to 1, but probabilities are needed: give those of predict_proba")
    edges = np.unique(np.quantile(population, np.linspace(0, 1, bins + 1)))
    edges[0], edges[-1] = 0.0, 1.0
    if len(edges) < 2:
        edges = np.array([0.0, 1.0])
    found = []
    bin_of = [np.searchsorted(edges[1:-1], values, side="right") for values in (population, positive)]
    for number, (low, high) in enumerate(pairwise(edges.tolist())):
        of_population, of_positive = (bins == number for bins in bin_of)
        if of_population.any():
            share = float(of_population.mean())
            estimated = float(np.clip(prior * of_positive.mean() / share, 0.0, 1.0))
            found.append(ReliabilityBin(low, high, share, float(population[of_population].mean()), estimated))
    return Reliability(tuple(found), float(sum(one.share * abs(one.promised - one.estimated) for one in found)))


def _with_population(
    known: tuple[npt.ArrayLike, str],
    others: tuple[npt.ArrayLike, str],
    prior: float,
    scenario: Scenario,
    what: Literal["decisions", "probabilities"] = "decisions",
) -> tuple[Floats, Floats, float]:
    """What is known to be positive, what stands for the population, and a prior they can have."""
    positive, unlabelled = (checked_scores(values, name, what) for values, name in (known, others))
    prior = check_prior_of_sample(prior, len(positive), len(unlabelled), scenario)
    joined = scenario == "single-training-set"
    return positive, np.concatenate([positive, unlabelled]) if joined else unlabelled, prior


def _logistic(positive: Floats, population: Floats, prior: float, *, with_offset: bool) -> tuple[float, float]:
    """The slope, inside its bounds, and the offset of the least loss."""
    from scipy.optimize import minimize

    # On one scale: decisions may be thousands, and slope and offset have to move alike.
    middle, spread = float(population.mean()) if with_offset else 0.0, float(population.std()) or 1.0
    design = np.stack([(population - middle) / spread, np.ones_like(population)], axis=1)
    pull = prior * np.array([(positive.mean() - middle) / spread, 1.0])

    def loss_and_slopes(at: Floats) -> tuple[float, Floats]:
        logits = design @ at
        return np.logaddexp(0, logits).mean() - pull @ at, sigmoid(logits) @ design / len(design) - pull

    bounds = [(_FLATTEST * spread, _STEEPEST * spread), (None, None) if with_offset else (0.0, 0.0)]
    how = {"jac": True, "bounds": bounds, "method": "L-BFGS-B", "options": {"ftol": 1e-14, "gtol": 1e-9}}
    found = minimize(loss_and_slopes, [spread, middle], **how)
    slope = float(found.x[0]) / spread
    return slope, float(found.x[1]) - slope * middle


def _isotonic(positive: Floats, population: Floats, prior: float) -> tuple[Floats, Floats]:
    """Weigh P by the prior against the population: the odds of being from P are then the posterior itself."""
    from sklearn.isotonic import IsotonicRegression

    scores = np.concatenate([positive, population])
    from_positive = np.arange(len(scores)) < len(positive)
    weight = np.where(from_positive, prior / len(positive), 1 / len(population))
    knots = np.unique(scores)
    share = IsotonicRegression(out_of_bounds="clip").fit(scores, from_positive, sample_weight=weight).predict(knots)
    heights: Floats = np.clip(share / np.maximum(1 - share, 1e-9), 0.0, 1.0)
    # Between equal neighbours a knot says nothing; what is left is short enough for a model file.
    level = np.zeros(len(knots), dtype=np.bool_)  # of one knot, where all decisions are equal, nothing is left out
    level[1:-1] = (heights[1:-1] == heights[:-2]) & (heights[1:-1] == heights[2:])
    return knots[~level], heights[~level]


def sigmoid(values: Floats) -> Floats:
    """The probability that log odds mean; neither overflows nor rounds small ones to nought."""
    squashed: Floats = np.exp(-np.logaddexp(0.0, -values))
    return squashed


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
        other rows: even 20 positives out of 20 leave room for a missed one."""
        thought = np.zeros_like(self.positive)
        for side in (self.above, ~self.above):
            rows = self.unlabelled[side] + self.positive[side]
            if rows.sum() > 0:
                thought[side] = 0.5 * rows / rows.sum()
        positive = rng.standard_gamma(np.tile(self.positive + thought, (draws, 1)))
        unlabelled = rng.standard_gamma(np.tile(self.unlabelled, (draws, 1)))
        return np.vstack([self.positive, positive]), np.vstack([self.unlabelled, unlabelled])


def monotone_spread(positive: Floats, unlabelled: Floats, share: float) -> Spread:
    """Split what lies in each cell of U into positives and negatives, whose odds rise from cell to cell."""
    from sklearn.isotonic import isotonic_regression

    of_positive = share * positive / max(positive.sum(), 1e-12)
    of_unlabelled = unlabelled / max(unlabelled.sum(), 1e-12)
    weight = of_positive + of_unlabelled
    seen = weight > 0
    odds = np.zeros_like(weight)
    fitted = isotonic_regression(of_positive[seen] / weight[seen], sample_weight=weight[seen], y_min=0.0, y_max=0.5)
    odds[seen] = fitted / (1 - fitted)  # of P weighed with its share against U: the probability of being positive

    def as_shares(mass: Floats, otherwise: Floats) -> Floats:
        """Summing up to 1; with nothing to go by, spread like `otherwise`."""
        total = float(mass.sum())
        return mass / total if total > 1e-12 else otherwise / max(float(otherwise.sum()), 1e-12)

    of_negative = (1 - odds) * of_unlabelled
    return Spread(as_shares(odds * of_unlabelled, positive), as_shares(of_negative, np.ones_like(odds)))
