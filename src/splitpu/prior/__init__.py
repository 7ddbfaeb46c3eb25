"""Estimating the class prior from labelled positives and unlabelled rows."""

from splitpu.prior.algorithms import bbe, dedpul, km2, penl1, tice
from splitpu.prior.estimate import (
    EstimatorRow,
    PriorEstimate,
    ResolvedPrior,
    estimate_prior,
    population_share,
    resolve_prior,
)
from splitpu.prior.scores import PUScores, pu_scores

__all__ = [
    "EstimatorRow",
    "PUScores",
    "PriorEstimate",
    "ResolvedPrior",
    "bbe",
    "dedpul",
    "estimate_prior",
    "km2",
    "penl1",
    "population_share",
    "pu_scores",
    "resolve_prior",
    "tice",
]
