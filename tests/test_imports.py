"""What importing costs: nothing before something is asked for, and little beside torch and scikit-learn after that."""

import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

import splitpu

HEAVY = ("torch", "sklearn", "numpy", "scipy")  # dependencies whose own import time is not ours to change
LINE = re.compile(r"import time:\s*(\d+) \|\s*\d+ \|( *)(\S+)")
MOST_SECONDS = 0.2
ATTEMPTS = 10  # the quickest counts: a busy machine can only make an import slower


@dataclass(frozen=True)
class Import:
    """A module, how long its own code took, and the modules whose import it was part of."""

    name: str
    seconds: float
    within: tuple[str, ...]


def run_python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True)


def measured_imports(code: str) -> list[Import]:
    """Every import the code leads to. Python reports a module after the ones inside it, which are indented further."""
    found, outer = [], []
    for line in reversed(run_python(code, "-X", "importtime").stderr.splitlines()):
        match = LINE.match(line)
        if match is None:
            continue
        microseconds, indent, name = int(match[1]), len(match[2]) // 2, match[3]
        del outer[indent:]
        found.append(Import(name, microseconds / 1e6, tuple(outer)))
        outer.append(name)
    return found


def belongs_to(name: str, packages: tuple[str, ...]) -> bool:
    return name.partition(".")[0] in packages


def own_seconds(code: str) -> float:
    """Time in our modules and everything they bring in, less the heavy dependencies and what those bring in."""
    return sum(
        one.seconds
        for one in measured_imports(code)
        if any(belongs_to(name, ("splitpu",)) for name in (one.name, *one.within))
        and not any(belongs_to(name, HEAVY) for name in (one.name, *one.within))
    )


def test_plain_import_brings_in_nothing_heavy():
    code = "import sys, splitpu; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run_python(code).stdout.split())
    assert "splitpu" in loaded
    assert not loaded & {"torch", "numpy", "sklearn", "scipy", "safetensors", "cyclopts", "rich", "PIL"}


def test_settings_can_be_had_without_torch():
    code = "import sys, splitpu; splitpu.preset('default'); splitpu.Config; splitpu.InputError; print(*sys.modules)"
    assert not {"torch", "numpy", "sklearn"} & set(run_python(code).stdout.split())


def test_classifier_costs_little_beside_its_dependencies():
    # Imported by a statement first, because Python does not report what a lazy attribute imports as one tree. Garbage
    # collection is off, because one pass over all that torch has built would be charged to whoever comes next.
    code = "import gc; gc.disable(); import splitpu.estimators; splitpu.SplitPUClassifier"
    modules = {one.name for one in measured_imports(code)}
    assert {"splitpu", "splitpu.estimators", "torch", "sklearn"} <= modules  # the measurement saw what it is about
    assert not modules & {"cyclopts", "rich", "PIL", "sklearn.datasets"}
    seconds: list[float] = []
    while len(seconds) < ATTEMPTS and min(seconds, default=MOST_SECONDS + 1) > MOST_SECONDS:
        seconds.append(own_seconds(code))
    assert min(seconds) <= MOST_SECONDS, f"{min(seconds):.3f} s"


@pytest.mark.parametrize("name", splitpu.__all__)
def test_every_public_name_is_there(name):
    assert name in dir(splitpu)
    assert getattr(splitpu, name) is getattr(splitpu, name)


def test_version_is_that_of_the_package():
    assert re.fullmatch(r"\d+\.\d+.*", splitpu.__version__)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'SplitPUClasifier'"):
        splitpu.SplitPUClasifier  # noqa: B018
