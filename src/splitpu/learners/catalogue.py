"""Learners for tables and vectors, by name: each tells labelled positives from unlabelled rows.

All take dense rows (missing values as NaN) or CSR rows, and a target: a mask of the labelled rows, or soft labels
between 0 and 1. A soft label q counts the row as a positive with weight q and as a negative with weight 1 - q, which is
how a student learns what its teacher is not sure of. Sparse rows stay sparse: their columns are neither centred nor
scaled. What comes back gives logits of "labelled" for any rows, and can be written as a network.

Every learner has a cost guard: beyond `MOST_ROWS` a fit sees all positives (up to half of the rows) and a random part
of the others. Which rows are left out shifts the logits by a constant and leaves their order alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from splitpu.data.sparse_rows import is_sparse_matrix
from splitpu.errors import InputError
from splitpu.learners.learner_networks import (
    TINIEST_SHARE,
    ForeignNetwork,
    KernelNetwork,
    LearnerNetwork,
    LinearNetwork,
    network_of_stages,
    network_of_trees,
)
from splitpu.types import Floats, Indices, Mask
from splitpu.utils.arrays import log_odds

Rows = Any  # a dense array of numbers or a scipy CSR matrix: scipy ships no types

MOST_ROWS = 200_000
TREE_STEPS, BINS, ROWS_FOR_STEPS = 64, 255, 20_000  # of a column, and how many rows tell them


class Fitted(Protocol):
    """A fitted learner."""

    def scores(self, rows: Rows) -> Floats:
        """Logits of "labelled", one per row."""
        ...

    def as_network(self) -> LearnerNetwork:
        """The same function as a network of plain tensors."""
        ...


class Learner(Protocol):
    """Something that can be fitted again and again: in folds, on all rows, on a student's soft labels."""

    @property
    def name(self) -> str: ...

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> Fitted: ...


@dataclass
class FittedTrees:
    """Single trees with equal votes (a bagging, a forest); the logit of their mean share of positives.

    `out_of_bag` are scores of the training rows by the trees that never saw them, if there are such."""

    trees: Sequence[Any]
    out_of_bag: Floats | None = None

    def scores(self, rows: Rows) -> Floats:
        rounded = as_float32(rows)
        total = np.zeros(rows.shape[0])
        for tree in self.trees:
            total += tree_share(tree, rounded)
        return log_odds(total / len(self.trees), TINIEST_SHARE)

    def as_network(self) -> LearnerNetwork:
        return network_of_trees(self.trees, 1 / len(self.trees), shares=True)


@dataclass
class FittedStages:
    """A boosting, up to a number of its stages."""

    model: Any
    stages: int

    def scores(self, rows: Rows) -> Floats:
        return self.at_stages(rows, (self.stages,))[self.stages]

    def at_stages(self, rows: Rows, wanted: Sequence[int]) -> dict[int, Floats]:
        """Logits after each of some numbers of stages, in one walk through them."""
        values = np.ascontiguousarray(rows, dtype=np.float64)
        total = np.full(len(values), float(np.ravel(self.model._baseline_prediction)[0]))
        found, bitsets = {}, self.model._bin_mapper.make_known_categories_bitsets()
        for number, (stage,) in enumerate(self.model._predictors[: max(wanted)], start=1):
            total = total + stage.predict(values, *bitsets, n_threads=1)
            if number in wanted:
                found[number] = total
        return {stages: found.get(stages, total) for stages in wanted}

    def as_network(self) -> LearnerNetwork:
        return network_of_stages(self.model, self.stages)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with an L2 penalty.

    Dense columns are standardised inside and the weights given back for raw ones. A small `strength` (the inverse of
    the penalty) suits few labels and many columns. With `even` both kinds of row weigh the same, which wastes what many
    unlabelled rows say: where positives are few, rows as they are rank better, at the top of the list above all."""

    name: str = "logistic"
    strength: float = 1.0
    even: bool = True

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> LinearNetwork:
        rows, target, weight = guarded(rows, target, sample_weight, seed=seed)
        sparse = is_sparse_matrix(rows)
        columns = rows.shape[1]
        centre, scale = (np.zeros(columns), np.ones(columns)) if sparse else centre_and_scale(rows)
        prepared = rows if sparse else standardised(rows, centre, scale)
        gone = np.zeros(0, dtype=np.int64) if sparse else np.flatnonzero(np.isnan(rows).any(0))
        if len(gone):
            prepared = np.hstack([prepared, np.isnan(rows[:, gone])])
        prepared, label, weight = as_two_classes(prepared, target, weight)
        weight = weight * len(weight) / weight.sum()
        quick = not sparse and prepared.shape[1] <= 300
        how = {"C": self.strength, "solver": "newton-cholesky" if quick else "lbfgs", "max_iter": 300}
        found, bias = logistic_line(prepared, label, balanced(label, weight) if self.even else weight, **how)
        missing = np.zeros(columns)
        missing[gone] = found[columns:]
        slope = found[:columns] / scale
        bias -= float(centre @ slope)
        return LinearNetwork(columns).filled(weight=slope, bias=bias, missing=missing, centre=centre)


@dataclass(frozen=True)
class Kernel:
    """Logistic regression on Gaussian bumps around landmark rows (Nystroem): smooth curved borders, at a fixed cost."""

    name: str = "kernel"
    landmarks: int = 300
    strength: float = 1.0
    width: float = 1.0  # times one over the number of columns

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> KernelNetwork:
        if is_sparse_matrix(rows):
            raise InputError("the kernel learner takes no sparse rows: use logistic, bagging or naive bayes for them")
        rows, target, weight = guarded(rows, target, sample_weight, seed=seed, most=MOST_ROWS // 4)
        centre, scale = centre_and_scale(rows)
        standard = standardised(rows, centre, scale)
        rng = np.random.default_rng(seed)
        # Half of the landmarks are positives, or all that there are: rare ones would hardly be drawn otherwise.
        chance = target * weight
        positive = drawn(rng, chance, min(self.landmarks // 2, int((chance > 0).sum())))
        others = drawn(rng, (1 - target) * weight, min(self.landmarks - len(positive), int((target < 1).sum())))
        landmarks = standard[np.concatenate([positive, others])]
        width = self.width / max(1, int((standard.std(0) > 0).sum()))
        values, vectors = np.linalg.eigh(bumps(landmarks, landmarks, width))
        kept = values > 1e-6 * values[-1]
        projection = vectors[:, kept] / np.sqrt(values[kept])
        prepared, label, weight = as_two_classes(bumps(standard, landmarks, width) @ projection, target, weight)
        weight = balanced(label, weight * len(weight) / weight.sum())
        how = {"C": self.strength, "solver": "newton-cholesky", "max_iter": 50}
        found, bias = logistic_line(prepared, label, weight, **how)
        buffers = {"centre": centre, "scale": scale, "landmarks": landmarks, "bias": bias, "width": width}
        return KernelNetwork(rows.shape[1], len(landmarks)).filled(weight=projection @ found, **buffers)


@dataclass(frozen=True)
class NaiveBayes:
    """The log-ratio of how often positives and others use a word: the strongest plain model of few, short texts.

    Only for rows without negative numbers (counts, TF-IDF). `strength` is added to every count."""

    name: str = "naive bayes"
    strength: float = 0.3

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> LinearNetwork:
        target, weight = checked(rows, target, sample_weight)
        if (rows.data if is_sparse_matrix(rows) else rows).min(initial=0) < 0:
            raise InputError("naive bayes needs counts or TF-IDF: there are negative numbers among the features")
        ratio = np.zeros(rows.shape[1])
        for counts, sign in ((target * weight, 1.0), ((1 - target) * weight, -1.0)):
            used = np.asarray(rows.T @ counts).ravel() + self.strength
            ratio += sign * np.log(used / used.sum())
        return LinearNetwork(len(ratio)).filled(weight=ratio)


@dataclass(frozen=True)
class Bagging:
    """PU bagging (Mordelet and Vert): many trees, each of a draw of positives against a draw of unlabelled rows.

    Hidden positives are few in each draw, and each tree sees others, so that no tree's mistake about them lasts. The
    positives are drawn with replacement too, so that they have out-of-bag scores as well as the unlabelled rows.
    scikit-learn's forests draw by weight: with balanced classes nearly every positive is in every bag there, and what
    they call out of bag ranks no better than chance."""

    name: str = "bagging"
    trees: int = 150
    against: float = 1.0  # unlabelled rows for each positive that a tree sees; both kinds weigh the same in the tree
    most: int = 1_000  # positives that a tree sees, and a fifth of its unlabelled rows
    leaf: int = 1
    columns: str | float = 0.5
    first: ClassVar[int] = 50  # trees, by which a bagging is told from another one

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> FittedTrees:
        return list(self.growing(rows, target, sample_weight, seed))[-1]

    def growing(
        self, rows: Rows, target: Any, sample_weight: Floats | None = None, seed: int = 0
    ) -> Iterator[FittedTrees]:
        """The first trees, by which it can be told whether others are worth their time, and then all of them."""
        from sklearn.tree import DecisionTreeClassifier

        target, weight = checked(rows, target, sample_weight)
        rounded, rng = as_float32(rows), np.random.default_rng(seed)
        taught = rounded if is_sparse_matrix(rows) else _in_steps(rounded, target, TREE_STEPS)
        positive, negative = target * weight, (1 - target) * weight
        number = int(np.clip((positive > 0.5 * weight).sum(), 10, self.most))
        others = int(min(max(self.against * number, 20), (negative > 0).sum(), 5 * self.most))
        trees, votes, unseen_by = list[Any](), np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
        whole = not is_soft(target)
        label = np.arange(number + others) < number
        share = balanced(label, np.ones(len(label)))
        for count in range(1, self.trees + 1):
            chosen = np.concatenate([drawn(rng, positive, number, True), drawn(rng, negative, others, True)])
            tree = DecisionTreeClassifier(
                min_samples_leaf=self.leaf, max_features=self.columns, random_state=int(rng.integers(2**31))
            )
            tree.fit(taught[chosen], label, sample_weight=share)
            trees.append(tree)
            if whole:
                unseen = np.ones(rows.shape[0], dtype=bool)
                unseen[chosen] = False
                votes += unseen * tree_share(tree, rounded)
                unseen_by += unseen
            if count in (self.first, self.trees):
                bag = log_odds(votes / np.maximum(unseen_by, 1), TINIEST_SHARE) if whole else None
                yield FittedTrees(trees[:count], bag)


@dataclass(frozen=True)
class Forest(Bagging):
    """Larger draws of the unlabelled rows and larger leaves: a balanced random forest."""

    name: str = "forest"
    trees: int = 80
    against: float = 3.0
    leaf: int = 5
    columns: str | float = 0.7


@dataclass(frozen=True)
class Boosting:
    """Histogram gradient boosting with a small rate; how many of its stages to keep is judged out of fold.

    Where neither weights nor soft labels call for it no weights are given: balanced classes rank no better here."""

    name: str = "boosting"
    stages: int = 100
    rate: float = 0.06
    leaves: int = 8
    penalty: float = 1.0

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> FittedStages:
        from sklearn.ensemble import HistGradientBoostingClassifier

        if is_sparse_matrix(rows):
            raise InputError("boosting takes no sparse rows: use logistic, bagging or naive bayes for them")
        plain = sample_weight is None and not is_soft(target)
        rows, target, weight = guarded(rows, target, sample_weight, seed=seed)
        empty = np.isnan(rows).all(0)
        filled = np.where(empty, 0.0, rows) if empty.any() else rows  # scikit-learn finds no bins in an empty column
        filled = filled if plain else _in_steps(filled, target, BINS)
        prepared, label, weight = as_two_classes(filled, target, weight)
        model = HistGradientBoostingClassifier(
            learning_rate=self.rate,
            max_iter=self.stages,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=int(np.clip((target > 0.5).sum() // 10, 5, 20)),
            l2_regularization=self.penalty,
            max_features=min(1.0, max(0.3, 10 / rows.shape[1])),
            early_stopping=False,
            random_state=seed,
        )
        model.fit(prepared, label, sample_weight=None if plain else balanced(label, weight))
        return FittedStages(model, self.stages)


@dataclass(frozen=True)
class Given:
    """Any scikit-learn classifier of the user's; it is cloned, never changed."""

    model: Any

    @property
    def name(self) -> str:
        return type(self.model).__name__

    def fit(self, rows: Rows, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> ForeignNetwork:
        from sklearn.base import clone
        from sklearn.utils.validation import has_fit_parameter

        plain = sample_weight is None and not is_soft(target)
        target, weight = checked(rows, target, sample_weight)
        prepared, label, weight = as_two_classes(rows, target, weight)
        model = clone(self.model)
        if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
            model.set_params(random_state=seed)
        if plain:
            model.fit(prepared, label)
        elif has_fit_parameter(model, "sample_weight"):
            model.fit(prepared, label, sample_weight=weight)
        else:
            raise InputError(f"{type(model).__name__} takes no sample_weight: leave the weights out, or use another")
        return ForeignNetwork(model)


_NAMED: tuple[Learner, ...] = (
    Logistic(even=False),
    Logistic("logistic, strong penalty", 0.003),
    Logistic("logistic, weak penalty", 30.0),
    Kernel(),
    Kernel("kernel, wide", width=0.3),
    NaiveBayes(),
    Forest(),
    Bagging(),
    Bagging("bagging, large leaves", leaf=8),
    Boosting(),
)
LEARNERS = {one.name: one for one in _NAMED}


def learner(wanted: Any) -> Learner:
    """A learner by its name, or a scikit-learn classifier as a learner; a learner stays what it is."""
    if isinstance(wanted, str):
        if wanted not in LEARNERS:
            raise InputError(f"there is no learner named {wanted!r}: one of {', '.join(LEARNERS)}")
        return LEARNERS[wanted]
    if hasattr(wanted, "fit") and hasattr(wanted, "get_params"):
        return Given(wanted)
    if hasattr(wanted, "fit") and hasattr(wanted, "name"):
        found: Learner = wanted
        return found
    raise InputError(f"{wanted!r:.60} is no learner: give a name ({', '.join(LEARNERS)}) or a scikit-learn classifier")


def is_soft(target: Any) -> bool:
    values = np.asarray(target)
    return values.dtype != bool and bool(((values != 0) & (values != 1)).any())


def checked(rows: Rows, target: Any, sample_weight: Floats | None) -> tuple[Floats, Floats]:
    """Target and weights as numbers, one per row; without positives or without others nothing can be learnt."""
    soft = np.asarray(target, dtype=np.float64)
    weight = np.ones(len(soft)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if not len(soft) == len(weight) == rows.shape[0]:
        raise InputError(f"{rows.shape[0]} rows, {len(soft)} labels and {len(weight)} weights: give one per row")
    if not ((soft * weight).sum() > 0 and ((1 - soft) * weight).sum() > 0):
        raise InputError("a learner needs labelled rows and unlabelled rows: one of the two is missing")
    return soft, weight


def guarded(
    rows: Rows, target: Any, sample_weight: Floats | None, *, seed: int, most: int = MOST_ROWS
) -> tuple[Rows, Floats, Floats]:
    """At most so many rows: all positives, or as many as fill half, and a random part of the others."""
    soft, weight = checked(rows, target, sample_weight)
    if len(soft) <= most:
        return rows, soft, weight
    kept = fewer_rows(soft, most, seed)
    return rows[kept], soft[kept], weight[kept]


def fewer_rows(target: Floats | Mask, most: int, seed: int) -> Indices:
    """Which rows to keep of too many, in their order."""
    rng = np.random.default_rng(seed)
    likelier = np.asarray(target, dtype=np.float64) > 0.5
    likely, others = np.flatnonzero(likelier), np.flatnonzero(~likelier)
    number = min(len(likely), max(most // 2, most - len(others)))
    counts = ((likely, number), (others, min(len(others), most - number)))
    return np.sort(np.concatenate([rng.choice(kind, count, replace=False) for kind, count in counts]))


def as_two_classes(rows: Rows, target: Floats, weight: Floats) -> tuple[Rows, Mask, Floats]:
    """Soft labels as weighted hard ones: a row that is neither stands twice, once on each side."""
    if not is_soft(target):
        return rows, target > 0.5, weight
    positive, negative = np.flatnonzero(target > 0), np.flatnonzero(target < 1)
    both = np.concatenate([positive, negative])
    label = np.arange(len(both)) < len(positive)
    return rows[both], label, np.concatenate([(target * weight)[positive], ((1 - target) * weight)[negative]])


def balanced(label: Mask, weight: Floats) -> Floats:
    """Weights under which both classes weigh the same, with the same mean as before."""
    positive, total = weight[label].sum(), weight.sum()
    return np.asarray(weight * np.where(label, total / (2 * positive), total / (2 * (total - positive))))


def drawn(rng: np.random.Generator, chance: Floats, number: int, again: bool = False) -> Indices:
    """So many rows, each with its own chance; equal chances are drawn without the cost of unequal ones."""
    possible = np.flatnonzero(chance > 0)
    weights = chance[possible]
    equal = len(weights) and weights.min() == weights.max()
    return rng.choice(possible, number, replace=again, p=None if equal else weights / weights.sum())


def centre_and_scale(rows: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of every column over what is not missing; a constant or empty column gets 0 and 1."""
    with np.errstate(invalid="ignore"):
        there = ~np.isnan(rows)
        number = np.maximum(there.sum(0), 1)
        centre = np.where(there, rows, 0.0).sum(0, dtype=np.float64) / number
        spread = np.sqrt(np.where(there, (rows - centre) ** 2, 0.0).sum(0) / number)
    return centre, np.where(spread > 1e-9 * np.maximum(np.abs(centre), 1e-9), spread, 1.0)


def standardised(rows: Floats, centre: Floats, scale: Floats) -> Floats:
    return np.nan_to_num((rows - centre) / scale, nan=0.0)


def bumps(rows: Floats, landmarks: Floats, width: float) -> Floats:
    """exp(-width * squared distance) of every row to every landmark."""
    apart = (rows * rows).sum(1)[:, None] + (landmarks * landmarks).sum(1) - 2 * rows @ landmarks.T
    return np.asarray(np.exp(-width * np.maximum(apart, 0.0)))


def as_float32(rows: Rows) -> Rows:
    """What scikit-learn's trees work on; done once, not once per tree."""
    return rows.astype(np.float32) if is_sparse_matrix(rows) else np.ascontiguousarray(rows, dtype=np.float32)


def _in_steps(rows: Floats, target: Floats, steps: int) -> Floats:
    """Every value as the nearest of so many of its column: a tree of these is one of the values, and ranks no worse.

    Single trees sort values at every node, which takes up to half the time where many are alike; a weighted boosting
    needs twenty times as long to find bins of its own. Half of the values are of positives: rare ones may lie so close
    together that all others would see them as one."""
    found, kinds = np.array(rows), [np.flatnonzero(kind) for kind in (target > 0.5, target <= 0.5)]
    kinds = [kind[:: len(kind) // ROWS_FOR_STEPS + 1] for kind in kinds]
    for place, column in enumerate(rows.T):
        known = [column[kind][~np.isnan(column[kind])] for kind in kinds]
        if len(np.unique(np.concatenate(known))) > steps:
            ranks = np.linspace(0, 1, steps // 2)
            there = np.unique(np.concatenate([np.quantile(one, ranks, method="nearest") for one in known if len(one)]))
            nearest = there[np.searchsorted((there[1:] + there[:-1]) / 2, column)]
            found[:, place] = np.where(np.isnan(column), np.nan, nearest)
    return found


def tree_share(tree: Any, rounded: Rows) -> Floats:
    """The share of positives in the leaf of every row, past scikit-learn's checks, which cost more than the walk."""
    value = tree.tree_.predict(rounded)
    if value.ndim == 3:
        value = value[:, 0, :]
    return np.asarray(value[:, 1] / np.maximum(value.sum(1), 1e-300), dtype=np.float64)


def logistic_line(rows: Rows, label: Mask, weight: Floats, **how: Any) -> tuple[Floats, float]:
    """Weights and bias of a logistic regression; that it needs more iterations is not the user's to mend."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(**how).fit(rows, label, sample_weight=weight)
    return np.asarray(model.coef_, dtype=np.float64)[0], float(model.intercept_[0])
