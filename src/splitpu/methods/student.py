"""The student: learns easy samples from the teacher's labels, and hard ones without them."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.config.schema import StudentConfig
from splitpu.engine.batches import Pool, proportional_count
from splitpu.engine.rows import joined
from splitpu.engine.stage import Batch, Stage
from splitpu.errors import SplitPUWarning
from splitpu.kernels import (
    feature_term,
    fused_consistency_applies,
    fused_terms_apply,
    label_terms,
    last_rows,
    low_level_term,
)
from splitpu.listening import NOT_TAKEN
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    prediction_consistency,
    soft_cross_entropy,
)
from splitpu.methods.context import Context, Student, Teacher
from splitpu.methods.members import Trained, as_one, member_names
from splitpu.methods.split import SplitResult
from splitpu.networks import Backbone
from splitpu.networks.backbone import Outputs
from splitpu.views import Views

_PREDICTOR_WIDTH = 512
_LEAST_AGREEMENT = 0.55  # mean over both labels; one answer for all rows would reach one half
_MORE_ATTEMPTS, _SLOWER = 2, 3.0  # each further attempt takes steps so many times as small as the one before


class StudentTask:
    """All loss terms of the student, over up to three groups of rows.

    Two groups are the easy rows and the labelled positives. The third holds the rows whose two views have to agree
    (`consistent`). Where the views of easy rows have to agree as well, the third group holds only the others (`rest`),
    and one view of an easy row serves both its label and the agreement.
    """

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
        self._weights: Tensor | None = None
        self._agreeing = ("easy", "rest") if _easy_rows_agree(config) else ("consistent",)
        q = teacher.probabilities.float()
        self.labels = q if config.labels == "soft" else (q > 0.5).float()

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for every view of every group, so that all share their batch-norm statistics."""
        seen = self._seen(batch, views, generator)
        outputs = self.network(seen)
        consistent = sum(len(batch[name].rows) for name in self._agreeing if name in batch)
        terms = self._label_terms(batch, self._in_order(batch, outputs.logit, consistent), consistent)
        if consistent:
            terms |= self._feature_terms(outputs, seen, consistent)
        names = [name for name in self.weights if name in terms]
        stacked = torch.stack([terms[name] for name in names])
        return {"loss": (stacked * self._weights_of(names, like=stacked)).sum(), **terms}

    def _seen(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> Tensor:
        """Rows with labels, then the consistent rows in weak views, and these once more in strong ones."""
        groups = {name: group.raw for name, group in batch.items()}
        consistent = [groups[name] for name in self._agreeing if name in groups]
        labelled = [groups[name] for name in ("easy", "positives") if name in groups and name not in self._agreeing]
        seen = []
        if self.config.label_views == "strong" and labelled:
            seen.append(views.strong(joined(labelled), generator))
            labelled = []
        if labelled or consistent:
            seen.append(views.weak(joined([*labelled, *consistent]), generator))
        if consistent:
            seen.append(views.strong(joined(consistent), generator))
        return torch.cat(seen)

    def _in_order(self, batch: Mapping[str, Batch], logit: Tensor, consistent: int) -> Tensor:
        """Logits of easy rows, positives, and consistent rows in weak and in strong views, one behind the other."""
        if "easy" not in self._agreeing or "easy" not in batch:
            return logit
        positives, weak, strong = torch.split(logit, [len(logit) - 2 * consistent, consistent, consistent])
        taught = strong if self.config.label_views == "strong" else weak
        return torch.cat([taught[: len(batch["easy"].rows)], positives, weak, strong])

    def _label_terms(self, batch: Mapping[str, Batch], logit: Tensor, consistent: int) -> dict[str, Tensor]:
        """What depends on logits alone: the losses of labels, and the consistency of predictions."""
        sizes = {name: len(batch[name].rows) for name in ("easy", "positives") if name in batch}
        sizes |= {"consistent": consistent, "strong": consistent} if consistent else {}
        kind, config = self.config.hard_loss, self.config
        fused: Mapping[str, Tensor] = {}
        if fused_terms_apply(self.module, logit):
            taught = batch["easy"].rows if "easy" in batch else batch["positives"].rows[:0]
            rho = config.rho if config.easy_loss == "js" else None
            counts = (len(taught), sizes["positives"], consistent)
            fused = label_terms(logit, self.labels, taught, counts, rho=rho, confidence=config.confidence)
        else:
            logit = logit.float()
        logits = dict(zip(sizes, torch.split(logit, list(sizes.values())), strict=True))

        def term(name: str, computed: Callable[[], Tensor]) -> dict[str, Tensor]:
            return {name: fused[name] if name in fused else computed()}

        terms = term("positive", lambda: _certain(logits["positives"]))
        if "easy" in batch:
            terms |= term("easy", lambda: self._easy_loss(logits["easy"], batch["easy"].rows))
            terms |= term("agreement", lambda: self._agreement(logits["easy"], batch["easy"].rows))
        if consistent and kind == "nnpu":
            risk = nnpu_risk(logits["positives"], logits["consistent"], self.prior)
            terms |= {"nnpu_objective": risk.objective, "nnpu": risk.value}
        if consistent and kind in ("self", "dual"):
            views = logits["consistent"], logits["strong"]
            terms |= term("prediction", lambda: prediction_consistency(*views, confidence=config.confidence))
        return terms

    def _easy_loss(self, logit: Tensor, rows: Tensor) -> Tensor:
        if self.config.easy_loss == "js":
            return generalised_jensen_shannon(logit, self.labels[rows], self.config.rho)
        return soft_cross_entropy(logit, self.labels[rows])

    def _agreement(self, logit: Tensor, rows: Tensor) -> Tensor:
        """How many easy samples the student already decides as their label says."""
        return ((logit > 0) == (self.labels[rows] > 0.5)).float().mean()

    def _feature_terms(self, outputs: Outputs, seen: Tensor, count: int) -> dict[str, Tensor]:
        """What depends on features of the consistent rows, the last of the batch in both views."""
        kind = self.config.hard_loss
        terms: dict[str, Tensor] = {}
        if kind in ("cross", "dual"):
            with torch.no_grad():
                teacher_low = self.teacher.low_features(seen[-2 * count :])
            terms["low"] = self._low_term(outputs, teacher_low)
        if kind in ("self", "dual"):
            terms["feature"] = self._feature_term(outputs.high[-2 * count :])
        return terms

    def _low_term(self, outputs: Outputs, teacher_low: Tensor) -> Tensor:
        fused = None
        if fused_consistency_applies(self.module, outputs.low, teacher_low):
            # Not where outputs were gathered from elsewhere: then nothing but this term moves them.
            own = self.network.low_gradient_is_own and isinstance(outputs, Outputs)
            fused = low_level_term(outputs.low, teacher_low, own_gradient=own)
        return low_level_consistency(last_rows(outputs.low, len(teacher_low)), teacher_low) if fused is None else fused

    def _feature_term(self, high: Tensor) -> Tensor:
        predicted, fused = self.predictor(high), None
        if fused_consistency_applies(self.module, predicted, high):
            fused = feature_term(predicted, high)
        return feature_consistency(*predicted.chunk(2), *high.chunk(2)) if fused is None else fused

    def _weights_of(self, names: list[str], like: Tensor) -> Tensor:
        """On the device from the first step on: a captured step must not copy anything to it."""
        if self._weights is None:
            self._weights = like.new_tensor([self.weights[name] for name in names])
        return self._weights


def _certain(logit: Tensor) -> Tensor:
    """The cross-entropy of rows that are known to be positive."""
    return soft_cross_entropy(logit, torch.ones_like(logit))


def feature_predictor(size: int) -> nn.Module:
    """The head that maps one view's feature to the other's."""
    return nn.Sequential(
        nn.Linear(size, _PREDICTOR_WIDTH, bias=False),
        nn.BatchNorm1d(_PREDICTOR_WIDTH),
        nn.ReLU(),
        nn.Linear(_PREDICTOR_WIDTH, size),
    )


def train_student(context: Context, teacher: Teacher, split: SplitResult, number: int) -> Student:
    """Train a fresh network on the split; if it is sound, it can be the next round's teacher.

    Members that learned nothing are left out of it. Where that would leave none, it is made of all of them and is not
    sound: it is not taken, but its figures are reported.
    """
    config = context.config.student
    for parameter in teacher.network.parameters():
        parameter.requires_grad_(False)
    teacher.network.eval()
    pools = _pools(context, split)

    # Easy rows once had views of their own for their labels; named here, checkpoints from that time are not taken up.
    shared = {"easy_rows": "agree as well"} if _easy_rows_agree(config) else {}

    def train_once(name: str, slower: float, **again: Any) -> Trained:
        network = context.fresh_network(name)
        predictor = context.fresh_head(lambda: feature_predictor(network.feature_dim), name)
        stage = Stage(
            name=name,
            task=StudentTask(network, predictor, teacher, context.known_prior, config),
            pools=pools,
            leading=next(group for group in ("easy", "rest", "consistent", "positives") if group in pools),
            epochs=config.epochs,
            optimiser=replace(config.optimiser, rate=config.optimiser.rate / slower),
            identity=context.identity(
                name, "student", "views", "threshold", teacher=teacher.key, split=split.key, **shared, **again
            ),
        )
        return network, context.train(stage, network)

    def train_one(name: str) -> tuple[Trained, bool]:
        trained = train_once(name, 1.0)
        for attempt in range(1, _MORE_ATTEMPTS + 1):
            if _learned(context, trained[0], teacher, split):
                return trained, True
            slower = _SLOWER**attempt
            warnings.warn(_trained_again(name, config.optimiser.rate / slower), SplitPUWarning, stacklevel=2)
            trained = train_once(f"{name}.again{attempt}", slower, again=attempt)
        return trained, _learned(context, trained[0], teacher, split)

    name = f"round{number}.student"
    members = {place: train_one(place) for place in member_names(context, name)}
    sound = [trained for trained, learned in members.values() if learned]
    lost = [place for place, (_, learned) in members.items() if not learned]
    for sentence in map(_left_out, lost) if sound else [_never_learned(name)]:
        warnings.warn(sentence, SplitPUWarning, stacklevel=2)
    joined_up = as_one(context, sound or [trained for trained, _ in members.values()])
    return Student(**vars(joined_up), sound=bool(sound))


def _learned(context: Context, network: Backbone, teacher: Teacher, split: SplitResult) -> bool:
    """Whether the student tells its easy samples apart as their labels do, at least somewhat.

    With few rows and large steps the labelled positives can pull every logit so far up that the easy loss, which is
    bounded, has no gradient left to pull back with. No true label is needed to notice: such a student gives all rows
    the same answer.
    """
    easy = context.rows(split.easy_rows)
    label = teacher.probabilities[easy] > 0.5
    if not label.any() or label.all():
        return True
    # In eval mode, as it will be used: with the statistics of each batch, as in training, it may still be right.
    decision = context.logits_of(network)[easy] > 0
    recalled = [float((decision == label)[label == kind].double().mean()) for kind in (True, False)]
    return sum(recalled) / 2 > _LEAST_AGREEMENT


def _trained_again(name: str, rate: float) -> str:
    return (
        f"{name}: the student says the same of nearly all samples, whatever their labels say; it is trained again with "
        f"smaller steps (student.optimiser.rate = {rate:.3g})."
    )


def _never_learned(name: str) -> str:
    return (
        f"{name}: after {_MORE_ATTEMPTS + 1} attempts the student still says the same of nearly all samples, so it "
        f"{NOT_TAKEN} and the model that taught it stays; for a student that learns, lower student.positive_weight or "
        "student.optimiser.rate."
    )


def _left_out(name: str) -> str:
    return (
        f"{name}: after {_MORE_ATTEMPTS + 1} attempts this member still says the same of nearly all samples, so it "
        f"{NOT_TAKEN} and the student is made of the other members; lower student.positive_weight or "
        "student.optimiser.rate to have all of them."
    )


def _pools(context: Context, split: SplitResult) -> dict[str, Pool]:
    """The groups of rows. A batch holds easy and hard rows in the proportion in which there are such."""
    config, data = context.config.student, context.data
    unlabelled = len(data.unlabelled)
    batch = min(config.batch_size, unlabelled)
    third, consistent = "consistent", split.hard_rows
    if _easy_rows_agree(config):
        third, consistent = "rest", split.rows[~split.taught]
    per_batch = config.positives_per_batch or proportional_count(len(data.positives), unlabelled, batch)
    pools = {"positives": Pool(data.positives, per_batch)}
    if len(split.easy_rows):
        pools["easy"] = Pool(split.easy_rows, proportional_count(len(split.easy_rows), unlabelled, batch))
    if len(consistent) and config.hard_loss != "none":
        pools[third] = Pool(consistent, proportional_count(len(consistent), unlabelled, batch))
    return pools


def _easy_rows_agree(config: StudentConfig) -> bool:
    """Whether the two views of easy rows have to agree as well, not only those of hard rows."""
    return config.consistency == "all" and config.hard_loss != "none"
