"""The prior from scores of P against U: right for rare positives too, and "at most" where the data say no more.

P and U alone fix only an upper bound of the share of positives: the largest share of U that can look exactly like P.
Where classes overlap the truth lies below it, and for rare positives far below, so estimators of the bound are wrong
by a factor there. What helps is the shape of the whole curve of P against U. Here one rising transform of the scores
is assumed under which positives and negatives are normal with (nearly) equal spread, so that U is a mixture of the
two; the share, the distance and the spread are then weighed by how well they explain the order in which labelled and
unlabelled rows come. Only the order of the scores is used, never their scale; where it says little, what is assumed of
the part of the positives that people label decides."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import check_scenario
from splitpu.errors import InputError
from splitpu.types import Flags, Floats

FEWEST_POSITIVES, FEWEST_UNLABELLED = 5, 20
LOWEST_SHARE, HIGHEST_SHARE = 2e-4, 0.98
NOTHING_LEFT = 0.15  # fewer hidden positives than this share of the labelled ones: practically all are labelled
_CONFIDENCE = (0.025, 0.975)
_LATENT = np.linspace(12.0, -6.0, 700)  # from the highest score to the lowest
_DISTANCES = (0.05, 6.5)
_SPREADS = np.array([-0.15, 0.0, 0.15])  # logarithms: positives against negatives
_COARSE, _FINE = (26, 46), (34, 70)  # distances and shares that are tried
_WORTH_A_LOOK = 14.0  # in units of log likelihood below the best
_NOT_EXCLUDED = 1.92  # the same, for a 95 % statement about one number


# What is thought likely before a row is seen, fitted on development tables (see benchmarks/desk_prior.py).
_PER_DISTANCE = 1.2  # how much less likely a distance one larger is, as a logarithm
_LABELLED = (0.5, 2.0)  # a beta distribution of the part of the positives that is labelled: a fifth, give or take
_SPREAD = 0.1  # of the logarithm of the ratio of spreads
_TRUST = 0.85  # how much of the log likelihood is believed: the model is not quite right
_DOUBT = 0.1  # standard error of the log odds that no row shows


@dataclass(frozen=True)
class ScoredPrior:
    """The share of positives as P and U tell it."""

    value: float  # share of positives in the population
    interval: tuple[float, float]  # 95 %
    among_unlabelled: float  # share of positives among the unlabelled rows
    among_unlabelled_interval: tuple[float, float]
    bound: float  # no larger share fits, whatever the shape of the scores (97.5 %); of the population
    at_most: bool  # only the upper end of the interval is known
    all_labelled: bool  # practically no positive is left among the unlabelled rows
    positives: int  # that are labelled

    @property
    def sentence(self) -> str:
        """What a user should know."""
        low, high = self.interval
        if self.all_labelled:
            return (
                "practically every positive is labelled already, the labelled ones are not typical of the positives, "
                f"or 1 and 0 are swapped: the {self.positives} labelled rows are {low:.2g} of all rows, and at most "
                f"{high:.2g} look positive"
            )
        if self.at_most:
            return (
                f"at most {high:.2g} of the rows are positive ({self.value:.2g} is the best guess); how many fewer "
                "these scores do not say, because classes overlap or too few positives are labelled"
            )
        return f"{self.value:.2g} of the rows are positive ({low:.2g} to {high:.2g})"


class Counts(NamedTuple):
    """How many labelled and unlabelled rows lie in each stretch of scores, the highest first."""

    labelled: Floats
    unlabelled: Floats


def prior_from_scores(
    scores: npt.ArrayLike, labelled: npt.ArrayLike, *, scenario: Scenario = "single-training-set"
) -> ScoredPrior:
    """Estimate the share of positives in the population from out-of-fold scores of all rows.

    The scores must come from models that did not see the row, and a higher score must mean more like a labelled row.
    In a single training set the labelled rows belong to the population, in case-control data U alone is its sample."""
    from scipy.stats import beta

    values, known = checked_rows(scores, labelled)
    check_scenario(scenario)
    positives, others = int(known.sum()), int((~known).sum())
    shares, weights, excludes_nothing = posterior(counted(values, known))
    low, middle, high = _quantiles(shares, weights)
    single = scenario == "single-training-set"
    all_labelled = single and high * others < max(NOTHING_LEFT * positives, 1.0)
    if single:
        # Where classes overlap rows say little, and it matters what part of the positives people label: its density, as
        # one of the share. Not asked where all may be labelled, which it holds to be unlikely.
        part = positives / (positives + shares * others)
        weights *= beta.pdf(part, *_LABELLED) * part**2 * np.sqrt(shares * (1 - shares))
        low, middle, high = _quantiles(shares, weights)
    low = 0.0 if excludes_nothing else low
    bound = share_bound(values[known], values[~known])
    value, lowest, highest, most = (
        in_population(one, positives, others, scenario) for one in (middle, low, high, max(bound, middle))
    )
    of_unlabelled = middle, (low, high)
    return ScoredPrior(value, (lowest, highest), *of_unlabelled, most, excludes_nothing, all_labelled, positives)


def _quantiles(shares: Floats, weights: Floats) -> tuple[float, ...]:
    cumulated = np.cumsum(weights) / weights.sum()
    return tuple(np.interp((_CONFIDENCE[0], 0.5, _CONFIDENCE[1]), cumulated, shares).tolist())


def in_population(share: float, positives: int, unlabelled: int, scenario: Scenario) -> float:
    """The prior that a share of positives among the unlabelled rows means."""
    if scenario == "case-control":
        return share
    return (share * unlabelled + positives) / (positives + unlabelled)


def checked_rows(scores: npt.ArrayLike, labelled: npt.ArrayLike) -> tuple[Floats, Flags]:
    """Scores and marks of the same rows, enough of both kinds, or an error that says what is wrong."""
    values, known = np.asarray(scores, dtype=np.float64), np.asarray(labelled)
    if values.ndim != 1 or known.shape != values.shape:
        shapes = f"scores of shape {values.shape} and labelled of shape {known.shape}"
        raise InputError(f"{shapes} do not fit: give one score and one mark (labelled or not) for every row")
    if known.dtype != np.bool_:
        if not np.isin(known, (0, 1)).all():
            raise InputError("labelled must hold True or False (or 1 and 0) for every row: mark the labelled positives")
        known = known.astype(np.bool_)
    if wrong := int((~np.isfinite(values)).sum()):
        raise InputError(f"{wrong} of the scores are no finite numbers: leave those rows out or repair their model")
    for count, fewest, what in (
        (int(known.sum()), FEWEST_POSITIVES, "labelled"),
        (int((~known).sum()), FEWEST_UNLABELLED, "unlabelled"),
    ):
        if count < fewest:
            raise InputError(f"of the rows {count} are {what}, too few to tell anything: at least {fewest} are needed")
    return values, known


def counted(scores: Floats, labelled: Flags) -> Counts:
    """Count both kinds in stretches that are short at the top, where positives are, and long at the bottom.

    The ends follow the order of all rows together, whoever is labelled, so that they favour neither kind."""
    rows, positives = len(scores), int(labelled.sum())
    ranks = np.concatenate([np.geomspace(max(4.0, 0.05 * positives), rows / 2, 25), np.linspace(0.5, 0.95, 6) * rows])
    ranks = np.unique(np.round(ranks).astype(np.int64))
    ends = np.unique(np.sort(scores)[::-1][ranks[(ranks > 0) & (ranks < rows)]])[::-1]
    above = [
        np.append(len(kind) - np.searchsorted(np.sort(kind), ends, "right"), len(kind))
        for kind in (scores[labelled], scores[~labelled])
    ]
    inside = [np.diff(one, prepend=0).astype(np.float64) for one in above]
    seen = inside[0] + inside[1] > 0
    return Counts(inside[0][seen], inside[1][seen])


def posterior(counts: Counts) -> tuple[Floats, Floats, bool]:
    """Shares of positives among the unlabelled rows, how likely each is, and whether none at all is possible, too."""
    lowest, highest = (np.log(share / (1 - share)) for share in (LOWEST_SHARE, HIGHEST_SHARE))
    distances, odds = np.linspace(*_DISTANCES, _COARSE[0]), np.linspace(lowest, highest, _COARSE[1])
    rough, likelihood = _weighed(counts, distances, odds)
    none = _log_likelihood(counts, distances, np.array([0.0]))
    near = rough > rough.max() - _WORTH_A_LOOK
    ranges = [
        (grid[max(found[0] - 1, 0)], grid[min(found[-1] + 1, len(grid) - 1)])
        for grid, found in ((distances, np.flatnonzero(near.any((1, 2)))), (odds, np.flatnonzero(near.any((0, 1)))))
    ]
    distances, odds = np.linspace(*ranges[0], _FINE[0]), np.linspace(*ranges[1], _FINE[1])
    fine, finer = _weighed(counts, distances, odds)
    best = max(float(likelihood.max()), float(finer.max()))
    none_now = max(float(none.max()), float(_log_likelihood(counts, distances, np.array([0.0])).max()))
    weights = np.exp(fine - fine.max()).sum((0, 1))
    wider = np.linspace(odds[0] - 4 * _DOUBT, odds[-1] + 4 * _DOUBT, 3 * len(odds))
    kernel = np.exp(-0.5 * ((wider[:, None] - odds) / _DOUBT) ** 2)
    blurred = kernel @ weights
    shares: Floats = 1 / (1 + np.exp(-wider))
    return shares, blurred / blurred.sum(), best - none_now < _NOT_EXCLUDED


def share_bound(positive: Floats, unlabelled: Floats, miss: float = 0.025) -> float:
    """The share of U that looks like P is at most this, but for a probability of `miss`; no shape is assumed.

    Above any score there lie at least share * (part of P above it) of all unlabelled rows. The parts above a few
    scores of labelled rows are known up to exact binomial limits, and the least of the quotients is the bound."""
    from scipy.stats import beta

    ordered, pool = np.sort(positive)[::-1], np.sort(unlabelled)
    ranks = np.unique(np.ceil(len(ordered) * np.array([0.15, 0.25, 0.4, 0.6, 0.8, 1.0])).astype(np.int64))
    each = miss / (2 * len(ranks))
    above = len(pool) - np.searchsorted(pool, ordered[ranks - 1], "left")
    most = np.where(above < len(pool), beta.ppf(1 - each, above + 1, np.maximum(len(pool) - above, 1e-9)), 1.0)
    least = beta.ppf(each, ranks, len(ordered) - ranks + 1)
    return float(min((most / least).min(), 1.0))


def _weighed(counts: Counts, distances: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """Log posterior and log likelihood of every distance, spread and share."""
    shares = 1 / (1 + np.exp(-odds))
    likelihood = _log_likelihood(counts, distances, shares)
    before = (
        -_PER_DISTANCE * distances[:, None, None]
        - 0.5 * (_SPREADS[:, None] / _SPREAD) ** 2
        + 0.5 * np.log(shares * (1 - shares))
    )
    return _TRUST * likelihood + before, likelihood


def _log_likelihood(counts: Counts, distances: Floats, shares: Floats) -> Floats:
    """Of the order in which labelled and unlabelled rows come, for every distance, spread and share.

    Given how many rows there are in a stretch of scores, each is labelled with the probability that the model says."""
    from scipy.special import ndtr

    rows = float(counts.labelled.sum() + counts.unlabelled.sum())
    known = float(counts.labelled.sum()) / rows
    reached = np.cumsum(counts.labelled + counts.unlabelled) / rows
    lengths = np.diff(reached, prepend=0.0)
    negative = ndtr(-_LATENT)
    drawn = np.empty((len(distances), len(_SPREADS), len(shares), len(reached)))
    for at, distance in enumerate(distances):
        for which, spread in enumerate(np.exp(_SPREADS)):
            positive = ndtr((distance - _LATENT) / spread)
            for number, share in enumerate(shares):
                of_positives = known + (1 - known) * share
                pooled = of_positives * positive + (1 - of_positives) * negative
                drawn[at, which, number] = np.interp(reached, pooled, positive)
    drawn[..., -1] = 1.0
    chance = np.clip(known * np.diff(drawn, axis=-1, prepend=0.0) / lengths, 1e-9, 1 - 1e-9)
    likelihood: Floats = np.log(chance) @ counts.labelled + np.log1p(-chance) @ counts.unlabelled
    return likelihood
