"""Columns whose cells are lists of numbers, such as embeddings: one column for each number."""

import re
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

Columns = dict[str, list[Any]]

_LISTS = (list, tuple, np.ndarray)
_PLACE = re.compile(r"(.+)\[(\d+)\]", re.DOTALL)


def spread(columns: Columns) -> tuple[Columns, list[str]]:
    """Give every number of a list a column of its own; also gives notes about nested columns that are not used.

    Lists have to be of one length, as a column of numbers has to mean the same in every row.

    >>> spread({"age": [40, 51], "embedding": [[0.5, 2.0], None]})
    ({'age': [40, 51], 'embedding[0]': [0.5, None], 'embedding[1]': [2.0, None]}, [])
    >>> spread({"tokens": [[7], [7, 9]]})[1]
    ["column 'tokens' holds lists of 1 to 2 values, where all rows have to have as many: it is not used."]
    """
    found: Columns = {}
    notes = []
    for name, cells in columns.items():
        if not any(isinstance(cell, (*_LISTS, dict, bytes)) for cell in cells):
            found[name] = cells
            continue
        try:
            numbers = _numbers(cells)
        except ValueError as trouble:
            notes.append(f"column {name!r} holds {trouble}: it is not used.")
        else:
            found |= {f"{name}[{place}]": column for place, column in enumerate(numbers)}
    return found, notes


def list_of(column: str) -> str | None:
    """The column of lists that this one may be a number of.

    >>> list_of("embedding[12]"), list_of("age")
    ('embedding', None)
    """
    found = _PLACE.fullmatch(column)
    return found[1] if found else None


def widths(columns: Iterable[str]) -> dict[str, int]:
    """How long the lists are that these columns are the numbers of.

    >>> widths(["age", "embedding[0]", "embedding[1]"])
    {'embedding': 2}
    """
    found: dict[str, int] = {}
    for place in filter(None, map(_PLACE.fullmatch, columns)):
        found[place[1]] = max(found.get(place[1], 0), 1 + int(place[2]))
    return found


def _numbers(cells: list[Any]) -> list[list[float | None]]:
    """The columns, or a ValueError that says what is there instead."""
    known = [cell for cell in cells if cell is not None]
    if not all(isinstance(cell, _LISTS) for cell in known):
        raise ValueError("structures or bytes, which are neither numbers nor words")
    lengths = {len(cell) for cell in known}
    if len(lengths) > 1:
        raise ValueError(f"lists of {min(lengths)} to {max(lengths)} values, where all rows have to have as many")
    values = np.array(known)
    if values.dtype.kind == "O" and all(value is None or isinstance(value, Real) for value in values.flat):
        values = values.astype(np.float64)  # None among numbers becomes NaN
    if values.ndim != 2 or values.shape[1] == 0 or values.dtype.kind not in "biuf":
        raise ValueError("lists of what are no numbers")
    rows = np.full((len(cells), values.shape[1]), np.nan)
    rows[[cell is not None for cell in cells]] = values
    return [[None if value != value else value for value in column] for column in rows.T.tolist()]
