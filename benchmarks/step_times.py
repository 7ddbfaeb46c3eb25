"""What the captured steps of the paper's schedule take, and by which kernels: a minute instead of a whole training.

PYTHONPATH=src python benchmarks/step_times.py --out steps.json                       on a GPU
PYTHONPATH=src python benchmarks/step_times.py --out off.json --set engine.kernels=off
PYTHONPATH=src python benchmarks/step_times.py --smoke --out /tmp/steps.json          tiny, on the CPU

Made-up images of CIFAR-10's shape, the paper's network and batches, two epochs of every stage, and as many hard samples
as the paper's schedule left on CIFAR-10. `first` is the first training of the process, with everything that libraries
and compilers do only once; `again` is a second one. Nothing is learned from such images, and nothing is judged.
"""

import argparse
import contextlib
import dataclasses
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from engine_gpu import made_up_images
from figures_file import Figures, show
from kernels import ProfiledSteps
from stage_clock import StageClock

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.engine.stage import Observer
from splitpu.errors import Interrupted
from splitpu.methods import split_pu as splitpu
from splitpu.methods.split import SplitResult, split_unlabelled
from splitpu.training import Runtime, TrainSpec, train

HARD_SHARE = 0.0728  # what the paper's schedule left on CIFAR-10 with 1,000 labelled positives
SHORT = ["base.epochs=2", "split.max_epochs=2", "split.tau=0.01", "student.epochs=2", "rounds=1"]
TINY = ["base.batch_size=32", "student.batch_size=32", "split.batch_size=32", "engine.threads=1"]


def usual_split(*asked: Any) -> SplitResult:
    """The split, with the usual share of hard samples."""
    found = split_unlabelled(*asked)
    easy = np.arange(len(found.easy)) >= HARD_SHARE * len(found.easy)
    return dataclasses.replace(found, easy=easy, taught=easy)


class Bench:
    """One set of images, trained on several times."""

    def __init__(self, smoke: bool, settings: list[str]) -> None:
        self.device = torch.device("cpu" if smoke else "cuda")
        self.backbone = "cnn-small" if smoke else "cnn13"
        named = made_up_images(smoke)
        self.prior = true_prior(named)
        self.data, _ = make_pu(named, 40 if smoke else 1000, 0)
        more = ["engine.checkpoint_every=1000", *(TINY if smoke else []), *settings]
        self.config = apply_overrides(preset("paper"), [*SHORT, *more])

    def train(self, observer: Observer) -> str:
        """A short training; what the engine chose."""
        spec = TrainSpec(prior=self.prior, config=self.config, backbone=self.backbone)
        with mock.patch.object(splitpu, "split_unlabelled", usual_split):
            return train(self.data, spec, Runtime(device=str(self.device), observer=observer)).engine

    def times(self) -> dict[str, Any]:
        """Milliseconds a step, and seconds of every stage that are no epochs."""
        clock, started = StageClock(), time.perf_counter()
        engine = self.train(clock)
        stages = {
            name: {
                "rows": stage["counts"],
                "ms_a_step": 1e3 * stage["epoch"] / stage["steps"],
                "seconds_beside_epochs": stage["wall"] - stage["epoch"] * stage["epochs"],
            }
            for name, stage in clock.stages.items()
        }
        return {"engine": engine, "seconds": time.perf_counter() - started, "stages": stages}

    def profile(self) -> dict[str, Any]:
        """Kernels of the base's and the student's step."""
        observer = ProfiledSteps(("base", "round1.student"), 20, 20, self.device, shown=40)
        with contextlib.suppress(Interrupted):  # once the observer has seen enough
            self.train(observer)
        return observer.found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file; figures that it holds are not measured again")
    parser.add_argument("--smoke", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    bench, figures = Bench(asked.smoke, asked.settings), Figures(asked.out)
    show("first", figures.once("first", bench.times))
    show("again", figures.once("again", bench.times))
    show("profile", figures.once("profile", bench.profile))


if __name__ == "__main__":
    main()
