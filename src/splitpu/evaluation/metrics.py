"""Figures of a model: from the truth, or from labelled positives, unlabelled rows and the prior, with an interval.

A figure that the rows cannot give is None, never NaN."""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import check_interval, check_prior_of_sample
from splitpu.errors import SplitPUWarning
from splitpu.evaluation.calibration import ScoreCells, Spread, monotone_spread, sigmoid
from splitpu.types import Floats
from splitpu.utils.arrays import checked_scores, checked_seed, warn_of_probabilities
from splitpu.utils.text import html_table

Figures = dict[str, float | None]


def evaluate_scores(truth: npt.ArrayLike, decision: npt.ArrayLike, prior: float | None = None) -> Figures:
    """Compare scores with the truth (True or 1 = positive); a score above 0 says positive.

    Both the predicted and the true share of positives are among the figures: a model that calls everything positive
    has a perfect recall, and only its positive rate gives it away. With a `prior`, the distance to it comes as well."""
    actual = np.asarray(truth) == 1
    scores = np.asarray(decision, dtype=np.float64)
    if actual.shape != scores.shape or actual.ndim != 1:
        raise ValueError(f"truth of shape {actual.shape} and decision of shape {scores.shape} do not match")
    if len(actual) == 0:
        raise ValueError("there are no rows to evaluate")
    called = scores > 0
    hits, calls, positives = int((called & actual).sum()), int(called.sum()), int(actual.sum())
    figures: Figures = {
        "accuracy": float((called == actual).mean()),
        "f1": 2 * hits / (calls + positives) if calls + positives else None,
        "precision": hits / calls if calls else None,
        "recall": hits / positives if positives else None,
        "roc_auc": None,
        "average_precision": None,
        "positive_rate": float(called.mean()),
        "true_rate": float(actual.mean()),
    }
    if 0 < positives < len(actual) and np.isfinite(scores).all():  # what their order is worth takes both classes to say
        from sklearn.metrics import average_precision_score, roc_auc_score

        figures["roc_auc"] = float(roc_auc_score(actual, scores))
        figures["average_precision"] = float(average_precision_score(actual, scores))
    if prior is not None:
        figures["prior_gap"] = float(called.mean()) - prior
    return figures


def if_truth_is_swapped(figures: Mapping[str, Any], rows: int) -> list[str]:
    """A sentence where scores rank negatives above positives by far more than chance explains."""
    auc, share = figures["roc_auc"], figures["true_rate"]
    # Three standard errors of an AUC of one half are chance.
    if auc is None or auc >= 0.5 - max(_CLEARLY_BELOW, 3 * math.sqrt(1 / (12 * rows * share * (1 - share)))):
        return []
    return [
        f"the model ranks test rows that are called negative above those that are called positive (ROC AUC {auc:.2f}): "
        "are the labels swapped? --test takes the positives first, then the negatives, and in labels 1 means positive."
    ]


def finite_or_none(value: Any) -> Any:
    """Replace every NaN and infinity inside nested plain values by None, because JSON knows neither."""
    if isinstance(value, dict):
        return {key: finite_or_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


METRICS = ("accuracy", "f1", "precision", "recall", "roc_auc", "average_precision")
_DRAWS = 200
_QUANTILES = (0.025, 0.975)
_NORMAL = 3.92  # width of a 95 % interval in standard deviations
_CLEAR_SIGMAS = 4.0
_CLEARLY_BELOW = 0.15  # one half, the ROC AUC of a model that has learned nothing


class PUFigure(NamedTuple):
    """A figure with its 95 % interval, and where they are known what simpler models get."""

    value: float
    low: float
    high: float
    always_negative: float | None = None  # every row is called negative, or the order is a random one
    naive: float | None = None  # every unlabelled row is taken for a negative


@dataclass(frozen=True)
class PUEvaluation(Mapping[str, PUFigure]):
    """What P, U and the prior tell of a model: names and figures, in the order in which they are shown."""

    figures: dict[str, PUFigure]
    prior: float
    positives: int
    unlabelled: int
    positive_rate_unlabelled: float  # share of U called positive
    false_positive_rate: float  # share of negatives called positive, by inference
    nnpu: float  # the nnPU risk with the sigmoid loss; lower is better

    def to_dict(self) -> dict[str, object]:
        return {
            "figures": {name: figure._asdict() for name, figure in self.figures.items()},
            **{name: value for name, value in self.__dict__.items() if name != "figures"},
        }

    def _repr_html_(self) -> str:
        width = 4 if any(figure.always_negative is not None for figure in self.values()) else 3
        return html_table(("", *PUFigure._fields[:width]), ([name, *one[:width]] for name, one in self.items()))

    def __getitem__(self, name: str) -> PUFigure:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


class Readings(NamedTuple):
    """What one way of reckoning makes of the rows: the estimates first, then one entry for every random draw."""

    recall: Floats
    false_positive_rate: Floats
    auc: Floats

    def with_prior(self, priors: Floats, *, possible: bool = True) -> dict[str, Floats]:
        """Every figure that follows from these three, kept inside what is `possible` or not."""
        false_positives = np.clip(self.false_positive_rate, 0.0, 1.0) if possible else self.false_positive_rate
        hits, alarms = priors * self.recall, (1 - priors) * false_positives
        return {
            "accuracy": hits + (1 - priors) - alarms,
            "f1": 2 * hits / np.maximum(hits + alarms + priors, 1e-12),
            "precision": hits / np.maximum(hits + alarms, 1e-12),
            "recall": self.recall,
            "roc_auc": np.clip(self.auc, 0.0, 1.0) if possible else self.auc,
        }


def evaluate_pu(
    decision_positive: npt.ArrayLike,
    decision_unlabelled: npt.ArrayLike,
    prior: float,
    *,
    scenario: Scenario = "single-training-set",
    prior_interval: tuple[float, float] | None = None,
    seed: int = 0,
    intervals: bool = True,
) -> PUEvaluation:
    """Estimate accuracy, F1, precision, recall, ROC AUC and average precision of decisions (above 0 = positive).

    The rows should not have been trained on: recall is read off the labelled positives (`cross_fitted_decisions` lets
    every row serve). With a share s of positives among the unlabelled rows, these are called positive at the rate
    s * recall + (1 - s) * false positive rate, which gives the latter, and with the prior everything else; likewise the
    AUC of P against U is s / 2 + (1 - s) * AUC. That is unbiased and noisy. The other way is to let the share of
    positives rise with the score (see `monotone`), which is steadier and a little biased. The estimate is the mean of
    both, and half of their difference is part of its error; but where they contradict each other, counting wins.
    A `prior_interval` (95 %) adds the doubt about the prior. Without `intervals` only the values are computed.

    >>> rng = np.random.default_rng(0)
    >>> positive, negative = rng.normal(1.5, 1, 4000), rng.normal(-1.5, 1, 1400)
    >>> found = evaluate_pu(positive[:2000], np.concatenate([positive[3400:], negative]), 0.3, scenario="case-control")
    >>> found["accuracy"].low < 0.933 < found["accuracy"].high
    True
    """
    positive = checked_scores(decision_positive, "positives")
    unlabelled = checked_scores(decision_unlabelled, "unlabelled rows")
    prior = check_prior_of_sample(prior, len(positive), len(unlabelled), scenario)
    if prior_interval is not None:
        prior_interval = check_interval(prior_interval, prior)
    warn_of_probabilities(positive, unlabelled)
    sizes = len(positive), len(unlabelled)
    share_in_u = float(np.clip(among_unlabelled(prior, *sizes, scenario), 0, 1))
    rng = np.random.default_rng(checked_seed(seed))
    draws = _DRAWS if intervals else 0
    priors, shares = np.full(draws + 1, prior), np.full(draws + 1, share_in_u)
    if prior_interval is not None:
        deviation = (prior_interval[1] - prior_interval[0]) / _NORMAL
        priors[1:] = np.clip(rng.normal(prior, deviation, draws), 1e-6, 1 - 1e-6)
    shares[1:] = among_unlabelled(priors[1:], *sizes, scenario)
    if scenario == "single-training-set":  # how many positives are left in U is doubtful as well
        shares[1:] += rng.normal(0.0, share_error(prior, share_in_u, *sizes, scenario), draws)
    shares = np.clip(shares, 0.0, 1.0)
    counted, rising, spreads = _two_readings(positive, unlabelled, shares, draws, rng)
    # The counts may rule out that a higher score is no worse: a model may rank upside down.
    recall, auc_error = float(rising.recall[0]), auc_against_unlabelled(positive, unlabelled)[1]
    contradicted = abs(counted.recall[0] - recall) > _CLEAR_SIGMAS * recall_error(recall, len(positive)) or abs(
        counted.auc[0] - rising.auc[0]
    ) > _CLEAR_SIGMAS * max(auc_error, 1e-9) / max(1 - share_in_u, 1e-9)
    readings = [counted] if contradicted else [counted, rising]
    mean = Readings(*(np.mean(parts, axis=0) for parts in zip(*readings, strict=True)))
    separate = [one.with_prior(priors) for one in readings]
    # Of a model that is nearly always right, what is possible cuts draws off on one side only and so moves their mean:
    # as far as counting alone would reach, if nothing were cut off, the truth may well lie.
    uncut = counted.with_prior(priors, possible=False)
    figures = {
        name: _figure(values, [one[name][0] for one in separate], uncut[name])
        for name, values in mean.with_prior(priors).items()
    }
    # The mean of two readings here as well; how it varies is told by the one that is drawn again.
    pooled = _mean_precision(positive, unlabelled, prior, scenario)
    precise = np.array([one.average_precision(float(at)) for one, at in zip(spreads, priors, strict=True)])
    figures["average_precision"] = _figure(precise + (pooled - precise[0]) / 2, [pooled, float(precise[0])])
    if intervals and figures["roc_auc"].high < 0.5 - _CLEARLY_BELOW:
        wrong = f"positives rank below unlabelled rows (ROC AUC {figures['roc_auc'].value:.2f})"
        warnings.warn(f"{wrong}: are the labels swapped, or is the sign of the decision?", SplitPUWarning, stacklevel=2)
    # The risk over the population: its part that is unlabelled is known, its labelled part is positive.
    alarm = float(sigmoid(unlabelled).mean() - share_in_u * sigmoid(positive).mean())
    nnpu = prior * sigmoid(-positive).mean() + max((1 - prior) / max(1 - share_in_u, 1e-9) * alarm, 0.0)
    return PUEvaluation(
        figures={name: figures[name] for name in METRICS},
        prior=prior,
        positives=len(positive),
        unlabelled=len(unlabelled),
        positive_rate_unlabelled=float((unlabelled > 0).mean()),
        false_positive_rate=float(np.clip(mean.false_positive_rate[0], 0, 1)),
        nnpu=float(nnpu),
    )


def among_unlabelled(prior: npt.ArrayLike, positives: int, unlabelled: int, scenario: Scenario) -> Floats:
    """The share of positives among the unlabelled rows that a prior means."""
    prior = np.asarray(prior, dtype=np.float64)
    if scenario == "case-control":
        return prior
    return (prior * (positives + unlabelled) - positives) / unlabelled


def share_error(prior: float, share: float, positives: int, unlabelled: int, scenario: Scenario) -> float:
    """The standard error of the share of positives among U, beyond that of a draw of U alone.

    In a single training set the number of positives varies as in a draw of all rows, but U is what is left after a
    fixed number of them were labelled, so it varies by more."""
    if scenario == "case-control":
        return 0.0
    rows = positives + unlabelled
    surplus = rows * prior * (1 - prior) - unlabelled * share * (1 - share)
    return float(np.sqrt(max(surplus, 0.0)) / unlabelled)


def _two_readings(
    positive: Floats, unlabelled: Floats, shares: Floats, draws: int, rng: np.random.Generator
) -> tuple[Readings, Readings, list[Spread]]:
    """By counting labelled rows, and by letting the share of positives rise with the score, which gives spreads."""
    cells = ScoreCells.of(positive, unlabelled)
    known, mixed = cells.weights(draws, rng)
    of_known, of_mixed = (weights / weights.sum(1, keepdims=True) for weights in (known, mixed))
    recall, rate = (weights[:, cells.above].sum(1) for weights in (of_known, of_mixed))
    negative_share = np.maximum(1 - shares, 1e-9)
    below = np.cumsum(of_mixed, axis=1) - of_mixed / 2
    counted = Readings(
        recall, (rate - shares * recall) / negative_share, ((of_known * below).sum(1) - shares / 2) / negative_share
    )
    spreads = [monotone_spread(*row) for row in zip(known, mixed, shares, strict=True)]
    rising = Readings(
        np.array([spread.positive[cells.above].sum() for spread in spreads]),
        np.array([spread.negative[cells.above].sum() for spread in spreads]),
        np.array([spread.auc for spread in spreads]),
    )
    return counted, rising, spreads


def recall_error(recall: float, positives: int) -> float:
    """Its standard error, which is not nought because all of a few positives were found."""
    return float(np.sqrt(max(recall * (1 - recall), 1 / positives) / positives))


def auc_against_unlabelled(positive: Floats, unlabelled: Floats) -> tuple[float, float]:
    """The share of pairs of P and U in the right order, and its error from how much single rows move it (DeLong)."""
    of_positive, of_unlabelled = placements(positive, unlabelled)
    error = np.sqrt(of_positive.var() / len(positive) + of_unlabelled.var() / len(unlabelled))
    return float(of_positive.mean()), float(error)


def placements(positive: Floats, other: Floats) -> tuple[Floats, Floats]:
    """For each positive the share of the others below it, for each other that of the positives above; ties are half."""

    def share_below(scores: Floats, among: Floats) -> Floats:
        ordered = np.sort(among)
        below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
        return np.asarray(below / (2 * len(ordered)))

    return share_below(positive, other), 1 - share_below(other, positive)


def _mean_precision(positive: Floats, unlabelled: Floats, prior: float, scenario: Scenario) -> float:
    """The precision at the score of every labelled positive, averaged over them.

    At the top, where few rows are left, single values are wild; cut off at 1 each, they would come out too low on
    average. So they are first made to rise with the score, which pools neighbours, and cut off then. For scores
    that rank the worst rows highest this flatters."""
    from sklearn.isotonic import isotonic_regression

    population = np.concatenate([positive, unlabelled]) if scenario == "single-training-set" else unlabelled
    ordered, population = np.sort(positive), np.sort(population)
    recalled = 1 - np.searchsorted(ordered, ordered, "left") / len(ordered)
    called = 1 - np.searchsorted(population, ordered, "left") / len(population)
    weight = np.maximum(called, 0.5 / len(population))  # the surer, the more rows it rests on
    pooled = isotonic_regression(prior * recalled / weight, sample_weight=weight, y_max=1.0)
    return float(pooled.mean())


def _figure(values: Floats, readings: list[float], uncut: Floats | None = None) -> PUFigure:
    """The first value with an interval around it: from the draws, and from how far the readings lie apart.

    Upwards it reaches at least as far as the `uncut` draws."""
    value, draws = min(max(float(values[0]), 0.0), 1.0), values[1:]  # sums may end a rounding beyond
    if len(draws) == 0:
        return PUFigure(value, value, value)
    apart = _NORMAL / 2 * float(np.std(readings))
    low, high = np.quantile(draws, _QUANTILES)
    below, above = (float(np.hypot(max(reach, 0.0), apart)) for reach in (value - low, high - value))
    highest = value + above if uncut is None else max(value + above, float(np.quantile(uncut[1:], _QUANTILES[1])))
    return PUFigure(value, max(value - below, 0.0), min(highest, 1.0))


def written(probability: float) -> str:
    """A probability as files keep it."""
    return f"{probability:.6g}"


def most_doubtful(teacher: Floats, student: Floats, among: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
    """Positions where the student is unsure or contradicts its teacher, the worst first; both on one scale."""
    candidates = np.flatnonzero(among)
    # Rounded as files are, or near ties would have one order in the training and another when its files are read.
    taught, said = (np.array([float(written(one)) for one in both[candidates]]) for both in (teacher, student))
    doubt = np.abs(taught - said) + (0.5 - np.abs(said - 0.5))
    return candidates[np.argsort(-doubt, kind="stable")][:count]
