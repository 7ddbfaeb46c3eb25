"""How far estimated priors are from the true ones: ours beside pulearn and pu-toolbox.

python benchmarks/prior.py --only digits --seeds 1                                  a minute on two cores
python benchmarks/prior.py --jobs 2 --peers /tmp/peers-venv/bin/python --out prior.jsonl
python benchmarks/prior.py --only mnist,cifar10 --jobs 14 --minutes 9 --out prior.jsonl     on a GPU machine

Needs torch, numpy and scikit-learn (safetensors for CIFAR-10). Peers run in an interpreter of their own
(pip install pulearn pu-toolbox), so that they are no dependency of ours; theirs and ours are cases of their own, and
files from two machines can be put together.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
from case_runner import Key, add_options, met, run_cases, table
from drawn_sets import PRIORS, SEEDS, SETTINGS, USUAL, Drawn, drawn, on_gpu
from machine import machine
from peer_process import answers

from splitpu import InputError
from splitpu.prior.estimate import estimate_prior, population_share
from splitpu.prior.scores import chosen_rows, described

GOALS = {"digits": 0.03, "breast-cancer": 0.03, "mnist": 0.03, "mnist-4000": 0.03, "cifar10": 0.04}
RECOMMENDED = "splitpu consensus"


def main() -> None:
    options = _options()
    names = options.only.split(",") if options.only else [*USUAL, *(["cifar10"] if options.cifar else [])]
    parts = ["ours", *(["peers"] if options.peers else [])]
    cases = [
        {"set": name, "prior": prior, "seed": seed, "part": part, "scores": options.scores}
        for name in names
        for seed in SEEDS[: options.seeds]
        for prior in PRIORS
        for part in parts
    ]
    work = _peer_work(options.peers) if options.peers else our_estimates
    lines = run_cases(cases, work, options, on_gpu=lambda case: on_gpu(case["set"]) and case["part"] == "ours")
    for name in names:
        show(name, [line for line in lines if line["case"]["set"] == name])


class _peer_work:
    """Knows which interpreter has the peers; a class, because it has to be sent to other processes."""

    def __init__(self, python: str) -> None:
        self.python = python

    def __call__(self, case: Key) -> dict[str, Any]:
        return peer_estimates(case, self.python) if case["part"] == "peers" else our_estimates(case)


def our_estimates(case: Key) -> dict[str, Any]:
    """All our estimators; KM2 and TIcE only where the rows are vectors of a small set, which they were made for."""
    warnings.simplefilter("ignore")
    rows = drawn(case["set"], case["prior"], case["seed"])
    started = time.perf_counter()
    try:
        every = len(rows.data) < 5000
        found = estimate_prior(rows.data, seed=case["seed"], every=every, scores=case["scores"])
    except InputError as error:
        return {"truth": rows.prior, "refused": str(error), "in_words": str(error)}
    low, high = found.interval
    return {
        "truth": rows.prior,
        "estimates": {f"splitpu {row.name}": row.value for row in found.table},
        "interval": [low, high],
        "auc": found.scores.auc,
        "seconds": time.perf_counter() - started,
        "in_words": f"{found.value:.3f} ({low:.3f} to {high:.3f}), true {rows.prior:.3f}",
        "machine": machine(),
    }


def peer_estimates(case: Key, python: str) -> dict[str, Any]:
    """Every estimator of the peers on the same rows, described by the same numbers as our own classical learners get.

    Raw pixels or all rows of MNIST would take them hours, as they would us.
    """
    rows = drawn(case["set"], case["prior"], case["seed"])
    some = chosen_rows(rows.data, case["seed"])
    arrays = {"X": described(rows.data, some, case["seed"]), "s": rows.data.labelled[some].astype(int)}
    shares = answers(python, "prior_peers.py", arrays, case["seed"])
    return {"truth": rows.prior, "estimates": {name: _in_population(rows, share) for name, share in shares.items()}}


def _in_population(rows: Drawn, share: float | str) -> float | str:
    return share if isinstance(share, str) else population_share(rows.data, min(max(share, 0.0), 1.0))


def show(name: str, lines: list[dict[str, Any]]) -> None:
    """Mean absolute error of every estimator over priors and seeds; one that failed in some case has fewer."""
    errors: dict[str, list[float]] = {}
    for line in lines:
        for estimator, value in line.get("estimates", {}).items():
            if isinstance(value, float):
                errors.setdefault(estimator, []).append(value - line["truth"])
    rows = [
        [e, f"{np.abs(found).mean():.4f}", f"{np.mean(found):+.4f}", f"{np.abs(found).max():.4f}", str(len(found))]
        for e, found in sorted(errors.items(), key=lambda item: float(np.abs(item[1]).mean()))
    ]
    table(f"{name}: mean absolute error of the prior", ["estimator", "error", "bias", "largest", "cases"], rows)
    ours = [line for line in lines if line["case"]["part"] == "ours"]
    answered = [line for line in ours if "estimates" in line]
    if not answered:
        print(f"nothing of ours was run or all {len(ours)} cases were refused")
        return
    error = float(np.abs(errors[RECOMMENDED]).mean())
    if name in GOALS:
        print(f"goal {GOALS[name]}: {met(error <= GOALS[name])} with {error:.4f} in {len(answered)} cases")
    peers = {e: float(np.abs(found).mean()) for e, found in errors.items() if not e.startswith("splitpu")}
    if peers:
        best = min(peers, key=lambda e: peers[e])
        print(f"best peer {peers[best]:.4f} ({best}): {'beaten' if error < peers[best] else 'NOT beaten'}")
    else:
        print("pulearn and pu-toolbox: not run")
    covered = np.mean([line["interval"][0] <= line["truth"] <= line["interval"][1] for line in answered])
    seconds = np.mean([line["seconds"] for line in answered])
    print(f"95 % interval covers {covered:.2f}, refused {len(ours) - len(answered)}, {seconds:.1f} s each")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", help=f"names of sets, with commas: {', '.join(SETTINGS)}")
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 as well; wants a GPU")
    parser.add_argument("--scores", default="auto", choices=["auto", "classical", "network"])
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pulearn and pu-toolbox")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
