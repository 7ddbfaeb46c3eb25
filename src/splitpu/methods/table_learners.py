"""Split-PU with learners for tables in place of networks, and such learners as methods of their own.

Everything a training says of its own rows is said out of fold: a row's logit is that of learners that never saw it.
So the threshold, the figures without known negatives and the choice between base and student are honest without any
rows being kept back. Only the model that is shipped has learned from all of them."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from splitpu.config.schema import ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.data.pudata import PUData
from splitpu.data.sparse_rows import is_sparse
from splitpu.engine.stage import CountedEpochs, Observer
from splitpu.errors import SplitPUWarning
from splitpu.evaluation.metrics import among_unlabelled
from splitpu.evaluation.ranking import share_for_f1
from splitpu.learners.auto import Candidate, Choice, choose, joined, taught_answers
from splitpu.learners.biased_labels import BiasedLabels
from splitpu.learners.crossfit import Task, auc_of, fold_numbers, out_of_fold
from splitpu.learners.learner_networks import LearnerBackbone, LearnerNetwork, PerceptronNetwork
from splitpu.learners.split_learner import posteriors, split
from splitpu.methods.context import Context, OwnThreshold, Student, Teacher
from splitpu.methods.split import MethodResult, Round, SplitResult
from splitpu.methods.thresholds import matched_threshold
from splitpu.prior.from_scores import FEWEST_POSITIVES, FEWEST_UNLABELLED
from splitpu.types import Floats, Mask
from splitpu.utils.arrays import log_odds, sklearn_seed
from splitpu.views import Views

AUTO = "auto"
NETWORK_ROWS, NETWORK_COLUMNS = 600, 500  # up to so many, networks are tried beside the learners


@dataclass(frozen=True)
class Rows:
    """What learners are given: the rows that may be taught, standardised as the model will be given them.

    Sparse rows are given as they are: a column of which the mean is taken off has a number in every row."""

    features: Any  # an array of numbers, or a CSR matrix
    labelled: Mask
    numbers: Any  # which rows of the data they are
    given: Mapping[str, Any] = field(default_factory=dict)  # weights and groups, where there are some

    @classmethod
    def of(cls, data: PUData) -> "Rows":
        """The taught rows of the data, on the CPU: the same numbers whatever the model is trained on."""
        given = {"sample_weight": data.sample_weight, "groups": data.groups}
        given = {name: None if one is None else one[data.taught] for name, one in given.items()}
        if is_sparse(data.features):
            kept = data.features.tocsr() if data.aside is None else data.features.tocsr()[data.taught]
            return cls(kept.astype(np.float64), data.labelled[data.taught], data.taught, given)
        preprocessing = Preprocessing.fit(data.features)
        raw = torch.from_numpy(np.ascontiguousarray(data.features[data.taught]))
        plain = Views(preprocessing, ViewsConfig(), torch.device("cpu")).plain(raw).numpy()
        flat = plain.reshape(len(plain), -1).astype(np.float64)
        return cls(flat, data.labelled[data.taught], data.taught, given)


class _Latest:
    """The last choice that was made: the prior is estimated from the very scores that the model is chosen by."""

    key: tuple[Any, ...] = ()
    found: tuple[Rows, Choice] | None = None


def choice_of(
    data: PUData, seed: int, candidates: Sequence[Any] | None = None, observer: Observer | None = None
) -> tuple[Rows, Choice]:
    """The learners for these rows, and the rows as the learners see them; the same question is answered once."""
    data = replace(data, answers=None)  # which are no part of the question: they are learned afterwards
    key = (data.fingerprint(), seed, None if candidates is None else tuple(map(repr, candidates)))
    if _Latest.key != key or _Latest.found is None:
        rows = Rows.of(data)
        how = {"seed": sklearn_seed(seed), "watch": (observer or Observer()).watch, **rows.given}
        choice = choose(rows.features, rows.labelled, candidates=candidates, **how)
        _Latest.key, _Latest.found = key, (rows, choice)
    return _Latest.found


def run_split_learners(context: Context) -> MethodResult:
    """Choose a base, split by it; a student or a mean of several is taken only where it ranks better out of fold."""
    rows, choice = _chosen(context, None if context.config.learner == AUTO else [context.config.learner])
    base = _teacher(context, rows, choice.base_fitted.as_network(), choice.base_scores)
    shipped = base
    rounds = []
    if context.config.rounds:
        if _tries_networks(context, rows):
            choice = joined(choice, _network_candidate(context, rows), rows.labelled)
        found = split_rows(context, rows, choice.base_scores)
        shipped = _teacher(context, rows, choice.fitted.as_network(), choice.scores)
        student = Student(**vars(shipped), sound=choice.name != choice.base.name)
        rounds = [Round(1, base, found, student)]
    return MethodResult(base, tuple(rounds), tuple(context.engine.history), learners=choice.table())


def _tries_networks(context: Context, rows: Rows) -> bool:
    """Few rows train networks in seconds, and there they may rank best; with many the learners leave them behind."""
    data = context.data
    plain = data.sample_weight is None and data.groups is None and data.kind == "vectors" and not data.is_sparse
    few = rows.features.shape[0] <= NETWORK_ROWS and rows.features.shape[1] <= NETWORK_COLUMNS
    wanted = context.config.learner == AUTO and context.learner is None and context.prior is not None
    return wanted and plain and few


@dataclass(frozen=True)
class NetworkLearner:
    """The whole method with networks, as a learner: fitting it trains base, split and student."""

    context: Context
    name: str = "network, split"

    def fit(self, rows: Any, target: Any, *, sample_weight: Floats | None = None, seed: int = 0) -> PerceptronNetwork:
        """Train on these rows, with the prior of the run."""
        from splitpu.training import Runtime, TrainSpec, train

        run = self.context
        data = PUData.from_arrays(rows, np.asarray(target) == 1, scenario=run.data.scenario)
        if (np.asarray(target) < 0).any():
            data = data.answered(negatives=np.asarray(target) < 0)
        labelled = data.labelled_share if data.scenario == "single-training-set" else 0.0
        prior = max(run.known_prior, labelled + 0.5 / len(data))  # a fold may by chance have more labels than that
        spec = TrainSpec(config=replace(run.config, learner="network"), prior=prior, seed=run.engine.seed)
        with warnings.catch_warnings():  # about a model that may not be taken, or is part of a mean
            warnings.simplefilter("ignore", SplitPUWarning)
            observer = CountedEpochs(run.engine.observer.watch, run.engine.observer.should_stop, "networks tried, ")
            runtime = Runtime(device=run.engine.hardware.device.type, observer=observer)
            model = train(data, spec, runtime).model
        found = PerceptronNetwork(rows.shape[1]).filled(centre=model.preprocessing.mean, scale=model.preprocessing.std)
        found.network.load_state_dict(model.final.network.state_dict())
        return found


def _network_candidate(context: Context, rows: Rows) -> Candidate:
    started, learner = time.perf_counter(), NetworkLearner(context)
    folds = fold_numbers(rows.labelled, 3, sklearn_seed(context.engine.seed))
    known = rows.labelled if context.data.answers is None else context.data.labels_known[rows.numbers]
    scores = out_of_fold(learner, Task(rows.features, known), folds)
    fitted = learner.fit(rows.features, known)
    spent = time.perf_counter() - started
    return Candidate(learner.name, learner, auc_of(scores, rows.labelled), spent, scores, fitted=fitted)


def train_learner(context: Context) -> Teacher:
    """One learner of P against U, cut at the prior: the method's name is the learner's."""
    rows, choice = _chosen(context, [context.config.method])
    return _teacher(context, rows, choice.fitted.as_network(), choice.scores)


def train_elkan_noto(context: Context) -> Teacher:
    """The learners' probability of being labelled, divided by its mean over the labelled rows: no prior is needed."""
    rows, choice = _chosen(context, None)
    labelled = 1 / (1 + np.exp(-choice.scores[rows.labelled]))
    cut = float(log_odds(labelled.mean() / 2, 1e-6))  # where the quotient is one half
    return _teacher(context, rows, choice.fitted.as_network(), choice.scores, own_threshold=lambda _: cut)


def train_sar_em(context: Context) -> Teacher:
    """Learners that are taught which rows are positive by a model that knows by which columns labels were given."""
    rows, choice = _chosen(context, [BiasedLabels(context.data.features_of(context.config.labelled_by))])
    return _teacher(context, rows, choice.fitted.as_network(), choice.scores)


def _chosen(context: Context, candidates: Sequence[Any] | None) -> tuple[Rows, Choice]:
    data, seed = context.data, context.engine.seed
    candidates = candidates if context.learner is None else [context.learner]
    rows, choice = choice_of(data, seed, candidates, context.engine.observer)
    if data.answers is not None:
        answers, share = data.answers[data.taught], _share_among_unlabelled(context)
        how = {"share": share, "seed": sklearn_seed(seed), **rows.given}
        choice = taught_answers(choice, rows.features, rows.labelled, answers, **how)
    return rows, choice


def _teacher(
    context: Context,
    rows: Rows,
    learner: LearnerNetwork,
    out_of_fold: Floats,
    own_threshold: OwnThreshold | None = None,
) -> Teacher:
    """The learner with its logits: of rows that it was taught those that were found out of fold."""
    network = LearnerBackbone(learner).to(context.engine.hardware.device).eval()
    told = torch.as_tensor(out_of_fold, dtype=torch.float64, device=context.engine.hardware.device)
    logits = told.clone() if context.data.aside is None else context.logits_of(network).double()
    logits[context.rows(rows.numbers)] = told
    return Teacher(network, _threshold(context, logits, own_threshold), logits, key="")


def _threshold(context: Context, logits: torch.Tensor, own: OwnThreshold | None) -> float:
    """Where the learner is cut; for the highest F1 only if that is asked for and enough rows can tell."""
    data = context.data
    known = len(data.positives) >= FEWEST_POSITIVES and len(data.unlabelled) >= FEWEST_UNLABELLED
    if context.config.threshold != "f1" or context.prior is None or not known:
        return context.threshold_for(logits, own)
    best = share_for_f1(logits.cpu().numpy(), data.labelled, context.prior, data.scenario)
    # Few positives tell roughly where F1 is highest, and a learner that ranks badly has it where nearly all rows are
    # called. The middle between that share and the prior has on development tables the F1 of a cut at 1.5 times the
    # prior at most, and is right more often in all (docs/LOG.md).
    return matched_threshold(logits[context.rows(data.population)], math.sqrt(best * context.prior))


def _share_among_unlabelled(context: Context) -> float | None:
    """The share of positives among U that the prior means; None without one."""
    data = context.data
    if context.prior is None:
        return None
    meant = among_unlabelled(context.prior, len(data.positives), len(data.unlabelled), data.scenario)
    return float(np.clip(meant, 1e-6, 1 - 1e-6))


def split_rows(context: Context, rows: Rows, out_of_fold: Floats) -> SplitResult:
    """Which unlabelled rows an early-stopped boosting takes up first, as the student's own split does."""
    tau, answers = context.config.split.tau, context.data.answers
    posterior = posteriors(out_of_fold, rows.labelled, _share_among_unlabelled(context))
    if answers is not None:
        said = answers[rows.numbers]
        posterior = np.where(said == 0, posterior, said > 0)
    found = split(rows.features, rows.labelled, posterior, tau, seed=sklearn_seed(context.engine.seed))
    unlabelled = ~rows.labelled
    easy = found.easy[unlabelled]
    if answers is not None:
        easy = easy | (answers[rows.numbers][unlabelled] != 0)
    agreed = found.agreement
    how: dict[str, Any] = {"agreement": (agreed,), "epoch": found.stages, "tau": tau, "reached": agreed > tau}
    which: dict[str, Any] = {"rows": rows.numbers[unlabelled], "agrees": easy, "easy": easy, "taught": easy}
    return SplitResult(**which, teacher_probability=posterior[unlabelled], **how, key="")
