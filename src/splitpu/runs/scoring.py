"""Scores of more rows than one process should see: the input is cut into parts, each of which is a file of a folder, so
that shards of a job array, workers of a Ray cluster or the same command again go on with the parts that are not there.
Every input has exactly one row in exactly one part, also where it cannot be read."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from splitpu.data.images.decode import SUFFIXES as IMAGES
from splitpu.data.images.decode import BadImage, ImageSpec, require_reader_of
from splitpu.data.images.folders import row_spec
from splitpu.data.images.scan import ImageReader, RowFile, bad_ones, find_images
from splitpu.data.sources import NewRows, read_new_rows
from splitpu.data.tables.read import as_written, read_table, write_rows
from splitpu.engine.hardware import Hardware
from splitpu.engine.stage import Observer
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.model import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import Results
from splitpu.types import Array
from splitpu.utils.files import disk_errors_in_words, ends_in, make_folder
from splitpu.utils.reading import Guarded, checked, read_marked, write_marked, write_sealed
from splitpu.utils.text import listed
from splitpu.utils.warnings import Note

COLUMNS = ("index", "name", "probability", "decision", "why")  # `why` there is no score
PART_ROWS = 4096
_LONGEST_LIST = 1 << 32  # bytes


@dataclass(frozen=True)
class Inputs:
    """What is to be scored: image files, or runs of rows in files of other kinds, each with its number of rows."""

    images: Sequence[RowFile] = ()
    tables: Sequence[tuple[Path, int]] = ()

    @classmethod
    def find(cls, path: Path, model: Model) -> "Inputs":
        """The images of a folder or of a .txt list, the tables of a Parquet dataset, or the rows of one file."""
        if path.is_dir() and (tables := sorted(path.rglob("*.parquet"))):
            return cls(tables=[(table, _rows_in(table, model)) for table in tables])
        if path.is_dir() or ends_in(path, ".txt"):
            if not isinstance(row_spec(model, path), ImageSpec):
                raise InputError(f"{path} holds patients, which are scored in one piece: leave out --shard and --ray")
            require_reader_of("image")
            found = cls(images=_listed_images(path) if path.is_file() else _images_in(path))
        else:
            found = cls(tables=[(path, _rows_in(path, model))])
        if not len(found):
            raise InputError(f"there is nothing to score in {path}: give a folder of images or a list of them")
        return found

    def __len__(self) -> int:
        return len(self.images) + sum(rows for _, rows in self.tables)

    def fingerprint(self) -> str:
        """Of the names, sizes and times of all files."""
        stamps = hashlib.sha256()
        for image in self.images:
            stamps.update(image.stamp.encode(errors="surrogateescape"))
        for table, rows in self.tables:
            about = table.stat()
            stamps.update(f"{table.name}\0{about.st_size}\0{about.st_mtime_ns}\0{rows}\n".encode())
        return stamps.hexdigest()

    def pieces(self, size: int) -> Iterator[tuple[tuple[RowFile, ...], Path | None, range]]:
        """Images, or a table and which of its rows: at most so many each, in their order; none spans two tables."""
        for start in range(0, len(self.images), size):
            yield tuple(self.images[start : start + size]), None, range(0)
        for table, rows in self.tables:
            for start in range(0, rows, size):
                yield (), table, range(start, min(start + size, rows))


@dataclass(frozen=True)
class Part:
    """A unit of the grid: reads its rows, scores them and writes its file, whole or not at all."""

    name: str
    file: Path
    first: int  # number of its first row among all
    model: Path
    device: str
    strict: bool
    images: tuple[RowFile, ...]
    table: Path | None
    rows: range

    def __len__(self) -> int:
        return len(self.images) or len(self.rows)

    def read(self, model: Model) -> tuple[Array, list[str], dict[int, str]]:
        """Features, all names, and of the rows that have no features the reason."""
        if self.table is not None:
            whole = _read_whole(self.table, model)
            names = list(whole.names[self.rows.start : self.rows.stop]) if whole.names else [""] * len(self)
            return whole.features[self.rows.start : self.rows.stop], names, {}
        reader, spec, pixels = ImageReader(), row_spec(model, "the list of images"), []
        reasons: dict[int, str] = {}
        for position, image in enumerate(self.images):
            try:
                reader.header(image.source)  # finds what decoding would not
                pixels.append(reader.decode(image.source, spec)[0])  # type: ignore[arg-type]  # images, as was checked
            except BadImage as error:
                if self.strict:
                    raise InputError(f"{image.name} {error}; remove or repair it, or leave out --strict.") from error
                reasons[position] = str(error)
        features = np.stack(pixels) if pixels else np.empty((0, *model.preprocessing.shape), np.uint8)
        return features, [image.name for image in self.images], reasons

    def run(self, observer: Observer, note: Note) -> int:
        """Give how many rows were written, those without a score included."""
        model = _loaded(self.model)
        features, names, reasons = self.read(model)
        scored = [row for row in range(len(self)) if row not in reasons]
        probabilities, decisions = np.full(len(self), np.nan), [""] * len(self)
        if scored:
            model.preprocessing.check(features, str(self.table or "the images"))
            decision = model.decision(features, Hardware.choose(self.device))
            probabilities[scored] = sigmoid(decision)
            for row, positive in zip(scored, decision > 0, strict=True):
                decisions[row] = str(model.classes[int(positive)])
        shares = [float(f"{share:.6g}") for share in probabilities.tolist()]
        why = [reasons.get(row, "") for row in range(len(self))]
        numbers = range(self.first, self.first + len(self))
        write_rows(self.file, COLUMNS, list(zip(numbers, names, shares, decisions, why, strict=True)))
        write_marked(_mark_of(self.file), Guarded(self.file).checksum().encode())
        return len(self)


class ScoresFolder(Results[Part]):
    """`scoring.json` says what is scored by what, `part-00000.parquet` and so on are the scores (.csv without pyarrow).

    The parts do not depend on how many shards or workers there are, so that any of them can go on."""

    def __init__(self, path: Path) -> None:
        self.path, self.plan_file = path, path / "scoring.json"

    @classmethod
    def planned(cls, path: Path, run: RunFolder, given: Path, inputs: Inputs) -> "ScoresFolder":
        """The folder for these rows and this model, new or as it was left."""
        folder, whole = cls(path), Guarded(run.path / "model.safetensors").checksum()
        plan: dict[str, Any] = {"model": whole, "input": str(given.absolute()), "fingerprint": inputs.fingerprint()}
        plan |= {"rows": len(inputs), "part_rows": PART_ROWS, "parts": sum(1 for _ in inputs.pieces(PART_ROWS))}
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file: name a folder, which will hold the parts of the scores")
        if folder.plan_file.exists():
            before = folder.plan()
            if any(before[name] != value for name, value in plan.items()):
                raise InputError(f"{path} holds scores of other rows or of another model: choose another --out")
            return folder
        if path.is_dir() and any(path.glob("[!.]*")):  # with a dot begin the drafts of other shards
            raise InputError(f"--out {path} is not empty and holds no scores: name a new folder")
        with disk_errors_in_words(path):
            make_folder(path)
        ending = ".csv" if find_spec("pyarrow") is None else ".parquet"
        write_sealed(folder.plan_file, {**plan, "ending": ending})
        return folder

    def plan(self) -> dict[str, Any]:
        """What the parts are to hold together."""
        missing = "it is missing: give the folder that predict --shard has made"
        guarded = Guarded(self.plan_file, "score into a new folder", missing=missing)
        with guarded.understood():
            plan = guarded.sealed()
            if not 0 <= checked(plan["parts"], int, "parts") <= checked(plan["rows"], int, "rows"):
                guarded.refuse("it has more parts than rows")
            checked(plan["ending"], Literal[".csv", ".parquet"], "ending")
            return plan

    def files(self) -> list[Path]:
        """The file of every part, whether it is there or not."""
        plan = self.plan()
        return [self.path / f"part-{number:05}{plan['ending']}" for number in range(plan["parts"])]

    def parts(self, inputs: Inputs, model: Path, *, device: str, strict: bool) -> list[Part]:
        """All parts, as units of a grid."""
        found, first = [], 0
        for piece, file in zip(inputs.pieces(PART_ROWS), self.files(), strict=True):
            found.append(Part(file.stem, file, first, model, device, strict, *piece))
            first += len(found[-1])
        return found

    def find(self, unit: Part) -> int | None:
        """A part that is there with its checksum is whole."""
        return len(unit) if unit.file.exists() and _mark_of(unit.file).exists() else None

    def lines(self) -> Iterator[tuple[Any, ...]]:
        """All rows in order, after a look at whether each is there once."""
        files, expected = self.files(), 0
        if missing := [file.stem for file in files if not file.exists()]:
            lacking = f"{len(missing)} of {len(files)} parts ({listed(missing)})"
            raise InputError(f"{self.path} lacks {lacking}: score these first")
        for guarded in (Guarded(file, "remove it and score it again") for file in files):
            with guarded.understood():
                if read_marked(_mark_of(guarded.path)) != guarded.checksum().encode():
                    guarded.refuse("it is not what was written: it is damaged or was changed")
                columns = read_table(guarded.path).columns
                for row in zip(*(columns[name] for name in COLUMNS), strict=True):
                    if int(row[0]) != expected:
                        guarded.refuse(f"it has row {row[0]} where row {expected} belongs")
                    name, share, decision, why = ("" if cell is None else as_written(cell) for cell in row[1:])
                    yield expected, name, float(share or "nan"), decision, why
                    expected += 1
        if expected != self.plan()["rows"]:
            raise InputError(f"{self.path} has {expected:,} of {self.plan()['rows']:,} rows: score into a new folder")


def parse_shard(text: str) -> tuple[int, int]:
    """Which of how many shards."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InputError(f"--shard {text} is not one of several: give a number and how many there are, such as 1/4")
    return int(number), int(count)


def shard_of(parts: Sequence[Part], number: int, count: int) -> Sequence[Part]:
    """The parts of a shard, counted from 1: every part is in one."""
    return parts[(number - 1) * len(parts) // count : number * len(parts) // count]


def _mark_of(part: Path) -> Path:
    return part.with_name(f"_{part.stem}.sha256")  # readers of Parquet folders pass over such names


_loaded = lru_cache(maxsize=1)(Model.load)  # once a process, which scores many parts
_last_read: dict[Path, NewRows] = {}  # a file has many parts, and is read once for those that follow each other


def _read_whole(path: Path, model: Model) -> NewRows:
    if path not in _last_read:
        _last_read.clear()
        _last_read[path] = read_new_rows(path, model)
    return _last_read[path]


def _rows_in(path: Path, model: Model) -> int:
    if ends_in(path, ".parquet") and path.is_file() and find_spec("pyarrow") is not None:
        import pyarrow.parquet

        try:
            return int(pyarrow.parquet.read_metadata(path).num_rows)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as a Parquet file ({error}): save it again") from error
    return int(_read_whole(path, model).features.shape[0])


def _images_in(folder: Path) -> Sequence[RowFile]:
    """What has an image's name but cannot even be opened has its row as well."""
    found, begins = find_images([folder]), len(str(folder.absolute()))
    broken = [RowFile(f"{folder.absolute()}/{one.name}", begins, 0, 0, 0) for one in bad_ones(found.skipped)]
    return sorted([*found.files, *broken], key=lambda file: file.path)


def _listed_images(path: Path) -> Sequence[RowFile]:
    """One path a line, from where the list is; a file that is missing is found to be so when it is read."""
    files, lines = [], map(str.strip, dict.fromkeys(Guarded(path).text(_LONGEST_LIST).splitlines()))
    for line in filter(None, lines):
        place = path.parent.absolute() / line
        if not ends_in(place, *IMAGES):
            raise InputError(f"{path} names {line!r}, which is no image file by its name: list images, one a line")
        about = place.stat() if place.exists() else None
        name_begins = len(str(place)) - len(line)
        files.append(RowFile(str(place), name_begins, 0, *((about.st_size, about.st_mtime_ns) if about else (0, 0))))
    return files
