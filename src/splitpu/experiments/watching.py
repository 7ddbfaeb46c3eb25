"""Looking over the shoulder of a stage: figures taken after each of its epochs, without changing what it learns."""

from collections.abc import Callable, Mapping
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
        self._looks: dict[str, dict[str, Look]] = {}  # by stage and purpose
        self._seen: dict[tuple[str, str], list[list[float]]] = {}

    def watch(self, stage: str, **looks: Look) -> None:
        """Look at the stage of this name for these purposes, which become part of its checkpoint's name."""
        self._looks[stage] = looks

    def seen(self, stage: str, purpose: str) -> list[list[float]]:
        """What was seen: one row an epoch, its number first."""
        return self._seen[stage, purpose]

    def run(self, stage: Stage) -> StageOutcome:
        """Train as always, with a look after each epoch."""
        if stage.name not in self._looks:
            return super().run(stage)
        looks = self._looks[stage.name]
        # Under a name of its own: a checkpoint of the same stage that nobody watched holds no figures.
        stage.identity = {**stage.identity, "watched for": ", ".join(sorted(looks))}
        stage.after_epoch = _looking(stage, looks)
        outcome = super().run(stage)
        for purpose in looks:
            self._seen[stage.name, purpose] = outcome.memory[_place(purpose)].tolist()
        return outcome


def _looking(stage: Stage, looks: Mapping[str, Look]) -> Callable[[EpochRecord, dict[str, Tensor]], bool]:
    before = stage.after_epoch

    def after_epoch(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
        stopped = before(record, memory) if before is not None else False
        for purpose, look in looks.items():
            row, place = look(stage.task.module, record.epoch), _place(purpose)
            if row:
                new = torch.tensor([[float(record.epoch), *row]], dtype=torch.float64)
                memory[place] = torch.cat([memory[place].cpu(), new]) if place in memory else new
        return stopped

    return after_epoch


def _place(purpose: str) -> str:
    """Where figures are kept in a stage's memory."""
    return f"seen {purpose}"
