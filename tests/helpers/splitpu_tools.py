"""Split-PU on two overlapping clouds, in a moment."""

import warnings

import numpy as np

from splitpu.config.parse import apply_overrides
from splitpu.config.schema import Config
from splitpu.data.pudata import PUData
from splitpu.errors import SplitPUWarning
from splitpu.training import Runtime, TrainSpec, train

QUICK = ("base.epochs=6", "base.batch_size=64", "base.positives_per_batch=16", "split.max_epochs=20",
         "split.batch_size=32", "split.optimiser.rate=0.02", "split.tau=0.85", "student.epochs=4",
         "student.batch_size=64", "engine.threads=1")  # fmt: skip


def mixture(seed: int = 0, rows: int = 300) -> tuple[PUData, np.ndarray]:
    """Two overlapping clouds, half of the rows positive, a tenth of those labelled."""
    draw = np.random.default_rng(seed)
    truth = np.arange(rows) % 2 == 0
    features = draw.normal(size=(rows, 6)) + np.where(truth, 0.9, -0.9)[:, None]
    labelled = truth & (np.arange(rows) < rows // 10)
    return PUData.from_arrays(features, labelled.astype(int), truth=truth.astype(int)), truth


def configured(*overrides: str) -> Config:
    return apply_overrides(Config(), [*QUICK, *overrides])


def run(*overrides: str, seed: int = 0):
    data, _ = mixture()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitPUWarning)
        return train(data, TrainSpec(prior=0.5, config=configured(*overrides), seed=seed), Runtime(device="cpu")).result
