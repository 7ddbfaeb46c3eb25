"""Decisions on P and U of a classifier whose mistakes are known."""

import numpy as np

SHIFT = 1.2


def scores(positives: int, negatives: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of an imperfect classifier on rows of both classes."""
    return rng.normal(SHIFT, 1, positives), rng.normal(-SHIFT, 1, negatives)


def pu_sample(prior: float, labelled: int, rows: int, scenario: str, rng: np.random.Generator):
    """Decisions on P and U as the scenario draws them: `rows` from the population, labelled ones in or beside it."""
    hidden = rng.binomial(rows, prior)
    positive, negative = scores(hidden + labelled, rows - hidden, rng)
    if scenario == "single-training-set":
        positive = positive[:hidden]  # the labelled ones are among them
    return positive[:labelled], np.concatenate([positive[labelled:], negative])
