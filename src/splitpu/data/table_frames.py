"""Data frames in Python -> the rows of a model that `splitpu fit` trained on a table: columns go by their names."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.composed import composed
from splitpu.data.frames import column_names, is_missing
from splitpu.data.table_files import Table, plain_cell
from splitpu.data.tables import TableRecipe
from splitpu.errors import InputError
from splitpu.listing import listed


def rows_for_table_model(inputs: Mapping[str, Any], X: Any) -> Any:
    """Rows as the model takes them: a data frame is encoded as a file would be, whatever the order of its columns.

    An array is left alone where the model takes every column as it is. Else its numbers would be taken for what the
    columns are turned into, and be as wrong as they look right.
    """
    recipe = TableRecipe.from_dict(inputs)
    names = column_names(X)
    if names:
        return _encoded(recipe, X, names)
    turned = [one.name for one in recipe.columns if one.is_converted]
    if turned:
        raise InputError(
            f"X has no column names, but the model was trained on a table some of whose columns have to be "
            f"converted first ({listed(turned, repr)}): give X as a data frame with the columns of that table"
        )
    return X


def _encoded(recipe: TableRecipe, X: Any, names: list[Any]) -> Array:
    wanted = [column.name for column in recipe.columns]
    found = {composed(str(name).strip()): name for name in names}
    return recipe.encode(Table({name: _values(X[found[name]], name) for name in wanted if name in found}, "X"))


def _values(given: Any, name: str) -> list[Any]:
    values = np.asarray(given)
    if values.dtype.kind in "mM":  # how the file wrote them is not known any more
        raise InputError(f"column {name!r} of X holds times: give them as they were written in the table")
    return [None if is_missing(value) else plain_cell(value) for value in values.tolist()]
