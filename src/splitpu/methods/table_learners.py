"""Split-PU with learners for tables in place of networks, and such learners as methods of their own.

Everything a training says of its own rows is said out of fold: a row's logit is that of learners that never saw it.
So the threshold, the figures without known negatives and the choice between base and student are honest without any
rows being kept back. Only the model that is shipped has learned from all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.learners.auto import Choice, choose
from splitpu.learners.learner_networks import LearnerBackbone, LearnerNetwork
from splitpu.learners.split_learner import posteriors, split
from splitpu.methods.context import Context, OwnThreshold, Student, Teacher
from splitpu.methods.split import MethodResult, Round, SplitResult
from splitpu.types import Floats, Mask
from splitpu.utils.arrays import sklearn_seed
from splitpu.views import Views

AUTO = "auto"


@dataclass(frozen=True)
class Rows:
    """What learners are given: the rows that may be taught, standardised as the model will be given them."""

    features: Floats
    labelled: Mask
    numbers: Any  # which rows of the data they are

    @classmethod
    def of(cls, data: PUData) -> "Rows":
        """The taught rows of the data, on the CPU: the same numbers whatever the model is trained on."""
        preprocessing = Preprocessing.fit(data.features)
        raw = torch.from_numpy(np.ascontiguousarray(data.features[data.taught]))
        plain = Views(preprocessing, ViewsConfig(), torch.device("cpu")).plain(raw).numpy()
        return cls(plain.reshape(len(plain), -1).astype(np.float64), data.labelled[data.taught], data.taught)


class _Latest:
    """The last choice that was made: the prior is estimated from the very scores that the model is chosen by."""

    key: tuple[Any, ...] = ()
    found: tuple[Rows, Choice] | None = None


def choice_of(data: PUData, seed: int, candidates: Sequence[Any] | None = None) -> tuple[Rows, Choice]:
    """The learners for these rows, and the rows as the learners see them; the same question is answered once."""
    key = (data.fingerprint(), seed, None if candidates is None else tuple(map(repr, candidates)))
    if _Latest.key != key or _Latest.found is None:
        rows = Rows.of(data)
        weight, groups = (None if one is None else one[data.taught] for one in (data.sample_weight, data.groups))
        choice = choose(
            rows.features,
            rows.labelled,
            seed=sklearn_seed(seed),
            candidates=candidates,
            sample_weight=weight,
            groups=groups,
        )
        found = rows, choice
        _Latest.key, _Latest.found = key, found
    return _Latest.found


def run_split_learners(context: Context) -> MethodResult:
    """Choose a base, split by it; a student or a mean of several is taken only where it ranks better out of fold."""
    rows, choice = _chosen(context, None if context.config.learner == AUTO else [context.config.learner])
    base = _teacher(context, rows, choice.base_fitted.network(), choice.base_scores)
    shipped = base
    rounds = []
    if context.config.rounds:
        found = split_rows(context, rows, choice.base_scores)
        shipped = _teacher(context, rows, choice.fitted.network(), choice.scores)
        student = Student(**vars(shipped), sound=choice.name != choice.base.name)
        rounds = [Round(1, base, found, student)]
    return MethodResult(base, tuple(rounds), tuple(context.engine.history), learners=choice.table())


def train_learner(context: Context) -> Teacher:
    """One learner of P against U, cut at the prior: the method's name is the learner's."""
    rows, choice = _chosen(context, [context.config.method])
    return _teacher(context, rows, choice.fitted.network(), choice.scores)


def train_elkan_noto(context: Context) -> Teacher:
    """The learners' probability of being labelled, divided by its mean over the labelled rows: no prior is needed."""
    rows, choice = _chosen(context, None)
    labelled = 1 / (1 + np.exp(-choice.scores[rows.labelled]))
    half = float(np.clip(labelled.mean() / 2, 1e-6, 1 - 1e-6))  # where the quotient is one half
    cut = float(np.log(half) - np.log1p(-half))
    return _teacher(context, rows, choice.fitted.network(), choice.scores, own_threshold=lambda _: cut)


def _chosen(context: Context, candidates: Sequence[Any] | None) -> tuple[Rows, Choice]:
    return choice_of(context.data, context.engine.seed, candidates if context.learner is None else [context.learner])


def _teacher(
    context: Context,
    rows: Rows,
    learner: LearnerNetwork,
    out_of_fold: Floats,
    own_threshold: OwnThreshold | None = None,
) -> Teacher:
    """The learner with its logits: of rows that it was taught those that were found out of fold."""
    network = LearnerBackbone(learner).to(context.engine.hardware.device).eval()
    logits = context.logits_of(network).double()
    logits[context.rows(rows.numbers)] = torch.as_tensor(out_of_fold, dtype=torch.float64, device=logits.device)
    return Teacher(network, context.threshold_for(logits, own_threshold), logits, key="")


def split_rows(context: Context, rows: Rows, out_of_fold: Floats) -> SplitResult:
    """Which unlabelled rows an early-stopped boosting takes up first, as the student's own split does."""
    data, tau = context.data, context.config.split.tau
    share = None if context.prior is None else _among_unlabelled(data, context.prior)
    posterior = posteriors(out_of_fold, rows.labelled, share)
    found = split(rows.features, rows.labelled, posterior, tau, seed=sklearn_seed(context.engine.seed))
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
