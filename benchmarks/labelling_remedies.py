"""Labels that are no random draw of the positives: made on purpose, and what makes up for them.

`preferred_labels` labels with a preference; `threshold_by_prior` and `propensities` are remedies.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from splitpu.errors import InputError
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_seed

Preference = Literal["random", "clear", "border", "feature"]
_PENALTY, _ROUNDS = 1.0, 10
_LEAST = 1e-3


class Propensities(NamedTuple):
    """What is thought of every row if labels depend on its features."""

    positive: Floats  # probability of being positive, from the features alone
    labelled: Floats  # probability of being labelled, if positive
    weights: Floats  # how much a row counts as positive when a classifier is trained; as a negative 1 - this


def preferred_labels(
    features: npt.ArrayLike,
    truth: npt.ArrayLike,
    count: int,
    *,
    preference: Preference = "clear",
    strength: float = 2.0,
    column: int | None = None,
    seed: int = 0,
) -> Flags:
    """Label some positives with a preference, to try out what becomes of methods and figures.

    A positive is labelled with a probability proportional to sigmoid(2 * strength * v), where v is standardised over
    the positives: how clearly a linear model trained on the truth takes the row for positive (`clear`), or how little
    (`border`), or a `column` or else the positives' first principal component, which need not tell classes apart
    (`feature`).

    >>> rng = np.random.default_rng(0)
    >>> rows, truth = rng.normal(size=(200, 3)), np.arange(200) < 100
    >>> labels = preferred_labels(rows, truth, 30, preference="feature", seed=1)
    >>> int(labels.sum()), bool((labels & ~truth).any())
    (30, False)
    """
    rows, positive = np.asarray(features, dtype=np.float64), np.asarray(truth).astype(np.bool_)
    if preference not in get_args(Preference):
        raise InputError(f"preference={preference!r} is unknown: choose one of {', '.join(get_args(Preference))}")
    if rows.ndim != 2 or positive.shape != (len(rows),):
        raise InputError(f"features of shape {rows.shape} and truth of shape {positive.shape} do not fit: give a table")
    if not 1 <= count <= positive.sum():
        raise InputError(f"count={count} cannot be labelled: there are {int(positive.sum())} positives")
    rng = np.random.default_rng(checked_seed(seed))
    along = _along(rows, positive, preference, column)
    chances = 1 / (1 + np.exp(-2 * strength * along))
    chosen = rng.choice(np.flatnonzero(positive), count, replace=False, p=chances / chances.sum())
    labels = np.zeros(len(rows), dtype=np.bool_)
    labels[chosen] = True
    return labels


def threshold_by_prior(scores: npt.ArrayLike, prior: float) -> float:
    """The score above which as large a share of the rows lies as is positive, if the prior is known from elsewhere.

    The remedy that assumes least: where a row that is likelier positive is also likelier labelled, scores of P against
    U still rank rows rightly however labels were given, only probabilities and an estimated prior are wrong.

    >>> threshold_by_prior([0.1, 0.2, 0.3, 0.4], 0.25)
    0.35
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))[::-1]
    if not 0 < prior < 1:
        raise InputError(f"prior={prior:g} is not a share: give the share of positives, between 0 and 1")
    called = min(max(round(prior * len(ordered)), 1), len(ordered) - 1)
    return float((ordered[called - 1] + ordered[called]) / 2)


def propensities(
    features: npt.ArrayLike,
    labelled: npt.ArrayLike,
    depends_on: npt.ArrayLike,
    *,
    tells_class: bool = False,
    penalty: float = _PENALTY,
    rounds: int = _ROUNDS,
) -> Propensities:
    """Tell what makes a row positive from what makes a positive row labelled, by expectation and maximisation.

    Two logistic models, of being positive and of being labelled if positive, explain the labels together. The user
    has to say on which columns labelling may depend (`depends_on`); they are kept out of the model of the class,
    unless they also tell it (`tells_class`), which is harder to disentangle. Nothing else can be told apart: with all
    columns on both sides the result is worthless. Train any classifier with `weights`: each row once as a positive
    with this weight and once as a negative with 1 - this, and leave the columns out there, too.

    It helps where labels depend on columns that say little about the class: 2 points of AUC on nine tables, better in
    14 of 18 draws and worse in 2. Where labels go to the clearest positives or to those near the border, the columns
    named have nothing to do with it and the gain is small and uncertain (benchmarks/desk_prior.py --remedy); there
    `threshold_by_prior` is what is left.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(3000) < 1000
    >>> rows = np.stack([rng.normal(size=3000) + 4 * truth, rng.normal(size=3000)], axis=1)
    >>> known = truth & (rng.random(3000) < 1 / (1 + np.exp(-2 * rows[:, 1])))
    >>> found = propensities(rows, known, depends_on=[1])
    >>> bool(found.positive[truth].mean() > 0.85), bool(found.positive[~truth].mean() < 0.15)
    (True, True)
    """
    rows, known = np.asarray(features, dtype=np.float64), np.asarray(labelled).astype(np.bool_)
    if rows.ndim != 2 or known.shape != (len(rows),):
        raise InputError(f"features of shape {rows.shape} and labelled of shape {known.shape} do not fit: give a table")
    columns = np.atleast_1d(np.asarray(depends_on))
    if not len(columns) or not np.isin(columns, np.arange(rows.shape[1])).all():
        raise InputError(
            f"depends_on={columns.tolist()} are not columns of the {rows.shape[1]}: name those that labelling may "
            "depend on, by number"
        )
    if len(np.unique(columns)) == rows.shape[1] and not tells_class:
        raise InputError("depends_on names every column, so that nothing is left to tell the class by: name fewer")
    scaled = _standardised(rows)
    chosen = scaled[:, columns]
    telling = scaled if tells_class else np.delete(scaled, columns, axis=1)
    everyone, marks = np.ones(len(rows)), known.astype(np.float64)
    positive = _soft_logistic(telling, marks, everyone, penalty)
    share = float(positive[known].mean())  # of positives that are labelled, if labels were a random draw
    hidden = (1 - share) / share * positive / (1 - positive)
    weights, of_positive = np.where(known, 1.0, np.clip(hidden, 0.0, 1.0)), np.full(len(rows), share)
    for _ in range(rounds):
        positive = _soft_logistic(telling, weights, everyone, penalty)
        of_positive = _soft_logistic(chosen, marks, weights, penalty)
        missed = positive * (1 - of_positive)
        weights = np.where(known, 1.0, missed / np.maximum(missed + 1 - positive, _LEAST))
    return Propensities(positive, of_positive, weights)


def _along(rows: Floats, positive: Flags, preference: Preference, column: int | None) -> Floats:
    """What the preference goes by, standardised over the positives."""
    scaled = _standardised(rows)
    if preference == "random":
        return np.zeros(int(positive.sum()))
    if preference == "feature":
        centred = scaled[positive] - scaled[positive].mean(0)
        axis = np.linalg.svd(centred, full_matrices=False)[2][0] if column is None else np.eye(rows.shape[1])[column]
        along = centred @ axis
    else:
        from sklearn.linear_model import LogisticRegression

        along = LogisticRegression(C=0.1, max_iter=500).fit(scaled, positive).decision_function(scaled[positive])
        along = along if preference == "clear" else -along
    standardised: Floats = (along - along.mean()) / max(float(along.std()), 1e-9)
    return standardised


def _soft_logistic(rows: Floats, target: Floats, weight: Floats, penalty: float) -> Floats:
    """Probabilities by logistic regression on targets between 0 and 1: each row counts once for either class."""
    from sklearn.linear_model import LogisticRegression

    twice = np.concatenate([rows, rows])
    classes = np.repeat([1, 0], len(rows))
    counts = np.concatenate([weight * target, weight * (1 - target)])
    kept = counts > _LEAST
    model = LogisticRegression(C=penalty, max_iter=200).fit(twice[kept], classes[kept], sample_weight=counts[kept])
    probability: Floats = model.predict_proba(rows)[:, 1]
    return np.clip(probability, _LEAST, 1 - _LEAST)


def _standardised(rows: Floats) -> Floats:
    spread = rows.std(0)
    scaled: Floats = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled
