"""Files that are either whole or not there."""

import errno
import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from splitpu.errors import DiskError, DiskFull, InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary neighbour and move it into place once it is complete and on disk.

    A process killed at any moment leaves the old file or the new one, never half of either.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder, but a file is to be written there: give the name of a file.")
    if path.exists() and not path.is_file():  # before links are followed: a pipe has no path to lead to
        raise InputError(f"{path} is a device or a pipe, which cannot be replaced by a file: give the name of a file.")
    path = path.resolve() if path.is_symlink() else path  # what a link points to is meant, not the link
    with disk_errors_in_words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not `mkstemp`, whose files nobody but their owner may read.
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            temporary.touch(exist_ok=False)
            readable_by = temporary.stat().st_mode
            yield temporary
            temporary.chmod(readable_by)  # safetensors puts a file of its own in its place, for the owner only
            write_through(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_through(path: Path) -> None:
    """Have what was written to a file on disk, or learn that there is no room for it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def ends_in(path: str | Path, *endings: str) -> bool:
    """Whether a file is called so, in capitals or not, as cameras and old programs write them.

    >>> ends_in("scan.NII.GZ", ".nii", ".nii.gz"), ends_in(Path("rows.npy"), ".npz")
    (True, False)
    """
    return str(path).lower().endswith(endings)


def in_a_command(path: Path) -> str:
    """The path as it has to stand in a command that is to be copied.

    >>> in_a_command(Path("runs/first")), in_a_command(Path("my run"))
    ('runs/first', "'my run'")
    """
    return shlex.quote(str(path))


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_leftovers(folder: Path) -> None:
    """Clear away the temporary files of processes that were killed while they wrote into this folder."""
    for pattern in (".*.tmp", ".tmp*"):  # ours, and those of safetensors
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)


@contextmanager
def disk_errors_in_words(path: Path, *, advice: str = "choose another place.") -> Iterator[None]:
    """Turn a full disk or a refused write inside the block into a sentence about `path`.

    The `advice` is for a place that may not be written; another one cannot be chosen for what is there already.
    """
    try:
        yield
    except Exception as error:
        if means_no_room(error):
            raise DiskFull(f"{path} could not be written") from error
        if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
            raise DiskError(f"{path} may not be written ({error.strerror}); {advice}") from error
        raise


@contextmanager
def full_disk_named_as(path: Path) -> Iterator[None]:
    """Inside the block drafts of `path` are written, by names that the user has never seen."""
    try:
        yield
    except DiskFull as full:
        raise DiskFull(f"{path} could not be written", full.advice) from full


def check_place(path: Path) -> None:
    """Find out before anything long is begun that nothing may be written at `path`, which need not be there yet.

    What else can be wrong with a place is said when it is used.
    """
    folder = next(above for above in path.absolute().parents if above.is_dir())
    trial = folder / f".splitpu.{secrets.token_hex(4)}.tmp"
    with suppress(OSError), disk_errors_in_words(path):
        trial.mkdir()
        trial.rmdir()


def means_no_room(error: Exception) -> bool:
    """Whether a disk is full.

    safetensors wraps the operating system's error into one of its own, of which only the text is left.
    """
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return type(error).__name__ == "SafetensorError" and any(f"(os error {code})" in str(error) for code in _NO_ROOM)
