"""Which slices of a patient make the volume, and in which order."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

import numpy as np

from splitpu.data.images import BadImage

Vector = tuple[float, ...]

SAME_PLACE = 0.01  # millimetres; slices closer than this show the same place
SAME_DIRECTION = 0.999  # cosine of the angle between two normals that count as one
_ENOUGH_STEPS = 3  # from slice to slice; of fewer none is the usual one


@dataclass(frozen=True)
class Slice:
    """Where a slice is found and where it belongs."""

    part: int  # which file of the patient
    frame: int  # in that file
    height: int
    width: int
    series: str = ""  # what tells series apart
    description: str = ""
    position: Vector | None = None  # of the first pixel, in millimetres
    orientation: Vector | None = None  # direction of rows, then of columns
    number: float = np.inf  # in the series, as the scanner counts
    identity: str = ""  # tells slices apart that have nothing else: never written

    @property
    def normal(self) -> Vector | None:
        """The direction in which slices follow one another."""
        if self.orientation is None:
            return None
        across = np.cross(self.orientation[:3], self.orientation[3:])
        length = float(np.linalg.norm(across))
        return tuple((across / length).tolist()) if length > 0.5 else None


@dataclass(frozen=True)
class Ordered:
    """The slices of a volume from one end to the other, and those left out with the reason."""

    slices: tuple[Slice, ...]
    left_out: tuple[tuple[Slice, str], ...] = ()
    missing: int = 0  # slices that the distances between the others leave room for


def without_copies(slices: Sequence[Slice]) -> tuple[list[Slice], list[tuple[Slice, str]]]:
    """Each slice once, and the others with the reason: a file that was copied beside itself is no other slice.

    Before anything is counted: the series with the most slices must not be the one with the most copies.
    """
    kept: dict[tuple[str, int], Slice] = {}
    left_out: list[tuple[Slice, str]] = []
    for one in slices:
        first = kept.setdefault((one.identity or f"{one.part}", one.frame), one)
        if first is not one:
            left_out.append((one, "is a copy of another file of its patient"))
    return list(kept.values()), left_out


def chosen_series(
    slices: Sequence[Slice], wanted: str | None, told: Callable[[str], str] = str
) -> tuple[list[Slice], list[str]]:
    """The slices of one series, and the descriptions of the others.

    The wanted text may be any part of the description, in capitals or not. Of several series the one with the most
    slices is taken; then the order of the descriptions decides, so that the names of files never do. `told` turns a
    description into what may be told of it.
    """
    series: dict[str, list[Slice]] = {}
    for one in slices:
        series.setdefault(one.series, []).append(one)
    candidates = list(series.values())
    if wanted is not None:
        candidates = [some for some in candidates if wanted.casefold() in some[0].description.casefold()]
        if not candidates:
            there = ", ".join(sorted({_described(some, told) for some in series.values()}))
            raise BadImage(f"has no series whose description contains {wanted!r} (there are: {there})")
    best = min(candidates, key=lambda some: (-len(some), some[0].description, some[0].series))
    return best, sorted(_described(some, told) for some in series.values() if some is not best)


def ordered(slices: Sequence[Slice]) -> Ordered:
    """By position along the normal where all slices have one, else by the number the scanner gave them.

    Of several slices at one place the first by number stays: other phases or echoes of the same series, or copies.
    """
    by_number = sorted(slices, key=lambda one: (one.number, one.identity, one.frame))
    if any(one.position is None or one.normal is None for one in slices):
        return Ordered(tuple(by_number))
    normal = Counter(one.normal for one in by_number).most_common(1)[0][0]
    left_out = [(one, "is turned otherwise than the rest of its series") for one in by_number if _turned(one, normal)]
    straight = [one for one in by_number if not _turned(one, normal)]
    places = {one: float(np.dot(one.position or (), normal or ())) for one in straight}
    kept: list[Slice] = []
    for one in sorted(straight, key=lambda one: round(places[one] / SAME_PLACE)):  # stable: numbers decide among equals
        if kept and places[one] - places[kept[-1]] < SAME_PLACE:
            left_out.append((one, "shows a place that another slice of its series shows already"))
        else:
            kept.append(one)
    return Ordered(tuple(kept), tuple(left_out), missing_between([places[one] for one in kept]))


def missing_between(places: Sequence[float]) -> int:
    """How many slices are missing between others, whose distances are mostly the same.

    Half a distance more than usual is not yet a missing slice: scanners round, and some series grow denser.

    >>> missing_between([0.0, 3.0, 6.0, 12.0, 15.1]), missing_between([0.0, 3.0, 9.0])
    (1, 0)
    """
    steps = [after - before for before, after in pairwise(places)]
    if len(steps) < _ENOUGH_STEPS:
        return 0
    usual = median_low(steps)
    return sum(round(step / usual) - 1 for step in steps if step > 1.5 * usual)


def _turned(one: Slice, normal: Vector | None) -> bool:
    return abs(float(np.dot(one.normal or (), normal or ()))) < SAME_DIRECTION


def _described(slices: Sequence[Slice], told: Callable[[str], str]) -> str:
    return f"{told(slices[0].description) or 'without description'!r} with {len(slices)} slices"
