"""Self-PU: two students and their averaged teachers; rows that a student is sure of are taken out of the risk."""

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from splitpu.config.schema import SelfPUConfig
from splitpu.engine.stage import Batch, EpochRecord
from splitpu.losses import nnpu_risk, soft_cross_entropy
from splitpu.methods.common import Carrier, follow, positives_first, two_pool_stage, viewed
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone
from splitpu.views import Views

_NOT_TRUSTED = -1.0  # stands where a trusted row has its label


def partly_trusted_risk(positive_logit: Tensor, population_logit: Tensor, trusted: Tensor, prior: float) -> Tensor:
    """Return what to minimise: nnPU over the untrusted rows and cross-entropy over the trusted, each by its share.

    `trusted` holds the label of a trusted row and -1 for the others."""
    is_trusted = (trusted >= 0).float()
    share = is_trusted.mean()
    risk = nnpu_risk(positive_logit, population_logit, prior, weight=1 - is_trusted)  # counts for nothing at share 1
    labels = soft_cross_entropy(population_logit, trusted.clamp_min(0.0), weight=is_trusted)
    return (1 - share) * risk.objective + share * labels


def gated_agreement(logit: Tensor, other: Tensor, loss: Tensor, limit: float) -> Tensor:
    """Return the mean squared difference of two students' probabilities while it is below `limit` of the loss."""
    difference = functional.mse_loss(torch.sigmoid(logit), torch.sigmoid(other.detach()))
    return difference * (difference < limit * loss).detach()


class SelfPUTask:
    """The losses of both students, and the teachers' averages."""

    def __init__(self, students: list[Backbone], rows: int, prior: float, config: SelfPUConfig) -> None:
        self.students, self.prior, self.config = students, prior, config
        self.teachers = [copy.deepcopy(student).requires_grad_(False) for student in students]
        device = next(students[0].parameters()).device
        roles = {"student": students, "teacher": self.teachers}
        self.module = Carrier(
            {f"{role}{i}": network for role, networks in roles.items() for i, network in enumerate(networks)},
            trusted=torch.full((len(students), rows), _NOT_TRUSTED, device=device),
            following=torch.zeros((), device=device),  # rises from 0 to 1 when students begin to follow their teachers
            averaged=torch.zeros((), device=device),  # steps since they began
        )

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One view of all rows for all four networks."""
        # Teachers move towards their students: nearly all the way until students follow them, then ever less.
        steps = self.module.state("averaged")
        for student, teacher in zip(self.students, self.teachers, strict=True):
            follow(teacher, student, steps, self.config.teacher_average)
        steps.add_(self.module.state("following") > 0)
        joined, count = positives_first(batch)
        inputs = viewed(joined.raw, views, generator, augment=self.config.augment)
        logits = [student(inputs).logit.float() for student in self.students]
        with torch.no_grad():
            taught = [teacher(inputs).logit.float() for teacher in self.teachers]
        trusted, following = self.module.state("trusted"), self.module.state("following")
        risks, agreements, lessons = [], [], []
        for number, logit in enumerate(logits):
            labels = trusted[number, joined.rows[count:]]
            risk = partly_trusted_risk(logit[:count], logit[count:], labels, self.prior)
            limit = self.config.agreement_limit
            risks.append(risk)
            agreements.append(gated_agreement(logit[count:], logits[1 - number][count:], risk, limit))
            lessons.append(functional.mse_loss(torch.sigmoid(logit), torch.sigmoid(taught[number])) * following)
        of_both = {"risk": risks, "agreement": agreements, "teacher": lessons}
        terms = {name: torch.stack(parts).sum() for name, parts in of_both.items()}
        loss = terms["risk"] + terms["agreement"] + self.config.teacher_weight * terms["teacher"]
        return {"loss": loss, **terms, "trusted": (trusted >= 0).float().mean()}


def train_self_pu(context: Context) -> Teacher:
    """Train the students; the first one's teacher, an average of its weights, is the model."""
    config, prior = context.config.self_pu, context.known_prior
    rows = context.rows(context.data.unlabelled)
    students = [context.fresh_network(f"self-pu.student{i}") for i in range(2)]
    task = SelfPUTask(students, len(context.data), prior, config)

    def look_again(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        share = trusted_share(config, record.epoch, record.epochs)
        if share is not None:
            positive, negative = (round(share * part * len(rows)) for part in (prior, 1 - prior))
            for number, student in enumerate(students):
                # The surest rows at both ends, in the proportion of the prior, so that the others keep that prior.
                logits = context.logits_of(student)
                ordered = rows[logits[rows].argsort(stable=True)]
                labels = torch.full_like(logits, _NOT_TRUSTED)
                labels[ordered[:negative]] = 0.0
                labels[ordered[len(ordered) - positive :]] = 1.0
                task.module.state("trusted")[number].copy_(labels)
        task.module.state("following").fill_(following_weight(config, record.epoch, record.epochs))
        return False

    stage = two_pool_stage(context, "self-pu", task, "self_pu", config, after_epoch=look_again)
    context.engine.run(stage)
    return context.as_teacher(task.teachers[0], stage.key)


def trusted_share(config: SelfPUConfig, epoch: int, epochs: int) -> float | None:
    """The share of rows to trust from this epoch on, or None where nothing changes."""
    first, last = (max(1, round(share * epochs)) for share in (config.trust_from, config.trust_until))
    every = max(1, round(config.trust_every * epochs))
    if not first <= epoch <= last or (epoch - first) % every:
        return None
    times = (last - first) // every + 1
    return config.trust_share * ((epoch - first) // every + 1) / times


def following_weight(config: SelfPUConfig, epoch: int, epochs: int) -> float:
    """How much of `teacher_weight` counts after this epoch. It rises slowly, as teachers are no better at first."""
    since = epoch - config.teacher_from * epochs
    if since < 0:
        return 0.0
    rise = config.teacher_ramp * epochs
    missing = max(0.0, 1 - since / rise) if rise > 0 else 0.0
    return math.exp(-5 * missing**2)
