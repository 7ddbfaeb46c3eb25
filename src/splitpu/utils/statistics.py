"""Mean, standard deviation and paired differences over seeds: reckoned here for every table that shows them.

Deviations are those of a sample (n - 1). What cannot be known is None and never nought, so that no table shows a
deviation of 0 for a single seed."""

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_BySeed = Mapping[_Key, float | None]


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None of none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def standard_deviation(values: Iterable[float | None]) -> float | None:
    """Of those that are known; one value has none."""
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) > 1 else None


def standard_error(values: Sequence[float], at_least: int = 2) -> float | None:
    """That of their mean; None where they are fewer than it takes to say anything."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) >= max(at_least, 2) else None


def paired_gains(values: _BySeed[_Key], reference: _BySeed[_Key]) -> list[float]:
    """Values less those of the reference with the same key, such as a seed: what both share is left out."""
    pairs = [(value, reference.get(key)) for key, value in values.items()]
    return [value - other for value, other in pairs if value is not None and other is not None]


def paired_difference(values: _BySeed[_Key], reference: _BySeed[_Key]) -> dict[str, float] | None:
    """The mean difference over the seeds that both have, with its standard error; None for fewer than two."""
    gains = paired_gains(values, reference)
    error = standard_error(gains)
    return None if error is None else {"mean": statistics.fmean(gains), "standard_error": error}


def by_chance(difference: Mapping[str, float]) -> bool:
    """Whether a difference is no larger than its standard error, as it is if one seed of several makes all of it."""
    return abs(difference["mean"]) <= difference["standard_error"] * (1 + 1e-9)


def spread_of(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Mean and standard deviation of a figure, and its values by seed, as summaries keep them."""
    return {"mean": mean(values.values()), "sd": standard_deviation(values.values()), "values": dict(values)}
