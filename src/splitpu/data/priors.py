"""What a prior has to be before anything is reckoned with it."""

from numbers import Real
from typing import Any, get_args

import numpy as np

from splitpu.config.schema import Scenario
from splitpu.errors import InputError

_WANTED = "give the share of positives in the population, between 0 and 1"
_DRAWN_SIGMAS = 3.0  # by so many standard deviations the positives of a draw may be more than the prior says


def check_share(prior: object) -> float:
    """The prior as a float, if it is a share at all.

    >>> check_share(0.3)
    0.3
    """
    if isinstance(prior, np.ndarray) and prior.ndim == 0:
        prior = prior.item()
    if isinstance(prior, bool | np.bool_) or not isinstance(prior, Real):
        if hasattr(prior, "interval"):  # an estimate, which classifiers do take
            raise InputError(f"prior is a {type(prior).__name__}, not a number: give its value (prior=estimate.value)")
        raise InputError(f"prior={prior!r} is not a number: {_WANTED}")
    value = float(prior)
    if not 0 < value < 1:  # also refuses NaN
        raise InputError(f"prior={value:g} is not a share: {_WANTED}")
    return value


def check_interval(interval: Any, prior: float | None) -> tuple[float, float]:
    """The ends of the interval of a prior as floats, if it is a range of shares that holds the prior.

    >>> check_interval([0.3, 0.5], 0.4)
    (0.3, 0.5)
    """
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError):
        raise InputError(f"prior_interval={interval!r} is not a range: give its two ends, such as (0.3, 0.5)") from None
    if not 0 <= low <= high <= 1:  # also refuses NaN
        raise InputError(
            f"prior_interval=({low:g}, {high:g}) is not a range of shares: give its lower end first, both from 0 to 1"
        )
    if prior is not None and not low <= prior <= high:
        raise InputError(
            f"prior_interval=({low:g}, {high:g}) does not hold the prior, {prior:g}: give the range that the prior "
            "itself was estimated with"
        )
    return low, high


def check_scenario(scenario: object) -> None:
    """Refuse what is no sampling scenario."""
    if scenario not in get_args(Scenario):
        raise InputError(f"scenario={scenario!r} is unknown: choose {' or '.join(map(repr, get_args(Scenario)))}")


def check_prior_of_sample(prior: object, positives: int, unlabelled: int, scenario: Scenario) -> float:
    """The prior as a float, if rows like these can have come with it; by chance they may hold a few positives more."""
    check_scenario(scenario)
    value, rows = check_share(prior), positives + unlabelled
    most = value * rows + _DRAWN_SIGMAS * np.sqrt(rows * value * (1 - value))
    if scenario == "single-training-set" and positives > most:
        raise InputError(
            f"{positives} of the {rows} rows are labelled, more than a prior of {value:.3g} makes positive, so "
            "the rows are not a sample of the population: give fewer labelled or more unlabelled rows, or use "
            "scenario='case-control' if the labelled rows were collected apart"
        )
    return value
