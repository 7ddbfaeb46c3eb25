"""The base model: a network trained with a PU risk. It is the first teacher, and alone it is nnPU or uPU.

`naive` takes unlabelled rows for negatives, `supervised` is told the truth: the ends of the scale of PU methods."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import BaseConfig
from splitpu.engine.stage import Batch, Pool, Task, proportional_count
from splitpu.errors import InputError
from splitpu.kernels.loss_terms import fused_terms_apply, pu_risk
from splitpu.losses import Surrogate, nnpu_risk, pnu_risk, sigmoid_loss, soft_cross_entropy, upu_risk
from splitpu.methods import common
from splitpu.methods.context import Context, Teacher
from splitpu.methods.registry import find_method
from splitpu.networks.backbones import Backbone
from splitpu.views import Views


class BaseTask:
    """Minimise the nnPU or uPU risk of labelled positives against the population sample.

    Known negatives make it the PNU risk, of which `supervised` is their share."""

    def __init__(
        self,
        network: nn.Module,
        prior: float,
        config: BaseConfig,
        surrogate: Surrogate = sigmoid_loss,
        supervised: float = 0.0,
    ) -> None:
        self.module, self.prior, self.config, self.surrogate = network, prior, config, surrogate
        self.supervised = supervised

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """One forward for all groups, so that they share their batch-norm statistics."""
        joined, positives = common.positives_first(batch)
        strong = self.config.views == "strong"
        raw = torch.cat([joined.raw, batch["negatives"].raw]) if "negatives" in batch else joined.raw
        inputs = common.viewed(raw, views, generator, augment=self.config.augment, strong=strong)
        logit = self.module(inputs).logit
        negatives = None
        if "negatives" in batch:
            logit, negatives = logit[: len(joined.rows)], logit[len(joined.rows) :].float()
        config = self.config
        if self.surrogate is sigmoid_loss and fused_terms_apply(self.module, logit):  # the same, in one kernel
            beta = None if config.risk == "upu" else config.nn_beta
            risk, recall = pu_risk(logit, positives, self.prior, beta=beta, gamma=config.nn_gamma)
        else:
            logit = logit.float()
            known, population = logit[:positives], logit[positives:]
            recall = (known > 0).float().mean()
            if config.risk == "upu":
                risk = upu_risk(known, population, self.prior)
            else:
                beta, gamma = config.nn_beta, config.nn_gamma
                risk = nnpu_risk(known, population, self.prior, beta=beta, gamma=gamma, surrogate=self.surrogate)
        if negatives is not None:
            risk = pnu_risk(risk, negatives, self.prior, share=self.supervised, surrogate=self.surrogate)
        terms = {"loss": risk.objective, "risk": risk.value, "positive": risk.positive, "negative": risk.negative}
        return terms | {"recall": recall}


def train_base(context: Context) -> Teacher:
    """Train the first teacher on all data: with the risk that `base.risk` names, or by another method."""
    config = context.config.base
    return _train_risk(context) if config.method == "risk" else find_method(config.method).train(context)


def train_nnpu(context: Context, risk: Literal["nnpu", "upu"] = "nnpu") -> Teacher:
    """The nnPU risk alone."""
    # The same section as for Split-PU, so that its base model and this one are the same stage and share a checkpoint.
    base = replace(context.config.base, method="risk", risk=risk)
    return _train_risk(replace(context, config=replace(context.config, base=base)))


train_upu = partial(train_nnpu, risk="upu")


def _train_risk(context: Context) -> Teacher:
    config, data = context.config.base, context.data
    population = {"scenario": data.population, "unlabelled": data.unlabelled}.get(config.population, data.taught)
    batch = min(config.batch_size, len(population))
    pools = common.positives_and_population(data.known_positives, population, batch, config.positives_per_batch)
    known, supervised = len(data.known_negatives), 0.0
    if known:
        pools["negatives"] = Pool(data.known_negatives, proportional_count(known, len(population), batch))
        supervised = known / (known + len(data.known_positives)) / 2  # few rows are a weak second opinion

    def task(network: Backbone) -> Task:
        return BaseTask(network, context.known_prior, config, supervised=supervised)

    teacher = _train_members(context, "base", task, pools)
    return replace(teacher, threshold=context.with_own_share(teacher.logits).threshold_for(teacher.logits))


def _train_members(
    context: Context, name: str, task: Callable[[Backbone], Task], pools: dict[str, Pool], **upstream: str
) -> Teacher:
    """As many networks as are asked for, each on the same pools as `base` says."""
    leading = "population" if "population" in pools else "rows"

    def train_one(name: str) -> common.Trained:
        network = context.fresh_network(name)
        stage = context.stage(name, task(network), pools, leading, context.config.base, "base", **upstream)
        return network, context.train(stage, network)

    return common.as_one(context, [train_one(place) for place in common.member_names(context, name)])


class LabelTask:
    """Learn one label a row with cross-entropy, in the views of the base model."""

    def __init__(self, network: nn.Module, labels: Tensor, config: BaseConfig) -> None:
        self.module, self.labels, self.config = network, labels, config

    def step(self, batch: Mapping[str, Batch], views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        rows, raw = batch["rows"]
        inputs = common.viewed(raw, views, generator, augment=self.config.augment, strong=self.config.views == "strong")
        logit = self.module(inputs).logit.float()
        labels = self.labels[rows]
        accuracy = ((logit > 0) == (labels > 0.5)).float().mean()
        return {"loss": soft_cross_entropy(logit, labels), "accuracy": accuracy}


def train_naive(context: Context) -> Teacher:
    """Labelled rows against all others."""
    return _train_on(context, "naive", common.labelled_as_numbers(context))


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
    config, pools = context.config.base, common.one_pool(context.data.taught, context.config.base.batch_size)
    return _train_members(context, name, lambda network: LabelTask(network, labels, config), pools, **upstream)
