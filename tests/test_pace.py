"""A run that takes long says so, and what would make it shorter."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from splitpu import preset
from splitpu.cli.train import LongRun
from splitpu.data.pudata import PUData
from splitpu.engine.stage import EpochRecord


@pytest.mark.parametrize(("seconds", "restored", "said"), [(0.5, 0, 0), (90.0, 0, 1), (90.0, 7, 1)])
def test_a_run_that_takes_long_says_so_once_and_early(seconds: float, restored: int, said: int) -> None:
    config = preset("default")
    data = PUData.from_arrays(np.zeros((60, 96, 96)), np.arange(60) < 20)
    told: list[str] = []
    pace = LongRun(config, data, told.append, backbone="auto", from_files=True)
    pace.stage_started(SimpleNamespace(name="base"), restored)  # type: ignore[arg-type]
    for epoch in range(restored + 1, 41):
        pace.epoch_done(EpochRecord("base", epoch, 40, seconds, 1e-3, {}))
        assert len(told) == (said if epoch >= restored + 2 else 0)
    pace.stage_started(SimpleNamespace(name="round1.split"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("round1.split", 2, 40, 1000.0, 1e-3, {}))
    assert len(told) == said
    assert not told or (" hours; " in told[0] and "--size 64" in told[0])


@pytest.mark.parametrize(
    ("side", "backbone", "from_files", "rounds", "advice"),
    [
        (32, "cnn13", True, 2, "Faster: a smaller network (--backbone cnn-small) or a single round (--rounds 1)."),
        (32, "auto", True, 2, "Faster: a single round (--rounds 1)."),  # which is the smaller network for so few
        (96, "cnn-small", True, 1, "Faster: smaller images (--size 64)."),
        (96, "cnn-small", False, 1, "stopped (Ctrl-C) and resumed."),  # --size is for folders
    ],
)
def test_a_long_run_is_told_only_what_would_make_it_shorter(
    side: int, backbone: str, from_files: bool, rounds: int, advice: str
) -> None:
    data = PUData.from_arrays(np.zeros((60, side, side), np.uint8), np.arange(60) < 20)
    told: list[str] = []
    config = dataclasses.replace(preset("default"), rounds=rounds)
    pace = LongRun(config, data, told.append, backbone=backbone, from_files=from_files)
    pace.stage_started(SimpleNamespace(name="base"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("base", 2, 40, 90.0, 1e-3, {}))
    assert told[0].endswith(advice)
