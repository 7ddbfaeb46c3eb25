"""Figures estimated from P, U and the prior against the true ones, by simulation; beside pulearn and pu-toolbox.

python benchmarks/pu_metrics.py --simulations 20 --sets gaussians,digits            well under a minute
python benchmarks/pu_metrics.py --jobs 14 --out pu_metrics.jsonl
python benchmarks/pu_metrics.py --kinds given,peers --peers /tmp/peers-venv/bin/python --out pu_metrics.jsonl
python benchmarks/pu_metrics.py --kinds network --sets digits --labelled 50 --out pu_metrics.jsonl

Three kinds of simulation. "given": a classifier is there, and P and U are drawn from rows with known truth that it
never saw. "cross-fitted": P and U are drawn, a logistic regression is trained on them, and its figures come from the
folds it did not see. "network": the same with our own classifier, a few times only. Peers run in an interpreter of
their own. What a kind leaves out is said: only MNIST has rows enough for "cross-fitted".
"""

import argparse
import warnings
from functools import cache, partial
from typing import Any

import numpy as np
from case_runner import Key, add_options, met, run_cases, table
from machine import machine
from peer_process import answers
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score
from sklearn.preprocessing import StandardScaler

from splitpu import PUStratifiedKFold, SplitPUClassifier, evaluate_pu, load_named
from splitpu.evaluation.metrics import evaluate_scores
from splitpu.evaluation.scikit_learn import decisions

PRIORS = (0.2, 0.4, 0.6)
SCENARIOS = ("single-training-set", "case-control")
JUDGED = ("accuracy", "roc_auc", "f1", "precision", "recall", "average_precision")
WITH_A_GOAL = ("accuracy", "roc_auc", "f1")
GOAL_ERROR, GOAL_COVERAGE = 0.02, (0.90, 0.98)
ROWS_EACH = 10  # rows of the population for every labelled one
FOLDS = 5
NETWORK_SIMULATIONS = 4
KINDS = ("given", "cross-fitted", "network", "peers")


class PULogistic(LogisticRegression):
    """P against U, saying positive of as many rows as the prior expects: cheap, and not very good."""

    def __init__(self, prior: float = 0.5, C: float = 0.01) -> None:
        super().__init__(C=C, max_iter=300)
        self.prior = prior

    def fit(self, X: np.ndarray, y: np.ndarray) -> "PULogistic":
        super().fit(X, y)
        self.intercept_ -= np.quantile(super().decision_function(X), 1 - self.prior)
        return self


def main() -> None:
    options = _options()
    kinds, names = options.kinds.split(","), options.sets.split(",")
    for kind in kinds:
        for name in names:
            if reason := left_out(kind, name):
                print(f"{kind}: {name} is left out, as it {reason}")
    cases = [
        {"kind": kind, "set": name, "scenario": scenario, "labelled": labelled, "prior": prior}
        | {"simulations": NETWORK_SIMULATIONS if kind == "network" else options.simulations}
        for kind in kinds
        for labelled in map(int, options.labelled.split(","))
        for name in names
        if left_out(kind, name) is None
        for scenario in SCENARIOS
        for prior in PRIORS
    ]
    lines = run_cases(cases, partial(simulated, python=options.peers), options)
    for kind in kinds:
        show(kind, [line for line in lines if line["case"]["kind"] == kind])
    if "given" in kinds and "peers" in kinds:
        show_peers(lines)


def left_out(kind: str, name: str) -> str | None:
    """Why a set cannot serve a kind of simulation; None if it can."""
    if kind in ("cross-fitted", "network") and name == "gaussians":
        return "has decisions but no rows to train on"
    if kind == "cross-fitted" and name != "mnist":
        return "has too few rows to draw thousands of"
    return None


def simulated(case: Key, python: str | None = None) -> dict[str, Any]:
    """All simulations of one case: true values, estimates and intervals, summed up for every figure."""
    warnings.simplefilter("ignore")
    if case["kind"] == "peers":
        return peers_simulated(case, python)
    runs = [one_simulation(case, number) for number in range(case["simulations"])]
    figures = {}
    for figure in JUDGED:
        truth, value, low, high = (np.array(column) for column in zip(*(run[figure] for run in runs), strict=True))
        figures[figure] = {
            "truth": float(truth.mean()),
            "error": float(np.abs(value - truth).mean()),
            "bias": float((value - truth).mean()),
            "coverage": float(((low <= truth) & (truth <= high)).mean()),
            "width": float((high - low).mean()),
        }
    words = " ".join(f"{name} {figures[name]['error']:.4f}/{figures[name]['coverage']:.2f}" for name in WITH_A_GOAL)
    return {"figures": figures, "in_words": f"{words} error/coverage", "machine": machine()}


def one_simulation(case: Key, number: int) -> dict[str, tuple[float, float, float, float]]:
    """The truth, the estimate and its interval, of every figure."""
    rng = np.random.default_rng([2, round(100 * case["prior"]), number])
    if case["kind"] == "given":
        truth, positive, unlabelled = given_decisions(case, rng)
    else:
        truth, positive, unlabelled = cross_fitted(case, rng, number)
    found = evaluate_pu(positive, unlabelled, case["prior"], scenario=case["scenario"], seed=number)
    return {figure: (truth[figure], *found[figure][:3]) for figure in JUDGED}


def given_decisions(case: Key, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    positive, negative = decisions_on_a_pool(case["set"])
    known, hidden, others = counts_of(case, rng)
    drawn = [rng.choice(positive, known + hidden), rng.choice(negative, others)]
    return true_figures(case["set"], case["prior"]), drawn[0][:known], np.concatenate([drawn[0][known:], drawn[1]])


def cross_fitted(case: Key, rng: np.random.Generator, number: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Every row is judged by the model of the fold it was left out of; the truth is those models' mean on the pool."""
    features, truth = rows_of(case["set"], case["kind"])
    known, hidden, others = counts_of(case, rng)
    positives, negatives = np.flatnonzero(truth), np.flatnonzero(~truth)
    rows = np.concatenate([rng.choice(positives, known + hidden), rng.choice(negatives, others)])
    labels = (np.arange(len(rows)) < known).astype(int)
    found, true = np.empty(len(rows)), []
    for training, held_out in PUStratifiedKFold(FOLDS, random_state=number).split(rows, labels):
        # A row that was drawn twice must not be trained on and judged.
        training = training[~np.isin(rows[training], rows[held_out])]
        model = _model(case, number).fit(features[rows[training]], labels[training])
        found[held_out] = decisions(model, features[rows[held_out]])
        # All rows that the model did not see: some thousands of them would leave the truth itself in doubt.
        unseen = np.setdiff1d(np.arange(len(truth)), rows[training])
        true.append(_figures_at(truth[unseen], decisions(model, features[unseen]), case["prior"]))
    mean = {figure: float(np.mean([one[figure] for one in true])) for figure in JUDGED}
    return mean, found[labels == 1], found[labels == 0]


def _model(case: Key, seed: int) -> Any:
    if case["kind"] == "cross-fitted":
        return PULogistic(case["prior"])
    return SplitPUClassifier(
        prior=case["prior"], rounds=0, scenario=case["scenario"], config={"base.epochs": 15}, random_state=seed
    )


def _figures_at(truth: np.ndarray, decision: np.ndarray, prior: float) -> dict[str, float]:
    """True figures at the wanted prior, whatever share of positives is among the rows: by weighing them."""
    weight = np.where(truth, prior / truth.mean(), (1 - prior) / (1 - truth.mean()))
    called = decision > 0
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, called, average="binary", sample_weight=weight, zero_division=0.0
    )
    return {
        "accuracy": float(np.average(called == truth, weights=weight)),
        "roc_auc": float(roc_auc_score(truth, decision)),
        "f1": float(f1),
        "precision": float(precision),
        "recall": float(recall),
        "average_precision": float(average_precision_score(truth, decision, sample_weight=weight)),
    }


def counts_of(case: Key, rng: np.random.Generator) -> tuple[int, int, int]:
    """Labelled positives, positives among the unlabelled rows, negatives among them, as the scenario draws them."""
    labelled, rows = case["labelled"], ROWS_EACH * case["labelled"]
    hidden = int(rng.binomial(rows, case["prior"]))
    others = rows - hidden
    if case["scenario"] == "single-training-set":
        labelled = min(labelled, int(0.6 * hidden))
        hidden -= labelled
    return labelled, hidden, others


@cache
def rows_of(name: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Up to 20,000 rows of a named set with their truth; images as components, except for our own classifier."""
    named = load_named(name)
    rows = np.random.default_rng(0).permutation(len(named.truth_train))[:20000]
    features, truth = np.asarray(named.features_train[rows]), np.asarray(named.truth_train)[rows]
    if kind == "network":
        return features, truth
    flat = features.reshape(len(rows), -1).astype(np.float64)
    if name == "breast-cancer":
        return StandardScaler().fit_transform(flat[:, :4]), truth  # all thirty leave next to no errors to estimate
    return StandardScaler().fit_transform(PCA(20, random_state=0).fit_transform(flat)), truth


@cache
def decisions_on_a_pool(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of a mediocre classifier on the positives and the negatives of a population."""
    if name == "gaussians":
        rng = np.random.default_rng(0)
        return rng.normal(1.0, 1.0, 20000), rng.normal(-1.0, 1.5, 20000)
    features, truth = rows_of(name, "given")
    few = np.arange(len(truth)) < min(400, len(truth) // 3)
    decision = LogisticRegression(C=0.01).fit(features[few], truth[few]).decision_function(features[~few])
    return decision[truth[~few]], decision[~truth[~few]]


@cache
def true_figures(name: str, prior: float) -> dict[str, Any]:
    """Figures of the given decisions on a very large draw from the population."""
    positive, negative = decisions_on_a_pool(name)
    truth = np.arange(len(positive) + len(negative)) < len(positive)
    rng = np.random.default_rng(1)
    total = 200_000
    drawn = [rng.choice(positive, round(prior * total)), rng.choice(negative, round((1 - prior) * total))]
    truth = np.arange(total) < len(drawn[0])
    return evaluate_scores(truth, np.concatenate(drawn))


def peers_simulated(case: Key, python: str | None) -> dict[str, Any]:
    """The mean error of the peers on the same draws as in the case of the kind "given"."""
    truth = true_figures(case["set"], case["prior"])
    draws = [
        given_decisions(case, np.random.default_rng([2, round(100 * case["prior"]), number]))[1:]
        for number in range(case["simulations"])
    ]
    arrays = {f"{kind}{i}": part for i, draw in enumerate(draws) for kind, part in zip("pu", draw, strict=True)}
    found = answers(str(python), "pu_metrics_peers.py", arrays, len(draws), case["prior"])
    errors = {
        peer: {name: float(np.abs(np.array(values) - truth[name]).mean()) for name, values in figures.items()}
        for peer, figures in found.items()
    }
    return {"peers": errors}


def show(kind: str, lines: list[dict[str, Any]]) -> None:
    """One line a set and figure, means over priors and scenarios."""
    lines = [line for line in lines if "figures" in line]
    for labelled in sorted({line["case"]["labelled"] for line in lines}):
        some = [line for line in lines if line["case"]["labelled"] == labelled]
        rows = [
            [name, figure, *(f"{_mean(some, figure, key, name):.4f}" for key in ("error", "bias", "coverage", "width"))]
            for name in dict.fromkeys(line["case"]["set"] for line in some)
            for figure in JUDGED
        ]
        count = some[0]["case"]["simulations"]
        title = f"{kind}: {labelled} labelled rows, {len(some)} cases of {count} simulations"
        table(title, ["set", "figure", "error", "bias", "coverage", "width"], rows)
        errors = {figure: _mean(some, figure, "error") for figure in WITH_A_GOAL}
        covered = {figure: _mean(some, figure, "coverage") for figure in WITH_A_GOAL}
        low, high = GOAL_COVERAGE
        print(f"mean error {_rounded(errors)}, goal {GOAL_ERROR}: {met(max(errors.values()) <= GOAL_ERROR)}")
        print(f"mean coverage {_rounded(covered)}, goal {low} to {high}: ", end="")
        print(met(all(low <= share <= high for share in covered.values())))
        worst = max(some, key=lambda line: max(line["figures"][figure]["error"] for figure in WITH_A_GOAL))
        print(f"worst case: {worst['case']['set']} {worst['case']['prior']} {worst['case']['scenario']}, ", end="")
        print(_rounded({figure: worst["figures"][figure]["error"] for figure in WITH_A_GOAL}))


def show_peers(lines: list[dict[str, Any]]) -> None:
    rows = []
    for figure in JUDGED:
        given = [line for line in lines if line["case"]["kind"] == "given"]
        row = [figure, f"{_mean(given, figure, 'error'):.4f}"]
        for peer in ("pulearn", "pu-toolbox"):
            errors = [line["peers"][peer][figure] for line in lines if figure in line.get("peers", {}).get(peer, {})]
            row.append(f"{np.mean(errors):.4f}" if errors else "lacks it")
        rows.append(row)
    table("mean error over all cases", ["figure", "splitpu", "pulearn", "pu-toolbox"], rows)


def _mean(lines: list[dict[str, Any]], figure: str, key: str, name: str | None = None) -> float:
    chosen = [line["figures"][figure][key] for line in lines if name is None or line["case"]["set"] == name]
    return float(np.mean(chosen))


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--sets", default="gaussians,digits,breast-cancer,mnist", help="with commas")
    parser.add_argument("--kinds", default="given,cross-fitted", help=f"{', '.join(KINDS)}; with commas")
    parser.add_argument("--labelled", default="200,400", help="numbers of labelled rows, with commas")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pulearn and pu-toolbox")
    add_options(parser)
    options = parser.parse_args()
    if options.peers and "peers" not in options.kinds:
        options.kinds += ",peers"
    if unknown := set(options.kinds.split(",")) - set(KINDS):
        parser.error(f"there is no kind named {', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}")
    return options


if __name__ == "__main__":
    main()
