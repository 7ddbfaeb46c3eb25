"""Accuracy of our classifiers beside those of pulearn and pu-toolbox, on the same rows, with the true prior for all.

python benchmarks/classifiers.py --only breast-cancer --seeds 1                             half a minute
python benchmarks/classifiers.py --jobs 2 --peers /tmp/peers/bin/python --out classifiers.jsonl

Needs torch, numpy and scikit-learn. Peers run in an interpreter of their own (pip install pulearn pu-toolbox, and torch
for half of pu-toolbox), so that they are no dependency of ours. All get the same standardised vectors; of digits ours
are run once more as images, which peers cannot make use of. "cut at the prior" is the same ranking of the test rows
with as many called positive as there are, for those whose own threshold is the weak point.
"""

import argparse
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from case_runner import Key, add_options, run_cases, table
from drawn_sets import PRIORS, SEEDS, Drawn, drawn
from machine import machine
from peer_process import answers
from sklearn.metrics import roc_auc_score

from splitpu import DistPUClassifier, NNPUClassifier, SplitPUClassifier
from splitpu.evaluation.metrics import among_unlabelled

SETS = ("breast-cancer", "digits", "mnist-4000")
OURS = {"Split-PU": partial(SplitPUClassifier, learner="network"), "nnPU": NNPUClassifier, "Dist-PU": DistPUClassifier}


def main() -> None:
    options = _options()
    names = options.only.split(",") if options.only else SETS
    parts = ["ours", *(["peers"] if options.peers else [])]
    cases = [
        {"set": name, "prior": prior, "seed": seed, "part": part}
        for name in names
        for seed in SEEDS[: options.seeds]
        for prior in PRIORS
        for part in parts
    ]
    lines = run_cases(cases, Work(options.peers or ""), options)
    for name in names:
        show(name, [line for line in lines if line["case"]["set"] == name])


class Work:
    """One case; a class, because it has to be sent to other processes and knows which interpreter has the peers."""

    def __init__(self, peers: str) -> None:
        self.peers = peers

    def __call__(self, case: Key) -> dict[str, Any]:
        warnings.simplefilter("ignore")
        rows = drawn(case["set"], case["prior"], case["seed"])
        train, test = as_vectors(rows)
        if case["part"] == "ours":
            found = our_answers(rows, train, test, case["seed"])
        else:
            found = peer_answers(rows, train, test, case["seed"], self.peers)
        figures = {name: judged(rows, answer) for name, answer in found.items()}
        return {"figures": figures, "machine": machine()}


def as_vectors(rows: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, flat, with the training rows' mean and spread taken out."""
    flat = [np.asarray(part, dtype=np.float64) for part in (rows.data.features, rows.features_test)]
    train, test = (part.reshape(len(part), -1) for part in flat)
    scale = train.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    return tuple((part - train.mean(0)) / scale for part in (train, test))  # type: ignore[return-value]


def our_answers(rows: Drawn, train: np.ndarray, test: np.ndarray, seed: int) -> dict[str, Any]:
    """Decisions of our classifiers on the test rows."""
    runs = {name: (make, train, test) for name, make in OURS.items()}
    if rows.data.kind == "images" and rows.data.features.shape[1] <= 8:  # larger ones take long on a CPU
        runs["Split-PU, as images"] = SplitPUClassifier, rows.data.features, rows.features_test
    found = {}
    for name, (make, X, X_test) in runs.items():
        started = time.perf_counter()
        model = make(prior=rows.prior, random_state=seed, device="cpu").fit(X, rows.data.labelled)
        decision = model.decision_function(X_test)
        seconds = time.perf_counter() - started
        said = {"scores": decision.tolist(), "called": (decision > 0).tolist(), "seconds": seconds}
        found[f"splitpu {name}"] = said
    return found


def peer_answers(rows: Drawn, train: np.ndarray, test: np.ndarray, seed: int, python: str) -> dict[str, Any]:
    """The same of the peers, in their own interpreter."""
    data = rows.data
    share = among_unlabelled(rows.prior, len(data.positives), len(data.unlabelled), data.scenario)
    arrays = {"X": train, "s": data.labelled.astype(int), "X_test": test}
    return answers(python, "classifier_peers.py", arrays, seed, float(share))


def judged(rows: Drawn, answer: dict[str, Any]) -> dict[str, Any]:
    """Figures of one classifier on the test rows; what a peer failed with is kept in their place."""
    if "failed" in answer:
        return answer
    scores, called, truth = np.asarray(answer["scores"]), np.asarray(answer["called"], bool), rows.truth_test
    ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    return {
        "accuracy": 100 * float((called == truth).mean()),
        "at_prior": 100 * float(((ranks < truth.sum()) == truth).mean()),
        "roc_auc": 100 * float(roc_auc_score(truth, scores)),
        "seconds": answer["seconds"],
    }


def show(name: str, lines: list[dict[str, Any]]) -> None:
    """Every classifier's mean over priors and seeds, the most accurate first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        for classifier, figures in line["figures"].items():
            found.setdefault(classifier, []).append(figures)
    answered = {who: [one for one in figures if "failed" not in one] for who, figures in found.items()}
    rows = [
        [who, _mean(good, "accuracy"), _mean(good, "at_prior"), _mean(good, "roc_auc"), _mean(good, "seconds"), count]
        for who, good in sorted(answered.items(), key=lambda item: -_number(item[1], "accuracy"))
        for count in [f"{len(good)} of {len(found[who])}"]
    ]
    columns = ["classifier", "accuracy", "cut at the prior", "ROC AUC", "seconds", "cases"]
    table(f"{name}: means over priors {', '.join(map(str, PRIORS))} and seeds", columns, rows)
    for figure, cut in (("accuracy", "at its own cut"), ("at_prior", "cut at the prior")):
        _show_lead(answered, figure, cut)


def _show_lead(answered: dict[str, list[dict[str, Any]]], figure: str, cut: str) -> None:
    """How far Split-PU at its own cut is ahead of the best peer, draw by draw."""
    ours = [one["accuracy"] for one in answered.get("splitpu Split-PU", ())]
    peers = {w: [one[figure] for one in good] for w, good in answered.items() if not w.startswith("splitpu")}
    peers = {who: found for who, found in peers.items() if len(found) == len(ours) > 1}
    if peers:
        best = max(peers, key=lambda who: float(np.mean(peers[who])))
        lead = np.subtract(ours, peers[best])
        error = lead.std(ddof=1) / len(lead) ** 0.5
        ahead = f"ahead in {(lead > 0).sum()} of {len(lead)}"
        print(f"Split-PU less {best}, {cut}: {lead.mean():+.1f} ± {error:.1f}, {ahead}")


def _mean(figures: list[dict[str, Any]], name: str) -> str:
    return f"{_number(figures, name):.1f}" if figures else "failed"


def _number(figures: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([one[name] for one in figures])) if figures else -1.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", help=f"names of sets, with commas: {', '.join(SETS)}")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has pulearn and pu-toolbox")
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
