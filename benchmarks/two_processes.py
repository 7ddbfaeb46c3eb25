"""One process against two that share every batch, one thread each, on the CPU: the same model, and what it costs.

python benchmarks/two_processes.py [--rows 1000] [--epochs 3] [--out two_processes.json]

Weights differ by rounding, which training makes grow: in double precision six steps differ by less than 1e-9
(`tests/test_shared_step.py`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from parts_of_sets import BATCH, PRIOR, drawn
from safetensors.torch import load_file
from tables import show, write

from splitpu.data.pudata import PUData

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def one_against_two(data: PUData, backbone: str, epochs: int) -> dict[str, Any]:
    """Time an epoch, and the largest difference of a weight and of a reported term."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.npz"
        np.savez(rows, X=data.features, s=data.labelled.astype(int))
        words = ["fit", str(rows), "--method", "nnpu", "--prior", str(PRIOR), "--backbone", backbone, "--quiet"]
        words += ["--set", f"base.epochs={epochs}", "--set", f"base.batch_size={BATCH}", "--set", "engine.threads=1"]
        # Adam divides by the size of a gradient, and where that is next to nothing it shows the order of sums.
        words += ["--set", "base.optimiser.name=sgd", "--set", "base.optimiser.rate=0.02"]
        words += ["--set", "engine.precision=fp32"]  # with fewer digits rounding hides what sharing the work changes
        runs = {1: Path(place) / "one", 2: Path(place) / "two"}
        for count, out in runs.items():
            start = TORCHRUN if count == 2 else []
            command = [sys.executable, *start, "-m", "splitpu", *words, "--out", str(out)]
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        lines = {count: _lines(out) for count, out in runs.items()}
        weights = {count: load_file(out / "model.safetensors") for count, out in runs.items()}
    seconds = {count: min(line["seconds"] for line in of) for count, of in lines.items()}
    return {
        "network": backbone,
        "rows": len(data),
        "one": seconds[1],
        "two": seconds[2],
        "speed_up": seconds[1] / seconds[2],
        "overhead": 2 * seconds[2] / seconds[1] - 1,  # of the work of both, beyond that of one
        "weights_apart": max(float((weights[1][name] - weights[2][name]).abs().max()) for name in weights[1]),
        "losses_apart": max(
            abs(one["terms"]["loss"] - two["terms"]["loss"]) for one, two in zip(lines[1], lines[2], strict=True)
        ),
    }


def _lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Photos and digits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000, help="of the photos")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file")
    asked = parser.parse_args()
    sets = [drawn("digits", 10**6, 50), drawn("cifar10", asked.rows, 500)]
    found = [one_against_two(data, "cnn-small", asked.epochs) for data in sets]
    columns = ("network", "rows", "one", "two", "speed_up", "overhead", "weights_apart", "losses_apart")
    show("seconds an epoch in one and in two processes, one thread each", found, columns)
    write(asked.out, processes=found)


if __name__ == "__main__":
    main()
