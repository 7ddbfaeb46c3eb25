"""Files that are either whole or not there.

Holding something alone among processes, by a lock that the system lets go of however its holder dies.

Folders that are either whole or not there.
"""

import errno
import glob
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

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


def check_free(folder: Path, option: str) -> None:
    """Refuse, before anything long is begun, a place that no draft can be moved to: only an empty folder gives way."""
    if not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not an empty folder; choose another {option}.")
    is_here, is_disk = folder.samefile(Path.cwd()), os.path.ismount(folder.resolve())
    if is_here or is_disk:
        what = "the folder that this command is run in" if is_here else "where a disk begins"
        raise InputError(
            f"{folder} is {what}, which a new folder cannot take the place of; give {option} a name inside it, such as "
            f"{folder.absolute() / 'new'}"
        )


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Fill a hidden neighbour inside the block. At its end that becomes the folder, in one move.

    After an error it is removed. A killed process leaves its draft behind, and the next one for the same folder clears
    it away.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with drafted(Path(place) / "done") as draft:
    ...         (draft / "part").touch()
    ...     os.listdir(place), os.listdir(Path(place) / "done")
    (['done'], ['part'])
    """
    folder = folder.resolve() if folder.is_symlink() else folder  # what a link points to is meant, not the link
    _clear_away_drafts_of(folder)
    with ExitStack() as held:
        draft = _new_draft_of(folder, held)
        try:
            yield draft
            if folder.is_dir():
                folder.rmdir()  # an empty one; Windows moves nothing onto it
            os.rename(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _new_draft_of(folder: Path, held: ExitStack) -> Path:
    while True:
        draft = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
        draft.mkdir(parents=True)
        # Who clears drafts away may come between these two lines, and takes it for one that was left behind.
        if held.enter_context(in_use(draft)) is not False and draft.exists():
            return draft


def _clear_away_drafts_of(folder: Path) -> None:
    for draft in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.tmp"):
        if draft.is_dir() and not draft.is_symlink():
            with in_use(draft) as alone:
                if alone:
                    shutil.rmtree(draft, ignore_errors=True)
