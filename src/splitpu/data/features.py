"""Data frames of any library -> arrays of numbers, or a sentence that names the columns which hold none.

Whatever array the user has -> the one form the rest of the package knows: rows, images, stacks of them.
"""

from typing import Any, Literal

import numpy as np

from splitpu.data.sparse_rows import SparseRows, as_array, is_sparse, is_sparse_matrix
from splitpu.data.tables.read import is_nested
from splitpu.errors import InputError
from splitpu.types import Array
from splitpu.utils.arrays import readable_tensor, row_slices
from splitpu.utils.text import listed


def refuse_columns_without_numbers(X: Any, name: str = "X") -> None:
    """Name the columns of a data frame that hold no numbers; the message of a failed conversion does not."""
    refused = [str(one) for one in column_names(X) if not _can_be_numbers(X[one])]
    if refused:
        raise InputError(
            f"{name} holds columns that are not numbers ({listed(refused, repr)}): encode them first (a OneHotEncoder "
            "in a pipeline does), or train on the table as a file with 'splitpu fit', which does so itself"
        )


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
        raise InputError(
            f"{name} holds missing values or values that are not numbers (columns {listed(missing or columns, repr)}): "
            "drop or fill these rows, or encode these columns"
        ) from None


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none."""
    # By its name, as pandas, whose sign for 'missing' refuses to be compared, need not be installed.
    return value is None or (isinstance(value, float) and np.isnan(value)) or type(value).__name__ == "NAType"


def column_names(X: Any) -> list[Any]:
    """Those of a data frame; what is none has none."""
    if hasattr(X, "column_names"):  # as pyarrow calls them
        return list(X.column_names)
    return list(X.columns) if hasattr(X, "columns") and hasattr(X, "dtypes") else []


def _can_be_numbers(column: Any) -> bool:
    values = np.asarray(column)
    if values.dtype.kind in "mM":  # times: they could be counted, but from when, and in what?
        return False
    if values.dtype.kind == "O":
        return not any(isinstance(value, str) or is_nested(value) for value in values.flat)
    return values.dtype.kind not in "SUT"


Channels = Literal["auto", "first", "last"]

USUAL_CHANNEL_COUNTS = (1, 3, 4)
LARGEST_SHIFT = 2**-12  # how far float32 may move a value, as a share of all its column spans


def canonical_features(
    X: Any,
    name: str = "X",
    *,
    channels: Channels = "auto",
    double: bool = False,
    trained_on: tuple[int, ...] | None = None,
) -> Array:
    """Features as (n, d) float32, or as (n, H, W, C) or (n, S, H, W, C) uint8 or float32; all values finite.

    Vectors stay float64 where a column lies so far from nought (times in seconds do) that float32 would make the same
    of many of its values, or where a model asks for it with `double`, since its training rows did.

    With `channels="auto"` they are the axis of 1, 3 or 4 entries or, for a model, the one that makes the rows such as
    it was `trained_on`, which is the shape of one.

    Five axes are volumes, stacks of S slices. A volume with fewer slices than others is filled up with slices of zeros:
    a slice in which every value is 0 is not there, neither for statistics nor for networks.

    Arrays that already have this form, memory-mapped ones among them, are passed on without a copy. A sparse matrix
    stays sparse (`SparseRows`), float32.

    >>> canonical_features(np.zeros((5, 3, 8, 8), np.uint8)).shape
    (5, 8, 8, 3)
    """
    if is_sparse(X):
        return as_array(X)
    if is_sparse_matrix(X):
        return as_array(SparseRows.checked(X, name))
    array = _plain_array(X, name)
    if channels == "auto" and trained_on is not None:
        channels = _channels_as(trained_on, array.shape[1:])
    arranged = _channels_last(array, name, channels)
    if arranged.ndim in (4, 5) and arranged.dtype == np.uint8:
        return _contiguous(arranged)
    if arranged.dtype == np.float32:
        bad_rows = [_rows_not_finite(arranged[rows], rows.start) for rows in row_slices(arranged)]
        _refuse_rows(bad_rows, len(arranged), name)
        return _contiguous(arranged)
    return _from_other_kinds(arranged, name, double)


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
        raise InputError(
            f"{name} has the shape {array.shape}: give vectors as (n, d), images as (n, H, W), (n, H, W, C) or "
            "(n, C, H, W), or volumes as (n, S, H, W, C)"
        )
    if len(array) == 0:
        raise InputError(f"{name} has no rows (shape={array.shape}): give at least one")
    if array.size == 0:
        raise InputError(f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return array


def _channels_last(array: Array, name: str, channels: Channels) -> Array:
    if channels not in ("auto", "first", "last"):
        raise InputError(f"channels={channels!r} is unknown: choose 'auto', 'first' or 'last'")
    if array.ndim == 2:
        return array
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 5:
        return _volumes(array, name, channels)
    where = _channel_axis(array.shape, name) if channels == "auto" else channels
    return array.transpose(0, 2, 3, 1) if where == "first" else array


def _volumes(array: Array, name: str, channels: Channels) -> Array:
    if channels == "first" or (channels == "auto" and array.shape[-1] not in USUAL_CHANNEL_COUNTS):
        raise InputError(
            f"{name} has the shape {array.shape}: give volumes as (n, S, H, W, C), slices one after the other, with 1, "
            "3 or 4 channels last"
        )
    return array


def _channel_axis(shape: tuple[int, ...], name: str) -> Channels:
    first, last = shape[1] in USUAL_CHANNEL_COUNTS, shape[3] in USUAL_CHANNEL_COUNTS
    if first == last:
        raise InputError(
            f"{name} has the shape {shape}, which does not say where the channels are: pass images as (n, H, W, C) "
            "with 1, 3 or 4 channels, or say channels='last' or channels='first'"
        )
    return "first" if first else "last"


def _channels_as(trained_on: tuple[int, ...], shape: tuple[int, ...]) -> Channels:
    """Where the channels of rows of this shape are, by those a model was trained on, which have them last.

    Rows that fit neither way are taken as they are, so that they are refused for their shape.

    >>> _channels_as((8, 9, 2), (2, 8, 9)), _channels_as((8, 9, 2), (8, 9, 2)), _channels_as((3, 3, 3), (3, 3, 3))
    ('first', 'last', 'auto')
    """
    first, last = (*shape[1:], *shape[:1]) == trained_on, shape[-3:] == trained_on[-3:]
    return "auto" if first and last else "first" if first else "last"


def _contiguous(array: Array) -> Array:
    """Rows in one piece of memory; a memory-mapped array stays where it is, because it may not fit into the RAM."""
    return array if isinstance(array, np.memmap) else np.ascontiguousarray(array)


def _from_other_kinds(array: Array, name: str, double: bool) -> Array:
    converted = np.empty(array.shape, np.float32)
    loses = array.ndim == 2 and not np.can_cast(array.dtype, np.float32)
    shifts, bad_rows = _Shifts(), []
    with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 become infinite and are refused as such
        for rows in row_slices(array):
            converted[rows] = array[rows]
            bad_rows.append(_rows_not_finite(converted[rows], rows.start))
            if loses and not double:
                shifts.add(np.asarray(array[rows], np.float64), converted[rows])
    _refuse_rows(bad_rows, len(array), name)
    if loses and (double or shifts.too_far()):
        return _contiguous(array) if array.dtype == np.float64 else array.astype(np.float64)
    return converted


class _Shifts:
    """How far values are moved where they become float32, column by column, against what the column spans."""

    def __init__(self) -> None:
        self._low, self._high, self._shift = (np.array(start) for start in (np.inf, -np.inf, 0.0))

    def add(self, exact: Array, rounded: Array) -> None:
        self._low = np.minimum(self._low, exact.min(axis=0))
        self._high = np.maximum(self._high, exact.max(axis=0))
        self._shift = np.maximum(self._shift, np.abs(exact - rounded).max(axis=0))

    def too_far(self) -> bool:
        span = self._high - self._low  # nought where a column never varies, which has no differences to lose
        return bool(((span > 0) & (self._shift > LARGEST_SHIFT * span)).any())


def _rows_not_finite(chunk: Array, first_row: int) -> Array:
    finite = np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1)
    return np.flatnonzero(~finite) + first_row


def _refuse_rows(bad_rows: list[Array], rows: int, name: str) -> None:
    bad = np.concatenate(bad_rows)
    if len(bad) == 0:
        return
    raise InputError(
        f"{name} holds NaN, infinite or too large (beyond float32) values in {rows_in_words(bad, rows)}: drop or fill "
        "these rows"
    )


def rows_in_words(chosen: Array, rows: int) -> str:
    """How many rows a message is about, and the first few of them.

    >>> rows_in_words(np.array([3, 5]), 9)
    '2 of 9 rows (row 3, 5)'
    """
    return f"{len(chosen)} of {rows} rows (row {listed(chosen.tolist())})"
