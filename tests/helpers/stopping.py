"""Ways to end a training before its end."""

from splitpu.engine.stage import Observer, Stage


class StopAt(Observer):
    """Ends the run in the middle of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.now = epoch, -1

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        self.now = epoch

    def should_stop(self) -> bool:
        return self.now >= self.epoch
