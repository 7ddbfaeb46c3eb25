"""Files and folders that are either whole or not there, whoever is killed while writing them.

Holding something alone among processes, by a lock that the system lets go of however its holder dies. The locks are
those of `filelock`, which is loaded when one is taken: most of what is done with files does without."""

import errno
import glob
import os
import re
import secrets
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from splitpu.errors import DiskError, DiskFull, InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITING: set[Path] = set()  # drafts that this process writes at this moment
_NO_PLACE = (errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)  # where no file can be written
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)  # of some network drives
_ONE_DAY = 24 * 3600


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary neighbour and move it into place once it is complete and on disk.

    A process killed at any moment leaves the old file or the new one, never half of either."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, but a file is to be written there: give the name of a file.")
    if path.exists() and not path.is_file():  # before links are followed: a pipe has no path to lead to
        raise InputError(f"{path} is a device or a pipe, which cannot be replaced by a file: give the name of a file.")
    # What a link points to is meant, not the link; `resolve` would not bear a circle of links.
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    with disk_errors_in_words(path):
        make_folder(path.parent)
        _sweep_drafts(path)
        # Not `mkstemp`, whose files nobody but their owner may read.
        temporary = path.parent / f".{path.name}.{_host()}{os.getpid():x}-{secrets.token_hex(4)}.tmp"
        try:
            _WRITING.add(temporary)
            temporary.touch(exist_ok=False)
            readable_by = temporary.stat().st_mode
            yield temporary
            temporary.chmod(readable_by)  # safetensors puts a file of its own in its place, for the owner only
            write_through(temporary)
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            _WRITING.discard(temporary)


def _sweep_drafts(path: Path) -> None:
    """Clear away what killed processes left of this file; those of other hosts after a day."""
    for found in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if (told := re.fullmatch(r"([0-9a-f]{8})(?:([0-9a-f]+)-[0-9a-f]{8})?", found.name.split(".")[-2])) is None:
            continue
        with suppress(OSError):
            ours = told[2] is not None and told[1] == _host()
            gone = ours and found not in _WRITING and not _is_alive(int(told[2], 16))
            if gone or time.time() - found.lstat().st_mtime > _ONE_DAY:
                found.unlink()


def _is_alive(process: int) -> bool:
    """Whether it is another process that runs: this one knows what it writes itself."""
    with suppress(PermissionError):  # somebody else's
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return process != os.getpid()


def write_through(path: Path) -> None:
    """Have what was written to a file on disk, or learn that there is no room for it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk: a file that was moved there is else lost if the power fails."""
    with suppress(OSError):  # some systems know no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
    """Have a folder, and those above it, on disk."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in new:
        sync_folder(one.parent)


def ends_in(path: str | Path, *endings: str) -> bool:
    """Whether a file is called so, in capitals or not, as cameras and old programs write them."""
    return str(path).lower().endswith(endings)


def absolute(paths: Iterable[str]) -> tuple[str, ...]:
    """So that a run can be resumed from anywhere."""
    return tuple(str(Path(path).absolute()) for path in paths)


def in_a_command(path: Path) -> str:
    """The path as it has to stand in a command that is to be copied."""
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
    """Turn a full disk, or a write that is refused, into a sentence about `path`; the `advice` is for the latter."""
    try:
        yield
    except Exception as error:
        if means_no_room(error):
            raise DiskFull(f"{path} could not be written") from error
        if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in _NO_PLACE):
            raise DiskError(f"{path} may not be written ({error.strerror}); {advice}") from error
        raise


@contextmanager
def full_disk_named_as(path: Path | str, advice: str | None = None) -> Iterator[None]:
    """Inside the block drafts of `path` are written, by names that the user has never seen."""
    try:
        yield
    except DiskFull as full:
        raise DiskFull(f"{path} could not be written", advice or full.advice) from full


def check_place(path: Path) -> None:
    """Find out before anything long is begun that nothing may be written at `path`, which need not be there yet."""
    folder = next(above for above in path.absolute().parents if above.is_dir())
    trial = folder / f".splitpu.{secrets.token_hex(4)}.tmp"
    with suppress(OSError), disk_errors_in_words(path):  # what else can be wrong is said when the place is used
        trial.mkdir()
        trial.rmdir()


def means_no_room(error: Exception) -> bool:
    """Whether a disk is full; safetensors wraps the system's error into one of its own, of which the text is left."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return type(error).__name__ == "SafetensorError" and any(f"(os error {code})" in str(error) for code in _NO_ROOM)


class Taken(Exception):
    """Another process holds it."""


@contextmanager
def held_alone(lock_file: Path) -> Iterator[None]:
    """Hold the file inside the block; raises `Taken` at once where another process does. It is gone afterwards.

    Some network drives have no locks: there whoever asks is believed to be alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held_alone(Path(folder) / "lock"):
    ...     (Path(folder) / "lock").exists()
    True
    """
    from filelock import FileLock, Timeout

    # Whichever thread closes the block lets go of it. Where there are no locks, a file that a killed process left
    # behind must not stand for one, as it would in filelock's own fallback.
    lock = FileLock(lock_file, blocking=False, thread_local=False, fallback_to_soft=False)
    while not lock.is_locked:
        try:
            lock.acquire()
        except Timeout:
            if lock_file.exists():  # else the last to hold it removed it just now
                raise Taken(str(lock_file)) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            break
    try:
        yield
    finally:
        with suppress(PermissionError):  # Windows removes no open file; there filelock does it
            lock_file.unlink(missing_ok=True)
            sync_folder(lock_file.parent)
        lock.release()


@contextmanager
def in_use(folder: Path) -> Iterator[bool | None]:
    """Inside the block nobody else gets True for the folder: False where somebody has it, None where nothing tells."""
    from filelock import lock_descriptor

    with ExitStack() as opened:
        alone = None
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, handle)
            alone = lock_descriptor(handle, blocking=False)
        yield alone


def check_free(folder: Path, option: str) -> None:
    """Refuse, before anything long is begun, a place that no draft can be moved to: only an empty folder gives way."""
    if not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not an empty folder; choose another {option}.")
    is_here, is_disk = folder.samefile(Path.cwd()), os.path.ismount(folder.resolve())
    if is_here or is_disk:
        what = "the folder that this command is run in" if is_here else "where a disk begins"
        inside = f"give {option} a name inside it, such as {folder.absolute() / 'new'}"
        raise InputError(f"{folder} is {what}, which a new folder cannot take the place of; {inside}")


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
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder  # as above
    with temporary_folder(folder.parent, folder.name) as draft:
        yield draft
        if folder.is_dir():
            folder.rmdir()  # an empty one; Windows moves nothing onto it
        sync_folder(draft)
        os.rename(draft, folder)
        sync_folder(folder.parent)


@contextmanager
def temporary_folder(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder beside what is to be written, so that a move is enough to finish; removed whatever happens.

    Drafts whose process is gone are cleared away first; where that cannot be known, those with which nothing happened
    for a day. The latter are those of other hosts, whose locks are not seen on every network drive."""
    for found in parent.glob(f".*.{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError), in_use(found) as alone:
            is_ours = found.name.split(".")[-2].startswith(_host())
            is_old = time.time() - found.lstat().st_mtime > _ONE_DAY
            if alone is not False and (is_old or (alone and is_ours)) and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=True)
    with ExitStack() as held:
        while True:
            made = parent / f".{name}.{_host()}{secrets.token_hex(4)}.tmp"
            make_folder(parent)
            made.mkdir()
            # Who clears away may come between these two lines, and takes it for one that was left behind.
            if held.enter_context(in_use(made)) is not False and made.exists():
                break
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


def move_into_place(ready: Path, target: Path, is_whole: Callable[[], bool]) -> None:
    """Move what was made to where nothing whole is: what is whole, another process made meanwhile, and may use."""
    if target.exists() and not is_whole():
        os.replace(target, ready.parent / "damaged")
    if not target.exists():
        os.replace(ready, target)
        sync_folder(target.parent)


def _host() -> str:
    return sha256(socket.gethostname().encode()).hexdigest()[:8]
