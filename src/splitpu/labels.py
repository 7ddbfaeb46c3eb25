"""Any PU label convention -> a boolean mask, so that the rest of the package never guesses what a 0 means."""

from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.listing import listed
from splitpu.tensors import readable_tensor

Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

ACCEPTED = "1 = positive with 0 or with -1 for the rest, or True / False"


def labelled_mask(labels: npt.ArrayLike, *, name: str = "s", positive: object = None, rows: int | None = None) -> Mask:
    """Which rows are labelled positive (True) and which unlabelled (False), from any of the usual conventions.

    `positive` names the value that means "labelled positive" where the labels are two other values.
    Both kinds of row must occur, because PU learning needs both. `rows` is how many there are to be labelled.

    >>> labelled_mask([1, -1, -1, 1]).tolist()
    [True, False, False, True]
    >>> labelled_mask(["seen", "unknown"], positive="seen").tolist()
    [True, False]
    """
    values = _one_dimensional(labels, name)
    if rows is not None and len(values) != rows:
        raise InputError(f"{name} has {len(values)} entries but X has {rows} rows: give one entry per row")
    mask = _mask(values, name, positive)
    if not mask.any():
        raise InputError(
            f"{name} marks no row as labelled positive (found {listed(_distinct(values), repr)}): label at least two "
            "rows"
        )
    if mask.all():
        raise InputError(f"{name} marks all {len(mask)} rows as labelled positive: add the unlabelled rows, marked 0")
    return mask


def is_convention(values: Values) -> bool:
    """Whether labels need no explanation.

    >>> is_convention(np.array([1, -1])), is_convention(np.array([2, 0]))
    (True, False)
    """
    distinct = {*_distinct(values)}
    return values.dtype.kind in "biuf" and (distinct <= {0, 1} or distinct <= {1, -1})


def binary_truth(labels: npt.ArrayLike, name: str = "y", *, positive: object = None) -> Mask:
    """True labels (True = positive) in the same conventions; one of the two classes may be absent.

    >>> binary_truth([0.0, 1.0], "y_test").tolist()
    [False, True]
    """
    return _mask(_one_dimensional(labels, name), name, positive)


def _one_dimensional(labels: npt.ArrayLike, name: str) -> Values:
    try:
        values = np.asarray(readable_tensor(labels))
        if values.dtype == object:  # a data frame column, say: let numpy find the type of what is inside
            values = np.asarray(values.tolist())
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not an array of labels ({error}): give one label per row") from error
    if values.ndim != 1:
        raise InputError(f"{name} must have one axis with one label per row, but its shape is {values.shape}")
    if len(values) == 0:
        raise InputError(f"{name} is empty: give one label per row")
    return values


def _mask(values: Values, name: str, positive: object) -> Mask:
    distinct = _distinct(values)
    if positive is not None:
        return _mask_of_named_value(values, distinct, name, positive)
    if not is_convention(values):
        raise InputError(
            f"{name} holds the values {listed(distinct, repr)}, but labels must be {ACCEPTED}; "
            "for two other values say which one is positive with positive=..."
        )
    return np.asarray(values == 1, dtype=np.bool_)


def _mask_of_named_value(values: Values, distinct: list[Any], name: str, positive: object) -> Mask:
    if len(distinct) > 2:
        raise InputError(
            f"{name} holds the values {listed(distinct, repr)}, but with positive={positive!r} it may hold only two: "
            "merge the other values into one"
        )
    if positive not in distinct:
        raise InputError(f"{name} holds the values {listed(distinct, repr)}, none of which is positive={positive!r}")
    return np.array([value == positive for value in values.tolist()], dtype=np.bool_)


def _distinct(values: Values) -> list[Any]:
    try:
        found: list[Any] = np.unique(values).tolist()
    except TypeError:  # things that have no order
        found = list({repr(value): value for value in values.tolist()}.values())
    return found
