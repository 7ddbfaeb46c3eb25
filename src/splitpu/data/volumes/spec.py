"""The form that the volumes of a set are brought into, and how measured values become bytes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from splitpu.data.chunks import Array
from splitpu.data.images import BadImage

SliceValues = npt.NDArray[np.float32]

DARKEST, BRIGHTEST = 0.5, 99.5  # percentiles of a volume's values that become 1 and 255


@dataclass(frozen=True)
class VolumeSpec:
    """Shape of every volume of a set, and which series of a patient it is made from."""

    slices: int
    height: int
    width: int
    series: str | None = None  # part of the description; None = the series with the most slices

    @property
    def kind(self) -> Literal["volumes"]:
        """What such rows are."""
        return "volumes"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of one volume: slices, height, width, one channel."""
        return self.slices, self.height, self.width, 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Bytes, as 0 is kept for slices that are not there."""
        return np.dtype(np.uint8)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def evenly_chosen(count: int, most: int) -> list[int]:
    """Which of `count` slices to keep when there is room for `most`: the first, the last, and evenly between.

    >>> evenly_chosen(9, 3), evenly_chosen(2, 3), evenly_chosen(9, 1)
    ([0, 4, 8], [0, 1], [4])
    """
    if count <= most:
        return list(range(count))
    if most == 1:
        return [(count - 1) // 2]
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def all_finite(values: SliceValues) -> SliceValues:
    """What is no number becomes as dark as the darkest value, as padding does; infinite ones the ends of the others.

    >>> all_finite(np.array([np.nan, 7, 9, np.inf], np.float32)).tolist()
    [7.0, 7.0, 9.0, 9.0]
    """
    finite = np.isfinite(values)
    if finite.all():
        return values
    if not finite.any():
        raise BadImage("holds no value that is a number")
    numbers = values[finite]
    darkest, brightest = numbers.min(), numbers.max()
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
    are scaled together, so that one is as much brighter than the next as it was measured.

    >>> as_bytes([np.array([[10.0]]), np.array([[20.0]])], VolumeSpec(3, 1, 1)).ravel().tolist()
    [1, 255, 0]
    """
    stack = np.stack(slices)
    low, high = np.percentile(stack, (DARKEST, BRIGHTEST))
    if high <= low:
        low, high = float(stack.min()), float(stack.max())
    unit = np.clip((stack - low) / (high - low), 0, 1) if high > low else np.full(stack.shape, 0.5)
    volume = np.zeros(spec.shape, spec.dtype)
    volume[: len(stack), :, :, 0] = np.rint(1 + 254 * unit)
    return volume
