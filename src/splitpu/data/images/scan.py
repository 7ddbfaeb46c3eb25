"""Finding the image files in folders, and keeping account of everything else that lies there.

What is said about files that are not used, and about pictures that should not be there twice.

When files that cannot be used are too many to be skipped, and what is said then.

What the cache of decoded rows needs to know of a kind of input: how to find, describe and decode it.

Image files as rows: each file is one.
"""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np

from splitpu.data.images.decode import (
    IN_WORDS,
    SUFFIXES,
    Header,
    Headers,
    ImageSpec,
    Remark,
    choose_spec,
    decode,
    read_header,
    require_pillow,
)
from splitpu.errors import InputError
from splitpu.types import Array
from splitpu.utils.files import ends_in
from splitpu.utils.text import listed

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


def skipped_in_words(
    skipped: Sequence[Skipped], which: str, rows: Literal["images", "volumes"] = "images"
) -> list[str]:
    """A sentence about bad files and one about files that are fine but no part of a row, as far as there are any.

    >>> skipped_in_words([Skipped("a.png", "is empty")], "test")
    ['1 test file was skipped: a.png is empty.']
    """
    bad = [f"{entry.name} {entry.why}" for entry in skipped if entry.bad]
    others = [entry for entry in skipped if not entry.bad]
    said = []
    if bad:
        were = "files were" if len(bad) > 1 else "file was"
        said.append(f"{len(bad):,} {which} {were} skipped: {listed(bad, separator='; ')}.")
    if others:
        unused = f"of other kinds than {IN_WORDS} are not used: {kinds_of(others)}"
        if rows == "volumes":  # where endings of names say little
            unused = f"that are not part of a volume: {_reasons_of(others)}"
        said.append(f"{which} files {unused}.")
    return said


def kinds_of(entries: Sequence[Skipped]) -> str:
    """Endings of file names, the most frequent first, each with its number.

    >>> kinds_of([Skipped("a.bmp", ""), Skipped("notes", ""), Skipped("b.BMP", "")])
    '2 .bmp, 1 without ending'
    """
    counted = Counter(Path(entry.name).suffix.lower() or "without ending" for entry in entries)
    return listed([f"{count:,} {ending}" for ending, count in counted.most_common()])


def _reasons_of(entries: Sequence[Skipped]) -> str:
    """Why they are not used, the most frequent reason first, each with its number."""
    return listed([f"{count:,} ({why})" for why, count in Counter(entry.why for entry in entries).most_common()])


def leak_in_words(pairs: Sequence[tuple[str, str]], what: str, where: str, advice: str) -> list[str]:
    """A sentence about equal pictures or patients, which `what` says in the singular, if there are any."""
    if not pairs:
        return []
    pictures = f"{what}s are" if len(pairs) > 1 else f"{what} is"
    shown = [f"{first} = {second}" for first, second in pairs]
    return [f"{len(pairs):,} {pictures} {where} ({listed(shown)}): {advice}."]


MOST_SKIPPED = 0.1  # share of bad files that is skipped; more of them hint at a mistake
_OF_OTHER_SERIES = re.compile(r"has no series whose description contains (?P<wanted>.+) \(there are: (?P<there>.+)\)")
_DESCRIPTION = re.compile(r"('.*?'|\".*?\") with \d+ slices")


@dataclass(frozen=True)
class Side:
    """The files of some of the folders: those of positives, say."""

    where: str  # the folders, for messages
    files: int
    bad: Sequence[Skipped]


def bad_ones(entries: Sequence[Skipped]) -> list[Skipped]:
    """Those that were meant to be images."""
    return [entry for entry in entries if entry.bad]


def refuse_first(bad: Sequence[Skipped]) -> NoReturn:
    """What `--strict` does."""
    raise InputError(f"{bad[0].name} {bad[0].why}; remove it, or leave out --strict to skip such files.")


def refuse_too_many(side: Side, noun: str) -> None:
    """Stop where more than a tenth of the files of a side are bad; `noun` is what they are called."""
    if len(side.bad) <= MOST_SKIPPED * side.files:
        return
    shown = f"{_shown(side.bad)}: repair or remove them."
    if len(side.bad) < side.files:
        raise InputError(
            f"{len(side.bad):,} of {side.files:,} {noun} in {side.where} cannot be used, more than the "
            f"{MOST_SKIPPED:.0%} that are skipped {shown}"
        )
    _refuse_other_series(side)
    all_of_them = noun if side.files == 1 else f"{side.files:,} {noun}"
    raise InputError(f"none of the {all_of_them} in {side.where} can be used {shown}")


def _shown(bad: Sequence[Skipped]) -> str:
    shown = "; ".join(f"{entry.name} {entry.why}" for entry in bad[:3])
    return f"({shown}{'; ...' if len(bad) > 3 else ''})"


def _refuse_other_series(side: Side) -> None:
    """Where no patient has a series of the description asked for, it is the description that is wrong."""
    found = [_OF_OTHER_SERIES.match(entry.why) for entry in side.bad]
    wanted = {one["wanted"] for one in found if one is not None}
    if None in found or len(wanted) != 1:
        return
    there = sorted({text for one in found if one is not None for text in _DESCRIPTION.findall(one["there"])})
    raise InputError(
        f"no series in {side.where} has a description that contains {wanted.pop()} (there are: {listed(there)}): "
        "give patients who have it, or train with --series and a part of one of these."
    )


class RowSpec(Protocol):
    """The one form that all rows of a set are brought into."""

    @property
    def kind(self) -> Literal["images", "volumes"]:
        """What the rows are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""

    @property
    def height(self) -> int:
        """Of an image or a slice."""

    @property
    def width(self) -> int:
        """Of an image or a slice."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""


class RowFile(Protocol):
    """What one row is made from: a file, or the files of a patient."""

    @property
    def name(self) -> str:
        """As it is called in everything that is written."""

    @property
    def given_name(self) -> str:
        """As it is called on the disk, by which a list of labels may know it."""

    @property
    def path(self) -> str:
        """Where it lies: a file, or a patient's folder."""

    @property
    def folder(self) -> int:
        """Which of the given folders it lies in."""

    @property
    def source(self) -> Any:
        """What the reader is given; it may travel to another process."""

    @property
    def stamp(self) -> str:
        """What tells quickly whether it changed."""


class FoundRows(NamedTuple):
    """All that lies in some folders."""

    files: Sequence[RowFile]
    skipped: Sequence[Skipped]


class Accounted(NamedTuple):
    """The rows under the names they may be called by, and what there is to say about what they were made from."""

    files: Sequence[RowFile]
    skipped: Sequence[Skipped] = ()
    warnings: Sequence[str] = ()
    parts: int = 0  # how many files the rows were made from, if more than one makes a row


class Reader(Protocol):
    """One kind of input. Its repr names everything that its rows depend on; it may travel to another process."""

    @property
    def store(self) -> str:
        """The folder in the cache."""

    @property
    def noun(self) -> str:
        """What its files are called in messages."""

    @property
    def looked_for(self) -> str:
        """The same, with the kinds of files that are read."""

    @property
    def files_a_task(self) -> int:
        """How many files are worth handing to a process at a time."""

    @property
    def fewest_for_processes(self) -> int:
        """The number of files below which starting processes takes longer than they save."""

    def require(self) -> None:
        """Say which extra to install, before anything is begun that needs it."""

    def find(self, folders: Sequence[str | Path]) -> FoundRows:
        """Everything of this kind in the folders."""

    def header(self, source: Any) -> Header:
        """What can be known without decoding; raises BadImage for what cannot give a row."""

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> RowSpec:
        """The form for a set."""

    def stored_spec(self, stored: Mapping[str, Any]) -> RowSpec:
        """What `to_dict` of a form made, read back."""

    def decode(self, source: Any, spec: Any) -> tuple[Array, Sequence[Remark]]:
        """The values in the form asked for; raises BadImage where there are none."""

    def account(
        self, files: Sequence[RowFile], remarks: Mapping[int, Sequence[Remark]], reasons: Mapping[int, str]
    ) -> Accounted:
        """Turn what was remarked on into words; `files` are all that were found, those with a reason give no row."""


@dataclass(frozen=True)
class ImageReader:
    """PNG, JPEG, TIFF and WebP files."""

    store = "images"
    noun, looked_for = "image files", f"{IN_WORDS} files"
    files_a_task = 32
    fewest_for_processes = 512

    def require(self) -> None:
        """Images need pillow."""
        require_pillow()

    def find(self, folders: Sequence[str | Path]) -> FoundRows:
        """Every image file in the folders and the folders inside them."""
        found = find_images(folders)
        return FoundRows(found.files, found.skipped)

    def header(self, source: str) -> Header:
        """Size and kind of an image."""
        return read_header(source)

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> ImageSpec:
        """The form for a set of images."""
        return choose_spec(headers, size)

    def stored_spec(self, stored: Mapping[str, Any]) -> ImageSpec:
        """A form from the cache."""
        return ImageSpec(**stored)

    def decode(self, source: str, spec: ImageSpec) -> tuple[Array, Sequence[Remark]]:
        """The pixels; nothing is ever remarked on."""
        return decode(source, spec), ()

    def account(
        self, files: Sequence[RowFile], remarks: Mapping[int, Sequence[Remark]], reasons: Mapping[int, str]
    ) -> Accounted:
        """Files are called what they are called."""
        return Accounted(files)
