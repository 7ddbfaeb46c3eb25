"""The form that the volumes of a set are brought into; which slices of a patient make one, and in which order."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from splitpu.data.images.decode import BadImage
from splitpu.types import Array

SliceValues = npt.NDArray[np.float32]

DARKEST, BRIGHTEST = 0.5, 99.5  # percentiles of a volume's values that become 1 and 255
Vector = tuple[float, ...]

SAME_PLACE = 0.01  # millimetres; slices closer than this show the same place
SAME_DIRECTION = 0.999  # cosine of the angle between two normals that count as one
_ENOUGH_STEPS = 3  # from slice to slice; of fewer none is the usual one


@dataclass(frozen=True)
class VolumeSpec:
    """Shape of every volume of a set, and which series of a patient it is made from."""

    slices: int
    height: int
    width: int
    series: str | None = None  # part of the description; None = the series with the most slices
    kind: ClassVar[Literal["volumes"]] = "volumes"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)  # of which 0 is kept for slices that are not there

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.slices, self.height, self.width, 1


def evenly_chosen(count: int, most: int) -> list[int]:
    """Which of `count` slices to keep when there is room for `most`: the first, the last, and evenly between."""
    if count <= most:
        return list(range(count))
    if most == 1:
        return [(count - 1) // 2]
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def all_finite(values: SliceValues) -> SliceValues:
    """What is no number becomes as dark as the darkest value, as padding does; infinite ones the ends of the others."""
    finite = np.isfinite(values)
    if finite.all():
        return values
    if not finite.any():
        raise BadImage("holds no value that is a number")
    darkest, brightest = values[finite].min(), values[finite].max()
    return np.nan_to_num(values, nan=darkest, neginf=darkest, posinf=brightest)


def resized(values: SliceValues, height: int, width: int) -> SliceValues:
    """One slice in another size; each new pixel is the mean of what it covers, so that nothing flickers."""
    from PIL import Image

    if values.shape == (height, width):
        return values
    return np.asarray(Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32)


def as_bytes(slices: Sequence[SliceValues], spec: VolumeSpec) -> Array:
    """A volume of bytes from 1 to 255, filled up with slices of zeros.

    The values between the 0.5th and the 99.5th percentile of the whole volume are spread over the bytes and the others
    cut off: scanners of MR have no common unit, and a few metal-bright voxels must not darken all others. The slices
    are scaled together, so that one is as much brighter than the next as it was measured."""
    stack = np.stack(slices)
    low, high = np.percentile(stack, (DARKEST, BRIGHTEST))
    if high <= low:
        low, high = float(stack.min()), float(stack.max())
    unit = np.clip((stack - low) / (high - low), 0, 1) if high > low else np.full(stack.shape, 0.5)
    volume = np.zeros(spec.shape, spec.dtype)
    volume[: len(stack), :, :, 0] = np.rint(1 + 254 * unit)
    return volume


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


LeftOut = list[tuple[Slice, str]]  # slices that are not used, and why


def without_copies(slices: Sequence[Slice]) -> tuple[list[Slice], LeftOut]:
    """Each slice once, and the others with the reason: the longest series must not be the one with the most copies."""
    kept: dict[tuple[str, int], Slice] = {}
    left_out: LeftOut = []
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
    description into what may be told of it."""
    series: dict[str, list[Slice]] = {}
    for one in slices:
        series.setdefault(one.series, []).append(one)

    def described(some: list[Slice]) -> str:
        return f"{told(some[0].description) or 'without description'!r} with {len(some)} slices"

    candidates = list(series.values())
    if wanted is not None:
        candidates = [some for some in candidates if wanted.casefold() in some[0].description.casefold()]
        if not candidates:
            there = ", ".join(sorted({described(some) for some in series.values()}))
            raise BadImage(f"has no series whose description contains {wanted!r} (there are: {there})")
    best = min(candidates, key=lambda some: (-len(some), some[0].description, some[0].series))
    return best, sorted(described(some) for some in series.values() if some is not best)


def ordered(slices: Sequence[Slice]) -> tuple[list[Slice], LeftOut, int]:
    """By position along the normal where all slices have one, else by the number the scanner gave them.

    Of several slices at one place the first by number stays: other phases or echoes of the same series, or copies. Also
    gives those left out, and how many slices the distances between the others leave room for."""
    by_number = sorted(slices, key=lambda one: (one.number, one.identity, one.frame))
    if any(one.position is None or one.normal is None for one in slices):
        return by_number, [], 0
    normal = Counter(one.normal for one in by_number).most_common(1)[0][0]
    straight: list[Slice] = []
    left_out: LeftOut = []
    for one in by_number:
        if abs(float(np.dot(one.normal or (), normal or ()))) < SAME_DIRECTION:
            left_out.append((one, "is turned otherwise than the rest of its series"))
        else:
            straight.append(one)
    places = {one: float(np.dot(one.position or (), normal or ())) for one in straight}
    kept: list[Slice] = []
    for one in sorted(straight, key=lambda one: round(places[one] / SAME_PLACE)):  # stable: numbers decide among equals
        if kept and places[one] - places[kept[-1]] < SAME_PLACE:
            left_out.append((one, "shows a place that another slice of its series shows already"))
        else:
            kept.append(one)
    return kept, left_out, missing_between([places[one] for one in kept])


def missing_between(places: Sequence[float]) -> int:
    """How many slices are missing between others; half a distance more is not yet one, as some series grow denser."""
    steps = [after - before for before, after in pairwise(places)]
    if len(steps) < _ENOUGH_STEPS:
        return 0
    usual = median_low(steps)
    return sum(round(step / usual) - 1 for step in steps if step > 1.5 * usual)
