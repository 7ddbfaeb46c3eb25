"""Tables of patients, with gaps in every kind of column."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splitpu.data.sources import LoadedData
from splitpu.data.tables.encode import TableRecipe, TableSource
from splitpu.types import Array, Mask


def rows_of(count: int, seed: int = 0, labelled: bool = True) -> list[dict[str, Any]]:
    """Patients: half are positive, a third of these are labelled; both kinds of column have gaps."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        positive = number % 2 == 0
        rows.append(
            {
                "id": f"patient-{number}",
                "age": "" if number % 9 == 4 else f"{random.normal(40 + 20 * positive, 5):.2f}",
                "ward": "" if number % 11 == 5 else ("north" if positive else random.choice(["south", "east"])),
                "empty": "",
                "s": int(positive and number % 6 == 0) if labelled else int(positive),
            }
        )
    return rows


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@dataclass(frozen=True, eq=False)
class TableData:
    """What a table became, taken apart."""

    loaded: LoadedData

    @property
    def features(self) -> Array:
        return self.loaded.data.features

    @property
    def labelled(self) -> Mask:
        return self.loaded.data.labelled

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.loaded.data.names

    @property
    def classes(self) -> tuple[Any, Any]:
        return self.loaded.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.loaded.warnings

    @property
    def recipe(self) -> TableRecipe:
        return TableRecipe.from_dict(self.loaded.inputs or {})


def read_table_data(source: TableSource) -> TableData:
    return TableData(source.load())
