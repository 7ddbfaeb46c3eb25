"""From files to training: the same result as from arrays, a quick second start, little memory, bad files told.

Run: python benchmarks/from_files.py digits|cifar10 [training images]   accuracy of every way in, and second start
     python benchmarks/from_files.py many [images] [network] [prior]    peak memory of a fit over so many small images
     python benchmarks/from_files.py broken [images]                    a folder of which every 20th file is broken
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from file_sets import write_broken, write_folder, write_many, write_table
from watched import first_step, peak_memory, splitpu

from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu

POSITIVES = {"digits": 100, "cifar10": 200}
# A few epochs of a small network, alike for every way in: the question is whether the ways differ.
FEW_EPOCHS = {
    "digits": ["base.epochs=10", "split.max_epochs=5", "student.epochs=10", "rounds=1", "engine.threads=1"],
    "cifar10": ["base.epochs=1", "split.max_epochs=1", "student.epochs=1", "rounds=1", "engine.threads=1"],
}
SMALL = {"digits": [], "cifar10": ["--backbone", "cnn-small"]}
ONE_EPOCH = ["base.epochs=1", "split.max_epochs=1", "student.epochs=1", "rounds=1", "engine.threads=1"]


def main(what: str = "digits", number: str = "", network: str = "mlp", prior: str = "") -> None:
    """Print one JSON object."""
    with tempfile.TemporaryDirectory() as place:
        if what == "many":
            found = many(Path(place), int(number or 200_000), network, prior)
        elif what == "broken":
            found = broken(Path(place), int(number or 1000))
        else:
            found = ways_in(Path(place), what, int(number or 2000))
    print(json.dumps(found, indent=2))


def ways_in(root: Path, name: str, most: int) -> dict[str, Any]:
    """Train each way with the same seed and settings; then how soon a second start over the folders trains."""
    named = load_named(name)  # from the user's own cache
    data, held_out = make_pu(named, POSITIVES[name], seed=0)
    order = np.argsort(~data.labelled, kind="stable")[:most]  # folders come positives first: the same order
    train, test = (_bytes(features) for features in (data.features[order], held_out.features[:most]))
    labelled, truth = data.labelled[order], held_out.truth[:most]
    in_order = np.argsort(~truth, kind="stable")
    test, truth = test[in_order], truth[in_order]
    os.environ["SPLITPU_CACHE"] = str(root / "cache")
    write_folder(root, train, labelled, ("unl", "pos"))
    write_folder(root, test, truth, ("neg-test", "pos-test"))
    np.savez(root / "a.npz", X=train, s=labelled, X_test=test, y_test=truth)
    folders = _words(root, "--positives", "pos", "--unlabelled", "unl", "--test", "pos-test", "neg-test")
    ways = {"arrays": [str(root / "a.npz")], "folders": folders}
    if name == "digits":
        write_table(root / "a.csv", train, labelled)
        write_table(root / "test.csv", test, truth)
        flat = [part.reshape(len(part), -1).astype(np.float32) for part in (train, test)]
        np.savez(root / "flat.npz", X=flat[0], s=labelled, X_test=flat[1], y_test=truth)
        ways["flat arrays"] = [str(root / "flat.npz")]
        ways["table"] = [str(root / "a.csv"), "--label", "s", "--test", str(root / "test.csv")]
    prior = ["--prior", str(round(float(named.truth_train[order].mean()), 4))]
    short = [*_settings(FEW_EPOCHS[name]), *SMALL[name]]
    found: dict[str, Any] = {way: _figures(root / way, [*words, *prior, *short]) for way, words in ways.items()}
    same = {
        f"{one} and {other}": _weights(root / one) == _weights(root / other)
        for one, other in (("arrays", "folders"), ("flat arrays", "table"))
        if one in ways
    }
    starts = [first_step(_command(root / f"again{attempt}", [*folders, *prior])) for attempt in range(3)]
    return {
        "set": name,
        "training images": len(order),
        **found,
        "bitwise the same model": same,
        "second start, seconds until the first step begins": min(starts, key=lambda start: start["wall"]),
    }


def many(root: Path, images: int, network: str, prior: str = "") -> dict[str, Any]:
    """The most memory that all processes of a fit hold at once, for a quarter of the images and for all of them.

    Every stage of Split-PU takes part, one epoch each, and the prior is estimated where none is given.
    """
    found: dict[str, Any] = {"size": "16 x 16 x 3", "network": network}
    os.environ["SPLITPU_CACHE"] = str(root / "cache")
    for count in (images // 4, images):
        place = root / str(count)
        write_many(place, count)
        words = [*_words(place, "--positives", "pos", "--unlabelled", "unl"), "--backbone", network]
        words += [*_settings(ONE_EPOCH), *(["--prior", prior] if prior else [])]
        peak = peak_memory(_command(place / "run", words))
        rows = json.loads((place / "run" / "result.json").read_text())["rows"]
        found[f"peak MB with {rows:,} images"] = peak.in_megabytes()
    return found


def broken(root: Path, images: int) -> dict[str, Any]:
    """What a fit says of a folder in which every 20th file is broken, each tenth of them in another way."""
    os.environ["SPLITPU_CACHE"] = str(root / "cache")
    names = write_broken(root, images)
    words = [*_words(root, "--positives", "pos", "--unlabelled", "unl"), "--prior", "0.5", *_settings(ONE_EPOCH)]
    plain = subprocess.run(splitpu(_command(root / "run", words)), capture_output=True, text=True)
    strict = subprocess.run(splitpu(_command(root / "strict", [*words, "--strict"])), capture_output=True, text=True)
    with (root / "run" / "skipped.csv").open() as file:
        listed = {line["name"]: line["why"] for line in csv.DictReader(file)}
    return {
        "images": images,
        "broken": len(names),
        "exit code": plain.returncode,
        "listed": len(listed),
        "listed are those broken": set(listed) == set(names),
        "reasons": sorted(set(listed.values())),
        "strict exit code": strict.returncode,
        "strict says": strict.stderr.strip(),
        "strict names the first": names[0] in strict.stderr,
    }


def _words(root: Path, *words: str) -> list[str]:
    return [word if word.startswith("--") else str(root / word) for word in words]


def _settings(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _bytes(features: Any) -> Any:
    return features if features.dtype == np.uint8 else (features * 255).round().astype(np.uint8)


def _command(out: Path, words: list[str]) -> list[str]:
    return ["fit", *words, "--quiet", "--out", str(out)]


def _figures(out: Path, words: list[str]) -> dict[str, float]:
    subprocess.run(splitpu(_command(out, words)), check=True, stdout=subprocess.DEVNULL)
    models = json.loads((out / "result.json").read_text())["models"]
    return {model["model"]: model["test"]["accuracy"] for model in models}


def _weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


if __name__ == "__main__":
    main(*sys.argv[1:])
