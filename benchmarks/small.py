"""Digits and breast-cancer with default settings: base against student, over several seeds.

    python benchmarks/small.py [--seeds 0,1,2] [--only digits] [--json FILE]
    python benchmarks/small.py --only "mnist,cifar10"    parts of larger sets, with few epochs: is a student ever worse?

Each seed draws its own stratified 75/25 split and its own labelled positives; the prior is the true one of the training
rows; accuracy is that of the last epoch on the test rows, which nothing else ever sees.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from splitpu import SplitPUClassifier, load_named, make_pu
from splitpu.data.public.named_set import true_prior

TASKS = {"digits": 50, "breast-cancer": 30, "mnist": 150, "cifar10": 200}  # labelled positives of each
GOALS = {"digits": 93.5, "breast-cancer": 94.0}
PART = 1_500  # rows of the larger sets, for training and for testing
FEW = {"rounds": 1, "base.epochs": 8, "split.max_epochs": 20, "student.epochs": 8}


def one_run(name: str, seed: int) -> dict[str, float]:
    """Train with default settings and score base and student on the held-out rows, in percent."""
    named = load_named(name, split_seed=seed)
    data, held_out = make_pu(named, TASKS[name], seed)
    began = time.perf_counter()
    features, labelled, tests, truth = data.features, data.labelled, held_out.features, held_out.truth
    if name not in GOALS:
        rng = np.random.default_rng(seed)
        known, others = np.flatnonzero(labelled), rng.permutation(np.flatnonzero(~labelled))
        kept = np.concatenate([known, others[: PART - len(known)]])
        features, labelled, tests, truth = features[kept], labelled[kept], tests[:PART], truth[:PART]
    config = None if name in GOALS else FEW
    model = SplitPUClassifier(prior=true_prior(named), learner="network", config=config, random_state=seed)
    model.fit(features, labelled.astype(int))
    seconds = time.perf_counter() - began

    def accuracy(of) -> float:
        return 100 * float((of.predict(tests) == truth).mean())

    def auc(of) -> float:
        return 100 * float(roc_auc_score(truth, of.decision_function(tests)))

    figures = {"base": accuracy(model.base_), "student": accuracy(model), "seconds": seconds}
    return figures | {"base AUC": auc(model.base_), "student AUC": auc(model)}


def summary(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.2f}"


def main() -> None:
    """Run every task, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", default=",".join(GOALS), help=f"some of {', '.join(TASKS)}, with commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    table = Table(title=f"default settings, true prior, seeds {options.seeds}, {platform.machine()}")
    for column in ("set", "labelled", "base %", "student %", "gain", "gain in AUC", "goal %", "seconds a run"):
        table.add_column(column, justify="right")
    figures = {}
    for name in options.only.split(","):
        runs = [one_run(name, seed) for seed in seeds]
        figures[name] = runs
        base, student, seconds = ([run[key] for run in runs] for key in ("base", "student", "seconds"))
        gain = statistics.mean(student) - statistics.mean(base)
        ranks = statistics.mean(run["student AUC"] - run["base AUC"] for run in runs)
        row = (summary(base), summary(student), f"{gain:+.2f}", f"{ranks:+.2f}")
        row = (*row, f"{GOALS.get(name, '')}", f"{statistics.mean(seconds):.0f}")
        table.add_row(name, str(TASKS[name]), *row)
    Console().print(table)
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        options.json.write_text(json.dumps({"seeds": seeds, **machine, "runs": figures}, indent=2))


if __name__ == "__main__":
    main()
