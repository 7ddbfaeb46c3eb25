"""Naming some of many things in a message."""

from collections.abc import Callable, Sequence
from typing import Any

MOST_SHOWN = 5


def listed(things: Sequence[Any], written: Callable[[Any], str] = str, separator: str = ", ") -> str:
    """The first few of them, each `written` as a message shows it.

    >>> listed(["a", "b"], repr), listed(range(9))
    ("'a', 'b'", '0, 1, 2, 3, 4, ...')
    """
    shown = separator.join(written(thing) for thing in things[:MOST_SHOWN])
    return f"{shown}{separator}..." if len(things) > MOST_SHOWN else shown
