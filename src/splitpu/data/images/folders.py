"""Folders of images or patients, or a CSV of names and labels -> rows, with an account of every file left out."""

import csv
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from splitpu.data.images import scan
from splitpu.data.images.cache import DecodedImages, Reader, RowSpec, decoded_images
from splitpu.data.images.decode import SUFFIXES, BadImage, ImageSpec, decode, read_header, require_reader_of
from splitpu.data.leakage import TrainingFiles, seen_in_words
from splitpu.data.preprocessing import BYTE_SCALE
from splitpu.data.public.datasets import NAMED_SETS
from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, NewRows, RowForm, Source, SourceWords
from splitpu.data.volumes.reader import VolumeReader, holds_volumes, is_nifti
from splitpu.data.volumes.spec import VolumeSpec
from splitpu.errors import InputError
from splitpu.types import Array, Mask, Watch
from splitpu.utils.files import absolute, ends_in
from splitpu.utils.reading import as_text, open_regular, short_lines
from splitpu.utils.text import composed, listed

_MEANINGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "-1": False, "false": False, "": False}
SMALLEST_SIDE, LARGEST_SIDE = 4, 2048


def read_labels(path: Path) -> list[tuple[str, bool]]:
    """A CSV of name and label, or of two columns without heading: 1 = positive, 0 or nothing = unlabelled."""

    def heading_in(cells: Sequence[str]) -> list[str]:
        words = [cell.strip().lower() for cell in cells]
        return words if {"name", "label"} <= set(words) else []

    try:
        with open_regular(path) as raw, as_text(raw) as file:
            first = next(short_lines(file), "")
            file.seek(0)
            # Spreadsheets write semicolons where the comma is the decimal sign; names themselves may hold either.
            by_semicolon = first.count(";") == 1 and "," not in first
            by_semicolon = by_semicolon or bool(heading_in(next(csv.reader([first], delimiter=";"), [])))
            reader = csv.reader(short_lines(file), delimiter=";" if by_semicolon else ",")
            # Rows of nothing are what spreadsheets keep; line_num also counts line breaks in cells.
            lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path} cannot be read as a CSV of names and labels ({reason}).") from error
    heading = heading_in(lines[0][1]) if lines else []
    name_at, label_at = (heading.index("name"), heading.index("label")) if heading else (0, 1)
    labels = []
    for number, line in lines[bool(heading) :]:
        name = line[name_at].strip() if len(line) > name_at else ""
        label = line[label_at].strip().lower() if len(line) > label_at else ""
        if label not in _MEANINGS or not name:
            wanted = "write name,label with 1 = labelled positive and 0 or nothing = unlabelled"
            raise InputError(f"line {number} of {path} is not a name and a label: {wanted}.")
        labels.append((name.replace("\\", "/"), _MEANINGS[label]))
    return labels


def _with_labels(labels: Sequence[tuple[str, bool]], where: str, from_positives: Mask, rows: "ImageRows") -> Mask:
    """Add the positives that the file `where` names; what it calls unlabelled must not lie among the positives."""
    labelled = from_positives.copy()
    positions: dict[str, list[int]] = {}  # by every way to write a file: its name, with any number of its folders
    for position, file in enumerate(rows.files):
        parts = composed(file.given_name).split("/")
        for start in range(len(parts)):
            positions.setdefault("/".join(parts[start:]), []).append(position)

    def places_of(name: str) -> list[int]:
        """Names may have more of the file's path than was given to us, as in the scores of a run."""
        parts = name.removeprefix("./").lstrip("/").split("/")
        found = positions.get(name, [])
        for start in range(1, len(parts)):
            if found:
                break
            there = positions.get("/".join(parts[start:]), [])
            found = [at for at in there if _ends_alike(scan.readable_name(rows.files[at].path, 0), "/".join(parts))]
        return found

    unknown: list[str] = []
    lost: list[scan.Skipped] = []
    said: dict[int, bool] = {}
    for name, positive in labels:
        places = places_of(composed(name))
        if len(places) > 1:
            raise InputError(f"{name!r} in {where} is the name of {len(places)} images: write their folders too.")
        if not places:
            left_out = [entry for entry in rows.skipped if _ends_alike(entry.name, name)]
            unknown += [] if left_out else [name]
            lost += scan.bad_ones(left_out)[:1] if positive else []
        elif said.setdefault(places[0], positive) != positive:
            raise InputError(f"{where} gives {name!r} both labels: keep one of the lines.")
        elif positive:
            labelled[places[0]] = True
        elif from_positives[places[0]]:
            raise InputError(f"{where} calls {name!r} unlabelled, but it lies among the positives.")
    if unknown:
        # An example, unless it says who a patient is.
        plain = next((f", such as {file.name}" for file in rows.files if file.name == file.given_name), "")
        names = f"{where} names files that are not among the images in the folders"
        wanted = f"every line is name,label with the name of a file in there{plain}"
        raise InputError(f"{names}, {len(unknown)} in all ({listed(unknown)}): {wanted}.")
    scan.refuse_too_many(lost, sum(positive for _, positive in labels), "files named", f"{where} with label 1")
    return labelled


def _ends_alike(one: str, other: str) -> bool:
    """Whether one path is the end of the other, however its letters are put together."""
    one, other = f"/{composed(one)}", f"/{composed(other)}"
    return one.endswith(other) or other.endswith(one)


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
        if model is not None and data is not None and Path(data).is_dir() and not positives and words.labels is None:
            known = "give --test POSITIVES NEGATIVES if it is known, else --positives and --unlabelled"
            raise InputError(f"nothing says which images in {data} are positive: {known}.")
        words.refuse(words.TABLE_OPTIONS, "for tables; image folders take --labels names.csv.")
        words.refuse_labelled("what lies in --positives")
        option = "--positives" if positives else "--unlabelled"
        if data is not None and data in NAMED_SETS and not Path(data).is_dir():
            instead = "say with --labelled 50, for example, how many of its positives are labelled"
            raise InputError(f"{data} is a named set, which {option} does not go with: {instead}.")
        if data is not None and Path(data).is_file():
            instead = "give either the file alone, or folders with --positives and --unlabelled"
            raise InputError(f"{data} is a file, and {option} names folders, which do not go together: {instead}.")
        unlabelled, test = words.unlabelled_side, list(words.test or [])
        for folder in [*positives, *unlabelled, *test]:
            if not Path(folder).is_dir():
                wrong = "is not a folder" if Path(folder).exists() else "does not exist"
                raise InputError(f"the folder {folder} {wrong}: give folders that hold images.")
        if not unlabelled:
            raise InputError("--positives names folders, so --unlabelled has to name the folders of the other images.")
        if not positives and words.labels is None:
            raise InputError("no image is labelled: give --positives FOLDER, or --labels names.csv with name, label.")
        if words.test is not None and len(test) != 2:
            raise InputError(f"--test takes two folders, of positives and of negatives, but got {len(test)}.")
        if words.slices is not None and words.slices < 1:
            raise InputError(f"--slices {words.slices} leaves nothing of a volume: give 1 or more.")
        return cls(
            scenario=words.scenario,
            positives=absolute(positives),
            unlabelled=absolute(unlabelled),
            test=absolute(test),
            labels=None if words.labels is None else os.path.realpath(words.labels),
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
        return self.folders if self.labels is None else (*self.folders, self.labels)

    @property
    def folders(self) -> tuple[str, ...]:
        return *self.training_folders, *self.test

    @property
    def training_folders(self) -> tuple[str, ...]:
        return *self.positives, *self.unlabelled

    @property
    def where(self) -> str:
        return " and ".join(self.training_folders)

    @property
    def title(self) -> str:
        """The name of the first folder, which may hold a dot."""
        return Path(self.paths[0]).name or "images"

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """All images or volumes; the model's own are brought into its form by the way they were read."""
        spec = None if model is None or how.get("own_rows") else row_spec(model, self.where)
        return read_folders(self, how.get("watch"), spec)

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        if path.is_dir():
            found = read_images([path], spec=row_spec(model, path), strict=strict, watch=watch)
            return NewRows(found.pixels, found.names, tuple(found.files), found.skipped, tuple(found.in_words("given")))
        if is_nifti(str(path)):
            raise InputError(f"{path} is one NIfTI file: give the folder that it is in.")
        if not ends_in(path, *SUFFIXES):
            return None
        spec = row_spec(model, path)
        if not isinstance(spec, ImageSpec):
            raise InputError(f"{path} is one image, but the model was trained on volumes: give a folder of patients.")
        require_reader_of("image")
        if not path.exists():
            raise InputError(f"{path} does not exist: check the path.")
        try:
            read_header(path)  # finds what decoding would not
            return NewRows(decode(path, spec)[None], (path.name,))
        except BadImage as error:
            raise InputError(f"{path} {error}.") from error

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """Two folders in --test, of positives and of negatives."""
        if words.test is None or len(words.test) != 2:
            return None
        where, folders = " and ".join(words.test), absolute(words.test)
        rows, tested = read_test_folders(folders, row_spec(model, where), strict=words.strict, watch=watch)
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


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Height and width: one number for a square, or two."""
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
        rows = f"rows of {preprocessing.shape[0]} features"
        raise InputError(f"the model was trained on {rows}, not on files as in {path}: give it {wanted}.")
    height, width, channels = preprocessing.shape
    depth = inputs.get("depth") if inputs.get("kind") == "images" else 8 if preprocessing.scale == BYTE_SCALE else None
    if depth not in (8, 16) or channels not in (1, 3):
        raise InputError(f"the model was trained on arrays that files in {path} cannot be turned into: give it a .npz.")
    return ImageSpec(height, width, channels, depth)


@dataclass(frozen=True, eq=False)
class ImageRows:
    """The images or volumes of some folders, in order."""

    pixels: Array
    files: tuple[scan.RowFile, ...]  # one a row
    checksums: Array  # of the pixels, one a row
    spec: RowSpec
    skipped: tuple[scan.Skipped, ...]
    warnings: tuple[str, ...]  # about what the rows were made from
    made_from: str  # what sizes the files had, in words; nothing if all had the one they have now

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)

    def in_words(self, which: str) -> list[str]:
        """All there is to say about the files: how they became rows, and which of them are not used."""
        return [*self.warnings, *scan.skipped_in_words(self.skipped, which, self.spec.kind)]


def read_folders(source: FolderSource, watch: Watch | None = None, spec: RowSpec | None = None) -> LoadedData:
    """Read every image, in the given form; the test images are brought into the form of the training images."""
    places = [(one, Path(os.path.realpath(one))) for one in source.folders]
    for (folder, inner), (other, outer) in permutations(places, 2):
        if inner == outer or outer in inner.parents:
            how = "is the same folder as" if inner == outer else "lies inside"
            raise InputError(f"{folder} {how} {other}, so its images would count twice: give folders that lie apart.")
    labels = None if source.labels is None else read_labels(Path(source.labels))
    folders, positives = source.training_folders, len(source.positives)
    reader = reader_for(folders, spec, series=source.series, slices=source.slices)
    how_read: dict[str, Any] = {"strict": source.strict, "watch": watch}
    train = read_images(folders, positives=positives, reader=reader, spec=spec, size=source.size, **how_read)
    labelled = np.array([file.folder < positives for file in train.files], dtype=np.bool_)
    if labels is not None:
        labelled = _with_labels(labels, str(source.labels), labelled, train)
    if labelled.all() or not labelled.any():
        side, empty = ("unlabelled", source.unlabelled) if labelled.any() else ("labelled positive", source.positives)
        where = f" in {' and '.join(empty)}" if empty else ""
        raise InputError(f"there are no {side} {reader.looked_for}{where}: both kinds are needed.")
    test, held_out = read_test_folders(source.test, train.spec, **how_read) if source.test else (None, None)
    known, others = np.flatnonzero(labelled), np.flatnonzero(~labelled)
    leaks = _in_common(train, known, train, others)
    into_test = _in_common(train, np.arange(len(labelled)), test, np.arange(len(test.files))) if test else []
    # Who names the form has a model already, which is judged by these rows and was trained on others.
    warnings = train.in_words("training" if spec is None else "given") + (test.in_words("test") if test else [])
    for pairs, where, advice in (
        (leaks, "both labelled positive and unlabelled", "keep each of them on one side only"),
        (into_test, "in both the training and the test folders", "the test figures flatter the model"),
    ):
        if pairs:
            what = "patient" if isinstance(train.spec, VolumeSpec) else "picture"
            are = f"{what}s are" if len(pairs) > 1 else f"{what} is"
            shown = [f"{first} = {second}" for first, second in pairs]
            warnings.append(f"{len(pairs):,} {are} {where} ({listed(shown)}): {advice}.")
    data = PUData.from_arrays(train.pixels, labelled, scenario=source.scenario, names=train.names, channels="last")
    return LoadedData(
        data=data,
        held_out=held_out,
        description=source.where,
        inputs={"kind": train.spec.kind, **asdict(train.spec)},
        skipped=train.skipped + (test.skipped if test else ()),
        duplicates=(*leaks, *into_test),
        warnings=tuple(warnings),
        made_from=train.made_from,
    )


def read_test_folders(folders: Sequence[str], spec: RowSpec, **how: Any) -> tuple[ImageRows, HeldOut]:
    """The images of two folders, of positives and of negatives, and which of them are positive."""
    rows = read_images(folders, positives=1, spec=spec, **how)
    return rows, HeldOut.from_arrays(rows.pixels, [file.folder == 0 for file in rows.files], channels="last")


def reader_for(
    folders: Sequence[str | Path], spec: RowSpec | None = None, *, series: str | None = None, slices: int | None = None
) -> Reader:
    """The reader for what lies in the folders, or, where the form is given, for what has that form."""
    if isinstance(spec, VolumeSpec):
        for folder in folders:
            if not holds_volumes([folder]):  # which says so where a patient's own folder is given
                found = scan.find_images([folder])
                if len(found.files) > len(found.skipped):  # it would be taken for a patient without slices
                    raise InputError(f"{folder} holds images, but the model was trained on volumes: give patients.")
        return VolumeReader(spec.series, slices, series_is_settled=True)
    if spec is None and holds_volumes(folders):
        return VolumeReader(series, slices)
    for option, given in (("--series", series), ("--slices", slices)):
        if given is not None:
            where = " and ".join(map(str, folders))
            raise InputError(f"{option} is for volumes, and there are no DICOM or NIfTI files in {where}.")
    return scan.ImageReader()


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
    tenth would be all."""
    reader = reader or reader_for(folders, spec)
    found = reader.find(folders)
    broken = scan.bad_ones(found.skipped)
    where = " and ".join(map(str, folders))
    if not found.files:
        instead = f", only {scan.kinds_of(found.skipped)}" if found.skipped else ""
        raise InputError(f"there are no {reader.looked_for} in {where}{instead}: give the folders that hold them.")

    def decode_those(files: Sequence[scan.RowFile]) -> tuple[DecodedImages, scan.Accounted]:
        decoded = decoded_images(reader, files, spec, size, strict, watch)
        account = reader.account(files, decoded.remarks, decoded.reasons)
        if strict and (bad := scan.bad_ones(account.skipped)):
            scan.refuse_first(bad)
        return decoded, account

    if strict and broken:
        if before := found.files[: broken[0].after]:  # one of these may be the first that is bad
            decode_those(before)
        scan.refuse_first(broken)
    decoded, account = decode_those(found.files)
    undecodable = [(account.files[position], why) for position, why in sorted(decoded.reasons.items())]
    without_row = [*found.skipped, *(scan.Skipped(file.name, why, folder=file.folder) for file, why in undecodable)]
    for side in (range(positives), range(positives, len(folders))):
        count = sum(file.folder in side for file in found.files) + sum(entry.folder in side for entry in broken)
        bad = [entry for entry in scan.bad_ones(without_row) if entry.folder in side]
        scan.refuse_too_many(bad, count, reader.noun, " and ".join(str(folders[number]) for number in side))
    scan.refuse_too_many(scan.bad_ones(account.skipped), account.parts, "files", where)
    sizes = [f"{height} x {width}" for height, width in dict.fromkeys(decoded.sides)]
    made_of = "slices" if decoded.spec.kind == "volumes" else "images"
    as_they_were = sizes == [f"{decoded.spec.height} x {decoded.spec.width}"]
    return ImageRows(
        decoded.pixels,
        tuple(file for position, file in enumerate(account.files) if position not in decoded.reasons),
        decoded.checksums,
        decoded.spec,
        (*without_row, *account.skipped),
        tuple(account.warnings),
        "" if as_they_were else f", made from {made_of} of {' to '.join(sizes)}",
    )


def _in_common(one: ImageRows, some: Array, other: ImageRows, others: Array) -> list[tuple[str, str]]:
    """Names of equal pictures among rows of one and rows of the other, in the order of the latter."""
    sums, other_sums = one.checksums[some], other.checksums[others]
    rows = some[np.isin(sums, other_sums)].tolist()
    known = {one.checksums[row]: one.files[row].name for row in reversed(rows)}
    shared = others[np.isin(other_sums, sums)].tolist()
    return [(known[other.checksums[row]], other.files[row].name) for row in shared]
