"""The engine on a CPU against the training loop that everybody writes first.

python benchmarks/engine_cpu.py                     digits and 1,000 photos, about a minute on two idle cores
python benchmarks/engine_cpu.py --full --out engine_cpu.json        5,000 photos
python benchmarks/engine_cpu.py --busy              where other programs run: one thread, processor time, no workers

The sides take turns, and the figures that count are ratios inside one turn: a busy machine slows both sides down. The
plain loop may choose between no worker and two; both sides use the same network, batches and number of epochs. Ours
computes as it chooses to: images in bf16 where the CPU has instructions for it. float32 stands beside it.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from parts_of_sets import BATCH, PRIOR, drawn, settings
from plain_loop import plain_epochs
from tables import show, write

from splitpu.data.pudata import PUData
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.training import Runtime, TrainSpec, train


class Stopwatch(Observer):
    """Seconds of every epoch by any clock, taken around its steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.seconds = clock, list[float]()
        self._started = 0.0

    def stage_started(self, stage: Stage, done: int) -> None:
        """The first epoch begins."""
        self._started = self.clock()

    def epoch_done(self, record: EpochRecord) -> None:
        """One epoch ends and the next begins."""
        now = self.clock()
        self.seconds.append(now - self._started)
        self._started = now


def one_turn(data: PUData, network: str, epochs: int, threads: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Seconds an epoch of every side, the quickest one each."""
    batch = min(BATCH, len(data))
    found: dict[str, float] = {}
    engines: dict[str, str] = {}
    for side, precision in (("ours", "auto"), ("ours_fp32", "fp32")):
        config = settings(data, epochs, f"engine.threads={threads}", f"engine.precision={precision}")
        watch = Stopwatch(clock)
        training = train(
            data, TrainSpec(prior=PRIOR, config=config, backbone=network), Runtime(device="cpu", observer=watch)
        )
        found[side], engines[side] = min(watch.seconds), training.engine
    torch.set_num_threads(threads)
    # The clock of a process does not count what its workers do.
    for workers in (0,) if clock is time.process_time else (0, 2):
        found[f"plain_{workers}"] = min(plain_epochs(data, network, batch, PRIOR, epochs, workers, clock))
    return found | {"engine": engines["ours"]}


def compared(name: str, data: PUData, network: str, epochs: int, asked: argparse.Namespace) -> dict[str, Any]:
    """The median turn's ratios, with the plain loop at its better number of workers."""
    clock = time.process_time if asked.busy else time.perf_counter
    turns = [one_turn(data, network, epochs, asked.threads, clock) for _ in range(asked.turns)]
    plain = [min(seconds for side, seconds in turn.items() if side.startswith("plain")) for turn in turns]
    ratios, ratios_fp32 = (
        [best / turn[side] for best, turn in zip(plain, turns, strict=True)] for side in ("ours", "ours_fp32")
    )
    return {
        "data": name,
        "rows": len(data),
        "network": network,
        "threads": asked.threads,
        "ours": statistics.median(turn["ours"] for turn in turns),
        "plain": statistics.median(plain),
        "ratio": statistics.median(ratios),
        "from": min(ratios),
        "to": max(ratios),
        "ratio_fp32": statistics.median(ratios_fp32),
        "engine": turns[0]["engine"],
        "turns": turns,
    }


def main() -> None:
    """Run everything, print a table, and write the figures with the machine they are from."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="5,000 photos instead of 1,000")
    parser.add_argument("--turns", type=int, default=3, help="how often every side is measured")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of both sides")
    parser.add_argument(
        "--busy", action="store_true", help="one thread, and processor time instead of time on the wall"
    )
    parser.add_argument("--out", type=Path, help="JSON file")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    asked.threads = 1 if asked.busy else asked.threads
    digits, photos = drawn("digits", 10**6, 50), drawn("cifar10", 5000 if asked.full else 1000, 500)
    found = [
        compared("digits", digits, "cnn-small", 8, asked),
        compared("cifar10", photos, "cnn-small", 2, asked),
    ]
    columns = ("data", "rows", "network", "threads", "ours", "plain", "ratio", "from", "to", "ratio_fp32", "engine")
    kind = "seconds of processor time" if asked.busy else "seconds"
    show(f"{kind} an epoch of the base stage, and how many times quicker than the plain loop", found, columns)
    write(asked.out, plain_loop=found, clock=kind)


if __name__ == "__main__":
    main()
