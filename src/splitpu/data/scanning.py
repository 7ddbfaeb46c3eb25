"""Finding the image files in folders, and keeping account of everything else that lies there."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splitpu.data.images import SUFFIXES
from splitpu.errors import InputError

_LINK_TROUBLE = {errno.ENOENT: "is a link that leads nowhere", errno.ELOOP: "is a link that leads back to itself"}


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One file, with what tells quickly whether it changed. There may be a million of them, so they are kept small."""

    path: str
    name_begins: int  # where in the path
    folder: int  # which of the given folders it was found in
    size: int
    modified: int  # nanoseconds

    @property
    def name(self) -> str:
        """As the user knows it: relative to what all given folders have in common."""
        return _name(self.path, self.name_begins)


@dataclass(frozen=True)
class Skipped:
    """A file or folder that is not used, and why; `bad` where it was meant to be an image."""

    name: str
    why: str
    bad: bool = True
    after: int = 0  # how many image files come before it


@dataclass(frozen=True)
class Found:
    """All that lies in the folders."""

    files: tuple[ImageFile, ...]
    skipped: tuple[Skipped, ...]


def find_images(folders: Sequence[str | Path]) -> Found:
    """Every image file in the folders and all folders inside them, in the order of the folders, then of the names.

    Hidden files are passed over. A folder that links lead to a second time is read once, so that loops end, and none is
    read through a link from another of the given folders.
    """
    roots = [_checked(folder) for folder in folders]
    common = os.path.commonpath(roots)
    files: list[ImageFile] = []
    skipped: list[Skipped] = []
    # A link up to a folder that holds the given ones would put the images of one of them among those of another.
    true_roots = [Path(os.path.realpath(root)) for root in roots]
    closed = {str(folder) for root in true_roots for folder in (root, *root.parents)}
    for number, root in enumerate(roots):
        for found in _contents(root, closed):
            if found.why:
                skipped.append(Skipped(_name(found.path, len(common)), found.why, found.bad, len(files)))
            else:
                files.append(ImageFile(found.path, len(common), number, found.size, found.modified))
    return Found(tuple(files), tuple(skipped))


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    size: int = 0
    modified: int = 0
    why: str = ""
    bad: bool = True


def _inner_folder(folder: str, closed: set[str]) -> Iterator[_Entry]:
    true_path = os.path.realpath(folder)
    if true_path in closed:
        yield _Entry(folder, why="leads to a folder that holds it or is read already")
        return
    closed.add(true_path)
    yield from _contents(folder, closed)


def _contents(folder: str, closed: set[str]) -> Iterator[_Entry]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield _Entry(folder, why=f"cannot be opened ({error.strerror})")
        return
    for name in names:
        if not name.startswith("."):
            yield from _entry(os.path.join(folder, name), closed)


def _entry(path: str, closed: set[str]) -> Iterator[_Entry]:
    try:
        status = os.stat(path)
    except OSError as error:
        yield _Entry(path, why=_LINK_TROUBLE.get(error.errno or 0, f"cannot be looked at ({error.strerror})"))
        return
    if stat.S_ISDIR(status.st_mode):
        yield from _inner_folder(path, closed)
    elif not path.lower().endswith(SUFFIXES):
        yield _Entry(path, why=f"is not called {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", bad=False)
    else:
        yield _Entry(path, status.st_size, status.st_mtime_ns)


def _name(path: str, begins: int) -> str:
    """The rest of a path, as any text file can hold it, even if the file system's bytes are no text."""
    name = path[begins:].lstrip(os.sep).replace(os.sep, "/")
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _checked(folder: str | Path) -> str:
    path = Path(folder)
    if not path.exists():
        raise InputError(f"the folder {folder} does not exist: check the path.")
    if not path.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder that holds the images.")
    return str(path.absolute())
