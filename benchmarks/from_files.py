"""The same data from files and from arrays: accuracy side by side, and how soon a second start trains.

Run: python benchmarks/from_files.py [set] [training images]    set = digits or cifar10
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from splitpu.data import load_named, make_pu

POSITIVES = {"digits": 100, "cifar10": 200}


def main(name: str = "digits", most: str = "2000") -> None:
    """Write, train each way with the same seed and settings, and print one JSON object."""
    named = load_named(name)
    data, held_out = make_pu(named, POSITIVES[name], seed=0)
    order = np.argsort(~data.labelled, kind="stable")[: int(most)]  # folders come positives first: the same order
    as_bytes = [_bytes(features) for features in (data.features[order], held_out.features[:2000])]
    labelled, truth = data.labelled[order], held_out.truth[:2000]
    prior = str(round(float(named.truth_train[order].mean()), 4))
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        os.environ["SPLITPU_CACHE"] = str(root / "cache")
        _write_folder(root, as_bytes[0], labelled, ("unl", "pos"))
        _write_folder(root, as_bytes[1], truth, ("neg-test", "pos-test"))
        np.savez(root / "a.npz", X=as_bytes[0], s=labelled, X_test=as_bytes[1], y_test=truth)
        ways = {
            "arrays": [str(root / "a.npz")],
            "folders": _words(root, "--positives", "pos", "--unlabelled", "unl", "--test", "pos-test", "neg-test"),
        }
        if name == "digits":
            _write_table(root / "a.csv", as_bytes[0], labelled)
            _write_table(root / "test.csv", as_bytes[1], truth)
            flat = [part.reshape(len(part), -1).astype(np.float32) for part in as_bytes]
            np.savez(root / "flat.npz", X=flat[0], s=labelled, X_test=flat[1], y_test=truth)
            ways["flat arrays"] = [str(root / "flat.npz")]
            ways["table"] = [str(root / "a.csv"), "--label", "s", "--test", str(root / "test.csv")]
        found: dict[str, Any] = {way: _fit(root / way, words, prior) for way, words in ways.items()}
        found["seconds from the second start to the first step"] = _seconds_to_training(root, ways["folders"], prior)
        print(json.dumps({"set": name, "training images": len(order), **found}, indent=2))


def _words(root: Path, *words: str) -> list[str]:
    return [word if word.startswith("--") else str(root / word) for word in words]


def _bytes(features: Any) -> Any:
    return features if features.dtype == np.uint8 else (features * 255).round().astype(np.uint8)


def _write_folder(root: Path, images: Any, positive: Any, names: tuple[str, str]) -> None:
    for number, (image, side) in enumerate(zip(images, positive, strict=True)):
        folder = root / names[int(side)]
        folder.mkdir(exist_ok=True)
        Image.fromarray(image.squeeze()).save(folder / f"{number:06d}.png")


def _write_table(path: Path, images: Any, labels: Any) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel{number}" for number in range(images[0].size)), "s"])
        writer.writerows([*image.reshape(-1).tolist(), int(label)] for image, label in zip(images, labels, strict=True))


def _command(out: Path, words: list[str], prior: str) -> list[str]:
    return [sys.executable, "-m", "splitpu", "fit", *words, "--prior", prior, "--out", str(out)]


def _fit(out: Path, words: list[str], prior: str) -> dict[str, float]:
    subprocess.run([*_command(out, words, prior), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    models = json.loads((out / "result.json").read_text())["models"]
    return {model["model"]: model["test"]["accuracy"] for model in models}


def _seconds_to_training(root: Path, words: list[str], prior: str) -> float:
    """Until the file appears that a run makes just before its first step."""
    out = root / "second"
    began = time.perf_counter()
    with subprocess.Popen([*_command(out, words, prior), "--quiet"], stdout=subprocess.DEVNULL) as process:
        while not (out / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.01)
        took = time.perf_counter() - began
        process.terminate()
    return round(took, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
