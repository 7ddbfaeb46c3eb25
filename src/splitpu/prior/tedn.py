"""TEDn: take the likely positives out of the unlabelled rows, train again, and read the share off anew."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitpu.prior.bbe import bbe
from splitpu.prior.learners import Flags, Floats, Learner, Rows
from splitpu.seeds import checked_seed, sklearn_seed

FOLDS = 5
ROUNDS = 3
CROSS_FITTINGS = 2  # over whose scores the mean is taken: where the folds happen to lie moves the estimate
APART = 1000  # so far are the seeds of two cross-fittings


class CrossFitted(NamedTuple):
    """Scores of every row by classifiers that never saw it, before and after the cleaning."""

    plain: Floats
    cleaned: Floats


def mean_scores(found: Sequence[CrossFitted]) -> CrossFitted:
    """The mean over several cross-fittings, in each of which every row was left out once.

    >>> mean_scores([CrossFitted(np.zeros(2), np.ones(2)), CrossFitted(np.ones(2), np.ones(2))])
    CrossFitted(plain=array([0.5, 0.5]), cleaned=array([1., 1.]))
    """
    return CrossFitted(*(np.mean(parts, axis=0) for parts in zip(*found, strict=True)))


def alternate(labelled: Flags, learners: Sequence[Learner], seed: int, learned: Flags) -> CrossFitted:
    """Train P against U, then twice more against U without its likely positives.

    A classifier of P against all of U has to call most positives unlabelled; without the top rows of U it separates the
    classes themselves, and the share shows more clearly. Which rows are dropped is decided inside each training
    part alone: a held-out row that had a say in it would no longer be scored like an unseen one, and labelled rows
    would come out higher than unlabelled positives. Rows that are not `learned` from are held out, too: each is judged
    by one fold's classifiers like any other, as the mean of several would spread less.
    """
    folds = _folds(labelled, learned, seed)
    kept: list[Flags] = [np.ones(len(training), dtype=np.bool_) for training, _ in folds]
    history: list[Floats] = []
    for number in range(ROUNDS):
        scores = np.empty(len(labelled))
        own_scores = []
        for part, (training, held_out) in enumerate(folds):
            scores[held_out], own = _judged_by_all(learners, training, kept[part], held_out, seed + number)
            own_scores.append(own)
        history.append(scores)
        share = bbe(scores[labelled], scores[~labelled])
        kept = [
            without_likely_positives(labelled[training], own, share)
            for (training, _), own in zip(folds, own_scores, strict=True)
        ]
    return CrossFitted(history[0], history[-1])


def _folds(labelled: Flags, learned: Flags, seed: int) -> list[tuple[Rows, Rows]]:
    """Which rows each classifier learns from, and which it judges: every row is judged once."""
    from sklearn.model_selection import StratifiedKFold

    rows, others = (
        np.flatnonzero(learned),
        np.random.default_rng(checked_seed(seed)).permutation(np.flatnonzero(~learned)),
    )
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=sklearn_seed(seed))
    return [
        (rows[training], np.concatenate([rows[held_out], more]))
        for (training, held_out), more in zip(
            splitter.split(rows, labelled[rows]), np.array_split(others, FOLDS), strict=True
        )
    ]


def without_likely_positives(labelled: Flags, scores: Floats, share: float) -> Flags:
    """All rows but the given share of the unlabelled ones, those that score highest; a tenth of U stays in any case."""
    unlabelled = np.flatnonzero(~labelled)
    count = min(round(share * len(unlabelled)), len(unlabelled) * 9 // 10)
    kept = np.ones(len(labelled), dtype=np.bool_)
    kept[unlabelled[np.argsort(-scores[unlabelled], kind="stable")[:count]]] = False
    return kept


def _judged_by_all(
    learners: Sequence[Learner], training: Rows, kept: Flags, held_out: Rows, seed: int
) -> tuple[Floats, Floats]:
    """The mean of the learners' scores, each on the scale of its own training rows."""
    asked, own = np.zeros(len(held_out)), np.zeros(len(training))
    for learner in learners:
        judged = learner.judge(training, kept, held_out, seed)
        middle, spread = judged.own.mean(), judged.own.std() or 1.0
        asked += (judged.asked - middle) / spread
        own += (judged.own - middle) / spread
    return asked, own
