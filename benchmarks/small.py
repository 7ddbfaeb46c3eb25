"""Digits and breast-cancer with default settings: base against student, over several seeds.

    python benchmarks/small.py [--seeds 0,1,2] [--json FILE]

Each seed draws its own stratified 75/25 split and its own labelled positives; the prior is the true one of the training
rows; accuracy is that of the last epoch on the test rows, which nothing else ever sees.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from splitpu import SplitPUClassifier, load_named, make_pu
from splitpu.data.public.named_set import true_prior

TASKS = {"digits": 50, "breast-cancer": 30}  # labelled positives of each
GOALS = {"digits": 93.5, "breast-cancer": 94.0}


def one_run(name: str, seed: int) -> dict[str, float]:
    """Train with default settings and score base and student on the held-out rows, in percent."""
    named = load_named(name, split_seed=seed)
    data, held_out = make_pu(named, TASKS[name], seed)
    began = time.perf_counter()
    model = SplitPUClassifier(prior=true_prior(named), learner="network", random_state=seed)
    model.fit(data.features, data.labelled.astype(int))
    seconds = time.perf_counter() - began

    def accuracy(of) -> float:
        return 100 * float((of.predict(held_out.features) == held_out.truth).mean())

    return {"base": accuracy(model.base_), "student": accuracy(model), "seconds": seconds}


def summary(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.2f}"


def main() -> None:
    """Run every task, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    table = Table(title=f"default settings, true prior, seeds {options.seeds}, {platform.machine()}")
    for column in ("set", "labelled", "base %", "student %", "gain", "goal %", "seconds a run"):
        table.add_column(column, justify="right")
    figures = {}
    for name, labelled in TASKS.items():
        runs = [one_run(name, seed) for seed in seeds]
        figures[name] = runs
        base, student, seconds = ([run[key] for run in runs] for key in ("base", "student", "seconds"))
        gain = statistics.mean(student) - statistics.mean(base)
        row = (summary(base), summary(student), f"{gain:+.2f}", f"{GOALS[name]}", f"{statistics.mean(seconds):.0f}")
        table.add_row(name, str(labelled), *row)
    Console().print(table)
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        options.json.write_text(json.dumps({"seeds": seeds, **machine, "runs": figures}, indent=2))


if __name__ == "__main__":
    main()
