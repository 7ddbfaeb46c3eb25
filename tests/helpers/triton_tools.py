"""Kernels in Triton's interpreter, which runs them on a CPU."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

_FIRST_WHOSE_INTERPRETER_LOOPS = (3, 7)  # earlier ones ask numpy for something it refuses since 2.4


def _triton() -> tuple[int, int]:
    try:
        major, minor = version("triton").split(".")[:2]
    except PackageNotFoundError:
        return (0, 0)
    return (int(major), int(minor))


needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which comes with torch for GPUs")
needs_interpreter = pytest.mark.skipif(
    _triton() < _FIRST_WHOSE_INTERPRETER_LOOPS, reason="needs triton 3.7, whose interpreter runs with numpy 2.4"
)


def run_interpreted(code: str) -> None:
    """Run the lines in a process whose kernels are interpreted, which Triton decides when it is imported."""
    places = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
