"""Finding patients: each folder of DICOM files is one, and so is each NIfTI file."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitpu.data.images import SUFFIXES as IMAGE_SUFFIXES
from splitpu.data.readers import FoundRows
from splitpu.data.scanning import Entry, Skipped, contents, entry, given_folders, readable_name
from splitpu.errors import InputError
from splitpu.files import ends_in

NIFTI_SUFFIXES = (".nii", ".nii.gz")
_MAGIC, _MAGIC_AT = b"DICM", 128
_LOOKED_AT = 200  # files, until a folder is taken to hold no volumes


@dataclass(frozen=True)
class PatientFiles:
    """The files of a patient, as the reader is given them."""

    root: str  # its folder, or the one file; compared with the tags inside, never written
    paths: tuple[str, ...]

    @property
    def folder(self) -> str:
        """What the folder is called."""
        return os.path.basename(self.root)

    def inside(self, part: int) -> str:
        """The path of a file in the patient's folder."""
        return os.path.relpath(self.paths[part], self.root).replace(os.sep, "/")


@dataclass(frozen=True)
class Patient:
    """One row: a folder, or a single NIfTI file."""

    path: str
    name: str  # as it is called in everything that is written
    given_name: str  # relative to what all given folders have in common, as on the disk
    folder: int  # which of the given folders it was found in
    number: int  # which one it is in there, counted from 1 in the order of the names
    parts: tuple[Entry, ...]

    @property
    def source(self) -> PatientFiles:
        """What the reader is given."""
        return PatientFiles(self.path, tuple(part.path for part in self.parts))

    @property
    def stamp(self) -> str:
        """What tells quickly whether a file changed, came or went."""
        return "".join(f"{part.path}\0{part.size}\0{part.modified}\n" for part in self.parts) + f"{self.path}\n"

    def under_number(self) -> "Patient":
        """The same patient under a name that says nothing of who it is."""
        parent = self.name.rpartition("/")[0]
        return replace(self, name=f"{parent}/patient-{self.number:04d}".lstrip("/"))


def find_patients(folders: Sequence[str | Path]) -> FoundRows:
    """What lies directly in the given folders: folders with files, however deep inside, and NIfTI files."""
    roots, common, closed = given_folders(folders)
    found: list[Patient] = []
    skipped: list[Skipped] = []
    for folder, root in enumerate(roots):
        number = 0
        for name in sorted(os.listdir(root)):
            path = os.path.join(root, name)
            if name.startswith("."):
                continue
            if not _is_folder(path) and not is_nifti(path):
                why = "is no patient's folder and no NIfTI file"
                skipped.append(Skipped(readable_name(path, common), why, False, len(found), folder))
                continue
            number += 1
            entries = list(entry(path, closed, lambda _: ""))
            called = readable_name(path, common)
            if entries:  # broken links among them: their names may say who the patient is, so the reader reports them
                found.append(Patient(path, called, called, folder, number, tuple(entries)))
            else:
                why = "is a patient without slices: the folder holds no file"
                skipped.append(Skipped(called, why, after=len(found), folder=folder))
    return FoundRows(found, skipped)


def holds_volumes(folders: Sequence[str | Path]) -> bool:
    """Whether these are folders of patients rather than of pictures.

    DICOM files that lie directly in one of them are refused: nobody could tell which of them belong together.
    """
    roots, _, closed = given_folders(folders)
    for root in roots:
        for looked_at, one in enumerate(contents(root, set(closed), lambda _: "")):
            if looked_at == _LOOKED_AT:
                break
            if one.why:
                continue
            directly = os.path.dirname(one.path) == root
            if is_nifti(one.path):
                return True
            if not ends_in(one.path, *IMAGE_SUFFIXES) and is_dicom(one.path):
                if directly:
                    raise InputError(
                        f"DICOM files lie directly in {root}: give each patient a folder of its own in there, as "
                        "several files make up one patient."
                    )
                return True
    return False


def is_nifti(path: str) -> bool:
    """By the name, as other programs do it."""
    return ends_in(path, *NIFTI_SUFFIXES)


def is_dicom(path: str) -> bool:
    """By the four letters that a DICOM file has after its empty preamble."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would wait for ever
            return False
        with open(path, "rb") as file:
            file.seek(_MAGIC_AT)
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return True  # a broken link is accounted for with the contents
