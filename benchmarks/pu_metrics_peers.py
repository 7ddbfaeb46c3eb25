"""Run by pu_metrics.py with another interpreter: what pulearn and pu-toolbox make of decisions on P and U."""

import json
import sys
import warnings

import numpy as np
from pu_toolbox.metrics.classification import pu_estimated_precision, pu_recall, pu_zero_one_risk
from pulearn.metrics import (
    pu_average_precision_score,
    pu_f1_score,
    pu_precision_score,
    pu_recall_score,
    pu_roc_auc_score,
)


def main() -> None:
    warnings.simplefilter("ignore")
    arrays, count, prior = np.load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    answers: dict = {"pulearn": {}, "pu-toolbox": {}}
    for number in range(count):
        positive, unlabelled = arrays[f"p{number}"], arrays[f"u{number}"]
        decision = np.concatenate([positive, unlabelled])
        labels = (np.arange(len(decision)) < len(positive)).astype(int)
        called = (decision > 0).astype(int)
        found = {
            "pulearn": {
                "f1": pu_f1_score(labels, called, prior),
                "precision": pu_precision_score(labels, called, prior),
                "recall": pu_recall_score(labels, called),
                "roc_auc": pu_roc_auc_score(labels, decision, prior),
                "average_precision": pu_average_precision_score(labels, decision, prior),
            },
            "pu-toolbox": {
                "accuracy": 1 - pu_zero_one_risk(labels, decision, prior),
                "precision": pu_estimated_precision(labels, called, prior),
                "recall": pu_recall(labels, called),
            },
        }
        for peer, figures in found.items():
            for figure, value in figures.items():
                answers[peer].setdefault(figure, []).append(float(value))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
