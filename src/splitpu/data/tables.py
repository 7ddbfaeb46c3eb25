"""Tables with numeric and categorical columns -> rows of numbers, by a recipe that is plain JSON in the model file."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.column_notes import (
    MOST_CATEGORIES,
    if_categories_are_odd,
    if_it_numbers_the_rows,
    if_numbers_are_dressed_up,
    if_they_give_labels_away,
    if_thousands_are_parted,
    is_number,
)
from splitpu.data.composed import composed
from splitpu.data.list_columns import Columns, list_of, widths
from splitpu.data.table_files import TRUTH_WORDS, Table, as_written, read_table, text
from splitpu.data.table_labels import LabelColumn
from splitpu.errors import InputError, ModelFileError
from splitpu.labels import Mask
from splitpu.listing import listed

_LARGEST = float(np.finfo(np.float32).max)
FEWEST_ROWS_FOR_NAMES = 10  # in fewer rows, texts that all differ may be a coincidence


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """Which file, and which of its columns says what is labelled."""

    path: str
    label: str
    positive: str | None = None  # the label that means positive, where it is not 1
    names: str | None = None  # the column that holds the names of the rows; found where not given
    ignore: tuple[str, ...] = ()  # columns that are no features
    test: str | None = None  # a file with the same columns in which the label is the truth

    def __post_init__(self) -> None:
        """Columns and labels in the letters that tables are read in."""
        for name in ("label", "positive", "names"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else composed(given))
        object.__setattr__(self, "ignore", tuple(map(composed, self.ignore)))


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

    def encode(self, values: Sequence[Any], where: str) -> Array:
        """The numbers of this column, one line a row."""
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


@dataclass(frozen=True)
class TableRecipe:
    """What the model file remembers of a table."""

    columns: tuple[Column, ...]
    names: str | None = None  # the column that holds the names of the rows

    @classmethod
    def fit(
        cls, table: Columns, names: str | None = None, notes: Sequence[str] = ()
    ) -> tuple["TableRecipe", list[str]]:
        """Decide for every column from the training rows; also gives notes about columns that are not used.

        These follow the `notes` that there are already. `names` is the column of the rows' names, not among them;
        without it, one that looks like it is taken.
        """
        columns, notes = [], list(notes)
        for name, values in ((name, truth_as_numbers(held)) for name, held in table.items()):
            known = [value for value in values if value is not None]
            numbers = sum(is_number(value) for value in known)
            if not known:
                notes.append(f"column {name!r} is empty and is not used.")
            elif numbers == len(known):
                finite = np.array([float(value) for value in known if abs(float(value)) <= _LARGEST] or [0.0])
                fill = float(np.median(finite))
                columns.append(Column(name, None, fill, len(known) < len(values), _origin(finite, fill)))
                notes += if_it_numbers_the_rows(name, known, len(values)) + if_thousands_are_parted(name, known)
            elif 2 * numbers <= len(known) and _could_be_names(known, len(values)):
                notes.append(f"column {name!r} has a different text in every row: taken as names, not as a feature.")
                notes += if_numbers_are_dressed_up(name, Counter(map(text, known)))
                names = names or name
            else:
                counted = Counter(text(value) for value in known)
                frequent = sorted(counted, key=lambda value: (-counted[value], value))[:MOST_CATEGORIES]
                notes += if_categories_are_odd(name, counted, numbers)
                columns.append(Column(name, tuple(sorted(frequent)), 0.0, len(known) < len(values)))
        if not columns:
            message = "the table has no column that can be used as a feature: add numbers or categories."
            raise InputError(" ".join([message, *notes]))
        return cls(tuple(columns), names), notes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the numbers of a row are called."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def column_of_feature(self) -> list[str]:
        """Which column every number of a row comes from."""
        return [column.name for column in self.columns for _ in column.feature_names]

    def encode(self, table: Table) -> Array:
        """The rows of any table with these columns; others in it are ignored."""
        self._check_lists(table)
        missing = [column.name for column in self.columns if column.name not in table.columns]
        if missing:
            raise InputError(f"{table.where} lacks columns that the model was trained on: add {listed(missing, repr)}.")
        return np.hstack([column.encode(table.columns[column.name], table.where) for column in self.columns])

    def _check_lists(self, table: Table) -> None:
        """Lists of another length are other embeddings, even where the first numbers would do."""
        given = widths(table.columns)
        for name, trained in widths(column.name for column in self.columns).items():
            if name in table.lists and given.get(name) != trained:
                found = f"lists of {given[name]}" if name in given else "others"
                raise InputError(
                    f"column {name!r} of {table.where} has to hold a list of {trained} numbers in each row, such as "
                    f"the model was trained on, but holds {found}: make them as they were made for the training."
                )

    def notes_on(self, table: Table) -> list[str]:
        """What was left out, and every column of which the model knows few values, so that it decides without it."""
        notes = list(table.notes)
        for column in self.columns:
            values = table.columns[column.name]
            if column.categories is None:
                notes += if_thousands_are_parted(column.name, values)
            unknown = column.unknown(values)
            known = len(values) - values.count(None)
            if 2 * len(unknown) > known:
                notes.append(
                    f"{len(unknown):,} of the {known:,} values in column {column.name!r} of {table.where} are "
                    f"categories that the model does not know ({listed(sorted(set(unknown)), repr)}) and count as "
                    f"none; it knows {listed(column.categories or (), repr)}: check how they are written."
                )
        return notes

    def names_of(self, table: Table) -> list[str] | None:
        """The names of the rows, where the table has them."""
        values = table.columns.get(self.names) if self.names else None
        return None if values is None else ["" if value is None else as_written(value) for value in values]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and texts, ready for JSON."""
        columns = [
            {
                "name": column.name,
                "categories": None if column.categories is None else list(column.categories),
                "fill": column.fill,
                "flag_missing": column.flag_missing,
                "origin": column.origin,
            }
            for column in self.columns
        ]
        return {"kind": "table", "columns": columns, "names": self.names}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "TableRecipe":
        """The inverse of `to_dict`."""
        try:
            columns = tuple(
                Column(
                    composed(str(one["name"])),
                    None if one["categories"] is None else tuple(composed(str(value)) for value in one["categories"]),
                    float(one["fill"]),
                    bool(one["flag_missing"]),
                    float(one.get("origin", 0.0)),  # models from before there was one have none
                )
                for one in stored["columns"]
            )
            return cls(columns, None if stored["names"] is None else composed(str(stored["names"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"the stored columns cannot be read ({error!r}): train the model again.") from error


@dataclass(frozen=True, eq=False)
class TableData:
    """Rows, labels and test rows of a table."""

    features: Array
    labelled: Mask
    names: list[str] | None
    recipe: TableRecipe
    classes: tuple[Any, Any]  # what unlabelled and positive rows are called
    test_features: Array | None
    test_truth: Mask | None
    warnings: tuple[str, ...]


def read_table_data(source: TableSource, recipe: TableRecipe | None = None) -> TableData:
    """Read the file, learn what its columns are unless a recipe says so, and encode it."""
    table = read_table(Path(source.path))
    labelled, classes = LabelColumn(source.label, source.positive).labelled(table)
    if recipe is None:
        recipe, about_columns = TableRecipe.fit(_features_of(table, source), source.names, table.notes)
        features = recipe.encode(table)
        giveaways = if_they_give_labels_away(features, labelled, recipe.column_of_feature)
        notes = [*about_columns, *giveaways]
    else:
        features = recipe.encode(table)
        notes = recipe.notes_on(table)
    test_features, test_truth = None, None
    if source.test is not None:
        test_features, test_truth, about_test = read_table_test(source.test, source, recipe)
        notes += about_test
    return TableData(
        features, labelled, recipe.names_of(table), recipe, classes, test_features, test_truth, tuple(notes)
    )


def read_table_test(path: str, source: TableSource, recipe: TableRecipe) -> tuple[Array, Mask, list[str]]:
    """The rows of a table whose label column is the truth, which of them are positive, and notes about its columns."""
    test = read_table(Path(path))
    features = recipe.encode(test)
    return features, LabelColumn(source.label, source.positive).truth(test), recipe.notes_on(test)


def _features_of(table: Table, source: TableSource) -> Columns:
    """The columns that may be features: all but those that the user gave another meaning, or none."""
    lists = set(map(list_of, table.columns))
    for option, names in (("--names", (source.names,)), ("--ignore", source.ignore)):
        for name in names:
            if name is not None and name not in table.columns and name not in lists:
                raise InputError(f"{table.lacking(name)}: check {option}.")
            if name == source.label:
                raise InputError(f"column {name!r} is named by both --label and {option}: leave out one of them.")
    apart = {source.label, source.names, *source.ignore}
    return {name: column for name, column in table.columns.items() if not apart & {name, list_of(name) or name}}


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


def _could_be_names(known: Sequence[Any], rows: int) -> bool:
    return rows >= FEWEST_ROWS_FOR_NAMES and len({text(value) for value in known}) == rows


def _origin(values: Array, middle: float) -> float:
    """Nought, or the middle of numbers such as times in seconds of which float32 would make the same.

    >>> _origin(np.array([1.0, 2.0, 4.0]), 2.0), _origin(1e9 + np.array([1.0, 2.0, 4.0]), 1e9 + 2)
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
    if abs(float(value)) > _LARGEST:
        raise InputError(
            f"column {column!r} of {where} holds {float(value):g}, which is too large to compute with: replace it or "
            "leave the cell empty."
        )
    return float(value)
