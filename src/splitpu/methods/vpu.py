"""VPU: learns the probability of being positive up to a factor, without a prior."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from splitpu.config.schema import SelectionConfig, VPUConfig
from splitpu.engine.stage import Batch
from splitpu.methods.common import MixingWeights, half_of_largest, mixed, positives_first, two_pool_stage, viewed
from splitpu.methods.context import Context, Teacher, put_aside
from splitpu.networks.backbones import Backbone
from splitpu.views import Views


def variational_loss(positive_logit: Tensor, population_logit: Tensor) -> Tensor:
    """Return `log mean_X Phi - mean_P log Phi` for `Phi = sigmoid(logit)`: least where Phi is P(positive | x) / c."""
    log_mean = torch.logsumexp(functional.logsigmoid(population_logit), 0) - math.log(len(population_logit))
    return log_mean - functional.logsigmoid(positive_logit).mean()


def mixing_penalty(mixed_logit: Tensor, population_logit: Tensor, weight: Tensor) -> Tensor:
    """Return how far the prediction on `g * x + (1 - g) * p` is from `g * Phi(x) + (1 - g)`, in squared logarithms.

    Both sides are moved, as in the publication's formula: mixtures and what is asked of them approach each other."""
    # From logarithms: where g and 1 - Phi both round to one, the sum would be zero, and its gradient not a number.
    log_target = torch.logaddexp(torch.log(weight) + functional.logsigmoid(population_logit), torch.log1p(-weight))
    return (log_target - functional.logsigmoid(mixed_logit)).square().mean()


class VPUTask:
    """The variational loss and the mixing penalty."""

    def __init__(self, network: Backbone, mixing: MixingWeights, config: VPUConfig) -> None:
        self.module, self.mixing, self.config = network, mixing, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        joined, count = positives_first(batch)
        inputs = viewed(joined.raw, views, generator, augment=self.config.augment)
        positives, population = inputs[:count], inputs[count:]
        size = len(population)
        # Every row of the population gets a partner; where positives are fewer they come in turn.
        turns = -(-size // count)
        partners = positives.repeat(turns, *(1 for _ in positives.shape[1:]))[:size]
        weight = self.mixing.draw(size)
        together = torch.cat([inputs, mixed(population, partners, weight)])
        logit = self.module(together).logit.float()
        on_positives, on_population, on_mixed = logit.split([count, size, size])
        variational = variational_loss(on_positives, on_population)
        mixing = mixing_penalty(on_mixed, on_population, weight)
        loss, recall = variational + self.config.mix_weight * mixing, (on_positives > 0).float().mean()
        return {"loss": loss, "variational": variational, "mixing": mixing, "recall": recall}


def train_vpu(context: Context) -> Teacher:
    """Train the network; it says positive from half of its largest probability on, for want of the factor."""
    config = context.config.vpu
    # The epoch is the one with the lowest loss on rows that it has not seen.
    if config.held_out > 0 and not context.chooses_epochs:
        data, aside = put_aside(context.data, config.held_out, context.engine.seed)
        selection = SelectionConfig(held_out=config.held_out, criterion="variational")
        context = replace(context, data=data, aside=aside, config=replace(context.config, selection=selection))
    network = context.fresh_network("vpu")
    task = VPUTask(network, MixingWeights(config.mix_concentration, context.engine.hardware.device), config)
    # The penalty once moved one side only; named here, a checkpoint from that time is not taken for one of today.
    stage = two_pool_stage(context, "vpu", task, "vpu", config, penalty="moves both sides")
    key = context.train(stage, network, half_of_largest)
    return context.as_teacher(network, key, half_of_largest)
