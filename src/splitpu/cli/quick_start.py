"""What a process that is there for one command can leave out, so that training begins earlier.

A program that imports the package keeps Python as it is: nothing here happens in it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ours: list[bool] = []  # not empty once this process is known to be there for one command


def claim_process() -> None:
    """Say that this process was started for one command."""
    _ours.append(True)


@contextmanager
def quick_start() -> Iterator[None]:
    """Import what is heavy inside the block.

    No garbage is collected there: importing torch makes hundreds of thousands of objects, none of them garbage, and
    none of them needs to be looked at again later.
    """
    if not _ours:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
