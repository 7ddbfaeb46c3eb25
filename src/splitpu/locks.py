"""Holding something alone among processes, by a lock file that the system lets go of however its holder dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Taken(Exception):
    """Another process holds it."""


@contextmanager
def held_alone(lock_file: Path) -> Iterator[None]:
    """Hold the file inside the block; raises `Taken` at once where another process does. It is gone afterwards.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held_alone(Path(folder) / "lock"):
    ...     (Path(folder) / "lock").exists()
    True
    """
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    while True:
        with lock_file.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Taken(str(lock_file)) from None
            # Else the last to hold it removed the file after it was opened here: the next one would make a new file,
            # and both would believe to be alone.
            if _is_same_file(file, lock_file):
                try:
                    yield
                finally:
                    lock_file.unlink(missing_ok=True)
                return


def _is_same_file(file: IO[str], path: Path) -> bool:
    """Whether what was opened still lies at the path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
