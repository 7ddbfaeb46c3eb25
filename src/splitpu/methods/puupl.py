"""PUUPL: an ensemble under the nnPU risk, trained anew every round with its own labels where it was certain."""

from collections.abc import Mapping

import torch
from torch import Tensor

from splitpu.config.schema import PUUPLConfig
from splitpu.engine.stage import Batch
from splitpu.losses import nnpu_risk, soft_cross_entropy
from splitpu.methods.common import positives_first, two_pools, viewed
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone, Ensemble
from splitpu.views import Views


def mutual_information(probabilities: Tensor) -> Tensor:
    """Return what the members (first axis) disagree about: entropy of their mean less the mean of their entropies."""

    def entropy(probability: Tensor) -> Tensor:
        both: Tensor = torch.special.entr(probability) + torch.special.entr(1 - probability)  # zero at both ends
        return both

    return (entropy(probabilities.mean(0)) - entropy(probabilities).mean(0)).clamp_min(0.0)


class PUUPLTask:
    """Every member on batches of its own: the nnPU risk of all rows, and cross-entropy on those with a label."""

    def __init__(
        self, members: list[Backbone], labels: Tensor, has_label: Tensor, prior: float, config: PUUPLConfig
    ) -> None:
        self.module = Ensemble(members)
        self.members, self.labels, self.has_label = members, labels, has_label.float()
        self.prior, self.config = prior, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """The members' losses, added up: their weights have nothing in common, so that each follows its own."""
        risks, values, labelling = [], [], []
        for number, member in enumerate(self.members):
            joined, count = positives_first({name: batch[f"{name}{number}"] for name in ("positives", "population")})
            logit = member(viewed(joined.raw, views, generator, augment=self.config.augment)).logit.float()
            rows = joined.rows[count:]
            risk = nnpu_risk(logit[:count], logit[count:], self.prior)
            risks.append(risk.objective)
            values.append(risk.value)
            labelling.append(soft_cross_entropy(logit[count:], self.labels[rows], weight=self.has_label[rows]))
        share = self.config.risk_weight
        loss = share * torch.stack(risks).sum() + (1 - share) * torch.stack(labelling).sum()
        return {"loss": loss, "risk": torch.stack(values).mean(), "labels": torch.stack(labelling).mean()}


def train_puupl(context: Context) -> Teacher:
    """Train the rounds; the last ensemble is the model."""
    config, count = context.config.puupl, len(context.data)
    labels = torch.zeros(count, device=context.engine.hardware.device)
    has_label = torch.zeros_like(labels, dtype=torch.bool)
    key = ""
    for number in range(1, config.rounds + 1):
        name = f"puupl.round{number}"
        members = [context.fresh_network(f"{name}.member{i}") for i in range(config.members)]
        task = PUUPLTask(members, labels, has_label, context.known_prior, config)
        own = two_pools(context, config)
        pools = {f"{pool}{i}": rows for i in range(config.members) for pool, rows in own.items()}
        stage = context.stage(name, task, pools, "population0", config, "puupl", before=key)
        context.engine.run(stage)
        key = stage.key
        if number < config.rounds:
            labels, has_label = next_labels(context, task.module, has_label)
    return context.as_teacher(task.module, key)


def next_labels(context: Context, ensemble: Ensemble, before: Tensor) -> tuple[Tensor, Tensor]:
    """The ensemble's soft labels, and which rows carry them: those that had one and did not become doubtful, and new
    ones of which the ensemble is most certain, the same number of each class."""
    config, data = context.config.puupl, context.data
    probabilities = torch.sigmoid(torch.stack([context.logits_of(member) for member in ensemble.members]))
    mean, doubt = probabilities.mean(0), mutual_information(probabilities)
    kept = before & (doubt <= config.doubtful)
    free = torch.zeros_like(before)
    free[context.rows(data.unlabelled)] = True  # not the rows set aside: nobody would train on their labels
    free &= ~before & (doubt < config.certain)
    classes = [free & (mean > 0.5), free & (mean <= 0.5)]
    each = min(config.per_round // 2, *(int(members.sum()) for members in classes))
    for members in classes:
        candidates = members.nonzero().squeeze(1)
        kept[candidates[doubt[candidates].argsort(stable=True)[:each]]] = True
    return mean, kept
