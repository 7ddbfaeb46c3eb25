"""What was asked for, in the form that a run folder keeps: enough to ask for the same again."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from splitpu.config.schema import Scenario
from splitpu.data.array_files import ArraySource
from splitpu.data.images.folders import FolderSource
from splitpu.data.tables.encode import TableSource
from splitpu.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the data come from: files, folders, a table, or a named set of which some positives are labelled."""

    npz: str | None = None  # an absolute path, so that the run can be resumed from anywhere
    named: str | None = None
    positives: int | None = None  # of a named set
    draw_seed: int = 0  # which positives of a named set are labelled
    scenario: Scenario = "single-training-set"
    folders: FolderSource | None = None
    table: TableSource | None = None
    arrays: ArraySource | None = None

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Source":
        """From what JSON made of it, which knows lists only."""
        parts = dict(stored)
        kinds: dict[str, Any] = {"folders": FolderSource, "table": TableSource, "arrays": ArraySource}
        for name, kind in kinds.items():
            if parts.get(name) is not None:
                fields = {key: tuple(value) if isinstance(value, list) else value for key, value in parts[name].items()}
                parts[name] = kind(**fields)
        return cls(**parts)

    @property
    def where(self) -> str:
        """The place of the data, for people.

        >>> Source(named="digits", positives=50).where
        'digits, 50 positives labelled'
        """
        sides = self.folders or self.arrays
        if sides:
            return " and ".join([*sides.positives, *sides.unlabelled])
        if self.table:
            return self.table.path
        return self.npz or f"{self.named}, {self.positives} positives labelled"

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file and folder that the data are read from.

        >>> Source(npz="/data/cells.npz").paths, Source(named="digits", positives=50).paths
        (('/data/cells.npz',), ())
        """
        sides, table = self.folders or self.arrays, self.table
        found: list[str | None] = [self.npz, *((table.path, table.test) if table else ())]
        found += [*sides.positives, *sides.unlabelled, *sides.test] if sides else []
        found += [self.folders.labels] if self.folders else []
        return tuple(path for path in found if path is not None)

    @property
    def title(self) -> str:
        """The word that stands for the data in folder names and headings.

        >>> Source(npz="/data/cells.npz").title, Source(named="digits", positives=50).title
        ('cells', 'digits')
        """
        sides = self.folders or self.arrays
        if sides:
            first = Path((sides.positives or sides.unlabelled)[0])
            return (first.name if self.folders else first.stem) or "images"
        path = self.table.path if self.table else self.npz
        return Path(path).stem if path else str(self.named)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything a run depends on besides its configuration."""

    source: Source
    fingerprint: str  # of the training data
    prior: float | None  # None if the method does without
    preset: str
    backbone: str
    seed: int
    device: str  # as chosen, not "auto": a checkpoint is only good for the kind of device it was made on
    precision: Literal["fp32", "bf16"]  # as chosen, too
    keep_checkpoints: bool = False
    prior_source: str = "given"  # in words
    prior_estimate: dict[str, Any] | None = None  # what the prior rests on, if it was estimated
    doubts: list[str] = field(default_factory=list)  # told when the prior was settled, before there was a run
    weights: dict[str, Any] | None = None  # the file that the network starts from: path, checksum, what was loaded

    @property
    def prior_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of a prior that was estimated."""
        if self.prior_estimate is None:
            return None
        low, high = self.prior_estimate["interval"]
        return float(low), float(high)

    def to_json(self) -> str:
        """The text of `request.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, path: Path) -> "Request":
        """Read `request.json` back; `path` is for the error message."""
        try:
            stored: dict[str, Any] = json.loads(text)
            return cls(**{**stored, "source": Source.from_dict(stored["source"])})
        except (json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} cannot be understood ({error}); start a new run with 'splitpu fit'.") from error
