"""Split-PU: a base model, then rounds of split and student, each sound student the next round's teacher."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
from torch import nn

from splitpu.engine.stage import Pool, proportional_count
from splitpu.learners.crossfit import compare_auc, fold_numbers
from splitpu.methods.base_model import train_base
from splitpu.methods.common import Trained, as_one, member_names
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.split import MethodResult as MethodResult
from splitpu.methods.split import Round as Round
from splitpu.methods.split import SplitResult, split_unlabelled
from splitpu.methods.student_loss import StudentTask, easy_rows_agree, feature_predictor
from splitpu.networks.backbones import Backbone, Ensemble
from splitpu.networks.encoders import is_encoder
from splitpu.types import Floats
from splitpu.utils.torch_state import derive_seed
from splitpu.utils.warnings import NOT_TAKEN, warn_where_called

_LEAST_AGREEMENT = 0.55  # mean over both labels; one answer for all rows would reach one half
_MORE_ATTEMPTS, _SLOWER = 2, 3.0  # each further attempt takes steps so many times as small as the one before
_LEAST_GAIN = 1.0  # in AUC of P against U out of fold, by standard errors, from which a student is taken


def train_student(context: Context, teacher: Teacher, split: SplitResult, number: int) -> Student:
    """Train a fresh network on the split; if it is sound, it can be the next round's teacher.

    Members that learned nothing are left out of it. Where that would leave none, it is made of all of them and is not
    sound: it is not taken, but its figures are reported."""
    config = context.config.student
    for parameter in teacher.network.parameters():
        parameter.requires_grad_(False)
    teacher.network.eval()
    pools = _pools(context, split)
    leading = next(group for group in ("easy", "rest", "consistent", "positives") if group in pools)
    # Easy rows once had views of their own for their labels; named here, checkpoints from that time are not taken up.
    shared = {"easy_rows": "agree as well"} if easy_rows_agree(config) else {}

    names = member_names(context, f"round{number}.student")
    taught = teacher.network.members if isinstance(teacher.network, Ensemble) else [teacher.network]
    starts = dict(zip(names, cycle(taught)))

    def train_once(name: str, start: nn.Module, slower: float, **again: Any) -> Trained:
        network = context.fresh_network(name)
        if config.start == "teacher":
            network.load_state_dict(start.state_dict())
        predictor = context.fresh_head(lambda: feature_predictor(network.feature_dim), name)
        task = StudentTask(network, predictor, teacher, context.known_prior, config)
        how = replace(config, optimiser=replace(config.optimiser, rate=config.optimiser.rate / slower))
        upstream = {"teacher": teacher.key, "split": split.key, **shared, **again}
        stage = context.stage(name, task, pools, leading, how, "student", "threshold", **upstream)
        return network, context.train(stage, network)

    def train_one(name: str) -> tuple[Trained, bool]:
        trained = train_once(name, starts[name], 1.0)
        for attempt in range(1, _MORE_ATTEMPTS + 1):
            if _learned(context, trained[0], teacher, split):
                return trained, True
            slower = _SLOWER**attempt
            warn_where_called(
                f"{name}: the student says the same of nearly all samples, whatever their labels say; it is trained "
                f"again with smaller steps (student.optimiser.rate = {config.optimiser.rate / slower:.3g})."
            )
            trained = train_once(f"{name}.again{attempt}", starts[name], slower, again=attempt)
        return trained, _learned(context, trained[0], teacher, split)

    members = {place: train_one(place) for place in names}
    sound = [trained for trained, learned in members.values() if learned]
    lost = [place for place, (_, learned) in members.items() if not learned]
    for place in lost if sound else names[:1]:
        warn_where_called(_not_taken(place, of_several=bool(sound)))
    joined_up = as_one(context, sound or [trained for trained, _ in members.values()])
    return Student(**vars(joined_up), sound=bool(sound))


def _learned(context: Context, network: Backbone, teacher: Teacher, split: SplitResult) -> bool:
    """Whether the student tells its easy samples apart as their labels do, at least somewhat.

    With few rows and large steps the labelled positives can pull every logit so far up that the easy loss, which is
    bounded, has no gradient left to pull back with. No true label is needed to notice: such a student gives all rows
    the same answer."""
    easy = context.rows(split.easy_rows)
    label = teacher.probabilities[easy] > 0.5
    if not label.any() or label.all():
        return True
    # In eval mode, as it will be used: with the statistics of each batch, as in training, it may still be right.
    decision = context.logits_of(network)[easy] > 0
    recalled = [float((decision == label)[label == kind].double().mean()) for kind in (True, False)]
    return sum(recalled) / 2 > _LEAST_AGREEMENT


def _not_taken(name: str, *, of_several: bool) -> str:
    who, instead, for_what = (
        ("this member", "the student is made of the other members;", " to have all of them")
        if of_several
        else ("the student", "the model that taught it stays; for a student that learns,", "")
    )
    return (
        f"{name}: after {_MORE_ATTEMPTS + 1} attempts {who} still says the same of nearly all samples, so it "
        f"{NOT_TAKEN} and {instead} lower student.positive_weight or student.optimiser.rate{for_what}."
    )


def _kept_back(context: Context, teacher: Teacher, student: Student, number: int, apart: Any = None) -> Student:
    """The student, not to be taken where rows that neither was trained on say that it ranks worse than its teacher.

    By more than the standard error of the difference: few rows are set aside, and most students do gain. Out of fold
    (`apart`, of both) all rows speak, and it has to rank better by as much. Without either nothing can be said."""
    if (context.aside is None and apart is None) or not student.sound:
        return student
    if context.aside is not None:
        rows = np.concatenate([context.aside.positives, context.aside.unlabelled])
        both = [one.logits[context.rows(rows)].double().cpu().numpy() for one in (student, teacher)]
        least, said = -1.0, f"on {len(rows)} rows that were set aside it tells labelled from unlabelled rows less well"
    else:
        rows, both, least = context.data.taught, list(apart[number - 1]), _LEAST_GAIN
        said = "out of fold it tells labelled from unlabelled rows not clearly better"
    gain = compare_auc(both[0], both[1], context.data.labelled[rows])
    if gain.value >= least * gain.error:
        return student
    told = f"AUC {gain.value:+.3f} ± {gain.error:.3f}"
    warn_where_called(f"round{number}.student: {said} than the model that taught it ({told}), so it {NOT_TAKEN}.")
    return replace(student, sound=False)


def _out_of_fold(context: Context) -> Floats:
    """Of every round, what student and teacher say of rows that neither was trained on: (rounds, 2, taught rows)."""
    taught, folds = context.data.taught, context.config.selection.folds
    part = fold_numbers(context.data.labelled[taught], folds, derive_seed(context.engine.seed, "folds"))
    told, scores = len(context.engine.history), np.zeros((context.config.rounds, 2, len(taught)))
    for number in range(folds):
        out = part == number
        for found in run_split_pu(context.without(taught[out], number + 1)).rounds:
            for which, model in enumerate((found.student, found.teacher)):
                logits = model.logits.double().cpu().numpy()  # of every network on a scale of its own
                scores[found.number - 1, which, out] = (logits[taught[out]] - logits.mean()) / (logits.std() or 1.0)
    del context.engine.history[told:]  # which is that of the model
    return scores


def _pools(context: Context, split: SplitResult) -> dict[str, Pool]:
    """The groups of rows. A batch holds easy and hard rows in the proportion in which there are such."""
    config, data = context.config.student, context.data
    unlabelled = len(data.unlabelled)
    batch = min(config.batch_size, unlabelled)
    third, consistent = "consistent", split.hard_rows
    if easy_rows_agree(config):
        third, consistent = "rest", split.rows[~split.taught]
    per_batch = config.positives_per_batch or proportional_count(len(data.known_positives), unlabelled, batch)
    pools = {"positives": Pool(data.known_positives, per_batch)}
    if len(split.easy_rows):
        pools["easy"] = Pool(split.easy_rows, proportional_count(len(split.easy_rows), unlabelled, batch))
    if len(consistent) and config.hard_loss != "none":
        pools[third] = Pool(consistent, proportional_count(len(consistent), unlabelled, batch))
    return pools


def run_split_pu(context: Context) -> MethodResult:
    """Run the whole method."""
    if context.config.learner != "network" or context.learner is not None:
        from splitpu.methods.table_learners import run_split_learners

        return run_split_learners(context)
    if is_encoder(context.recipe.name):
        from splitpu.methods.frozen_features import run_frozen

        return run_frozen(context)
    base = train_base(context)
    if context.config.base.method == "risk":  # with other methods a logit of 0 does not mean 1/2
        context = context.with_own_share(base.logits)
    asked = context.config.rounds and context.config.selection.folds > 1
    apart = _out_of_fold(context) if asked and context.aside is None else None
    teacher, rounds = base, []
    for number in range(1, context.config.rounds + 1):
        told = context.told_answers(teacher)
        split = split_unlabelled(context, told, number)
        student = _kept_back(context, teacher, train_student(context, told, split, number), number, apart)
        rounds.append(Round(number, teacher, split, student))
        if student.sound:
            teacher = student
    return MethodResult(base, tuple(rounds), tuple(context.engine.history))
