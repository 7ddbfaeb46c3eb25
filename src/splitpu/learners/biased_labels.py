"""What makes a row positive, told from what makes a positive row labelled: for labels that depend on some columns.

Two logistic models explain the labels together, by expectation and maximisation (SAR-EM of Bekker, Robberechts and
Davis, 2019): one of being positive, by all columns but those that labels may depend on, and one of being labelled if
positive, by these alone. With all columns on both sides nothing could be told apart: the user has to name them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from splitpu.data.sparse_rows import is_sparse_matrix
from splitpu.errors import InputError
from splitpu.learners.catalogue import MOST_ROWS, Boosting, Forest, Logistic, Rows, checked, fewer_rows, is_soft
from splitpu.learners.learner_networks import AverageNetwork
from splitpu.types import Floats

ROWS = 20_000  # that it is fitted on; more say hardly more, and take minutes
ROUNDS, LEAST = 10, 1e-3  # no probability is nearer to 0 or 1, so that none is settled once and for all
PUPILS = (Logistic(even=False), Forest(), Boosting())


@dataclass(frozen=True)
class BiasedLabels:
    """The mean of learners taught how likely each row is positive, without some columns; soft labels as they are."""

    columns: tuple[int, ...]
    name: str = "sar-em"

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> AverageNetwork:
        if is_sparse_matrix(rows) or rows.shape[0] > MOST_ROWS:
            raise InputError(f"sar-em takes dense rows, at most {MOST_ROWS:,}: take a random part of them")
        target, weight = checked(rows, target, sample_weight)
        kept = fewer_rows(target, min(ROWS, len(target)), seed)
        for kind in (target > 0.5, target <= 0.5):  # of which not the same part is kept
            weight = weight * np.where(kind, kind.sum() / max(kind[kept].sum(), 1), 1.0)
        rows, target, weight = rows[kept], target[kept], weight[kept]
        others = np.array(rows, dtype=np.float64)
        others[:, self.columns] = 0.0  # a constant, from which none of the pupils learns anything
        if not is_soft(target):
            target = how_positive(others, rows[:, self.columns], target, weight)
        found = [one.fit(others, target, sample_weight=weight, seed=seed).as_network() for one in PUPILS]
        slope = [1 / max(float(one.scores(others).std()), LEAST) for one in found]
        return AverageNetwork(found).filled(slope=slope, share=np.full(len(found), 1 / len(found)))


def how_positive(others: Floats, columns: Floats, labelled: Floats, weight: Floats) -> Floats:
    """The probability of every row to be positive, 1 of the labelled ones; as of random labels to begin with."""

    def probability(rows: Floats, target: Floats, weight: Floats) -> Floats:
        logits = Logistic(even=False).fit(rows, target, sample_weight=weight).scores(rows)
        return np.clip(1 / (1 + np.exp(-np.clip(logits, -30, 30))), LEAST, 1 - LEAST)

    known = labelled > 0.5
    positive = probability(others, labelled, weight)
    share = float(positive[known].mean())
    found = np.where(known, 1.0, np.clip((1 - share) / share * positive / (1 - positive), 0.0, 1.0))
    for _ in range(ROUNDS):
        positive = probability(others, found, weight)
        missed = positive * (1 - probability(columns, labelled, weight * found))
        found = np.where(known, 1.0, missed / (missed + 1 - positive))
    return found
