"""Blurred clouds, and quick trainings on them in which it matters which epoch is kept."""

from typing import Any

import numpy as np
from cli_tools import tiny_arrays

from splitpu import train
from splitpu.config.parse import config_from_dict
from splitpu.data.pudata import PUData
from splitpu.training import Runtime, Training, TrainSpec

QUICK = {"base.epochs": 6, "base.batch_size": 32, "rounds": 0, "engine.threads": 1}
# A rate so high that later epochs are no better than earlier ones: it matters which one is kept.
WILD = {"selection.held_out": 0.3, "base.optimiser.rate": 0.3, "base.optimiser.schedule": "constant", "base.epochs": 8}
PRIOR = 0.5


def pu_data(scenario: str = "single-training-set") -> PUData:
    arrays = tiny_arrays(rows=180)
    blurred = arrays["X"] + np.random.default_rng(1).normal(scale=3, size=arrays["X"].shape)  # so that errors are left
    return PUData.from_arrays(blurred, arrays["s"], scenario=scenario, truth=arrays["truth"])  # type: ignore[arg-type]


def trained(settings: dict[str, Any], data: PUData | None = None, **options: Any) -> Training:
    config = config_from_dict(QUICK | settings)
    spec = TrainSpec(config=config, prior=options.pop("prior", PRIOR))
    return train(data or pu_data(), spec, Runtime(device="cpu", **options))
