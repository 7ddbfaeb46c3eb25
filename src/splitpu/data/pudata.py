"""`PUData`: the training rows, which of them are labelled, and what the unlabelled ones stand for."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.chunks import Array, row_slices
from splitpu.data.features import Channels, canonical_features
from splitpu.data.preprocess import Kind, kind_of
from splitpu.data.priors import check_scenario, check_share
from splitpu.data.row_names import row_name
from splitpu.errors import InputError
from splitpu.labels import Mask, binary_truth, labelled_mask

__all__ = ["Channels", "HeldOut", "PUData", "canonical_features", "check_prior"]

Indices = npt.NDArray[np.int64]

FEWEST_POSITIVES = 2


@dataclass(frozen=True, eq=False)
class PUData:
    """Checked training data; make one with `PUData.from_arrays`."""

    features: Array  # canonical, see canonical_features
    labelled: Mask
    scenario: Scenario
    names: tuple[str, ...] | None = None  # of the rows: file names, say
    truth: Mask | None = None  # true labels of the training rows: reported, learned only by the `supervised` oracle
    aside: Mask | None = None  # rows that are scored like all others but never trained on; P and U do without them

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        s: npt.ArrayLike,
        *,
        scenario: Scenario = "single-training-set",
        names: Sequence[str] | None = None,
        truth: npt.ArrayLike | None = None,
        positive: object = None,
        channels: Channels = "auto",
    ) -> "PUData":
        """Check and convert what the user has, so that everything after this can rely on it.

        >>> data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9]], [0, 0, 1, 1])
        >>> data.positives.tolist(), data.labelled_share
        ([2, 3], 0.5)
        """
        check_scenario(scenario)
        features = canonical_features(X, "X", channels=channels)
        labelled = labelled_mask(s, name="s", positive=positive, rows=len(features))
        if labelled.sum() < FEWEST_POSITIVES:
            raise InputError(
                f"s marks only {labelled.sum()} row as labelled positive, fewer positives than a batch can use: "
                f"label at least {FEWEST_POSITIVES}"
            )
        known = None if truth is None else binary_truth(truth, "truth")
        if known is not None:
            _same_length("truth", known, "X", features)
            _refuse_truth_turned_round(known, labelled)
        if names is not None:
            names = tuple(row_name(name) for name in names)
            _same_length("names", names, "X", features)
        return cls(features, labelled, scenario, names, known)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def kind(self) -> Kind:
        """Vectors, images or volumes."""
        return kind_of(self.features)

    @cached_property
    def positives(self) -> Indices:
        """Row numbers of the labelled positives, P."""
        return self.taught[self.labelled[self.taught]]

    @cached_property
    def unlabelled(self) -> Indices:
        """Row numbers of the unlabelled rows, U."""
        return self.taught[~self.labelled[self.taught]]

    @cached_property
    def population(self) -> Indices:
        """Row numbers that stand for the population the prior is about: P and U, or U alone if P was drawn apart."""
        return self.taught if self.scenario == "single-training-set" else self.unlabelled

    @cached_property
    def taught(self) -> Indices:
        """Row numbers that may be trained on: all of them, but those set aside."""
        rows = np.arange(len(self), dtype=np.int64)
        return rows if self.aside is None else rows[~self.aside]

    @property
    def labelled_share(self) -> float:
        """Share of the rows that are labelled."""
        return float(self.labelled.mean())

    def fingerprint(self) -> str:
        """A checksum of all that training depends on, so that a resumed run can tell that its data changed."""
        return self._fingerprint

    def features_fingerprint(self) -> str:
        """A checksum of the rows, and of which are set aside: the same whichever of them are labelled."""
        return self._digest_of_features("").hexdigest()

    @cached_property
    def _fingerprint(self) -> str:
        digest = self._digest_of_features(f"{self.scenario} ")
        digest.update(np.ascontiguousarray(self.labelled).data)
        return digest.hexdigest()

    def _digest_of_features(self, beginning: str) -> "hashlib._Hash":
        digest = _digest_of_rows(self.features, beginning)
        if self.aside is not None:
            digest.update(np.packbits(self.aside).tobytes())
        return digest


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows with true labels that no training ever sees."""

    features: Array
    truth: Mask

    @classmethod
    def from_arrays(cls, X_test: Any, y_test: npt.ArrayLike, *, channels: Channels = "auto") -> "HeldOut":
        """Check and convert, in the same way as the training rows."""
        features = canonical_features(X_test, "X_test", channels=channels)
        truth = binary_truth(y_test, "y_test")
        _same_length("y_test", truth, "X_test", features)
        return cls(features, truth)

    def __len__(self) -> int:
        return len(self.features)

    def fingerprint(self) -> str:
        """A checksum of rows and labels, so that figures on other ones are not taken for figures on these."""
        digest = _digest_of_rows(self.features, "")
        digest.update(np.packbits(self.truth).tobytes())
        return digest.hexdigest()


def _digest_of_rows(features: Array, beginning: str) -> "hashlib._Hash":
    digest = hashlib.sha256(f"{beginning}{features.dtype.str} {features.shape}".encode())
    for rows in row_slices(features):
        digest.update(np.ascontiguousarray(features[rows]).data)
    return digest


def _refuse_truth_turned_round(truth: Mask, labelled: Mask) -> None:
    """A few labels may be wrong and are the user's business; if most are, it is the truth that is."""
    negative = int((labelled & ~truth).sum())
    if 2 * negative > labelled.sum():
        raise InputError(
            f"truth says that {negative} of the {labelled.sum()} rows labelled positive are negative: it may be the "
            "wrong way round, or belong to other rows; 1 has to mean positive in both"
        )


def check_pudata(data: object) -> None:
    """Refuse bare arrays, which classifiers take, where rows and labels have to come together."""
    if not isinstance(data, PUData):
        raise InputError(
            f"data is a {type(data).__name__}: give rows and labels together, as PUData.from_arrays(X, s) makes them"
        )


def check_prior(prior: object, data: PUData) -> float:
    """The prior as a float, if these data can have it.

    In a single training set the labelled rows are themselves part of the population, so a prior at or below their share
    would leave no positive among the unlabelled rows and turn the PU risk upside down.
    """
    value = check_share(prior)
    if data.scenario == "single-training-set" and value <= data.labelled_share:
        raise InputError(
            f"prior={value:g} expects {value * len(data):.4g} positives among the {len(data)} rows, but "
            f"{len(data.positives)} are already labelled, which leaves none to find: raise the prior, or use "
            "scenario='case-control' if the labelled rows were collected apart from the unlabelled ones"
        )
    return value


def _same_length(name: str, values: Sequence[Any] | Array, other: str, rows: Array) -> None:
    if len(values) != len(rows):
        raise InputError(f"{name} has {len(values)} entries but {other} has {len(rows)} rows: give one entry per row")
