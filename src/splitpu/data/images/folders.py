"""Folders of images or patients -> training and test rows, with an account of every file that was left out.

Rows may be labelled by their folder, or by a CSV of file names and labels.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np

from splitpu.data.images.cache import DecodedImages, decoded_images
from splitpu.data.images.decode import SUFFIXES, BadImage, ImageSpec, decode, read_header, require_pillow
from splitpu.data.images.scan import (
    Accounted,
    ImageReader,
    Reader,
    RowFile,
    RowSpec,
    Side,
    Skipped,
    bad_ones,
    find_images,
    kinds_of,
    leak_in_words,
    readable_name,
    refuse_first,
    refuse_too_many,
    skipped_in_words,
)
from splitpu.data.leakage import TrainingFiles, seen_in_words
from splitpu.data.preprocessing import BYTE_SCALE
from splitpu.data.public.datasets import NAMED_SETS
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import (
    TABLE_OPTIONS,
    EvaluationRows,
    LoadedData,
    LoadOptions,
    NewRows,
    RowForm,
    Source,
    SourceWords,
    absolute,
)
from splitpu.data.volumes.reader import VolumeReader, holds_volumes, is_nifti
from splitpu.data.volumes.spec import VolumeSpec
from splitpu.errors import InputError
from splitpu.types import Array, Mask, Watch
from splitpu.utils.files import ends_in
from splitpu.utils.text import composed, listed

_MEANINGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "-1": False, "false": False, "": False}


@dataclass(frozen=True)
class FileLabels:
    """What a file says of some rows: whether they are labelled positive."""

    where: str  # the file, for messages
    labels: list[tuple[str, bool]]

    @classmethod
    def read(cls, path: Path) -> "FileLabels":
        """Read such a file."""
        return cls(str(path), read_labels(path))

    def added_to(self, from_positives: Mask, files: Sequence[RowFile], skipped: Sequence[Skipped]) -> Mask:
        """Add the positives that it names; what it calls 0 must not lie among the positives."""
        labelled = from_positives.copy()
        positions = _positions_by_name(files)
        unknown: list[str] = []
        lost: list[Skipped] = []
        said: dict[int, bool] = {}
        for name, positive in self.labels:
            places = positions.get(composed(name)) or _with_more_folders(composed(name), positions, files)
            if len(places) > 1:
                raise InputError(
                    f"{name!r} in {self.where} is the name of {len(places)} images: write their folders too."
                )
            if not places:
                left_out = [entry for entry in skipped if _ends_alike(entry.name, name)]
                unknown += [] if left_out else [name]
                lost += bad_ones(left_out)[:1] if positive else []
            elif said.setdefault(places[0], positive) != positive:
                raise InputError(f"{self.where} gives {name!r} both labels: keep one of the lines.")
            elif positive:
                labelled[places[0]] = True
            elif from_positives[places[0]]:
                raise InputError(f"{self.where} calls {name!r} unlabelled, but it lies among the positives.")
        if unknown:
            raise InputError(
                f"{self.where} names files that are not among the images in the folders, {len(unknown)} in all "
                f"({listed(unknown)}): every line is name,label with the name of a file in there{_example(files)}."
            )
        named = sum(positive for _, positive in self.labels)
        refuse_too_many(Side(f"{self.where} with label 1", named, lost), "files named")
        return labelled


def _positions_by_name(files: Sequence[RowFile]) -> dict[str, list[int]]:
    """Every way to write a file: its name alone, or with any number of the folders it lies in."""
    positions: dict[str, list[int]] = {}
    for position, file in enumerate(files):
        parts = composed(file.given_name).split("/")
        for start in range(len(parts)):
            positions.setdefault("/".join(parts[start:]), []).append(position)
    return positions


def _with_more_folders(name: str, positions: Mapping[str, list[int]], files: Sequence[RowFile]) -> list[int]:
    """Where a name leads that has more of the file's path than was given to us, as the scores of a run may have it."""
    parts = name.removeprefix("./").lstrip("/").split("/")
    whole = "/".join(parts)
    for start in range(1, len(parts)):
        places = positions.get("/".join(parts[start:]), [])
        found = [place for place in places if _ends_alike(readable_name(files[place].path, 0), whole)]
        if found:
            return found
    return []


def _ends_alike(one: str, other: str) -> bool:
    """Whether one path is the end of the other, however its letters are put together.

    >>> _ends_alike("scans/a.png", "a.png"), _ends_alike("scans/a.png", "na.png")
    (True, False)
    """
    one, other = f"/{composed(one)}", f"/{composed(other)}"
    return one.endswith(other) or other.endswith(one)


def _example(files: Sequence[RowFile]) -> str:
    """What such a name looks like, unless it says who a patient is."""
    plain = next((file.name for file in files if file.name == file.given_name), None)
    return f", such as {plain}" if plain else ""


def read_labels(path: Path) -> list[tuple[str, bool]]:
    """A CSV of name and label, or of two columns without heading: 1 = positive, 0 or nothing = unlabelled."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(first))
            # Rows of nothing are what spreadsheets keep; line_num also counts line breaks in cells.
            lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path} cannot be read as a CSV of names and labels ({reason}).") from error
    heading = _words(lines[0][1]) if lines else []
    has_heading = _is_heading(heading)
    name_at, label_at = (heading.index("name"), heading.index("label")) if has_heading else (0, 1)
    labels = []
    for number, line in lines[has_heading:]:
        name = line[name_at].strip() if len(line) > name_at else ""
        label = line[label_at].strip().lower() if len(line) > label_at else ""
        if label not in _MEANINGS or not name:
            raise InputError(
                f"line {number} of {path} is not a name and a label: write name,label with 1 = labelled positive and "
                "0 or nothing = unlabelled."
            )
        labels.append((name.replace("\\", "/"), _MEANINGS[label]))
    return labels


def _delimiter(first: str) -> str:
    """A semicolon, as spreadsheets write it where the comma is the decimal sign; names themselves may hold either.

    >>> _delimiter("name;label;seen, by"), _delimiter("a.png;1"), _delimiter("a;b.png,1"), _delimiter("name,label")
    (';', ';', ',', ',')
    """
    parts_heading = _is_heading(_words(next(csv.reader([first], delimiter=";"), [])))
    return ";" if parts_heading or (first.count(";") == 1 and "," not in first) else ","


def _words(cells: Sequence[str]) -> list[str]:
    return [cell.strip().lower() for cell in cells]


def _is_heading(words: Sequence[str]) -> bool:
    return {"name", "label"} <= set(words)


SMALLEST_SIDE, LARGEST_SIDE = 4, 2048


@dataclass(frozen=True, kw_only=True)
class FolderSource(Source):
    """Which folders hold what; images or patients, which is found out when they are read."""

    positives: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    test: tuple[str, ...] = ()  # positives, negatives
    labels: str | None = None  # a CSV of names and labels: 1 = labelled positive
    size: tuple[int, int] | None = None  # height and width; None = chosen from the images
    strict: bool = False
    series: str | None = None  # of volumes: part of the description of the series to take
    slices: int | None = None  # of volumes: the most slices of one

    key: ClassVar[str] = "folders"
    rows_are_files: ClassVar[bool] = True

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "FolderSource | None":
        """Folders in --positives and --unlabelled; one as DATA is of unlabelled images."""
        data, positives = words.data, list(words.positives or [])
        if not (positives or words.unlabelled or (data is not None and Path(data).is_dir())):
            return None
        nothing_labelled = not positives and words.labels is None
        if model is not None and data is not None and Path(data).is_dir() and nothing_labelled:
            raise InputError(
                f"nothing says which images in {data} are positive: give --test POSITIVES NEGATIVES if it is known, "
                "else --positives and --unlabelled."
            )
        words.refuse(TABLE_OPTIONS, "for tables; image folders take --labels names.csv.")
        words.refuse_labelled("what lies in --positives")
        _refuse_data_beside_folders(words)
        unlabelled, test = words.unlabelled_side, list(words.test or [])
        for folder in [*positives, *unlabelled, *test]:
            if not Path(folder).is_dir():
                wrong = "is not a folder" if Path(folder).exists() else "does not exist"
                raise InputError(f"the folder {folder} {wrong}: give folders that hold images.")
        if not unlabelled:
            raise InputError("--positives names folders, so --unlabelled has to name the folders of the other images.")
        if not positives and words.labels is None:
            raise InputError(
                "no image is labelled: give --positives FOLDER, or --labels names.csv with name and label."
            )
        if words.test is not None and len(test) != 2:
            raise InputError(f"--test takes two folders, of positives and of negatives, but got {len(test)}.")
        if words.slices is not None and words.slices < 1:
            raise InputError(f"--slices {words.slices} leaves nothing of a volume: give 1 or more.")
        return cls(
            scenario=words.scenario,
            positives=absolute(positives),
            unlabelled=absolute(unlabelled),
            test=absolute(test),
            labels=None if words.labels is None else str(Path(words.labels).resolve()),
            size=parse_size(words.size),
            strict=bool(words.strict),
            series=words.series,
            slices=words.slices,
        )

    @classmethod
    def advice(cls, word: str) -> str:
        """One image or one patient says nothing about labels."""
        if ends_in(word, *SUFFIXES):
            return f"{word} is one image: give folders of images with --positives and --unlabelled."
        return f"{word} is one NIfTI file: give folders of them with --positives and --unlabelled." * is_nifti(word)

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders of both sides and of the test, and the file of labels."""
        labels = () if self.labels is None else (self.labels,)
        return *self.positives, *self.unlabelled, *self.test, *labels

    @property
    def training_folders(self) -> tuple[str, ...]:
        """Those of both sides."""
        return *self.positives, *self.unlabelled

    @property
    def where(self) -> str:
        """The folders of both sides."""
        return " and ".join(self.training_folders)

    @property
    def title(self) -> str:
        """The name of the first folder, which may hold a dot."""
        return Path(self.paths[0]).name or "images"

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """All images or volumes; the model's own are brought into its form by the way they were read."""
        spec = None if model is None or how.get("own_rows") else row_spec(model, self.where)
        found = read_folders(self, how.get("watch"), spec)
        train, test = found.train, found.test
        data = PUData.from_arrays(
            train.pixels, found.labelled, scenario=self.scenario, names=train.names, channels="last"
        )
        held_out = None
        if test is not None and found.test_truth is not None:
            held_out = HeldOut.from_arrays(test.pixels, found.test_truth, channels="last")
        return LoadedData(
            data=data,
            held_out=held_out,
            description=self.where,
            inputs={"kind": train.spec.kind, **train.spec.to_dict()},
            skipped=found.skipped,
            duplicates=found.duplicates,
            warnings=found.warnings,
            made_from=train.made_from,
        )

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        """The files of a folder, or one image."""
        if path.is_dir():
            found = read_images([path], spec=row_spec(model, path), strict=strict, watch=watch)
            return NewRows(found.pixels, found.names, tuple(found.files), found.skipped, tuple(found.in_words("given")))
        if ends_in(path, *SUFFIXES):
            return _one_image(model, path)
        if is_nifti(str(path)):
            raise InputError(f"{path} is one NIfTI file: give the folder that it is in.")
        return None

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """Two folders in --test, of positives and of negatives."""
        if words.test is None or len(words.test) != 2:
            return None
        where, folders = " and ".join(words.test), absolute(words.test)
        rows, truth = read_test_folders(folders, row_spec(model, where), strict=words.strict, watch=watch)
        tested = HeldOut.from_arrays(rows.pixels, truth, channels="last")
        said = tuple(rows.in_words("test"))
        return EvaluationRows(where=where, tested=tested, warnings=said, folders=folders, skipped=rows.skipped)

    def evaluation_rows(self, loaded: LoadedData, *, trained_on: bool) -> EvaluationRows:
        """With the folders, as files are compared where pixels are not."""
        rows = super().evaluation_rows(loaded, trained_on=trained_on)
        return replace(rows, folders=self.training_folders, skipped=loaded.skipped)

    def seen_in_training(self, rows: EvaluationRows, model: RowForm) -> list[str]:
        """Files are compared: pixels of two sizes never are equal."""
        trained = [folder for folder in self.training_folders if Path(folder).is_dir()]
        if not trained or not rows.folders:
            return []  # moved away, or of another kind: nothing can be said
        spec = row_spec(model, rows.where)
        try:
            known = TrainingFiles([file.path for file in reader_for(trained, spec).find(trained).files])
            without_row = {one.name for one in rows.skipped}
            found = reader_for(rows.folders, spec).find(rows.folders).files
            files = [(file.folder, file.path in known) for file in found if file.name not in without_row]
        except OSError:
            return []
        by_folder = [[seen for place, seen in files if place == number] for number in range(len(rows.folders))]
        places = zip(by_folder, rows.folders, strict=True)
        return seen_in_words([(sum(seen), len(seen), f"{spec.kind} in {folder}") for seen, folder in places])


def _refuse_data_beside_folders(words: SourceWords) -> None:
    """A folder as DATA is one of unlabelled images; a file or a named set says by itself which rows are labelled."""
    data = words.data
    if data is None or Path(data).is_dir():
        return
    option = "--positives" if words.positives else "--unlabelled"
    if data in NAMED_SETS:
        raise InputError(
            f"{data} is a named set, which {option} does not go with: say with --labelled 50, for example, how many of "
            "its positives are labelled."
        )
    if Path(data).is_file():
        raise InputError(
            f"{data} is a file, and {option} names folders, which do not go together: give either the file alone, or "
            "folders with --positives and --unlabelled."
        )


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Height and width: one number for a square, or two.

    >>> parse_size("64"), parse_size("48x64")
    ((64, 64), (48, 64))
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if not (1 <= len(sides) <= 2 and all(side.isascii() and side.isdigit() for side in sides)):
        raise InputError(f"--size {text} is not a size: give one number such as 64, or height x width such as 48x64.")
    height, width = int(sides[0]), int(sides[-1])
    if not all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in (height, width)):
        raise InputError(f"--size {text} is out of range: sides from {SMALLEST_SIDE} to {LARGEST_SIDE} can be used.")
    return height, width


def row_spec(model: RowForm, path: str | Path) -> RowSpec:
    """The form that image files must be brought into; a model trained on arrays of bytes tells it by their shape."""
    preprocessing, inputs = model.preprocessing, model.inputs or {}
    if preprocessing.kind == "volumes":
        if inputs.get("kind") != "volumes":
            raise InputError(f"the model was trained on arrays of volumes, not on files as in {path}: give it a .npz.")
        slices, height, width, _ = preprocessing.shape
        return VolumeSpec(slices, height, width, inputs.get("series"))
    if preprocessing.kind != "images":
        wanted = "a table with its columns" if inputs.get("kind") == "table" else "arrays (.npz, .npy)"
        raise InputError(
            f"the model was trained on rows of {preprocessing.shape[0]} features, not on files as in {path}: give it "
            f"{wanted}."
        )
    height, width, channels = preprocessing.shape
    depth = inputs.get("depth") if inputs.get("kind") == "images" else 8 if preprocessing.scale == BYTE_SCALE else None
    if depth not in (8, 16) or channels not in (1, 3):
        raise InputError(f"the model was trained on arrays that files in {path} cannot be turned into: give it a .npz.")
    return ImageSpec(height, width, channels, depth)


def _one_image(model: RowForm, path: Path) -> NewRows:
    spec = row_spec(model, path)
    if not isinstance(spec, ImageSpec):
        raise InputError(f"{path} is one image, but the model was trained on volumes: give it a folder of patients.")
    require_pillow()
    if not path.exists():
        raise InputError(f"{path} does not exist: check the path.")
    try:
        read_header(path)  # finds what decoding would not
        return NewRows(decode(path, spec)[None], (path.name,))
    except BadImage as error:
        raise InputError(f"{path} {error}.") from error


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
