"""The base model: a network trained with a PU risk. It is the first teacher, and alone it is nnPU or uPU.

Cross-entropy with given labels: the two ends of the scale that every PU method lies on.

`naive` takes unlabelled rows for negatives, `supervised` is told the truth. Both are trained as `base` says.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import BaseConfig
from splitpu.engine.stage import Batch, Pool, Stage
from splitpu.errors import InputError
from splitpu.kernels.loss_terms import fused_terms_apply, pu_risk
from splitpu.losses import Surrogate, nnpu_risk, sigmoid_loss, soft_cross_entropy, upu_risk
from splitpu.methods.common import (
    labelled_as_numbers,
    one_pool,
    positives_and_population,
    positives_first,
    train_members,
    viewed,
)
from splitpu.methods.context import Context, Teacher
from splitpu.methods.registry import find_method
from splitpu.networks.backbones import Backbone
from splitpu.types import Rows
from splitpu.views import Views


class BaseTask:
    """Minimise the nnPU or uPU risk of labelled positives against the population sample."""

    def __init__(
        self, network: nn.Module, prior: float, config: BaseConfig, surrogate: Surrogate = sigmoid_loss
    ) -> None:
        self.module, self.prior, self.config, self.surrogate = network, prior, config, surrogate

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for both groups, so that they share their batch-norm statistics."""
        joined, positives = positives_first(batch)
        strong = self.config.views == "strong"
        inputs = viewed(joined.raw, views, generator, augment=self.config.augment, strong=strong)
        logit = self.module(inputs).logit
        if self.surrogate is sigmoid_loss and fused_terms_apply(self.module, logit):
            return self._fused_terms(logit, positives)
        logit = logit.float()
        if self.config.risk == "upu":
            risk = upu_risk(logit[:positives], logit[positives:], self.prior)
        else:
            risk = nnpu_risk(
                logit[:positives],
                logit[positives:],
                self.prior,
                beta=self.config.nn_beta,
                gamma=self.config.nn_gamma,
                surrogate=self.surrogate,
            )
        recall = (logit[:positives] > 0).float().mean()
        return {
            "loss": risk.objective,
            "risk": risk.value,
            "positive": risk.positive,
            "negative": risk.negative,
            "recall": recall,
        }

    def _fused_terms(self, logit: Tensor, positives: int) -> dict[str, Tensor]:
        """The same, in one kernel."""
        config = self.config
        beta = None if config.risk == "upu" else config.nn_beta
        risk = pu_risk(logit, positives, self.prior, beta=beta, gamma=config.nn_gamma)
        terms = {"loss": risk.objective, "risk": risk.value, "positive": risk.positive, "negative": risk.negative}
        return terms | {"recall": risk.recall}


def train_base(context: Context) -> Teacher:
    """Train the first teacher on all data: with the risk that `base.risk` names, or by another method."""
    config = context.config.base
    return _train_risk(context) if config.method == "risk" else find_method(config.method).train(context)


def train_nnpu(context: Context) -> Teacher:
    """The nnPU risk alone."""
    return _train_risk(_with_risk(context, "nnpu"))


def train_upu(context: Context) -> Teacher:
    """The uPU risk alone."""
    return _train_risk(_with_risk(context, "upu"))


def base_pools(context: Context) -> dict[str, Pool]:
    """Labelled positives and population, as the base section says."""
    config, population = context.config.base, _population(context)
    batch = min(config.batch_size, len(population))
    return positives_and_population(context.data.positives, population, batch, config.positives_per_batch)


def _train_risk(context: Context) -> Teacher:
    config = context.config.base

    def train_one(name: str) -> tuple[Backbone, str]:
        network = context.fresh_network(name)
        stage = Stage(
            name=name,
            task=BaseTask(network, context.known_prior, config),
            pools=base_pools(context),
            leading="population",
            epochs=config.epochs,
            optimiser=config.optimiser,
            identity=context.identity(name, "base", "views"),
        )
        return network, context.train(stage, network)

    teacher = train_members(context, "base", train_one)
    return replace(teacher, threshold=context.with_own_share(teacher.logits).threshold_for(teacher.logits))


def _with_risk(context: Context, risk: Literal["nnpu", "upu"]) -> Context:
    # The same section as for Split-PU, so that its base model and this one are the same stage and share a checkpoint.
    base = replace(context.config.base, method="risk", risk=risk)
    return replace(context, config=replace(context.config, base=base))


def _population(context: Context) -> Rows:
    data = context.data
    if context.config.base.population == "scenario":
        return data.population
    return data.unlabelled if context.config.base.population == "unlabelled" else data.taught


class LabelTask:
    """Learn one label a row with cross-entropy, in the views of the base model."""

    def __init__(self, network: nn.Module, labels: Tensor, config: BaseConfig) -> None:
        self.module, self.labels, self.config = network, labels, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Cross-entropy against the labels."""
        rows, raw = batch["rows"]
        inputs = viewed(raw, views, generator, augment=self.config.augment, strong=self.config.views == "strong")
        logit = self.module(inputs).logit.float()
        labels = self.labels[rows]
        accuracy = ((logit > 0) == (labels > 0.5)).float().mean()
        return {"loss": soft_cross_entropy(logit, labels), "accuracy": accuracy}


def train_naive(context: Context) -> Teacher:
    """Labelled rows against all others."""
    return _train_on(context, "naive", labelled_as_numbers(context))


def train_supervised(context: Context) -> Teacher:
    """True labels for every row: an oracle, not a PU method."""
    truth = context.data.truth
    if truth is None:
        raise InputError("method 'supervised' needs the true labels of the training rows, and these data have none.")
    upstream = {"truth": hashlib.sha256(np.packbits(truth).tobytes()).hexdigest()}  # which the data's key leaves out
    if context.aside is None:  # else labelled rows choose the epoch
        upstream["data"] = context.rows_key  # so that one oracle serves tables of any number of labelled rows
    return _train_on(context, "supervised", context.rows(truth).float(), **upstream)


def _train_on(context: Context, name: str, labels: Tensor, **upstream: str) -> Teacher:
    config = context.config.base

    def train_one(name: str) -> tuple[Backbone, str]:
        network = context.fresh_network(name)
        stage = Stage(
            name=name,
            task=LabelTask(network, labels, config),
            pools=one_pool(context.data.taught, config.batch_size),
            leading="rows",
            epochs=config.epochs,
            optimiser=config.optimiser,
            identity=context.identity(name, "base", "views", **upstream),
        )
        return network, context.train(stage, network)

    return train_members(context, name, train_one)
