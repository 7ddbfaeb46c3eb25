"""Are the labelled positives of a table a random draw of the positives? A test that seldom cries wolf.

Labelled and unlabelled rows should not differ where hardly anything but positives is left. Negatives that are left
there differ of course: the prior says how many they are, and only what they cannot account for is an alarm."""

from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.errors import InputError
from splitpu.evaluation.diagnostics import LabellingCheck, Look
from splitpu.prior.from_scores import ScoredPrior, checked_rows, prior_from_scores
from splitpu.types import Flags, Floats

FEWEST_ROWS = 8  # of each kind among the likely positives, to say anything
LIKELY = (0.6, 0.3)  # the parts of the labelled rows that count as clearly positive
HARDLY_BENDING, BENDING = 1.0, 0.5  # penalties of the two lines, in units of the variance of a feature
LIKELY_IN_GROUP = 0.9  # the same where U falls into two groups
FAR_APART, NEARLY_ALL = 3.2, 0.9  # standard deviations between the groups; likely positives in the upper one
SURE_SIGMAS, CLEAR_AUC = 3.0, 0.6
MOST_ROWS = 20_000  # of which the groups are found
NEGATIVES_SHOW = 0.4  # how far above 1/2 the AUC comes if all unlabelled rows there are negatives
LEAST_POSITIVE = 0.2  # of these rows; among fewer, how well negatives can be told decides, and that is not known
CLEAR_SIGMAS = 1.0  # above that; random labels got there in 2 of 57 draws of benchmarks/desk.py
MOST_COLUMNS, COMPONENTS = 300, 100
MANY_COLUMNS = 50  # of which lines that judge must not be those that chose the rows


def random_labels_test(
    features: Any,
    scores: npt.ArrayLike,
    labelled: npt.ArrayLike,
    *,
    prior: ScoredPrior | None = None,
    scenario: Scenario = "single-training-set",
) -> LabellingCheck:
    """Test whether the labelled rows may be a random draw of the positives, as far as that can be told.

    A line that is held back finds the rows that are most clearly positive, another one is trained there to tell
    labelled rows from the others; both judge a row without having seen it. How many of the others are negatives is
    told by the prior, and where U falls into two groups that lie far apart, by these as well. `scores` are
    out-of-fold scores of P against U, from which the prior is told if it is not given (what `prior_from_scores`
    found). Silence is no proof: where classes overlap hardly any preference can be noticed."""
    values, known = checked_rows(scores, labelled)
    rows = _described(features, len(known))
    share = prior if prior is not None else prior_from_scores(values, known, scenario=scenario)
    line = held_out_line(rows, known, HARDLY_BENDING)
    looks: list[tuple[bool, float, float, float]] = []

    def look_at(part: float) -> Look:
        if rows.shape[1] > MANY_COLUMNS:
            return _look_by_halves(rows, known, part)
        likely = line >= np.quantile(line[known], 1 - part)
        marks = known[likely]
        if min(marks.sum(), (~marks).sum()) < FEWEST_ROWS:
            return Look(int(marks.sum()), int((~marks).sum()))
        return Look.at(held_out_line(rows[likely], marks, BENDING), marks)

    def compare(look: Look, positive: float, doubt: float, sigmas: float, least: float = 0.0) -> None:
        """With what the negatives account for, if this part of the unlabelled rows there is positive."""
        expected, error = 0.5 + NEGATIVES_SHOW * (1 - positive), float(np.hypot(look.error, doubt))
        looks.append((look.auc - expected > sigmas * error and look.auc > least, look.auc, error, expected))

    clear = [look_at(part) for part in LIKELY]
    for look in (one for one in clear if min(one[:2]) >= FEWEST_ROWS):
        per_share = (~known).sum() / known.sum() * look.labelled / look.unlabelled
        low, high, best = (
            float(min(one * per_share, 1.0)) for one in (*share.among_unlabelled_interval, share.among_unlabelled)
        )
        if best >= LEAST_POSITIVE:
            compare(look, best, NEGATIVES_SHOW * (high - low) / 3.92, CLEAR_SIGMAS)
    wider = line >= np.quantile(line[known], 1 - LIKELY_IN_GROUP)
    positive = _share_by_groups(line, known, wider)
    if positive is not None and min((second := look_at(LIKELY_IN_GROUP))[:2]) >= FEWEST_ROWS:
        compare(second, positive, 0.0, SURE_SIGMAS, CLEAR_AUC)
    if not looks:
        return LabellingCheck.cannot_be_told(*clear[0][:2], f"are clearly positive, {FEWEST_ROWS}")
    return LabellingCheck.of(*next((one for one in looks if one[0]), looks[0]))


def _look_by_halves(rows: Floats, labelled: Flags, part: float) -> Look:
    """Half of the labels choose the likely positives, among which the other half is told from unlabelled rows; in turn.

    With many columns a labelled row that is chosen by the labels of the others is one that resembles them by chance,
    which a second line on the same labels finds again: random labels looked chosen (AUC 0.55 on embeddings)."""
    halves = np.array_split(np.random.default_rng(0).permutation(np.flatnonzero(labelled)), 2)
    looks = []
    for choosing, judged in (halves, halves[::-1]):
        marks, asked = (np.isin(np.arange(len(rows)), some) for some in (choosing, judged))
        line = held_out_line(rows, marks, HARDLY_BENDING)
        likely = ~marks & (line >= np.quantile(line[asked], 1 - part))
        looks.append(Look.at(held_out_line(rows[likely], asked[likely], BENDING), asked[likely]))
    one, other = looks
    counts = one.labelled + other.labelled, (one.unlabelled + other.unlabelled) // 2
    return Look(*counts, (one.auc + other.auc) / 2, float(np.hypot(one.error, other.error)) / 2)


def _share_by_groups(line: Floats, labelled: Flags, likely: Flags) -> float | None:
    """The part of the likely positives in U that belongs to the upper one of two groups which lie far apart in U.

    Labels play no part in it, so that a preference cannot spoil it as it spoils the prior. Nothing where U does not
    fall into two such groups, or where the likely positives are not nearly all in the upper one."""
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

    One matrix is inverted, the rest is arithmetic: a row that is left out moves the line by what its leverage says."""
    weight = np.where(labelled, 0.5 / max(labelled.sum(), 1), 0.5 / max((~labelled).sum(), 1))
    centred = np.column_stack([rows - weight @ rows, np.ones(len(rows))])
    held_back = np.append(np.full(rows.shape[1], penalty), 0.0)
    inverse = np.linalg.pinv((centred * weight[:, None]).T @ centred + np.diag(held_back))
    target = np.where(labelled, 1.0, -1.0)
    fitted = centred @ (inverse @ (centred.T @ (weight * target)))
    leverage = weight * np.einsum("ij,jk,ik->i", centred, inverse, centred, optimize=True)
    left_out: Floats = (fitted - leverage * target) / np.maximum(1 - leverage, 1e-6)
    return left_out


def _described(features: Any, rows: int) -> Floats:
    """Standardised columns; of very many, or of a sparse table, the main components."""
    wide = hasattr(features, "tocsr")
    table = features.tocsr() if wide else np.asarray(features, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != rows:
        raise InputError(f"features of shape {table.shape} do not fit {rows} scores: give a table with a row for each")
    if wide or table.shape[1] > MOST_COLUMNS:
        from sklearn.decomposition import TruncatedSVD

        table = TruncatedSVD(max(1, min(COMPONENTS, table.shape[1] - 1)), random_state=0).fit_transform(table)
    spread = table.std(0)
    scaled: Floats = (table - table.mean(0)) / np.where(spread > 0, spread, 1.0)
    return scaled
