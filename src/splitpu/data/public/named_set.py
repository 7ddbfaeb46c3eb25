"""`NamedSet`: a fully labelled public set, from which PU data with a known answer can be drawn."""

import tomllib
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import HeldOut, PUData
from splitpu.errors import InputError
from splitpu.types import Array, Mask
from splitpu.utils.arrays import checked_seed

SETS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class NamedSet:
    """All rows with their true labels, split into training and test rows."""

    name: str
    description: str
    positive_meaning: str  # what the positive class is, in words
    features_train: Array
    truth_train: Mask
    features_test: Array
    truth_test: Mask
    feature_names: tuple[str, ...] | None = None  # of the columns, for vectors
    classes_train: npt.NDArray[np.int64] | None = None  # the original class numbers
    classes_test: npt.NDArray[np.int64] | None = None


def split_by_classes(features: Array, classes: Array, split_seed: int) -> dict[str, Array]:
    """A 75/25 split with the same class shares in both parts, for sets that have no official one."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(np.arange(len(classes)), test_size=0.25, stratify=classes, random_state=split_seed)
    train, test = map(np.sort, parts)
    return {"x_train": features[train], "y_train": classes[train], "x_test": features[test], "y_test": classes[test]}


def true_prior(named: NamedSet) -> float:
    """Share of positives among the training rows: what a user would have to know or estimate."""
    return float(named.truth_train.mean())


def make_pu(
    named: NamedSet, positives: int, seed: int, scenario: Scenario = "single-training-set", column: int | None = None
) -> tuple[PUData, HeldOut]:
    """Hide all training labels but those of `positives` positive rows, drawn uniformly at random.

    Or, with the number of a `column`, with chances in proportion to sigmoid(4 v), v being that column,
    standardised over the positives: labels that are no random draw, to try out what becomes of methods.

    In both scenarios every training row occurs once. In `case-control`, too, the labelled rows are taken out of the
    unlabelled ones, which are the rest of the training rows: their share of positives is therefore below `true_prior`,
    by as much as the drawn rows made up."""
    if not isinstance(named, NamedSet):
        instead = "give what load_named returns, or make data of your own with PUData.from_arrays(X, s)"
        raise InputError(f"{named!r:.40} is not a named set: {instead}")
    available = np.flatnonzero(named.truth_train)
    if isinstance(positives, bool) or not isinstance(positives, Integral):
        raise InputError(f"positives={positives!r} is not a whole number: say how many positive rows to label")
    if positives < 1:
        raise InputError(f"positives={positives} leaves nothing to learn from: label at least two")
    if positives > len(available):
        raise InputError(f"positives={positives} is too many: {named.name} has only {len(available)} positive rows")
    labelled = np.zeros(len(named.truth_train), dtype=np.bool_)
    draw = np.random.default_rng(checked_seed(seed))
    chances = None
    if column is not None:
        rows = named.features_train.reshape(len(labelled), -1)
        if column not in range(rows.shape[1]):
            raise InputError(f"column={column!r} is none of {named.name}: give a number from 0 to {rows.shape[1] - 1}")
        values = rows[available, column].astype(np.float64)
        chances = 1 / (1 + np.exp(-4 * (values - values.mean()) / max(values.std(), 1e-9)))
        chances /= chances.sum()
    labelled[draw.choice(available, size=positives, replace=False, p=chances)] = True
    truth = named.truth_train
    data = PUData.from_arrays(named.features_train, labelled, scenario=scenario, truth=truth, channels="last")
    return data, HeldOut.from_arrays(named.features_test, named.truth_test, channels="last")
