"""Patients as rows: each folder of DICOM files is one, and so is each NIfTI file; who they are is never written."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from splitpu.data.images import scan
from splitpu.data.images.decode import SUFFIXES as IMAGE_SUFFIXES
from splitpu.data.images.decode import BadImage, Header, Headers, Remark, Remarks, require_reader_of, usual_size
from splitpu.data.volumes import spec as volumes
from splitpu.data.volumes.dicom import NotASlice, load_frames, read_dicom
from splitpu.data.volumes.nifti import load_nifti, read_nifti
from splitpu.data.volumes.spec import Slice, SliceValues, VolumeSpec
from splitpu.errors import InputError
from splitpu.types import Array
from splitpu.utils.files import ends_in
from splitpu.utils.reading import open_regular
from splitpu.utils.text import listed

NIFTI_SUFFIXES = (".nii", ".nii.gz")
_LOOKED_AT = 200  # files, until a folder is taken to hold no volumes
SKIPPED = "skipped"  # a file that should have been a slice
UNUSED = "unused"  # a file that is fine but not part of the volume
OTHERS = "other series"  # of the same patient
MISSING = "missing"  # slices between those that are there
IDENTIFYING = "identifying"  # the name of the folder, or of a file, says who the patient is
NAMED_AFTER = ", and its folder is called after the patient"  # the same, for a patient that cannot be used

_LONG_ENOUGH = 4  # letters and digits; a shorter name or number may be part of any word by chance
HIDDEN = "(a text that names the patient)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient(scan.RowFile):
    """One row: a folder, or a single NIfTI file; its path is compared with the tags inside, and never written."""

    size: int = 0
    modified: int = 0
    number: int  # which one it is in its given folder, counted from 1 in the order of the names
    parts: tuple[scan.Entry, ...]
    is_named: bool = False  # whether its own name says who the patient is

    @property
    def name(self) -> str:
        """As on the disk, or by the number where that says who it is."""
        if not self.is_named:
            return self.given_name
        return f"{self.given_name.rpartition('/')[0]}/patient-{self.number:04d}".lstrip("/")

    @property
    def source(self) -> "Patient":
        return self

    @property
    def stamp(self) -> str:
        return "".join(f"{part.path}\0{part.size}\0{part.modified}\n" for part in self.parts) + f"{self.path}\n"

    def inside(self, part: int) -> str:
        return os.path.relpath(self.parts[part].path, self.path).replace(os.sep, "/")

    def part_name(self, part: int, hidden: set[int]) -> str:
        """What a file is called; the names of the hidden ones say who the patient is, -1 means that of the folder."""
        if self.parts[part].path == self.path:
            return self.name
        if part in hidden or -1 in hidden:  # folders inside may repeat what the patient's own is called
            return f"{self.name}/file {part + 1} of {len(self.parts)}"
        return scan.readable_name(f"{self.name}/{self.inside(part)}", 0)


def find_patients(folders: Sequence[str | Path]) -> scan.FoundRows:
    """What lies directly in the given folders: folders with files, however deep inside, and NIfTI files."""
    roots, common, closed = scan.given_folders(folders)
    found: list[Patient] = []
    skipped: list[scan.Skipped] = []
    for folder, root in enumerate(roots):
        number = 0
        for name in sorted(os.listdir(root)):
            path = os.path.join(root, name)
            if name.startswith("."):
                continue
            if os.path.exists(path) and not os.path.isdir(path) and not is_nifti(path):  # links may lead nowhere
                why = "is no patient's folder and no NIfTI file"
                skipped.append(scan.Skipped(scan.readable_name(path, common), why, False, len(found), folder))
                continue
            number += 1
            entries = list(scan.entry(path, closed, lambda _: ""))
            if entries:  # broken links among them: their names may say who the patient is, so the reader reports them
                found.append(Patient(path, common, folder, number=number, parts=tuple(entries)))
            else:
                why = "is a patient without slices: the folder holds no file"
                skipped.append(scan.Skipped(scan.readable_name(path, common), why, after=len(found), folder=folder))
    return scan.FoundRows(found, skipped)


def holds_volumes(folders: Sequence[str | Path]) -> bool:
    """Whether these are folders of patients rather than of pictures."""
    roots, _, closed = scan.given_folders(folders)
    for root in roots:
        for looked_at, one in enumerate(scan.contents(root, set(closed), lambda _: "")):
            if looked_at == _LOOKED_AT:
                break
            if one.why:
                continue
            if is_nifti(one.path):
                return True
            if ends_in(one.path, *IMAGE_SUFFIXES) or not is_dicom(one.path):
                continue
            if os.path.dirname(one.path) == root:
                wanted = "give each patient a folder of its own in there, as several files make up one patient"
                raise InputError(f"DICOM files lie directly in {root}: {wanted}.")
            return True
    return False


def is_nifti(path: str) -> bool:
    """By the name, as other programs do it."""
    return ends_in(path, *NIFTI_SUFFIXES)


def is_dicom(path: str) -> bool:
    """By the four letters that a DICOM file has after its empty preamble."""
    with suppress(OSError), open_regular(path) as file:  # a pipe would wait for ever
        return file.read(132)[128:] == b"DICM"
    return False


def says_who(text: str, who: set[str]) -> bool:
    """Whether a text is, or contains, the name or number of a patient."""
    plain, *others = ("".join(letter for letter in str(one).casefold() if letter.isalnum()) for one in (text, *who))
    return any(one and (one == plain or (len(one) >= _LONG_ENOUGH and one in plain)) for one in others)


@dataclass(frozen=True)
class VolumeReader:
    """Folders of DICOM files, and NIfTI files."""

    series: str | None = None  # part of the description of the series to take
    slices: int | None = None  # the most slices of a volume; None = as many as the longest has
    series_is_settled: bool = field(default=False, repr=False)  # by a training; the rows do not depend on it

    store = "volumes"
    noun, looked_for = "patients", "patients with DICOM or NIfTI files"
    files_a_task = 1
    fewest_for_processes = 24

    stored_spec = VolumeSpec
    find = staticmethod(find_patients)

    def require(self) -> None:
        """What is needed depends on the files; it is asked for where the first of a kind is met."""

    def header(self, patient: Patient) -> Header:
        """Number and size of the slices that make the volume of a patient, and what there is to say about its files."""
        plan = planned(patient, self.series)
        height, width = plan.slices[0].height, plan.slices[0].width
        return Header(plan.checksum, height, width, True, 8, len(plan.slices), plan.remarks)

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> VolumeSpec:
        """As many slices as the longest volume has, or as were asked for if that is fewer; sizes as for images."""
        height, width = size or usual_size(headers.sides())
        longest = int(headers.of_good("slices").max(initial=1))
        return VolumeSpec(min(longest, self.slices or longest), height, width, self.series)

    def decode(self, patient: Patient, spec: VolumeSpec) -> tuple[Array, Sequence[Remark]]:
        """The volume of a patient; slices that cannot be decoded are left out and remarked on."""
        slices = planned(patient, spec.series).slices
        kept = [slices[at] for at in volumes.evenly_chosen(len(slices), spec.slices)]
        remarks: list[Remark] = []
        found: dict[Slice, SliceValues] = {}
        for part in sorted({one.part for one in kept}):
            wanted = [one for one in kept if one.part == part]
            path = patient.parts[part].path
            try:
                frames = (load_nifti if is_nifti(path) else load_frames)(path, [one.frame for one in wanted])
            except BadImage as error:
                remarks.append(Remark(SKIPPED, part, str(error)))
                continue
            found |= {one: volumes.resized(frames[one.frame], spec.height, spec.width) for one in wanted}
        if not found:
            raise BadImage(f"is a patient without slices that can be decoded (the first one {remarks[0].text})")
        return volumes.as_bytes([found[one] for one in kept if one in found], spec), remarks

    def account(self, files: Sequence[scan.RowFile], remarks: Remarks, reasons: Mapping[int, str]) -> scan.Accounted:
        """Neutral numbers for patients whose folder names them, every file that is not used, and the warnings."""
        named = {position for position, why in reasons.items() if why.endswith(NAMED_AFTER)}
        named |= {at for at, some in remarks.items() if any(one.kind == IDENTIFYING and one.part < 0 for one in some)}
        patients = [file for file in files if isinstance(file, Patient)]
        called = [replace(one, is_named=position in named) for position, one in enumerate(patients)]
        chosen: list[str] = []
        with_gaps: list[str] = []
        skipped: list[scan.Skipped] = []
        for position, some in sorted(remarks.items()):
            patient, hidden = called[position], {one.part for one in some if one.kind == IDENTIFYING}
            for one in some:
                if one.kind in (SKIPPED, UNUSED):
                    skipped.append(scan.Skipped(patient.part_name(one.part, hidden), one.text, one.kind == SKIPPED))
                elif one.kind == OTHERS:
                    chosen.append(f"{patient.name} also has {one.text}")
                elif one.kind == MISSING:
                    with_gaps.append(f"{patient.name} lacks {one.text}")
        warnings = []
        if chosen:  # only the training of a model could have chosen another
            trained = self.series_is_settled
            advice = "as in the training, where fit --series chooses one" if trained else "choose with --series"
            taken = "several series, of which the one with the most slices was taken"
            warnings.append(f"{_have(chosen)} {taken} ({listed(chosen, separator='; ')}): {advice}.")
        if with_gaps:
            gaps = "larger distances between some slices than between most, as if slices were missing"
            advice = "the slices that are there are taken without gaps; look whether all files were copied"
            warnings.append(f"{_have(with_gaps)} {gaps} ({listed(with_gaps, separator='; ')}): {advice}.")
        if named:
            renamed = listed([called[position].name for position in sorted(named)], separator="; ")
            called_by = f"{len(named):,} folders are called by the name or number of their patient"
            warnings.append(f"{called_by}, so these are known by their place in the order of the folders ({renamed}).")
        return scan.Accounted(called, skipped, warnings, sum(len(patient.parts) for patient in patients))


def _have(patients: Sequence[str]) -> str:
    return "1 patient has" if len(patients) == 1 else f"{len(patients):,} patients have"


class Plan(NamedTuple):
    """What of a patient is used: known without decoding anything."""

    slices: Sequence[Slice]
    remarks: tuple[Remark, ...]
    checksum: bytes  # of all files, and of what was found wrong with them


def planned(patient: Patient, series: str | None) -> Plan:
    """Look at all files of a patient; raises BadImage if none of them gives a slice."""
    slices: list[Slice] = []
    remarks: list[Remark] = []
    digest = hashlib.sha256()
    who: set[str] = set()
    for part, entry in enumerate(patient.parts):
        try:
            nifti = is_nifti(entry.path)
            require_reader_of("NIfTI" if nifti else "DICOM")
            found, checksum, told = (read_nifti if nifti else read_dicom)(entry.path, part)
        except BadImage as error:
            remarks.append(Remark(UNUSED if isinstance(error, NotASlice) else SKIPPED, part, str(error)))
            continue
        slices += found
        who |= told
        digest.update(checksum)
    if not slices:
        raise BadImage(f"is a patient without slices (the first file {remarks[0].text})")
    is_named = says_who(os.path.basename(patient.path), who)
    slices, copies = volumes.without_copies(slices)
    try:
        best, others = volumes.chosen_series(slices, series, lambda text: HIDDEN if says_who(text, who) else text)
    except BadImage as error:
        raise BadImage(f"{error}{NAMED_AFTER if is_named else ''}") from error
    if others and series is None:
        remarks.append(Remark(OTHERS, -1, ", ".join(others)))
    slices, left_out, missing = volumes.ordered(best)
    remarks += [Remark(UNUSED, one.part, why) for one, why in (*copies, *left_out)]
    if missing:
        remarks.append(Remark(MISSING, -1, f"{missing} of {len(slices) + missing}"))
    if is_named:
        remarks.append(Remark(IDENTIFYING, -1, ""))
    # A file's own name, or that of a folder inside the patient's, may say it, too.
    parts = range(len(patient.parts))
    remarks += [Remark(IDENTIFYING, part, "") for part in parts if says_who(patient.inside(part), who)]
    digest.update(repr(remarks).encode())
    return Plan(slices, tuple(remarks), digest.digest())
