"""What it costs to train with prior="auto" instead of the true prior: accuracy on test rows, both ways.

python benchmarks/auto_prior.py --only breast-cancer --seeds 1                     a minute on two cores
python benchmarks/auto_prior.py --jobs 2 --out auto_prior.jsonl
python benchmarks/auto_prior.py --only mnist,cifar10 --rounds 0 --priors prior.jsonl --out auto_prior.jsonl     on a GPU

`--priors` takes the estimates that prior.py wrote, where it has them: they are of the same rows. Two trainings with
different seeds differ as well, so the table sets the loss against what another seed costs (`--control`).
"""

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from case_runner import Key, add_options, met, read_lines, run_cases, table
from drawn_sets import PRIORS, SEEDS, SETTINGS, USUAL, Drawn, drawn
from machine import machine

from splitpu import InputError, SplitPUClassifier
from splitpu.prior.estimate import PriorEstimate, estimate_prior

GOAL = 0.5  # points of accuracy


def main() -> None:
    options = _options()
    names = options.only.split(",") if options.only else [*USUAL, *(["cifar10"] if options.cifar else [])]
    cases = [
        {"set": name, "prior": prior, "seed": seed, "rounds": options.rounds, "epochs": options.epochs}
        for name in names
        for seed in SEEDS[: options.seeds]
        for prior in PRIORS
    ]
    gpu = set(options.gpu.split(",")) if options.gpu else set()
    work = partial(both_ways, known=known_estimates(options.priors), control=options.control)
    lines = run_cases(cases, work, options, on_gpu=lambda case: case["set"] in gpu)
    show(lines, names)


def both_ways(case: Key, *, known: dict[tuple[Any, ...], PriorEstimate], control: bool) -> dict[str, Any]:
    """Train with the true prior, with the estimated one, and if asked with the true one and another seed."""
    warnings.simplefilter("ignore")
    rows = drawn(case["set"], case["prior"], case["seed"])
    estimate = known.get((case["set"], case["prior"], case["seed"]))
    if estimate is None:
        try:
            estimate = estimate_prior(rows.data, seed=case["seed"])
        except InputError as error:
            return {"refused": str(error), "in_words": str(error)}
    ways = {"true": (rows.prior, case["seed"]), "auto": (estimate, case["seed"])}
    if control:
        ways["another seed"] = (rows.prior, case["seed"] + 1000)
    accuracy = {way: accuracy_with(rows, prior, case, seed) for way, (prior, seed) in ways.items()}
    lost = 100 * (accuracy["true"] - accuracy["auto"])
    words = f"{100 * accuracy['true']:.2f} % with {rows.prior:.3f}, {lost:+.2f} points lost with {estimate.value:.3f}"
    told = {"estimated": estimate.value, "interval": list(estimate.interval)}
    return {"truth": rows.prior, **told, "accuracy": accuracy, "in_words": words, "machine": machine()}


def accuracy_with(rows: Drawn, prior: float | PriorEstimate, case: Key, seed: int) -> float:
    """Of the default recipe on the test rows, which have the same share of positives as the training rows."""
    settings = {"base.epochs": case["epochs"], "student.epochs": case["epochs"]} if case["epochs"] else None
    model = SplitPUClassifier(prior=prior, rounds=case["rounds"], config=settings, random_state=seed)
    model.fit(rows.data.features, rows.data.labelled.astype(int))
    return float((model.predict(rows.features_test) == rows.truth_test).mean())


def known_estimates(path: Path | None) -> dict[tuple[Any, ...], PriorEstimate]:
    """The recommended estimates that prior.py found, with their intervals."""
    return {
        (line["case"]["set"], line["case"]["prior"], line["case"]["seed"]): PriorEstimate(
            line["estimates"]["splitpu consensus"], tuple(line["interval"]), "consensus", (), {}, ()
        )
        for line in read_lines(path)
        if line["case"]["part"] == "ours" and line["case"]["scores"] == "auto" and "estimates" in line
    }


def show(lines: list[dict[str, Any]], names: list[str]) -> None:
    rows = []
    for name in names:
        some = [line for line in lines if line["case"]["set"] == name and "accuracy" in line]
        refused = [line for line in lines if line["case"]["set"] == name and "refused" in line]
        if not some:
            rows.append([name, "0", str(len(refused)), "", "", "", "", ""])
            continue
        true, auto = (100 * np.array([line["accuracy"][way] for line in some]) for way in ("true", "auto"))
        lost = true - auto
        error = lost.std(ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else float("nan")
        again = [100 * line["accuracy"]["another seed"] for line in some if "another seed" in line["accuracy"]]
        control = f"{np.abs(true[: len(again)] - again).mean():.2f}" if len(again) == len(true) else "not run"
        mean = float(lost.mean())
        rows.append(
            [
                name,
                *(str(len(found)) for found in (some, refused)),
                *(f"{accuracy.mean():.2f}" for accuracy in (true, auto)),
                f"{mean:+.2f} ± {error:.2f}",
                control,
                met(mean <= GOAL),
            ]
        )
    columns = ["set", "cases", "refused", "true prior %", "auto %", "lost", "another seed", f"goal {GOAL}"]
    table("accuracy lost by prior='auto' (points, ± its standard error)", columns, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", help=f"names of sets, with commas: {', '.join(SETTINGS)}")
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 as well; wants a GPU")
    parser.add_argument("--gpu", default="mnist,cifar10", help="names of sets that take turns on the GPU, with commas")
    parser.add_argument("--rounds", type=int, default=2, help="of split and student; 0 = the base model alone")
    parser.add_argument("--epochs", type=int, default=0, help="of base and student; 0 = what the preset says")
    parser.add_argument("--priors", type=Path, help="the file that prior.py wrote")
    parser.add_argument("--control", action="store_true", help="a third training: true prior, another seed")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
