"""A CSV of file names and labels, for rows of which some are known by their names."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splitpu.data.composed import composed
from splitpu.data.readers import RowFile
from splitpu.data.scanning import Skipped, readable_name
from splitpu.data.unusable import Side, bad_ones, refuse_too_many
from splitpu.errors import InputError
from splitpu.labels import Mask
from splitpu.listing import listed

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
