"""The package's warnings, told to whoever listens in the thread that they come from.

Python keeps one way of showing warnings for the whole process. Runs in several threads that each put in their own would
hear one another's warnings and leave things in disorder, so all of them share one that asks whose thread it is in."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from splitpu.errors import SplitPUWarning

Note = Callable[[str], None]

UNRELIABLE = "do not rely on it"  # in the warning about a model that learned nothing
NOT_TAKEN = "is not taken"  # in the note about a student that learned nothing
_CHANGING = threading.RLock()  # whoever changes how the process treats warnings, be it for a moment, holds this
_here = threading.local()  # its `listeners` are those of the blocks that are open in this thread
_open_blocks: "list[warnings.catch_warnings[None]]" = []  # in any thread; as long as there are any, our way is in place


def worth_repeating(warning: str) -> bool:
    """Whether a warning is about the model itself: said once already at the end of a run, but perhaps an hour ago."""
    return UNRELIABLE in warning or NOT_TAKEN in warning


def warn_where_called(sentence: str) -> None:
    """Warn at the line outside of this package that led here, however many functions of it lie between."""
    level, frame = 1, sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "splitpu":
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(sentence, SplitPUWarning, stacklevel=level)


@contextmanager
def collected_warnings(note: Note) -> Iterator[list[str]]:
    """Tell and collect what the package warns of inside the block; other warnings go their usual way."""
    given: list[str] = []

    def hear(text: str) -> None:
        given.append(text)
        note(text)

    listeners = _listeners()
    with _CHANGING:
        usual = _open_blocks[0] if _open_blocks else warnings.catch_warnings()
        if not _open_blocks:
            usual.__enter__()
            warnings.simplefilter("always", SplitPUWarning)
            warnings.showwarning = _told_or(warnings.showwarning)
        _open_blocks.append(usual)
    listeners.append(hear)
    try:
        yield given
    finally:
        listeners.remove(hear)
        with _CHANGING:
            _open_blocks.pop()
            if not _open_blocks:
                usual.__exit__(None, None, None)


@contextmanager
def without_warning(message: str) -> Iterator[None]:
    """Suppress the one warning that begins like this, for a moment: others who change the treatment wait meanwhile."""
    with _CHANGING, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=message)
        yield


def _listeners() -> list[Note]:
    if not hasattr(_here, "listeners"):
        _here.listeners = []
    found: list[Note] = _here.listeners
    return found


def _told_or(show_others: Callable[..., None]) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        listeners = _listeners()
        if listeners and issubclass(category, SplitPUWarning):
            listeners[-1](str(message))
        else:
            show_others(message, category, *place, **named)

    return show
