"""CSV and Parquet files -> columns of values, None where one is missing, and how those of one column become numbers."""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from numbers import Number
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from splitpu.config.parse import nearest
from splitpu.data.tables.checks import as_date, ignoring
from splitpu.errors import InputError, from_extra
from splitpu.types import Array, Floats
from splitpu.utils.files import ends_in, replacing
from splitpu.utils.reading import Guarded, TooLong, as_text, most_unpacked, short_lines, too_much_unpacked
from splitpu.utils.text import cell, composed, is_number

SUFFIXES = (".csv", ".tsv", ".parquet")
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
DELIMITERS = (",", ";", "\t")
TRUTH_WORDS = {"true": True, "false": False}  # in small letters; programs write them in several ways
ALIKE = 0.8  # from which share of equal letters on a column is taken for misspelt
ENDS_SHOWN = 15  # columns at either end of a heading: labels often stand last
_RECORDS_TO_TRY = 20  # by which it is found out what parts the cells
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_CLOCK = r"(\d{1,2})([\d:.,]*)\s*(?:([ap])\.?m\.?)?\s*(Z|UTC|GMT|[+-][\d:]+)?"  # 5:00, 17:30:00.5 +02:00, 5 p.m.
_DATE = re.compile(rf"(\d{{1,4}})([./-])(\d{{1,2}})\2(\d{{1,4}})(?:(?:T|,?\s)\s*{_CLOCK})?", re.IGNORECASE)
ORDERS = ("ymd", "dmy", "mdy")  # of year, month and day in a date; by the first 3.1.2023 is taken, but not 3/1/2023
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)

Columns = dict[str, Any]  # a list of cells each, or of a data frame an array of numbers
_BYTES_A_CELL = 40  # as a Python object
_ROWS_AT_ONCE = 256
_COPIES = 3  # of every word, while a table is being read
_TIMES_PACKED = 64  # a column that says little takes a byte a cell, or less
LARGEST = float(np.finfo(np.float32).max)
STEPS = (0.2, 0.4, 0.6, 0.8)  # of the values of a column


@dataclass(frozen=True)
class Table:
    """Columns of equal length."""

    columns: Columns
    where: str  # the file, for messages
    notes: tuple[str, ...] = ()  # about what was left out

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def lacking(self, name: str) -> str:
        """No such column, and the one misspelt or those there are: one a little alike ('stage') would be taken."""
        meant = nearest(name, self.columns, alike=ALIKE)
        names = [repr(name) for name in self.columns]
        names[ENDS_SHOWN:-ENDS_SHOWN] = ["..."] if len(names) > 2 * ENDS_SHOWN else names[ENDS_SHOWN:-ENDS_SHOWN]
        offer = f"did you mean {meant!r}?" if meant else f"it has {', '.join(names)}"
        return f"{self.where} has no column {name!r} ({offer})"


def text(value: Any) -> str:
    """A category as text, the same from CSV and from Parquet, and from whichever system wrote them."""
    return composed(as_written(value))


def as_written(value: Any) -> str:
    """A value as text that is only shown."""
    if isinstance(value, datetime) and value.timetz() == time():  # a day, as files write it
        return str(value.date())
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def shown(value: Any) -> str:
    """A cell as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else as_written(value)


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
    pyarrow, parquet = _pyarrow()
    parquet.write_table(pyarrow.table(columns), str(path))


def write_rows(out: Path, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A file of Parquet or CSV, as its name says, whole or not at all."""
    with replacing(out) as temporary:
        if ends_in(out, ".parquet"):
            rows = list(lines)
            return write_parquet(temporary, {name: [row[at] for row in rows] for at, name in enumerate(columns)})
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write_csv(file, columns, lines)


def write_csv(file: TextIO, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write heading and lines."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in line] for line in lines)


def _read_csv(path: Path) -> Table:
    empty = 0  # rows of nothing at the end, which spreadsheets keep where something was once written
    try:
        with Guarded(path, "save it again as CSV").opened() as raw, as_text(raw) as file:
            delimiter = _delimiter(file)
            reader = csv.reader(short_lines(file), delimiter=delimiter, strict=True)
            heading = _checked_heading(next(reader, []), path)
            columns: list[list[Any]] = [[] for _ in heading]
            for line in reader:
                if not line:
                    continue
                if len(line) != len(heading):
                    cells = f"{len(line)} cells but the heading has {len(heading)}"
                    raise InputError(f"line {reader.line_num} of {path} has {cells}: repair that line.")
                for column, cell in zip(columns, line, strict=True):
                    column.append(plain_cell(cell))
                is_empty = len(line) > 1 and not any(map(str.strip, line))  # a gap in a single column is a row
                empty = empty + 1 if is_empty else 0
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 ({error.reason}): save it as CSV in UTF-8.") from error
    except (csv.Error, TooLong) as error:
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
            for record in islice(csv.reader(short_lines(file), delimiter=delimiter, strict=True), 1 + _RECORDS_TO_TRY):
                heading = heading or len(record)
                fitting += len(record) == heading
        return (fitting - 1 if heading > 1 else 0), heading  # what parts nothing fits every record

    best = max(DELIMITERS, key=fit)
    file.seek(0)
    return best


def _with_decimal_points(column: list[Any]) -> list[Any]:
    """Numbers as spreadsheets write them where the comma is the decimal sign; words, and columns of words, as they are.

    A few words among numbers do not keep the others from being numbers, so that it can be told which cells spoil them.
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
        pandas = "pandas writes row numbers under an empty name, which to_csv(..., index=False) leaves out"
        why = f"{pandas}; spreadsheets keep columns that seem empty until they are deleted"
        wrong = f"{path} has no heading, or one with an empty name{which}"
        raise InputError(f"{wrong}: the first line must name every column ({why}).")
    twice = sorted(name for name, times in Counter(heading).items() if times > 1)
    if twice:
        raise InputError(f"{path} has more than one column {twice[0]!r}: give every column its own name.")
    return heading


def _read_parquet(path: Path) -> Table:
    pyarrow, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(str(path))
        table = pyarrow.Table.from_batches(_bounded(file, path), schema=file.schema_arrow)
        heading = _checked_heading(list(table.column_names), path)
        # Lists as arrays, as a Python object for every number of an embedding would take ten times the memory.
        columns = []
        for name, column in zip(heading, table.columns, strict=True):
            try:
                nested = pyarrow.types.is_nested(column.type)
                columns.append(list(column.to_numpy()) if nested else column.to_pylist())
            except (ValueError, OverflowError, ArithmeticError) as error:
                wrong = f"column {name!r} of {path} holds dates that cannot be taken ({error})"
                raise InputError(f"{wrong}: save it as numbers or text, or leave it out of the file.") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as a Parquet table ({reason}): save it again.") from error
    cells = [[plain_cell(value) for value in column] for column in columns]
    return Table(dict(zip(heading, cells, strict=True)), str(path))


def _bounded(file: Any, path: Path) -> Iterator[Any]:
    """Some rows after the other: a file that repeats a value, or a long word, a billion times is small until read."""
    metadata, most, size = file.metadata, most_unpacked(path.stat().st_size, _TIMES_PACKED), 0
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    cells = sum(group.column(at).num_values for group in groups for at in range(metadata.num_columns))
    needed = _BYTES_A_CELL * max(cells, metadata.num_rows * metadata.num_columns)
    if needed > most:
        raise InputError(f"{path} {too_much_unpacked(needed)}.")
    for rows in file.iter_batches(batch_size=_ROWS_AT_ONCE):
        size += _COPIES * rows.nbytes
        if size > most:
            raise InputError(f"{path} {too_much_unpacked(size)}.")
        yield rows


def plain_cell(value: Any) -> Any:
    """A value as a CSV file would give it, but for numbers and True and False, which need no words."""
    if isinstance(value, bytes):  # some programs write words as such
        with suppress(UnicodeDecodeError):
            value = value.decode("utf-8")
    if isinstance(value, str):
        return None if (words := value.strip()).lower() in MISSING else words
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    return None if isinstance(value, float) and math.isnan(value) else value


def is_nested(cell: Any) -> bool:
    """Whether a cell holds more than one value, or bytes, so that it is neither a number nor a word."""
    return isinstance(cell, list | tuple | dict | bytes | np.ndarray)


def _pyarrow() -> tuple[Any, Any]:
    what_for = "Parquet files are read with pyarrow"
    return from_extra("pyarrow", "tables", what_for), from_extra("pyarrow.parquet", "tables", what_for)


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers: as it is, or as one number a category (all zero for an unknown one)."""

    name: str
    categories: tuple[str, ...] | None  # None = numeric
    fill: float  # what a missing number is replaced by: the median
    flag_missing: bool  # whether one more number says that the value was missing; only if some were in training
    origin: float = 0.0  # subtracted from numbers, where they lie too far from nought for float32 to tell them apart
    steps: tuple[float, ...] = ()  # beside words, one number for each says whether the value reaches it
    weight: float = 1.0  # what all its numbers are multiplied by, for the same reason
    dates: str = ""  # one of ORDERS, where its numbers are days that are written as dates

    @property
    def feature_names(self) -> list[str]:
        values = [self.name] if self.categories is None else [f"{self.name} = {value}" for value in self.categories]
        values = [f"{self.name} >= {as_date(step) if self.dates else f'{step:g}'}" for step in self.steps] or values
        return values + ([f"{self.name} is missing"] if self.flag_missing else [])

    @property
    def is_converted(self) -> bool:
        """Whether its features are more than its numbers."""
        return self.categories is not None or self.flag_missing or self.origin != 0 or bool(self.steps or self.dates)

    def numbers(self, values: Sequence[Any]) -> Floats | None:
        """What its cells are, NaN where one is missing; None where some are neither numbers nor dates, as they must."""
        return as_days(values, self.dates) if self.dates else as_numbers(values)

    def in_steps(self, values: Sequence[Any]) -> "Column":
        """A number as those that stand beside words: sparse rows are not scaled, and its unit must not matter."""
        numbers = self.numbers(values)
        known = np.zeros(1) if numbers is None else numbers[np.abs(numbers) <= LARGEST]
        above = known[known > known.min(initial=np.inf)]
        steps = (np.unique(np.quantile(some, STEPS)) for some in (known, above) if len(some))
        kept = next((found[found > known.min()] for found in steps if (found > known.min()).any()), known[:1])
        return self if self.categories is not None else replace(self, steps=tuple(kept.tolist()))

    def encode(self, values: Sequence[Any], where: str) -> Array:
        """The numbers of this column, one line a row."""
        if any(map(is_nested, values)):
            held = "lists or structures, but the model takes single values there: give these"
            raise InputError(f"column {self.name!r} of {where} holds {held}.")
        if self.categories is None:
            numbers = self.numbers(values)
            if numbers is None and self.dates:
                odd = next(value for value in values if value is not None and as_days([value], self.dates) is None)
                wanted = "but the model takes dates there: write it as in 2023-03-01, or leave the cell empty."
                raise InputError(f"column {self.name!r} of {where} holds {text(odd)!r}, {wanted}")
            wrong = values if numbers is None else numbers[~np.isnan(numbers) & ~(np.abs(numbers) <= LARGEST)].tolist()
            for value in (one for one in wrong if one is not None):
                number(value, self.name, where)  # says what is wrong with the first that is
            assert numbers is not None
            gaps = np.isnan(numbers)
            filled = np.where(gaps, self.fill, numbers)[:, None]
            encoded = (filled >= np.array(self.steps) if self.steps else filled - self.origin).astype(np.float32)
        else:
            place = self._places()
            gaps = np.array([value is None for value in values], dtype=np.bool_)
            encoded = np.zeros((len(values), len(self.categories)), np.float32)
            for row, value in enumerate(values):
                if value is not None and text(value) in place:
                    encoded[row, place[text(value)]] = 1
        encoded = np.hstack([encoded, gaps[:, None]], dtype=np.float32) if self.flag_missing else encoded
        return encoded if self.weight == 1 else encoded * np.float32(self.weight)

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

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Column":
        name, flag_missing, given = composed(str(stored["name"])), bool(stored["flag_missing"]), stored["categories"]
        categories = None if given is None else tuple(composed(str(value)) for value in given)
        fill, origin, weight = map(finite, (stored["fill"], stored["origin"], stored.get("weight", 1.0)))
        steps, dates = tuple(map(finite, stored.get("steps", ()))), str(stored.get("dates", ""))
        if dates not in ("", *ORDERS):
            raise ValueError(f"{dates!r} is no order of year, month and day")
        return cls(name, categories, fill, flag_missing, origin, steps, weight, dates)


def finite(value: Any) -> float:
    """A number from a model file, which must be one."""
    if not math.isfinite(float(value)):
        raise ValueError(f"{value} is no number to compute with")
    return float(value)


def truth_as_numbers(values: Sequence[Any]) -> Sequence[Any]:
    """1 and 0 for a column of nothing but True and False: words in a CSV file, which Parquet holds as they are."""
    found = []
    for value in values:
        word = None if value is None else text(value).lower()
        if word is not None and word not in TRUTH_WORDS:
            return values  # most columns end here, at their first value
        found.append(None if word is None else int(TRUTH_WORDS[word]))
    return found


def as_numbers(values: Sequence[Any]) -> Floats | None:
    """A column as numbers, NaN where one is missing; None where some are none. An array of numbers stays as it is."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    said = truth_as_numbers(values)
    if not all(value is None or is_number(value) for value in said):
        return None
    return np.array([np.nan if value is None else float(value) for value in said])


def order_of_dates(values: Sequence[Any]) -> str:
    """How a column of dates is written, one of ORDERS; nothing for other columns, and where 3/4/2023 may be either."""
    said = [value for value in values if value is not None]
    if not said or as_days(said, "ymd") is not None:
        return "ymd" if said else ""
    fit = [order for order in ("dmy", "mdy") if as_days(said, order) is not None]
    return fit[0] if len(fit) == 1 else ""


def as_days(values: Sequence[Any], order: str) -> Floats | None:
    """Dates as days since 1970, with the time of day as a part of one; None where some are no dates in this order.

    Dates that begin with a year of four digits can be told from all others, so they are taken in any column of dates.
    So can 3.1.2023 beside them, as hardly anybody begins with the month before a point.

    >>> as_days(["3.1.1970", None, "1970-01-02 12:00"], "dmy").tolist()
    [2.0, nan, 1.5]
    """
    days = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is None:
            continue
        match = None if is_nested(value) or is_number(value) else _DATE.fullmatch(text(value))
        if match is None:
            return None
        first, sign, second, third, hour, clock, half, zone = match.groups()
        by_day = "dmy" if sign == "." and order == "ymd" else order
        parts = dict(zip("ymd" if len(first) == 4 else by_day, (first, second, third), strict=True))
        hour = hour if half is None else int(hour) % 12 + 12 * (half in "pP")
        zone = zone if zone and zone[0] in "+-" else "Z"
        written = f"{parts['y']}-{parts['m']:0>2}-{parts['d']:0>2}T{hour or 0:0>2}{clock or ''}{zone}"
        try:
            days[row] = (datetime.fromisoformat(written) - _FIRST_DAY) / timedelta(days=1)
        except (ValueError, OverflowError):
            return None
    return days


def origin(values: Array, middle: float) -> float:
    """Nought, or the middle of numbers such as times in seconds of which float32 would make the same."""
    kept = len(np.unique(values.astype(np.float32)))
    return middle if kept < 0.99 * len(np.unique(values)) else 0.0


def number(value: Any, column: str, where: str) -> float:
    """A number that can be computed with, or a sentence."""
    wrong = ""
    if not is_number(value):
        wrong = f"{text(value)!r}, but the model takes numbers there"
    elif not math.isfinite(float(value)):
        wrong = "an infinite value"
    elif abs(float(value)) > LARGEST:
        wrong = f"{float(value):g}, which is too large to compute with"
    if wrong:
        raise InputError(f"column {column!r} of {where} holds {wrong}: replace it or leave the cell empty.")
    return float(value)


class _NoRows(ValueError):
    """Says what cells hold instead of lists of numbers."""


class _Uneven(_NoRows):
    """Lists of numbers, but of different lengths."""


@dataclass(frozen=True)
class ListColumn:
    """How lists of numbers become features: as they are, gaps filled."""

    name: str
    fill: tuple[float, ...]  # what a missing number is replaced by: the median of its place
    flag_missing: bool  # whether one more feature says that something was missing; only if something was in training

    @classmethod
    def fit(cls, name: str, cells: Sequence[Any]) -> "tuple[ListColumn | None, str]":
        """The column and a note about it; None if it is nothing that could be a feature."""
        try:
            rows = _rows(cells)
        except _Uneven as trouble:
            advice = "make them equally long (empty ones count as missing), or leave the column out with"
            raise InputError(f"column {name!r} holds {trouble}: {advice} {ignoring(name)}.") from None
        except _NoRows as trouble:
            return None, f"column {name!r} holds {trouble}: it is not used."
        if rows.shape[1] == 0:
            return None, f"column {name!r} holds empty lists only: it is not used."
        usable = np.abs(rows) <= LARGEST  # a gap is not
        places = zip(rows.T, usable.T, strict=True)
        fill = tuple(float(np.median(place[some])) if some.any() else 0.0 for place, some in places)
        column = cls(name, fill, bool(np.isnan(rows).any()))
        return column, f"column {name!r} holds lists of {len(column.fill)} numbers, each of which is a feature."

    @property
    def feature_names(self) -> list[str]:
        places = [f"{self.name}[{place}]" for place in range(len(self.fill))]
        return places + ([f"{self.name} is missing"] if self.flag_missing else [])

    @property
    def is_converted(self) -> bool:
        return self.flag_missing

    def encode(self, cells: Sequence[Any], where: str) -> Array:
        width = len(self.fill)
        try:
            rows = _rows(cells, width)
        except _NoRows as trouble:
            wanted = f"the model was trained on lists of {width} numbers there: make them as for the training"
            raise InputError(f"column {self.name!r} of {where} holds {trouble}, but {wanted}.") from None
        gaps = np.isnan(rows)
        for value in rows[~gaps & ~(np.abs(rows) <= LARGEST)][:1]:
            number(value, self.name, where)  # says what is wrong with it
        filled = np.where(gaps, self.fill, rows).astype(np.float32)
        return np.hstack([filled, gaps.any(axis=1, keepdims=True)], dtype=np.float32) if self.flag_missing else filled

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "ListColumn":
        return cls(str(stored["name"]), tuple(map(finite, stored["fill"])), bool(stored["flag_missing"]))


def _rows(cells: Sequence[Any], width: int = 0) -> Array:
    """The numbers, NaN where one is missing; of the given width, where no row says another."""
    arrays = [None if cell is None else _array(cell) for cell in cells]
    known = [array for array in arrays if array is not None]
    lengths = Counter(map(len, known))
    if len(lengths) > 1:
        ((usual, _),) = lengths.most_common(1)
        row, odd = next((row, len(one)) for row, one in enumerate(arrays) if one is not None and len(one) != usual)
        raise _Uneven(f"lists of different lengths (often {usual} numbers, in row {row} {odd})")
    found = next(iter(lengths), width)
    if width and found != width:
        raise _Uneven(f"lists of {found} numbers")
    rows = np.full((len(cells), found), np.nan)
    if known:
        rows[[array is not None for array in arrays]] = np.stack(known)
    return rows


def _array(cell: Any) -> Array | None:
    """A list of numbers; an empty one is missing."""
    if not is_nested(cell) or isinstance(cell, dict | bytes):
        raise _NoRows("structures or bytes" if is_nested(cell) else f"{cell!r}, which is no list")
    try:
        array: Array = np.asarray(cell)
    except ValueError:
        raise _NoRows("lists of lists") from None
    if array.ndim == 1 and array.dtype.kind == "O" and all(one is None or isinstance(one, Number) for one in array):
        array = array.astype(np.float64)  # None becomes NaN
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise _NoRows("lists of lists" if array.ndim > 1 else "lists whose values are no numbers")
    return array if len(array) else None
