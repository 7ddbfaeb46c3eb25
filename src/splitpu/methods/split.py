"""The early-stopped split: what a temporary network learns first is easy, the rest hard; what a method hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig, SplitConfig
from splitpu.engine.stage import Batch, EpochRecord, Stage
from splitpu.kernels.loss_terms import fused_terms_apply, label_terms
from splitpu.losses import soft_cross_entropy
from splitpu.methods.common import one_pool, viewed
from splitpu.methods.context import Context, Student, Teacher
from splitpu.types import Floats, Mask, Rows
from splitpu.utils.warnings import warn_where_called
from splitpu.views import Views

_MORE_ATTEMPTS, _FASTER = 2, 3.0  # each further attempt takes steps so many times as large as the one before


@dataclass(frozen=True)
class SplitResult:
    """Which unlabelled samples are easy, and how that was found. Arrays run over the unlabelled rows, in order."""

    rows: Rows  # row numbers of the unlabelled samples
    agrees: Mask  # whether the temporary network has learned what it was taught
    easy: Mask  # learned, and among the surest where only these are asked for
    taught: Mask  # keeps its pseudo-label in the student's easy loss: easy, plus tails if asked for
    teacher_probability: Floats
    agreement: tuple[float, ...]  # with the teacher, after each epoch
    epoch: int  # the epoch whose agreement was used
    tau: float
    reached: bool  # whether the agreement rose above tau
    key: str

    @property
    def learned(self) -> bool:
        """Whether the temporary network reached tau, or at least agrees more than one answer for all rows would."""
        positive = float((self.teacher_probability > 0.5).mean())
        return self.reached or max(self.agreement) > max(positive, 1 - positive)

    @property
    def unsure(self) -> Mask:
        """Hard samples that were learned, but less surely than others."""
        return self.agrees & ~self.easy

    @property
    def easy_rows(self) -> Rows:
        """Row numbers that the easy loss sees."""
        return self.rows[self.taught]

    @property
    def hard_rows(self) -> Rows:
        return self.rows[~self.easy]

    def noise(self, truth: npt.NDArray[Any] | None) -> dict[str, float] | None:
        """Share of wrong pseudo-labels among easy, hard and all samples if the truth is known; only reported."""
        if truth is None:
            return None
        wrong = (self.teacher_probability > 0.5) != (truth[self.rows] == 1)
        groups = {"easy": self.easy, "hard": ~self.easy, "all": np.ones_like(self.easy)}
        return {name: float(wrong[mask].mean()) for name, mask in groups.items() if mask.any()}


class SplitTask:
    """Learn the teacher's labels with plain cross-entropy."""

    def __init__(self, network: nn.Module, labels: Tensor, config: SplitConfig) -> None:
        self.module, self.labels, self.config = network, labels, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        rows, raw = batch["rows"]
        logit = self.module(viewed(raw, views, generator, augment=self.config.augment)).logit
        if fused_terms_apply(self.module, logit):
            return {"loss": label_terms(logit, self.labels, rows, (len(rows), 0, 0), rho=None)["easy"]}
        return {"loss": soft_cross_entropy(logit, self.labels[rows])}


def split_unlabelled(context: Context, teacher: Teacher, number: int) -> SplitResult:
    """Train a temporary network on the teacher's labels until it agrees on more than tau of the unlabelled.

    A network that moves too slowly to learn anything is trained again with larger steps: what it agrees on is not what
    is easy, but what its random head happened to say."""
    if not context.config.split.enabled:
        rows = context.data.unlabelled
        easy = np.ones(len(rows), dtype=bool)
        q = teacher.probabilities[context.rows(rows)].double().cpu().numpy()
        return SplitResult(rows, easy, easy, easy, q, (), 0, context.config.split.tau, reached=True, key="no split")
    name, usual = f"round{number}.split{context.part}", context.config.split.optimiser
    result = _early_stopped(context, teacher, name, usual)
    for attempt in range(1, _MORE_ATTEMPTS + 1):
        if result.learned:
            break
        faster = replace(usual, rate=usual.rate * _FASTER**attempt)
        agreed = f"the temporary network agreed with the teacher on {max(result.agreement):.3f} of the samples at most"
        found = f"{name}: in {len(result.agreement)} epochs {agreed}, which the same answer for all would reach"
        warn_where_called(f"{found}; it is trained again with larger steps (split.optimiser.rate = {faster.rate:.3g}).")
        again = _early_stopped(context, teacher, f"{name}.again{attempt}", faster, again=attempt)
        result = max(result, again, key=lambda one: max(one.agreement))
    if not result.reached:
        never = f"never rose above tau = {result.tau:g} in {context.config.split.max_epochs} epochs"
        used = f"the best epoch ({result.epoch}, {max(result.agreement):.3f}) was used"
        advice = "Raise split.max_epochs or split.optimiser.rate, or lower split.tau."
        warn_where_called(f"{name}: agreement with the teacher {never}; {used}. {advice}")
    return result


def _early_stopped(context: Context, teacher: Teacher, name: str, how: OptimiserConfig, **again: int) -> SplitResult:
    """Train one temporary network, and split by the epoch in which it agreed with the teacher the most."""
    config, data = context.config.split, context.data
    probabilities = teacher.probabilities
    network = context.fresh_network(name)
    unlabelled = context.rows(data.unlabelled)
    decision = probabilities[unlabelled] > 0.5
    labels = probabilities.float().clone() if config.labels == "soft" else (probabilities > 0.5).float()
    labels[context.rows(data.positives)] = 1.0  # labelled positives are certain

    def after_epoch(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        logits = context.logits_of(network)[unlabelled]
        agrees = (logits > 0) == decision
        record.agreement = float(agrees.double().mean())
        if "agreement" not in memory or record.agreement > float(memory["agreement"]):
            memory["agreement"] = torch.tensor(record.agreement, dtype=torch.float64)
            memory["agrees"], memory["logits"] = agrees, logits
            memory["epoch"] = torch.tensor(record.epoch)
        return record.agreement > config.tau

    stage = Stage(
        name=name,
        task=SplitTask(network, labels, config),
        pools=one_pool(data.taught if config.include_positives else data.unlabelled, config.batch_size),
        leading="rows",
        epochs=config.max_epochs,
        optimiser=how,
        identity=context.identity(name, "split", "views", "threshold", teacher=teacher.key, **again),
        after_epoch=after_epoch,
        keeps_best_epoch=True,
    )
    outcome = context.engine.run(stage)
    agrees, logits = (outcome.memory[name].cpu() for name in ("agrees", "logits"))
    easy = _surest(agrees.numpy(), logits.double().numpy(), config)
    easy |= data.labels_known[data.unlabelled] != 0  # somebody looked: such a label is to be learned
    q = probabilities[unlabelled].double().cpu().numpy()
    taught = easy.copy()
    if config.tails > 0 and not easy.all():  # and the hard samples about which the teacher is surest, at each end
        low, high = np.quantile(q[~easy], [config.tails, 1 - config.tails])
        taught |= (q <= low) | (q >= high)
    return SplitResult(
        rows=data.unlabelled,
        agrees=agrees.numpy(),
        easy=easy,
        taught=taught,
        teacher_probability=q,
        agreement=tuple(float(r.agreement or 0.0) for r in outcome.history),
        epoch=int(outcome.memory["epoch"]),
        tau=config.tau,
        reached=float(outcome.memory["agreement"]) > config.tau,
        key=stage.key,
    )


def _surest(agrees: Mask, logits: Floats, config: SplitConfig) -> Mask:
    """The agreeing samples of which the temporary network is surest: of either label the share asked for."""
    easy = np.zeros_like(agrees)
    for sign, share in ((1, config.surest_positives), (-1, config.surest_negatives)):
        rows = np.flatnonzero(agrees & ((logits > 0) == (sign > 0)))
        surest_first = rows[np.argsort(-sign * logits[rows], kind="stable")]
        easy[surest_first[: round(share * len(rows))]] = True
    return easy


@dataclass(frozen=True)
class Round:
    """One round of Split-PU: its teacher, the split that the teacher's labels led to, and the student trained on it."""

    number: int
    teacher: Teacher
    split: SplitResult
    student: Student

    @property
    def taken(self) -> bool:
        """Whether the student took its teacher's place; one that learned nothing does not."""
        return self.student.sound


@dataclass(frozen=True)
class MethodResult:
    """Everything a run found. Only Split-PU has rounds; for any other method the base is the one model there is."""

    base: Teacher
    rounds: tuple[Round, ...]
    history: tuple[EpochRecord, ...]
    learners: list[dict[str, Any]] | None = None  # of learners for tables: each candidate, how it ranks out of fold

    @property
    def learner_names(self) -> tuple[str, str]:
        """Of learners for tables: the best single one, which is the base, and what was better than it, if anything."""
        rows = self.learners or []
        base = next(row["learner"] for row in rows if row["gain_over_base"] is None)
        return base, " + ".join(row["learner"] for row in rows if row["chosen"])

    @property
    def final(self) -> Teacher:
        """The model to use: the last student that was taken, or the base model when there is none."""
        return next((found.student for found in reversed(self.rounds) if found.taken), self.base)
