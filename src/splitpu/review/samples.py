"""The samples of a finished run as people look at them: pictures, slices, records as they were written.

Nothing is ever read by a name or path that a browser sent: a sample is asked for by the number of its training row."""

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from splitpu.data.images.folders import FolderSource, reader_for
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.tables.encode import TableSource
from splitpu.data.tables.read import shown
from splitpu.errors import InputError
from splitpu.report.charts import encode_png
from splitpu.review.order import SPREAD_AMONG, Opinions, Order, doubt, in_order
from splitpu.runs.folder import MODEL_FILES, RunFolder, load_request
from splitpu.types import Floats, Indices
from splitpu.utils.reading import Guarded, open_regular
from splitpu.utils.text import from_cell

MOST_COMPARED = 5_000  # rows that a value's place is found among
MOST_POSITIVES = 500  # labelled rows that are looked through for the nearest
DRAWN = "drawn at random"  # why a sample is asked about in an audit
SMALL = 8  # pixels along each side, by which pictures are compared
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Fact:
    """A value of a record, and where it lies among the labelled positives and among all rows."""

    column: str
    value: str
    number: bool
    positives: float | None  # share of labelled rows that are below it, or of the same category
    everyone: float | None


class Samples:
    """The training rows of a finished run, and what its models say of them."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.result = folder, folder.read_result()
        folder.check_files(folder.scores.name, MODEL_FILES[0])
        self.request = folder.request()
        self.loaded = load_request(self.request)
        self.data = self.loaded.data
        described = Guarded(folder.path / MODEL_FILES[0]).sealed()["preprocessing"]
        self.preprocessing = Preprocessing.from_dict(described)
        self._read_opinions()
        self._files: dict[str, str] = {}
        self._found: dict[str, list[list[Any]]] = {}
        self._finding = threading.Thread(target=self._find_files, daemon=True)
        self._finding.start()

    def _read_opinions(self) -> None:
        folder, rows = self.folder, len(self.data)
        guarded = Guarded(folder.scores)
        with guarded.understood():
            lines = guarded.rows()
            if len(lines) != rows:
                guarded.refuse(f"it has {len(lines):,} lines for {rows:,} rows")
            self.names = [from_cell(line["name"]) for line in lines]
            self.probability = np.array([float(line["probability"]) for line in lines])
            self.decision = np.array([line["decision"] == str(self.loaded.classes[1]) for line in lines])
        self.teacher, self.why = self.probability.copy(), [""] * rows
        if self.result["rounds"]:
            folder.check_files(folder.split.name)
            last, guarded = str(self.result["rounds"][-1]["round"]), Guarded(folder.split)
            with guarded.understood():
                for line in guarded.rows():
                    if line["round"] == last:
                        row = int(line["index"])
                        self.teacher[row] = float(line["teacher_probability"])
                        if line["set"] == "hard":  # to be easy is no reason to ask
                            self.why[row] = f"hard: taught {line['taught']}, learned {line['learned']}"
        answered = set() if self.data.answers is None else {*np.flatnonzero(self.data.answers).tolist()}
        unlabelled = np.array([row for row in self.data.unlabelled.tolist() if row not in answered], dtype=np.int64)
        self.opinions = Opinions(unlabelled, self.probability[unlabelled])

    def order(self, order: Order) -> Indices:
        """The unlabelled rows in the order in which to ask about them."""
        if order != "gain":
            return in_order(self.opinions, order, seed=self.request.seed)
        first = np.argsort(-doubt(self.opinions), kind="stable")[:SPREAD_AMONG]
        return in_order(self.opinions, order, self._small(self.opinions.rows[first]))

    def reason(self, row: int, order: str) -> str:
        """Why a sample was asked about, in words."""
        p, q = self.probability[row], self.teacher[row]
        words = {"random": DRAWN, "likely": f"among the likeliest, {p:.0%}"}.get(order, "")
        if not words:
            apart = f"; its teacher said {q:.0%}" if abs(p - q) > 0.1 else ""
            words = f"{'near' if abs(p - 0.5) < 0.25 else 'of those left nearest to'} the cut: {p:.0%}{apart}"
        return words + (f"; {self.why[row]}" if self.why[row] else "")

    # ---------------------------------------------------------------------------------------------------- what it shows

    @cached_property
    def kind(self) -> str:
        return {"images": "image", "volumes": "volume"}.get(self.data.kind, "record")

    def slices(self, row: int) -> tuple[int, int]:
        """Of a volume, how many slices are there, and the middle one of those that show anything."""
        if self.kind != "volume":
            return 1, 0
        volume = self.data.features[row]
        there = np.flatnonzero(volume.reshape(len(volume), -1).any(axis=1))
        return (int(there[-1]) + 1, int(there[len(there) // 2])) if len(there) else (1, 0)

    def picture(self, row: int, at: int | None = None) -> bytes:
        """A sample, or one of its slices, as PNG, as the model sees it."""
        if self.kind == "record":
            raise InputError(f"row {row} is no picture")
        image = self.data.features[row]
        if self.kind == "volume":
            count, middle = self.slices(row)
            image = image[min(max(middle if at is None else at, 0), count - 1)]
        pixels = np.atleast_3d(self.preprocessing.pixels(image))
        return encode_png(pixels if pixels.shape[2] in (1, 3, 4) else pixels[:, :, :1])

    def original(self, row: int) -> tuple[bytes, str] | None:
        """The file that a picture was read from, as it is, if browsers can show it; found by the run, not by a name."""
        path = self.path(row)
        if path is None or self.kind != "image":
            return None
        try:
            with open_regular(path) as file:
                content = file.read(MOST_BYTES)
        except OSError:
            return None
        kind = next((kind for mark, kind in _PICTURES.items() if content.startswith(mark)), None)
        return None if kind is None else (content, kind)

    def path(self, row: int) -> str | None:
        """The file or folder that a sample was read from, where it is one."""
        self._finding.join()
        return self._files.get(self.names[row])

    def _find_files(self) -> None:
        source = self.request.source
        if not isinstance(source, FolderSource):
            return
        try:
            reader = reader_for(source.training_folders, series=source.series, slices=source.slices)
            self._files = {file.given_name: file.path for file in reader.find(source.training_folders).files}
        except (InputError, OSError):  # moved away: what the model sees is shown
            self._files = {}

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        """The records as they were written, by column; without the label."""
        source = self.request.source
        if isinstance(source, TableSource):
            return source.written()
        count = self.data.features.shape[1]
        names = self.loaded.feature_names or tuple(f"feature {number}" for number in range(count))
        return {name: [] for name in names}

    def written(self, row: int) -> dict[str, Any]:
        """The values of a row by column, as its owner wrote them; of sparse rows only those that are there."""
        own = None if not self._numbered else self._dense(np.array([row]))[0].tolist()
        places = enumerate(self._columns.items())
        cells = {name: column[row] if own is None else own[place] for place, (name, column) in places}
        return {name: one for name, one in cells.items() if one is not None and not (self.data.is_sparse and one == 0)}

    def record(self, row: int) -> list[Fact]:
        """A row as its owner wrote it, each value with its place among the labelled positives and among all."""
        return [self._fact(name, one) for name, one in self.written(row).items()]

    @cached_property
    def _numbered(self) -> bool:
        """Whether rows are arrays of numbers and no table."""
        return not isinstance(self.request.source, TableSource)

    def _dense(self, rows: Indices) -> Floats:
        features: Any = self.data.features
        return np.asarray(features.dense(rows) if self.data.is_sparse else features[rows], dtype=np.float64)

    def _fact(self, name: str, own: Any) -> Fact:
        among = self._among(name)
        try:
            value, numbers = float(own), [np.array([float(one) for one in kind]) for kind in among]
        except (TypeError, ValueError):
            many = 2 * len({str(one) for one in among[1]}) > len(among[1])  # names or texts: nobody shares theirs
            shares = [float(np.mean([one == own for one in kind])) if kind and not many else None for kind in among]
            return Fact(name, shown(own), False, shares[0], shares[1])
        places = [float((one < value).mean() + (one == value).mean() / 2) if len(one) else None for one in numbers]
        return Fact(name, shown(own), True, places[0], places[1])

    def _among(self, name: str) -> list[list[Any]]:
        """A column's values of the labelled rows and of all, or of some of them; found once."""
        if name not in self._found:
            some, known = self._compared
            column, place = self._columns[name], list(self._columns).index(name)
            if self._numbered:
                self._found[name] = [self._compared_rows[kind][:, place].tolist() for kind in (0, 1)]
            else:
                self._found[name] = [[column[row] for row in rows if column[row] is not None] for rows in (known, some)]
        return self._found[name]

    @cached_property
    def _compared_rows(self) -> list[Floats]:
        some, known = self._compared
        return [self._dense(known), self._dense(some)]

    @cached_property
    def _compared(self) -> tuple[Indices, Indices]:
        rng = np.random.default_rng(0)
        every, known = np.arange(len(self.data)), self.data.positives
        return tuple(
            rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
            for rows, most in ((every, MOST_COMPARED), (known, MOST_POSITIVES))
        )  # type: ignore[return-value]

    def nearest(self, row: int, count: int = 4) -> list[int]:
        """The labelled positives that look most like a sample."""
        centre, scale, known = self._standards
        own = (self._small(np.array([row])) - centre) / scale
        apart = np.linalg.norm(known - own, axis=1)
        if self.data.is_sparse:  # by the words that they share: by distance the shortest texts are near to everything
            apart = -(known @ own[0]) / np.maximum(np.linalg.norm(known, axis=1), 1e-12)
        return [int(self._compared[1][place]) for place in np.argsort(apart, kind="stable")[:count]]

    @cached_property
    def _standards(self) -> tuple[Floats, Floats, Floats]:
        """Centre and scale of what is compared, and the labelled positives on that scale."""
        some = self._small(self._compared[0][:1000])
        centre, scale = some.mean(0), np.where(some.std(0) > 0, some.std(0), 1.0)
        if self.data.is_sparse:  # a rare word, whose column hardly varies, would count for more than all others
            centre, scale = np.zeros_like(centre), np.ones_like(scale)
        return centre, scale, (self._small(self._compared[1]) - centre) / scale

    def _small(self, rows: Indices) -> Floats:
        """Rows as short vectors to compare: pictures as a few pixels, of volumes the mean slice."""
        if self.kind == "record":
            found = self._dense(rows)
        else:
            found = np.stack([shrunk(np.asarray(self.data.features[row], dtype=np.float64)) for row in rows.tolist()])
        return np.nan_to_num(found.reshape(len(rows), -1))


def shrunk(image: Floats) -> Floats:
    """Means over a few tiles of a picture, or of a volume's mean slice."""
    flat = image.mean(0) if image.ndim == 4 else image
    tiles = [np.array_split(np.arange(side), min(SMALL, side)) for side in flat.shape[:2]]
    return np.array([flat[np.ix_(rows, columns)].mean() for rows in tiles[0] for columns in tiles[1]])
