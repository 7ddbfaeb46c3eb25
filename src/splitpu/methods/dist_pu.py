"""Dist-PU: mean predictions that match the prior, decided ones, and consistent ones on mixed rows."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splitpu.config.schema import DistPUConfig
from splitpu.engine.stage import Batch, EpochRecord
from splitpu.losses import prediction_entropy, soft_cross_entropy
from splitpu.methods import common
from splitpu.methods.context import Context, Teacher
from splitpu.networks.backbones import Backbone
from splitpu.views import Views

_LARGEST_LOGIT = 10.0


def distribution_loss(positive_logit: Tensor, population_logit: Tensor, prior: float) -> Tensor:
    """Return `|mean_P s - 1| + |mean_U s - prior| / (2 prior)`: zero when predictions are distributed as labels are."""
    on_positives = (torch.sigmoid(positive_logit).mean() - 1).abs()
    return on_positives + (torch.sigmoid(population_logit).mean() - prior).abs() / (2 * prior)


class DistributionTask:
    """The first part: match the distribution, and decide."""

    def __init__(self, network: Backbone, prior: float, config: DistPUConfig) -> None:
        self.module, self.prior, self.config = network, prior, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        joined, count = common.positives_first(batch)
        logit = _clamped(self.module(common.viewed(joined.raw, views, generator, augment=self.config.augment)).logit)
        distribution = distribution_loss(logit[:count], logit[count:], self.prior)
        entropy = prediction_entropy(logit[count:])
        loss = distribution + self.config.warmup_entropy * entropy
        return {"loss": loss, "distribution": distribution, "entropy": entropy}


class MixingTask:
    """The second part: besides, predict on mixed rows what was predicted on their parts an epoch ago."""

    def __init__(
        self, network: Backbone, labels: Tensor, mixing: common.MixingWeights, prior: float, config: DistPUConfig
    ) -> None:
        # The weight of the entropy: nothing in the first epoch, as long as labels are those of the first part.
        self.module = common.Carrier({"network": network}, labels=labels, decided=torch.zeros((), device=labels.device))
        self.network, self.mixing, self.prior, self.config = network, mixing, prior, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for rows as they are and rows mixed with others of the batch."""
        config = self.config
        joined, count = common.positives_first(batch)
        inputs = common.viewed(joined.raw, views, generator, augment=config.augment)
        labels = self.module.state("labels")[joined.rows]
        order = common.shuffled(len(inputs), inputs.device, generator)
        weight = self.mixing.draw(len(inputs))
        blended = common.mixed(inputs, inputs[order], weight)
        logit, mixed_logit = _clamped(self.network(torch.cat([inputs, blended])).logit).chunk(2)
        terms = {
            "distribution": distribution_loss(logit[:count], logit[count:], self.prior),
            "entropy": prediction_entropy(logit[count:]),
            "mixing": soft_cross_entropy(mixed_logit, common.mixed(labels, labels[order], weight)),
            "mixed_entropy": prediction_entropy(mixed_logit),
        }
        decided = self.module.state("decided")
        weights: tuple[float | Tensor, ...] = (1.0, decided, config.mix_weight, config.mix_entropy)
        loss = torch.stack([w * term for w, term in zip(weights, terms.values(), strict=True)]).sum()
        return {"loss": loss, **terms}


def train_dist_pu(context: Context) -> Teacher:
    """Train the two parts one after the other, with one network."""
    config, prior = context.config.dist_pu, context.known_prior
    network = context.fresh_network("dist-pu")
    begin = replace(config, epochs=config.warmup_epochs, optimiser=config.warmup_optimiser)
    first = common.two_pool_stage(context, "dist-pu.warmup", DistributionTask(network, prior, config), "dist_pu", begin)
    context.engine.run(first)
    mixing = common.MixingWeights(config.mix_concentration, context.engine.hardware.device)
    task = MixingTask(network, _predicted_labels(context, network), mixing, prior, config)

    def renew(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        task.module.state("labels").copy_(_predicted_labels(context, network))
        risen = 1 - math.cos(math.pi / 2 * record.epoch / record.epochs)
        task.module.state("decided").fill_(risen * config.entropy_weight)
        return False

    second = common.two_pool_stage(
        context, "dist-pu", task, "dist_pu", config, after_epoch=renew, warmup=first.key, entropy="rises"
    )
    context.engine.run(second)
    return context.as_teacher(network, second.key)


def _clamped(logit: Tensor) -> Tensor:
    return logit.float().clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT)


def _predicted_labels(context: Context, network: Backbone) -> Tensor:
    """Soft labels for all rows; labelled positives are certain."""
    return torch.maximum(torch.sigmoid(context.logits_of(network)), common.labelled_as_numbers(context))
