"""Cross-entropy with given labels: the two ends of the scale that every PU method lies on.

`naive` takes unlabelled rows for negatives, `supervised` is told the truth. Both are trained as `base` says.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import BaseConfig
from splitpu.engine.stage import Batch, Stage
from splitpu.errors import InputError
from splitpu.losses import soft_cross_entropy
from splitpu.methods.context import Context, Teacher
from splitpu.methods.members import train_members
from splitpu.methods.parts import labelled_as_numbers, one_pool, viewed
from splitpu.networks import Backbone
from splitpu.views import Views


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
