"""How well scores rank rows, from P, U and the prior: AUC, average precision, and what the top of the list holds.

The part of the positives above each score is read off the labelled rows, that of the negatives is what U holds beyond
its share of positives. Scores must come from models that did not see the row, or all figures flatter."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import check_interval, check_prior_of_sample
from splitpu.evaluation.calibration import monotone_spread
from splitpu.evaluation.metrics import PUFigure, among_unlabelled
from splitpu.prior.from_scores import checked_rows, in_population
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_seed

MOST_CELLS = 300
DRAWS = 200
OF_CUT = ("accuracy", "f1", "precision", "recall")  # figures of decisions; the others are of the order of rows
RARE = 0.1  # below this share of positives ranking figures say more than accuracy
_ALARMS = np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 300)])
_QUANTILES = (0.025, 0.975)
_SURE = 1e-6


class _Draw(NamedTuple):
    """One possible truth: the part of the positives found at each false positive rate of `_ALARMS`."""

    recall: Floats
    called: Floats  # share of the population above
    prior: float
    auc: float


def ranking_figures(
    scores: npt.ArrayLike,
    labelled: npt.ArrayLike,
    prior: float,
    *,
    prior_interval: tuple[float, float] | None = None,
    scenario: Scenario = "single-training-set",
    seed: int = 0,
    intervals: bool = True,
) -> dict[str, PUFigure]:
    """Figures of an order of rows without a single negative label; the prior may have a 95 % interval.

    They are `roc_auc`, `average_precision`, and for lists of k rows of the population (P and U together, or U alone in
    case-control data; a half, one and two times as many as there should be positives) `precision@k`, `recall@k`,
    `lift@k` (how many times more positives than in a list at random) and `enrichment@k` (the same as a share of what
    the best order would get); `accuracy` and `f1` are those of calling as many rows positive as there should be."""
    values, known = checked_rows(scores, labelled)
    positives, others = int(known.sum()), int((~known).sum())
    rows = positives + others if scenario == "single-training-set" else others
    rng = np.random.default_rng(checked_seed(seed))
    shares = shares_of_unlabelled(prior, prior_interval, (positives, others, scenario), rng)
    leans = np.concatenate([[0.5], rng.random(DRAWS)])
    cells = _cells(values, known)
    # Rows weighed at random (the Bayesian bootstrap). One more labelled row is thought of, spread over all cells: even
    # 20 of 20 at the top leave room for a missed one.
    thought = cells[0] + (cells[0] + cells[1]) / (cells[0] + cells[1]).sum()
    drawn = DRAWS if intervals else 0  # without them an interval is the value alone
    weightings = zip(*(rng.standard_gamma(np.tile(counts, (drawn, 1))) for counts in (thought, cells[1])), strict=True)
    draws = zip([cells, *weightings], shares.tolist(), leans.tolist(), strict=intervals)
    lengths = lengths_of_lists(rows, prior)
    tables = [
        _figures_of(_drawn(weights, share, in_population(share, positives, others, scenario), lean), lengths, rows)
        for weights, share, lean in draws
    ]
    figures = {name: with_interval(*(table[name] for table in tables)) for name in tables[0]}
    for name in ("roc_auc", "average_precision"):
        if 1 - figures[name].value < 1 / positives:  # so few labelled rows cannot tell this from a faultless order
            figures[name] = figures[name]._replace(high=1.0)
    return figures


def share_for_f1(
    scores: npt.ArrayLike, labelled: npt.ArrayLike, prior: float, scenario: Scenario = "single-training-set"
) -> float:
    """The share of the population to call positive for the highest F1 that P, U and the prior let expect.

    With a share q of the rows called and a part r of the positives among them, F1 = 2 prior r / (prior + q). Where
    classes overlap that is more rows than there are positives, where they lie apart as many.

    >>> rng = np.random.default_rng(0)
    >>> overlap, apart = (rng.normal(size=2000) + far * (np.arange(2000) < 600) for far in (0.8, 6.0))
    >>> [round(share_for_f1(scores, np.arange(2000) < 200, 0.3), 1) for scores in (overlap, apart)]
    [0.5, 0.3]
    """
    values, known = checked_rows(scores, labelled)
    positives, others = int(known.sum()), int((~known).sum())
    share = float(np.clip(among_unlabelled(prior, positives, others, scenario), 0.0, 1 - _SURE))
    drawn = _drawn(_cells(values, known), share, prior, 0.5)
    f1 = 2 * prior * drawn.recall / (prior + drawn.called)
    return float(drawn.called[f1.argmax()])


def with_interval(value: float, *draws: float) -> PUFigure:
    """The draws around the estimate, widened so that they hold the estimate itself."""
    low, high = np.nanquantile(draws or value, _QUANTILES)
    return PUFigure(value, float(min(low, value)), float(max(high, value)))


def of_lists(lengths: Sequence[int], rows: int, prior: float, called: Floats, recall: Floats) -> dict[str, float]:
    """What the top of the list holds at these lengths, from the parts of all rows and of the positives above."""
    figures: dict[str, float] = {}
    for length in lengths:
        part = length / rows
        found = float(np.interp(part, called, recall))
        right = min(found * prior / part, 1.0)
        figures |= {f"precision@{length}": right, f"recall@{length}": found}
        figures[f"lift@{length}"] = right / max(prior, _SURE)
        figures[f"enrichment@{length}"] = right * part / max(min(prior, part), _SURE)
    return figures


def in_telling_order(names: Iterable[str], prior: float) -> tuple[str, ...]:
    """Names of figures, those first that tell most: where positives are rare, calling all rows negative is accurate."""
    given = list(names)
    of_cut = [name for name in OF_CUT if name in given]
    auc = [name for name in given if name == "roc_auc"]
    others = [name for name in given if name not in (*auc, *of_cut)]
    return tuple([*auc, *others, *of_cut] if prior < RARE else [*auc, *of_cut, *others])


def always_negative(name: str, prior: float, rows: int) -> float | None:
    """What a model that calls every row negative gets: of a ranking, what a random order gets on average.

    None where it gets nothing, as of the precision, because it calls nothing positive."""
    fixed = {"roc_auc": 0.5, "average_precision": prior, "accuracy": 1 - prior, "f1": 0.0, "recall": 0.0}
    kind, _, length = name.partition("@")
    if not length:
        return fixed.get(name)
    part = int(length) / rows
    return {"precision": prior, "recall": part, "lift": 1.0, "enrichment": max(prior, part)}[kind]


def corrected_auc(against_unlabelled: float, share: float) -> float:
    """The AUC of positives against negatives behind an AUC of P against U that holds a share of positives.

    Unlabelled positives rank as high as labelled ones: against them the AUC is 1/2."""
    return (against_unlabelled - share / 2) / (1 - share)


def shares_of_unlabelled(
    prior: float, interval: tuple[float, float] | None, sample: tuple[int, int, Scenario], rng: np.random.Generator
) -> Floats:
    """Shares of positives among U that a prior and its interval mean: the best one first, then as many draws."""
    value = check_prior_of_sample(prior, *sample)
    low, high = check_interval(interval, value) if interval is not None else (value, value)
    normal = rng.normal(size=DRAWS)
    drawn = value + np.where(normal < 0, value - low, high - value) * normal / 1.96  # the interval may be lopsided
    return np.clip(among_unlabelled(np.concatenate([[value], drawn]), *sample), 0.0, 1 - _SURE)


def lengths_of_lists(rows: int, prior: float) -> tuple[int, ...]:
    """A half, one and two times as many rows as there should be positives."""
    return tuple(dict.fromkeys(min(max(round(part * prior * rows), 1), rows) for part in (0.5, 1.0, 2.0)))


def _cells(scores: Floats, labelled: Flags) -> tuple[Floats, Floats]:
    """How many labelled and unlabelled rows lie in cells of scores, the lowest first; fine at the top."""
    rows = len(scores)
    ordered = np.sort(scores)
    ranks = np.concatenate([np.geomspace(1, rows, MOST_CELLS // 2), np.linspace(1, rows, MOST_CELLS // 2)])
    ends = np.unique(ordered[rows - np.unique(np.clip(np.round(ranks).astype(np.int64), 1, rows))])
    counts = [
        np.bincount(np.searchsorted(ends, scores[kind], "right"), minlength=len(ends) + 1).astype(np.float64)
        for kind in (labelled, ~labelled)
    ]
    seen = counts[0] + counts[1] > 0
    return counts[0][seen], counts[1][seen]


def _drawn(cells: tuple[Floats, Floats], share: float, prior: float, lean: float) -> _Draw:
    """Both curves for one weighting of the rows and one share; `lean` is how much the second reading counts.

    Counting alone is unbiased, which is why the AUC comes from it, but wild at the top of the list. So the curves are
    the mean of two steadier readings: the share of positives rises with the score, which flatters where labels are
    few, and the bell curves that have this AUC, which flatter where a few negatives look like positives."""
    from scipy.special import ndtr, ndtri

    of_positive, of_unlabelled = (counts / counts.sum() for counts in cells)
    against = float(of_positive @ (np.cumsum(of_unlabelled) - of_unlabelled / 2))
    auc = float(np.clip(corrected_auc(against, share), 0.0, 1.0))
    spread = monotone_spread(*cells, max(share, _SURE))
    rising, alarmed = (np.concatenate([[0.0], np.cumsum(part[::-1])]) for part in spread)
    distance = np.sqrt(2) * ndtri(np.clip(auc, _SURE, 1 - _SURE))
    bells = ndtr(distance + ndtri(_ALARMS[1:]))
    recall = (1 - lean) * np.interp(_ALARMS[1:], alarmed, rising) + lean * bells
    recall = np.maximum.accumulate(np.concatenate([[0.0], recall]))
    return _Draw(recall, prior * recall + (1 - prior) * _ALARMS, prior, auc)


def _figures_of(draw: _Draw, lengths: tuple[int, ...], rows: int) -> dict[str, float]:
    hits = draw.prior * draw.recall
    precision = hits[1:] / np.maximum(draw.called[1:], _SURE / rows)
    recall = float(np.interp(draw.prior, draw.called, draw.recall))
    return {
        "roc_auc": draw.auc,
        "average_precision": float(np.diff(draw.recall) @ precision),
        **of_lists(lengths, rows, draw.prior, draw.called, draw.recall),
        "accuracy": 1 - 2 * draw.prior * (1 - recall),  # as many alarms as misses where as many are called as are
        "f1": recall,
    }
