"""Holding something alone among processes, by a lock that the system lets go of however its holder dies."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

_HELD_BY_ANOTHER = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Taken(Exception):
    """Another process holds it."""


@contextmanager
def held_alone(lock_file: Path) -> Iterator[None]:
    """Hold the file inside the block; raises `Taken` at once where another process does. It is gone afterwards.

    Some network drives, and Windows, have no such locks: there whoever asks is believed to be alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held_alone(Path(folder) / "lock"):
    ...     (Path(folder) / "lock").exists()
    True
    """
    if find_spec("fcntl") is None:
        yield
        return
    while True:
        with lock_file.open("w") as file:
            if _lock(file.fileno()) is False:
                raise Taken(str(lock_file))
            # Else the last to hold it removed the file after it was opened here: the next one would make a new file,
            # and both would believe to be alone.
            if _is_same_file(file, lock_file):
                try:
                    yield
                finally:
                    lock_file.unlink(missing_ok=True)
                return


@contextmanager
def in_use(folder: Path) -> Iterator[bool | None]:
    """Inside the block nobody else gets True for the folder, by whatever name: False where somebody has it already.

    None where that cannot be found out.
    """
    with _opened(folder) as handle:
        yield None if handle is None else _lock(handle)


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """A handle of the folder; None where the system has none, or the folder may not be read."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Try to lock what is open, until it is closed: whether nobody else has; None where there are no such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return None
    except OSError as error:
        return False if error.errno in _HELD_BY_ANOTHER else None
    return True


def _is_same_file(file: IO[str], path: Path) -> bool:
    """Whether what was opened still lies at the path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
