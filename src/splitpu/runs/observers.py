"""Listeners that a run puts between the training loop and the world."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from splitpu.engine.stage import EpochRecord, Observer, Stage, StageOutcome
from splitpu.files import disk_errors_in_words
from splitpu.metrics import finite_or_none


class MetricsFile(Observer):
    """One line an epoch. Begins anew, because the loop replays the epochs that a checkpoint holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epochs = 0
        with disk_errors_in_words(path):
            path.write_text("", encoding="utf-8")

    def epoch_done(self, record: EpochRecord) -> None:
        """Append the line and give it to the system at once, so that the file can be followed."""
        line = json.dumps(finite_or_none(record.to_dict()))
        with disk_errors_in_words(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.epochs += 1


class StopWhen(Observer):
    """Ends the run at the next step once the question is answered with yes."""

    def __init__(self, question: Callable[[], bool]) -> None:
        self.question = question

    def should_stop(self) -> bool:
        """Ask."""
        return self.question()


class Everyone(Observer):
    """Passes everything on to several listeners."""

    def __init__(self, listeners: Sequence[Observer]) -> None:
        self.listeners = tuple(listeners)

    def stage_started(self, stage: Stage, done: int) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.stage_started(stage, done)

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.step_done(stage, epoch, step, steps)

    def epoch_done(self, record: EpochRecord) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.epoch_done(record)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Pass on."""
        for listener in self.listeners:
            listener.stage_done(stage, outcome)

    def should_stop(self) -> bool:
        """Stop as soon as one of them wants to."""
        return any(listener.should_stop() for listener in self.listeners)
