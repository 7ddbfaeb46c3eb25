"""What would be reported if the epoch were picked by its test accuracy, which the released code prints after each?

python benchmarks/epochs_on_test.py --results results --out epochs_on_test.jsonl --labelled 500,1000,3000 --seeds 0,1

Runs units of the table `main` (recipe `paper`), whose lines go to --results as those of `splitpu reproduce run` do, and
writes beside them, epoch by epoch, the accuracy of base and students on the test images and the share that they call
positive. Nothing is chosen by it: results report the last epoch. `--show FILE` prints what is there already.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from machine import machine

from splitpu.data.public.download import cache_folder
from splitpu.data.pudata import HeldOut, PUData
from splitpu.engine.inference import predict_logits
from splitpu.engine.stage import Observer, Stage, StageOutcome
from splitpu.reproduce.declared import chosen_experiments
from splitpu.reproduce.figures import WatchingEngine
from splitpu.reproduce.runner import run_units
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import planned_units
from splitpu.training import Runtime
from splitpu.utils.statistics import standard_error

STUDENTS = ("round1.student", "round2.student")


class TestedEngine(WatchingEngine):
    """Looks at the test images after every epoch of base and students."""

    held_out: HeldOut
    labelled: int
    out: Path

    def run(self, stage: Stage) -> StageOutcome:
        if stage.name != "base" and stage.name not in STUDENTS:
            return super().run(stage)
        self.watch(stage.name, test=self._look)
        outcome = super().run(stage)
        seen = self.seen(stage.name, "test", "accuracy", "called_positive")
        line = {"labelled": self.labelled, "stage": stage.name, "seed": self.seed, **seen, "machine": machine()}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return outcome

    def _look(self, module: Any, _: int) -> list[float]:
        network = module["network"] if isinstance(module, torch.nn.ModuleDict) else module
        called = predict_logits(network, self.held_out.features, self.views, self.hardware) > 0
        return [100 * float((called == self.held_out.truth).mean()), 100 * float(called.mean())]


class TestedWorkplace(Workplace):
    """Where units are run by such an engine, which is told of every draw."""

    def draw(self, name: str, positives: int, seed: int) -> tuple[PUData, HeldOut, float]:
        data, held_out, prior = super().draw(name, positives, seed)
        TestedEngine.held_out, TestedEngine.labelled = held_out, positives
        return data, held_out, prior

    def runtime(self, observer: Observer) -> Runtime:
        return replace(super().runtime(observer), engine_type=TestedEngine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("epochs_on_test.jsonl"))
    parser.add_argument("--labelled", default="1000")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit")
    parser.add_argument("--side-by-side", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    if options.show:
        show(options.show)
        return
    numbers = {name: [int(word) for word in getattr(options, name).split(",")] for name in ("labelled", "seeds")}
    units = planned_units(
        chosen_experiments("main"), recipe="paper", positives=numbers["labelled"], seeds=numbers["seeds"]
    )
    place = TestedWorkplace(
        options.cache or cache_folder(None) / "stages", options.device, None, None, options.commit, options.side_by_side
    )
    TestedEngine.out = options.out
    run_units(units, ResultStore(options.results), place, minutes=options.minutes, fill=options.minutes is not None)
    show(options.out)


def show(path: Path) -> None:
    """The last epoch, the mean of the last ten, and the best one, by stage and number of labelled positives."""
    found: dict[tuple[int, str], dict[int, dict[str, Any]]] = {}  # a stage found in the cache writes its line again
    for line in map(json.loads, path.read_text().splitlines()):
        found.setdefault((line["labelled"], line["stage"]), {})[line["seed"]] = line
    print("| labelled | stage | last epoch | last ten | best epoch by test labels | best less last | n |")
    print("|---|---|---|---|---|---|---|")
    for (labelled, stage), by_seed in sorted(found.items()):
        curves = [line["accuracy"] for line in by_seed.values()]
        ends = [(one[-1], fmean(one[-10:]), max(one)) for one in curves]
        last, ten, best = zip(*ends, strict=True)
        gains = [high - end for high, end in zip(best, last, strict=True)]
        error = standard_error(gains, 2)
        said = f"{fmean(gains):+.2f}" + (f" ± {error:.2f}" if error is not None else "")
        figures = f"{fmean(last):.2f} | {fmean(ten):.2f} | {fmean(best):.2f}"
        print(f"| {labelled} | {stage} | {figures} | {said} | {len(curves)} |")


if __name__ == "__main__":
    main()
