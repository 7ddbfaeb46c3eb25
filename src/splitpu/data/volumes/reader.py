"""Patients as rows: their files are grouped into series, put in order and brought into one form."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitpu.data.chunks import Array
from splitpu.data.image_headers import Headers, usual_size
from splitpu.data.images import BadImage, Header, Remark
from splitpu.data.readers import Accounted, FoundRows, RowFile
from splitpu.data.volumes.accounts import (
    IDENTIFYING,
    MISSING,
    NAMED_AFTER,
    OTHERS,
    SKIPPED,
    UNUSED,
    accounted,
    says_who,
)
from splitpu.data.volumes.dicom import NotASlice, load_frames, read_dicom, require_pydicom
from splitpu.data.volumes.nifti import load_nifti, read_nifti, require_nibabel
from splitpu.data.volumes.patients import Patient, PatientFiles, find_patients, is_nifti
from splitpu.data.volumes.series import Slice, chosen_series, ordered, without_copies
from splitpu.data.volumes.spec import SliceValues, VolumeSpec, as_bytes, evenly_chosen, resized

HIDDEN = "(a text that names the patient)"


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

    def require(self) -> None:
        """What is needed depends on the files; it is asked for where the first of a kind is met."""

    def find(self, folders: Sequence[str | Path]) -> FoundRows:
        """Every patient in the folders."""
        return find_patients(folders)

    def header(self, source: PatientFiles) -> Header:
        """Number and size of the slices that make the volume of a patient, and what there is to say about its files."""
        plan = planned(source, self.series)
        height, width = plan.slices[0].height, plan.slices[0].width
        return Header(plan.checksum, height, width, True, 8, len(plan.slices), plan.remarks)

    def choose(self, headers: Headers, size: tuple[int, int] | None) -> VolumeSpec:
        """As many slices as the longest volume has, or as were asked for if that is fewer; sizes as for images."""
        good = headers.good()
        height, width = size or usual_size(headers.sides[good])
        longest = int(headers.slices[good].max(initial=1))
        return VolumeSpec(min(longest, self.slices or longest), height, width, self.series)

    def stored_spec(self, stored: Mapping[str, Any]) -> VolumeSpec:
        """A form from the cache."""
        return VolumeSpec(**stored)

    def decode(self, source: PatientFiles, spec: VolumeSpec) -> tuple[Array, Sequence[Remark]]:
        """The volume of a patient; slices that cannot be decoded are left out and remarked on."""
        slices = planned(source, spec.series).slices
        kept = [slices[at] for at in evenly_chosen(len(slices), spec.slices)]
        remarks: list[Remark] = []
        found: dict[Slice, SliceValues] = {}
        for part in sorted({one.part for one in kept}):
            wanted = [one for one in kept if one.part == part]
            load = load_nifti if is_nifti(source.paths[part]) else load_frames
            try:
                frames = load(source.paths[part], [one.frame for one in wanted])
            except BadImage as error:
                remarks.append(Remark(SKIPPED, part, str(error)))
                continue
            found |= {one: resized(frames[one.frame], spec.height, spec.width) for one in wanted}
        if not found:
            raise BadImage(f"is a patient without slices that can be decoded (the first one {remarks[0].text})")
        return as_bytes([found[one] for one in kept if one in found], spec), remarks

    def account(
        self, files: Sequence[RowFile], remarks: Mapping[int, Sequence[Remark]], reasons: Mapping[int, str]
    ) -> Accounted:
        """What the run folder and the user are told about the files of the patients."""
        patients = [file for file in files if isinstance(file, Patient)]
        return accounted(patients, remarks, reasons, series_is_settled=self.series_is_settled)


@dataclass(frozen=True)
class Plan:
    """What of a patient is used: known without decoding anything."""

    slices: tuple[Slice, ...]
    remarks: tuple[Remark, ...]
    checksum: bytes  # of all files, and of what was found wrong with them


def planned(source: PatientFiles, series: str | None) -> Plan:
    """Look at all files of a patient; raises BadImage if none of them gives a slice."""
    slices: list[Slice] = []
    remarks: list[Remark] = []
    digest = hashlib.sha256()
    who: set[str] = set()
    for part, path in enumerate(source.paths):
        try:
            if is_nifti(path):
                require_nibabel()
                found, checksum = read_nifti(path, part)
            else:
                require_pydicom()
                read = read_dicom(path, part)
                found, checksum = read.slices, read.checksum
                who |= read.who
        except BadImage as error:
            remarks.append(Remark(UNUSED if isinstance(error, NotASlice) else SKIPPED, part, str(error)))
            continue
        slices += found
        digest.update(checksum)
    if not slices:
        raise BadImage(f"is a patient without slices (the first file {remarks[0].text})")
    is_named = says_who(source.folder, who)
    slices, copies = without_copies(slices)
    try:
        best, others = chosen_series(slices, series, lambda text: HIDDEN if says_who(text, who) else text)
    except BadImage as error:
        raise BadImage(f"{error}{NAMED_AFTER if is_named else ''}") from error
    if others and series is None:
        remarks.append(Remark(OTHERS, -1, ", ".join(others)))
    order = ordered(best)
    remarks += [Remark(UNUSED, one.part, why) for one, why in (*copies, *order.left_out)]
    if order.missing:
        remarks.append(Remark(MISSING, -1, f"{order.missing} of {len(order.slices) + order.missing}"))
    if is_named:
        remarks.append(Remark(IDENTIFYING, -1, ""))
    remarks += _named_files(source, who)
    digest.update(repr(remarks).encode())
    return Plan(order.slices, tuple(remarks), digest.digest())


def _named_files(source: PatientFiles, who: set[str]) -> list[Remark]:
    """Files whose own name, or that of a folder inside the patient's, says who the patient is."""
    parts = range(len(source.paths))
    return [Remark(IDENTIFYING, part, "") for part in parts if says_who(source.inside(part), who)]
