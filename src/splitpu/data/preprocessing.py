"""What a model file remembers of its training data: kind, shape, and how raw values become network input."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from splitpu.data.sparse_rows import MOST_COLUMNS, is_sparse
from splitpu.errors import InputError, ModelFileError, SplitPUWarning
from splitpu.types import Array, Floats
from splitpu.utils.arrays import row_slices

Kind = Literal["vectors", "images", "volumes"]

BYTE_SCALE = 1 / 255
SMALLEST_SPREAD = float(np.finfo(np.float32).tiny)  # what varies less never varies: float32 could not divide by it
_LINES_ADDED_EXACTLY = 256  # so many squares of bytes add up to less than 2**24, up to where float32 counts by ones
_VALUES_AT_ONCE = 2**18  # in float32 they stay in the processor's cache
_KINDS: dict[int, Kind] = {2: "vectors", 4: "images", 5: "volumes"}  # by the number of axes of canonical features


def kind_of(features: Array) -> Kind:
    """What canonical features are."""
    return _KINDS[features.ndim]


@dataclass(frozen=True)
class Preprocessing:
    """The numbers that turn raw rows into network input, fitted once on the training rows.

    Images: unit = (raw - offset) * scale lies in [0, 1] (where colours are augmented), then (unit - mean) / std per
    channel. Vectors: (raw - mean) / std per feature; offset and scale stay 0 and 1. Volumes are treated as the images
    they are stacks of; slices that are not there (all 0, see docs/ARCHITECTURE.md) have no say in the numbers. Sparse
    rows stay as they are, and the numbers 0 and 1 that say so are not written down."""

    kind: Kind
    shape: tuple[int, ...]  # (d,), (H, W, C) or (S, H, W, C)
    offset: float
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]  # 1 where a feature never varies
    double: bool = False  # whether the rows were float64, because float32 would have lost what tells them apart
    sparse: bool = False  # whether the rows were those of a sparse matrix, of which nothing is taken off
    floats: bool = False  # whether images on the scale of bytes were none, but numbers between them, too

    @classmethod
    def fit(cls, features: Array) -> "Preprocessing":
        """Statistics of canonical features, read a chunk at a time.

        >>> Preprocessing.fit(np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)).mean
        (2.0, 5.0)
        """
        kind, shape = kind_of(features), tuple(int(side) for side in features.shape[1:])
        if is_sparse(features):
            return cls._of_sparse(shape)
        if features.dtype == np.uint8:
            mean, std = _of_bytes(features)
            offset, scale = 0.0, 1.0 if kind == "vectors" else BYTE_SCALE
        else:
            low, high, mean, std = _of_floats(features)
            offset, scale, lowest, highest = 0.0, 1.0, float(low.min()), float(high.max())
            if kind != "vectors" and not (lowest >= 0 and highest <= 1):
                offset, scale = lowest, 1 / (highest - lowest) if highest > lowest else 1.0
        spread = np.where(std * scale < SMALLEST_SPREAD, 1.0, std * scale)
        double = features.dtype == np.float64
        floats = features.dtype != np.uint8 and kind != "vectors" and is_scale_of_bytes(offset, scale)
        unit = tuple(((mean - offset) * scale).tolist())
        return cls(kind, shape, offset, scale, unit, tuple(spread.tolist()), double=double, floats=floats)

    @classmethod
    def _of_sparse(cls, shape: tuple[int, ...]) -> "Preprocessing":
        return cls("vectors", shape, 0.0, 1.0, (0.0,) * shape[0], (1.0,) * shape[0], sparse=True)

    def check(self, features: Array, name: str = "X") -> None:
        """Refuse features that the fitted model cannot have been made for, before the network gives nonsense."""
        shape, kind = tuple(features.shape[1:]), kind_of(features)
        if kind != self.kind or shape[-3:] != self.shape[-3:]:  # a volume may have any number of slices
            trained_on = f"the model was trained on {self.kind} of shape {self.shape}"
            raise InputError(f"{name} holds {kind} of shape {shape}, but {trained_on}: give features made alike")
        if self.kind != "vectors":
            self._check_value_range(features, name)
        if self.double and features.dtype == np.float32:
            lost = f"{name} comes as float32, but the model was trained on numbers that float32 cannot tell apart"
            advice = "give the rows as float64, several different ones at a time"
            warnings.warn(f"{lost}: {advice}", SplitPUWarning, stacklevel=3)

    def _check_value_range(self, features: Array, name: str) -> None:
        """Images on another one of the usual scales would all look black (or white) to the network."""
        is_bytes = features.dtype == np.uint8
        top = self.offset + 1 / self.scale
        beyond_bytes = self.offset >= 0 and top >= 2 * 255  # 16 bits, say
        trained_on = {BYTE_SCALE: "0 to 255", 1: "0 to 1" if self.offset == 0 else ""}.get(self.scale, "")
        if beyond_bytes:
            trained_on = f"{self.offset:g} to {top:g}"
        if not trained_on or (trained_on == "0 to 255" and is_bytes):
            return
        highest = max(float(features[rows].max()) for rows in row_slices(features))
        wrong = 0 < highest <= 1
        if beyond_bytes:  # where whole numbers may be as small as they like
            whole = not wrong or all((np.asarray(features[rows]) % 1 == 0).all() for rows in row_slices(features))
            wrong = highest > 0 and (is_bytes or not whole)
        elif trained_on == "0 to 1":
            wrong = highest > 2  # rescaling may overshoot 1 a little
        if wrong:
            only_bytes = beyond_bytes and is_bytes
            otherwise = " (if they are on that scale already, give them as float32)" if only_bytes else ""
            held = "holds bytes" if only_bytes else f"has no value above {highest:g}"
            model = f"the model was trained on images with values from {trained_on}"
            raise InputError(f"{name} {held}, but {model}: rescale the images{otherwise}")

    def pixels(self, image: Array) -> npt.NDArray[np.uint8]:
        """An image, or a slice of a volume, as it is shown to people.

        >>> Preprocessing("images", (1, 2, 1), 0.0, 0.5, (0.5,), (1.0,)).pixels(np.array([[[1.0], [2.0]]])).ravel()
        array([128, 255], dtype=uint8)
        """
        unit = (np.asarray(image, dtype=np.float64) - self.offset) * self.scale
        return (np.clip(unit, 0, 1) * 255).round().astype(np.uint8)

    def to_dict(self) -> dict[str, Any]:
        """Only lists, numbers and strings, ready for JSON."""
        plain = asdict(self)
        for exception in ("double", "floats", "sparse"):
            if not plain[exception]:
                del plain[exception]  # the rule, which goes without saying
        if self.sparse:
            plain |= {"mean": [], "std": []}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Preprocessing":
        """The inverse of `to_dict`; nonsense is refused here, so that nothing later needs to doubt it."""
        try:
            if stored.get("sparse", False) is True:  # only the number of columns was written
                (columns,) = stored["shape"]
                if type(columns) is not int or not 0 < columns <= MOST_COLUMNS or stored["kind"] != "vectors":
                    raise ValueError(f"sparse {stored['kind']!r:.40} of {columns!r:.40} columns")
                return cls._of_sparse((columns,))
            kind, shape = stored["kind"], tuple(stored["shape"])
            offset, scale = (float(stored[name]) for name in ("offset", "scale"))
            mean, std = (tuple(map(float, stored[name])) for name in ("mean", "std"))
            double, floats = (bool(stored.get(name, False)) for name in ("double", "floats"))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"the stored preprocessing cannot be read ({error!r}): train it again") from error
        wrong = ""
        if kind not in get_args(Kind):
            wrong = f"unknown kind {kind!r}"
        elif _KINDS.get(len(shape) + 1) != kind or not all(type(side) is int and side > 0 for side in shape):
            wrong = f"{kind} cannot have the shape {shape}"
        elif not len(mean) == len(std) == shape[-1]:
            wrong = f"{len(mean)} means and {len(std)} deviations for {shape[-1]} channels or features"
        elif not all(isfinite(value) for value in (offset, scale, *mean, *std)):
            wrong = "a number in it is not finite"
        elif scale <= 0 or min(std) <= 0:
            wrong = "a scale or deviation in it is not positive"
        if wrong:
            raise ModelFileError(f"the stored preprocessing is not usable ({wrong}): train the model again")
        return cls(kind, shape, offset, scale, mean, std, double=double, floats=floats)


def _of_floats(features: Array) -> tuple[Floats, Floats, Floats, Floats]:
    """Lowest, highest, mean and deviation of each channel; in two passes, because sums of squares lose digits."""
    channels = features.shape[-1]
    low, high, total = np.full(channels, np.inf), np.full(channels, -np.inf), np.zeros(channels)
    squares, values = np.zeros(channels), 0
    for flat in _long_rows(features):
        low = np.minimum(low, flat.min(axis=0).reshape(-1, channels).min(axis=0))
        high = np.maximum(high, flat.max(axis=0).reshape(-1, channels).max(axis=0))
        total += flat.sum(axis=0, dtype=np.float64).reshape(-1, channels).sum(axis=0)
        values += flat.size // channels
    mean: Floats = total / values
    for flat in _long_rows(features):
        centred = flat - np.tile(mean, flat.shape[1] // channels)
        squares += np.einsum("nk,nk->k", centred, centred).reshape(-1, channels).sum(axis=0)
    return low, high, mean, np.where(low == high, 0.0, np.sqrt(squares / values))


def _of_bytes(features: Array) -> tuple[Floats, Floats]:
    """Mean and deviation of each channel, in one pass and exactly: sums of bytes and of squares are whole numbers."""
    channels, line = features.shape[-1], int(np.prod(features.shape[1:][-3:]))
    at_once = min(_LINES_ADDED_EXACTLY, max(1, _VALUES_AT_ONCE // line))
    columns, squares, values = np.zeros(line), np.zeros(line), 0
    room = np.empty((at_once, line), np.float32)  # used again and again: new memory takes longer than the sums
    for flat in _long_rows(features):
        for start in range(0, len(flat), at_once):
            lines = room[: len(flat) - start]
            np.copyto(lines, flat[start : start + at_once])
            columns += lines.sum(axis=0)
            squares += np.einsum("nk,nk->k", lines, lines)
        values += flat.size // channels
    totals, totals_of_squares = (one.reshape(-1, channels).sum(axis=0) for one in (columns, squares))
    pairs = zip(map(int, totals), map(int, totals_of_squares), strict=True)  # as Python's, which never overflow
    variances = [(values * of_squares - total**2) / values**2 for total, of_squares in pairs]
    return totals / values, np.sqrt(variances)


def _long_rows(features: Array) -> Iterator[Array]:
    """Chunks with a line per row, or per slice that is there: numpy reduces lines many times faster than channels."""
    is_stack, found = kind_of(features) == "volumes", False
    for rows in row_slices(features):
        chunk = np.asarray(features[rows])
        lines = chunk.reshape(-1, np.prod(chunk.shape[2:])) if is_stack else chunk.reshape(len(chunk), -1)
        shown = lines[lines.any(axis=1)] if is_stack else lines
        if len(shown):
            found = True
            yield shown
    if not found:
        raise InputError("X holds volumes without a slice: every value is 0, which means that there is none")


def is_scale_of_bytes(offset: float, scale: float) -> bool:
    """Whether 0 to 255 become 0 to 1; files may have rounded the scale."""
    return offset == 0 and abs(scale / BYTE_SCALE - 1) < 1e-6
