"""What importing costs: nothing before something is asked for, and little beside torch and scikit-learn after that."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import splitpu

PROBE = Path(__file__).parent / "helpers" / "import_probe.py"
# Lines of Python that the import of one of our modules runs on average, dataclasses included: 1,950 when this was
# written. A table that is filled or a file that is gone through at import is more than all of them together.
MOST_LINES = 2500
WORK = ("time.", "io.", "_io.", "_socket.", "_posixsubprocess.", "posix.open", "posix.read")


def run_python(*words: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    ran = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return ran.stdout


def top_level(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def work_of(called: Iterable[str]) -> list[str]:
    """Functions that nobody has to call in order to define classes: those of other packages, waiting, reading."""
    known = {"splitpu", *sys.stdlib_module_names}
    return [name for name in called if not top_level([name]) <= known or name.startswith(WORK)]


def test_plain_import_brings_in_nothing_heavy():
    code = "import sys, splitpu; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run_python("-c", code).split())
    assert "splitpu" in loaded
    assert not loaded & {"torch", "numpy", "sklearn", "scipy", "safetensors", "cyclopts", "rich", "PIL"}


def test_settings_can_be_had_without_torch():
    code = "import sys, splitpu; splitpu.preset('default'); splitpu.Config; splitpu.InputError; print(*sys.modules)"
    assert not {"torch", "numpy", "sklearn"} & set(run_python("-c", code).split())


def test_commands_that_only_read_files_do_without_torch() -> None:
    loaded = run_python("-c", "import sys, splitpu.cli.inspect; print(*sys.modules)").split()
    assert not {"torch", "sklearn", "scipy"} & set(loaded)


def test_classifier_costs_little_beside_its_dependencies() -> None:
    code = "import sys, splitpu; splitpu.SplitPUClassifier; print(*sys.modules)"
    others = [name for name in run_python("-c", code).split() if not name.startswith("splitpu")]
    assert {"torch", "sklearn"} <= set(others)
    assert not top_level(others) & {  # pandas may be there: scikit-learn imports it where it is installed
        "cyclopts",
        "rich",
        "PIL",
        "matplotlib",
        "sympy",
        "networkx",
        "torchvision",
    }
    assert not {"sklearn.datasets", "sklearn.ensemble", "torch._dynamo", "torch._inductor"} & set(others)
    found = json.loads(run_python(str(PROBE), "splitpu.estimators.classifiers", *others))
    assert top_level(found["modules"]) == {"splitpu"}
    assert found["lines"] <= MOST_LINES * len(found["modules"]), found["lines"]
    assert work_of(found["called"]) == []


def test_work_done_at_import_would_be_noticed(tmp_path: Path) -> None:
    lines = ["import time", "import numpy", "import wave", "time.sleep(0)", "numpy.zeros(3).sum()", "open(__file__)"]
    (tmp_path / "eager.py").write_text("\n".join([*lines, "total = 0", "for number in range(5000):", "    total += 1"]))
    found = json.loads(run_python(str(PROBE), "eager", "numpy", PYTHONPATH=str(tmp_path)))
    assert {"eager", "wave"} <= set(found["modules"]) and "numpy" not in top_level(found["modules"])
    assert found["lines"] > 10_000
    names = {name.rpartition(".")[2] for name in work_of(found["called"])}
    assert {"sleep", "zeros", "sum", "open"} <= names


@pytest.mark.parametrize("name", splitpu.__all__)
def test_every_public_name_is_there(name):
    assert name in dir(splitpu)
    home = splitpu._homes().get(name)
    assert getattr(splitpu, name) is getattr(importlib.import_module(home) if home else splitpu, name)


def test_what_public_signatures_mention_is_public() -> None:
    ours = {name: value for name in splitpu.__all__ if callable(value := getattr(splitpu, name))}
    lacking = {f"{word} of {name}" for name, value in ours.items() for word in mentioned_by(value) - ours.keys()}
    assert lacking == set()
    assert {"Config", "PUData", "Runtime", "TrainSpec", "Training"} <= mentioned_by(splitpu.train) | mentioned_by(
        splitpu.TrainSpec
    )


def mentioned_by(value: Any) -> set[str]:
    """Classes of the package in the annotations of a function, or of a class's fields, methods and properties."""
    parts = [value]
    if inspect.isclass(value):
        inside = [inspect.getattr_static(value, name) for name in dir(value) if not name.startswith("_")]
        inside.append(inspect.getattr_static(value, "__init__"))
        parts += [getattr(one, "fget", None) or getattr(one, "__func__", one) for one in inside]
    found = set[str]()
    for part in parts:
        if callable(part) and (getattr(part, "__module__", None) or "").startswith("splitpu."):
            for name, annotation in inspect.get_annotations(part).items():
                found |= set() if name.startswith("_") else classes_in(annotation)
    return found


def classes_in(annotation: Any) -> set[str]:
    """Those of the package, by name; one in quotes may be known to type checkers only."""
    if isinstance(annotation, str):
        words = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
        return words & our_classes()
    if inspect.isclass(annotation) and annotation.__module__.startswith("splitpu."):
        return {annotation.__name__}
    parts = typing.get_args(annotation)
    return set().union(*(classes_in(one) for part in parts for one in (part if isinstance(part, list) else [part])))


@cache
def our_classes() -> frozenset[str]:
    files = Path(splitpu.__file__).parent.rglob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return frozenset(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))


def test_methods_can_be_added_by_users() -> None:
    code = "import sys; from splitpu import Method, register; print('torch' in sys.modules)"
    assert run_python("-c", code).strip() == "False"


def test_version_is_that_of_the_package():
    assert re.fullmatch(r"\d+\.\d+.*", splitpu.__version__)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'SplitPUClasifier'"):
        splitpu.SplitPUClasifier  # noqa: B018
