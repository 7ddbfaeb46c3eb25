"""Labels that are not a random draw of the positives: a test that seldom cries wolf, a generator, and a remedy.

P and U alone cannot show every preference of whoever labelled: positives unlike any labelled one look like negatives,
and labels that go to the clearest positives look just like fewer positives. What can be noticed is that labelled and
unlabelled rows differ where hardly anything but positives is left. There is the catch: where classes overlap,
negatives are left there too, and they differ from positives of course. So the prior says how many they are, and only
what they cannot account for is an alarm.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.errors import InputError
from splitpu.evaluation.metrics import auc_against_unlabelled
from splitpu.prior.from_scores import ScoredPrior, checked_rows, prior_from_scores
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_seed

Preference = Literal["random", "clear", "border", "feature"]

FEWEST_ROWS = 8  # of each kind among the likely positives, to say anything
LIKELY = 0.6  # the part of the labelled rows that counts as clearly positive
HARDLY_BENDING, BENDING = 1.0, 0.5  # penalties of the two lines, in units of the variance of a feature
LIKELY_IN_GROUP = 0.9  # the same where U falls into two groups
FAR_APART, NEARLY_ALL = 3.2, 0.9  # standard deviations between the groups; likely positives in the upper one
SURE_SIGMAS, CLEAR_AUC = 3.0, 0.6
MOST_ROWS = 20_000  # of which the groups are found
NEGATIVES_SHOW = 0.4  # how far above 1/2 the AUC comes if all unlabelled rows there are negatives
CLEAR_SIGMAS = 1.0  # above that; random labels get there in 5 of 114 draws (benchmarks/desk_prior.py)
MOST_COLUMNS, COMPONENTS = 300, 100
_PENALTY, _ROUNDS = 1.0, 10
_LEAST = 1e-3


@dataclass(frozen=True)
class LabelTest:
    """Whether labelled and unlabelled rows differ where both should be positive, by more than negatives explain."""

    doubtful: bool
    auc: float | None  # of labelled against unlabelled rows there; None = too few rows to say
    expected: float | None  # what the negatives among them account for
    error: float | None
    sentence: str


class Propensities(NamedTuple):
    """What is thought of every row if labels depend on its features."""

    positive: Floats  # probability of being positive, from the features alone
    labelled: Floats  # probability of being labelled, if positive
    weights: Floats  # how much a row counts as positive when a classifier is trained; as a negative 1 - this


def random_labels_test(
    features: Any,
    scores: npt.ArrayLike,
    labelled: npt.ArrayLike,
    *,
    prior: ScoredPrior | None = None,
    scenario: Scenario = "single-training-set",
) -> LabelTest:
    """Test whether the labelled rows may be a random draw of the positives, as far as that can be told.

    A line that is held back finds the rows that are most clearly positive, another one is trained there to tell
    labelled rows from the others; both judge a row without having seen it. How many of the others are negatives is
    told by the prior, and where U falls into two groups that lie far apart, by these as well. `scores` are
    out-of-fold scores of P against U, from which the prior is told if it is not given (what `prior_from_scores`
    found). Silence is no proof: where classes overlap hardly any preference can be noticed.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(2000) < 600
    >>> rows = rng.normal(size=(2000, 4)) + np.where(truth, 1.5, -1.5)[:, None] * [1, 1, 1, 0]
    >>> at_random = random_labels_test(rows, rows[:, :3].sum(1), np.arange(2000) < 200)
    >>> known = preferred_labels(rows, truth, 200, preference="feature", column=3)
    >>> at_random.doubtful, random_labels_test(rows, rows[:, :3].sum(1) + 0.5 * rows[:, 3], known).doubtful
    (False, True)
    """
    values, known = checked_rows(scores, labelled)
    rows = _described(features, len(known))
    share = prior if prior is not None else prior_from_scores(values, known, scenario=scenario)
    line = held_out_line(rows, known, HARDLY_BENDING)
    first = _look(rows, known, line >= np.quantile(line[known], 1 - LIKELY))
    looks = []
    if first.tells:
        per_share = (~known).sum() / known.sum() * first.labelled / first.unlabelled
        low, high, best = (
            float(min(one * per_share, 1.0)) for one in (*share.among_unlabelled_interval, share.among_unlabelled)
        )
        looks.append(first.compared(best, NEGATIVES_SHOW * (high - low) / 3.92, CLEAR_SIGMAS))
    wider = line >= np.quantile(line[known], 1 - LIKELY_IN_GROUP)
    positive = _share_by_groups(line, known, wider)
    if positive is not None and (second := _look(rows, known, wider)).tells:
        found = second.compared(positive, 0.0, SURE_SIGMAS)
        looks.append(found._replace(doubtful=found.doubtful and second.auc > CLEAR_AUC))
    if not looks:
        return LabelTest(
            False,
            None,
            None,
            None,
            f"whether the labelled positives are a random draw of all positives cannot be told: only {first.labelled} "
            f"labelled and {first.unlabelled} unlabelled rows are clearly positive, {FEWEST_ROWS} of each are needed",
        )
    auc, expected, error, doubtful = next((look for look in looks if look.doubtful), looks[0])
    if doubtful:
        sentence = (
            f"the labelled positives do not look like a random draw of the positives: a line tells them from "
            f"unlabelled rows that are just as clearly positive (AUC {auc:.2f}, up to {expected:.2f} is expected), so "
            "the prior and all figures may be off; label positives drawn at random, or at least some of every kind"
        )
    else:
        sentence = (
            f"nothing speaks against the labelled positives being a random draw of all positives (AUC {auc:.2f} "
            f"against unlabelled rows that are as clearly positive, up to {expected:.2f} is expected); kinds of "
            "positives of which hardly any is labelled look like negatives and cannot be noticed"
        )
    return LabelTest(bool(doubtful), auc, expected, error, sentence)


class _Compared(NamedTuple):
    auc: float
    expected: float
    error: float
    doubtful: bool


class _Look(NamedTuple):
    """How many rows of both kinds there are among the likely positives, and how well a line tells them apart there."""

    labelled: int
    unlabelled: int
    auc: float = 0.5
    error: float = 1.0

    @property
    def tells(self) -> bool:
        return min(self.labelled, self.unlabelled) >= FEWEST_ROWS

    def compared(self, positive: float, doubt: float, sigmas: float) -> _Compared:
        """With what the negatives account for, if this part of the unlabelled rows there is positive."""
        expected, error = 0.5 + NEGATIVES_SHOW * (1 - positive), float(np.hypot(self.error, doubt))
        return _Compared(self.auc, expected, error, bool(self.auc - expected > sigmas * error))


def _look(rows: Floats, labelled: Flags, likely: Flags) -> _Look:
    counts = int((likely & labelled).sum()), int((likely & ~labelled).sum())
    if min(counts) < FEWEST_ROWS:
        return _Look(*counts)
    told, known = held_out_line(rows[likely], labelled[likely], BENDING), labelled[likely]
    return _Look(*counts, *auc_against_unlabelled(told[known], told[~known]))


def _share_by_groups(line: Floats, labelled: Flags, likely: Flags) -> float | None:
    """The part of the likely positives in U that belongs to the upper one of two groups which lie far apart in U.

    Labels play no part in it, so that a preference cannot spoil it as it spoils the prior. Nothing where U does not
    fall into two such groups, or where the likely positives are not nearly all in the upper one.
    """
    from sklearn.mixture import GaussianMixture

    pool = line[~labelled]
    if (likely & ~labelled).sum() < FEWEST_ROWS or pool.std() == 0:
        return None
    if len(pool) > MOST_ROWS:
        pool = np.random.default_rng(0).choice(pool, MOST_ROWS, replace=False)
    groups = GaussianMixture(2, random_state=0).fit(pool[:, None])
    upper = int(groups.means_[:, 0].argmax())
    apart = float(np.ptp(groups.means_) / np.sqrt(groups.covariances_.mean()))
    positive = float(groups.predict_proba(line[likely & ~labelled][:, None])[:, upper].mean())
    return positive if apart > FAR_APART and positive > NEARLY_ALL else None


def held_out_line(rows: Floats, labelled: Flags, penalty: float) -> Floats:
    """Least squares on the labels with both kinds weighed alike; every row is scored by the line without it.

    One matrix is inverted, the rest is arithmetic: a row that is left out moves the line by what its leverage says.
    """
    weight = np.where(labelled, 0.5 / max(labelled.sum(), 1), 0.5 / max((~labelled).sum(), 1))
    centred = np.column_stack([rows - weight @ rows, np.ones(len(rows))])
    held_back = np.append(np.full(rows.shape[1], penalty), 0.0)
    inverse = np.linalg.pinv((centred * weight[:, None]).T @ centred + np.diag(held_back))
    target = np.where(labelled, 1.0, -1.0)
    fitted = centred @ (inverse @ (centred.T @ (weight * target)))
    leverage = weight * np.einsum("ij,jk,ik->i", centred, inverse, centred, optimize=True)
    left_out: Floats = (fitted - leverage * target) / np.maximum(1 - leverage, 1e-6)
    return left_out


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


def _described(features: Any, rows: int) -> Floats:
    """Standardised columns; of very many, or of a sparse table, the main components."""
    wide = hasattr(features, "tocsr")
    table = features.tocsr() if wide else np.asarray(features, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != rows:
        raise InputError(f"features of shape {table.shape} do not fit {rows} scores: give a table with a row for each")
    if wide or table.shape[1] > MOST_COLUMNS:
        from sklearn.decomposition import TruncatedSVD

        table = TruncatedSVD(max(1, min(COMPONENTS, table.shape[1] - 1)), random_state=0).fit_transform(table)
    return _standardised(table)


def _standardised(rows: Floats) -> Floats:
    spread = rows.std(0)
    scaled: Floats = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled


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
