"""Lists that a command writes where it was asked to: CSV, or Parquet by the ending."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from splitpu.data.table_files import write_parquet
from splitpu.errors import InputError
from splitpu.files import ends_in, replacing
from splitpu.runs.folder import belongs_to_a_run

_ENDINGS = (".csv", ".txt", ".parquet", "")


def check_out(out: Path | None, what: str, *, read: Path | None = None) -> None:
    """Refuse, before anything is computed, a file that could not be written or would not hold what its name says.

    Nor may what is `read` for it be lost, or a file of a run.
    """
    if out is None:
        return
    if out.is_dir():
        raise InputError(f"--out {out} is a folder: name a file in it for the {what}.")
    if read is not None and out.exists() and read.exists() and out.samefile(read):
        raise InputError(f"--out {out} is the input and would be overwritten: name another file for the {what}.")
    if belongs_to_a_run(out):
        raise InputError(f"--out {out} is a file of the run in that folder: name another file for the {what}.")
    if out.suffix.lower() not in _ENDINGS:
        raise InputError(f"--out {out} has an ending that cannot be used: {what} are written as .csv or .parquet.")


def write_out(out: Path, columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Write the file whole or not at all."""
    with replacing(out) as temporary:
        if ends_in(out, ".parquet"):
            write_parquet(temporary, {name: [line[at] for line in lines] for at, name in enumerate(columns)})
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write_csv(file, columns, lines)


def write_csv(file: TextIO, columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Write heading and lines."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
