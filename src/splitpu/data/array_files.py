"""Embeddings and other arrays, one file a side: positives.npy and unlabelled.npy instead of one .npz with labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.features import canonical_features
from splitpu.data.npz import read_features, too_large
from splitpu.errors import InputError
from splitpu.labels import Mask

SUFFIXES = (".npy", ".npz")


@dataclass(frozen=True, kw_only=True)
class ArraySource:
    """Which files hold what: each a .npy, or a .npz with the array X or with one array only."""

    positives: tuple[str, ...]
    unlabelled: tuple[str, ...]
    test: tuple[str, ...] = ()  # positives, negatives


@dataclass(frozen=True, eq=False)
class ArrayData:
    """The rows of all files, positives first. They are held in memory."""

    features: Array
    labelled: Mask
    names: tuple[str, ...]  # file and place in it
    test_features: Array | None
    test_truth: Mask | None


def read_array_data(source: ArraySource) -> ArrayData:
    """Read and join the files of both sides, and of the test if there is one."""
    files = [*source.positives, *source.unlabelled]
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
    parts = [canonical_features(read_features(path), Path(path).name) for path in files]
    for path, part in zip(files, parts, strict=True):
        if part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype:
            raise InputError(
                f"{path} holds rows of shape {part.shape[1:]} and type {part.dtype}, but {files[0]} of "
                f"{parts[0].shape[1:]} and {parts[0].dtype}: make all files in the same way."
            )
    try:
        return np.concatenate(parts), [len(part) for part in parts]
    except MemoryError as error:
        raise too_large(" and ".join(files), error) from error
