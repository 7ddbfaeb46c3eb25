"""Folders of image files -> training and test rows, with an account of every file that was left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from splitpu.data.chunks import Array
from splitpu.data.file_labels import FileLabels
from splitpu.data.file_words import kinds_of, leak_in_words, skipped_in_words
from splitpu.data.image_cache import DecodedImages, decoded_images
from splitpu.data.image_reader import ImageReader
from splitpu.data.readers import Accounted, Reader, RowFile, RowSpec, Watch
from splitpu.data.scanning import Skipped, find_images
from splitpu.data.unusable import Side, bad_ones, refuse_first, refuse_too_many
from splitpu.data.volumes import VolumeReader, VolumeSpec, holds_volumes
from splitpu.errors import InputError
from splitpu.labels import Mask


@dataclass(frozen=True, kw_only=True)
class FolderSource:
    """Which folders hold what."""

    positives: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    test: tuple[str, ...] = ()  # positives, negatives
    labels: str | None = None  # a CSV of names and labels: 1 = labelled positive
    size: tuple[int, int] | None = None  # height and width; None = chosen from the images
    strict: bool = False
    series: str | None = None  # of volumes: part of the description of the series to take
    slices: int | None = None  # of volumes: the most slices of one


@dataclass(frozen=True, eq=False)
class ImageRows:
    """The images or volumes of some folders, in order."""

    pixels: Array
    files: tuple[RowFile, ...]  # one a row
    checksums: Array  # of the pixels, one a row
    spec: RowSpec
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]  # about what the rows were made from
    made_from: str  # what sizes the files had, in words; nothing if all had the one they have now

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the rows are called."""
        return tuple(file.name for file in self.files)

    def in_words(self, which: str) -> list[str]:
        """All there is to say about the files: how they became rows, and which of them are not used."""
        return [*self.warnings, *skipped_in_words(self.skipped, which, self.spec.kind)]


@dataclass(frozen=True, eq=False)
class FolderData:
    """All that `splitpu fit` needs to know of its folders."""

    train: ImageRows
    labelled: Mask
    test: ImageRows | None
    test_truth: Mask | None
    duplicates: tuple[tuple[str, str], ...]  # names of equal pictures on two sides that should have none in common
    warnings: tuple[str, ...]

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Everything that was left out, of training and test folders."""
        return self.train.skipped + (self.test.skipped if self.test else ())


def read_folders(source: FolderSource, watch: Watch | None = None, spec: RowSpec | None = None) -> FolderData:
    """Read every image, in the given form; the test images are brought into the form of the training images."""
    _refuse_overlap([*source.positives, *source.unlabelled, *source.test])
    labels = None if source.labels is None else FileLabels.read(Path(source.labels))
    folders = [*source.positives, *source.unlabelled]
    reader = reader_for(folders, spec, series=source.series, slices=source.slices)
    train = read_images(
        folders,
        positives=len(source.positives),
        reader=reader,
        spec=spec,
        size=source.size,
        strict=source.strict,
        watch=watch,
    )
    from_positives = np.array([file.folder < len(source.positives) for file in train.files], dtype=np.bool_)
    labelled = from_positives if labels is None else labels.added_to(from_positives, train.files, train.skipped)
    _refuse_empty_side(labelled, source, reader)
    test, test_truth = None, None
    if source.test:
        test, test_truth = read_test_folders(source.test, train.spec, strict=source.strict, watch=watch)
    leaks = _equal_pictures(train, labelled)
    leaks_into_test = _equal_in_both(train, test) if test else []
    what = "patient" if isinstance(train.spec, VolumeSpec) else "picture"
    warnings = [
        # Who names the form has a model already, which is judged by these rows and was trained on others.
        *train.in_words("training" if spec is None else "given"),
        *(test.in_words("test") if test else []),
        *leak_in_words(leaks, what, "both labelled positive and unlabelled", "keep each of them on one side only"),
        *leak_in_words(
            leaks_into_test, what, "in both the training and the test folders", "the test figures flatter the model"
        ),
    ]
    return FolderData(train, labelled, test, test_truth, (*leaks, *leaks_into_test), tuple(warnings))


def read_test_folders(
    folders: Sequence[str], spec: RowSpec, *, strict: bool = False, watch: Watch | None = None
) -> tuple[ImageRows, Mask]:
    """The images of two folders, of positives and of negatives, and which of them are positive."""
    rows = read_images(folders, positives=1, spec=spec, strict=strict, watch=watch)
    return rows, np.array([file.folder == 0 for file in rows.files], dtype=np.bool_)


def reader_for(
    folders: Sequence[str | Path],
    spec: RowSpec | None = None,
    *,
    series: str | None = None,
    slices: int | None = None,
) -> Reader:
    """The reader for what lies in the folders, or, where the form is given, for what has that form."""
    if isinstance(spec, VolumeSpec):
        _refuse_pictures(folders)
        return VolumeReader(spec.series, slices, series_is_settled=True)
    if spec is None and holds_volumes(folders):
        return VolumeReader(series, slices)
    for option, given in (("--series", series), ("--slices", slices)):
        if given is not None:
            where = " and ".join(str(folder) for folder in folders)
            raise InputError(f"{option} is for volumes, and there are no DICOM or NIfTI files in {where}.")
    return ImageReader()


def read_images(
    folders: Sequence[str | Path],
    *,
    positives: int = 0,
    reader: Reader | None = None,
    spec: RowSpec | None = None,
    size: tuple[int, int] | None = None,
    strict: bool = False,
    watch: Watch | None = None,
) -> ImageRows:
    """All images or volumes in the folders. Bad files are skipped up to a share of a tenth, or refused if `strict`.

    The first folders, as many as `positives` says, are a side of their own: few files among many others, of which the
    tenth would be all.
    """
    reader = reader or reader_for(folders, spec)
    found = reader.find(folders)
    broken = bad_ones(found.skipped)
    where = " and ".join(str(folder) for folder in folders)
    if not found.files:
        instead = f", only {kinds_of(found.skipped)}" if found.skipped else ""
        raise InputError(f"there are no {reader.looked_for} in {where}{instead}: give the folders that hold them.")
    if strict and broken:
        before = found.files[: broken[0].after]  # one of these may be the first that is bad
        if before:
            _decoded(reader, before, spec, size, strict, watch)
        refuse_first(broken)
    decoded, account = _decoded(reader, found.files, spec, size, strict, watch)
    without_row = [*found.skipped, *_undecodable(account.files, decoded)]
    for side in _sides(folders, positives, found.files, broken, bad_ones(without_row)):
        refuse_too_many(side, reader.noun)
    refuse_too_many(Side(where, account.parts, bad_ones(account.skipped)), "files")
    return ImageRows(
        decoded.pixels,
        tuple(decoded.rows_of(account.files)),
        decoded.checksums,
        decoded.spec,
        (*without_row, *account.skipped),
        tuple(account.warnings),
        _made_from(decoded),
    )


def _decoded(
    reader: Reader,
    files: Sequence[RowFile],
    spec: RowSpec | None,
    size: tuple[int, int] | None,
    strict: bool,
    watch: Watch | None,
) -> tuple[DecodedImages, Accounted]:
    """The rows, and the words about what they were made from."""
    decoded = decoded_images(files, reader=reader, spec=spec, size=size, strict=strict, watch=watch)
    account = reader.account(files, decoded.remarks, decoded.reasons)
    if strict and bad_ones(account.skipped):
        refuse_first(bad_ones(account.skipped))
    return decoded, account


def _made_from(decoded: DecodedImages) -> str:
    smallest, largest = decoded.sides
    if smallest == largest == (decoded.spec.height, decoded.spec.width):
        return ""
    sizes = [f"{height} x {width}" for height, width in dict.fromkeys(decoded.sides)]
    made_of = "slices" if decoded.spec.kind == "volumes" else "images"
    return f", made from {made_of} of {' to '.join(sizes)}"


def _undecodable(files: Sequence[RowFile], decoded: DecodedImages) -> list[Skipped]:
    reasons = sorted(decoded.reasons.items())
    return [Skipped(files[position].name, why, folder=files[position].folder) for position, why in reasons]


def _sides(
    folders: Sequence[str | Path],
    positives: int,
    files: Sequence[RowFile],
    broken: Sequence[Skipped],
    bad: Sequence[Skipped],
) -> list[Side]:
    """What is bad in the folders of each side; `broken` are those of the bad ones that are not among the files."""
    sides = []
    for numbers in (range(positives), range(positives, len(folders))):
        count = sum(file.folder in numbers for file in files) + sum(entry.folder in numbers for entry in broken)
        where = " and ".join(str(folders[number]) for number in numbers)
        sides.append(Side(where, count, [entry for entry in bad if entry.folder in numbers]))
    return sides


def _refuse_pictures(folders: Sequence[str | Path]) -> None:
    """A folder of pictures, given to a model of volumes, would be taken for that of a patient without slices."""
    for folder in folders:
        if not holds_volumes([folder]):  # which says so where one patient's files are given for a folder of patients
            found = find_images([folder])
            if len(found.files) > len(found.skipped):
                raise InputError(
                    f"{folder} holds images, but the model was trained on volumes: give it a folder of patients."
                )


def _refuse_overlap(folders: Sequence[str]) -> None:
    """A folder inside another one would put the same files on both sides."""
    paths = [Path(folder).resolve() for folder in folders]
    for number, inner in enumerate(paths):
        for other, outer in enumerate(paths):
            if number != other and (inner == outer or outer in inner.parents):
                how = "is the same folder as" if inner == outer else "lies inside"
                raise InputError(
                    f"{folders[number]} {how} {folders[other]}, so its images would count twice: give folders that do "
                    "not overlap."
                )


def _refuse_empty_side(labelled: Mask, source: FolderSource, reader: Reader) -> None:
    if labelled.all() or not labelled.any():
        side, folders = ("unlabelled", source.unlabelled) if labelled.any() else ("labelled positive", source.positives)
        where = f" in {' and '.join(folders)}" if folders else ""
        raise InputError(f"there are no {side} {reader.looked_for}{where}: both kinds are needed.")


def _equal_pictures(rows: ImageRows, labelled: Mask) -> list[tuple[str, str]]:
    return _in_common(rows, np.flatnonzero(labelled), rows, np.flatnonzero(~labelled))


def _equal_in_both(train: ImageRows, test: ImageRows) -> list[tuple[str, str]]:
    return _in_common(train, np.arange(len(train.files)), test, np.arange(len(test.files)))


def _in_common(one: ImageRows, some: Array, other: ImageRows, others: Array) -> list[tuple[str, str]]:
    """Names of equal pictures among rows of one and rows of the other, in the order of the latter."""
    sums, other_sums = one.checksums[some], other.checksums[others]
    shared = others[np.isin(other_sums, sums)]
    if not len(shared):
        return []
    rows = some[np.isin(sums, other_sums)].tolist()
    known = {one.checksums[row]: one.files[row].name for row in reversed(rows)}
    return [(known[other.checksums[row]], other.files[row].name) for row in shared.tolist()]
