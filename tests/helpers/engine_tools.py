"""A tiny task on the CPU, to see the loop at work."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import EngineConfig, OptimiserConfig, ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.rows import RowStore
from splitpu.engine.stage import Observer, Pool, Stage
from splitpu.networks.build import build_network
from splitpu.views import Views

CPU = torch.device("cpu")
FEATURES = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
TARGET = torch.from_numpy((FEATURES[:, 0] > 0).astype(np.float32))


class Regression:
    """A task as plain as can be: cross-entropy against known labels."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def step(self, batch, views, generator) -> dict[str, Tensor]:
        rows, raw = batch["rows"]
        logit = self.module(views.weak(raw, generator)).logit
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logit, TARGET[rows]), "rows": rows.sum().float()}


def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network("mlp", (5,))


def engine(folder: Path | None = None, observer: Observer | None = None) -> Engine:
    hardware = Hardware.choose("cpu", EngineConfig(threads=1))
    preprocessing = Preprocessing.fit(FEATURES)
    return Engine(
        RowStore(FEATURES, CPU),
        Views(preprocessing, ViewsConfig(), CPU),
        hardware,
        seed=3,
        store=CheckpointStore(folder),
        observer=observer or Observer(),
    )


def stage(module: nn.Module, *, epochs: int = 4, after_epoch=None, **optimiser) -> Stage:
    return Stage(
        name="plain",
        task=Regression(module),
        pools={"rows": Pool(np.arange(60), 16)},
        leading="rows",
        epochs=epochs,
        optimiser=OptimiserConfig(**optimiser),
        identity={"epochs": epochs, **optimiser},
        after_epoch=after_epoch,
    )


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())
