"""Looking over the shoulder of a stage: figures taken after each of its epochs, without changing what it learns."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from splitpu.engine.loop import Engine
from splitpu.engine.stage import EpochRecord, Stage, StageOutcome

# Figures of one epoch, given the stage's module and the epoch's number; an empty list leaves the epoch out.
Look = Callable[[Any, int], list[float]]


class WatchingEngine(Engine):
    """An engine that takes figures after the epochs of chosen stages and keeps them with the stage's checkpoint."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seen: dict[str, list[list[float]]] = {}  # by stage: one row an epoch, its number first
        self._looks: dict[str, tuple[str, Look]] = {}

    def watch(self, stage: str, purpose: str, look: Look) -> None:
        """Look at the stage of this name. The purpose becomes part of the checkpoint's name."""
        self._looks[stage] = (purpose, look)

    def run(self, stage: Stage) -> StageOutcome:
        """Train as always, with a look after each epoch."""
        if stage.name not in self._looks:
            return super().run(stage)
        purpose, look = self._looks[stage.name]
        # Under a name of its own: a checkpoint of the same stage that nobody watched holds no figures.
        stage.identity = {**stage.identity, "watched for": purpose}
        stage.after_epoch = _looking(stage, look)
        outcome = super().run(stage)
        self.seen[stage.name] = outcome.memory["seen"].tolist()
        return outcome


def _looking(stage: Stage, look: Look) -> Callable[[EpochRecord, dict[str, Tensor]], bool]:
    before = stage.after_epoch

    def after_epoch(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        stopped = before(record, memory) if before is not None else False
        row = look(stage.task.module, record.epoch)
        if row:
            new = torch.tensor([[float(record.epoch), *row]], dtype=torch.float64)
            memory["seen"] = torch.cat([memory["seen"].cpu(), new]) if "seen" in memory else new
        return stopped

    return after_epoch
