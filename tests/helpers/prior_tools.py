"""Mixtures of two clouds, of which the share of positives is known."""

import numpy as np

from splitpu.data.pudata import PUData


def mixture(
    share: float, positives: int = 300, unlabelled: int = 1000, seed: int = 0, features: int = 1, apart: float = 4.0
) -> tuple[np.ndarray, np.ndarray]:
    """P and U of two clouds; a share of U is positive."""
    rng = np.random.default_rng(seed)
    hidden = round(share * unlabelled)
    cloud = rng.normal(size=(positives + unlabelled, features))
    cloud[: positives + hidden] += apart / np.sqrt(features)
    return cloud[:positives], cloud[positives:]


def pu_mixture(share: float, *, scenario: str = "case-control", **parts: object) -> PUData:
    positive, unlabelled = mixture(share, **parts)  # type: ignore[arg-type]
    labels = np.r_[np.ones(len(positive)), np.zeros(len(unlabelled))]
    return PUData.from_arrays(np.concatenate([positive, unlabelled]), labels, scenario=scenario)  # type: ignore[arg-type]
