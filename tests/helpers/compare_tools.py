"""What the tests of `splitpu compare` ask for, and what comes of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from cli_tools import TINY, must_do, tiny_arrays, write_npz

METHODS = ["--method", "nnpu,naive,supervised"]
ASKED = ["--prior", "0.5", "--quiet", *TINY]


def lines_of(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return {(line["method"], line["seed"]): line for line in found}


def write_overlapping(path: Path) -> Path:
    """Clouds that overlap, so that figures differ."""
    random = np.random.default_rng(0)
    noise = {name: random.normal(size=(rows, 4)) * 3 for name, rows in (("X", 80), ("X_test", 40))}
    return write_npz(path, **{name: tiny_arrays()[name] + added for name, added in noise.items()})


def compare_tiny(data: Path, out: Path) -> Path:
    """The comparison of three methods and two seeds."""
    must_do("compare", data, *METHODS, "--seeds", "0,3", "--out", out, *ASKED)
    return out


def no_training(*_: object, **__: object) -> None:
    """In place of the training, where everything is there already."""
    raise AssertionError("trained again")
