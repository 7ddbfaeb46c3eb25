"""`PUData`: rows, which of them are labelled, by any convention, and what others stand for; what a prior has to be."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.features import Channels, canonical_features
from splitpu.data.preprocessing import Kind, kind_of
from splitpu.data.sparse_rows import is_sparse
from splitpu.errors import InputError
from splitpu.types import Array, Floats, Indices, Mask
from splitpu.utils.arrays import readable_tensor, row_slices
from splitpu.utils.text import listed, row_name

Values = npt.NDArray[Any]

ACCEPTED = "1 = positive with 0 or with -1 for the rest, or True / False"
_WANTED = "give the share of positives in the population, between 0 and 1"
_DRAWN_SIGMAS = 3.0  # by so many standard deviations the positives of a draw may be more than the prior says
FEWEST_POSITIVES = 2


def labelled_mask(labels: npt.ArrayLike, *, name: str = "s", positive: object = None, rows: int | None = None) -> Mask:
    """Which rows are labelled positive (True) and which unlabelled (False), from any of the usual conventions.

    `positive` names the value that means "labelled positive" where the labels are two other values.
    Both kinds of row must occur, because PU learning needs both. `rows` is how many there are to be labelled."""
    values = _one_dimensional(labels, name)
    if rows is not None and len(values) != rows:
        raise InputError(f"{name} has {len(values)} entries but X has {rows} rows: give one entry per row")
    mask = _mask(values, name, positive)
    if not mask.any():
        found = listed(_distinct(values), repr)
        raise InputError(f"{name} marks no row as labelled positive (found {found}): label at least two rows")
    if mask.all():
        raise InputError(f"{name} marks all {len(mask)} rows as labelled positive: add the unlabelled rows, marked 0")
    return mask


def is_convention(values: Values) -> bool:
    """Whether labels need no explanation: 1 with 0 or with -1."""
    distinct = {*_distinct(values)}
    return values.dtype.kind in "biuf" and (distinct <= {0, 1} or distinct <= {1, -1})


def binary_truth(labels: npt.ArrayLike, name: str = "y", *, positive: object = None) -> Mask:
    """True labels (True = positive) in the same conventions; one of the two classes may be absent."""
    return _mask(_one_dimensional(labels, name), name, positive)


def _one_dimensional(labels: npt.ArrayLike, name: str) -> Values:
    try:
        values = np.asarray(readable_tensor(labels))
        if values.dtype == object:  # a data frame column, say: let numpy find the type of what is inside
            values = np.asarray(values.tolist())
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not an array of labels ({error}): give one label per row") from error
    if values.ndim != 1:
        raise InputError(f"{name} must have one axis with one label per row, but its shape is {values.shape}")
    if len(values) == 0:
        raise InputError(f"{name} is empty: give one label per row")
    return values


def _mask(values: Values, name: str, positive: object) -> Mask:
    distinct = _distinct(values)
    held = f"{name} holds the values {listed(distinct, repr)}"
    if positive is None:
        if is_convention(values):
            return np.asarray(values == 1, dtype=np.bool_)
        others = "for two other values say which one is positive with positive=..."
        raise InputError(f"{held}, but labels must be {ACCEPTED}; {others}")
    if len(distinct) > 2:
        raise InputError(f"{held}, but with positive={positive!r} it may hold only two: merge the others into one")
    if positive not in distinct:
        raise InputError(f"{held}, none of which is positive={positive!r}")
    return np.array([value == positive for value in values.tolist()], dtype=np.bool_)


def _distinct(values: Values) -> list[Any]:
    try:
        found: list[Any] = np.unique(values).tolist()
    except TypeError:  # things that have no order
        found = list({repr(value): value for value in values.tolist()}.values())
    return found


def check_share(prior: object) -> float:
    """The prior as a float, if it is a share at all."""
    if isinstance(prior, np.ndarray) and prior.ndim == 0:
        prior = prior.item()
    if isinstance(prior, bool | np.bool_) or not isinstance(prior, Real):
        if hasattr(prior, "interval"):  # an estimate, which classifiers do take
            raise InputError(f"prior is a {type(prior).__name__}, not a number: give its value (prior=estimate.value)")
        raise InputError(f"prior={prior!r} is not a number: {_WANTED}")
    value = float(prior)
    if not 0 < value < 1:  # also refuses NaN
        raise InputError(f"prior={value:g} is not a share: {_WANTED}")
    return value


def check_interval(interval: Any, prior: float | None) -> tuple[float, float]:
    """The ends of the interval of a prior as floats, if it is a range of shares that holds the prior."""
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError):
        raise InputError(f"prior_interval={interval!r} is not a range: give its two ends, such as (0.3, 0.5)") from None
    if not 0 <= low <= high <= 1:  # also refuses NaN
        raise InputError(f"prior_interval=({low:g}, {high:g}) is not a range of shares: give two, the lower end first")
    if prior is not None and not low <= prior <= high:
        wanted = "give the range that the prior itself was estimated with"
        raise InputError(f"prior_interval=({low:g}, {high:g}) does not hold the prior, {prior:g}: {wanted}")
    return low, high


def check_scenario(scenario: object) -> None:
    """Refuse what is no sampling scenario."""
    if scenario not in get_args(Scenario):
        raise InputError(f"scenario={scenario!r} is unknown: choose {' or '.join(map(repr, get_args(Scenario)))}")


def check_prior_of_sample(prior: object, positives: int, unlabelled: int, scenario: Scenario) -> float:
    """The prior as a float, if rows like these can have come with it; by chance they may hold a few positives more."""
    check_scenario(scenario)
    value, rows = check_share(prior), positives + unlabelled
    most = value * rows + _DRAWN_SIGMAS * np.sqrt(rows * value * (1 - value))
    if scenario == "single-training-set" and positives > most:
        wrong = f"more than a prior of {value:.3g} makes positive, so the rows are not a sample of the population"
        apart = "use scenario='case-control' if the labelled rows were collected apart"
        advice = f"give fewer labelled or more unlabelled rows, or {apart}"
        raise InputError(f"{positives} of the {rows} rows are labelled, {wrong}: {advice}")
    return value


def missing_prior(name: str) -> InputError:
    """The error for a method that is to be trained without the prior it needs."""
    ways = "give it, have it estimated (prior='auto'), or choose a method that does without, such as 'vpu'"
    return InputError(f"method '{name}' needs the prior, the share of positives in the population: {ways}")


@dataclass(frozen=True, eq=False)
class PUData:
    """Checked training data; make one with `PUData.from_arrays`."""

    features: Array  # canonical, see canonical_features; sparse rows go by this type, too
    labelled: Mask
    scenario: Scenario
    names: tuple[str, ...] | None = None  # of the rows: file names, say
    truth: Mask | None = None  # true labels of the training rows: reported, learned only by the `supervised` oracle
    aside: Mask | None = None  # rows that are scored like all others but never trained on; P and U do without them
    sample_weight: Floats | None = None  # how much each row counts; for learners only
    groups: Array | None = None  # rows of one patient, site or author, which no fold may cut apart; for learners only
    columns: Sequence[str] = ()  # of a table: which one every number of a row comes from
    answers: Array | None = None  # of unlabelled rows somebody looked at: 1 = positive, -1 = negative, 0 = not asked

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
            few = f"s marks only {labelled.sum()} row as labelled positive, fewer positives than a batch can use"
            raise InputError(f"{few}: label at least {FEWEST_POSITIVES}")
        known = None if truth is None else binary_truth(truth, "truth")
        if known is not None:
            _same_length("truth", known, "X", features)
            negative = int((labelled & ~known).sum())
            if 2 * negative > labelled.sum():  # a few wrong labels are the user's business
                wrong = f"truth says that {negative} of the {labelled.sum()} rows labelled positive are negative"
                maybe = "it may be the wrong way round, or belong to other rows; 1 has to mean positive in both"
                raise InputError(f"{wrong}: {maybe}")
        if names is not None:
            names = tuple(row_name(name) for name in names)
            _same_length("names", names, "X", features)
        return cls(features, labelled, scenario, names, known)

    def counted(self, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None) -> "PUData":
        """The same rows, each with a weight, or in groups that no fold cuts apart.

        >>> data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9]], [0, 0, 1, 1])
        >>> data.counted(groups=["a", "a", "b", "b"]).groups.tolist()
        ['a', 'a', 'b', 'b']
        """
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight is not None:
            _same_length("sample_weight", weight, "X", self.features)
            if weight.ndim != 1 or not np.isfinite(weight).all() or (weight < 0).any():
                raise InputError("sample_weight holds negative or missing numbers, or is no list: give one per row")
            if not (weight[self.labelled].any() and weight[~self.labelled].any()):
                raise InputError("sample_weight is 0 for all labelled or for all unlabelled rows: give some a weight")
        belongs = None if groups is None else np.asarray(groups)
        if belongs is not None:
            _same_length("groups", belongs, "X", self.features)
        return replace(self, sample_weight=weight, groups=belongs)

    def answered(self, negatives: npt.ArrayLike | None = None, confirmed: npt.ArrayLike | None = None) -> "PUData":
        """The same rows, of which some unlabelled ones are known to be negative, or were found to be positive.

        They are learned with these labels. But whoever looked at them chose them, so they are no random draw of their
        class: for the prior, thresholds and all figures they stay what they were, unlabelled rows of the population.

        >>> data = PUData.from_arrays([[0.1], [0.2], [0.8], [0.9]], [0, 0, 1, 1])
        >>> data.answered(negatives=[1, 0, 0, 0]).answers.tolist(), data.unlabelled.tolist()
        ([-1, 0, 0, 0], [0, 1])
        """
        known = np.zeros(len(self), dtype=np.int8) if self.answers is None else self.answers.copy()
        for name, sign, given in (("negatives", -1, negatives), ("confirmed", 1, confirmed)):
            if given is None:
                continue
            mask = binary_truth(given, name)
            _same_length(name, mask, "X", self.features)
            both = int((mask & (self.labelled | (known == -sign))).sum())
            if both:
                twice = f"{name} names {both} rows that are labelled positive or named on the other side already"
                raise InputError(f"{twice}: leave their label 0 and name them once")
            known[mask] = sign
        if len(self.positives) and not (known[self.unlabelled] == 0).any():
            raise InputError("every unlabelled row has an answer, so nothing is left to find: train on all labels")
        return replace(self, answers=known if known.any() else None)

    def features_of(self, columns: str) -> tuple[int, ...]:
        """Which numbers of a row come from some columns, by their names or, where they have none, their numbers."""
        there = self.columns or tuple(map(str, range(int(np.prod(self.features.shape[1:])))))
        wanted = {columns} if columns in there else {word.strip() for word in columns.split(",")} - {""}
        if not wanted or wanted - {*there} or not {*there} - wanted:
            known = f"some, not all, of {listed(list(dict.fromkeys(there)), repr)}"
            raise InputError(f"labelled_by={columns!r} does not say by which columns labels were given: name {known}")
        return tuple(number for number, name in enumerate(there) if name in wanted)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def kind(self) -> Kind:
        return kind_of(self.features)

    @property
    def is_sparse(self) -> bool:
        return is_sparse(self.features)

    @cached_property
    def positives(self) -> Indices:
        """Row numbers of the labelled positives, P."""
        return self.taught[self.labelled[self.taught]]

    @cached_property
    def unlabelled(self) -> Indices:
        """Row numbers of the unlabelled rows, U."""
        return self.taught[~self.labelled[self.taught]]

    @cached_property
    def known_positives(self) -> Indices:
        """Row numbers that are learned as positive: P, and unlabelled rows that were found to be."""
        return self.positives if self.answers is None else self.taught[(self.labels_known > 0)[self.taught]]

    @cached_property
    def known_negatives(self) -> Indices:
        """Row numbers of the unlabelled rows that are known to be negative, N."""
        return self.taught[(self.labels_known < 0)[self.taught]]

    @cached_property
    def labels_known(self) -> Array:
        """What a row is learned as: 1 = positive, -1 = negative, 0 = not known."""
        found: Array = self.labelled.astype(np.int8)
        return found if self.answers is None else found + self.answers

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
        return float(self.labelled.mean())

    def fingerprint(self) -> str:
        """A checksum of all that training depends on, so that a resumed run can tell that its data changed."""
        return self._fingerprint

    def features_fingerprint(self) -> str:
        """A checksum of the rows, and of which are set aside: the same whichever of them are labelled."""
        return _digest_of_rows(self.features, "", self.aside).hexdigest()

    @cached_property
    def _fingerprint(self) -> str:
        digest = _digest_of_rows(self.features, f"{self.scenario} ", self.aside)
        groups = None if self.groups is None else np.frombuffer(repr(self.groups.tolist()).encode(), np.uint8)
        for part in (self.labelled, self.sample_weight, groups, self.answers):
            if part is not None:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


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
        return _digest_of_rows(self.features, "", self.truth).hexdigest()


def _digest_of_rows(features: Array, beginning: str, mask: Mask | None) -> "hashlib._Hash":
    digest = hashlib.sha256(f"{beginning}{features.dtype.str} {features.shape}".encode())
    if is_sparse(features):
        for part in features.buffers():
            digest.update(part.data)
    else:
        for rows in row_slices(features):
            digest.update(np.ascontiguousarray(features[rows]).data)
    if mask is not None:
        digest.update(np.packbits(mask).tobytes())
    return digest


def check_pudata(data: object) -> None:
    """Refuse bare arrays, which classifiers take, where rows and labels have to come together."""
    if not isinstance(data, PUData):
        kind = type(data).__name__
        raise InputError(f"data is a {kind}: give rows and labels together, as PUData.from_arrays(X, s) makes them")


def check_prior(prior: object, data: PUData) -> float:
    """The prior as a float, if these data can have it.

    In a single training set the labelled rows are themselves part of the population, so a prior at or below their share
    would leave no positive among the unlabelled rows and turn the PU risk upside down."""
    value = check_share(prior)
    if data.scenario == "single-training-set" and value <= data.labelled_share:
        expected = f"prior={value:g} expects {value * len(data):.4g} positives among the {len(data)} rows"
        known = f"{len(data.positives)} are already labelled, which leaves none to find"
        apart = "use scenario='case-control' if the labelled rows were collected apart from the unlabelled ones"
        raise InputError(f"{expected}, but {known}: raise the prior, or {apart}")
    return value


def _same_length(name: str, values: Sequence[Any] | Array, other: str, rows: Array) -> None:
    if len(values) != len(rows):
        raise InputError(f"{name} has {len(values)} entries but {other} has {len(rows)} rows: give one entry per row")
