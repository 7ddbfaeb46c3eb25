"""Columns of a table that are probably not what they seem, and what is worth saying about them."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from splitpu.data.sparse_rows import is_sparse
from splitpu.types import Array, Mask
from splitpu.utils.text import is_number, listed

MOST_CATEGORIES = 100  # of one column; rarer ones are treated like unknown ones
FEWEST_ROWS_FOR_NUMBERS = 20  # in fewer rows, whole numbers that all differ may be a coincidence
_DATE = re.compile(r"(\d{4}([./-])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2}))([T ,].*)?")
_SIGN = r"[%‰€$£]"
_FIGURE = r"[+-]?\d{1,3}(?:[.,'\u2019\s]\d{3})*(?:[.,]\d+)?|[+-]?\d+(?:[.,]\d+)?"  # \s: also spaces that do not break
_UNIT = r"[^\W\d_]+(?:/[^\W\d_]+)?"  # behind a space: 2a may be a stage, and 1b another
_MEASURE = re.compile(rf"(?:[<>≤≥~]|{_SIGN})?\s*(?:{_FIGURE})(?:\s*{_SIGN}|\s+{_UNIT})?")
FEWEST_MEASURES = 10  # of fewer different ones each may well be a category
_BELOW_A_THOUSAND, _PARTED_BY_A_POINT = re.compile(r"[+-]?\d{1,3}"), re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
FEWEST_LABELLED, FEWEST_UNLABELLED = 5, 20  # below, a column may part the rows by chance


def if_they_give_labels_away(features: Array, labelled: Mask, columns: Sequence[str]) -> list[str]:
    """A note about every column that was probably filled in because of the label; `columns` has that of every feature.

    Positives among the unlabelled rows look like labelled ones in all that says something about the class. A column
    whose number is larger, or smaller, in every labelled row than in any other says who was labelled: the year of a
    biopsy that only confirmed cases had, or a number counted up in one file after the other."""
    if labelled.sum() < FEWEST_LABELLED or (~labelled).sum() < FEWEST_UNLABELLED:
        return []
    known, others = features[labelled], features[~labelled]
    parts = (_ends(known)[0] > _ends(others)[1]) | (_ends(known)[1] < _ends(others)[0])
    tells = "alone tells every labelled row from every unlabelled one, which no property of the positives could do"
    if_so = "if it was filled in because of the label, leave it out"
    or_else = "and train again, or the model will find only what is already labelled"
    giving = dict.fromkeys(column for column, gives_away in zip(columns, parts, strict=True) if gives_away)
    return [f"column {column!r} {tells}: {if_so} ({ignoring(column)}) {or_else}." for column in giving]


def _ends(rows: Array) -> tuple[Array, Array]:
    """The lowest and the highest number of every feature."""
    if not is_sparse(rows):
        return rows.min(axis=0), rows.max(axis=0)
    return rows.tocsr().min(axis=0).toarray()[0], rows.tocsr().max(axis=0).toarray()[0]


def if_it_numbers_the_rows(name: str, known: Sequence[Any], rows: int) -> list[str]:
    """A note about whole numbers that all differ and leave few gaps: those of the rows, or of patients."""
    values = {float(value) for value in known}
    if rows < FEWEST_ROWS_FOR_NUMBERS or len(values) < rows or max(values) - min(values) >= 2 * rows:
        return []
    if not all(value.is_integer() for value in values):
        return []
    advice = f"leave it out if it says nothing about the class ({ignoring(name)}, or --names if it names the rows)."
    return [f"column {name!r} looks like a numbering of the rows and is used as a feature: {advice}"]


def if_categories_are_odd(name: str, counted: Counter[str], numbers: int) -> list[str]:
    """Notes about dates, numbers that a few words turn into categories, and categories too many to count them all."""
    if notes := if_dates_are_odd(name, counted):
        return notes
    notes = if_numbers_are_dressed_up(name, counted)
    if 2 * numbers > counted.total():
        words = listed(sorted(value for value in counted if not is_number(value)), repr)
        advice = "so all of it is treated as categories: correct or empty these cells if it should be numbers"
        notes.append(f"column {name!r} holds numbers but also {words}, {advice}.")
    if len(counted) > MOST_CATEGORIES:
        notes.append(f"column {name!r} has {len(counted):,} categories: the rarest count as unknown.")
    return notes


def if_dates_are_odd(name: str, counted: Counter[str]) -> list[str]:
    """A note about dates, most of the values, that are not counted as days because of some of them."""
    others = sorted(value for value in counted if not _DATE.fullmatch(value))
    if 2 * sum(counted[value] for value in others) >= counted.total():
        return []
    why = f"but also {listed(others, repr)}" if others else "that can be read in two ways, or are no days of a month"
    advice = f"write all as in 2023-03-01, or nothing, to have days counted, or leave it out ({ignoring(name)})."
    return [f"column {name!r} holds dates {why}, so it is not read as days: {advice}"]


def of_dates(name: str, days: Array) -> list[str]:
    """A note about dates that count as days: when a row was made may say more of the study than of its class."""
    first, last = as_date(days.min()), as_date(days.max())
    advice = f"leave it out if it says nothing about the class ({ignoring(name)})."
    return [f"column {name!r} holds dates, {first} to {last}, and is used as a number of days: {advice}"]


def as_date(day: float) -> str:
    """A day since 1970 as its date."""
    return str(np.datetime64(int(np.floor(day)), "D"))


def if_numbers_are_dressed_up(name: str, counted: Counter[str]) -> list[str]:
    """A note about numbers that signs, units or commas keep from being read as such."""
    dressed = [value for value in counted if _MEASURE.fullmatch(value) and not is_number(value)]
    if len(dressed) < FEWEST_MEASURES or 2 * sum(counted[value] for value in dressed) <= counted.total():
        return []
    advice = "write the numbers alone, such as 12.5, to have them used as such."
    return [f"column {name!r} holds numbers written as {min(dressed)!r}: {advice}"]


def if_lists_are_written_out(name: str, known: Sequence[Any]) -> list[str]:
    """A note about embeddings that a program has written into a CSV file."""
    if not all(isinstance(value, str) and value[:1] == "[" and value[-1:] == "]" for value in known):
        return []
    advice = "save the table as Parquet to have their numbers used."
    return [f"column {name!r} seems to hold lists written out as text: {advice}"]


def if_thousands_are_parted(name: str, known: Sequence[Any]) -> list[str]:
    """A note about a column of 980 and 1.250, probably the larger: three decimals beside numbers up to 999 are rare."""
    texts = {value for value in known if isinstance(value, str)}
    whole = {value for value in texts if _BELOW_A_THOUSAND.fullmatch(value)}
    parted = {value for value in texts if _PARTED_BY_A_POINT.fullmatch(value)}
    if not whole or len(parted) < FEWEST_MEASURES or len(whole) + len(parted) < len(texts):
        return []
    below, above = max(whole, key=float), min(parted, key=float)
    advice = f"if it means {above.replace('.', '')}, write it that way."
    return [f"column {name!r} holds {below!r} but also {above!r}, which is read as {float(above):g}: {advice}"]


def ignoring(column: str) -> str:
    """The option that leaves a column out, as it may be copied."""
    return f"--ignore {shlex.quote(column)}"
