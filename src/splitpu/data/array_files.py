"""Embeddings and other arrays, one file a side: positives.npy and unlabelled.npy instead of one .npz with labels."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splitpu.data.cache import cache_errors_in_words, cache_folder, remove_stale, working_folder
from splitpu.data.chunks import Array, row_slices
from splitpu.data.features import canonical_features
from splitpu.data.npz import read_features
from splitpu.errors import InputError
from splitpu.labels import Mask

SUFFIXES = (".npy", ".npz")
MOST_IN_MEMORY = 1 << 30  # bytes; systems promise more memory than there is, and end the program that believes them


@dataclass(frozen=True, kw_only=True)
class ArraySource:
    """Which files hold what: each a .npy, or a .npz with the array X or with one array only."""

    positives: tuple[str, ...]
    unlabelled: tuple[str, ...]
    test: tuple[str, ...] = ()  # positives, negatives


@dataclass(frozen=True, eq=False)
class ArrayData:
    """The rows of all files, positives first; memory-mapped where they are very many."""

    features: Array
    labelled: Mask
    names: tuple[str, ...]  # file and place in it
    test_features: Array | None
    test_truth: Mask | None


def read_array_data(source: ArraySource) -> ArrayData:
    """Read and join the files of both sides, and of the test if there is one."""
    files = [*source.positives, *source.unlabelled]
    _refuse_twice([*files, *source.test])
    features, lengths = join_arrays(files)
    labelled = np.repeat(np.arange(len(files)) < len(source.positives), lengths)
    names = tuple(f"{Path(path).name}:{row}" for path, rows in zip(files, lengths, strict=True) for row in range(rows))
    if not source.test:
        return ArrayData(features, labelled, names, None, None)
    return ArrayData(features, labelled, names, *read_array_test(source.test))


def read_array_test(files: Sequence[str]) -> tuple[Array, Mask]:
    """Rows of two files, of positives and of negatives, and which of them are positive."""
    features, (positives, negatives) = join_arrays(files)
    return features, np.repeat([True, False], [positives, negatives])


def join_arrays(files: Sequence[str]) -> tuple[Array, list[int]]:
    """All rows one after the other, and how many come from each file."""
    parts = _canonical(files)
    if any(part.dtype == np.float64 for part in parts):  # numbers that float32 cannot tell apart in one of them
        parts = _canonical(files, double=True)
    for path, part in zip(files, parts, strict=True):
        if part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype:
            raise InputError(
                f"{path} holds rows of shape {part.shape[1:]} and type {part.dtype}, but {files[0]} of "
                f"{parts[0].shape[1:]} and {parts[0].dtype}: make all files in the same way."
            )
    return _together(files, parts), [len(part) for part in parts]


def _canonical(files: Sequence[str], *, double: bool = False) -> list[Array]:
    return [canonical_features(read_features(path), Path(path).name, double=double) for path in files]


def _refuse_twice(files: Sequence[str]) -> None:
    """As folders that overlap are refused: a row on both sides teaches nothing, and one of the test flatters."""
    known: set[Path] = set()
    for path in files:
        if (place := Path(path).resolve()) in known:
            raise InputError(f"{path} is given twice, so its rows would count twice: give each file once.")
        known.add(place)


def _together(files: Sequence[str], parts: Sequence[Array]) -> Array:
    """One array: in memory, or where that is too small in a file of its own."""
    if sum(part.nbytes for part in parts) <= MOST_IN_MEMORY:
        try:
            return np.concatenate(parts)
        except MemoryError:
            pass
    return _joined_on_disk(files, parts)


def _joined_on_disk(files: Sequence[str], parts: Sequence[Array]) -> Array:
    """The joined rows, memory-mapped, from the cache if it has them.

    Files that have changed are joined anew. What they were before stays in the cache, as a run that is under way may
    still be reading it.
    """
    store = cache_folder() / "arrays"
    target = store / f"{_key_of(files, parts)}.npy"
    if not target.exists():
        remove_stale(store)
        with working_folder(store) as work, cache_errors_in_words(store):
            ready = work / target.name
            _write_rows(ready, parts)
            os.replace(ready, target)
    joined: Array = np.load(target, mmap_mode="r", allow_pickle=False)
    return joined


def _key_of(files: Sequence[str], parts: Sequence[Array]) -> str:
    digest = hashlib.sha256()
    for path, part in zip(files, parts, strict=True):
        found = Path(path).stat()
        words = f"{Path(path).resolve()} {found.st_size} {found.st_mtime_ns} {part.shape} {part.dtype}\n"
        digest.update(words.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _write_rows(path: Path, parts: Sequence[Array]) -> None:
    """As a .npy file, a few megabytes at a time; written, not mapped, so that a full disk is an error like others."""
    rows, kind = sum(map(len, parts)), np.lib.format.dtype_to_descr(parts[0].dtype)
    with path.open("wb") as file:
        header = {"descr": kind, "fortran_order": False, "shape": (rows, *parts[0].shape[1:])}
        np.lib.format.write_array_header_2_0(file, header)
        for part in parts:
            for some in row_slices(part):
                file.write(np.ascontiguousarray(part[some]).data)
        os.fsync(file.fileno())
