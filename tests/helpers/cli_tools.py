"""Tiny data and tiny settings for tests of runs and of the command line."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from splitpu.cli import main

TINY = [
    *("--set", "base.epochs=2"),
    *("--set", "split.max_epochs=2"),
    *("--set", "student.epochs=2"),
    *("--set", "split.tau=0.01"),
    *("--set", "engine.threads=1"),
]


def tiny_arrays(rows: int = 80, features: int = 4, test_rows: int = 40, seed: int = 0) -> dict[str, Any]:
    """Two clouds of points; half of the points are positive, of which a third is labelled."""
    random = np.random.default_rng(seed)
    truth = np.arange(rows) % 2 == 0
    test_truth = np.arange(test_rows) % 2 == 0
    return {
        "X": random.normal(size=(rows, features)) + 3 * truth[:, None],
        "s": (truth & (np.arange(rows) % 6 == 0)).astype(int),
        "truth": truth,
        "X_test": random.normal(size=(test_rows, features)) + 3 * test_truth[:, None],
        "y_test": test_truth.astype(int),
        "names": np.array([f"sample-{row}" for row in range(rows)]),
    }


def write_npz(path: Path, **changes: Any) -> Path:
    """Save tiny arrays, some of them replaced, or left out where None is given."""
    arrays = {name: array for name, array in (tiny_arrays() | changes).items() if array is not None}
    np.savez(path, **arrays)
    return path


def run_cli(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run a command in this process: exit code, standard output, standard error."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def must_do(*words: object) -> None:
    """Run a command that has to succeed."""
    assert main([str(word) for word in words]) == 0


def fit_tiny(folder: Path) -> Path:
    """A finished run over tiny vectors with test rows, names and truth, which lie beside it."""
    data = write_npz(folder / "tiny.npz")
    must_do("fit", data, "--prior", 0.5, "--out", folder / "run", "--quiet", *TINY)
    return folder / "run"


def must_refuse(capsys: pytest.CaptureFixture[str], *words: object, saying: str) -> str:
    """Run a command that has to fail with one sentence."""
    code, out, err = run_cli(capsys, *words)
    assert code == 2, err
    assert out == ""
    assert err.startswith("splitpu: ") and err.count("\n") == 1 and "Traceback" not in err, err
    assert re.search(saying, err), err
    return err
