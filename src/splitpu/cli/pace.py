"""Saying early that a run will take long, while it is still cheap to think again."""

from collections.abc import Callable

from splitpu.config.schema import Config
from splitpu.data import PUData
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.experiments.costs import whole_run_seconds
from splitpu.networks import choose_network

_LONG = 20 * 60.0  # seconds from which it is said
_SMALLER_SIDE, _SMALLER_NETWORK = 64, "cnn-small"


class LongRun(Observer):
    """After the second epoch that is trained here, which libraries no longer warm up in, says what all will take."""

    def __init__(
        self, config: Config, data: PUData, tell: Callable[[str], None], *, backbone: str, from_files: bool
    ) -> None:
        self._config, self._data, self._tell = config, data, tell
        self._backbone, self._from_files = backbone, from_files  # `from_files`: images or patients, of any size
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
        ways = self._faster_ways()
        if not ways:
            return safe
        return f"{safe}. Faster: {' or '.join([', '.join(ways[:-1]), ways[-1]] if ways[1:] else ways)}"

    def _faster_ways(self) -> list[str]:
        """Only what would change this run: nobody is told to make small images larger."""
        shape, kind = self._data.features.shape[1:], self._data.kind
        network = choose_network(shape, len(self._data)) if self._backbone == "auto" else self._backbone
        ways = []
        if self._from_files and max(shape[-3:-1], default=0) > _SMALLER_SIDE:
            ways.append(f"smaller images (--size {_SMALLER_SIDE})")
        if kind == "images" and network != _SMALLER_NETWORK:
            ways.append(f"a smaller network (--backbone {_SMALLER_NETWORK})")
        if self._config.method == "split-pu" and self._config.rounds > 1:
            ways.append("a single round (--rounds 1)")
        return ways


def _in_words(seconds: float) -> str:
    """As exact as such a guess can be.

    >>> _in_words(1500), _in_words(9000)
    ('25 minutes', '2.5 hours')
    """
    minutes = 5 * round(seconds / 300)
    return f"{minutes} minutes" if minutes < 90 else f"{round(seconds / 1800) / 2:g} hours"
