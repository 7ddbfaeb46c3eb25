"""The prior nobody knows: every estimator side by side, the recommended one, and how far it can be trusted.

What `prior="auto"` means: estimate it, say so, and say what is doubtful about it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

import numpy as np

from splitpu.data.pudata import PUData, check_prior, check_pudata, missing_prior
from splitpu.errors import InputError
from splitpu.methods.registry import find_method
from splitpu.prior.algorithms import PenL1, bbe, dedpul, gap_at, km2, tice
from splitpu.prior.scores import (
    FEWEST_POSITIVES,
    OF_LEARNERS,
    PUScores,
    ScoreKind,
    needs_networks,
    pu_scores,
    too_few_rows,
)
from splitpu.types import Floats
from splitpu.utils.arrays import checked_seed, leave_random_alone
from splitpu.utils.text import html_table
from splitpu.utils.warnings import warn_where_called

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer


PriorMethod = Literal["auto", "bbe", "dedpul", "tedn", "tedn-dedpul", "km2", "tice", "penl1"]

RECOMMENDED = "consensus"
_PLAIN, _CLEANED = 0, 1  # columns of the scores
ON_SCORES: dict[str, tuple[Callable[[Floats, Floats], float], int]] = {
    "bbe": (bbe, _PLAIN),
    "dedpul": (dedpul, _PLAIN),
    "tedn": (bbe, _CLEANED),
    "tedn-dedpul": (dedpul, _CLEANED),
}
QUICK = (*ON_SCORES, "penl1")
MEMBERS = ("tedn", "tedn-dedpul", "penl1")  # of the consensus: all on the cleaned scores, which rank rows better
SLOW: dict[str, Callable[[Floats, Floats, int], float]] = {"km2": km2, "tice": tice}

_RESAMPLES, _SLOW_RESAMPLES = 60, 8
# Standard error that scores of networks bring along and no resampling of rows shows (photographs; see docs/LOG.md).
_OF_NETWORKS = 0.015
_NORMAL = 1.96
_WIDE, _DISAGREE = 0.2, 0.12
BY_ORDER, BY_GAP = "the order of scores", "the gap between scores"


@dataclass(frozen=True)
class EstimatorRow:
    """What one estimator says."""

    name: str
    value: float  # the prior: share of positives in the population
    low: float  # of the 95 % interval
    high: float
    among_unlabelled: float  # share of positives among the unlabelled rows


@dataclass(frozen=True)
class PriorEstimate:
    """An estimated prior with all that it rests on."""

    value: float
    interval: tuple[float, float]  # 95 %
    method: str
    table: tuple[EstimatorRow, ...]
    diagnostics: Mapping[str, float]
    verdicts: tuple[str, ...]  # what a user should know before relying on it; empty = nothing to worry about
    scores: PUScores | None = field(default=None, repr=False, compare=False)  # what it was estimated from

    def _repr_html_(self) -> str:
        rows = [("recommended", self.value, *self.interval), *((r.name, r.value, r.low, r.high) for r in self.table)]
        return html_table(("estimator", "prior", "low", "high"), rows, self.verdicts)

    @property
    def source(self) -> str:
        """Where the prior comes from, in words."""
        return f"estimated by {self.method}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "value": self.value,
            "interval": list(self.interval),
            "method": self.method,
            "table": [row.__dict__ for row in self.table],
            "diagnostics": dict(self.diagnostics),
            "verdicts": list(self.verdicts),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "PriorEstimate":
        """Read the JSON form back; the scores are not part of it."""
        low, high = stored["interval"]
        table = tuple(EstimatorRow(**row) for row in stored["table"])
        verdicts = tuple(stored["verdicts"])
        return cls(stored["value"], (low, high), stored["method"], table, stored["diagnostics"], verdicts)


def estimate_prior(
    data: PUData,
    *,
    method: PriorMethod = "auto",
    seed: int = 0,
    every: bool = False,
    scores: ScoreKind = "auto",
    device: str = "auto",
    observer: "Observer | None" = None,
    checkpoints: Path | None = None,
) -> PriorEstimate:
    """Estimate the share of positives in the population from P and U alone.

    `auto` is the consensus: the median of BBE (which makes it TEDn), DEDPUL and PEN-L1 on the scores of P against U
    after the likely positives were taken out of U. The table also has the first two on the scores before that, which
    are worse, and `every` adds KM2 and TIcE, which are slower and usually further off. All of them work on out-of-fold
    scores, one number a row, which keep what the features say about the mixture and are far easier to estimate
    densities of. Every estimator measures the share among the unlabelled rows, and `population_share` turns it into
    the prior. The interval comes from resampling P and U; that of the consensus also covers the disagreement of its
    members. Where networks are trained for it, which may take minutes, the observer sees their epochs, and with a
    folder for checkpoints the same call goes on where an earlier one was interrupted.

    >>> from splitpu.data.public.datasets import load_named

    >>> from splitpu.data.public.named_set import make_pu
    >>> data, _ = make_pu(load_named("breast-cancer"), 60, seed=0)
    >>> estimate = estimate_prior(data, seed=0)
    >>> estimate.interval[0] < 159 / 426 < estimate.interval[1]
    True
    """
    if method not in get_args(PriorMethod):
        raise InputError(f"there is no estimator named {method!r}: choose one of {', '.join(get_args(PriorMethod))}")
    if scores not in get_args(ScoreKind):
        raise InputError(f"scores={scores!r} is unknown: choose one of {', '.join(get_args(ScoreKind))}")
    check_pudata(data)
    leave_random_alone()
    ordered = _by_order(data, seed, None, observer) if method == scores == "auto" and data.kind == "vectors" else None
    if ordered is not None and not every:
        return ordered
    found = pu_scores(data, seed=seed, how=scores, device=device, observer=observer, checkpoints=checkpoints)
    _must_tell_something(found)
    rng = np.random.default_rng(checked_seed(seed))
    shares = _quick_shares(found, rng, seed)
    shares |= {name: _share_slowly(found, SLOW[name], rng, seed) for name in SLOW if every or method == name}
    chosen = RECOMMENDED if method == "auto" else method
    table = tuple(_row(name, data, *share) for name, share in shares.items())
    row = next(row for row in table if row.name == chosen)
    members = [other.value for other in table if other.name in MEMBERS]
    diagnostics = _diagnostics(data, found, row) | {"disagreement": max(members) - min(members)}
    if ordered is not None:
        return replace(ordered, table=(*ordered.table, *table))
    verdicts = tuple(_verdicts(data, row, diagnostics))
    return PriorEstimate(row.value, (row.low, row.high), chosen, table, diagnostics, verdicts, found)


def _by_order(data: PUData, seed: int, backbone: object, observer: "Observer | None") -> PriorEstimate:
    """From the order of the rows by what the model itself is made of: learners for tables, or heads on an encoder."""
    from splitpu.networks.encoders import encoder_of  # torch only where it is needed
    from splitpu.prior.from_scores import prior_from_scores

    if reason := too_few_rows(data):
        raise InputError(reason)
    gap = None
    if encoder := encoder_of(backbone):
        from splitpu.methods.frozen_features import frozen_choice

        heads = frozen_choice(data, encoder, checked_seed(seed))
        labelled, scores, numbers = heads.labelled, heads.out_of_fold, heads.numbers
        gap = heads.gap  # pictures often lie in groups, and the order of scores cannot see what is between them
    else:
        from splitpu.methods.table_learners import choice_of

        rows, choice = choice_of(data, checked_seed(seed), observer=observer)  # once for the prior and the model
        labelled, scores, numbers = rows.labelled, choice.scores, rows.numbers
    found = PUScores(labelled, scores, scores, numbers, OF_LEARNERS)
    _must_tell_something(found)
    if gap is not None:
        low, value, high = (population_share(data, min(max(gap[0] + far, 0.0), 1.0)) for far in (-gap[1], 0.0, gap[1]))
        row = EstimatorRow(BY_GAP, value, low, high, gap[0])
        return PriorEstimate(value, (low, high), BY_GAP, (row,), _diagnostics(data, found, row), (), found)
    told = prior_from_scores(found.plain, found.labelled, scenario=data.scenario)
    # Something has to be left to find, or there would be nothing to train: where all seem to be labelled, half a row.
    value = max(told.value, population_share(data, 0.51 / len(data.unlabelled)))
    low, high = min(told.interval[0], value), max(told.interval[1], value)
    row = EstimatorRow(BY_ORDER, value, low, high, told.among_unlabelled)
    diagnostics = _diagnostics(data, found, row) | {"largest_share_that_fits": told.bound}
    verdicts = (told.sentence,) if told.at_most or told.all_labelled else tuple(_if_wide(row))
    return PriorEstimate(value, (low, high), BY_ORDER, (row,), diagnostics, verdicts, found)


def _diagnostics(data: PUData, found: PUScores, row: EstimatorRow) -> dict[str, float]:
    """What an estimate rests on."""
    hidden = row.among_unlabelled * len(data.unlabelled)
    return {
        "auc_labelled_against_unlabelled": found.auc,
        "auc_a_perfect_classifier_would_have": 1 - row.among_unlabelled / 2,
        "share_of_positives_among_unlabelled": row.among_unlabelled,
        "labelled_share_of_positives": len(data.positives) / (len(data.positives) + hidden),
        "interval_width": row.high - row.low,
    }


def _embedded(data: PUData, seed: int, backbone: str) -> PUData:
    """The data with embeddings in place of pictures, for whoever looks at columns."""
    from splitpu.methods.frozen_features import frozen_choice

    heads = frozen_choice(data, backbone, seed)
    table = np.zeros((len(data), heads.features.shape[1]), np.float32)
    table[heads.numbers] = heads.features
    return replace(data, features=table)


def population_share(data: PUData, among_unlabelled: float) -> float:
    """The prior that a share of positives among the unlabelled rows means: the one definition for each scenario."""
    if data.scenario == "case-control":
        return among_unlabelled
    return (among_unlabelled * len(data.unlabelled) + len(data.positives)) / len(data)


def _quick_shares(found: PUScores, rng: np.random.Generator, seed: int) -> dict[str, tuple[float, float]]:
    """Share among the unlabelled and its standard error, by the consensus and by every quick estimator."""
    columns = np.stack([found.plain, found.cleaned], axis=1)
    positive, unlabelled = columns[found.labelled], columns[~found.labelled]
    bumps = PenL1.fit(positive[:, 1:], unlabelled[:, 1:], seed)
    values = np.array([*_on_scores(positive, unlabelled), bumps.share()])
    resampled = np.empty((_RESAMPLES, len(values)))
    for number in range(_RESAMPLES):
        some, others = (rng.integers(len(rows), size=len(rows)) for rows in (positive, unlabelled))
        resampled[number] = [*_on_scores(positive[some], unlabelled[others]), bumps.share(some, others)]
    agreeing = [QUICK.index(name) for name in MEMBERS]
    beyond = _OF_NETWORKS if found.how == "network" else 0.0
    # The members' median; its error is how it varies with the draw, how far members lie apart, and what is beyond.
    drawn, apart = float(np.median(resampled[:, agreeing], axis=1).std()), float(values[agreeing].std())
    shares = {RECOMMENDED: (float(np.median(values[agreeing])), math.hypot(drawn, apart, beyond))}
    return shares | dict(zip(QUICK, zip(values.tolist(), resampled.std(0).tolist(), strict=True), strict=True))


def _on_scores(positive: Floats, unlabelled: Floats) -> list[float]:
    return [estimator(positive[:, column], unlabelled[:, column]) for estimator, column in ON_SCORES.values()]


def _share_slowly(
    found: PUScores, estimator: Callable[[Floats, Floats, int], float], rng: np.random.Generator, seed: int
) -> tuple[float, float]:
    positive, unlabelled = found.cleaned[found.labelled, None], found.cleaned[~found.labelled, None]
    value = estimator(positive, unlabelled, seed)
    again = []
    for number in range(_SLOW_RESAMPLES):
        some, others = (rows[rng.integers(len(rows), size=len(rows))] for rows in (positive, unlabelled))
        again.append(estimator(some, others, seed + 1 + number))
    rounded = gap_at(value) / math.sqrt(12) if estimator is km2 else 0.0  # the others' candidates lie close together
    return value, math.hypot(float(np.std(again)), rounded)


def _row(name: str, data: PUData, share: float, error: float) -> EstimatorRow:
    low, middle, high = (
        population_share(data, min(max(value, 0.0), 1.0))
        for value in (share - _NORMAL * error, share, share + _NORMAL * error)
    )
    return EstimatorRow(name, middle, low, high, share)


def _must_tell_something(found: PUScores) -> None:
    """Scores that cannot tell the two kinds apart, or tell all of them apart, say nothing of the prior."""
    if found.auc - 0.5 <= 3 * found.auc_error:
        raise InputError(
            f"a classifier cannot tell labelled from unlabelled rows for certain (AUC {found.auc:.2f}, 0.5 is chance, "
            f"and with {int(found.labelled.sum())} labelled rows it may be off by {3 * found.auc_error:.2f}), so there "
            "are too few, nearly all unlabelled rows are positive, or the features say nothing about the class: check "
            "the features, or give the share of positives yourself (prior=0.3, say)"
        )
    for scores in (found.plain, found.cleaned):  # is any unlabelled row among nine tenths of the labelled ones?
        if (scores[~found.labelled] >= np.quantile(scores[found.labelled], 0.1)).any():
            return
    raise InputError(
        f"hardly any of the {int((~found.labelled).sum())} unlabelled rows looks like a labelled one (a classifier "
        f"tells them apart with an AUC of {found.auc:.3f}), so there is no positive left to find: check that P and U "
        "were recorded in the same way, or give the share of positives yourself (prior=0.3, say)"
    )


def _verdicts(data: PUData, row: EstimatorRow, diagnostics: Mapping[str, float]) -> list[str]:
    said = _if_wide(row)
    if diagnostics["disagreement"] > _DISAGREE:
        said.append(
            f"the estimators disagree by {diagnostics['disagreement']:.2f}: positives and negatives overlap or the "
            "labelled rows are not typical of the positives, so check the prior by other means if you can"
        )
    if diagnostics["auc_labelled_against_unlabelled"] > 0.99 and row.among_unlabelled < 0.05:
        said.append(
            f"labelled and unlabelled rows hardly overlap (AUC {diagnostics['auc_labelled_against_unlabelled']:.3f}): "
            "only a few unlabelled rows look positive; check that P and U were recorded in the same way"
        )
    if data.scenario == "single-training-set" and diagnostics["labelled_share_of_positives"] > 0.9:
        said.append(
            f"by this estimate {100 * diagnostics['labelled_share_of_positives']:.0f} % of all positives are labelled "
            "already, which is rare in practice: use scenario='case-control' if the labelled rows were collected apart"
        )
    return said


def _if_wide(row: EstimatorRow) -> list[str]:
    if row.high - row.low <= _WIDE:
        return []
    return [
        f"the prior is uncertain: anything from {row.low:.2f} to {row.high:.2f} fits these data, so compare results "
        "over that range (splitpu sensitivity) or label more positives"
    ]


TRUE_SHARE = "the true share in the set"
NOT_USED, NOT_ESTIMABLE = "not used", "none could be estimated"  # sources of no prior at all
TO_BE_ESTIMATED = "to be estimated"  # of a run that has yet to find its own


def being_estimated(data: PUData, how: ScoreKind = "auto") -> str:
    """What a user reads while it takes its time, which is minutes where networks are trained for it."""
    slowly = how == "network" or (how == "auto" and needs_networks(data))
    by_networks = ", by networks, which takes minutes" if slowly else ""
    return f"prior: being estimated from the labelled and unlabelled rows{by_networks}"


def prior_in_words(value: float | None, interval: tuple[float, float] | None, source: str) -> str:
    """The prior as terminal and report tell it."""
    if value is None:
        return NOT_ESTIMABLE if source == NOT_ESTIMABLE else "not given"
    bounds = "" if interval is None else " (95 % interval {:.3g} to {:.3g})".format(*interval)
    return f"{value:.4g}{bounds}, {source}"


@dataclass(frozen=True)
class ResolvedPrior:
    """The prior to train with, and where it comes from."""

    value: float | None  # None: the method does without, or it has yet to be estimated
    interval: tuple[float, float] | None
    source: str  # "given", "estimated by ..." or, of a named set, TRUE_SHARE; of none NOT_USED or NOT_ESTIMABLE
    estimate: PriorEstimate | None = None
    doubts: tuple[str, ...] = ()  # everything a user should know before relying on it

    def to_dict(self) -> dict[str, Any] | None:
        """The JSON form of what an estimated prior rests on; None if it was given or there is none."""
        return None if self.estimate is None else {**self.estimate.to_dict(), "verdicts": list(self.doubts)}

    @classmethod
    def none(cls, source: str = NOT_USED, *doubts: str) -> "ResolvedPrior":
        """That there is none; and why, if one was wanted."""
        return cls(None, None, source, doubts=doubts)

    @classmethod
    def from_dict(
        cls, value: float | None, source: str, stored: dict[str, Any] | None, doubts: Iterable[str] = ()
    ) -> "ResolvedPrior":
        """The prior that was stored as its value, source and `to_dict`, so that it need not be estimated again.

        An estimate has its doubts in `to_dict`; those of any other prior were stored beside it."""
        if stored is None:
            return cls(value, None, source, doubts=tuple(doubts))
        estimate = PriorEstimate.from_dict(stored)
        return cls(value, estimate.interval, estimate.source, estimate, estimate.verdicts)


class PriorOptions(TypedDict, total=False):
    """How `estimate_prior` goes about it, and what the model will be."""

    seed: int
    device: str
    observer: "Observer | None"
    checkpoints: Path | None
    backbone: object  # an encoder's name, whose heads then give the scores, or anything else


def resolve_prior(prior: object, data: PUData, **how: Unpack[PriorOptions]) -> ResolvedPrior:
    """A number is checked and taken; "auto" is estimated from P and U, with a warning for everything doubtful.

    An estimate that was made before is taken as it is, with its interval: once is enough for many models."""
    if isinstance(prior, PriorEstimate):
        _must_be_of_use(prior, data)
        return ResolvedPrior(check_prior(prior.value, data), prior.interval, prior.source, prior, prior.verdicts)
    if prior != "auto":
        if isinstance(prior, str):
            raise InputError(f"prior={prior!r} is neither 'auto' nor a number: give a share between 0 and 1, or 'auto'")
        given = ResolvedPrior(check_prior(prior, data), None, "given")
        if (positives := len(data.positives)) >= FEWEST_POSITIVES:
            return given
        few = (  # no reason to refuse, as an estimate is
            f"{positives} labelled positives are few, so the model depends on which ones they are: label at least "
            f"{FEWEST_POSITIVES}, or judge it by rows whose truth is known before relying on it"
        )
        warn_where_called(few)
        return replace(given, doubts=(few,))
    from splitpu.evaluation.diagnostics import check_random_labelling
    from splitpu.networks.encoders import encoder_of

    options: dict[str, Any] = {**how}
    backbone, seed = options.pop("backbone", None), how.get("seed", 0)
    encoder = encoder_of(backbone)  # whose frozen features say it, whether they are tuned later or not
    estimate = _by_order(data, seed, backbone, how.get("observer")) if encoder else estimate_prior(data, **options)
    estimate = within_answers(estimate, data)
    looked_at = _embedded(data, seed, encoder) if encoder else data
    labelling = check_random_labelling(looked_at, scores=estimate.scores, seed=seed)
    doubts = (*estimate.verdicts, *([labelling.verdict] if labelling.doubtful else []))
    _must_be_of_use(estimate, data)
    for sentence in doubts:
        warn_where_called(sentence)
    return ResolvedPrior(check_prior(estimate.value, data), estimate.interval, estimate.source, estimate, doubts)


def within_answers(estimate: PriorEstimate, data: PUData, audit: Mapping[str, Any] | None = None) -> PriorEstimate:
    """No prior leaves fewer positives, or fewer negatives, than somebody has already found in the population.

    That is all answers say: rows that somebody chose to look at are no sample, whatever their share of positives. Those
    of an audit are one, and are believed where their interval is the narrower one, or leaves the estimate out."""
    if audit is not None:
        value, low, high = audit["prior"]
        if high - low < estimate.interval[1] - estimate.interval[0] or not low <= estimate.value <= high:
            method = f"{audit['answered']} answers in random order"
            estimate = replace(estimate, value=value, interval=(low, high), method=method, verdicts=())
    found = data.labels_known[data.population]
    least, most = float((found > 0).mean()), 1 - float((found < 0).mean())
    if data.answers is None or least <= estimate.value <= most:
        return estimate
    low, value, high = np.clip([estimate.interval[0], estimate.value, estimate.interval[1]], least, most).tolist()
    return replace(estimate, value=value, interval=(low, high))


def prior_for(method: str, prior: object, data: PUData, **how: Unpack[PriorOptions]) -> ResolvedPrior:
    """What a method is trained with: the resolved prior, or none if it does without and that is asked for.

    A method that learns without a prior needs an estimate for its threshold and for figures about it, not to be
    trained, so data of which none can be made are no reason to refuse them."""
    needed = find_method(method).needs_prior
    if prior is None:
        if needed:
            raise missing_prior(method)
        return ResolvedPrior.none()
    try:
        return resolve_prior(prior, data, **how)
    except InputError as refused:
        if needed or prior != "auto":
            raise
        sentence = f"no prior could be estimated, so the training goes on without one: {refused}"
        warn_where_called(sentence)
        return ResolvedPrior.none(NOT_ESTIMABLE, sentence)


def _must_be_of_use(estimate: PriorEstimate, data: PUData) -> None:
    """Estimates may end where nothing is left to learn; who gave no prior must not be told that theirs is wrong."""
    rows = len(data.unlabelled)
    none, every = (population_share(data, share) for share in (0.5 / rows, 1 - 0.5 / rows))
    if none < estimate.value < every:
        return
    word = "none" if estimate.value <= none else "all"
    raise InputError(
        f"{word} of the {rows} unlabelled rows seem to be positive by the estimate, so there is nothing to tell apart: "
        "check how P and U were collected, or give the share of positives yourself (prior=0.3, say)"
    )
