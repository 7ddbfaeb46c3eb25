"""One list of figures for a model, counted where the truth is known and estimated from P, U and the prior elsewhere.

Beside each stands what calling every row negative would get, and the naive model, for which U is negative."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.evaluation import ranking
from splitpu.evaluation.calibration import ScoreCells, Spread, monotone_spread
from splitpu.evaluation.metrics import PUEvaluation, PUFigure, evaluate_pu
from splitpu.prior.from_scores import FEWEST_POSITIVES, FEWEST_UNLABELLED, in_population
from splitpu.types import Flags, Floats

_MOST_GROUPS = 2000  # of equal scores that are drawn again; of more, neighbours are drawn together
_TOO_GOOD = 0.99
_MAY_LOOK_TOO_GOOD = {"roc_auc": "ROC AUC", "average_precision": "average precision", "accuracy": "accuracy"}


def estimated(
    decision: Floats,
    labelled: Flags,
    prior: float,
    *,
    scenario: Scenario,
    prior_interval: tuple[float, float] | None = None,
    naive: Floats | None = None,
) -> PUEvaluation:
    """The figures that P, U and the prior give for decisions of models that did not see the row.

    With too few rows for the curves of a ranking there are only those that counting gives."""

    how: dict[str, Any] = {"scenario": scenario, "prior_interval": prior_interval}

    def judge(scores: Floats, *, intervals: bool = True) -> tuple[PUEvaluation, dict[str, PUFigure]]:
        found = evaluate_pu(scores[labelled], scores[~labelled], prior, **how, intervals=intervals)
        figures = dict(found.figures)
        if labelled.sum() >= FEWEST_POSITIVES and (~labelled).sum() >= FEWEST_UNLABELLED:
            ranked = ranking.ranking_figures(scores, labelled, prior, **how, intervals=intervals)
            figures |= {name: one for name, one in ranked.items() if name not in ("accuracy", "f1")}
        return found, figures

    found, figures = judge(decision)
    simple = {} if naive is None else {name: one.value for name, one in judge(naive, intervals=False)[1].items()}
    rows = len(labelled) if scenario == "single-training-set" else int((~labelled).sum())
    return replace(found, figures=_beside(figures, simple, prior, rows))


def counted(truth: npt.ArrayLike, decision: Floats, naive: Floats | None = None) -> dict[str, PUFigure]:
    """The same figures where the truth is known; none where all rows are of one class or a decision is no number.

    Intervals come from drawing the rows again."""
    actual = np.asarray(truth) == 1
    if actual.all() or not actual.any() or not np.isfinite(decision).all():
        return {}
    rows, share = len(actual), float(actual.mean())
    lengths = ranking.lengths_of_lists(rows, share)
    groups = _groups(actual, decision)
    values = _of_groups(*groups, lengths, rows)
    *coarse, cut = _coarser(*groups)
    drawn = [_of_groups(*both, cut, lengths, rows) for both in _drawn_again(*coarse)]
    figures = {name: ranking.with_interval(value, *(one[name] for one in drawn)) for name, value in values.items()}
    simple = {}
    if naive is not None and np.isfinite(naive).all():
        simple = _of_groups(*_groups(actual, naive), lengths, rows)
    return _beside(figures, simple, share, rows)


class Curve(NamedTuple):
    """A curve over a grid from 0 to 1, and the band that 95 % of random weightings of the rows lie in."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats
    area: float  # that the curve is usually told by

    def beside(self, other: "Curve") -> "Curve":
        """The mean of two readings of one curve."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Curve(self.x, (self.y + other.y) / 2, low, high, (self.area + other.area) / 2)


GRID = np.linspace(0.0, 1.0, 201)
_BAND = (2.5, 97.5)  # percent


def estimated_curves(
    decision: Floats,
    labelled: Flags,
    prior: float,
    *,
    scenario: Scenario,
    prior_interval: tuple[float, float] | None = None,
    seed: int = 0,
) -> dict[str, Curve]:
    """`roc` (true over false positive rate) and `precision_recall` as P, U and the prior imply them.

    What of a cell of scores is negative is told in two ways, as for single figures: by the count of U less its share of
    positives, made to rise, and by rising odds. The lines are the means of both, the bands hold both."""
    sample, rng = (int(labelled.sum()), int((~labelled).sum()), scenario), np.random.default_rng(seed)
    shares = ranking.shares_of_unlabelled(prior, prior_interval, sample, rng)
    weights = ScoreCells.of(decision[labelled], decision[~labelled]).weights(ranking.DRAWS, rng)
    rows, priors = [*zip(*weights, shares, strict=True)], [in_population(share, *sample) for share in shares.tolist()]
    counts, odds = (_curves([read(*row) for row in rows], priors) for read in (_less_positives, monotone_spread))
    return {name: one.beside(odds[name]) for name, one in counts.items()}


def counted_curves(truth: npt.ArrayLike, decision: Floats) -> dict[str, Curve]:
    """The same curves where the truth is known, from rows of both classes."""
    positive, negative, _ = _coarser(*_groups(np.asarray(truth) == 1, decision))
    both = [(positive, negative), *_drawn_again(positive, negative)]
    spreads = [Spread(*(kind[::-1] / kind.sum() for kind in one)) for one in both]
    return _curves(spreads, [float(one[0].sum() / (one[0].sum() + one[1].sum())) for one in both])


def _less_positives(positive: Floats, unlabelled: Floats, share: float) -> Spread:
    from sklearn.isotonic import isotonic_regression

    of_positive, of_unlabelled = positive / positive.sum(), unlabelled / unlabelled.sum()
    recall, called = (np.cumsum(shares[::-1]) for shares in (of_positive, of_unlabelled))
    alarm = isotonic_regression((called - share * recall) / (1 - share), y_min=0.0, y_max=1.0)
    return Spread(of_positive, np.diff(alarm, prepend=0.0)[::-1])


def _curves(spreads: Sequence[Spread], priors: Sequence[float]) -> dict[str, Curve]:
    """Both curves of the first spread, with the band of all others."""
    drawn: dict[str, list[Floats]] = {"roc": [], "precision_recall": []}
    for spread, prior in zip(spreads, priors, strict=True):
        recall, alarm = (np.concatenate([[0.0], np.cumsum(shares[::-1])]).clip(0, 1) for shares in spread)
        hits = prior * recall[1:]
        drawn["roc"].append(np.interp(GRID, alarm, recall))
        precision = hits / np.maximum(hits + (1 - prior) * alarm[1:], 1e-12)
        drawn["precision_recall"].append(np.interp(GRID, recall[1:][hits > 0], precision[hits > 0]))  # undefined at 0
    areas = {"roc": spreads[0].auc, "precision_recall": spreads[0].average_precision(priors[0])}
    bands = {name: np.percentile(lines[1:], _BAND, axis=0) for name, lines in drawn.items()}
    return {
        name: Curve(GRID, line, np.minimum(bands[name][0], line), np.maximum(bands[name][1], line), areas[name])
        for name, (line, *_) in drawn.items()
    }


def too_good(figures: dict[str, PUFigure], positives: int) -> str | None:
    """A sentence about figures that look too good, which says on how few rows they rest; None if none does."""
    for name, words in _MAY_LOOK_TOO_GOOD.items():
        if name in figures and figures[name].value > _TOO_GOOD:
            return (
                f"{words} {figures[name].value:.3f} rests on {positives} positives: with so many "
                f"{figures[name].low:.3f} cannot be ruled out"
            )
    return None


def _beside(figures: dict[str, PUFigure], simple: dict[str, float], prior: float, rows: int) -> dict[str, PUFigure]:
    """Put beside every figure what one gets without a model and with the naive one; those first that tell most."""
    return {
        name: figures[name]._replace(always_negative=ranking.always_negative(name, prior, rows), naive=simple.get(name))
        for name in ranking.in_telling_order(figures, prior)
    }


def _groups(actual: Flags, decision: Floats) -> tuple[Floats, Floats, int]:
    """Positives and negatives of every score, the highest first, and how many of these scores are above nought."""
    scores, place = np.unique(-decision, return_inverse=True)
    both = [np.bincount(place[kind], minlength=len(scores)).astype(np.float64) for kind in (actual, ~actual)]
    return both[0], both[1], int((scores < 0).sum())


def _coarser(positive: Floats, negative: Floats, cut: int) -> tuple[Floats, Floats, int]:
    """Neighbours put together where there are many scores; none across the cut."""
    step = -(-len(positive) // _MOST_GROUPS)
    starts = np.unique([*range(0, len(positive), step), min(cut, len(positive) - 1)])
    return np.add.reduceat(positive, starts), np.add.reduceat(negative, starts), int((starts < cut).sum())


def _drawn_again(positive: Floats, negative: Floats) -> list[tuple[Floats, Floats]]:
    """Random weightings of the rows of both classes.

    One more row of either is thought of, spread over all scores: even an order without a fault in 20 positives leaves
    room for a missed one."""
    rng, thought = np.random.default_rng(0), (positive + negative) / (positive + negative).sum()
    both = [(positive + thought, negative + thought)] * ranking.DRAWS
    return [(rng.standard_gamma(of_p), rng.standard_gamma(of_n)) for of_p, of_n in both]


def _of_groups(positive: Floats, negative: Floats, cut: int, lengths: tuple[int, ...], rows: int) -> dict[str, float]:
    """Every figure of rows in groups of equal scores, the highest first, of which the first `cut` are called."""
    found, alarms = np.cumsum(positive), np.cumsum(negative)
    positives, negatives = found[-1], alarms[-1]
    total = positives + negatives
    share = positives / total
    called = found + alarms
    figures = {
        "roc_auc": float((negative * (found - positive / 2)).sum() / (positives * negatives)),
        "average_precision": float((positive * found / called).sum() / positives),
    }
    parts = np.append(0, called / total), np.append(0, found / positives)
    figures |= ranking.of_lists(lengths, rows, float(share), *parts)
    hits, wrong = (found[cut - 1], alarms[cut - 1]) if cut else (0.0, 0.0)
    figures["accuracy"] = float((hits + negatives - wrong) / total)
    figures["f1"] = float(2 * hits / (hits + wrong + positives))
    if cut:
        figures["precision"] = float(hits / (hits + wrong))
    return figures | {"recall": float(hits / positives)}
