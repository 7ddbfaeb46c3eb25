"""Small finished and unfinished runs of every kind, and the commands that read them back."""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from crashes import killed_at
from forked import PATIENCE, Ended, command

QUICK = [
    *("--set", "base.epochs=2", "--set", "split.max_epochs=2", "--set", "student.epochs=2", "--set", "split.tau=0.01"),
    *("--set", "base.batch_size=16", "--set", "student.batch_size=16", "--set", "split.batch_size=16"),
    *("--rounds", "1", "--set", "engine.threads=1", "--quiet"),
]
SAME_MODEL = ("model.safetensors", "model.json", "scores.csv", "split.csv")
_PASSING = re.compile(r"^(seconds.*|finished|engine|commit|files|timestamp|sha256)$")


@dataclass(frozen=True)
class Subject:
    """A folder to be damaged, and what to do with it then; `{}` in the words stands for the folder."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    outcome: tuple[str, ...] = ()  # files that say what came of a command, beside what it prints
    weight: float = 1  # how often it is taken; those that have to be trained take longest
    spared: tuple[str, ...] = ("report.html", "index.html")  # which nothing reads back
    touched: tuple[str, ...] = field(default=("*",))

    def files(self, folder: Path) -> list[Path]:
        """What may be damaged."""
        found = {path for pattern in self.touched for path in folder.rglob(pattern) if path.is_file()}
        return sorted(path for path in found if path.name not in self.spared)


_READ = (("info", "{}/run"), ("info", "{}/run", "--json"), ("resume", "{}/run", "--json"))
_USED = (
    ("predict", "{}/run", "{}/../new.npz", "--out", "{}/said.csv"),
    ("predict", "{}/run", "{}/../new.npz"),
    ("evaluate", "{}/run", "--json"),
    ("sensitivity", "{}/run", "--steps", "3", "--json"),
)
_COMPARE = (
    *("compare", "{}/../tiny.npz", "--method", "naive,nnpu", "--seeds", "0", "--prior", "0.5"),
    *("--out", "{}/run", "--json", *QUICK),
)
SUBJECTS = [
    Subject("network", (*_READ, *_USED, ("hard", "{}/run", "--json")), ("said.csv",), weight=5),
    Subject(
        "table",
        (
            *_READ,
            ("predict", "{}/run", "{}/../table.csv", "--out", "{}/said.csv"),
            *(("evaluate", "{}/run", "--json"), ("sensitivity", "{}/run", "--steps", "3", "--json")),
            ("hard", "{}/run", "--json"),
        ),
        ("said.csv",),
        weight=3,
    ),
    Subject(
        "unfinished",
        (("resume", "{}/run", "--quiet", "--json"), ("resume", "{}/run", "--quiet", "--json"), ("info", "{}/run")),
        tuple(f"run/{name}" for name in SAME_MODEL),
        weight=3,
    ),
    Subject(
        "seeds",
        (
            ("resume", "{}/run", "--quiet", "--json"),
            ("info", "{}/run/seed0"),
            ("predict", "{}/run/seed1", "{}/../new.npz"),
        ),
    ),
    Subject(
        "comparison",
        (_COMPARE,),
    ),
    *(
        Subject(
            name, (("resume", "{}/run", "--quiet", "--json"),), tuple(f"run/{part}" for part in SAME_MODEL), weight=0.3
        )
        for name in ("unfinished table", "unfinished images")
    ),
    Subject(
        "unfinished seeds", (("resume", "{}/run", "--quiet", "--json"),), ("run/seed1/model.safetensors",), weight=0.3
    ),
    Subject("scores", (("merge", "{}/run", "{}/said.csv"),), ("said.csv",), weight=0.6),
    Subject("unfinished comparison", (_COMPARE,), weight=0.3),
    Subject(
        "images",
        (("predict", "{}/run", "{}/../pictures/u", "--out", "{}/said.csv"),),
        ("said.csv",),
        touched=("cache/**/*", "run/*"),
        weight=2,
    ),
]


def arrays(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) % 2 == 0
    return {
        "X": rng.normal(size=(rows, 3)) + 2.5 * truth[:, None],
        "s": (truth & (np.arange(rows) % 6 == 0)).astype(int),
        "X_test": rng.normal(size=(20, 3)) + 2.5 * (np.arange(20) % 2 == 0)[:, None],
        "y_test": (np.arange(20) % 2 == 0).astype(int),
        "names": np.array([f"row-{row}" for row in range(rows)]),
    }


def must(*words: object) -> Ended:
    ended = command(*words, most=PATIENCE)
    assert ended.code == 0, (words, ended)
    return ended


def write_data(place: Path) -> None:
    """The files that all subjects are trained on."""
    from PIL import Image

    place.mkdir(parents=True, exist_ok=True)
    np.savez(place / "tiny.npz", **arrays(48, 0))
    np.savez(place / "new.npz", X=arrays(12, 9)["X"])
    found, rng = arrays(60, 3), np.random.default_rng(5)
    lines = ["a,b,c,kind,label"]
    for row, (values, label) in enumerate(zip(found["X"], found["s"], strict=True)):
        lines.append(f"{','.join(f'{value:.4f}' for value in values)},{'xyz'[row % 3]},{label}")
    (place / "table.csv").write_text("\n".join(lines) + "\n")
    for side, count, bright in (("p", 6, 190), ("u", 18, 60)):
        (place / "pictures" / side).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 60, (8, 8, 3)) + (bright if number % 3 else 190)
            Image.fromarray(pixels.astype(np.uint8)).save(place / "pictures" / side / f"{number}.png")


def build(place: Path, names: Sequence[str] = ()) -> list[Subject]:
    """Make the subjects, each in a folder of its name."""
    write_data(place)
    chosen = [one for one in SUBJECTS if not names or one.name in names]
    for one in chosen:
        folder = place / one.name
        folder.mkdir()
        _MAKERS[one.name](place, folder)
    return chosen


def fit_words(place: Path, out: Path, seed: int = 0) -> list[object]:
    return ["fit", place / "tiny.npz", "--prior", "0.5", "--seed", seed, "--out", out, *QUICK]


def _unfinished(folder: Path, words: Sequence[object], where: str = "") -> None:
    """A command that was killed when it wrote a model."""
    with_cache(folder)
    ended = killed_at(folder, words, lambda event, path: event == "rename" and "model.json" in path and where in path)
    assert ended.code == -9, ended


def seeds_words(place: Path, out: Path) -> list[object]:
    words = fit_words(place, out)
    words[words.index("--seed") : words.index("--seed") + 2] = ["--seeds", "0,1"]
    return words


def table_words(place: Path, out: Path) -> list[object]:
    words = ["fit", place / "table.csv", "--label", "label", "--prior", "0.5", "--out", out, "--quiet"]
    return [*words, "--set", "engine.threads=1", "--set", "learner=logistic"]


def images_words(place: Path, out: Path) -> list[object]:
    sides = ["--positives", place / "pictures/p", "--unlabelled", place / "pictures/u"]
    return ["fit", *sides, "--prior", "0.4", "--features", "trained", "--out", out, *QUICK]


def _images(place: Path, folder: Path) -> None:
    with_cache(folder)
    must(*images_words(place, folder / "run"))
    must("predict", folder / "run", place / "pictures/u")


def with_cache(folder: Path) -> None:
    """The cache of decoded images is part of what may be damaged."""
    os.environ["SPLITPU_CACHE"] = str(folder / "cache")


_MAKERS: dict[str, Callable[[Path, Path], object]] = {
    "network": lambda place, folder: must(*fit_words(place, folder / "run")),
    "table": lambda place, folder: must(*table_words(place, folder / "run")),
    "unfinished": lambda place, folder: _unfinished(folder, [*fit_words(place, folder / "run"), "--keep-checkpoints"]),
    "unfinished table": lambda place, folder: _unfinished(folder, table_words(place, folder / "run")),
    "unfinished images": lambda place, folder: _unfinished(folder, images_words(place, folder / "run")),
    "unfinished seeds": lambda place, folder: _unfinished(folder, seeds_words(place, folder / "run"), "seed1"),
    "unfinished comparison": lambda place, folder: _unfinished(
        folder, [word.format(folder) for word in _COMPARE], "nnpu"
    ),
    "scores": lambda place, folder: must(
        "predict", place / "network" / "run", place / "new.npz", "--shard", "1/1", "--out", folder / "run"
    ),
    "seeds": lambda place, folder: must(*seeds_words(place, folder / "run")),
    "comparison": lambda place, folder: must(*(word.format(folder) for word in _COMPARE)),
    "images": _images,
}


@dataclass(frozen=True)
class Outcome:
    """What a command left, as far as it may not depend on the time of day."""

    code: int
    printed: str
    files: dict[str, bytes]


def carried_out(subject: Subject, words: Sequence[str], folder: Path) -> tuple[Ended, Outcome]:
    """One command on a folder, and what came of it."""
    with_cache(folder)
    (folder / "said.csv").unlink(missing_ok=True)
    ended = command(*(word.format(folder) for word in words))
    made = () if words[0] == "info" else subject.outcome
    there = {name: (folder / name).read_bytes() for name in made if (folder / name).is_file()}
    return ended, Outcome(ended.code, lasting(ended.out), there)


def lasting(printed: str) -> str:
    """What is printed without seconds and dates."""
    try:
        return json.dumps(_without_passing(json.loads(printed)), sort_keys=True)
    except ValueError:
        return re.sub(r"\d+(\.\d+)? ?s(econds)?\b", "", printed)


def _without_passing(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _without_passing(one) for name, one in found.items() if not _PASSING.match(name)}
    return [_without_passing(one) for one in found] if isinstance(found, list) else found


def copy_of(source: Path, target: Path) -> None:
    """Exactly the same files with the same times, in the place of whatever was there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
