"""Plots as scikit-learn users expect them: classes with `from_estimator` and `from_predictions`, drawn with matplotlib
(extra `plots`). Curves come from labelled positives, unlabelled rows and the prior, with 95 % bands, without any truth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import torch

from splitpu.config.schema import Scenario
from splitpu.errors import InputError, MissingExtraError
from splitpu.evaluation.calibration import Reliability, reliability, sigmoid
from splitpu.evaluation.judgement import estimated_curves
from splitpu.evaluation.metrics import evaluate_pu
from splitpu.evaluation.scikit_learn import decisions
from splitpu.methods.thresholds import matched_threshold
from splitpu.prior.estimate import EstimatorRow, PriorEstimate
from splitpu.prior.from_scores import prior_from_scores
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_scores


@dataclass
class _Display:
    """What all have in common: `ax_` and `figure_` after `plot`, as in scikit-learn."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    _draw: ClassVar[Any]  # on given axes, in a style

    def plot(self, ax: Any = None, **style: Any) -> Self:
        """Draw on the given axes, or on new ones."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise MissingExtraError("plots are drawn with matplotlib: pip install 'splitpu[plots]'.") from error
        self.ax_ = pyplot.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_, style)
        return self


class _OfScores(_Display):
    """Of what a model says of rows that it has not seen; subclasses have `from_predictions`, with a prior."""

    from_predictions: ClassVar[Callable[..., Any]]
    _takes_shares: ClassVar[bool] = False  # probabilities, not decisions

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, labelled: npt.ArrayLike, *, prior: float | None = None, ax: Any = None, **how: Any
    ) -> Self:
        """From a fitted estimator and rows that it has not seen; its own prior, unless another is given."""
        prior = _fitted(estimator, "prior_") if prior is None else prior
        how = {"name": type(estimator).__name__, "prior": prior, "ax": ax, **how}
        said = decisions(estimator, X)
        return cast(Self, cls.from_predictions(labelled, sigmoid(said) if cls._takes_shares else said, **how))


def _fitted(estimator: Any, name: str) -> Any:
    """What a fitted classifier keeps under this name."""
    if (kept := getattr(estimator, name, None)) is None:
        raise InputError(f"this {type(estimator).__name__} has no {name}: fit one that has, or use from_predictions")
    return kept


def _known_and(labelled: npt.ArrayLike, decision: npt.ArrayLike) -> tuple[Flags, Floats]:
    """Which rows are known to be positive, and the values of all, one a row."""
    known, scores = np.asarray(labelled) == 1, np.asarray(decision, dtype=np.float64)
    if known.shape != scores.shape or known.ndim != 1:
        raise InputError(f"labelled has shape {known.shape} and decision {scores.shape}: give one value a row")
    for rows, kind in ((scores[known], "positives"), (scores[~known], "unlabelled")):
        checked_scores(rows, kind)
    return known, scores


@dataclass
class _PUCurve(_OfScores):
    """A curve over a grid from 0 to 1, and the band that 95 % of random weightings of the rows lie in."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats
    value: float  # the area that the curve is usually told by
    prior: float
    name: str = ""

    _words: ClassVar[tuple[str, str, str]]  # of the axes, and of the value
    _kind: ClassVar[str]  # among the curves

    @classmethod
    def from_predictions(
        cls,
        labelled: npt.ArrayLike,
        decision: npt.ArrayLike,
        *,
        prior: float,
        scenario: Scenario = "single-training-set",
        seed: int = 0,
        name: str = "",
        ax: Any = None,
    ) -> Self:
        """From decisions on rows that the model was not trained on, of which `labelled` are known to be positive."""
        known, scores = _known_and(labelled, decision)
        curves = estimated_curves(scores, known, prior, scenario=scenario, seed=seed)
        return cls(*curves[cls._kind], prior, name).plot(ax)

    def _draw(self, ax: Any, style: dict[str, Any]) -> None:
        across, up, value = self._words
        label = f"{self.name} ({value} {self.value:.2f})".strip()
        (line,) = ax.plot(self.x, self.y, label=label, **style)
        ax.fill_between(self.x, self.low, self.high, alpha=0.2, color=line.get_color(), linewidth=0)
        ax.set(xlabel=across, ylabel=up, xlim=(0, 1), ylim=(0, 1.02))
        ax.legend(loc="lower left")


class PUPrecisionRecallDisplay(_PUCurve):
    """Precision over recall, estimated from P, U and the prior.

    `PUPrecisionRecallDisplay.from_estimator(model, X_new, s_new)` or `.from_predictions(s_new, decision, prior=0.3)`.
    """

    _words = "recall", "precision (estimated)", "AP"
    _kind = "precision_recall"


class PURocDisplay(_PUCurve):
    """True positive rate over false positive rate, estimated from P, U and the prior."""

    _words = "false positive rate (estimated)", "true positive rate", "AUC"
    _kind = "roc"


@dataclass
class PriorDisplay(_Display):
    """What every estimator of the prior says, with its interval, and the recommended value."""

    estimate: PriorEstimate

    @classmethod
    def from_estimate(cls, estimate: PriorEstimate, *, ax: Any = None) -> "PriorDisplay":
        """Of what `estimate_prior(data, every=True)` gives."""
        return cls(estimate).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> "PriorDisplay":
        """Of the prior that a fitted classifier was trained with; an interval if it was estimated then."""
        prior = _fitted(estimator, "prior_")
        interval = getattr(estimator, "prior_interval_", None) or (prior, prior)
        return cls._of_one(type(estimator).__name__, prior, interval, ax)

    @classmethod
    def from_predictions(
        cls,
        labelled: npt.ArrayLike,
        decision: npt.ArrayLike,
        *,
        scenario: Scenario = "single-training-set",
        name: str = "the order of scores",
        ax: Any = None,
    ) -> "PriorDisplay":
        """Of what decisions on rows that the model was not trained on say of the prior, by their order alone."""
        known, scores = _known_and(labelled, decision)
        told = prior_from_scores(scores, known, scenario=scenario)
        return cls._of_one(name, told.value, told.interval, ax)

    @classmethod
    def _of_one(cls, name: str, prior: float, interval: tuple[float, float], ax: Any) -> "PriorDisplay":
        row = EstimatorRow(name, prior, *interval, prior)
        return cls(PriorEstimate(prior, interval, name, (row,), {}, ())).plot(ax)

    def _draw(self, ax: Any, style: dict[str, Any]) -> None:
        rows = self.estimate.table
        values = np.array([(row.value, row.low, row.high) for row in rows])
        reach = np.maximum(np.abs(values[:, 1:] - values[:, :1]).T, 0)
        ax.errorbar(values[:, 0], range(len(rows)), xerr=reach, fmt="o", **style)
        ax.axvspan(*self.estimate.interval, alpha=0.15, label=f"recommended: {self.estimate.value:.3g}")
        ax.set(
            yticks=range(len(rows)), yticklabels=[row.name for row in rows], xlabel="share of positives", xlim=(0, 1)
        )
        ax.legend()


@dataclass
class SplitDisplay(_Display):
    """Probabilities of the unlabelled rows, the easy and the hard ones apart."""

    probability: Floats
    easy: npt.NDArray[np.bool_]

    @classmethod
    def from_predictions(cls, decision: npt.ArrayLike, easy: npt.ArrayLike, *, ax: Any = None) -> "SplitDisplay":
        """From the decisions on unlabelled rows and whether each is easy, as split.csv of a run has it."""
        return cls(sigmoid(np.asarray(decision, dtype=np.float64)), np.asarray(easy) == 1).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> "SplitDisplay":
        """Of the last split that a fitted `SplitPUClassifier` made of its unlabelled training rows."""
        split = _fitted(estimator, "split_")
        said = estimator.rounds_[-1].student_probabilities
        return cls(said[split.rows], split.easy).plot(ax)

    def _draw(self, ax: Any, style: dict[str, Any]) -> None:
        parts = [self.probability[self.easy], self.probability[~self.easy]]
        words = [f"{name} ({len(part):,})" for name, part in zip(("easy", "hard"), parts, strict=True)]
        ax.hist(parts, bins=20, range=(0, 1), stacked=True, label=words, **style)
        ax.set(xlabel="probability of being positive", ylabel="unlabelled rows")
        ax.legend()


@dataclass
class PUCalibrationDisplay(_OfScores):
    """Promised probabilities against the shares of positives that P, U and the prior imply."""

    found: Reliability
    name: str = ""

    _takes_shares = True

    @classmethod
    def from_predictions(
        cls,
        labelled: npt.ArrayLike,
        probability: npt.ArrayLike,
        *,
        prior: float,
        name: str = "",
        ax: Any = None,
        **how: Any,
    ) -> Self:
        """From probabilities of rows that the model was not trained on."""
        known, shares = _known_and(labelled, probability)
        return cls(reliability(shares[known], shares[~known], prior, **how), name).plot(ax)

    def _draw(self, ax: Any, style: dict[str, Any]) -> None:
        bins = self.found.bins
        ax.plot([0, 1], [0, 1], linestyle=":", color="grey")
        label = f"{self.name} (error {self.found.error:.3f})".strip()
        ax.plot([one.promised for one in bins], [one.estimated for one in bins], marker="o", label=label, **style)
        ax.set(xlabel="promised probability", ylabel="share of positives (estimated)", xlim=(0, 1), ylim=(0, 1))
        ax.legend()


@dataclass
class SensitivityDisplay(_OfScores):
    """The share of unlabelled rows called positive, and the estimated accuracy, over the prior."""

    rows: Sequence[Mapping[str, Any]]
    own: float | None = None
    name: str = ""

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], *, own: float | None = None, ax: Any = None) -> Self:
        """Of the `rows` that `splitpu sensitivity RUN --json` prints; `own` is the run's prior."""
        return cls(rows, own).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        labelled: npt.ArrayLike,
        decision: npt.ArrayLike,
        *,
        prior: float,
        scenario: Scenario = "single-training-set",
        name: str = "",
        ax: Any = None,
    ) -> Self:
        """With the threshold where each of nine priors puts it, from half to one and a half of the given one."""
        known, scores = _known_and(labelled, decision)
        least, population = (known.mean(), scores) if scenario == "single-training-set" else (0.0, scores[~known])
        rows, low, high = [], max(prior / 2, 0.9 * least + 0.1 * prior), min(1.5 * prior, (1 + prior) / 2)
        for tried in np.linspace(low, high, 9).tolist():
            moved = scores - matched_threshold(torch.from_numpy(population), tried)
            found = evaluate_pu(moved[known], moved[~known], tried, scenario=scenario, intervals=False)
            row = {"prior": tried, "positive_rate_unlabelled": found.positive_rate_unlabelled}
            rows.append(row | {"estimated_accuracy": found["accuracy"].value})
        return cls(rows, prior, name).plot(ax)

    def _draw(self, ax: Any, style: dict[str, Any]) -> None:
        priors = [row["prior"] for row in self.rows]
        for figure in ("positive_rate_unlabelled", "estimated_accuracy", "test_accuracy"):
            values = [row.get(figure) for row in self.rows]
            if any(value is not None for value in values):
                ax.plot(priors, values, marker="o", label=figure.replace("_", " "), **style)
        if self.own is not None:
            ax.axvline(self.own, linestyle=":", color="grey", label="the run's prior")
        ax.set(xlabel="prior", ylim=(0, 1.02))
        ax.legend(title=self.name or None)
