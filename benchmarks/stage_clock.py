"""What every stage of a training takes."""

import statistics
import time
from typing import Any

from splitpu.engine.stage import Observer, Stage, StageOutcome


class StageClock(Observer):
    """Wall time of every stage, capture and everything after its epochs included, and what its steps take."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, Any]] = {}
        self._steps = 0

    def stage_started(self, stage: Stage, done: int) -> None:
        """Start the clock."""
        self.stages[stage.name] = {"counts": {name: pool.count for name, pool in stage.pools.items()}}
        self._started = time.perf_counter()

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        """Remember how many steps there are."""
        self._steps = steps

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Note what it took."""
        seconds = [record.seconds for record in outcome.history]
        self.stages[stage.name] |= {
            "epochs": len(seconds),
            "steps": self._steps,
            "wall": time.perf_counter() - self._started,
            "epoch": statistics.median(seconds),
            "first_epoch": seconds[0],
        }
