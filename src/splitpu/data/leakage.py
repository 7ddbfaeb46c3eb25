"""Which rows that a model is judged by are among those it was trained on."""

import filecmp
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from splitpu.data.sparse_rows import is_sparse
from splitpu.types import Array, Mask
from splitpu.utils.arrays import row_slices
from splitpu.utils.reading import row_checksum

_BEGINNING = 1 << 16  # bytes of a file that are read to see whether it is worth reading the rest
_SIGMAS = 3.0
_DOUBLES = 0.01


class TrainingFiles:
    """The files, or the folders of patients, that a model was trained on: known by their place, or as equal copies."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._places = {os.path.realpath(path) for path in paths}
        self._by_size: dict[int, list[str]] = {}
        for place in self._places:
            if os.path.isfile(place):
                self._by_size.setdefault(os.path.getsize(place), []).append(place)
        self._beginnings: dict[str, bytes] = {}

    def __contains__(self, path: str) -> bool:
        """Whether this is one of them, or a copy of one, byte by byte."""
        place = os.path.realpath(path)
        if place in self._places:
            return True
        alike = self._by_size.get(os.path.getsize(place), []) if os.path.isfile(place) else []
        begins_alike = (other for other in alike if self._beginning(other) == self._beginning(place))
        return any(filecmp.cmp(other, place, shallow=False) for other in begins_alike)

    def _beginning(self, path: str) -> bytes:
        if path not in self._beginnings:
            with Path(path).open("rb") as file:
                self._beginnings[path] = row_checksum(file.read(_BEGINNING))
        return self._beginnings[path]


def rows_seen(training: Array, given: Array) -> Mask:
    """Which of the given rows equal a training row; none if there are no more of them than new rows might be.

    Rows of a few coarse numbers are often equal by chance: as often as one training row equals another. A hundredth of
    the rows, or less, is what any table has of doubles, and moves no figure by more than that."""
    nothing = np.zeros(len(given), dtype=np.bool_)
    if training.shape[1:] != given.shape[1:] or training.dtype != given.dtype or type(training) is not type(given):
        return nothing
    wanted = set(_digests(given))
    if wanted.isdisjoint(_digests(training)):  # as it should be, and found out without keeping all of many rows in mind
        return nothing
    known = Counter(_digests(training))
    found = np.fromiter((digest in known for digest in _digests(given)), np.bool_, len(given))
    by_chance = sum(count for count in known.values() if count > 1) / len(training)
    expected = len(given) * by_chance
    usual = max(expected + _SIGMAS * math.sqrt(expected * (1 - by_chance)), _DOUBLES * len(given))
    return found if found.sum() > usual else nothing


def seen_in_words(counts: Sequence[tuple[int, int, str]]) -> list[str]:
    """A sentence about rows that are judged by and were trained on: how many, of how many, of what."""
    found = " and ".join(f"{seen:,} of the {rows:,} {what}" for seen, rows, what in counts if seen)
    flatters = "are training rows of this model, which flatters it: give rows that it was not trained on"
    return [f"{found} {flatters}."] if found else []


def _digests(features: Array) -> Iterator[bytes]:
    if is_sparse(features):
        yield from map(row_checksum, features.row_bytes())
        return
    for rows in row_slices(features):
        for row in np.ascontiguousarray(features[rows]):
            yield row_checksum(row.tobytes())
