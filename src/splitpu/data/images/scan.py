"""Finding the image files in folders, and keeping account of everything else that lies there, in words."""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from splitpu.data.images import decode
from splitpu.data.images.decode import IN_WORDS, SUFFIXES, ImageSpec, Remark, Remarks
from splitpu.errors import InputError
from splitpu.types import Array
from splitpu.utils.files import ends_in
from splitpu.utils.text import listed

_LINK_TROUBLE = {errno.ENOENT: "is a link that leads nowhere", errno.ELOOP: "is a link that leads back to itself"}
Unwanted = Callable[[str], str]  # why a file of that name is none of those looked for; nothing if it is
MOST_SKIPPED = 0.1  # share of bad files that is skipped; more of them hint at a mistake
_OF_OTHER_SERIES = re.compile(r"has no series whose description contains (?P<wanted>.+) \(there are: (?P<there>.+)\)")
_DESCRIPTION = re.compile(r"('.*?'|\".*?\") with \d+ slices")


@dataclass(frozen=True, slots=True)
class RowFile:
    """What one row is made from: an image file, or what a patient has. There may be a million, so they are small."""

    path: str
    name_begins: int  # where in the path
    folder: int  # which of the given folders it was found in
    size: int
    modified: int  # nanoseconds

    @property
    def given_name(self) -> str:
        """As it is called on the disk: relative to what all given folders have in common."""
        return readable_name(self.path, self.name_begins)

    @property
    def name(self) -> str:
        """As it is called in everything that is written."""
        return self.given_name

    @property
    def source(self) -> Any:
        """What the reader is given; it may travel to another process."""
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


class FoundRows(NamedTuple):
    files: Sequence[RowFile]
    skipped: Sequence[Skipped]


class Accounted(NamedTuple):
    """The rows under the names they may be called by, and what there is to say about what they were made from."""

    files: Sequence[RowFile]
    skipped: Sequence[Skipped] = ()
    warnings: Sequence[str] = ()
    parts: int = 0  # how many files the rows were made from, if more than one makes a row


def find_images(folders: Sequence[str | Path]) -> FoundRows:
    """Every image file in the folders and all folders inside them, in the order of the folders, then of the names.

    Hidden files are passed over. A folder that links lead to a second time is read once, so that loops end, and none is
    read through a link from another of the given folders."""
    roots, common, closed = given_folders(folders)
    files: list[RowFile] = []
    skipped: list[Skipped] = []
    other = f"is not called {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    for number, root in enumerate(roots):
        for found in contents(root, closed, lambda path: "" if ends_in(path, *SUFFIXES) else other):
            if found.why:
                skipped.append(Skipped(readable_name(found.path, common), found.why, found.bad, len(files), number))
            else:
                files.append(RowFile(found.path, common, number, found.size, found.modified))
    return FoundRows(files, skipped)


def given_folders(folders: Sequence[str | Path]) -> tuple[list[str], int, set[str]]:
    """The folders as paths, the length of what all of them have in common, and the folders that no link may lead to."""
    for folder in folders:
        if not Path(folder).exists():
            raise InputError(f"the folder {folder} does not exist: check the path.")
        if not Path(folder).is_dir():
            raise InputError(f"{folder} is not a folder: give the folder that holds the images.")
    roots = [str(Path(folder).absolute()) for folder in folders]
    # A link up to a folder that holds the given ones would put the images of one of them among those of another.
    true_roots = [Path(os.path.realpath(root)) for root in roots]
    closed = {str(folder) for root in true_roots for folder in (root, *root.parents)}
    return roots, len(os.path.commonpath(roots)), closed


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that was found, or something that is not used, and why."""

    path: str
    size: int = 0
    modified: int = 0
    why: str = ""
    bad: bool = True


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
        true_path = os.path.realpath(path)
        if true_path in closed:
            yield Entry(path, why="leads to a folder that holds it or is read already")
        else:
            closed.add(true_path)
            yield from contents(path, closed, unwanted)
    elif why := unwanted(path):
        yield Entry(path, why=why, bad=False)
    else:
        yield Entry(path, status.st_size, status.st_mtime_ns)


def readable_name(path: str, begins: int) -> str:
    """The rest of a path, as any text file can hold it, even if the file system's bytes are no text."""
    name = path[begins:].lstrip(os.sep).replace(os.sep, "/")
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def skipped_in_words(skipped: Sequence[Skipped], which: str, rows: str = "images") -> list[str]:
    """A sentence about bad files and one about files that are fine but no part of a row, as far as there are any."""
    bad = [f"{entry.name} {entry.why}" for entry in skipped if entry.bad]
    others = [entry for entry in skipped if not entry.bad]
    said = []
    if bad:
        were = "files were" if len(bad) > 1 else "file was"
        said.append(f"{len(bad):,} {which} {were} skipped: {listed(bad, separator='; ')}.")
    if others and rows == "images":
        said.append(f"{which} files of other kinds than {IN_WORDS} are not used: {kinds_of(others)}.")
    elif others:  # endings of names say little here
        reasons = Counter(entry.why for entry in others).most_common()
        unused = listed([f"{count:,} ({why})" for why, count in reasons])
        said.append(f"{which} files that are not part of a volume: {unused}.")
    return said


def kinds_of(entries: Sequence[Skipped]) -> str:
    """Endings of file names, the most frequent first, each with its number."""
    counted = Counter(Path(entry.name).suffix.lower() or "without ending" for entry in entries)
    return listed([f"{count:,} {ending}" for ending, count in counted.most_common()])


def bad_ones(entries: Sequence[Skipped]) -> list[Skipped]:
    """Those that were meant to be images."""
    return [entry for entry in entries if entry.bad]


def refuse_first(bad: Sequence[Skipped]) -> NoReturn:
    """What `--strict` does."""
    raise InputError(f"{bad[0].name} {bad[0].why}; remove it, or leave out --strict to skip such files.")


def refuse_too_many(bad: Sequence[Skipped], files: int, noun: str, where: str) -> None:
    """Stop where more than a tenth of the files in some folders are bad; `noun` is what they are called."""
    if len(bad) <= MOST_SKIPPED * files:
        return
    shown = listed([f"{entry.name} {entry.why}" for entry in bad], separator="; ", most=3)
    advice = f"({shown}): repair or remove them."
    if len(bad) < files:
        some = f"{len(bad):,} of {files:,} {noun} in {where} cannot be used"
        raise InputError(f"{some}, more than the {MOST_SKIPPED:.0%} that are skipped {advice}")
    found = [one for entry in bad if (one := _OF_OTHER_SERIES.match(entry.why))]
    wanted = {one["wanted"] for one in found}
    if len(found) == len(bad) and len(wanted) == 1:  # then it is the description asked for that is wrong
        there = sorted({text for one in found for text in _DESCRIPTION.findall(one["there"])})
        missing = f"no series in {where} has a description that contains {wanted.pop()} (there are: {listed(there)})"
        raise InputError(f"{missing}: give patients who have it, or train with --series and a part of one of these.")
    raise InputError(f"none of the {noun if files == 1 else f'{files:,} {noun}'} in {where} can be used {advice}")


@dataclass(frozen=True)
class ImageReader:
    """PNG, JPEG, TIFF and WebP files, each of which is a row. `VolumeReader` does the same for patients."""

    store = "images"  # the folder in the cache
    noun, looked_for = "image files", f"{IN_WORDS} files"
    files_a_task = 32  # worth handing to a process at a time
    fewest_for_processes = 512  # below, starting processes takes longer than they save

    stored_spec = ImageSpec
    find = staticmethod(find_images)
    header = staticmethod(decode.read_header)
    choose = staticmethod(decode.choose_spec)

    def require(self) -> None:
        """Images need pillow; what patients need is asked for where the first file of a kind is met."""
        decode.require_reader_of("image")

    def decode(self, source: str, spec: ImageSpec) -> tuple[Array, Sequence[Remark]]:
        """The pixels; nothing is ever remarked on."""
        return decode.decode(source, spec), ()

    def account(self, files: Sequence[RowFile], remarks: Remarks, reasons: Mapping[int, str]) -> Accounted:
        """Files are called what they are called."""
        return Accounted(files)
