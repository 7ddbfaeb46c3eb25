"""Text: lists in one word, some of many things in a message, letters that look the same, cells, lines of progress."""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from splitpu.errors import InputError

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise InputError(f"{option} {text!r} cannot be used; give whole numbers with commas, such as 0,1,2")
    return numbers


def parse_words(text: str, option: str, example: str) -> tuple[str, ...]:
    """Read names with commas between them; none at all is a variable that a script forgot to set."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise InputError(f"{option} {text!r} names nothing; give for example {example}")
    return words


def listed(things: Sequence[Any], written: Callable[[Any], str] = str, separator: str = ", ", most: int = 5) -> str:
    """The first few of them, each `written` as a message shows it."""
    shown = separator.join(written(thing) for thing in things[:most])
    return f"{shown}{separator}..." if len(things) > most else shown


def composed(text: str) -> str:
    """Every letter in one character with its marks, as keyboards write it; file systems and archives may part them."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def row_name(name: object) -> str:
    """A name as text; arrays of bytes, as HDF5 and older programs write them, hold it in UTF-8."""
    return name.decode("utf-8", errors="backslashreplace") if isinstance(name, bytes) else str(name)


def say(text: str) -> None:
    """Progress goes to standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""A text as it can be shown: what would move a cursor, change colours or part lines is spelt out.

    >>> print(printable("a\x1b[31m\r\nb\u202e"))
    a\x1b[31m\r\nb\u202e
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == " " else repr(one)[1:-1] for one in text)


def cell(value: Any) -> Any:
    """A value for a CSV file: nothing parts lines or is a formula that a spreadsheet would run; no number is empty."""
    if not isinstance(value, str):
        return "" if value != value else value  # as only NaN is unlike itself
    shown = printable(value)
    return f"'{shown}" if _FORMULA.match(shown) and not is_number(shown) else shown


def from_cell(text: str) -> str:
    """What `cell` was given, but for what it had to spell out."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def is_number(value: Any) -> bool:
    """Whether a cell can be read as a number; Python would take the code 1_2 for twelve."""
    if isinstance(value, str) and "_" in value:
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], below: Sequence[str] = ()) -> str:
    """A table and sentences below it, for notebooks; whatever the cells hold is text."""

    def line(cells: Iterable[object], tag: str) -> str:
        words = (f"{cell:.3f}" if isinstance(cell, float) else "-" if cell is None else str(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{escape(word)}</{tag}>" for word in words) + "</tr>"

    table = line(columns, "th") + "".join(line(row, "td") for row in rows)
    return f"<table>{table}</table>" + "".join(f"<p>{escape(sentence)}</p>" for sentence in below)
