"""How the cells of one column of a table become numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.column_notes import is_number
from splitpu.data.composed import composed
from splitpu.data.table_files import TRUTH_WORDS, is_nested, text
from splitpu.errors import InputError

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers: as it is, or as one number a category (all zero for an unknown one)."""

    name: str
    categories: tuple[str, ...] | None  # None = numeric
    fill: float  # what a missing number is replaced by: the median
    flag_missing: bool  # whether one more number says that the value was missing; only if some were in training
    origin: float = 0.0  # subtracted from numbers, where they lie too far from nought for float32 to tell them apart

    @property
    def feature_names(self) -> list[str]:
        """What the numbers are called."""
        values = [self.name] if self.categories is None else [f"{self.name} = {value}" for value in self.categories]
        return values + ([f"{self.name} is missing"] if self.flag_missing else [])

    @property
    def is_converted(self) -> bool:
        """Whether its features are more than its numbers."""
        return self.categories is not None or self.flag_missing or self.origin != 0

    def encode(self, values: Sequence[Any], where: str) -> Array:
        """The numbers of this column, one line a row."""
        if any(map(is_nested, values)):
            raise InputError(
                f"column {self.name!r} of {where} holds lists or structures, but the model takes single values there: "
                "give these."
            )
        missing = np.array([value is None for value in values], dtype=np.float32)[:, None]
        if self.categories is None:
            numbers = [self.fill if v is None else number(v, self.name, where) for v in truth_as_numbers(values)]
            encoded = (np.array(numbers) - self.origin).astype(np.float32)[:, None]
        else:
            place = self._places()
            encoded = np.zeros((len(values), len(self.categories)), np.float32)
            for row, value in enumerate(values):
                if value is not None and text(value) in place:
                    encoded[row, place[text(value)]] = 1
        return np.hstack([encoded, missing]) if self.flag_missing else encoded

    def unknown(self, values: Sequence[Any]) -> list[str]:
        """The values that are categories but none of the training; those of as many rows as hold one."""
        if self.categories is None:
            return []
        place = self._places()
        return [text(value) for value in values if value is not None and text(value) not in place]

    def _places(self) -> dict[str, int]:
        """Which number stands for a category; True and False are the same however they are written."""
        place = {category: position for position, category in enumerate(self.categories or ())}
        for category, position in list(place.items()):
            if (word := category.lower()) in TRUTH_WORDS:
                for spelling in (word, word.title(), word.upper()):
                    place.setdefault(spelling, position)
        return place

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and texts, ready for JSON."""
        return {
            "name": self.name,
            "categories": None if self.categories is None else list(self.categories),
            "fill": self.fill,
            "flag_missing": self.flag_missing,
            "origin": self.origin,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Column":
        """The inverse of `to_dict`."""
        categories = stored["categories"]
        return cls(
            composed(str(stored["name"])),
            None if categories is None else tuple(composed(str(value)) for value in categories),
            finite(stored["fill"]),
            bool(stored["flag_missing"]),
            finite(stored.get("origin", 0.0)),  # models from before there was one have none
        )


def finite(value: Any) -> float:
    """A number from a model file, which must be one."""
    if not math.isfinite(float(value)):
        raise ValueError(f"{value} is no number to compute with")
    return float(value)


def truth_as_numbers(values: Sequence[Any]) -> Sequence[Any]:
    """1 and 0 for a column of nothing but True and False: words in a CSV file, which Parquet holds as they are.

    >>> truth_as_numbers(["True", None, "FALSE"]), truth_as_numbers(["True", "perhaps"])
    ([1, None, 0], ['True', 'perhaps'])
    """
    found = []
    for value in values:
        word = None if value is None else text(value).lower()
        if word is not None and word not in TRUTH_WORDS:
            return values  # most columns end here, at their first value
        found.append(None if word is None else int(TRUTH_WORDS[word]))
    return found


def origin(values: Array, middle: float) -> float:
    """Nought, or the middle of numbers such as times in seconds of which float32 would make the same.

    >>> origin(np.array([1.0, 2.0, 4.0]), 2.0), origin(1e9 + np.array([1.0, 2.0, 4.0]), 1e9 + 2)
    (0.0, 1000000002.0)
    """
    kept = len(np.unique(values.astype(np.float32)))
    return middle if kept < 0.99 * len(np.unique(values)) else 0.0


def number(value: Any, column: str, where: str) -> float:
    """A number that can be computed with, or a sentence."""
    if not is_number(value):
        raise InputError(
            f"column {column!r} of {where} holds {text(value)!r}, but the model takes numbers there: write one, or "
            "leave the cell empty."
        )
    if not math.isfinite(float(value)):
        raise InputError(f"column {column!r} of {where} holds an infinite value: replace it or leave the cell empty.")
    if abs(float(value)) > LARGEST:
        raise InputError(
            f"column {column!r} of {where} holds {float(value):g}, which is too large to compute with: replace it or "
            "leave the cell empty."
        )
    return float(value)
