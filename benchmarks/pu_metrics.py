"""Figures estimated from P, U and the prior against the true ones, by simulation; beside pulearn and pu-toolbox.

python benchmarks/pu_metrics.py --quick                   two cores, well under a minute
python benchmarks/pu_metrics.py --peers /tmp/peers-venv/bin/python --grid --out pu_metrics.json

The population is a pool of rows with known truth that the classifier never saw; every simulation draws P and U from
it, with replacement. Peers run in an interpreter of their own.
"""

import argparse
import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from splitpu import PUStratifiedKFold, SplitPUClassifier, evaluate_pu, load_named, make_pu, make_pu_scorer
from splitpu.data import true_prior
from splitpu.metrics import evaluate_scores

PRIORS = (0.2, 0.4, 0.6)
SCENARIOS = ("single-training-set", "case-control")
JUDGED = ("accuracy", "roc_auc", "f1", "precision", "recall", "average_precision")
SIZES = ((200, 2000), (400, 4000))  # labelled rows and rows of the population in a simulation
GOAL_ERROR, GOAL_COVERAGE = 0.02, (0.90, 0.98)
PEER_WORKER = Path(__file__).with_name("pu_metrics_peers.py")
GRID = {"config": [{"base.epochs": epochs, "base.optimiser.rate": rate} for epochs in (3, 30) for rate in (1e-4, 3e-3)]}


def decisions_on_a_pool(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of a mediocre classifier on the positives and the negatives of a population."""
    if name == "gaussians":
        rng = np.random.default_rng(0)
        return rng.normal(1.0, 1.0, 20000), rng.normal(-1.0, 1.5, 20000)
    named = load_named(name)
    rows = np.random.default_rng(0).permutation(len(named.truth_train))[:10000]
    flat = np.asarray(named.features_train[rows]).reshape(len(rows), -1).astype(np.float64)
    truth = np.asarray(named.truth_train)[rows]
    if name == "breast-cancer":
        flat = flat[:, :4]  # all thirty measurements leave next to no errors to estimate
    few = np.arange(len(rows)) < min(400, len(rows) // 3)
    scale = StandardScaler().fit(flat[few])
    model = LogisticRegression(C=0.01, max_iter=500).fit(scale.transform(flat[few]), truth[few])
    decision = model.decision_function(scale.transform(flat[~few]))
    return decision[truth[~few]], decision[~truth[~few]]


def true_figures(positive: np.ndarray, negative: np.ndarray, prior: float) -> dict[str, float]:
    """Figures on a very large draw from the population."""
    rng = np.random.default_rng(1)
    total = 200_000
    drawn = [rng.choice(positive, round(prior * total)), rng.choice(negative, round((1 - prior) * total))]
    truth = np.arange(total) < len(drawn[0])
    return evaluate_scores(truth, np.concatenate(drawn))


def sample(
    positive: np.ndarray, negative: np.ndarray, prior: float, scenario: str, labelled: int, rows: int, rng: Any
) -> tuple[np.ndarray, np.ndarray]:
    hidden = rng.binomial(rows, prior)
    if scenario == "single-training-set":
        labelled = min(labelled, int(0.6 * hidden))
        hidden -= labelled
        negatives = rows - hidden - labelled
    else:
        negatives = rows - hidden
    known = rng.choice(positive, labelled)
    return known, np.concatenate([rng.choice(positive, hidden), rng.choice(negative, negatives)])


def simulated(name: str, scenario: str, size: tuple[int, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    positive, negative = decisions_on_a_pool(name)
    rows = []
    for prior in PRIORS:
        truth = true_figures(positive, negative, prior)
        rng = np.random.default_rng([2, round(100 * prior)])
        count = 20 if options.quick else options.simulations
        draws = [sample(positive, negative, prior, scenario, *size, rng) for _ in range(count)]
        found = [evaluate_pu(*draw, prior, scenario=scenario, seed=i) for i, draw in enumerate(draws)]
        peers = peer_figures(draws, prior, options.peers) if options.peers else {}
        for figure in JUDGED:
            errors = np.array([one[figure].value - truth[figure] for one in found])
            rows.append(
                {
                    "set": name,
                    "scenario": scenario,
                    "labelled": size[0],
                    "prior": prior,
                    "figure": figure,
                    "truth": truth[figure],
                    "error": float(np.abs(errors).mean()),
                    "bias": float(errors.mean()),
                    "coverage": float(np.mean([one[figure].low <= truth[figure] <= one[figure].high for one in found])),
                    "width": float(np.mean([one[figure].high - one[figure].low for one in found])),
                    "peers": {
                        peer: float(np.abs(np.array(values[figure]) - truth[figure]).mean())
                        for peer, values in peers.items()
                        if figure in values
                    },
                }
            )
    return rows


def peer_figures(draws: list[tuple[np.ndarray, np.ndarray]], prior: float, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draws.npz"
        arrays = {f"{kind}{i}": part for i, draw in enumerate(draws) for kind, part in zip("pu", draw, strict=True)}
        np.savez(path, **arrays)
        words = [python, str(PEER_WORKER), str(path), str(len(draws)), str(prior)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def grid_search() -> dict[str, Any]:
    """Whether the PU scorer picks a setting as good as the one that true labels would pick, on digits."""
    named = load_named("digits")
    data, held_out = make_pu(named, 150, seed=0)
    prior = true_prior(named)
    labels = data.labelled.astype(int)
    model = SplitPUClassifier(prior=prior, rounds=0, random_state=0)
    search = GridSearchCV(
        model,
        GRID,
        scoring=make_pu_scorer("accuracy", prior=prior),
        cv=PUStratifiedKFold(3, random_state=0),
        refit=False,
    ).fit(data.features, labels)
    by_truth = []
    for setting in GRID["config"]:
        fitted = SplitPUClassifier(prior=prior, rounds=0, random_state=0, config=setting).fit(data.features, labels)
        by_truth.append(float((fitted.predict(held_out.features) == held_out.truth).mean()))
    chosen = int(search.best_index_)
    return {
        "settings": GRID["config"],
        "pu_score": [float(score) for score in search.cv_results_["mean_test_score"]],
        "true_accuracy": by_truth,
        "chosen": chosen,
        "lost": max(by_truth) - by_truth[chosen],
    }


def show(rows: list[dict[str, Any]], with_peers: bool) -> None:
    """One line a set and figure, means over priors and scenarios."""
    print(f"{'set':<14}{'figure':<18}{'error':>8}{'bias':>9}{'coverage':>10}  {'pulearn':>8}  {'pu-toolbox':>10}")
    for name in dict.fromkeys(row["set"] for row in rows):
        for figure in JUDGED:
            some = [row for row in rows if row["set"] == name and row["figure"] == figure]
            error, bias, coverage = (
                float(np.mean([row[key] for row in some])) for key in ("error", "bias", "coverage")
            )
            print(
                f"{name:<14}{figure:<18}{error:>8.4f}{bias:>+9.4f}{coverage:>10.3f}  "
                f"{_peer(some, 'pulearn', with_peers):>8}  {_peer(some, 'pu-toolbox', with_peers):>10}"
            )
    main_figures = [row for row in rows if row["figure"] in ("accuracy", "roc_auc", "f1")]
    worst = max(
        float(np.mean([row["error"] for row in main_figures if row["set"] == name and row["figure"] == figure]))
        for name in {row["set"] for row in rows}
        for figure in ("accuracy", "roc_auc", "f1")
    )
    overall = {
        figure: float(np.mean([row["coverage"] for row in main_figures if row["figure"] == figure]))
        for figure in ("accuracy", "roc_auc", "f1")
    }
    low, high = GOAL_COVERAGE
    inside = all(low <= coverage <= high for coverage in overall.values())
    print(f"largest mean error of accuracy, AUC and F1: {worst:.4f}, goal {GOAL_ERROR}: {_met(worst <= GOAL_ERROR)}")
    shown = {figure: round(coverage, 3) for figure, coverage in overall.items()}
    print(f"mean coverage {shown}, goal {low} to {high}: {_met(inside)}")


def _peer(rows: list[dict[str, Any]], name: str, ran: bool) -> str:
    values = [row["peers"][name] for row in rows if name in row["peers"]]
    if not ran:
        return "not run"
    return f"{np.mean(values):.4f}" if values else "lacks it"


def _met(reached: bool) -> str:
    return "met" if reached else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 simulations, no MNIST, no grid search")
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--grid", action="store_true", help="also GridSearchCV on digits with the PU scorer")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pulearn and pu-toolbox")
    parser.add_argument("--out", type=Path, help="a JSON file for everything")
    options = parser.parse_args()
    names = ["gaussians", "digits", "breast-cancer", *([] if options.quick else ["mnist"])]
    rows: list[dict[str, Any]] = []
    for size in SIZES[:1] if options.quick else SIZES:
        found = [row for name in names for scenario in SCENARIOS for row in simulated(name, scenario, size, options)]
        print(f"\n{size[0]} labelled, {size[1]} rows of the population")
        show(found, bool(options.peers))
        rows += found
    results = {"machine": machine(), "settings": vars(options), "rows": rows}
    if options.grid:
        results["grid"] = chosen = grid_search()
        for setting, score, true in zip(chosen["settings"], chosen["pu_score"], chosen["true_accuracy"], strict=True):
            print(f"{setting}: PU score {score:.4f}, true accuracy {true:.4f}")
        lost = 100 * chosen["lost"]
        print(f"the PU scorer's choice loses {lost:.2f} points, goal 0.5: {_met(lost <= 0.5)}")
    if options.out:
        options.out.write_text(json.dumps(results, indent=2, default=str))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
