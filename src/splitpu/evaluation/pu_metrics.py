"""Figures of a model from labelled positives, unlabelled rows and the prior, each with an interval. No negatives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.errors import InputError

Floats = npt.NDArray[np.float64]

METRICS = ("accuracy", "f1", "precision", "recall", "roc_auc", "average_precision")
_DRAWS = 2000
_RESAMPLES = 100  # of the average precision, which has no closed form
_QUANTILES = (0.025, 0.975)
_NORMAL = 3.92  # width of a 95 % interval in standard deviations


class PUFigure(NamedTuple):
    """An estimated figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PUEvaluation:
    """What P, U and the prior tell of a model."""

    figures: dict[str, PUFigure]
    prior: float
    positives: int
    unlabelled: int
    positive_rate_unlabelled: float  # share of U called positive
    false_positive_rate: float  # share of negatives called positive, by inference
    nnpu: float  # the nnPU risk with the sigmoid loss; lower is better

    def to_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "figures": {name: figure._asdict() for name, figure in self.figures.items()},
            **{name: value for name, value in self.__dict__.items() if name != "figures"},
        }

    def __getitem__(self, name: str) -> PUFigure:
        return self.figures[name]


def evaluate_pu(
    decision_positive: npt.ArrayLike,
    decision_unlabelled: npt.ArrayLike,
    prior: float,
    *,
    scenario: Scenario = "single-training-set",
    prior_interval: tuple[float, float] | None = None,
    seed: int = 0,
) -> PUEvaluation:
    """Estimate accuracy, F1, precision, recall, ROC AUC and average precision of decisions (above 0 = positive).

    The rows should not have been trained on: recall is read off the labelled positives. With a share s of positives
    among the unlabelled rows, these are called positive at the rate s * recall + (1 - s) * false positive rate, which
    gives the latter, and with the prior everything else. Likewise the AUC of P against U is s / 2 + (1 - s) * AUC.
    Rates are drawn from their Beta posteriors (Jeffreys), so that even 20 of 20 positives leave room for doubt; a
    `prior_interval` (95 %) adds the doubt about the prior.

    >>> rng = np.random.default_rng(0)
    >>> positive, negative = rng.normal(1.5, 1, 4000), rng.normal(-1.5, 1, 1400)
    >>> found = evaluate_pu(positive[:2000], np.concatenate([positive[3400:], negative]), 0.3, scenario="case-control")
    >>> found["accuracy"].low < 0.933 < found["accuracy"].high
    True
    """
    positive, unlabelled = _scores(decision_positive, "positives"), _scores(decision_unlabelled, "unlabelled rows")
    share_in_u = float(np.clip(among_unlabelled(prior, len(positive), len(unlabelled), scenario), 0, 1))
    rng = np.random.default_rng(seed)
    priors = _prior_draws(prior, prior_interval, rng)
    shares = _share_draws(priors, prior, share_in_u, len(positive), len(unlabelled), scenario, rng)

    hits, called = int((positive > 0).sum()), int((unlabelled > 0).sum())
    recall, rate = hits / len(positive), called / len(unlabelled)
    recalls = rng.beta(hits + 0.5, len(positive) - hits + 0.5, _DRAWS)
    rates = rng.beta(called + 0.5, len(unlabelled) - called + 0.5, _DRAWS)
    values = dict(_from_rates(np.array([prior]), np.array([share_in_u]), np.array([recall]), np.array([rate])))
    draws = dict(_from_rates(priors, shares, recalls, rates))
    figures = {name: _figure(float(values[name][0]), draws[name]) for name in ("accuracy", "f1", "precision")}
    figures["recall"] = _figure(recall, recalls)
    figures["roc_auc"] = _auc(positive, unlabelled, share_in_u, shares, rng)
    figures["average_precision"] = _average_precision(positive, unlabelled, prior, priors, scenario, rng)
    return PUEvaluation(
        figures=figures,
        prior=prior,
        positives=len(positive),
        unlabelled=len(unlabelled),
        positive_rate_unlabelled=rate,
        false_positive_rate=float(np.clip(_false_positive_rate(share_in_u, recall, rate), 0, 1)),
        nnpu=_nnpu(positive, unlabelled, prior, share_in_u),
    )


def among_unlabelled(prior: npt.ArrayLike, positives: int, unlabelled: int, scenario: Scenario) -> Floats:
    """The share of positives among the unlabelled rows that a prior means.

    >>> float(among_unlabelled(0.6, 2, 8, "single-training-set"))
    0.5
    """
    prior = np.asarray(prior, dtype=np.float64)
    if scenario == "case-control":
        return prior
    return (prior * (positives + unlabelled) - positives) / unlabelled


def _from_rates(prior: Floats, share: Floats, recall: Floats, rate: Floats) -> Iterator[tuple[str, Floats]]:
    """Accuracy, precision and F1, kept inside what is possible."""
    false_positive = np.clip(_false_positive_rate(share, recall, rate), 0.0, 1.0)
    hits, alarms = prior * recall, (1 - prior) * false_positive
    yield "accuracy", hits + (1 - prior) - alarms
    yield "precision", hits / np.maximum(hits + alarms, 1e-12)
    yield "f1", 2 * hits / np.maximum(hits + alarms + prior, 1e-12)


def _false_positive_rate(share: npt.ArrayLike, recall: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    share, recall, rate = (np.asarray(value, dtype=np.float64) for value in (share, recall, rate))
    inferred: Floats = (rate - share * recall) / np.maximum(1 - share, 1e-9)
    return inferred


def auc_against_unlabelled(positive: Floats, unlabelled: Floats) -> tuple[float, float]:
    """The share of pairs of P and U in the right order, and its error from how much single rows move it (DeLong)."""
    ordered_u, ordered_p = np.sort(unlabelled), np.sort(positive)
    below = (np.searchsorted(ordered_u, positive, "left") + np.searchsorted(ordered_u, positive, "right")) / 2
    under = (np.searchsorted(ordered_p, unlabelled, "left") + np.searchsorted(ordered_p, unlabelled, "right")) / 2
    of_positive, of_unlabelled = below / len(unlabelled), 1 - under / len(positive)
    error = np.sqrt(of_positive.var() / len(positive) + of_unlabelled.var() / len(unlabelled))
    return float(of_positive.mean()), float(error)


def _auc(positive: Floats, unlabelled: Floats, share: float, shares: Floats, rng: np.random.Generator) -> PUFigure:
    auc, error = auc_against_unlabelled(positive, unlabelled)
    drawn = rng.normal(auc, max(error, 1e-9), _DRAWS)
    corrected = (auc - share / 2) / max(1 - share, 1e-9)
    return _figure(float(np.clip(corrected, 0, 1)), np.clip((drawn - shares / 2) / np.maximum(1 - shares, 1e-9), 0, 1))


def _average_precision(
    positive: Floats,
    unlabelled: Floats,
    prior: float,
    priors: Floats,
    scenario: Scenario,
    rng: np.random.Generator,
) -> PUFigure:
    value = _mean_precision(positive, unlabelled, prior, scenario)
    again = np.array(
        [
            _mean_precision(
                positive[rng.integers(len(positive), size=len(positive))],
                unlabelled[rng.integers(len(unlabelled), size=len(unlabelled))],
                float(priors[number]),
                scenario,
            )
            for number in range(_RESAMPLES)
        ]
    )
    # Around the value, not around the mean: resampling repeats rows and so moves the mean a little.
    half = 1.96 * float(again.std())
    return PUFigure(value, max(value - half, 0.0), min(value + half, 1.0))


def _mean_precision(positive: Floats, unlabelled: Floats, prior: float, scenario: Scenario) -> float:
    """The precision at the score of every labelled positive, averaged over them.

    At the top, where few rows are left, single values are wild; cut off at 1 each, they would come out too low on
    average. So they are first made to rise with the score, which pools neighbours, and cut off then. For scores
    that rank the worst rows highest this flatters.
    """
    from sklearn.isotonic import IsotonicRegression

    population = np.concatenate([positive, unlabelled]) if scenario == "single-training-set" else unlabelled
    ordered, population = np.sort(positive), np.sort(population)
    recalled = 1 - np.searchsorted(ordered, ordered, "left") / len(ordered)
    called = 1 - np.searchsorted(population, ordered, "left") / len(population)
    precision = prior * recalled / np.maximum(called, 0.5 / len(population))
    weight = np.maximum(called, 0.5 / len(population))  # the surer, the more rows it rests on
    pooled = IsotonicRegression(y_max=1.0).fit(np.arange(len(ordered)), precision, sample_weight=weight)
    return float(pooled.predict(np.arange(len(ordered))).mean())


def _nnpu(positive: Floats, unlabelled: Floats, prior: float, share: float) -> float:
    """The value over the population: its part that is unlabelled is known, its labelled part is positive."""
    loss_positive, loss_called = _sigmoid(-positive).mean(), _sigmoid(positive).mean()
    negative = (1 - prior) / max(1 - share, 1e-9) * (_sigmoid(unlabelled).mean() - share * loss_called)
    return float(prior * loss_positive + max(negative, 0.0))


def _prior_draws(prior: float, interval: tuple[float, float] | None, rng: np.random.Generator) -> Floats:
    if interval is None:
        return np.full(_DRAWS, prior)
    drawn: Floats = np.clip(rng.normal(prior, (interval[1] - interval[0]) / _NORMAL, _DRAWS), 1e-6, 1 - 1e-6)
    return drawn


def _share_draws(
    priors: Floats,
    prior: float,
    share: float,
    positives: int,
    unlabelled: int,
    scenario: Scenario,
    rng: np.random.Generator,
) -> Floats:
    """The share of positives among U, with the doubt that the rate at which U is called positive does not hold.

    In a single training set the number of positives varies as in a draw of all rows, but U is what is left after a
    fixed number of them were labelled, so it varies by more than a draw of U alone would.
    """
    shares = among_unlabelled(priors, positives, unlabelled, scenario)
    if scenario == "single-training-set":
        rows = positives + unlabelled
        surplus = rows * prior * (1 - prior) - unlabelled * share * (1 - share)
        shares = shares + rng.normal(0.0, np.sqrt(max(surplus, 0.0)) / unlabelled, len(shares))
    clipped: Floats = np.clip(shares, 0.0, 1.0)
    return clipped


def _figure(value: float, draws: Floats) -> PUFigure:
    low, high = np.quantile(draws, _QUANTILES)
    return PUFigure(value, min(float(low), value), max(float(high), value))


def _scores(decision: npt.ArrayLike, name: str) -> Floats:
    scores = np.asarray(decision, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"the decisions on {name} have the shape {scores.shape}: give at least one, as a flat array")
    if not np.isfinite(scores).all():
        raise InputError(f"the decisions on {name} hold NaN or infinite values: check the model that made them")
    return scores


def _sigmoid(values: Floats) -> Floats:
    squashed: Floats = 0.5 * (1 + np.tanh(0.5 * values))  # does not overflow
    return squashed
