"""Methods that need no prior, once one has been estimated: should their decisions follow it?

python benchmarks/prior_free.py --draws 100 --only "digits low 50"                two minutes on one core
python benchmarks/prior_free.py --jobs 2 --out prior_free.jsonl

On development sets, as plain vectors: each method is trained once, without a prior, and its logits are cut where the
method itself says, where the estimate is met, by `threshold_near`, and by it half way to the share that the method
calls positive by itself. What the true prior would give is there for comparison; no user has it.
"""

import warnings
from typing import Any

import numpy as np
import torch
from case_runner import Key, run_cases, table
from development_sets import asked_cases, drawn_with_tests
from machine import machine

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.errors import InputError
from splitpu.methods.thresholds import matched_threshold, second_opinion, threshold_near
from splitpu.prior.estimate import estimate_prior
from splitpu.training import Runtime, TrainSpec, profile_of, train

NAMES = ("digits low 50", "digits round 150", "digits 3 9", "benign 30", "benign 80")
METHODS = ("vpu", "dan", "p3mix", "naive")
OWN, TRUE = "the method's own", "true prior met"
CUTS = (OWN, "estimate met", "near the estimate", "with its own share", TRUE)


def main() -> None:
    cases, options = asked_cases(__doc__, NAMES)
    show(run_cases(cases, accuracies, options))


def accuracies(case: Key) -> dict[str, Any]:
    """Percent of the test rows that every cut of every method decides rightly."""
    warnings.simplefilter("ignore")
    rows = drawn_with_tests(case["task"], case["prior"], case["draw"])
    try:
        estimate = estimate_prior(rows.data, seed=case["draw"])
    except InputError as error:
        return {"refused": str(error), "in_words": str(error)}
    value, interval = estimate.value, estimate.interval
    found = {}
    for method in METHODS:
        config = apply_overrides(preset("default", profile_of(rows.data)), [f"method={method}"])
        training = train(rows.data, TrainSpec(prior=None, config=config, seed=case["draw"]), Runtime(device="cpu"))
        final = training.result.final
        population = final.logits[torch.as_tensor(rows.data.population)]
        own_share = float((population > final.threshold).double().mean())
        cuts = (
            final.threshold,
            matched_threshold(population, value),
            threshold_near(population, value, interval),
            threshold_near(population, second_opinion(value, interval, own_share), interval),
            matched_threshold(population, rows.prior),
        )
        logits = training.model.decision(rows.features_test, training.hardware) + final.threshold
        right = {name: float(((logits > cut) == rows.truth_test).mean()) for name, cut in zip(CUTS, cuts, strict=True)}
        found[method] = {"accuracy": {name: 100 * share for name, share in right.items()}, "own_share": own_share}
    words = ", ".join(f"{name} {_gain(one, CUTS[2]):+.1f}" for name, one in found.items())
    told = {"truth": rows.prior, "estimated": value, "interval": list(interval)}
    return {**told, "methods": found, "in_words": words, "machine": machine()}


def show(lines: list[dict[str, Any]]) -> None:
    """Means over the cases, and what every cut gains over the method's own, with the standard error of that."""
    done = [line for line in lines if "methods" in line]
    for task in ("all", *dict.fromkeys(line["case"]["task"] for line in done)):
        some = [line["methods"] for line in done if task in ("all", line["case"]["task"])]
        table(
            f"{task}: test accuracy in percent ({len(some)} cases)", ["method", *CUTS], [_row(m, some) for m in METHODS]
        )
    print(f"\n{len(lines) - len(done)} cases were refused an estimate; {machine()}")


def _row(method: str, found: list[dict[str, Any]]) -> list[str]:
    of_method = [one[method] for one in found]
    own = np.mean([one["accuracy"][OWN] for one in of_method])
    gains = [[_gain(one, cut) for one in of_method] for cut in CUTS[1:]]
    errors = [np.std(gain, ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan for gain in gains]
    return [method, f"{own:.2f}", *(f"{np.mean(g):+.2f} ± {error:.2f}" for g, error in zip(gains, errors, strict=True))]


def _gain(found: dict[str, Any], cut: str) -> float:
    return float(found["accuracy"][cut] - found["accuracy"][OWN])


if __name__ == "__main__":
    main()
