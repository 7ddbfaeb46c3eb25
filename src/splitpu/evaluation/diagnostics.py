"""Whether labels look like a random draw of the positives, and models that look good on P and need not be:
all positive, all negative, one constant, P learned by heart."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from splitpu.config.schema import Scenario
from splitpu.data.pudata import PUData, check_pudata, check_scenario, check_share
from splitpu.evaluation.metrics import among_unlabelled, auc_against_unlabelled, recall_error, share_error
from splitpu.prior.algorithms import best_bin
from splitpu.prior.scores import OF_LEARNERS, PUScores, ScoreKind, described, pu_scores
from splitpu.types import Flags, Floats
from splitpu.utils.arrays import checked_scores, checked_seed, sklearn_seed

FEWEST_ROWS = 25  # of each kind among the likely positives, to say anything
CLEAR_AUC, CLEAR_SIGMAS = 0.6, 3.0
MOST_ROWS = 4000  # for the linear look; more would only take longer
HARDLY_BENDING, BENDING = 0.01, 0.1  # how freely a linear classifier may follow single features (1 / penalty)
FOLDS, REPEATS = 5, 3


@cache
def _sentences() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))


def _sentence(name: str, **figures: object) -> str:
    return _sentences()[name].format(**figures)


@dataclass(frozen=True)
class LabellingCheck:
    """Whether labelled and unlabelled likely positives can be told apart, and what that means."""

    doubtful: bool
    auc: float | None  # 1/2 = they cannot be told apart; None = too few rows to say
    error: float | None
    verdict: str
    expected: float | None = None  # the AUC that negatives among them account for, where that is known

    @classmethod
    def of(cls, doubtful: bool, auc: float, error: float, expected: float | None = None) -> "LabellingCheck":
        judge, limit = ("a classifier", "0.5") if expected is None else ("a line", f"up to {expected:.2f}")
        verdict = _sentence("not_random" if doubtful else "random", judge=judge, auc=auc, limit=limit)
        return cls(doubtful, auc, error, verdict, expected)

    @classmethod
    def cannot_be_told(cls, labelled: int, unlabelled: int, why: str) -> "LabellingCheck":
        return cls(False, None, None, _sentence("untold", labelled=labelled, unlabelled=unlabelled, why=why))


class Look(NamedTuple):
    """How many rows of both kinds there are among the likely positives, and how well they are told apart there."""

    labelled: int
    unlabelled: int
    auc: float = 0.5
    error: float = 1.0

    @classmethod
    def at(cls, told: Floats, labelled: Flags) -> "Look":
        """By what was told of the likely positives."""
        counts = int(labelled.sum()), int((~labelled).sum())
        return cls(*counts, *auc_against_unlabelled(told[labelled], told[~labelled])) if min(counts) else cls(*counts)


def check_random_labelling(
    data: PUData, *, scores: PUScores | None = None, how: ScoreKind = "auto", seed: int = 0, device: str = "auto"
) -> LabellingCheck:
    """Compare the labelled rows with the unlabelled rows that score like positives.

    If labels were given at random (SCAR), P and the positives in U come from one distribution. Among the rows whose
    score says that hardly anything but positives is left, a classifier of P against U should then have nothing to go
    by. Positives unlike anything labelled cannot be noticed in this way, nor in any other: they look like negatives."""
    check_pudata(data)
    needed, counts = f", {FEWEST_ROWS} clearly positive ones", (len(data.positives), len(data.unlabelled))
    if scores is None and min(counts) < FEWEST_ROWS:  # too few to learn scores from
        return LabellingCheck.cannot_be_told(*counts, f"are there{needed}")
    found = scores if scores is not None else pu_scores(data, seed=seed, how=how, device=device)
    if found.how == OF_LEARNERS:  # of a table: a test that allows for negatives that score like positives
        from splitpu.evaluation.label_tests import random_labels_test

        return random_labels_test(data.features[found.rows], found.plain, found.labelled, scenario=data.scenario)
    likely = _clearly_positive(found.cleaned, found.labelled)
    looks = [Look.at(found.plain[likely], found.labelled[likely])]
    if found.how == "classical":
        looks.append(_by_lines(data, found, seed))

    def telling(look: Look) -> tuple[bool, float]:
        sigmas = (look.auc - 0.5) / look.error
        return look.auc > CLEAR_AUC and sigmas > CLEAR_SIGMAS, sigmas

    enough = [look for look in looks if min(look[:2]) >= FEWEST_ROWS]
    if not enough:
        return LabellingCheck.cannot_be_told(*looks[0][:2], f"are clearly positive{needed}")
    look = max(enough, key=telling)
    return LabellingCheck.of(telling(look)[0], look.auc, look.error)


def _by_lines(data: PUData, found: PUScores, seed: int) -> Look:
    """Linear classifiers, one to find the clear positives and another one among them.

    A classifier that bends freely learns where labels are missing, calls the unlabelled positives there negative, and
    so hides what is looked for. A line that is held back has to follow the classes."""
    kept = np.arange(len(found.rows))
    if len(kept) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(checked_seed(seed)).choice(kept, MOST_ROWS, replace=False))
    labelled = found.labelled[kept]
    if min(labelled.sum(), (~labelled).sum()) >= FEWEST_ROWS:
        features = described(data, found.rows[kept], seed)
        likely = _clearly_positive(_out_of_fold(features, labelled, HARDLY_BENDING, seed), labelled)
        labelled = labelled[likely]
        if min(labelled.sum(), (~labelled).sum()) >= FEWEST_ROWS:
            return Look.at(_out_of_fold(features[likely], labelled, BENDING, seed), labelled)
    return Look(int(labelled.sum()), int((~labelled).sum()))


def _clearly_positive(scores: Floats, labelled: Flags) -> npt.NDArray[np.int64]:
    _, cut = best_bin(scores[labelled], scores[~labelled])
    return np.flatnonzero(scores >= cut)


def _out_of_fold(features: Floats, labelled: Flags, bending: float, seed: int) -> Floats:
    """Scores of P against U by classifiers that did not see the row, the mean over several ways to fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=bending, max_iter=500))
    seeds = [sklearn_seed(FOLDS * seed + number) for number in range(REPEATS)]
    ways = [StratifiedKFold(FOLDS, shuffle=True, random_state=one) for one in seeds]
    scores = [cross_val_predict(model, features, labelled, cv=way, method="decision_function") for way in ways]
    return np.asarray(np.mean(scores, axis=0), dtype=np.float64)


Kind = Literal[
    "constant", "all positive", "all negative", "memorised positives", "too few positives", "no positives left"
]

NEARLY_ALL = 0.98
# What makes a model worth nothing, not only its figures doubtful.
SAID_OF_ALL: frozenset[Kind] = frozenset(("constant", "all positive", "all negative"))
_SIGMAS = 3.0
_FEWEST_TO_RANK = 10  # labelled rows; the ranks of fewer are anything
_BY_CHANCE = 2.0  # standard errors that say nothing yet


@dataclass(frozen=True)
class Degeneracy:
    """What is wrong with a model, and the sentence that says so."""

    kind: Kind
    sentence: str


def find_degeneracies(
    decision_positive: npt.ArrayLike,
    decision_unlabelled: npt.ArrayLike,
    prior: float,
    *,
    scenario: Scenario = "single-training-set",
    held_out_positive: npt.ArrayLike | None = None,
) -> list[Degeneracy]:
    """Look at decisions on the training rows (above 0 = positive); an empty list means that nothing was found.

    Memorised positives show without held-out ones, too: even a perfect model cannot rank labelled positives above
    unlabelled ones, so its AUC of P against U stays at 1 - s / 2 with s the share of positives among U. A model above
    that knows which rows were labelled. And U has to be called positive at the rate s * recall at least: where it is
    not, by more than chance explains, the false positive rate that follows from both is below nought, so that figures
    which count it as nought are too good. Where as many rows are labelled as the prior expects positives in all, each
    unlabelled row that is called positive counts as a mistake.

    >>> [found.kind for found in find_degeneracies([2.0, 3.0], [1.0, 1.5, 2.5, 3.5], 0.6)]
    ['all positive']
    """
    positive, unlabelled = _both(decision_positive, decision_unlabelled)
    prior = check_share(prior)
    check_scenario(scenario)
    held_out = None if held_out_positive is None else checked_scores(held_out_positive, "held-out positives")
    unbounded = float(among_unlabelled(prior, len(positive), len(unlabelled), scenario))
    share = min(max(unbounded, 0.0), 1.0)
    alike = _said_of_all(positive, unlabelled)
    if alike == "all positive":
        sentence = _sentence("far_fewer_expected", rate=100 * float((unlabelled > 0).mean()))
        return [Degeneracy(alike, sentence)] if share < 0.9 else []
    if alike is not None:
        more = ": raise the prior or train longer" if alike == "all negative" else ""
        return [Degeneracy(alike, _sentence(alike) + more)]
    rows = len(positive) + len(unlabelled)
    none_left = _sentence("none_left", positives=len(positive), rows=rows, prior=prior, expected=prior * rows)
    found: list[tuple[Kind, str | None]] = [
        ("no positives left", none_left if unbounded <= 0 else None),
        ("memorised positives", _by_heart(positive, unlabelled, held_out, share)),
        ("too few positives", _too_few(positive, unlabelled, prior, share, scenario)),
    ]
    return [Degeneracy(kind, sentence) for kind, sentence in found if sentence is not None]


def find_worthlessness(
    decision_positive: npt.ArrayLike,
    decision_unlabelled: npt.ArrayLike,
    prior: float | None,
    *,
    scenario: Scenario = "single-training-set",
) -> str | None:
    """Say why a model that has just been trained should not be used at all, by its decisions on the training rows.

    Besides what `find_degeneracies` finds of such models there are those that rank the very positives they were taught
    no higher than unlabelled rows. That is said only where a good model would have shown: with few labelled rows, or
    with hardly anything but positives among the unlabelled ones, chance and skill look alike. Without a prior nothing
    says how many positives there should be, so only a model that says the same of nearly all rows is found."""
    positive, unlabelled = _both(decision_positive, decision_unlabelled)
    if prior is None:
        alike = _said_of_all(positive, unlabelled)
        return None if alike is None else _sentence(alike)
    found = find_degeneracies(positive, unlabelled, prior, scenario=scenario)
    useless = [one.sentence for one in found if one.kind in SAID_OF_ALL]
    if useless or len(positive) < _FEWEST_TO_RANK:
        return useless[0] if useless else None
    auc, error = auc_against_unlabelled(positive, unlabelled)
    share = float(np.clip(among_unlabelled(prior, len(positive), len(unlabelled), scenario), 0.0, 1.0))
    if auc - 0.5 > _BY_CHANCE * error or 1 - share / 2 - auc < _SIGMAS * error:
        return None
    return f"the model ranks the positives it was taught no higher than unlabelled rows (AUC {auc:.2f}, 0.5 is chance)"


def _both(positive: npt.ArrayLike, unlabelled: npt.ArrayLike) -> tuple[Floats, Floats]:
    return checked_scores(positive, "positives"), checked_scores(unlabelled, "unlabelled rows")


def _said_of_all(positive: Floats, unlabelled: Floats) -> Kind | None:
    """Which one thing a model says of nearly all rows; None if it tells some from others."""
    if np.ptp(np.concatenate([positive, unlabelled])) < 1e-9:
        return "constant"
    recall, rate = float((positive > 0).mean()), float((unlabelled > 0).mean())
    if rate >= NEARLY_ALL:
        return "all positive"
    return "all negative" if recall <= 1 - NEARLY_ALL and rate <= 1 - NEARLY_ALL else None


def _by_heart(positive: Floats, unlabelled: Floats, held_out: Floats | None, share: float) -> str | None:
    """Whether more of the positives that it was trained on are found than of new ones; without new ones, whether they
    are ranked higher than any model can that does not know which rows are labelled."""
    if held_out is None:
        ceiling = 1 - share / 2
        auc, error = auc_against_unlabelled(positive, unlabelled)
        if auc - ceiling <= max(_SIGMAS * error, 0.02):
            return None
        return _sentence("ranked_by_heart", auc=auc, ceiling=ceiling)
    seen, unseen = float((positive > 0).mean()), float((held_out > 0).mean())
    middle = (seen * len(positive) + unseen * len(held_out)) / (len(positive) + len(held_out))
    error = float(np.sqrt(max(middle * (1 - middle), 1e-9) * (1 / len(positive) + 1 / len(held_out))))
    if seen - unseen <= max(_SIGMAS * error, 0.05):
        return None
    return _sentence("found_by_heart", seen=100 * seen, unseen=100 * unseen)


def _too_few(positive: Floats, unlabelled: Floats, prior: float, share: float, scenario: Scenario) -> str | None:
    """Whether fewer unlabelled rows are called positive than there are positives that the model would find."""
    recall, rate = float((positive > 0).mean()), float((unlabelled > 0).mean())
    necessary, sizes = share * recall, (len(positive), len(unlabelled))
    errors = (
        np.sqrt(max(of * (1 - of) for of in (rate, necessary)) / len(unlabelled)),
        share * recall_error(recall, len(positive)),
        recall * share_error(prior, share, *sizes, scenario),
    )
    if necessary - rate <= _BY_CHANCE * float(np.linalg.norm(errors)):
        return None
    fitting = rate / recall
    if scenario != "case-control":
        fitting = (len(positive) + fitting * len(unlabelled)) / sum(sizes)
    figures = {"rate": 100 * rate, "necessary": 100 * necessary, "wrong": 100 * (share - rate)}
    return _sentence("too_few", **figures, fitting=fitting)
