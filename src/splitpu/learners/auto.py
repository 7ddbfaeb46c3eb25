"""Which learner to ship: every candidate is judged out of fold by its AUC of P against U, the best are refitted.

No test label and no prior is needed for the choice. The best of every kind have a part in what is shipped, the smaller
the farther they are behind, and a Split-PU student only where it beats its base, its whole procedure having been run
again inside the folds. With many rows the choice is made on a part of them that keeps every positive it can; only the
chosen learners see all rows."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splitpu.data.sparse_rows import is_sparse_matrix
from splitpu.errors import InputError
from splitpu.learners.catalogue import Bagging, Boosting, Fitted, Learner, Logistic, NaiveBayes, Rows, learner
from splitpu.learners.crossfit import Auc, Task, auc_of, compare_auc, fitted_in_folds, platt
from splitpu.learners.learner_networks import AverageNetwork
from splitpu.learners.split_learner import SplitLearner, posteriors
from splitpu.types import Floats, Mask, Watch

CHOOSE_ROWS = 6_000  # the choice is made on at most so many rows
STUDENT_ROWS = 6_000  # a student is tried where the whole table has at most so many
FOLDS = 5
STAGES = (20, 40, 80, 160)  # of the boosting, judged together
WIDE = 300  # columns, beyond which trees are not tried
ALIKE = 1.0  # standard errors of the difference within which two learners count as alike
LEAST_PART = 0.1  # of a learner beside that of the best, below which it is left out
FEWEST_KNOWN = 10  # of either kind, for a learner of known rows alone
CERTAIN = 15.0  # how much a label that somebody gave counts beside one that is inferred
Scored = tuple[AverageNetwork, Floats]  # with its scores out of fold
STEEP = 1.0  # a student must be better than its base by so many standard errors of the difference


@dataclass
class Candidate:
    """What became of one candidate: its out-of-fold AUC, its cost, and whether it is in what is shipped."""

    name: str
    learner: Learner
    auc: Auc
    seconds: float
    scores: Floats = field(repr=False)
    part: float = 0.0  # in what is shipped, beside that of the others there
    fitted: Fitted | None = field(default=None, repr=False)
    against_base: Auc | None = None  # of a student only

    @property
    def chosen(self) -> bool:
        """Whether it is in what is shipped."""
        return self.part > 0

    @property
    def pays(self) -> bool:
        """Whether a student is ahead of its base on all rows by more than chance would make it; others always pay."""
        gain = self.against_base
        return gain is None or (gain.value > max(0.0, STEEP * gain.error) and not np.isnan(self.scores).any())


@dataclass
class Choice:
    """The shipped learner with what it was chosen from.

    `scores` are calibrated out-of-fold logits of "labelled" of all training rows: figures, prior and threshold come
    from them. `fitted` is the learner on all rows, on the same scale."""

    name: str
    fitted: AverageNetwork
    scores: Floats = field(repr=False)
    auc: Auc
    base: Candidate
    base_fitted: AverageNetwork  # the best single learner, on the same scale as what is shipped
    base_scores: Floats = field(repr=False)
    candidates: list[Candidate]

    def table(self) -> list[dict[str, Any]]:
        """One plain row per candidate, best first, for reports and JSON."""
        lines = []
        for one in sorted(self.candidates, key=lambda one: -one.auc.value):
            ranked = {"learner": one.name, "auc": one.auc.value, "auc_low": one.auc.low, "auc_high": one.auc.high}
            gain = None if one.against_base is None else one.against_base.value
            lines.append({**ranked, "seconds": one.seconds, "chosen": one.chosen, "gain_over_base": gain})
        return lines


def choose(
    rows: Rows,
    labelled: Mask,
    *,
    seed: int = 0,
    candidates: Sequence[Any] | None = None,
    groups: npt.ArrayLike | None = None,
    sample_weight: Floats | None = None,
    prior: float | None = None,
    watch: Watch = lambda *_: None,
) -> Choice:
    """Judge the candidates (names, scikit-learn classifiers, learners; None: what suits the rows) and ship the best.

    `groups` keeps the rows of one patient, site or author together. `prior` (the share of positives among the
    unlabelled rows) is only for the students' soft labels; without it they estimate their own."""
    labelled = np.asarray(labelled, dtype=bool)
    if rows.shape[0] != len(labelled):
        raise InputError(f"{rows.shape[0]} rows but {len(labelled)} labels: give one per row")
    if labelled.sum() < 2 or (~labelled).sum() < 2:
        raise InputError("choosing a learner out of fold needs at least two labelled and two unlabelled rows")
    wanted = suited(rows) if candidates is None else [learner(one) for one in candidates]
    task = Task(rows, labelled, sample_weight, None if groups is None else np.asarray(groups), seed)
    part = task if len(labelled) <= CHOOSE_ROWS else task.fewer(CHOOSE_ROWS)
    judged = list[Candidate]()
    bags = [one for one in wanted if type(one) is Bagging] if part.weight is None and part.groups is None else []
    for candidate in [one for one in wanted if one not in bags]:
        watch("learners judged", len(judged), len(wanted))
        judged.append(_judged(candidate, part))
    if bags:
        watch("learners judged", len(judged), len(wanted))
        judged += _raced(bags, part)
    base = max(judged, key=lambda one: one.auc.value)
    if candidates is None and len(labelled) <= STUDENT_ROWS:
        judged.append(_student(base, part, prior))
    task.watch = task.watch if part is task else watch  # fits of all rows may take a while
    members = _best_mean([one for one in judged if one.pays], part.labelled)
    kept = {one.name: one for one in (base, *members)}  # the base is mostly one of them
    refitted = {name: _refitted(one, part, task) for name, one in kept.items()}
    fitted, scores = _mean_of([refitted[one.name] for one in members], labelled, [one.part for one in members])
    base_fitted, base_scores = _mean_of([refitted[base.name]], labelled)
    name = " + ".join(one.name for one in members)
    return Choice(name, fitted, scores, auc_of(scores, labelled), base, base_fitted, base_scores, judged)


def suited(rows: Rows) -> list[Learner]:
    """The candidates that suit the rows: sparse ones get linear models, dense ones trees and smooth borders too."""
    if is_sparse_matrix(rows):
        found = [Logistic("logistic", 1.0), Logistic("logistic, strong penalty", 0.1)]
        counts = rows.nnz and rows.data.min() >= 0
        smoothing = [NaiveBayes("naive bayes", 0.3), NaiveBayes("naive bayes, little smoothing", 0.1)]
        return [*found, *(smoothing if counts else [])]
    names = ["logistic", "logistic, strong penalty", "kernel", "kernel, wide", "bagging, large leaves"]
    if rows.shape[1] <= WIDE:  # of very many columns none matters alone: there trees are the slowest and the worst
        names += ["logistic, weak penalty", "bagging", "forest", "boosting"]
    return [learner(name) for name in names]


def _judged(one: Learner, task: Task, growing: Iterator[Any] | None = None) -> Candidate:
    """A candidate with its scores; of a boosting the best number of stages, which differs from table to table."""
    started, fitted = time.perf_counter(), None if growing is None else next(growing)
    if isinstance(one, Boosting) and task.weight is None:
        found = {number: np.empty(len(task.labelled)) for number in STAGES}
        for held, longest in fitted_in_folds(replace(one, stages=max(STAGES)), task, task.folds(3)):
            for number, scores in longest.at_stages(task.rows[held], STAGES).items():
                found[number][held] = scores
        best = max(STAGES, key=lambda number: auc_of(found[number], task.labelled).value)
        one, scores = replace(one, stages=best), found[best]
    elif fitted is not None:
        scores = np.asarray(fitted.out_of_bag)
    else:
        scores, fitted = task.out_of_fold(one, FOLDS)
    auc = auc_of(scores, task.labelled)
    return Candidate(one.name, one, auc, time.perf_counter() - started, scores, fitted=fitted)


def _raced(rivals: Sequence[Bagging], task: Task) -> list[Candidate]:
    """Baggings, of which only the one that leads after its first trees is grown to the end: no other is shipped."""
    growing = [one.growing(task.rows, task.labelled, seed=task.seed) for one in rivals]
    found = [_judged(one, task, trees) for one, trees in zip(rivals, growing, strict=True)]
    best = int(np.argmax([one.auc.value for one in found]))
    if rivals[best].trees > Bagging.first:
        whole = _judged(rivals[best], task, growing[best])
        found[best] = replace(whole, seconds=whole.seconds + found[best].seconds)
    return found


def _student(base: Candidate, task: Task, prior: float | None) -> Candidate:
    """The best candidate's Split-PU student, its teacher and split made anew in every fold.

    Most students do not beat their base, and a student costs more than all other candidates together: one that is
    behind after the first fold is not followed further, and its figures are those of that fold's rows."""
    started = time.perf_counter()
    teacher = base.learner
    if isinstance(teacher, Bagging):
        teacher = replace(teacher, trees=min(teacher.trees, Bagging.first))  # its labels are soft anyway
    pupil = SplitLearner(teacher, base.learner, prior=prior)
    tried = replace(pupil, student=teacher)  # of fewer trees, too, until it is taken
    scores, seen = np.full(len(task.labelled), np.nan), np.zeros(len(task.labelled), dtype=bool)
    for held, fitted in fitted_in_folds(tried, task, task.folds(3)):
        scores[held] = fitted.scores(task.rows[held])
        seen[held] = True
        gain = compare_auc(scores[seen], base.scores[seen], task.labelled[seen])
        if gain.value <= 0:
            break
    auc = auc_of(scores[seen], task.labelled[seen])
    return Candidate(pupil.name, pupil, auc, time.perf_counter() - started, scores, against_base=gain)


def _best_mean(judged: Sequence[Candidate], labelled: Mask) -> list[Candidate]:
    """The best of every kind of learner with their parts; where their mean clearly ranks worse than the best, it alone.

    P against U tells learners apart only roughly: of several within one standard error of each other the first is
    first by luck. Their mean does not depend on that luck, and mostly ranks better than any of them, the more so the
    less alike they are: several forests of which each is a little different are not told apart, and err together."""
    kinds = dict[type[Learner], Candidate]()
    for one in sorted(judged, key=lambda one: -one.auc.value):
        kinds.setdefault(type(one.learner), one)
    best, *_ = members = list(kinds.values())
    gaps = [compare_auc(best.scores, one.scores, labelled) for one in members]
    behind = np.array([max(gap.value, 0.0) / max(gap.error, 1e-9) for gap in gaps])
    parts = np.exp(-(behind**2) / 2)
    parts[parts < LEAST_PART] = 0.0
    _, total = _mean_logits([one.scores for one in members], labelled, parts)
    lost = compare_auc(best.scores, total, labelled)
    if lost.value > ALIKE * lost.error:
        parts[1:] = 0.0
    for one, part in zip(members, parts.tolist(), strict=True):
        one.part = part
    return [one for one in members if one.chosen]


def joined(choice: Choice, other: Candidate, labelled: Mask) -> Choice:
    """The choice after one more candidate, which was too slow to be judged among the others.

    It is left out where it clearly ranks worse; else the mean of both is shipped, or it alone where that is best."""
    assert other.fitted is not None
    gain = compare_auc(other.scores, choice.scores, labelled)
    judged = replace(other, against_base=compare_auc(other.scores, choice.base_scores, labelled))
    candidates = [*choice.candidates, judged]
    if gain.value < -ALIKE * gain.error:
        return replace(choice, candidates=candidates)
    here, there = (choice.fitted, choice.scores), (other.fitted, other.scores)
    ways = {f"{choice.name} + {other.name}": _mean_of([here, there], labelled), other.name: _mean_of([there], labelled)}
    aucs = {name: auc_of(scores, labelled) for name, (_, scores) in ways.items()}
    name = max(aucs, key=lambda one: aucs[one].value)
    judged.part = 1.0
    # Copies: the choice may be asked for again, and then without the other one.
    candidates = [replace(one, part=one.part * (name != other.name)) for one in choice.candidates] + [judged]
    fitted, scores = ways[name]
    return replace(choice, name=name, fitted=fitted, scores=scores, auc=aucs[name], candidates=candidates)


def what_is_known(expected: Floats, labelled: Mask, answers: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """How probably each row is positive after answers, and its weight: an answer counts the more, the less expected.

    That one more row among rare positives is negative says no more than U does; what nobody expected says most.

    >>> target, weight = what_is_known(np.array([1.0, 0.5, 0.0, 0.2]), np.arange(4) == 0, np.array([0, 1, -1, 0]))
    >>> target.tolist(), weight.tolist()
    ([1.0, 1.0, 0.0, 0.2], [15.0, 8.0, 1.0, 1.0])
    """
    target = np.where(answers == 0, expected, answers > 0)
    return target, np.where(labelled, CERTAIN, 1 + (CERTAIN - 1) * np.abs(target - expected))


def taught_answers(
    choice: Choice,
    rows: Rows,
    labelled: Mask,
    answers: npt.NDArray[Any],
    *,
    share: float | None = None,
    groups: npt.ArrayLike | None = None,
    sample_weight: Floats | None = None,
    seed: int = 0,
) -> Choice:
    """The same learners once more, after somebody looked at some unlabelled rows (1 = positive, -1 = negative, 0 = no).

    Against a target of "labelled" a known negative says nothing: it was unlabelled before. So the chosen learners are
    taught again what is known of every row: P and answers for certain, all other rows as probable as was found out of
    fold. The choice without answers keeps a part in what is shipped, the larger the less the answers surprise it:
    fifty random negatives of a rare class say hardly anything. A mean of learners of the known rows alone has as large
    a part, in what is shipped and in how probable rows seem, as positives have in U: so much U lacks to be known
    negatives itself. Answered rows may have been picked in any way: what judges the learners is P against all of U."""
    given = np.ones(len(labelled)) if sample_weight is None else sample_weight
    folds = Task(rows, labelled, given, None if groups is None else np.asarray(groups), seed).folds(3)

    def taught(one: Candidate, target: Floats | Mask, weight: Floats) -> tuple[Fitted, Floats]:
        pupil, scores = one.learner, np.empty(len(labelled))
        if isinstance(pupil, SplitLearner):  # makes soft labels of its own
            pupil = pupil.student or pupil.base
        for fold in (*np.unique(folds), -1):  # the last one leaves no row out
            kept = np.flatnonzero((folds != fold) & (weight > 0))
            fitted = pupil.fit(rows[kept], target[kept], sample_weight=weight[kept], seed=seed)
            held = np.flatnonzero(folds == fold)
            if len(held):
                scores[held] = fitted.scores(rows[held])
        return fitted, scores

    candidates, name = choice.candidates, choice.name
    expected, alone = posteriors(choice.scores, labelled, share), None
    part = float(expected[~labelled].mean())
    if min((answers < 0).sum(), labelled.sum()) >= FEWEST_KNOWN:
        started, known = time.perf_counter(), labelled | (answers != 0)
        pupils = [one for one in candidates if one.name in (choice.base.name, "logistic")]
        alone = _mean_of([taught(one, labelled | (answers > 0), given * known) for one in pupils], labelled)
        expected = posteriors((1 - part) * choice.scores + part * alone[1], labelled, share)
        judged = Candidate("answers alone", choice.base.learner, auc_of(alone[1], labelled), 0.0, alone[1], part=1.0)
        judged.seconds = time.perf_counter() - started
        candidates, name = [*candidates, judged], f"{name} + {judged.name}"
    target, weight = what_is_known(expected, labelled, answers)
    surprise = float(np.abs(target - expected).sum())
    chosen = [one for one in choice.candidates if one.chosen]
    wanted = {one.name: one for one in (choice.base, *chosen)}
    again = {name: taught(one, target, weight * given) for name, one in wanted.items()}
    told = [
        _mean_of([again[one.name] for one in some], labelled, [one.part or 1.0 for one in some])
        for some in ([choice.base], chosen)
    ]
    before = [(choice.base_fitted, choice.base_scores), (choice.fitted, choice.scores)]
    base, found = (_weighted(*both, surprise / (surprise + 1)) for both in zip(before, told, strict=True))
    fitted, scores = found if alone is None else _weighted(found, alone, part)
    choice = replace(choice, base_fitted=base[0], base_scores=base[1], candidates=candidates)
    return replace(choice, name=name, fitted=fitted, scores=scores, auc=auc_of(scores, labelled))


def _refitted(one: Candidate, part: Task, task: Task) -> tuple[Fitted, Floats]:
    """The candidate on all rows, and its out-of-fold scores of all of them."""
    scores, whole = one.scores, one.fitted
    if part is not task:
        scores, whole = task.out_of_fold(one.learner, 3 if len(task.labelled) < 100_000 else 2)
    if whole is None:
        whole = one.learner.fit(task.rows, task.labelled, sample_weight=task.weight, seed=task.seed)
    return whole, scores


def _mean_of(found: Sequence[tuple[Fitted, Floats]], labelled: Mask, parts: Sequence[float] = ()) -> Scored:
    """The mean of calibrated logits of some learners, itself a calibrated logit, and its out-of-fold scores."""
    shares = np.asarray(parts or [1.0] * len(found)) / (sum(parts) or len(found))
    maps, total = _mean_logits([scores for _, scores in found], labelled, shares)
    # The mean of calibrated logits is too timid where the members differ: it is calibrated once more, as a whole.
    slope, offset = platt(total, labelled)
    whole = AverageNetwork([one.as_network() for one, _ in found]).filled(
        slope=[slope * one for one, _ in maps], offset=[slope * one + offset for _, one in maps], share=shares
    )
    return whole, slope * total + offset


def _weighted(first: Scored, second: Scored, part: float) -> Scored:
    """The mean of two, in which the second has this part."""
    whole = AverageNetwork([first[0], second[0]]).filled(slope=[1.0, 1.0], share=[1 - part, part])
    return whole, (1 - part) * first[1] + part * second[1]


def _mean_logits(found: Sequence[Floats], labelled: Mask, parts: Floats) -> tuple[list[tuple[float, float]], Floats]:
    """Slopes and offsets that bring scores of several learners to one scale, and their weighted mean on it."""
    maps = [platt(scores, labelled) for scores in found]
    logits = [slope * scores + offset for scores, (slope, offset) in zip(found, maps, strict=True)]
    return maps, np.asarray(np.average(logits, axis=0, weights=parts))
