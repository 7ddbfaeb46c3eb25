"""Laying samples into a folder, in the order in which people should look through them."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from splitpu.data.scanning import contents
from splitpu.drafts import check_free, drafted
from splitpu.errors import InputError
from splitpu.files import disk_errors_in_words, ends_in

_LONGEST_NAME = 255  # bytes, on nearly every file system


@dataclass(frozen=True, kw_only=True)
class ReviewOptions:
    """Where the listed samples go, and how many of their files are laid out for people to look through."""

    out: Path | None = None
    top: int | None = None
    copy_to: Path | None = None
    link: bool = False
    json: bool = False


@dataclass(frozen=True)
class ToReview:
    """A sample that is a file, or a folder of files, and what the model makes of it."""

    path: str
    name: str
    probability: float


def check_review(folder: Path | None, top: int | None) -> None:
    """Refuse, before anything is computed, what could overwrite something."""
    if top is not None and top < 1:
        raise InputError(f"--top {top} is not a number of samples; give 1 or more.")
    if folder is not None:
        check_free(folder, "--copy-to")


def lay_out(folder: Path, samples: Sequence[ToReview], *, link: bool) -> int:
    """Copy or link samples, named by rank and probability; the folder is there when all are. Gives how many."""
    digits = len(str(len(samples)))
    with disk_errors_in_words(folder), drafted(folder) as draft:
        for rank, sample in enumerate(samples, start=1):
            place = f"{rank:0{digits}d}_{sample.probability:.3f}_"
            flat = sample.name.replace("/", "__") + _missing_ending(sample)
            _lay(sample.path, draft / (place + _end_of(flat, _LONGEST_NAME - len(place))), link)
    return len(samples)


def _end_of(name: str, most_bytes: int) -> str:
    """As much of the end of a name as fits; a letter may be several bytes, of which none is kept without the others.

    >>> _end_of("plain.png", 20), _end_of("plain.png", 6), _end_of("文文.png", 8)
    ('plain.png', 'in.png', '文.png')
    """
    while len(os.fsencode(name)) > most_bytes:
        name = name[1:]
    return name


def _missing_ending(sample: ToReview) -> str:
    """Patients that are one file each are called without its ending; programs that show it need one."""
    for ending in (".nii.gz", ".nii"):
        if ends_in(sample.path, ending) and not os.path.isdir(sample.path):
            return "" if ends_in(sample.name, ending) else ending
    return ""


def _lay(path: str, target: Path, link: bool) -> None:
    if link:
        os.symlink(path, target)
    elif os.path.isdir(path):
        _copy_folder(path, target)
    else:
        _copy_file(path, target)


def _copy_folder(folder: str, target: Path) -> None:
    """What a reader finds in a patient's folder: no links that lead nowhere or in circles, and no pipes."""
    target.mkdir()
    true_path = Path(os.path.realpath(folder))
    closed = {str(one) for one in (true_path, *true_path.parents)}
    for found in contents(folder, closed, lambda path: "" if os.path.isfile(path) else "is not a regular file"):
        if not found.why:
            copy = target / os.path.relpath(found.path, folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(found.path, copy)


def _copy_file(path: str, target: Path) -> None:
    try:
        shutil.copyfile(path, target)
    except PermissionError as error:
        if error.filename != path:
            raise
        raise InputError(
            f"{path} may not be read ({error.strerror}): change that, or lay out links with --link."
        ) from error
