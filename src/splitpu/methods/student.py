"""The student: learns easy samples from the teacher's labels, and hard ones without them."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.config.schema import StudentConfig
from splitpu.engine.batches import Pool, proportional_count
from splitpu.engine.stage import Batch, Stage
from splitpu.errors import SplitPUWarning
from splitpu.kernels import last_rows
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    prediction_consistency,
    soft_cross_entropy,
)
from splitpu.methods.context import Context, Teacher
from splitpu.methods.members import train_members
from splitpu.methods.split import SplitResult
from splitpu.networks import Backbone
from splitpu.views import Views

_PREDICTOR_WIDTH = 512
_LEAST_AGREEMENT = 0.55  # mean over both labels; one half is what saying one thing of everything gives
_MORE_ATTEMPTS, _SLOWER = 2, 3.0


class StudentTask:
    """All loss terms of the student, over up to three groups of rows: easy, positives, consistent."""

    def __init__(
        self, network: Backbone, predictor: nn.Module, teacher: Teacher, prior: float, config: StudentConfig
    ) -> None:
        self.module = nn.ModuleDict({"network": network, "predictor": predictor})
        self.network, self.predictor = network, predictor
        self.teacher, self.prior, self.config = teacher.network, prior, config
        # Terms that are not named here are reported only.
        self.weights = {
            "easy": 1.0,
            "positive": config.positive_weight,
            "nnpu_objective": 1.0,
            "low": config.low_weight,
            "prediction": config.alpha,
            "feature": config.beta,
        }
        q = teacher.probabilities.float()
        self.labels = q if config.labels == "soft" else (q > 0.5).float()

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for every view of every group, so that all share their batch-norm statistics."""
        groups = [name for name in ("easy", "positives", "consistent") if name in batch]
        seen = self._seen(batch, groups, views, generator)
        outputs = self.network(seen)
        sizes = [len(batch[name].rows) for name in groups]
        if "consistent" in batch:
            sizes.append(sizes[-1])
        logits = dict(zip([*groups, "strong"], outputs.logit.float().split(sizes), strict=False))
        terms = self._label_terms(batch, logits)
        if "consistent" in batch:
            count = sizes[-1]
            low, high = last_rows(outputs.low, 2 * count), outputs.high[-2 * count :]
            terms |= self._hard_terms(logits, seen[-2 * count :], low, high)
        loss = torch.stack([self.weights[name] * terms[name] for name in self.weights if name in terms]).sum()
        return {"loss": loss, **terms}

    def _seen(self, batch: Mapping[str, Batch], groups: list[str], views: Views, generator: torch.Generator) -> Tensor:
        """The groups in their order, and at the end the consistent rows once more, in strong views."""
        strong = [name for name in groups if name != "consistent" and self.config.label_views == "strong"]
        weak = [name for name in groups if name not in strong]  # the last of the groups, or all of them
        seen = []
        if strong:
            seen.append(views.strong(torch.cat([batch[name].raw for name in strong]), generator))
        if weak:
            seen.append(views.weak(torch.cat([batch[name].raw for name in weak]), generator))
        if "consistent" in batch:
            seen.append(views.strong(batch["consistent"].raw, generator))
        return torch.cat(seen)

    def _label_terms(self, batch: Mapping[str, Batch], logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        terms = {"positive": soft_cross_entropy(logits["positives"], torch.ones_like(logits["positives"]))}
        if "easy" in batch:
            target = self.labels[batch["easy"].rows]
            if self.config.easy_loss == "js":
                terms["easy"] = generalised_jensen_shannon(logits["easy"], target, self.config.rho)
            else:
                terms["easy"] = soft_cross_entropy(logits["easy"], target)
            # How many easy samples the student already decides as their label says.
            terms["agreement"] = ((logits["easy"] > 0) == (target > 0.5)).float().mean()
        return terms

    def _hard_terms(self, logits: Mapping[str, Tensor], inputs: Tensor, low: Tensor, high: Tensor) -> dict[str, Tensor]:
        kind = self.config.hard_loss
        terms: dict[str, Tensor] = {}
        if kind == "nnpu":
            risk = nnpu_risk(logits["positives"], logits["consistent"], self.prior)
            terms |= {"nnpu_objective": risk.objective, "nnpu": risk.value}
        if kind in ("cross", "dual"):
            with torch.no_grad():
                teacher_low = self.teacher.low_features(inputs)
            terms["low"] = low_level_consistency(low, teacher_low)
        if kind in ("self", "dual"):
            weak_logit, strong_logit = logits["consistent"], logits["strong"]
            terms["prediction"] = prediction_consistency(weak_logit, strong_logit, confidence=self.config.confidence)
            predicted_weak, predicted_strong = self.predictor(high).chunk(2)
            weak, strong = high.chunk(2)
            terms["feature"] = feature_consistency(predicted_weak, predicted_strong, weak, strong)
        return terms


def feature_predictor(size: int) -> nn.Module:
    """The head that maps one view's feature to the other's."""
    return nn.Sequential(
        nn.Linear(size, _PREDICTOR_WIDTH, bias=False),
        nn.BatchNorm1d(_PREDICTOR_WIDTH),
        nn.ReLU(),
        nn.Linear(_PREDICTOR_WIDTH, size),
    )


def train_student(context: Context, teacher: Teacher, split: SplitResult, number: int) -> Teacher:
    """Train a fresh network on the split; it can be the next round's teacher."""
    config = context.config.student
    for parameter in teacher.network.parameters():
        parameter.requires_grad_(False)
    teacher.network.eval()
    pools = _pools(context, split)

    def train_once(name: str, slower: float, **again: Any) -> tuple[Backbone, str]:
        network = context.fresh_network(name)
        predictor = context.fresh_head(lambda: feature_predictor(network.feature_dim), name)
        stage = Stage(
            name=name,
            task=StudentTask(network, predictor, teacher, context.known_prior, config),
            pools=pools,
            leading=next(group for group in ("easy", "consistent", "positives") if group in pools),
            epochs=config.epochs,
            optimiser=replace(config.optimiser, rate=config.optimiser.rate / slower),
            identity=context.identity(
                name, "student", "views", "threshold", teacher=teacher.key, split=split.key, **again
            ),
        )
        return network, context.train(stage, network)

    def train_one(name: str) -> tuple[Backbone, str]:
        network, key = train_once(name, 1.0)
        for attempt in range(1, _MORE_ATTEMPTS + 1):
            if _learned(context, network, teacher, split):
                break
            slower = _SLOWER**attempt
            warnings.warn(_nothing_learned(name, config.optimiser.rate / slower), SplitPUWarning, stacklevel=2)
            network, key = train_once(f"{name}.again{attempt}", slower, again=attempt)
        return network, key

    return train_members(context, f"round{number}.student", train_one)


def _learned(context: Context, network: Backbone, teacher: Teacher, split: SplitResult) -> bool:
    """Whether the student tells its easy samples apart at all, as their labels do.

    With few rows and large steps the labelled positives can pull every logit so far up that the easy loss, which is
    bounded, has no gradient left to pull with. No true label is needed to see that: such a student says one thing of
    everything.
    """
    easy = context.rows(split.easy_rows)
    label = teacher.probabilities[easy] > 0.5
    if not label.any() or label.all():
        return True
    share = float(label.double().mean())
    if context.engine.history[-1].terms.get("agreement", 0.0) > max(share, 1 - share):
        return True  # more than saying one thing can reach, so the rows need not be looked at again
    decision = context.logits_of(network)[easy] > 0
    recalled = [float((decision == label)[label == kind].double().mean()) for kind in (True, False)]
    return sum(recalled) / 2 > _LEAST_AGREEMENT


def _nothing_learned(name: str, rate: float) -> str:
    return (
        f"{name}: the student says the same of nearly all samples, whatever their labels say; it is trained again with "
        f"smaller steps (student.optimiser.rate = {rate:g})."
    )


def _pools(context: Context, split: SplitResult) -> dict[str, Pool]:
    """A batch shows the unlabelled in proportion: as large a share of easy and hard ones as there are."""
    config, data = context.config.student, context.data
    unlabelled = len(data.unlabelled)
    batch = min(config.batch_size, unlabelled)
    consistent = data.unlabelled if config.consistency == "all" else split.hard_rows
    per_batch = config.positives_per_batch or proportional_count(len(data.positives), unlabelled, batch)
    pools = {"positives": Pool(data.positives, per_batch)}
    if len(split.easy_rows):
        pools["easy"] = Pool(split.easy_rows, proportional_count(len(split.easy_rows), unlabelled, batch))
    if len(consistent) and config.hard_loss != "none":
        pools["consistent"] = Pool(consistent, proportional_count(len(consistent), unlabelled, batch))
    return pools
