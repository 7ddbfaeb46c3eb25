"""Choosing between models without a single negative label: what held-out positives and population rows can tell."""

import dataclasses

import numpy as np
import numpy.typing as npt

from splitpu.data.pudata import FEWEST_POSITIVES, PUData, check_share
from splitpu.data.sparse_rows import picked
from splitpu.errors import InputError
from splitpu.evaluation.calibration import sigmoid
from splitpu.types import Floats, Indices
from splitpu.utils.arrays import checked_scores, checked_seed


def pu_criterion(decision_positive: npt.ArrayLike, decision_unlabelled: npt.ArrayLike, prior: float) -> float:
    """Estimate the accuracy from decisions (above 0 = positive) on known positives and on a sample of the population.

    With r the recall and f the share of negatives called positive, accuracy = prior * r + (1 - prior) * (1 - f). The
    population is called positive at the rate u = prior * r + (1 - prior) * f, which gives the unknown f.
    The estimate is unbiased only if the second sample stands for the population: `hold_out` gives the right rows. It
    may lie above 1, and with few positives it is noisy; candidates compared on the same rows share most of that noise.
    """
    positive, unlabelled = _checked(decision_positive, decision_unlabelled)
    prior = check_share(prior)
    recall, rate = float((positive > 0).mean()), float((unlabelled > 0).mean())
    return 2 * prior * recall - rate + (1 - prior)


def nnpu_value(decision_positive: npt.ArrayLike, decision_unlabelled: npt.ArrayLike, prior: float) -> float:
    """The nnPU risk with the sigmoid loss on held-out rows: lower is better, and it never falls below zero."""
    positive, unlabelled = _checked(decision_positive, decision_unlabelled)
    prior = check_share(prior)
    missed, called = sigmoid(-positive).mean(), sigmoid(positive).mean()
    return float(prior * missed + max(sigmoid(unlabelled).mean() - prior * called, 0.0))


def variational_value(logit_positive: npt.ArrayLike, logit_population: npt.ArrayLike) -> float:
    """VPU's loss on held-out logits, `log mean_X Phi - mean_P log Phi`: lower is better, and no prior is needed."""
    positive, population = (-np.logaddexp(0.0, -one) for one in _checked(logit_positive, logit_population))
    return float(np.logaddexp.reduce(population) - np.log(len(population)) - positive.mean())


def set_aside(data: PUData, share: float, seed: int) -> tuple[Indices, Indices]:
    """Row numbers of the same share of labelled and of unlabelled rows, for other things than training."""
    if not 0 < share < 1:
        raise InputError(f"share={share:g} cannot be held out; give a share between 0 and 1")
    draw = np.random.default_rng(checked_seed(seed))
    positives, unlabelled = (
        np.sort(draw.choice(rows, size=round(share * len(rows)), replace=False))
        for rows in (data.positives, data.unlabelled)
    )
    if len(positives) < 1 or len(unlabelled) < 1 or len(data.positives) - len(positives) < FEWEST_POSITIVES:
        raise InputError(
            f"share={share:g} of {len(data.positives)} labelled and {len(data.unlabelled)} unlabelled rows leaves too "
            "few on one side; label more positives or hold out another share"
        )
    return positives, unlabelled


def hold_out(data: PUData, share: float, seed: int) -> tuple[PUData, Indices, Indices]:
    """Take the same share of labelled and unlabelled rows out of training.

    Returns the training data that are left, and the row numbers (in the data given) of the held-out positives and of
    the held-out rows that stand for the population: P and U together, or U alone if P was drawn apart."""
    positives, unlabelled = set_aside(data, share, seed)
    together = np.sort(np.concatenate([positives, unlabelled]))
    kept = np.setdiff1d(np.arange(len(data)), together)
    left = dataclasses.replace(
        data,
        features=picked(data.features, kept),
        labelled=data.labelled[kept],
        names=None if data.names is None else tuple(data.names[row] for row in kept),
        truth=None if data.truth is None else data.truth[kept],
        answers=None if data.answers is None else data.answers[kept],
    )
    return left, positives, together if data.scenario == "single-training-set" else unlabelled


def _checked(positive: npt.ArrayLike, population: npt.ArrayLike) -> tuple[Floats, Floats]:
    return checked_scores(positive, "positives"), checked_scores(population, "rows of the population")
