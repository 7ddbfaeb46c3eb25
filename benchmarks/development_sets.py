"""Sets to choose estimators of the prior on: none of them is one that the benchmarks judge by."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from case_runner import Key, add_options
from drawn_sets import PRIORS, Drawn, Setting, drawn_from, with_share

from splitpu import load_named
from splitpu.data.pudata import PUData

Rows = tuple[np.ndarray, np.ndarray]  # features and which of them are positive
FOR_TESTS = 0.25  # share of a task's rows
LOW_DIGITS, ROUND_DIGITS = (0, 1, 2, 3, 4), (0, 1, 4, 7, 9)


@dataclass(frozen=True)
class Task:
    """Where rows come from, and how many of them are drawn and labelled."""

    source: Callable[[], Rows]
    labelled: int
    rows: int | None = None  # None: as many as the prior leaves


def asked_cases(
    description: str | None, names: Iterable[str], draws: str = "100,101"
) -> tuple[list[Key], argparse.Namespace]:
    """What the command line of a benchmark on these sets asks for: every draw of every task at every prior."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", default=draws, help="seeds of the draws, with commas")
    parser.add_argument("--only", help=f"names of tasks, with commas: {', '.join(TASKS)}")
    add_options(parser)
    options = parser.parse_args()
    cases = [
        {"task": name, "prior": prior, "draw": draw}
        for draw in map(int, options.draws.split(","))
        for name in (options.only.split(",") if options.only else names)
        for prior in PRIORS
    ]
    return cases, options


def drawn_task(name: str, prior: float, seed: int) -> tuple[PUData, float]:
    """PU data of a task with a known prior."""
    task = TASKS[name]
    features, truth = task.source()
    rng = np.random.default_rng([seed, round(100 * prior)])
    return drawn_from(features, truth, Setting(task.labelled, task.rows), prior, rng)


def drawn_with_tests(name: str, prior: float, seed: int) -> Drawn:
    """The same as plain vectors, with a known prior in training rows and in test rows that are none of them."""
    task = TASKS[name]
    features, truth = task.source()
    flat, truth = np.asarray(features, dtype=np.float32).reshape(len(features), -1), np.asarray(truth)
    rng = np.random.default_rng([seed, round(100 * prior), 1])
    tests, others = np.split(rng.permutation(len(flat)), [round(FOR_TESTS * len(flat))])
    data, share = drawn_from(flat[others], truth[others], Setting(task.labelled, task.rows), prior, rng)
    tests = tests[with_share(truth[tests], prior, None, rng)]
    return Drawn(data, share, flat[tests], truth[tests])


@cache
def pictures(name: str, positive: tuple[int, ...]) -> Rows:
    """Digits of scikit-learn or MNIST, grouped differently from even against odd."""
    named = load_named(name)
    return np.asarray(named.features_train), np.isin(np.asarray(named.classes_train), positive)


@cache
def benign() -> Rows:
    """Breast-cancer with the classes exchanged."""
    named = load_named("breast-cancer")
    return np.asarray(named.features_train), ~np.asarray(named.truth_train)


@cache
def flowers_or_wines(name: str, positive: int) -> Rows:
    """One of three classes of the small tables that scikit-learn brings along."""
    from sklearn import datasets

    table = datasets.load_wine() if name == "wine" else datasets.load_iris()
    return table.data, table.target == positive


@cache
def gaussians(informative: int, irrelevant: int, apart: float) -> Rows:
    """Two clouds, the positive one made of two, among features that say nothing."""
    rng = np.random.default_rng(0)
    truth = np.arange(6000) % 2 == 0
    direction = np.ones(informative) / np.sqrt(informative)
    second = rng.permutation(direction * np.where(np.arange(informative) % 2, 1, -1))
    centre = np.where((np.arange(6000) % 4 == 0)[:, None], direction, second) * truth[:, None] * apart
    return np.hstack([centre + rng.normal(size=(6000, informative)), rng.normal(size=(6000, irrelevant))]), truth


@cache
def moons() -> Rows:
    """Two bent clouds that overlap a little."""
    from sklearn.datasets import make_moons

    features, truth = make_moons(6000, noise=0.25, random_state=0)
    return features, truth == 1


TASKS = {
    "wine 0": Task(partial(flowers_or_wines, "wine", 0), 25),
    "wine 1": Task(partial(flowers_or_wines, "wine", 1), 25),
    "iris 1": Task(partial(flowers_or_wines, "iris", 1), 20),
    "benign 30": Task(benign, 30),
    "benign 80": Task(benign, 80),
    "digits low 50": Task(partial(pictures, "digits", LOW_DIGITS), 50),
    "digits low 100": Task(partial(pictures, "digits", LOW_DIGITS), 100),
    "digits round 50": Task(partial(pictures, "digits", ROUND_DIGITS), 50),
    "digits round 150": Task(partial(pictures, "digits", ROUND_DIGITS), 150),
    "digits 8": Task(partial(pictures, "digits", (8,)), 40),
    "digits 3 9": Task(partial(pictures, "digits", (3, 9)), 60),
    "mnist low 60 of 600": Task(partial(pictures, "mnist", LOW_DIGITS), 60, 600),
    "mnist low 150 of 1500": Task(partial(pictures, "mnist", LOW_DIGITS), 150, 1500),
    "mnist round 200 of 2000": Task(partial(pictures, "mnist", ROUND_DIGITS), 200, 2000),
    "mnist round 500 of 4000": Task(partial(pictures, "mnist", ROUND_DIGITS), 500, 4000),
    "mnist 3 8": Task(partial(pictures, "mnist", (3, 8)), 80, 800),
    "gaussians": Task(partial(gaussians, 2, 0, 4.0), 60, 1000),
    "gaussians 200": Task(partial(gaussians, 2, 0, 3.0), 200, 2000),
    "gaussians of 20": Task(partial(gaussians, 5, 15, 4.0), 100, 1000),
    "gaussians of 100": Task(partial(gaussians, 5, 95, 5.0), 150, 1500),
    "moons 50": Task(moons, 50, 600),
    "moons 200": Task(moons, 200, 2000),
}
