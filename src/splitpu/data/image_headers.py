"""What is known of many images before they are decoded, a column a fact: a hundred thousand fit into megabytes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from splitpu.config.small import SMALL
from splitpu.data.chunks import Array
from splitpu.data.images import Header, ImageSpec, Remark

RUNGS = (32, 64, 96, 128, 224)  # sides that images of mixed sizes are brought to
# What some hundred images can teach does not need more pixels, and three times as many take a laptop hours.
_LARGEST_OF_FEW, _LARGEST = RUNGS[-2:]
_CHECKSUM_BYTES = 32


@dataclass(frozen=True, eq=False)
class Headers:
    """One line a file, in the order of the files; those in `reasons` have no header, and their line means nothing."""

    checksums: Array  # (files, 32) bytes, of the whole file
    sides: Array  # (files, 2): height and width
    grey: Array
    depth: Array
    slices: Array
    reasons: dict[int, str]  # position of a file that cannot be an image -> why
    remarks: dict[int, tuple[Remark, ...]]  # position of a file that there is something to say about

    @classmethod
    def collect(cls, found: Iterable[Header | str], files: int) -> "Headers":
        """Headers, or the reasons why there is none, as they come in."""
        headers = cls(
            np.zeros((files, _CHECKSUM_BYTES), np.uint8),
            np.zeros((files, 2), np.int32),
            np.zeros(files, np.bool_),
            np.full(files, 8, np.uint8),
            np.ones(files, np.int32),
            {},
            {},
        )
        for position, header in enumerate(found):
            if isinstance(header, str):
                headers.reasons[position] = header
                continue
            headers.checksums[position] = np.frombuffer(header.checksum, np.uint8)
            headers.sides[position] = header.height, header.width
            headers.grey[position], headers.depth[position] = header.grey, header.depth
            headers.slices[position] = header.slices
            if header.remarks:
                headers.remarks[position] = header.remarks
        return headers

    def __len__(self) -> int:
        return len(self.grey)

    def good(self) -> Array:
        """Positions of the files that have a header."""
        positions = np.arange(len(self))
        return np.delete(positions, list(self.reasons))

    def extreme_sides(self) -> list[list[int]]:
        """The smallest height and width of all, and the largest."""
        sides = self.sides[self.good()]
        return [sides.min(axis=0).tolist(), sides.max(axis=0).tolist()] if len(sides) else [[0, 0], [0, 0]]


def choose_spec(headers: Headers, size: tuple[int, int] | None = None) -> ImageSpec:
    """The form for a set: its own size where all images share one that is not too large, else a smaller or common one.

    Too large is more than 224 pixels, and more than 128 where there are fewer than 5,000 images. Larger ones keep their
    proportions, with that many for the longer side. Mixed sizes become squares: the largest of 32, 64, 96, 128 and 224
    that the median shorter side reaches and that is not too large. Grey only if all images are; 16 bits if any has.

    >>> photo, thumbnail = Header(bytes(32), 480, 640, False, 8), Header(bytes(32), 100, 90, True, 8)
    >>> [choose_spec(Headers.collect(some, len(some))).shape for some in ([photo], [photo, thumbnail])]
    [(96, 128, 3), (128, 128, 3)]
    """
    good = headers.good()
    channels = 1 if len(good) and headers.grey[good].all() else 3
    depth = int(headers.depth[good].max(initial=8))
    height, width = size or usual_size(headers.sides[good])
    return ImageSpec(height, width, channels, depth)


def usual_size(sides: Array) -> tuple[int, int]:
    """Height and width for images of these sizes, as `choose_spec` says."""
    largest = _LARGEST_OF_FEW if len(sides) < SMALL else _LARGEST
    if len(sides) and (sides == sides[0]).all():
        height, width = sides[0].tolist()
        shrink = min(1.0, largest / max(height, width))
        return max(1, round(height * shrink)), max(1, round(width * shrink))
    shorter = float(np.median(sides.min(axis=1))) if len(sides) else 0
    side = max((rung for rung in RUNGS if rung <= min(shorter, largest)), default=RUNGS[0])
    return side, side
