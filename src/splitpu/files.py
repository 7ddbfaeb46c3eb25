"""Files that are either whole or not there."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splitpu.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary neighbour and move it into place once it is complete and on disk.

    A process killed at any moment leaves the old file or the new one, never half of either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"the disk is full: {path} could not be written; free some space and resume.") from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
