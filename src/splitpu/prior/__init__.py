"""Estimating the class prior from labelled positives and unlabelled rows."""

from splitpu.prior.bbe import bbe
from splitpu.prior.dedpul import dedpul
from splitpu.prior.estimate import EstimatorRow, PriorEstimate, estimate_prior, population_share
from splitpu.prior.km2 import km2
from splitpu.prior.penl1 import penl1
from splitpu.prior.resolve import ResolvedPrior, resolve_prior
from splitpu.prior.scores import PUScores, pu_scores
from splitpu.prior.tice import tice

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
