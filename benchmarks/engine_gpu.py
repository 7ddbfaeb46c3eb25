"""What the engine does on a GPU: CIFAR-10 shapes, the paper's network and schedule, 1,000 labelled positives.

PYTHONPATH=src python benchmarks/engine_gpu.py --out engine_gpu.json                              everything
PYTHONPATH=src python benchmarks/engine_gpu.py --out engine_gpu.json --parts agreement --epochs-scale 0.1
PYTHONPATH=src python benchmarks/engine_gpu.py --smoke --out /tmp/smoke.json                      tiny, on the CPU

Every figure is written as soon as it is there, and one that is in the file already is not measured again, so a run that
was cut short goes on. Parts: `ours` a full run of the schedule; `plain` the same method in an eager float32 loop with
data loaders, a few epochs of every stage, extrapolated by the number of epochs; `rate` the measured bf16 rate, the
share of it in the base step and the arithmetic limit; `profile` kernels by group; `agreement` captured bf16 with our
kernels against eager float32 with torch's, over three seeds.
Convolutions in float32 use TF32, torch's default, unless --strict-fp32. Test labels are only reported, nothing is
chosen by them.
"""

import argparse
import contextlib
import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from arithmetic import Arithmetic, matrix_rate
from figures_file import Figures, show
from kernels import ProfiledSteps
from plain_loop import PlainStages
from stage_clock import StageClock

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.config.schema import Config
from splitpu.data.public.datasets import load_named
from splitpu.data.public.download import cache_folder
from splitpu.data.public.named_set import NamedSet, make_pu, true_prior
from splitpu.data.pudata import HeldOut, PUData
from splitpu.engine.inference import predict_logits
from splitpu.engine.stage import Observer, kind_of
from splitpu.errors import Interrupted
from splitpu.evaluation.metrics import evaluate_scores
from splitpu.training import Runtime, Training, TrainSpec, train
from splitpu.views import Views

PARTS = ("ours", "rate", "profile", "agreement", "plain")


@dataclasses.dataclass
class Bench:
    """The data, the settings and the device of all parts."""

    device: torch.device
    backbone: str
    labelled: int
    config: Config
    named: NamedSet
    asked: argparse.Namespace

    @cached_property
    def prior(self) -> float:
        """Known, as in the paper."""
        return true_prior(self.named)

    def draw(self, seed: int = 0) -> tuple[PUData, HeldOut]:
        """PU data and test rows."""
        return make_pu(self.named, self.labelled, seed)

    def train(self, data: PUData, config: Config, seed: int = 0, observer: Observer | None = None) -> Training:
        """One training as any user starts it."""
        spec = TrainSpec(prior=self.prior, config=config, backbone=self.backbone, seed=seed)
        return train(data, spec, Runtime(device=str(self.device), observer=observer))

    def shortened(self, *more: str) -> Config:
        """The schedule with a share of its epochs."""
        scale, config = self.asked.epochs_scale, self.config
        epochs = {
            "base.epochs": config.base.epochs,
            "split.max_epochs": config.split.max_epochs,
            "student.epochs": config.student.epochs,
        }
        scaled = [f"{key}={max(1, round(scale * count))}" for key, count in epochs.items()]
        return apply_overrides(config, [*scaled, f"rounds={self.asked.rounds}", *more])

    @property
    def short(self) -> str:
        """What a shortened schedule is called in the file."""
        rows = len(self.named.features_train)
        return f"{self.asked.epochs_scale:g} of the epochs, rounds {self.asked.rounds}, {rows} rows"

    # --- parts ---

    def ours(self) -> dict[str, Any]:
        """The whole schedule through `splitpu.train`, from nothing, capture included."""
        data, held_out = self.draw()
        clock, started = StageClock(), time.perf_counter()
        training = self.train(data, self.config, observer=clock)
        total = time.perf_counter() - started
        return {
            "total": total,
            "engine": training.engine,
            "stages": clock.stages,
            "accuracy": self.accuracies(training, held_out),
            "hard_share": float(1 - training.result.rounds[-1].split.easy.mean()),
        }

    def plain(self, figures: Figures) -> dict[str, Any]:
        """The plain loop with every number of workers that was asked for."""
        arithmetic = "TF32" if torch.backends.cudnn.allow_tf32 else "fp32"
        return {
            name: self.plain_with(workers, f"plain/{name}", figures)
            for workers in self.asked.workers
            for name in [f"{arithmetic}, {workers} workers"]
        }

    def plain_with(self, workers: int, key: str, figures: Figures) -> dict[str, Any]:
        """Seconds an epoch of every stage in the plain loop, the quickest of a few, and the ratio to ours."""
        ours = figures.once("ours", self.ours)
        data, _ = self.draw()
        stages = PlainStages(data, self.config, self.backbone, self.prior, str(self.device), workers)
        count = self.asked.plain_epochs
        found = {
            "base": figures.once(f"{key}/base", lambda: stages.base(count)),
            "split": figures.once(f"{key}/split", lambda: stages.split(count)),
            "student": figures.once(f"{key}/student", lambda: stages.student(count, ours["hard_share"])),
        }
        rows = {}
        for name, stage in ours["stages"].items():
            ours_epoch, plain_epoch = stage["wall"] / stage["epochs"], min(found[kind_of(name)])
            rows[name] = {
                "epochs": stage["epochs"],
                "ours": ours_epoch,
                "plain": plain_epoch,
                "ratio": plain_epoch / ours_epoch,
            }
        ours_total, plain_total = (
            sum(row[side] * row["epochs"] for row in rows.values()) for side in ("ours", "plain")
        )
        return {
            "stages": rows,
            "ours_total": ours_total,
            "plain_total_extrapolated": plain_total,
            "ratio": plain_total / ours_total,
        }

    def rate(self, figures: Figures) -> dict[str, Any]:
        """Matrix products against the base step and against the whole schedule."""
        ours = figures.once("ours", self.ours)
        arithmetic = Arithmetic(self.backbone, self.named.features_train.shape[1:])
        measured = matrix_rate(self.device, self.asked.matrix)
        base = ours["stages"]["base"]
        in_step = arithmetic.step("base", base["counts"])
        seconds = base["epoch"] / base["steps"]
        total = arithmetic.schedule(ours["stages"], len(self.named.features_train))
        return {
            "measured_bf16_rate": measured,
            "base_step_operations": in_step,
            "base_step_seconds": seconds,
            "base_step_share": in_step / seconds / measured,
            "schedule_operations": total,
            "schedule_limit_seconds": total / measured,
            "schedule_share": total / measured / ours["total"],
        }

    def profile(self) -> dict[str, Any]:
        """Kernels of some steps of the base and of the first student, captured unless asked otherwise."""
        capture = "off" if self.asked.uncaptured else "auto"
        short = ["base.epochs=1", "split.max_epochs=1", "split.tau=0.01", "student.epochs=1", "rounds=1"]
        observer = ProfiledSteps(("base", "round1.student"), 20, 20, self.device)
        config = apply_overrides(self.config, [*short, f"engine.capture={capture}"])
        with contextlib.suppress(Interrupted):  # once the observer has seen enough
            self.train(self.draw()[0], config, 0, observer)
        return {"capture": capture, **observer.found}

    def agreement(self, figures: Figures) -> dict[str, Any]:
        """Last-epoch accuracy of both ways to compute, seed by seed."""
        ways = {
            "fast": self.shortened(),
            "eager fp32": self.shortened("engine.precision=fp32", "engine.capture=off", "engine.kernels=off"),
        }
        rows: dict[str, Any] = {}
        for seed in range(self.asked.agreement_seeds):
            data, held_out = self.draw(seed)

            def one(config: Config, data: PUData = data, held_out: HeldOut = held_out, seed: int = seed) -> Any:
                started = time.perf_counter()
                training = self.train(data, config, seed)
                found = {"engine": training.engine, "accuracy": self.accuracies(training, held_out)}
                return found | {"seconds": time.perf_counter() - started}

            for way, config in ways.items():
                found = figures.once(
                    f"agreement, {self.short}/seed {seed}/{way}", lambda config=config, one=one: one(config)
                )
                rows.setdefault(way, []).append(found["accuracy"][-1])
        differences = [fast - exact for fast, exact in zip(rows["fast"], rows["eager fp32"], strict=True)]
        return {
            **rows,
            "mean_difference": statistics.fmean(differences),
            "largest_difference": max(map(abs, differences)),
            "epochs_scale": self.asked.epochs_scale,
            "tf32_convolutions": torch.backends.cudnn.allow_tf32,
        }

    def accuracies(self, training: Training, held_out: HeldOut) -> list[float]:
        """Percent on the test rows: of the base and of every student."""
        views = Views(training.model.preprocessing, training.model.config.views, training.hardware.device)
        models = [training.result.base, *(found.student for found in training.result.rounds)]
        return [
            100
            * evaluate_scores(
                held_out.truth,
                predict_logits(one.network, held_out.features, views, training.hardware) - one.threshold,
                self.prior,
            )["accuracy"]
            for one in models
        ]


def images(smoke: bool, datasets: Path | None) -> NamedSet:
    """CIFAR-10 if it is at hand, else made-up pictures of its shape."""
    if not smoke and (cache_folder(datasets) / "cifar10").is_dir():
        return load_named("cifar10", datasets)
    return made_up_images(smoke)


def made_up_images(smoke: bool) -> NamedSet:
    """Noise whose brightness tells a little of the class, in CIFAR-10's shape or, for a trial, tiny."""
    random = np.random.default_rng(0)
    rows, side = (400, 12) if smoke else (50_000, 32)
    parts: dict[str, Any] = {}
    for part, count in (("train", rows), ("test", rows // 5)):
        truth = random.random(count) < 0.4
        pixels = random.integers(0, 216, (count, side, side, 3), dtype=np.uint8)
        pixels[:, : side // 2] += (40 * truth).astype(np.uint8)[:, None, None, None]
        parts |= {f"features_{part}": pixels, f"truth_{part}": truth}
    return NamedSet(name="made up", description="noise", positive_meaning="brighter above", **parts)


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parts", default=",".join(PARTS), help="some of %(default)s")
    add("--out", type=Path, help="JSON file; figures that it holds are not measured again")
    add("--smoke", action="store_true", help="tiny, on the CPU")
    add("--preset", default="paper")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="settings over the preset")
    add("--epochs-scale", type=float, default=0.2, help="share of the epochs in `agreement`")
    add("--rounds", type=int, default=1, help="rounds in `agreement`")
    add("--agreement-seeds", type=int, default=3)
    add("--plain-epochs", type=int, default=2)
    add("--workers", default="0,4", help="of the plain loop's data loaders; 0, torch's default, loads between steps")
    add("--uncaptured", action="store_true", help="profile steps that are issued kernel by kernel")
    add("--strict-fp32", action="store_true", help="no TF32 in float32 convolutions")
    add("--datasets", type=Path, help="cache of the data sets")
    asked = parser.parse_args()
    asked.workers = [int(number) for number in asked.workers.split(",")]
    asked.matrix = 256 if asked.smoke else 8192
    unknown = set(asked.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    return asked


def main() -> None:
    """Measure what was asked for and print it."""
    asked = parsed()
    warnings.simplefilter("ignore")
    if asked.strict_fp32:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cpu" if asked.smoke else "cuda")
    config = apply_overrides(preset(asked.preset), ["engine.checkpoint_every=1000", *asked.settings])
    if asked.smoke:
        tiny = ["base.epochs=2", "split.max_epochs=2", "student.epochs=2", "base.batch_size=32", "engine.threads=1"]
        config = apply_overrides(config, [*tiny, "student.batch_size=32", "split.batch_size=32"])
    backbone, labelled = ("cnn-small", 40) if asked.smoke else ("cnn13", 1000)
    bench = Bench(device, backbone, labelled, config, images(asked.smoke, asked.datasets), asked)
    figures = Figures(asked.out)
    figures.known["data"] = bench.named.name
    work: dict[str, Callable[[], Any]] = {
        "ours": lambda: figures.once("ours", bench.ours),
        "rate": lambda: figures.once("rate", lambda: bench.rate(figures)),
        "profile": lambda: figures.once("profile", bench.profile),
        # Made up of figures that are written one by one.
        "agreement": lambda: figures.put(f"agreement, {bench.short}", bench.agreement(figures)),
        "plain": lambda: figures.put("plain", figures.known.get("plain", {}) | bench.plain(figures)),
    }
    for part in asked.parts.split(","):
        show(part, work[part]())


if __name__ == "__main__":
    main()
