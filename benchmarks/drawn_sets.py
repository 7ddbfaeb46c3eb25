"""Named sets cut down to a share of positives that is known, for benchmarks of the prior."""

from dataclasses import dataclass

import numpy as np

from splitpu import load_named
from splitpu.data.pudata import PUData

PRIORS, SEEDS = (0.2, 0.4, 0.6), (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Setting:
    """How many rows a set has after drawing, and how many of them are labelled."""

    labelled: int
    rows: int | None  # None: as many as the prior leaves


SETTINGS = {
    "digits": Setting(100, None),
    "breast-cancer": Setting(50, None),
    "mnist": Setting(1000, None),
    "mnist-4000": Setting(500, 4000),
    "cifar10": Setting(1000, 20000),
    "mnist-tiny": Setting(150, 600),  # to see whether the benchmarks run at all
    "cifar10-tiny": Setting(300, 2000),
}
USUAL = ("digits", "breast-cancer", "mnist")


@dataclass(frozen=True)
class Drawn:
    """One drawn data set with a known prior, and test rows with the same one."""

    data: PUData
    prior: float
    features_test: np.ndarray
    truth_test: np.ndarray


def on_gpu(name: str) -> bool:
    """Whether a set is better left to a GPU: photographs need a network."""
    return name.startswith("cifar10")


def drawn(name: str, prior: float, seed: int) -> Drawn:
    """Drop positives or negatives until the share of positives is the wanted one, then hide all labels but some."""
    named, setting = load_named(_source(name)), SETTINGS[name]
    rng = np.random.default_rng([seed, round(100 * prior)])
    data, share = drawn_from(named.features_train, np.asarray(named.truth_train), setting, prior, rng)
    test = with_share(named.truth_test, prior, None, rng)
    return Drawn(data, share, np.asarray(named.features_test[test]), np.asarray(named.truth_test)[test])


def drawn_from(
    features: np.ndarray, truth: np.ndarray, setting: Setting, prior: float, rng: np.random.Generator
) -> tuple[PUData, float]:
    """Rows of any set with the wanted share of positives, most labels hidden, and the share they came to have."""
    rows = with_share(truth, prior, setting.rows, rng)
    positives = np.flatnonzero(truth[rows])
    # With few positives left, at most 60 % of them are labelled: the others are what is to be found.
    count = min(setting.labelled, int(0.6 * len(positives)))
    labelled = np.zeros(len(rows), dtype=bool)
    labelled[rng.choice(positives, count, replace=False)] = True
    return PUData.from_arrays(np.asarray(features[rows]), labelled, channels="last"), float(truth[rows].mean())


def _source(name: str) -> str:
    return name if name in ("digits", "breast-cancer") else name.partition("-")[0]


def with_share(truth: np.ndarray, prior: float, rows: int | None, rng: np.random.Generator) -> np.ndarray:
    """Row numbers, at most so many, of which the wanted share is positive."""
    positives, negatives = (rng.permutation(np.flatnonzero(np.asarray(truth) == value)) for value in (True, False))
    total = min(len(positives) / prior, len(negatives) / (1 - prior), rows or np.inf)
    return np.sort(np.concatenate([positives[: round(prior * total)], negatives[: round((1 - prior) * total)]]))
