"""Columns whose cells are lists of numbers, such as embeddings -> one feature for each number."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.table_columns import LARGEST, finite, number
from splitpu.data.table_files import is_nested
from splitpu.errors import InputError


class _NoRows(ValueError):
    """Says what cells hold instead of lists of numbers."""


class _Uneven(_NoRows):
    """Lists of numbers, but of different lengths."""


@dataclass(frozen=True)
class ListColumn:
    """How lists of numbers become features: as they are, gaps filled."""

    name: str
    fill: tuple[float, ...]  # what a missing number is replaced by: the median of its place
    flag_missing: bool  # whether one more feature says that something was missing; only if something was in training

    @classmethod
    def fit(cls, name: str, cells: Sequence[Any]) -> "tuple[ListColumn | None, str]":
        """The column and a note about it; None if it is nothing that could be a feature."""
        try:
            rows = _rows(cells)
        except _Uneven as trouble:
            raise InputError(
                f"column {name!r} holds {trouble}: make them equally long (empty ones count as missing), or leave the "
                f"column out with --ignore {shlex.quote(name)}."
            ) from None
        except _NoRows as trouble:
            return None, f"column {name!r} holds {trouble}: it is not used."
        if rows.shape[1] == 0:
            return None, f"column {name!r} holds empty lists only: it is not used."
        usable = np.abs(rows) <= LARGEST  # a gap is not
        fill = (
            float(np.median(column[some])) if some.any() else 0.0 for column, some in zip(rows.T, usable.T, strict=True)
        )
        column = cls(name, tuple(fill), bool(np.isnan(rows).any()))
        return column, f"column {name!r} holds lists of {len(column.fill)} numbers, each of which is a feature."

    @property
    def feature_names(self) -> list[str]:
        """What the numbers are called."""
        places = [f"{self.name}[{place}]" for place in range(len(self.fill))]
        return places + ([f"{self.name} is missing"] if self.flag_missing else [])

    @property
    def is_converted(self) -> bool:
        """Whether its features are more than the numbers themselves."""
        return self.flag_missing

    def encode(self, cells: Sequence[Any], where: str) -> Array:
        """The numbers of this column, one line a row."""
        width = len(self.fill)
        try:
            rows = _rows(cells, width)
        except _NoRows as trouble:
            raise InputError(
                f"column {self.name!r} of {where} holds {trouble}, but the model was trained on lists of {width} "
                "numbers there: make them as they were made for the training."
            ) from None
        gaps = np.isnan(rows)
        for value in rows[~gaps & ~(np.abs(rows) <= LARGEST)][:1]:
            number(value, self.name, where)  # says what is wrong with it
        filled = np.where(gaps, self.fill, rows).astype(np.float32)
        return np.hstack([filled, gaps.any(axis=1, keepdims=True)], dtype=np.float32) if self.flag_missing else filled

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and texts, ready for JSON."""
        return {"name": self.name, "fill": list(self.fill), "flag_missing": self.flag_missing}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "ListColumn":
        """The inverse of `to_dict`."""
        return cls(str(stored["name"]), tuple(map(finite, stored["fill"])), bool(stored["flag_missing"]))


def _rows(cells: Sequence[Any], width: int = 0) -> Array:
    """The numbers, NaN where one is missing; of the given width, where no row says another.

    >>> _rows([[1, 2], None, [3, None]]).tolist()
    [[1.0, 2.0], [nan, nan], [3.0, nan]]
    """
    arrays = [None if cell is None else _array(cell) for cell in cells]
    known = [array for array in arrays if array is not None]
    lengths = Counter(map(len, known))
    if len(lengths) > 1:
        ((usual, _),) = lengths.most_common(1)
        row, odd = next((row, len(one)) for row, one in enumerate(arrays) if one is not None and len(one) != usual)
        raise _Uneven(f"lists of different lengths (often {usual} numbers, in row {row} {odd})")
    found = next(iter(lengths), width)
    if width and found != width:
        raise _Uneven(f"lists of {found} numbers")
    rows = np.full((len(cells), found), np.nan)
    if known:
        rows[[array is not None for array in arrays]] = np.stack(known)
    return rows


def _array(cell: Any) -> Array | None:
    """A list of numbers; an empty one is missing."""
    if not is_nested(cell) or isinstance(cell, dict | bytes):
        raise _NoRows("structures or bytes" if is_nested(cell) else f"{cell!r}, which is no list")
    try:
        array: Array = np.asarray(cell)
    except ValueError:
        raise _NoRows("lists of lists") from None
    if array.ndim == 1 and array.dtype.kind == "O" and all(one is None or isinstance(one, Number) for one in array):
        array = array.astype(np.float64)  # None becomes NaN
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise _NoRows("lists of lists" if array.ndim > 1 else "lists whose values are no numbers")
    return array if len(array) else None
