"""`splitpu predict`."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from splitpu.cli.output import print_json
from splitpu.config import EngineConfig
from splitpu.data import canonical_features, read_features
from splitpu.data.npz import read_names
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.files import replacing
from splitpu.models import Model
from splitpu.runs.folder import RunFolder

_COLUMNS = ("index", "name", "probability", "decision")


def run_predict(run: str, rows: Path, *, out: Path | None, device: str, json: bool) -> int:
    """Score the rows of a file with the final model of a run."""
    folder = RunFolder.find(run)
    model = Model.load(folder.path)
    features = canonical_features(read_features(rows), "X")
    model.preprocessing.check(features)
    names = read_names(rows)
    if names is not None and len(names) != len(features):
        raise InputError(f"'names' in {rows} has {len(names)} entries but 'X' has {len(features)} rows.")
    decision = model.decision(features, Hardware.choose(device, EngineConfig()))
    lines = list(_lines(decision, names or [""] * len(decision), model.classes))
    if out is not None:
        with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            _write(lines, file)
    if json:
        summary = {"run": str(folder.path), "rows": len(lines), "positive": int((decision > 0).sum())}
        scores = [dict(zip(_COLUMNS, line, strict=True)) for line in lines]
        print_json(summary | ({"out": str(out)} if out is not None else {"scores": scores}))
    elif out is None:
        _write(lines, sys.stdout)
    else:
        print(f"{out}: {len(lines):,} rows, {int((decision > 0).sum()):,} of them positive")
    return 0


def probabilities(decision: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sigmoid that does not overflow; above 1/2 exactly where the decision is positive.

    >>> probabilities(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(decision))
    lesser: npt.NDArray[np.float64] = small / (1 + small)
    return np.where(decision > 0, 1 - lesser, lesser)


def _lines(
    decision: npt.NDArray[np.float64], names: Sequence[str], classes: tuple[Any, Any]
) -> "zip[tuple[int, str, float, Any]]":
    labels = [classes[int(positive)] for positive in decision > 0]
    shares = [float(f"{share:.6g}") for share in probabilities(decision).tolist()]
    return zip(range(len(labels)), names, shares, labels, strict=True)


def _write(lines: Sequence[Sequence[Any]], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(lines)
