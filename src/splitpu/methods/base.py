"""The base model: a network trained with a PU risk. It is the first teacher."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import BaseConfig
from splitpu.engine.batches import Pool, Rows, proportional_count
from splitpu.engine.stage import Batch, Stage
from splitpu.losses import nnpu_risk, upu_risk
from splitpu.methods.context import Context, Teacher
from splitpu.views import Views


class BaseTask:
    """Minimise the nnPU or uPU risk of labelled positives against the population sample."""

    def __init__(self, network: nn.Module, prior: float, config: BaseConfig) -> None:
        self.module, self.prior, self.config = network, prior, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for both groups, so that they share their batch-norm statistics."""
        positives = len(batch["positives"].rows)
        raw = torch.cat([batch["positives"].raw, batch["population"].raw])
        inputs = views.weak(raw, generator) if self.config.augment else views.plain(raw)
        logit = self.module(inputs).logit.float()
        if self.config.risk == "upu":
            risk = upu_risk(logit[:positives], logit[positives:], self.prior)
        else:
            beta, gamma = self.config.nn_beta, self.config.nn_gamma
            risk = nnpu_risk(logit[:positives], logit[positives:], self.prior, beta=beta, gamma=gamma)
        recall = (logit[:positives] > 0).float().mean()
        return {
            "loss": risk.objective,
            "risk": risk.value,
            "positive": risk.positive,
            "negative": risk.negative,
            "recall": recall,
        }


def train_base(context: Context) -> Teacher:
    """Train the base model on all data."""
    config = context.config.base
    network = context.fresh_network("base")
    population = _population(context)
    batch = min(config.batch_size, len(population))
    positives = context.data.positives
    per_batch = config.positives_per_batch or proportional_count(len(positives), len(population), batch)
    stage = Stage(
        name="base",
        task=BaseTask(network, context.prior, config),
        pools={"positives": Pool(positives, per_batch), "population": Pool(population, batch)},
        leading="population",
        epochs=config.epochs,
        optimiser=config.optimiser,
        identity=context.identity("base", "base", "views"),
    )
    context.engine.run(stage)
    return context.as_teacher(network, stage.key)


def _population(context: Context) -> Rows:
    data = context.data
    if context.config.base.population == "scenario":
        return data.population
    return data.unlabelled if context.config.base.population == "unlabelled" else np.arange(len(data))
