"""How much every row looks like a labelled one, judged only by classifiers that did not see the row."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from splitpu.data.pudata import Indices, PUData
from splitpu.errors import InputError
from splitpu.prior.learners import Flags, Floats, KernelLogistic, Learner, RandomTrees
from splitpu.prior.tedn import APART, CROSS_FITTINGS, CrossFitted, alternate, mean_scores
from splitpu.seeds import checked_seed, sklearn_seed

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer

ScoreKind = Literal["auto", "classical", "network"]

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
        among the unlabelled rows it reaches 1 - s / 2.
        """
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

    The observer sees the epochs of the networks.
    """
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
        found = classical_scores(
            features, data.labelled[rows], images=data.kind != "vectors", seed=seed, learned=np.isin(rows, learned)
        )
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
) -> CrossFitted:
    """A kernel method and trees, averaged: each does well where the other does not.

    Rows that are not `learned` from are only judged; without it all are both.
    """
    sharpness = 3.0 if images else 1.0  # neighbouring images share most of their pixels
    learned = np.ones_like(labelled) if learned is None else learned
    found = []
    for number in range(cross_fittings):
        own_seed = seed + APART * number
        learners: list[Learner] = [
            KernelLogistic.over(features, labelled, sharpness=sharpness, seed=own_seed),
            RandomTrees(features, labelled),
        ]
        found.append(alternate(labelled, learners, own_seed, learned))
    return mean_scores(found)


def described(data: PUData, rows: Indices, seed: int) -> Floats:
    """Rows as numbers of comparable size: standardised features, or the principal components of images.

    No label is looked at, so the held-out rows may take part.
    """
    from sklearn.decomposition import PCA

    if data.kind == "volumes":  # all voxels of many patients would fill the memory; their mean slice says enough
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
    """Why there are too few rows to estimate the prior from; nothing if there are enough.

    >>> too_few_rows(PUData.from_arrays(np.zeros((12, 1)), [0] + 11 * [1])).partition(":")[0]
    '1 unlabelled row is too few to estimate the prior from'
    """
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
    parts = []
    for rows, most in ((data.positives, MOST_POSITIVES), (data.unlabelled, MOST_UNLABELLED)):
        parts.append(rows if len(rows) <= most else rng.choice(rows, most, replace=False))
    return np.sort(np.concatenate(parts))


def judged_rows(data: PUData, learned: Indices, seed: int) -> Indices:
    """Those rows and more unlabelled ones, which cost next to nothing once there is a classifier."""
    others = np.setdiff1d(data.unlabelled, learned)
    room = min(MOST_JUDGED, MOST_JUDGED_VALUES // int(np.prod(data.features.shape[1:]))) - len(learned)
    if len(others) > room:
        others = np.random.default_rng([checked_seed(seed), 1]).choice(others, max(room, 0), replace=False)
    return np.sort(np.concatenate([learned, others]))
