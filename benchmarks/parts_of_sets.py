"""Small parts of named sets, and settings under which the base stage alone is measured."""

from typing import Any

import numpy as np

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu
from splitpu.data.pudata import PUData
from splitpu.training import profile_of

BATCH = 256
PRIOR = 0.45


def drawn(name: str, rows: int, labelled: int) -> PUData:
    """The first rows of a named set, some of their positives labelled."""
    data, _ = make_pu(load_named(name), labelled, 0)
    truth = data.truth
    assert truth is not None
    few = np.flatnonzero(data.labelled)[: labelled // 2]
    chosen = np.unique(np.concatenate([few, np.arange(min(rows, len(data)))]))
    features = np.ascontiguousarray(data.features[chosen])
    return PUData(features, data.labelled[chosen], data.scenario, truth=truth[chosen])


def settings(data: PUData, epochs: int, *more: str) -> Any:
    """The base stage alone, with the same batches as the plain loop."""
    asked = ["method=nnpu", f"base.epochs={epochs}", f"base.batch_size={min(BATCH, len(data))}", *more]
    return apply_overrides(preset("default", profile_of(data)), asked)
