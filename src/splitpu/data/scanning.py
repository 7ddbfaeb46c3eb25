"""Finding the image files in folders, and keeping account of everything else that lies there."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splitpu.data.images import SUFFIXES
from splitpu.errors import InputError
from splitpu.files import ends_in

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
        return readable_name(self.path, self.name_begins)

    @property
    def given_name(self) -> str:
        """The same: pictures are called what their files are called."""
        return self.name

    @property
    def source(self) -> str:
        """What the decoder is given."""
        return self.path

    @property
    def stamp(self) -> str:
        """What tells quickly whether it changed."""
        return f"{self.path}\0{self.size}\0{self.modified}\n"


@dataclass(frozen=True)
class Skipped:
    """A file or folder that is not used, and why; `bad` where it was meant to be an image."""

    name: str
    why: str
    bad: bool = True
    after: int = 0  # how many image files come before it
    folder: int = 0  # which of the given folders it was found in


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
    roots, common, closed = given_folders(folders)
    files: list[ImageFile] = []
    skipped: list[Skipped] = []
    for number, root in enumerate(roots):
        for found in contents(root, closed, _no_image):
            if found.why:
                skipped.append(Skipped(readable_name(found.path, common), found.why, found.bad, len(files), number))
            else:
                files.append(ImageFile(found.path, common, number, found.size, found.modified))
    return Found(tuple(files), tuple(skipped))


def given_folders(folders: Sequence[str | Path]) -> tuple[list[str], int, set[str]]:
    """The folders as paths, the length of what all of them have in common, and the folders that no link may lead to."""
    roots = [_checked(folder) for folder in folders]
    # A link up to a folder that holds the given ones would put the images of one of them among those of another.
    true_roots = [Path(os.path.realpath(root)) for root in roots]
    closed = {str(folder) for root in true_roots for folder in (root, *root.parents)}
    return roots, len(os.path.commonpath(roots)), closed


Unwanted = Callable[[str], str]  # why a file of that name is none of those looked for; nothing if it is


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that was found, or something that is not used, and why."""

    path: str
    size: int = 0
    modified: int = 0
    why: str = ""
    bad: bool = True


def _inner_folder(folder: str, closed: set[str], unwanted: Unwanted) -> Iterator[Entry]:
    true_path = os.path.realpath(folder)
    if true_path in closed:
        yield Entry(folder, why="leads to a folder that holds it or is read already")
        return
    closed.add(true_path)
    yield from contents(folder, closed, unwanted)


def contents(folder: str, closed: set[str], unwanted: Unwanted) -> Iterator[Entry]:
    """Everything in a folder and the folders inside it, in the order of the names; hidden files are passed over."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield Entry(folder, why=f"cannot be opened ({error.strerror})")
        return
    for name in names:
        if not name.startswith("."):
            yield from entry(os.path.join(folder, name), closed, unwanted)


def entry(path: str, closed: set[str], unwanted: Unwanted) -> Iterator[Entry]:
    """A file, or everything in a folder; `closed` gathers the folders that were read."""
    try:
        status = os.stat(path)
    except OSError as error:
        yield Entry(path, why=_LINK_TROUBLE.get(error.errno or 0, f"cannot be looked at ({error.strerror})"))
        return
    if stat.S_ISDIR(status.st_mode):
        yield from _inner_folder(path, closed, unwanted)
    elif why := unwanted(path):
        yield Entry(path, why=why, bad=False)
    else:
        yield Entry(path, status.st_size, status.st_mtime_ns)


def _no_image(path: str) -> str:
    return "" if ends_in(path, *SUFFIXES) else f"is not called {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def readable_name(path: str, begins: int) -> str:
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
