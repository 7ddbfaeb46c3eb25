"""Is the epoch that held-out P and U choose better than the last one?

python benchmarks/epoch_choice.py --draws 100 --only "benign 80"                      half a minute on one core
python benchmarks/epoch_choice.py --jobs 2 --out epoch_choice.jsonl

On development sets, as plain vectors, with the true prior and default settings (Split-PU: one round). `last` trains on
all rows. The others keep a fifth of P and of U aside: `fewer rows` takes the last epoch all the same, the next two the
best one by the estimated accuracy and by the nnPU value, and `stopped` ends after ten epochs without a better one.
"""

import time
import warnings
from typing import Any

import numpy as np
from case_runner import Key, run_cases, table
from development_sets import asked_cases, drawn_with_tests
from machine import machine

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.methods.context import TERM
from splitpu.training import Runtime, Training, TrainSpec, profile_of, train

NAMES = ("digits low 50", "benign 80")
METHODS = ("split-pu", "nnpu", "upu")
ASIDE = "selection.held_out=0.2"
LAST = "last"
WAYS: dict[str, tuple[str, ...]] = {
    LAST: (),
    "fewer rows": (ASIDE, "selection.criterion=none"),
    "by accuracy": (ASIDE, "selection.criterion=accuracy"),
    "by nnPU value": (ASIDE, "selection.criterion=nnpu"),
    "stopped": (ASIDE, "selection.criterion=accuracy", "selection.patience=10"),
}


def main() -> None:
    cases, options = asked_cases(__doc__, NAMES)
    show(run_cases(cases, every_way, options))


def every_way(case: Key) -> dict[str, Any]:
    """Test accuracy of every method by every way, in percent, with the seconds and the epochs it took."""
    warnings.simplefilter("ignore")
    rows = drawn_with_tests(case["task"], case["prior"], case["draw"])
    found: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        found[method] = {}
        for way, settings in WAYS.items():
            start = preset("default", profile_of(rows.data))
            config = apply_overrides(start, [f"method={method}", "rounds=1", "engine.threads=1", *settings])
            began = time.process_time()
            training = train(
                rows.data, TrainSpec(prior=rows.prior, config=config, seed=case["draw"]), Runtime(device="cpu")
            )
            seconds = time.process_time() - began
            called = training.model.decision(rows.features_test, training.hardware) > 0
            accuracy = 100 * float((called == rows.truth_test).mean())
            found[method][way] = {"accuracy": accuracy, "cpu_seconds": seconds, "epoch": best_epoch(training)}
    words = ", ".join(f"{name} {_gain(one, 'by accuracy'):+.1f}" for name, one in found.items())
    return {"truth": rows.prior, "methods": found, "in_words": words, "machine": machine()}


def best_epoch(training: Training) -> float | None:
    """Which epoch of the last stage was best by the rows aside, as a share of those planned."""
    last = [record for record in training.result.history if record.stage == training.result.history[-1].stage]
    judged = [(record.terms[TERM], -record.epoch) for record in last if TERM in record.terms]
    return -max(judged)[1] / last[-1].epochs if judged else None


def show(lines: list[dict[str, Any]]) -> None:
    """Accuracy of the last epoch on all rows, and what every other way gains over it, with its standard error."""
    for task in ("all", *dict.fromkeys(line["case"]["task"] for line in lines)):
        some = [line["methods"] for line in lines if task in ("all", line["case"]["task"])]
        table(f"{task}: test accuracy in percent ({len(some)} paired draws)", ["method", *WAYS], _rows(some))
    columns = ["method", *(f"{way}: s, epoch" for way in WAYS)]
    table("CPU seconds, and the best epoch as a share of all", columns, _costs([line["methods"] for line in lines]))
    print(f"\n{machine()}")


def _rows(found: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for method in METHODS:
        of_method = [one[method] for one in found]
        last = np.mean([one[LAST]["accuracy"] for one in of_method])
        gains = [[_gain(one, way) for one in of_method] for way in WAYS if way != LAST]
        rows.append([method, f"{last:.2f}", *map(_with_error, gains)])
    return rows


def _with_error(gains: list[float]) -> str:
    error = np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
    return f"{np.mean(gains):+.2f} ± {error:.2f}"


def _costs(found: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for method in METHODS:
        row = [method]
        for way in WAYS:
            of_way = [one[method][way] for one in found]
            epochs = [one["epoch"] for one in of_way if one["epoch"] is not None]
            seconds = np.mean([one["cpu_seconds"] for one in of_way])
            row.append(f"{seconds:.1f}" + (f", {np.mean(epochs):.2f}" if epochs else ""))
        rows.append(row)
    return rows


def _gain(found: dict[str, Any], way: str) -> float:
    return float(found[way]["accuracy"] - found[LAST]["accuracy"])


if __name__ == "__main__":
    main()
