"""Do the labelled positives look like a random draw of the positives? As far as P and U can tell."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.data.pudata import PUData, check_pudata
from splitpu.evaluation.pu_metrics import auc_against_unlabelled
from splitpu.prior.bbe import best_bin
from splitpu.prior.scores import PUScores, ScoreKind, described, pu_scores
from splitpu.seeds import checked_seed, sklearn_seed

FEWEST_ROWS = 25  # of each kind among the likely positives, to say anything
CLEAR_AUC, CLEAR_SIGMAS = 0.6, 3.0
MOST_ROWS = 4000  # for the linear look; more would only take longer
HARDLY_BENDING, BENDING = 0.01, 0.1  # how freely a linear classifier may follow single features (1 / penalty)
FOLDS, REPEATS = 5, 3

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LabellingCheck:
    """Whether labelled and unlabelled likely positives can be told apart, and what that means."""

    doubtful: bool
    auc: float | None  # 1/2 = they cannot be told apart; None = too few rows to say
    error: float | None
    verdict: str


class _Look(NamedTuple):
    """How many rows were found clearly positive, and how well labelled ones are told from the others among them."""

    labelled: int
    unlabelled: int
    auc: float = 0.5
    error: float = 1.0

    @property
    def tells(self) -> bool:
        return min(self.labelled, self.unlabelled) >= FEWEST_ROWS

    @property
    def sigmas(self) -> float:
        return (self.auc - 0.5) / self.error

    @property
    def doubtful(self) -> bool:
        return self.auc > CLEAR_AUC and self.sigmas > CLEAR_SIGMAS


def check_random_labelling(
    data: PUData, *, scores: PUScores | None = None, how: ScoreKind = "auto", seed: int = 0, device: str = "auto"
) -> LabellingCheck:
    """Compare the labelled rows with the unlabelled rows that score like positives.

    If labels were given at random (SCAR), P and the positives in U come from one distribution. Among the rows whose
    score says that hardly anything but positives is left, a classifier of P against U should then have nothing to go
    by. If its out-of-fold scores still rank P above U, labels depend on the features, or negatives hide among the
    likely positives. Positives unlike anything labelled cannot be noticed in this way, nor in any other: they look
    like negatives.
    """
    check_pudata(data)
    there = len(data.positives), len(data.unlabelled)
    if scores is None and min(there) < FEWEST_ROWS:  # too few to learn scores from, or to find enough among them
        return _cannot_be_told(*there, "are there")
    found = scores if scores is not None else pu_scores(data, seed=seed, how=how, device=device)
    looks = [_by_scores(found), *([_by_lines(data, found, seed)] if found.how == "classical" else [])]
    telling = [look for look in looks if look.tells]
    if not telling:
        return _cannot_be_told(looks[0].labelled, looks[0].unlabelled, "are clearly positive")
    look = max(telling, key=lambda one: (one.doubtful, one.sigmas))
    if look.doubtful:
        verdict = (
            f"the labelled positives do not look like a random draw of the positives: a classifier tells them from "
            f"unlabelled rows that are just as clearly positive (AUC {look.auc:.2f}, 0.5 is expected), so the prior "
            "and all figures may be off; label positives drawn at random, or at least some of every kind"
        )
    else:
        verdict = (
            f"nothing speaks against the labelled positives being a random draw of all positives (AUC {look.auc:.2f} "
            "against unlabelled rows that are as clearly positive, 0.5 is expected); kinds of positives of which "
            "hardly any is labelled look like negatives and cannot be noticed"
        )
    return LabellingCheck(look.doubtful, look.auc, look.error, verdict)


def _cannot_be_told(labelled: int, unlabelled: int, are: str) -> LabellingCheck:
    verdict = (
        f"whether the labelled positives are a random draw of all positives cannot be told: only {labelled} labelled "
        f"and {unlabelled} unlabelled rows {are}, {FEWEST_ROWS} clearly positive ones of each are needed"
    )
    return LabellingCheck(False, None, None, verdict)


def _by_scores(found: PUScores) -> _Look:
    """The scores that the prior is estimated from; all there is where networks made them."""
    return _looked(found.plain, found.labelled, _clearly_positive(found.cleaned, found.labelled))


def _by_lines(data: PUData, found: PUScores, seed: int) -> _Look:
    """Linear classifiers, one to find the clear positives and another one among them.

    A classifier that bends freely learns where labels are missing, calls the unlabelled positives there negative, and
    so hides what is looked for. A line that is held back has to follow the classes.
    """
    kept = np.arange(len(found.rows))
    if len(kept) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(checked_seed(seed)).choice(kept, MOST_ROWS, replace=False))
    labelled = found.labelled[kept]
    if min(labelled.sum(), (~labelled).sum()) < FEWEST_ROWS:
        return _Look(int(labelled.sum()), int((~labelled).sum()))
    features = described(data, found.rows[kept], seed)
    likely = _clearly_positive(_out_of_fold(features, labelled, HARDLY_BENDING, seed), labelled)
    if min(labelled[likely].sum(), (~labelled[likely]).sum()) < FEWEST_ROWS:
        return _Look(int(labelled[likely].sum()), int((~labelled[likely]).sum()))
    told = np.zeros(len(labelled))
    told[likely] = _out_of_fold(features[likely], labelled[likely], BENDING, seed)
    return _looked(told, labelled, likely)


def _clearly_positive(scores: Floats, labelled: Flags) -> npt.NDArray[np.int64]:
    _, cut = best_bin(scores[labelled], scores[~labelled])
    return np.flatnonzero(scores >= cut)


def _looked(told: Floats, labelled: Flags, likely: npt.NDArray[np.int64]) -> _Look:
    told, labelled = told[likely], labelled[likely]
    rows = int(labelled.sum()), int((~labelled).sum())
    return _Look(*rows, *auc_against_unlabelled(told[labelled], told[~labelled])) if min(rows) else _Look(*rows)


def _out_of_fold(features: Floats, labelled: Flags, bending: float, seed: int) -> Floats:
    """Scores of P against U by classifiers that did not see the row, the mean over several ways to fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=bending, max_iter=500))
    scores = [
        cross_val_predict(
            model,
            features,
            labelled,
            cv=StratifiedKFold(FOLDS, shuffle=True, random_state=sklearn_seed(FOLDS * seed + number)),
            method="decision_function",
        )
        for number in range(REPEATS)
    ]
    return np.asarray(np.mean(scores, axis=0), dtype=np.float64)
