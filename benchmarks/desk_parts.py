"""Which parts of Split-PU pay on tables: students with one part changed, against their base, on test rows.

    python benchmarks/desk_parts.py --cache CACHE --out desk_parts.jsonl [--draws 20,21,22]

CACHE as for desk.py; the draws are none that desk.py reports. Base and student are the same learner, the prior is the
true one, so that only the parts differ. Figures are points of AUC over the base on 30 % test rows, means over sets and
draws with the standard error of the sets.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from desk_sets import SETS, Draw, draw
from machine import machine
from sklearn.metrics import roc_auc_score

from splitpu.learners.catalogue import Fitted, Learner, learner
from splitpu.learners.crossfit import Task, fold_numbers
from splitpu.learners.split_learner import posteriors, split

NAMES = ("magic", "spambase", "banana", "churn", "chain-deaths", "titanic", "magic-2%", "kr-vs-k-3%", "lending-4%")
BASES = ("logistic", "boosting", "forest")
PARTS = {
    "split, soft labels": {},
    "hard labels": {"soft": False},
    "no split": {"easy_only": False},
    "no split, hard labels": {"easy_only": False, "soft": False},
    "rows weigh as they are sure": {"sure": True},
    "two rounds": {"rounds": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path())
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", default="20,21,22")
    parser.add_argument("--show", action="store_true", help="only the table of what OUT holds")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    there = {(line["set"], line["draw"], line["base"]) for line in lines}
    chosen = {one.name: one for one in SETS if one.name in NAMES}
    cases = [(name, int(seed), base) for seed in given.draws.split(",") for name in NAMES for base in BASES]
    for name, seed, base in [] if given.show else cases:
        if (name, seed, base) in there:
            continue
        rows = draw(chosen[name], given.cache, seed)
        share = float(rows.truth[~rows.labelled].mean())
        started = time.process_time()
        plain = learner(base).fit(rows.rows, rows.labelled, seed=seed)
        reached = roc_auc_score(rows.test_truth, plain.scores(rows.test_rows))
        line = {"set": name, "draw": seed, "base": base, "auc": reached}
        for part, changed in PARTS.items():
            pupil = student(learner(base), rows, share, seed, **changed)
            line[part] = roc_auc_score(rows.test_truth, pupil.scores(rows.test_rows)) - line["auc"]
        line |= {"seconds": time.process_time() - started, "machine": machine()}
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        lines.append(line)
        print(name, seed, base, {part: round(100 * line[part], 2) for part in PARTS}, flush=True)
    print(table(lines))


def student(
    base: Learner, rows: Draw, share: float, seed: int, *, soft=True, easy_only=True, sure=False, rounds=1
) -> Fitted:
    """A student as `SplitLearner` makes it (there rows weigh as their teacher is sure of them), with parts changed."""
    labelled = rows.labelled
    scores, _ = Task(rows.rows, labelled, seed=seed).out_of_fold(base, 3)
    for number in range(rounds):
        posterior = posteriors(scores, labelled, share)
        easy = split(rows.rows, labelled, posterior, 0.92, seed=seed + number).easy if easy_only else ~labelled
        taught = np.where(labelled, 1.0, posterior if soft else posterior > 0.5)
        weight = (labelled | easy) * (np.abs(2 * taught - 1) if sure else 1.0)
        if number + 1 < rounds:
            scores = out_of_fold_of_soft(base, rows, taught, weight, seed)
    kept = np.flatnonzero(weight > 0)
    return base.fit(rows.rows[kept], taught[kept], sample_weight=weight[kept], seed=seed)


def out_of_fold_of_soft(base: Learner, rows: Draw, taught: np.ndarray, weight: np.ndarray, seed: int) -> np.ndarray:
    folds, scores = fold_numbers(rows.labelled, 3, seed), np.empty(len(taught))
    for fold in np.unique(folds):
        held = folds == fold
        kept = np.flatnonzero(~held & (weight > 0))
        fitted = base.fit(rows.rows[kept], taught[kept], sample_weight=weight[kept], seed=seed)
        scores[held] = fitted.scores(rows.rows[held])
    return scores


def table(lines: list[dict]) -> str:
    """Points of AUC over the base: the mean of the sets' means, and its standard error."""
    written = ["| part | " + " | ".join(BASES) + " |", "|---" * (1 + len(BASES)) + "|"]
    for part in PARTS:
        cells = []
        for base in BASES:
            of_sets = defaultdict(list)
            for line in lines:
                if line["base"] == base:
                    of_sets[line["set"]].append(100 * line[part])
            means = [np.mean(some) for some in of_sets.values()]
            error = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else float("nan")
            cells.append(f"{np.mean(means):+.2f} ± {error:.2f}" if means else "")
        written.append(f"| {part} | " + " | ".join(cells) + " |")
    return "\n".join(written)


if __name__ == "__main__":
    main()
