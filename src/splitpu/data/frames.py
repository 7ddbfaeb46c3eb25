"""Data frames of any library -> arrays of numbers, or a sentence that names the columns which hold none."""

from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.table_files import is_nested
from splitpu.errors import InputError
from splitpu.listing import listed


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
