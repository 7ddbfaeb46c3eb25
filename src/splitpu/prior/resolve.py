"""What `prior="auto"` means: estimate it, say so, and say what is doubtful about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from splitpu.data.pudata import PUData, check_prior
from splitpu.errors import InputError
from splitpu.listening import warn_where_called
from splitpu.methods.registry import find_method, missing_prior
from splitpu.prior.estimate import PriorEstimate, estimate_prior, population_share
from splitpu.prior.scores import FEWEST_POSITIVES, ScoreKind, needs_networks

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer


TRUE_SHARE = "the true share in the set"
NOT_USED, NOT_ESTIMABLE = "not used", "none could be estimated"  # sources of no prior at all


def being_estimated(data: PUData, how: ScoreKind = "auto") -> str:
    """What a user reads while it takes its time, which is minutes where networks are trained for it.

    >>> being_estimated(PUData.from_arrays([[0.1], [0.9], [0.7]], [0, 1, 1]))
    'prior: being estimated from the labelled and unlabelled rows'
    """
    slowly = how == "network" or (how == "auto" and needs_networks(data))
    by_networks = ", by networks, which takes minutes" if slowly else ""
    return f"prior: being estimated from the labelled and unlabelled rows{by_networks}"


def prior_in_words(value: float | None, interval: tuple[float, float] | None, source: str) -> str:
    """The prior as terminal and report tell it.

    >>> prior_in_words(0.4752, (0.41, 0.54), "estimated by consensus"), prior_in_words(0.5, None, "given")
    ('0.4752 (95 % interval 0.41 to 0.54), estimated by consensus', '0.5, given')
    >>> prior_in_words(None, None, NOT_ESTIMABLE), prior_in_words(None, None, NOT_USED)
    ('none could be estimated', 'not given')
    """
    if value is None:
        return NOT_ESTIMABLE if source == NOT_ESTIMABLE else "not given"
    bounds = "" if interval is None else " (95 % interval {:.3g} to {:.3g})".format(*interval)
    return f"{value:.4g}{bounds}, {source}"


@dataclass(frozen=True)
class ResolvedPrior:
    """The prior to train with, and where it comes from."""

    value: float | None  # None: the method does without
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

        An estimate has its doubts in `to_dict`; those of any other prior were stored beside it.
        """
        if stored is None:
            return cls(value, None, source, doubts=tuple(doubts))
        estimate = PriorEstimate.from_dict(stored)
        return cls(value, estimate.interval, estimate.source, estimate, estimate.verdicts)


class EstimateOptions(TypedDict, total=False):
    """How `estimate_prior` goes about it, which only passes through here."""

    seed: int
    device: str
    observer: "Observer | None"
    checkpoints: Path | None


def resolve_prior(prior: object, data: PUData, **how: Unpack[EstimateOptions]) -> ResolvedPrior:
    """A number is checked and taken; "auto" is estimated from P and U, with a warning for everything doubtful.

    An estimate that was made before is taken as it is, with its interval: once is enough for many models.

    >>> data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9], [0.7]], [0, 0, 0, 1, 1])
    >>> resolve_prior(0.5, data).source
    'given'
    """
    if isinstance(prior, PriorEstimate):
        _must_be_of_use(prior, data)
        return ResolvedPrior(check_prior(prior.value, data), prior.interval, prior.source, prior, prior.verdicts)
    if prior != "auto":
        if isinstance(prior, str):
            raise InputError(f"prior={prior!r} is neither 'auto' nor a number: give a share between 0 and 1, or 'auto'")
        given = check_prior(prior, data)
        doubts = _if_few(data)
        for sentence in doubts:
            warn_where_called(sentence)
        return ResolvedPrior(given, None, "given", doubts=doubts)
    from splitpu.evaluation.assumptions import check_random_labelling

    estimate = estimate_prior(data, **how)
    labelling = check_random_labelling(data, scores=estimate.scores, seed=how.get("seed", 0))
    doubts = (*estimate.verdicts, *([labelling.verdict] if labelling.doubtful else []))
    _must_be_of_use(estimate, data)
    for sentence in doubts:
        warn_where_called(sentence)
    return ResolvedPrior(check_prior(estimate.value, data), estimate.interval, estimate.source, estimate, doubts)


def prior_for(method: str, prior: object, data: PUData, **how: Unpack[EstimateOptions]) -> ResolvedPrior:
    """What a method is trained with: the resolved prior, or none if it does without and that is asked for.

    A method that learns without a prior needs an estimate for its threshold and for figures about it, not to be
    trained, so data of which none can be made are no reason to refuse them.

    >>> data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9], [0.7]], [0, 0, 0, 1, 1])
    >>> prior_for("vpu", None, data).source
    'not used'
    """
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


def _if_few(data: PUData) -> tuple[str, ...]:
    """An estimate is refused where positives are few; who gives a prior may go on, and should know."""
    if (positives := len(data.positives)) >= FEWEST_POSITIVES:
        return ()
    sentence = (
        f"{positives} labelled positives are few, so the model depends on which ones they are: label at least "
        f"{FEWEST_POSITIVES}, or judge it by rows whose truth is known before relying on it"
    )
    return (sentence,)


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
