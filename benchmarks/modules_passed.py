"""How many of our modules one call passes through: `fit` on two folders, the classifier's `fit`, `predict`.

`python benchmarks/modules_passed.py` traces calls of functions (what only runs at import does not count) and prints
the counts; with --list also the modules.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import splitpu

SOURCE = str(Path(splitpu.__file__).parent)
QUICK = {"base.epochs": 1, "split.max_epochs": 1, "student.epochs": 1, "engine.threads": 1}


def at_import(frame: FrameType | None) -> bool:
    """Whether this runs because a module is being imported: its own lines, bodies of its classes, what these call."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def modules_passed(call: Callable[[], Any]) -> list[str]:
    """The modules of ours in which a function was called meanwhile."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        ours = name.startswith(SOURCE) and name.endswith(".py")  # templates are compiled to functions, too
        if event == "call" and ours and name not in seen and not at_import(frame):
            seen.add(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(str(Path(name).relative_to(SOURCE)) for name in seen)


def write_folders(place: Path) -> tuple[Path, Path]:
    """Two folders of small pictures."""
    from PIL import Image

    random = np.random.default_rng(0)
    sides = place / "positives", place / "unlabelled"
    for brighter, (folder, count) in enumerate(zip(sides, (30, 90), strict=True)):
        folder.mkdir()
        for number in range(count):
            pixels = random.integers(0, 150, (16, 16, 3)) + 100 * (brighter == 0 or number % 3 == 0)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return sides


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the modules, too")
    asked = parser.parse_args()
    from splitpu.cli import main as run_command

    with tempfile.TemporaryDirectory() as folder:
        positives, unlabelled = write_folders(Path(folder))
        words = ["fit", "--positives", str(positives), "--unlabelled", str(unlabelled), "--prior", "0.5", "--quiet"]
        words += [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
        random = np.random.default_rng(0)
        X = random.normal(size=(200, 4)) + 2 * (np.arange(200) % 2 == 0)[:, None]
        classifier = splitpu.SplitPUClassifier(prior=0.5, config=QUICK, random_state=0)
        calls = {
            "splitpu fit on two folders": lambda: run_command([*words, "--out", f"{folder}/run"]),
            "SplitPUClassifier.fit": lambda: classifier.fit(X, np.arange(200) % 6 == 0),
            "SplitPUClassifier.predict": lambda: classifier.predict(X),
        }
        for name, call in calls.items():
            with contextlib.redirect_stdout(io.StringIO()):
                passed = modules_passed(call)
            print(f"{name}: {len(passed)} modules")
            if asked.list:
                print("  " + "\n  ".join(passed))


if __name__ == "__main__":
    main()
