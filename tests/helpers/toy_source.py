"""A kind of data that nobody has: text files of a letter and a number a line, where `p` is labelled positive."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np

from splitpu.data.pudata import HeldOut, PUData
from splitpu.data.sources import EvaluationRows, LoadedData, LoadOptions, NewRows, RowForm, Source, SourceWords
from splitpu.types import Array, Watch


@dataclass(frozen=True, kw_only=True)
class ToySource(Source):
    """One such file."""

    path: str
    key: ClassVar[str] = "toy"

    @classmethod
    def parse(cls, words: SourceWords, model: RowForm | None) -> "ToySource | None":
        """A .toy file as DATA."""
        if words.data is None or not words.data.endswith(".toy"):
            return None
        return cls(path=str(Path(words.data).absolute()), scenario=words.scenario)

    @property
    def paths(self) -> tuple[str, ...]:
        """The file."""
        return (self.path,)

    def load(self, model: RowForm | None = None, **how: Unpack[LoadOptions]) -> LoadedData:
        """All lines."""
        letters, features = read_toy(Path(self.path))
        data = PUData.from_arrays(features, letters == "p", scenario=self.scenario)
        return LoadedData(data=data, held_out=None, description=self.where)

    @classmethod
    def read_new(cls, path: Path, model: RowForm, *, strict: bool, watch: Watch | None) -> NewRows | None:
        """The numbers alone."""
        return NewRows(read_toy(path)[1]) if path.suffix == ".toy" else None

    @classmethod
    def read_truth(cls, words: SourceWords, model: RowForm, watch: Watch | None) -> EvaluationRows | None:
        """One file in --test, in which every positive is known."""
        if words.test is None or not words.test[0].endswith(".toy"):
            return None
        letters, features = read_toy(Path(words.test[0]))
        return EvaluationRows(where=words.test[0], tested=HeldOut.from_arrays(features, letters == "p"))


def read_toy(path: Path) -> tuple[Array, Array]:
    """The letters, and the numbers as rows."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return np.array([line[0] for line in lines]), np.array([[float(word)] for _, word in lines], dtype=np.float32)
