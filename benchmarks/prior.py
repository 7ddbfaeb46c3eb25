"""How far estimated priors are from the true ones, and what that costs: ours beside pulearn and pu-toolbox.

python benchmarks/prior.py --quick                        two cores, about a minute
python benchmarks/prior.py --peers /tmp/peers-venv/bin/python --train --out prior.json
python benchmarks/prior.py --cifar --only cifar10 --train    on a GPU

Peers run in an interpreter of their own (pip install pulearn pu-toolbox), so that they are no dependency of ours.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine
from sklearn.decomposition import PCA

from splitpu import InputError, SplitPUClassifier, load_named
from splitpu.data import PUData
from splitpu.prior import estimate_prior

PRIORS, SEEDS = (0.2, 0.4, 0.6), (0, 1, 2, 3, 4)
GOALS = {"digits": 0.03, "breast-cancer": 0.03, "mnist": 0.03, "cifar10": 0.04}
PEER_WORKER = Path(__file__).with_name("prior_peers.py")


@dataclass(frozen=True)
class Setting:
    """How many rows a set has after drawing, and how many of them are labelled."""

    labelled: int
    rows: int | None  # None: as many as the prior leaves


SETTINGS = {
    "digits": Setting(100, None),
    "breast-cancer": Setting(50, None),
    "mnist": Setting(500, 4000),
    "cifar10": Setting(1000, 20000),
}


@dataclass(frozen=True)
class Case:
    """One drawn data set with a known prior, and test rows with the same one."""

    data: PUData
    prior: float
    features_test: np.ndarray
    truth_test: np.ndarray


def drawn(name: str, prior: float, seed: int, setting: Setting) -> Case:
    """Drop positives or negatives until the share of positives is the wanted one, then hide all labels but some."""
    named = load_named(name)
    rng = np.random.default_rng([seed, round(100 * prior)])
    rows = _with_share(named.truth_train, prior, setting.rows, rng)
    truth = np.asarray(named.truth_train)[rows]
    positives = np.flatnonzero(truth)
    # With few positives left, at most 60 % of them are labelled: the others are what is to be found.
    count = min(setting.labelled, int(0.6 * len(positives)))
    labelled = np.zeros(len(rows), dtype=bool)
    labelled[rng.choice(positives, count, replace=False)] = True
    data = PUData.from_arrays(np.asarray(named.features_train[rows]), labelled, channels="last")
    test = _with_share(named.truth_test, prior, None, rng)
    return Case(data, float(truth.mean()), np.asarray(named.features_test[test]), np.asarray(named.truth_test)[test])


def _with_share(truth: np.ndarray, prior: float, rows: int | None, rng: np.random.Generator) -> np.ndarray:
    positives, negatives = (rng.permutation(np.flatnonzero(np.asarray(truth) == value)) for value in (True, False))
    total = min(len(positives) / prior, len(negatives) / (1 - prior), rows or np.inf)
    return np.sort(np.concatenate([positives[: round(prior * total)], negatives[: round((1 - prior) * total)]]))


def our_estimates(case: Case, seed: int, every: bool, scores: str) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        found = estimate_prior(case.data, seed=seed, every=every, scores=scores)
    except InputError as error:
        return {"refused": str(error)}
    seconds = time.perf_counter() - started
    low, high = found.interval
    estimates = {f"splitpu {row.name}": row.value for row in found.table}
    return {"estimates": estimates, "covered": low <= case.prior <= high, "width": high - low, "seconds": seconds}


def peer_estimates(case: Case, seed: int, python: str) -> dict[str, float | str]:
    """Every estimator of the peers on the same rows, flattened as they want them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.npz"
        flat = case.data.features.reshape(len(case.data), -1).astype(np.float64)
        if flat.shape[1] > 100:  # raw pixels take them minutes; the components are what our own scores work on, too
            flat = PCA(50, random_state=seed).fit_transform(flat)
        np.savez(path, X=flat, s=case.data.labelled.astype(int))
        words = [python, str(PEER_WORKER), str(path), str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        return {"peers": done.stderr.strip().splitlines()[-1] if done.stderr else "failed"}
    return json.loads(done.stdout.splitlines()[-1])


def accuracy_with(case: Case, prior: float, seed: int, epochs: int) -> float:
    settings = {"base.epochs": epochs}
    model = SplitPUClassifier(prior=prior, rounds=0, config=settings, random_state=seed)
    model.fit(case.data.features, case.data.labelled.astype(int))
    return float((model.predict(case.features_test) == case.truth_test).mean())


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(f"\n{title}")
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    options = _options()
    usual = ["digits", "breast-cancer", "mnist", *(["cifar10"] if options.cifar else [])]
    names = options.only.split(",") if options.only else usual
    seeds = SEEDS[:1] if options.quick else SEEDS[: options.seeds]
    results: dict[str, Any] = {"machine": machine(), "settings": vars(options), "sets": {}}
    for name in names:
        setting = SETTINGS[name] if not (options.quick and name == "mnist") else Setting(300, 1500)
        cases = []
        for prior in PRIORS:
            for seed in seeds:
                case = drawn(name, prior, seed, setting)
                found = our_estimates(case, seed, not options.quick, options.scores)
                if options.peers:
                    found["peers"] = peer_estimates(case, seed, options.peers)
                if options.train and "estimates" in found:
                    given, estimated = case.prior, found["estimates"]["splitpu consensus"]
                    epochs = 10 if options.quick else 50
                    found["accuracy"] = {
                        "true prior": accuracy_with(case, given, seed, epochs),
                        "auto": accuracy_with(case, estimated, seed, epochs),
                    }
                cases.append({"prior": case.prior, "seed": seed, **found})
                print(f"{name} prior {case.prior:.2f} seed {seed}: " + _in_words(found), file=sys.stderr, flush=True)
        results["sets"][name] = summary(name, cases)
        show(name, results["sets"][name], bool(options.peers))
        if options.out:
            options.out.write_text(json.dumps(results, indent=2, default=str))


def summary(name: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean absolute error of every estimator over priors and seeds; an estimator that failed once has none."""
    answered = [case for case in cases if "estimates" in case]
    errors: dict[str, list[float]] = {}
    for case in answered:
        answers = {**case["estimates"], **case.get("peers", {})}
        for estimator, value in answers.items():
            if isinstance(value, float):
                errors.setdefault(estimator, []).append(value - case["prior"])
    complete = {e: found for e, found in errors.items() if len(found) == len(answered)}
    accuracies = [case["accuracy"] for case in answered if "accuracy" in case]
    return {
        "goal": GOALS[name],
        "cases": cases,
        "refused": len(cases) - len(answered),
        "mean_absolute_error": {e: float(np.abs(found).mean()) for e, found in complete.items()},
        "bias": {e: float(np.mean(found)) for e, found in complete.items()},
        "coverage": float(np.mean([case["covered"] for case in answered])) if answered else None,
        "seconds": float(np.mean([case["seconds"] for case in answered])) if answered else None,
        "accuracy_lost": float(np.mean([a["true prior"] - a["auto"] for a in accuracies])) if accuracies else None,
    }


def show(name: str, found: dict[str, Any], with_peers: bool) -> None:
    errors = found["mean_absolute_error"]
    rows = [
        [e, f"{value:.4f}", f"{found['bias'][e]:+.4f}"] for e, value in sorted(errors.items(), key=lambda kv: kv[1])
    ]
    if not with_peers:
        rows += [["pulearn", "not run", ""], ["pu-toolbox", "not run", ""]]
    table(f"{name}: mean absolute error of the prior", ["estimator", "error", "bias"], rows)
    ours = errors.get("splitpu consensus")
    peers = [value for e, value in errors.items() if not e.startswith("splitpu")]
    if ours is not None:
        print(f"goal {found['goal']}: {'met' if ours <= found['goal'] else 'MISSED'} with {ours:.4f}")
    if ours is not None and peers:
        print(f"best peer {min(peers):.4f}: {'beaten' if ours < min(peers) else 'NOT beaten'}")
    print(f"interval covers: {found['coverage']}, refused: {found['refused']}, seconds each: {found['seconds']:.1f}")
    if found["accuracy_lost"] is not None:
        lost = 100 * found["accuracy_lost"]
        print(f"accuracy lost by prior='auto': {lost:.2f} points, goal 0.5: {'met' if lost <= 0.5 else 'MISSED'}")


def _in_words(found: dict[str, Any]) -> str:
    if "refused" in found:
        return found["refused"]
    return f"{found['estimates']['splitpu consensus']:.3f} in {found['seconds']:.1f} s"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer MNIST rows, only the recommended members")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", help="names of sets, with commas")
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 as well; wants a GPU")
    parser.add_argument("--train", action="store_true", help="also train with the true and with the estimated prior")
    parser.add_argument("--scores", default="auto", choices=["auto", "classical", "network"])
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pulearn and pu-toolbox")
    parser.add_argument("--out", type=Path, help="a JSON file for everything")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
