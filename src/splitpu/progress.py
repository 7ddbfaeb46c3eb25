"""Progress as plain lines of text."""

import numpy as np

from splitpu.engine.stage import EpochRecord, Observer, Stage, StageOutcome
from splitpu.errors import InputError


class ProgressLines(Observer):
    """Plain lines on the standard output, for logs and notebooks alike."""

    def __init__(self, verbose: int) -> None:
        if not isinstance(verbose, int | np.integer):
            raise InputError(f"verbose={verbose!r} is not a whole number: give 0 for silence, 1 or 2")
        self.verbose = verbose

    def epoch_done(self, record: EpochRecord) -> None:
        """Print the epoch, if asked for this much."""
        if self.verbose >= 2:
            print(f"{record.stage}: epoch {record.epoch}/{record.epochs}, {_described(record)}", flush=True)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        """Print how the stage ended and what it took."""
        if self.verbose >= 1 and outcome.history:
            seconds = sum(record.seconds for record in outcome.history)
            last = outcome.history[-1]
            print(f"{stage.name}: {last.epoch} epochs in {seconds:.1f} s, {_described(last)}", flush=True)


def _described(record: EpochRecord) -> str:
    loss = f"loss {record.terms.get('loss', float('nan')):.4f}"
    return loss if record.agreement is None else f"{loss}, agreement {record.agreement:.3f}"
