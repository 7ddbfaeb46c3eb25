"""What a prior that is a little off costs, by where the logits are cut: points of accuracy against the true prior.

python benchmarks/thresholds.py --seeds 1                              minutes on one core
python benchmarks/thresholds.py --seeds 3 --out thresholds.jsonl

On development sets, as plain vectors: each is trained with its true prior and with one that is 0.02 off, and the second
model's logits are cut where the wrong prior is met, at 1/2, by `threshold_near` (0.04 on either side), and by
it half way to the share that the base model calls positive by itself.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from case_runner import Key, add_options, run_cases, table
from development_sets import TASKS
from drawn_sets import PRIORS, Setting, drawn_from
from machine import machine

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.methods.context import Teacher
from splitpu.methods.thresholds import matched_threshold, second_opinion, threshold_near
from splitpu.training import Runtime, Training, TrainSpec, profile_of, train

NAMES = (
    *("benign 80", "digits 3 9", "digits low 100", "gaussians", "gaussians of 20", "moons 200"),
    *("mnist low 150 of 1500", "mnist round 500 of 4000"),
)
OFF, REACH = 0.02, 0.04
CUTS = ("matched", "at 1/2", "threshold_near", "with the base's share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="names of tasks, with commas")
    add_options(parser)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(NAMES)
    cases = [
        {"task": name, "prior": prior, "seed": seed}
        for seed in range(options.seeds)
        for prior in PRIORS
        for name in names
    ]
    show(run_cases(cases, lost_by_cut, options), names)


def lost_by_cut(case: Key) -> dict[str, Any]:
    """Train twice; points lost among the unlabelled rows by every cut of the base model and of the student."""
    warnings.simplefilter("ignore")
    data, truth, true = drawn(case)
    # One side and the other in turn.
    wrong = true + OFF * (1 if (case["seed"] + round(10 * case["prior"]) // 2) % 2 else -1)
    right, misled = trained(data, true, case["seed"]), trained(data, wrong, case["seed"])
    lost: dict[str, dict[str, float]] = {}
    interval = (wrong - REACH, wrong + REACH)
    own_share = float((misled.result.base.logits[torch.as_tensor(data.population)] > 0).double().mean())
    for model, other in zip(models(right), models(misled), strict=True):
        name, reference = model[0], accuracy(model[1].logits, model[1].threshold, data, truth)
        logits = other[1].logits
        population = logits[torch.as_tensor(data.population)]
        cuts = {
            "matched": matched_threshold(population, wrong),
            "at 1/2": 0.0,
            "threshold_near": threshold_near(population, wrong, interval),
            "with the base's share": threshold_near(population, second_opinion(wrong, interval, own_share), interval),
        }
        lost[name] = {cut: reference - accuracy(logits, place, data, truth) for cut, place in cuts.items()}
    words = ", ".join(f"{name} " + " / ".join(f"{found[cut]:+.2f}" for cut in CUTS) for name, found in lost.items())
    return {"lost": lost, "true": true, "wrong": wrong, "own_share": own_share, "in_words": words, "machine": machine()}


def drawn(case: Key) -> tuple[PUData, np.ndarray, float]:
    """The task's rows as vectors with the wanted prior, and which of them are positive."""
    task = TASKS[case["task"]]
    features, truth = task.source()
    truth = np.asarray(truth)
    flat = np.asarray(features, dtype=np.float32).reshape(len(features), -1)
    rng = np.random.default_rng([7, case["seed"], round(100 * case["prior"])])
    # The truth goes along as one more column, and comes back before anything is trained.
    both, share = drawn_from(
        np.column_stack([flat, truth]), truth, Setting(task.labelled, task.rows), case["prior"], rng
    )
    rows = both.features
    return PUData.from_arrays(rows[:, :-1], both.labelled), rows[:, -1] > 0, share


def trained(data: PUData, prior: float, seed: int) -> Training:
    """One round with default settings."""
    config = apply_overrides(preset("default", profile_of(data)), ["rounds=1", "learner=network"])
    return train(data, TrainSpec(prior=prior, config=config, seed=seed), Runtime(device="cpu"))


def models(training: Training) -> list[tuple[str, Teacher]]:
    return [("base", training.result.base), ("student", training.result.rounds[-1].student)]


def accuracy(logits: torch.Tensor, threshold: float, data: PUData, truth: np.ndarray) -> float:
    """Percent of the unlabelled rows, whose labels no training has seen."""
    rows = data.unlabelled
    return 100 * float(((logits.numpy()[rows] > threshold) == truth[rows]).mean())


def show(lines: list[dict[str, Any]], names: list[str]) -> None:
    rows = []
    for model in ("base", "student"):
        for cut in CUTS:
            by_task = [
                [line["lost"][model][cut] for line in lines if line["case"]["task"] == name and "lost" in line]
                for name in names
            ]
            means = [float(np.mean(found)) for found in by_task if found]
            rows.append([model, cut, *(f"{mean:+.2f}" for mean in means), f"{np.mean(means):+.2f}"])
    columns = ["model", "cut", *names, "all"]
    table(f"points lost with a prior {OFF} off ({len(lines)} cases)", columns, rows)


if __name__ == "__main__":
    main()
