"""Do the labelled positives look like a random draw of the positives? As far as P and U can tell."""

from dataclasses import dataclass

import numpy as np

from splitpu.data.pudata import PUData, check_pudata
from splitpu.evaluation.pu_metrics import auc_against_unlabelled
from splitpu.prior.bbe import best_bin
from splitpu.prior.scores import PUScores, ScoreKind, pu_scores

FEWEST_ROWS = 25  # of each kind among the likely positives, to say anything
CLEAR_AUC, CLEAR_SIGMAS = 0.6, 3.0


@dataclass(frozen=True)
class LabellingCheck:
    """Whether labelled and unlabelled likely positives can be told apart, and what that means."""

    doubtful: bool
    auc: float | None  # 1/2 = they cannot be told apart; None = too few rows to say
    error: float | None
    verdict: str


def check_random_labelling(
    data: PUData, *, scores: PUScores | None = None, how: ScoreKind = "auto", seed: int = 0, device: str = "auto"
) -> LabellingCheck:
    """Compare the labelled rows with the unlabelled rows that score like positives.

    If labels were given at random (SCAR), P and the positives in U come from one distribution. Among the rows whose
    cleaned score says that hardly anything but positives is left, a classifier of P against U should then have nothing
    to go by. If its out-of-fold scores still rank P above U, labels depend on the features, or negatives hide among
    the likely positives. Positives unlike anything labelled cannot be noticed in this way, nor in any other: they look
    like negatives.
    """
    check_pudata(data)
    found = scores if scores is not None else pu_scores(data, seed=seed, how=how, device=device)
    _, cut = best_bin(found.cleaned[found.labelled], found.cleaned[~found.labelled])
    likely = np.flatnonzero(found.cleaned >= cut)
    labelled = found.labelled[likely]
    if min(labelled.sum(), (~labelled).sum()) < FEWEST_ROWS:
        verdict = (
            f"whether the labelled positives are a random draw of all positives cannot be told: only {labelled.sum()} "
            f"labelled and {(~labelled).sum()} unlabelled rows are clearly positive, {FEWEST_ROWS} of each are needed"
        )
        return LabellingCheck(False, None, None, verdict)
    told = found.plain[likely]
    auc, error = auc_against_unlabelled(told[labelled], told[~labelled])
    doubtful = auc > CLEAR_AUC and auc - 0.5 > CLEAR_SIGMAS * error
    if doubtful:
        verdict = (
            f"the labelled positives do not look like a random draw of the positives: a classifier tells them from "
            f"unlabelled rows that are just as clearly positive (AUC {auc:.2f}, 0.5 is expected), so the prior and all "
            "figures may be off; label positives drawn at random, or at least some of every kind"
        )
    else:
        verdict = (
            f"nothing speaks against the labelled positives being a random draw of all positives (AUC {auc:.2f} "
            "against unlabelled rows that are as clearly positive, 0.5 is expected); kinds of positives of which "
            "hardly any is labelled look like negatives and cannot be noticed"
        )
    return LabellingCheck(doubtful, auc, error, verdict)
