"""Saying early that a run will take long, while it is still cheap to think again."""

from collections.abc import Callable

from splitpu.config.schema import Config
from splitpu.data import PUData
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.experiments.costs import whole_run_seconds

_LONG = 20 * 60.0  # seconds from which it is said


class LongRun(Observer):
    """After the second epoch that is trained here, which libraries no longer warm up in, says what all will take."""

    def __init__(self, config: Config, data: PUData, tell: Callable[[str], None]) -> None:
        self._config, self._data, self._tell = config, data, tell
        self._epoch = -1  # of the first stage; later stages take other times
        self._first: str | None = None

    def stage_started(self, stage: Stage, done: int) -> None:
        """Only the first stage is timed, and of it no epoch that was restored."""
        if self._first is None:
            self._first, self._epoch = stage.name, done + 2

    def epoch_done(self, record: EpochRecord) -> None:
        """Say it once, if there is something to say."""
        if record.stage != self._first or record.epoch != self._epoch:
            return
        data = self._data
        seconds = whole_run_seconds(self._config, len(data), len(data.positives), record.seconds)
        if seconds >= _LONG:
            self._tell(f"at this speed the run takes about {_in_words(seconds)}; {self._advice()}.")

    def _advice(self) -> str:
        safe = "it can be stopped (Ctrl-C) and resumed"
        if self._data.kind == "vectors":
            return f"{safe}, and --rounds 1 is faster"
        return f"{safe}. Smaller images (--size 64), a smaller network (--backbone cnn-small) or --rounds 1 are faster"


def _in_words(seconds: float) -> str:
    """As exact as such a guess can be.

    >>> _in_words(1500), _in_words(9000)
    ('25 minutes', '2.5 hours')
    """
    minutes = 5 * round(seconds / 300)
    return f"{minutes} minutes" if minutes < 90 else f"{round(seconds / 1800) / 2:g} hours"
