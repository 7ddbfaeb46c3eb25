"""Whatever array or data frame the user has -> the one form that the rest knows: rows, images, stacks of them."""

from typing import Any, Literal

import numpy as np

from splitpu.data.sparse_rows import SparseRows, as_array, is_sparse, is_sparse_matrix
from splitpu.data.tables.read import is_nested
from splitpu.errors import InputError
from splitpu.types import Array, Shape
from splitpu.utils.arrays import readable_tensor, row_slices
from splitpu.utils.text import listed

Channels = Literal["auto", "first", "last"]

USUAL_CHANNEL_COUNTS = (1, 3, 4)
LARGEST_SHIFT = 2**-12  # how far float32 may move a value, as a share of all its column spans


def refuse_columns_without_numbers(X: Any, name: str = "X") -> None:
    """Name the columns of a data frame that hold no numbers; the message of a failed conversion does not."""

    def can_be_numbers(column: Any) -> bool:
        values = np.asarray(column)
        if values.dtype.kind == "O":
            return not any(isinstance(value, str) or is_nested(value) for value in values.flat)
        return values.dtype.kind not in "SUTmM"  # times could be counted, but from when, and in what?

    refused = [str(one) for one in column_names(X) if not can_be_numbers(X[one])]
    if refused:
        advice = "give the frame to a classifier, which encodes them itself, or encode them first (OneHotEncoder)"
        raise InputError(f"{name} holds columns that are not numbers ({listed(refused, repr)}): {advice}")


def frame_as_numbers(X: Any, name: str = "X") -> Any:
    """A data frame of numbers as an array of floats where numpy alone would make objects of it: columns of booleans
    among numbers, and such as can have missing values. Everything else is given back as it is."""
    columns = column_names(X)
    if not columns:
        return X
    refuse_columns_without_numbers(X, name)
    array: Array = np.asarray(X)
    if array.dtype.kind != "O":
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        missing = [str(one) for one in columns if any(map(is_missing, np.asarray(X[one]).flat))]
        where = f"columns {listed(missing or columns, repr)}"
        advice = "drop or fill these rows, or encode these columns"
        raise InputError(f"{name} holds missing values or such as are not numbers ({where}): {advice}") from None


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none."""
    # By its name, as pandas, whose sign for 'missing' refuses to be compared, need not be installed.
    is_nan = isinstance(value, float) and np.isnan(value)
    return value is None or bool(is_nan) or type(value).__name__ in ("NAType", "NaTType")


def column_names(X: Any) -> list[Any]:
    """Those of a data frame; what is none has none."""
    if hasattr(X, "column_names"):  # as pyarrow calls them
        return list(X.column_names)
    return list(X.columns) if hasattr(X, "columns") and hasattr(X, "dtypes") else []


def canonical_features(
    X: Any, name: str = "X", *, channels: Channels = "auto", double: bool = False, trained_on: Shape | None = None
) -> Array:
    """Features as (n, d) float32, or as (n, H, W, C) or (n, S, H, W, C) uint8 or float32; all values finite.

    Vectors stay float64 where a column lies so far from nought (times in seconds do) that float32 would make the same
    of many of its values, or where a model asks for it with `double`, since its training rows did. With
    `channels="auto"` they are the axis of 1, 3 or 4 entries or, for a model, the one that makes the rows such as it was
    `trained_on`. Volumes with fewer slices than others are filled up with slices of zeros, which count as not there.
    Arrays that already have this form, memory-mapped ones among them, are passed on without a copy; sparse matrices
    become `SparseRows`."""
    if is_sparse(X):
        return as_array(X)
    if is_sparse_matrix(X):
        return as_array(SparseRows.checked(X, name))
    arranged = _channels_last(_plain_array(X, name), name, channels, trained_on)
    if arranged.ndim in (4, 5) and arranged.dtype == np.uint8:
        return _contiguous(arranged)
    converted = arranged if arranged.dtype == np.float32 else np.empty(arranged.shape, np.float32)
    may_lose = arranged.ndim == 2 and not np.can_cast(arranged.dtype, np.float32)
    low, high, shift = np.array(np.inf), np.array(-np.inf), np.array(0.0)  # of every column, where values may be moved
    bad_rows = []
    with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 become infinite and are refused as such
        for rows in row_slices(arranged):
            if converted is not arranged:
                converted[rows] = arranged[rows]
            finite = np.isfinite(converted[rows]).reshape(rows.stop - rows.start, -1).all(axis=1)
            bad_rows.append(np.flatnonzero(~finite) + rows.start)
            if may_lose and not double:
                exact = np.asarray(arranged[rows], np.float64)
                low, high = np.minimum(low, exact.min(axis=0)), np.maximum(high, exact.max(axis=0))
                shift = np.maximum(shift, np.abs(exact - converted[rows]).max(axis=0))
    bad = np.concatenate(bad_rows)
    if len(bad):
        where = rows_in_words(bad, len(arranged))
        raise InputError(f"{name} holds NaN, infinite or too large (beyond float32) values in {where}: drop or fill it")
    # A column that never varies has no differences to lose.
    if may_lose and (double or ((high > low) & (shift > LARGEST_SHIFT * (high - low))).any()):
        return _contiguous(arranged) if arranged.dtype == np.float64 else arranged.astype(np.float64)
    return _contiguous(converted)


def refuse_masked_entries(X: Any, name: str) -> None:
    """What a mask hides is no value, though an array made of it would have one there."""
    if np.ma.is_masked(X):
        raise InputError(f"{name} has masked entries: fill them in first")


def _plain_array(X: Any, name: str) -> Array:
    if hasattr(X, "toarray"):
        raise InputError(f"{name} is a sparse matrix of a kind that is not known: pass {name}.toarray()")
    refuse_masked_entries(X, name)
    X = frame_as_numbers(readable_tensor(X), name)
    try:
        array: Array = X if type(X) is np.memmap else np.asarray(X)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not an array of numbers ({error}): give all rows the same shape") from error
    if array.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {array.dtype}, give real numbers")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array.dtype}: give integers, floats or booleans")
    if array.ndim not in (2, 3, 4, 5):
        wanted = "vectors as (n, d), images as (n, H, W), (n, H, W, C) or (n, C, H, W), or volumes as (n, S, H, W, C)"
        raise InputError(f"{name} has the shape {array.shape}: give {wanted}")
    if len(array) == 0:
        raise InputError(f"{name} has no rows (shape={array.shape}): give at least one")
    if array.size == 0:
        raise InputError(f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return array


def _channels_last(array: Array, name: str, channels: Channels, trained_on: Shape | None) -> Array:
    if channels not in ("auto", "first", "last"):
        raise InputError(f"channels={channels!r} is unknown: choose 'auto', 'first' or 'last'")
    if array.ndim in (2, 3):
        return array if array.ndim == 2 else array[..., None]
    row = array.shape[1:]
    if channels == "auto" and trained_on is not None:  # what fits neither way is left, to be refused for its shape
        first, last = (*row[1:], row[0]) == trained_on, row[-3:] == trained_on[-3:]
        channels = "auto" if first and last else "first" if first else "last"
    first, last = row[0] in USUAL_CHANNEL_COUNTS, row[-1] in USUAL_CHANNEL_COUNTS
    if array.ndim == 5:
        if channels == "first" or (channels == "auto" and not last):
            wanted = "volumes as (n, S, H, W, C), slices one after the other, with 1, 3 or 4 channels last"
            raise InputError(f"{name} has the shape {array.shape}: give {wanted}")
        return array
    if channels == "auto" and first == last:
        wanted = "pass images as (n, H, W, C) with 1, 3 or 4 channels, or say channels='last' or channels='first'"
        raise InputError(f"{name} has the shape {array.shape}, which does not say where the channels are: {wanted}")
    return array.transpose(0, 2, 3, 1) if channels == "first" or (channels == "auto" and first) else array


def _contiguous(array: Array) -> Array:
    """Rows in one piece of memory; a memory-mapped array stays where it is, because it may not fit into the RAM."""
    return array if isinstance(array, np.memmap) else np.ascontiguousarray(array)


def rows_in_words(chosen: Array, rows: int) -> str:
    """How many rows a message is about, and the first few of them."""
    return f"{len(chosen)} of {rows} rows (row {listed(chosen.tolist())})"
