"""Split-PU with learners for tables in place of networks, and such learners as methods of their own.

Everything a training says of its own rows is said out of fold: a row's logit is that of learners that never saw it.
So the threshold, the figures without known negatives and the choice between base and student are honest without any
rows being kept back. Only the model that is shipped has learned from all of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from splitpu.data.pudata import PUData
from splitpu.learners.auto import Choice, choose
from splitpu.learners.learner_networks import LearnerBackbone, LearnerNetwork
from splitpu.learners.split_learner import posteriors, split
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.split import MethodResult, Round, SplitResult
from splitpu.types import Floats, Mask

AUTO = "auto"


@dataclass(frozen=True)
class Rows:
    """What learners are given: the rows that may be taught, standardised as the model will be given them."""

    features: Floats
    labelled: Mask
    numbers: Any  # which rows of the data they are

    @classmethod
    def of(cls, context: Context) -> "Rows":
        """The taught rows of a training."""
        data, taught = context.data, context.data.taught
        raw = torch.from_numpy(np.ascontiguousarray(data.features[taught]))
        plain = context.engine.views.plain(raw.to(context.engine.hardware.device)).cpu().numpy()
        return cls(plain.astype(np.float64), data.labelled[taught], taught)


def run_split_learners(context: Context) -> MethodResult:
    """Choose a base, split by it; a student or a mean of several is taken only where it ranks better out of fold."""
    rows = Rows.of(context)
    choice = _chosen(context, rows, None if context.config.learner == AUTO else [context.config.learner])
    base = _teacher(context, rows, choice.base_fitted.network(), choice.base_scores)
    shipped = base
    rounds = []
    if context.config.rounds:
        found = _split(context, rows, base, choice)
        shipped = _teacher(context, rows, choice.fitted.network(), choice.scores)
        student = Student(**vars(shipped), sound=choice.name != choice.base.name)
        rounds = [Round(1, base, found, student)]
    return MethodResult(base, tuple(rounds), tuple(context.engine.history), learners=choice.table())


def train_learner(context: Context) -> Teacher:
    """One learner of P against U, cut at the prior: the method's name is the learner's."""
    rows = Rows.of(context)
    choice = _chosen(context, rows, [context.config.method])
    return _teacher(context, rows, choice.fitted.network(), choice.scores)


def _chosen(context: Context, rows: Rows, candidates: list[Any] | None) -> Choice:
    given = candidates if context.learner is None else [context.learner]
    return choose(rows.features, rows.labelled, seed=context.engine.seed, candidates=given)


def _teacher(context: Context, rows: Rows, learner: LearnerNetwork, out_of_fold: Floats) -> Teacher:
    """The learner with its logits: of rows that it was taught those that were found out of fold."""
    network = LearnerBackbone(learner).to(context.engine.hardware.device).eval()
    logits = context.logits_of(network).double()
    logits[context.rows(rows.numbers)] = torch.as_tensor(out_of_fold, dtype=torch.float64, device=logits.device)
    return Teacher(network, context.threshold_for(logits), logits, key="")


def _split(context: Context, rows: Rows, base: Teacher, choice: Choice) -> SplitResult:
    """Which unlabelled rows an early-stopped boosting takes up first, as the student's own split does."""
    data, tau = context.data, context.config.split.tau
    share = None if context.prior is None else _among_unlabelled(data, context.prior)
    posterior = posteriors(choice.base_scores, rows.labelled, share)
    found = split(rows.features, rows.labelled, posterior, tau, seed=context.engine.seed)
    unlabelled = ~rows.labelled
    easy = found.easy[unlabelled]
    return SplitResult(
        rows=rows.numbers[unlabelled],
        agrees=easy,
        easy=easy,
        taught=easy,
        teacher_probability=posterior[unlabelled],
        agreement=(found.agreement,),
        epoch=found.stages,
        tau=tau,
        reached=found.agreement > tau,
        key="",
    )


def _among_unlabelled(data: PUData, prior: float) -> float:
    """The share of positives among the unlabelled rows that a prior of the population means."""
    if data.scenario == "case-control":
        return prior
    rows = len(data.population)
    share = (prior * rows - len(data.positives)) / max(1, len(data.unlabelled))
    return float(np.clip(share, 1e-6, 1 - 1e-6))
