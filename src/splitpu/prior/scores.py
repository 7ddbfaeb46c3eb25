"""Two quick classifiers of labelled against unlabelled rows; both score the rows they were trained on fairly, too.

TEDn: take the likely positives out of the unlabelled rows, train again, and read the share off anew.

How much every row looks like a labelled one, judged only by classifiers that did not see the row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from splitpu.data.pudata import PUData
from splitpu.data.sparse_rows import is_sparse
from splitpu.errors import InputError
from splitpu.prior.algorithms import bbe
from splitpu.types import Flags, Floats, Indices, Rows, Watch
from splitpu.utils.arrays import checked_seed, log_odds, sklearn_seed

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer


LANDMARKS = 300
TREES = 50  # in each of several cross-fittings
_INNER_FOLDS = 3
_LEAST_PROBABILITY = 1e-3


class Judged(NamedTuple):
    """Scores of the rows that were asked for, and of the training rows as if they had not been trained on."""

    asked: Floats
    own: Floats


class KernelLogistic:
    """Logistic regression on the kernel values with some landmark rows (Nystroem): smooth borders of any shape."""

    def __init__(self, features: Floats, labelled: Flags, *, sharpness: float, seed: int) -> None:
        """`sharpness` divides the squared width of the kernel, which is else the typical squared distance of rows."""
        from sklearn.kernel_approximation import Nystroem

        rng = np.random.default_rng(checked_seed(seed))
        one, other = (features[rng.integers(len(features), size=1000)] for _ in range(2))
        typical = float(np.median(((one - other) ** 2).sum(1))) or 1.0
        kernel = Nystroem(
            gamma=sharpness / typical, n_components=min(LANDMARKS, len(features)), random_state=sklearn_seed(seed)
        )
        mapped = kernel.fit_transform(features)
        self.mapped, self.labelled = mapped - mapped.mean(0), labelled

    def judge(self, training: Rows, kept: Flags, asked: Rows, seed: int) -> Judged:
        """Learn which rows are labelled, all given by number; `kept` runs over the training rows, the rest is dropped.

        The training rows are scored by cross-fitting."""
        from sklearn.model_selection import StratifiedKFold

        own = np.empty(len(training))
        folds = StratifiedKFold(_INNER_FOLDS, shuffle=True, random_state=sklearn_seed(seed))
        for inner, outer in folds.split(training, self.labelled[training]):
            some = inner[kept[inner]]
            if self.labelled[training[some]].all():  # of few unlabelled rows, those that are kept may all lie outside
                some = inner
            own[outer] = self._fitted(training[some]).decision_function(self.mapped[training[outer]])
        return Judged(self._fitted(training[kept]).decision_function(self.mapped[asked]), own)

    def _fitted(self, rows: Rows) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=10.0, max_iter=300).fit(self.mapped[rows], self.labelled[rows])


@dataclass(frozen=True)
class RandomTrees:
    """Extremely randomised trees: indifferent to the scale of a feature and to features that say nothing."""

    features: Floats
    labelled: Flags

    def judge(self, training: Rows, kept: Flags, asked: Rows, seed: int) -> Judged:
        """A training row is scored by the trees that did not see it."""
        from sklearn.ensemble import ExtraTreesClassifier

        # A forest of this size leaves next to no row without a tree that did not see it; those few get 1/2. It insists
        # on a figure for its unseen rows, of which only the probabilities are wanted.
        how = {"min_samples_leaf": 3, "bootstrap": True, "oob_score": lambda *_: 0.0}
        trees = ExtraTreesClassifier(TREES, **how, random_state=sklearn_seed(seed))
        trees.fit(self.features[training[kept]], self.labelled[training[kept]])
        own = np.empty(len(training))
        own[kept] = log_odds(np.nan_to_num(trees.oob_decision_function_[:, 1], nan=0.5), _LEAST_PROBABILITY)
        if not kept.all():
            own[~kept] = log_odds(trees.predict_proba(self.features[training[~kept]])[:, 1], _LEAST_PROBABILITY)
        return Judged(log_odds(trees.predict_proba(self.features[asked])[:, 1], _LEAST_PROBABILITY), own)


FOLDS = 5
ROUNDS = 3
CROSS_FITTINGS = 2  # over whose scores the mean is taken: where the folds happen to lie moves the estimate
APART = 1000  # so far are the seeds of two cross-fittings


class CrossFitted(NamedTuple):
    """Scores of every row by classifiers that never saw it, before and after the cleaning."""

    plain: Floats
    cleaned: Floats


def mean_scores(found: Sequence[CrossFitted]) -> CrossFitted:
    """The mean over several cross-fittings, in each of which every row was left out once."""
    return CrossFitted(*(np.mean(parts, axis=0) for parts in zip(*found, strict=True)))


def alternate(
    labelled: Flags, learners: Sequence[KernelLogistic | RandomTrees], seed: int, learned: Flags, ticks: Iterator[Any]
) -> CrossFitted:
    """Train P against U, then twice more against U without its likely positives.

    A classifier of P against all of U has to call most positives unlabelled; without the top rows of U it separates the
    classes themselves, and the share shows more clearly. Which rows are dropped is decided inside each training
    part alone: a held-out row that had a say in it would no longer be scored like an unseen one, and labelled rows
    would come out higher than unlabelled positives. Rows that are not `learned` from are held out, too: each is judged
    by one fold's classifiers like any other, as the mean of several would spread less."""
    folds = _folds(labelled, learned, seed)
    kept: list[Flags] = [np.ones(len(training), dtype=np.bool_) for training, _ in folds]
    history: list[Floats] = []
    for number in range(ROUNDS):
        scores = np.empty(len(labelled))
        own_scores = []
        for part, (training, held_out) in enumerate(folds):
            next(ticks)
            scores[held_out], own = 0.0, np.zeros(len(training))
            for learner in learners:  # the mean of their scores, each on the scale of its own training rows
                judged = learner.judge(training, kept[part], held_out, seed + number)
                middle, spread = judged.own.mean(), judged.own.std() or 1.0
                scores[held_out] += (judged.asked - middle) / spread
                own += (judged.own - middle) / spread
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

    rows, others = np.flatnonzero(learned), np.flatnonzero(~learned)
    more = np.array_split(np.random.default_rng(checked_seed(seed)).permutation(others), FOLDS)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=sklearn_seed(seed)).split(rows, labelled[rows])
    return [
        (rows[training], np.concatenate([rows[held_out], some]))
        for (training, held_out), some in zip(folds, more, strict=True)
    ]


def without_likely_positives(labelled: Flags, scores: Floats, share: float) -> Flags:
    """All rows but the given share of the unlabelled ones, those that score highest; a tenth of U stays in any case."""
    unlabelled = np.flatnonzero(~labelled)
    count = min(round(share * len(unlabelled)), len(unlabelled) * 9 // 10)
    kept = np.ones(len(labelled), dtype=np.bool_)
    kept[unlabelled[np.argsort(-scores[unlabelled], kind="stable")[:count]]] = False
    return kept


ScoreKind = Literal["auto", "classical", "network"]
OF_LEARNERS = "learners"  # how scores were made that come from the learners of a table's own model

FEWEST_POSITIVES = 10
FEWEST_UNLABELLED = 20
MOST_POSITIVES, MOST_UNLABELLED = 2000, 4000  # to learn from classically, where the cost grows faster than the gain
# To judge: among few unlabelled rows the share of positives differs from that among all. Fewer where rows are long.
MOST_JUDGED, MOST_JUDGED_VALUES = 20_000, 2**24
LARGEST_CLASSICAL_IMAGE = 28 * 28  # values; larger images need a network
COMPONENTS = 50  # principal components that stand for an image


@dataclass(frozen=True, eq=False)
class PUScores:
    """Out-of-fold scores of labelled and unlabelled rows."""

    labelled: Flags
    plain: Floats  # P against U
    cleaned: Floats  # P against U without its likely positives
    rows: Indices  # row numbers in the data; only some of them where there are very many
    how: str

    @cached_property
    def auc(self) -> float:
        """How well labelled rows are told from unlabelled ones: 1/2 is not at all.

        Even a perfect classifier cannot tell labelled positives from unlabelled ones, so with a share s of positives
        among the unlabelled rows it reaches 1 - s / 2."""
        from sklearn.metrics import roc_auc_score

        return max(float(roc_auc_score(self.labelled, scores)) for scores in (self.plain, self.cleaned))

    @property
    def auc_error(self) -> float:
        """The standard error of that figure where nothing separates."""
        positives, unlabelled = int(self.labelled.sum()), int((~self.labelled).sum())
        return float(np.sqrt((positives + unlabelled + 1) / (12 * positives * unlabelled)))


def pu_scores(
    data: PUData,
    *,
    seed: int = 0,
    how: ScoreKind = "auto",
    device: str = "auto",
    observer: "Observer | None" = None,
    checkpoints: Path | None = None,
) -> PUScores:
    """Cross-fitted scores: quick classical learners for vectors and small images, the package's networks for others.

    The observer sees the epochs of the networks."""
    if reason := too_few_rows(data):
        raise InputError(reason)
    if how == "auto":
        how = "network" if needs_networks(data) else "classical"
    rows = chosen_rows(data, seed)
    if how == "network":
        from splitpu.prior.network_scores import affordable_scores

        found = affordable_scores(data, rows, seed=seed, device=device, observer=observer, checkpoints=checkpoints)
    else:
        learned, rows = rows, judged_rows(data, rows, seed)
        features = described(data, rows, seed)  # only here: of large images it would fill the memory
        told: dict[str, Any] = {} if observer is None else {"watch": observer.watch}
        told |= {"images": data.kind != "vectors", "learned": np.isin(rows, learned)}
        found = classical_scores(features, data.labelled[rows], seed=seed, **told)
    return PUScores(data.labelled[rows], found.plain, found.cleaned, rows, how)


def needs_networks(data: PUData) -> bool:
    """Whether quick classical learners are at a loss with such data."""
    return data.kind != "vectors" and int(np.prod(data.features.shape[1:])) > LARGEST_CLASSICAL_IMAGE


def classical_scores(
    features: Floats,
    labelled: Flags,
    *,
    images: bool,
    seed: int,
    learned: Flags | None = None,
    cross_fittings: int = CROSS_FITTINGS,
    watch: Watch = lambda *_: None,
) -> CrossFitted:
    """A kernel method and trees, averaged: each does well where the other does not.

    Rows that are not `learned` from are only judged; without it all are both."""
    sharpness = 3.0 if images else 1.0  # neighbouring images share most of their pixels
    learned = np.ones_like(labelled) if learned is None else learned
    found, steps = [], cross_fittings * ROUNDS * FOLDS
    ticks = (watch("prior, classifiers", step, steps) for step in range(steps))  # type: ignore[func-returns-value]
    for own_seed in range(seed, seed + APART * cross_fittings, APART):
        smooth = KernelLogistic(features, labelled, sharpness=sharpness, seed=own_seed)
        found.append(alternate(labelled, [smooth, RandomTrees(features, labelled)], own_seed, learned, ticks))
    return mean_scores(found)


def described(data: PUData, rows: Indices, seed: int) -> Floats:
    """Rows as numbers of comparable size: standardised features, or the principal components of images.

    No label is looked at, so the held-out rows may take part."""
    from sklearn.decomposition import PCA

    if is_sparse(data.features):
        from sklearn.decomposition import TruncatedSVD

        number = min(COMPONENTS, data.features.shape[1] - 1, len(rows) - 1)
        reduced = TruncatedSVD(max(1, number), random_state=sklearn_seed(seed))
        flat: Floats = reduced.fit_transform(data.features[rows].tocsr())
    elif data.kind == "volumes":  # all voxels of many patients would fill the memory; their mean slice says enough
        flat = np.stack([data.features[row].mean(axis=0, dtype=np.float64).ravel() for row in rows.tolist()])
    else:
        flat = np.asarray(data.features[rows], dtype=np.float64).reshape(len(rows), -1)
    if data.kind == "vectors":
        spread = flat.std(0)
        standardised: Floats = (flat - flat.mean(0)) / np.where(spread > 0, spread, 1.0)
        return standardised
    if flat.shape[1] <= COMPONENTS:
        return flat
    components: Floats = PCA(min(COMPONENTS, *flat.shape), random_state=sklearn_seed(seed)).fit_transform(flat)
    return components


def too_few_rows(data: PUData) -> str:
    """Why there are too few rows to estimate the prior from; nothing if there are enough."""
    for rows, kind, fewest, more in (
        (data.positives, "labelled positive", FEWEST_POSITIVES, "label"),
        (data.unlabelled, "unlabelled row", FEWEST_UNLABELLED, "add rows until there are"),
    ):
        if len(rows) < fewest:
            they_are = f"{kind} is" if len(rows) == 1 else f"{kind}s are"
            return (
                f"{len(rows)} {they_are} too few to estimate the prior from: {more} at least {fewest}, or give the "
                "share of positives yourself (prior=0.3, say)"
            )
    return ""


def chosen_rows(data: PUData, seed: int) -> Indices:
    """The rows that classifiers learn from: all of them, or a draw of each kind where there are very many."""
    rng = np.random.default_rng(checked_seed(seed))
    kinds = (data.positives, MOST_POSITIVES), (data.unlabelled, MOST_UNLABELLED)
    parts = [rows if len(rows) <= most else rng.choice(rows, most, replace=False) for rows, most in kinds]
    return np.sort(np.concatenate(parts))


def judged_rows(data: PUData, learned: Indices, seed: int) -> Indices:
    """Those rows and more unlabelled ones, which cost next to nothing once there is a classifier."""
    others = np.setdiff1d(data.unlabelled, learned)
    width = COMPONENTS if data.is_sparse else int(np.prod(data.features.shape[1:]))
    room = min(MOST_JUDGED, MOST_JUDGED_VALUES // width) - len(learned)
    if len(others) > room:
        others = np.random.default_rng([checked_seed(seed), 1]).choice(others, max(room, 0), replace=False)
    return np.sort(np.concatenate([learned, others]))
