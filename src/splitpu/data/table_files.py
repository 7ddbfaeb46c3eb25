"""CSV and Parquet files -> columns of values, None where one is missing."""

import csv
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from splitpu.config.keys import nearest
from splitpu.data.composed import composed
from splitpu.errors import InputError, MissingExtraError
from splitpu.files import ends_in
from splitpu.listing import listed

SUFFIXES = (".csv", ".tsv", ".parquet")
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
DELIMITERS = (",", ";", "\t")
TRUTH_WORDS = {"true": True, "false": False}  # in small letters; programs write them in several ways
_RECORDS_TO_TRY = 20  # by which it is found out what parts the cells
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Table:
    """Columns of equal length."""

    columns: Columns
    where: str  # the file, for messages
    notes: tuple[str, ...] = ()  # about what was left out

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def lacking(self, name: str) -> str:
        """Say that there is no such column, and which one was probably meant or which ones there are."""
        meant = nearest(name, self.columns)
        offer = f"did you mean {meant!r}?" if meant else f"it has {listed(list(self.columns), repr)}"
        return f"{self.where} has no column {name!r} ({offer})"


def text(value: Any) -> str:
    """A category as text, the same from CSV and from Parquet, and from whichever system wrote them."""
    return composed(as_written(value))


def as_written(value: Any) -> str:
    """A value as text that is only shown."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_table(path: Path) -> Table:
    """The whole table; what a cell means is decided later, by column."""
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file: check the path.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes): save the table again.")
    table = _read_parquet(path) if ends_in(path, ".parquet") else _read_csv(path)
    if len(table) == 0:
        raise InputError(f"{path} has no rows below its heading: give at least one.")
    return table


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write columns as they are."""
    pyarrow = _pyarrow()
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table(columns), str(path))


def _read_csv(path: Path) -> Table:
    empty = 0  # rows of nothing at the end, which spreadsheets keep where something was once written
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = _delimiter(file)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            heading = _checked_heading(next(reader, []), path)
            columns: list[list[Any]] = [[] for _ in heading]
            for line in reader:
                if not line:
                    continue
                if len(line) != len(heading):
                    raise InputError(
                        f"line {reader.line_num} of {path} has {len(line)} cells but the heading has {len(heading)}: "
                        "repair that line."
                    )
                for column, cell in zip(columns, line, strict=True):
                    column.append(_cell(cell))
                is_empty = len(line) > 1 and not any(map(str.strip, line))  # a gap in a single column is a row
                empty = empty + 1 if is_empty else 0
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 ({error.reason}): save it as CSV in UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV table ({error}): save it again.") from error
    columns = [column[: len(column) - empty] for column in columns]
    if delimiter != ",":
        columns = [_with_decimal_points(column) for column in columns]
    notes = (f"{path} ends in rows without a single value, {empty:,} in all: they are not used.",) if empty else ()
    return Table(dict(zip(heading, columns, strict=True)), str(path), notes)


def _delimiter(file: TextIO) -> str:
    """What parts the cells: that by which most of the first records have as many as the heading, else most of them."""

    def fit(delimiter: str) -> tuple[int, int]:
        file.seek(0)
        heading, fitting = 0, 0
        with suppress(csv.Error):  # said where the table is read
            for record in islice(csv.reader(file, delimiter=delimiter, strict=True), 1 + _RECORDS_TO_TRY):
                heading = heading or len(record)
                fitting += len(record) == heading
        return (fitting - 1 if heading > 1 else 0), heading  # what parts nothing fits every record

    best = max(DELIMITERS, key=fit)
    file.seek(0)
    return best


def _with_decimal_points(column: list[Any]) -> list[Any]:
    """Numbers as spreadsheets write them where the comma is the decimal sign; words, and columns of words, as they are.

    A few words among numbers do not keep the others from being numbers, so that it can be told which cells spoil them.

    >>> _with_decimal_points(["3,5", None, "-12"]), _with_decimal_points(["3,5", "a,b"])
    (['3.5', None, '-12'], ['3,5', 'a,b'])
    >>> _with_decimal_points(["3,5", "1,25", "not done, late"])
    ['3.5', '1.25', 'not done, late']
    """
    known = [value for value in column if value is not None]
    numbers = {value for value in known if _DECIMAL_COMMA.fullmatch(value)}
    if 2 * sum(value in numbers for value in known) <= len(known):
        return column
    return [value.replace(",", ".") if value in numbers else value for value in column]


def _checked_heading(cells: list[str], path: Path) -> list[str]:
    heading = [composed(cell.strip()) for cell in cells]
    if heading and heading[0].lower().startswith("sep="):
        raise InputError(f"{path} begins with a line {heading[0]!r} for Excel, not with its heading: delete that line.")
    if not heading or not all(heading):
        which = f" (column {heading.index('') + 1} of {len(heading)})" if heading else ""
        raise InputError(
            f"{path} has no heading, or one with an empty name{which}: the first line must name every column (pandas "
            "writes row numbers under an empty name, which to_csv(..., index=False) leaves out; spreadsheets keep "
            "columns that seem empty until they are deleted)."
        )
    twice = sorted({name for name in heading if heading.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column {twice[0]!r}: give every column its own name.")
    return heading


def _read_parquet(path: Path) -> Table:
    pyarrow = _pyarrow()
    import pyarrow.parquet as parquet

    try:
        table = parquet.ParquetFile(str(path)).read()
        heading = _checked_heading(list(table.column_names), path)
        # Lists as arrays, as a Python object for every number of an embedding would take ten times the memory.
        columns = [
            list(column.to_numpy()) if pyarrow.types.is_nested(column.type) else column.to_pylist()
            for column in table.columns
        ]
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as a Parquet table ({reason}): save it again.") from error
    cells = [[plain_cell(value) for value in column] for column in columns]
    return Table(dict(zip(heading, cells, strict=True)), str(path))


def plain_cell(value: Any) -> Any:
    """A value as a CSV file would give it, but for numbers and True and False, which need no words."""
    if isinstance(value, bytes):  # some programs write words as such
        with suppress(UnicodeDecodeError):
            value = value.decode("utf-8")
    if isinstance(value, str):
        return _cell(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def is_nested(cell: Any) -> bool:
    """Whether a cell holds more than one value, or bytes, so that it is neither a number nor a word."""
    return isinstance(cell, list | tuple | dict | bytes | np.ndarray)


def _cell(words: str) -> str | None:
    value = words.strip()
    return None if value.lower() in MISSING else value


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Parquet files are read with pyarrow: pip install 'splitpu[tables]'.") from error
    return pyarrow
