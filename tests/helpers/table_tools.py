"""Tables of patients, with gaps in every kind of column."""

import csv
from pathlib import Path
from typing import Any

import numpy as np


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
