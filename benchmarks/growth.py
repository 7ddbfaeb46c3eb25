"""How time and memory grow with the number of unlabelled images, which stay in a memory-mapped file.

python benchmarks/growth.py                                     10,000 and 50,000 images on this machine's device
python benchmarks/growth.py --sizes 10000,50000,250000,1000000 --side 32 --out growth.json        3 GB of disk
python benchmarks/growth.py --device cuda                       resident on the GPU as long as they fit there

Every size has a process of its own, as the peak of a process never falls. One epoch each of base, split and student
with a network so small that the rows themselves are most of the work. Files are written in parts and deleted after.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import peak_memory_mb
from tables import show, write
from torch import Tensor, nn

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.engine.stage import kind_of
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.training import Runtime, TrainSpec, profile_of, train

LABELLED = 500
ROWS_AT_ONCE = 10_000
SETTINGS = [
    *("rounds=1", "base.epochs=1", "split.max_epochs=1", "student.epochs=1"),
    *("base.batch_size=512", "split.batch_size=512", "student.batch_size=512"),
]


class Tiny(Backbone):
    """One convolution over patches and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim = 16
        self.first = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Linear(16, 1)

    def forward(self, batch: Tensor) -> Outputs:
        """Return the outputs for a batch of images."""
        low = self.first(batch)
        high = low.mean(dim=(2, 3))
        return Outputs(low, high, self.head(high).squeeze(1))


def write_images(path: Path, rows: int, side: int) -> None:
    """Noise; every other image is brighter, so that there is something to learn."""
    images = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows, side, side, 3))
    random = np.random.default_rng(0)
    for start in range(0, rows, ROWS_AT_ONCE):
        part = random.integers(0, 200, (min(ROWS_AT_ONCE, rows - start), side, side, 3), dtype=np.uint8)
        part[::2] += 40
        images[start : start + ROWS_AT_ONCE] = part
    images.flush()


def measured(path: Path, device: str, threads: int) -> dict[str, Any]:
    """Train on the file, in this process."""
    warnings.simplefilter("ignore")
    images = np.load(path, mmap_mode="r")
    labelled = np.zeros(len(images), dtype=bool)
    labelled[: 2 * LABELLED : 2] = True
    started = time.perf_counter()
    data = PUData.from_arrays(images, labelled, scenario="case-control")
    config = apply_overrides(preset("default", profile_of(data)), [*SETTINGS, f"engine.threads={threads}"])
    done = train(data, TrainSpec(prior=0.5, config=config, backbone=Tiny()), Runtime(device=device))
    whole = time.perf_counter() - started
    seconds = {kind_of(record.stage): record.seconds for record in done.result.history}
    on_gpu = done.hardware.device.type == "cuda"
    return {
        "images": len(images),
        "file_mb": path.stat().st_size / 2**20,
        **seconds,
        "whole": whole,
        "us_an_image": 1e6 * sum(seconds.values()) / len(images),
        "host_mb": peak_memory_mb(),
        "device_mb": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else 0.0,
        "engine": done.engine,
    }


def in_a_process(rows: int, side: int, device: str, threads: int) -> dict[str, Any]:
    """Write the file, train in another process, delete the file."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "images.npy"
        write_images(path, rows, side)
        command = [sys.executable, __file__, "--measure", str(path), "--device", device, "--threads", str(threads)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def main() -> None:
    """All sizes, from the smallest on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,50000", help="numbers of images, with commas")
    parser.add_argument("--side", type=int, default=32, help="of an image, in pixels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0 = choose")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(measured(asked.measure, asked.device, asked.threads)))
        return
    sizes = sorted(int(size) for size in asked.sizes.split(","))
    found: list[dict[str, Any]] = []
    for size in sizes:
        row = in_a_process(size, asked.side, asked.device, asked.threads)
        before = found[-1] if found else row
        more = row["file_mb"] - before["file_mb"]
        row["host_growth"] = (row["host_mb"] - before["host_mb"]) / more if more else 0.0
        found.append(row)
        print(json.dumps(row), flush=True)  # large sizes take a while, and what is known should not be lost
    columns = ("images", "file_mb", "base", "split", "student", "whole", "us_an_image", "host_mb", "device_mb")
    show("seconds and megabytes; host_growth = memory for one megabyte more on disk", found, (*columns, "host_growth"))
    print(f"engine: {', '.join(sorted({row['engine'] for row in found}))}")
    write(asked.out, growth=found)


if __name__ == "__main__":
    main()
