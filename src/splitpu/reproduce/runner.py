"""Which units this process works on, so that others with the same cache leave them alone.

The time there is, and what fits into it.

Which stages units have in common: one lane trains such a stage, and no other lane should stand and wait for it.

Running many units: what is done is skipped, what fails is told, and the time limit is kept.
"""

import hashlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from splitpu.config.parse import config_hash
from splitpu.errors import Interrupted, SplitPUError
from splitpu.reproduce.declared import SPLIT_PU
from splitpu.reproduce.store import Line, ResultStore
from splitpu.reproduce.units import Unit, what_is_computed
from splitpu.utils.files import Taken, disk_errors_in_words, held_alone

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer
    from splitpu.reproduce.declared import Experiment
    from splitpu.reproduce.unit_runs import Workplace


class Claims:
    """Lock files beside the stages: whoever shares those shares the work."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "claims"

    def take(self, unit: Unit) -> ExitStack | None:
        """Hold the unit until the stack is closed; None if another process has it."""
        name = hashlib.sha256(unit.work_key.encode()).hexdigest()[:32]
        claim = ExitStack()
        try:
            with disk_errors_in_words(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                claim.enter_context(held_alone(self._folder / name))
        except Taken:
            return None
        return claim


RESERVE = 5.0  # seconds before the limit that belong to writing and leaving


class Clock:
    """How much time there is, and whether the next unit fits into it, judged by those before."""

    def __init__(self, minutes: float | None, now: Callable[[], float] = time.monotonic, *, fill: bool = False) -> None:
        self._now, self._fill = now, fill
        self._end = None if minutes is None else now() + 60 * minutes - RESERVE
        # Seconds of a recipe's and method's units that had a base to train, and of those that had none.
        self._longest: dict[tuple[str, str, bool], float] = {}
        self._slowest = 0.0  # seconds a guessed one
        self._bases: set[tuple[str, str, str, int, int]] = set()

    def left(self) -> float:
        """Seconds until the limit."""
        return float("inf") if self._end is None else self._end - self._now()

    def fits(self, unit: Unit) -> bool:
        """Whether a unit can be expected to end in time; the first one is always tried.

        Where the time is to be filled, every unit is: what it has trained by the end is not lost.
        """
        if self.left() <= 0 or self._fill:
            return self.left() > 0
        # What nothing like it has been run of takes as much longer than guessed as other things did.
        expected = self._longest.get(self._like(unit), self._slowest * unit.guessed_seconds)
        return expected <= self.left()

    def took(self, unit: Unit, seconds: float) -> None:
        """Remember how long a unit was."""
        like = self._like(unit)
        self._longest[like] = max(self._longest.get(like, 0.0), seconds)
        self._slowest = max(self._slowest, seconds / unit.guessed_seconds)
        self._bases.add(_base_of(unit))

    def is_fresh(self, unit: Unit) -> bool:
        """Whether the unit has a base model to train, as far as is known."""
        return _base_of(unit) not in self._bases

    def _like(self, unit: Unit) -> tuple[str, str, bool]:
        return unit.recipe, unit.method, self.is_fresh(unit)


def _base_of(unit: Unit) -> tuple[str, str, str, int, int]:
    return unit.work, unit.data, unit.recipe, unit.positives, unit.seed


# In the order they are trained; what comes after them is hardly ever shared. Each depends on all before it, too.
_WARMUP, _BASE, _SPLIT, _STUDENT = range(4)
_NOT_OF_THE_BASE = ("rounds", "threshold", "split", "student")


class SharedStages:
    """What the units that run are still to make. Asked and told under the lock of whoever hands out units."""

    def __init__(self, units: Sequence[Unit]) -> None:
        """Units are known by their number."""
        self._units = units
        self._known: dict[int, dict[int, str]] = {}  # the stages of those somebody has asked about
        self._ahead: dict[int, dict[int, str]] = {}

    def begin(self, number: int) -> None:
        """A unit is handed out: all its stages lie ahead of it."""
        self._ahead[number] = self._stages(number)

    def reached(self, number: int, stage: str) -> None:
        """A unit has begun a stage, so the ones before it are made."""
        here = _place(stage)
        self._ahead[number] = {place: name for place, name in self._ahead[number].items() if place >= here}

    def end(self, number: int) -> None:
        """A unit has ended, one way or another."""
        del self._ahead[number]

    def would_wait(self, number: int) -> bool:
        """Whether the unit needs a stage that one of those that run has not made yet."""
        ahead = {name for names in self._ahead.values() for name in names.values()}
        return bool(ahead) and not ahead.isdisjoint(self._stages(number).values())

    def _stages(self, number: int) -> dict[int, str]:
        if number not in self._known:
            self._known[number] = dict(shareable_stages(self._units[number]))
        return self._known[number]


def shareable_stages(unit: Unit) -> Iterator[tuple[int, str]]:
    """Place and name of every stage that another unit may need as well; equal names stand for the same training."""
    config, read = unit.config, what_is_computed(unit.config)
    if config.warmup.name != "none":
        yield _WARMUP, _named("warmup", unit.data, unit.network, unit.seed, config_hash(config, "warmup", "views.flip"))
    sections = [section for section in read if section not in _NOT_OF_THE_BASE]
    draw = (unit.data, unit.network, unit.seed, unit.positives, unit.experiment.held_out, unit.method)
    yield _BASE, _named("base", *draw, config_hash(config, *sections))
    if unit.method != SPLIT_PU or not config.rounds:
        return
    sections += ["threshold", "split"]
    if config.split.enabled:
        yield _SPLIT, _named("split", *draw, config_hash(config, *sections))
    # Figures look into their students while these learn, which others cannot use.
    watched = unit.experiment.kind == "figure"
    yield _STUDENT, _named("student", *draw, watched, config_hash(config, *sections, "student"))


def _named(*parts: object) -> str:
    return " ".join(map(str, parts))


def _place(stage: str) -> int:
    """Where a stage stands in the order; one that is trained again or has members is named after the first of them."""
    starts = {"warmup": _WARMUP, "round1.split": _SPLIT, "round1.student": _STUDENT, "round": _STUDENT + 1}
    return next((place for start, place in starts.items() if stage.startswith(start)), _BASE)


Say = Callable[[str], None]

_LOOK_AGAIN = 1.0  # seconds; a stop from outside wakes nobody who waits


def say(text: str) -> None:
    """Progress goes to standard error, at once."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Session:
    """What came of running units."""

    done: list[Unit] = field(default_factory=list)
    skipped: list[Unit] = field(default_factory=list)
    failed: list[tuple[Unit, str]] = field(default_factory=list)
    left: list[Unit] = field(default_factory=list)

    def summary(self) -> str:
        """One sentence.

        >>> Session().summary()
        '0 units run, 0 were done before, 0 failed, 0 are left.'
        """
        text = (
            f"{len(self.done)} units run, {len(self.skipped)} were done before, {len(self.failed)} failed, "
            f"{len(self.left)} are left."
        )
        return f"{text} The same command goes on from here." if self.left else text


def run_units(
    units: Sequence[Unit],
    store: ResultStore,
    workplace: "Workplace",
    *,
    minutes: float | None = None,
    fill: bool = False,
    stop: Callable[[], bool] = lambda: False,
    tell: Say = say,
) -> Session:
    """Run what is not done yet until all is done or time is up. An interrupted unit goes on from its checkpoints.

    As many units at once as the workplace has room for; those that need the same stage train it once.
    """
    shift = _Shift(units, store, workplace, Clock(minutes, fill=fill), stop, tell)
    if workplace.side_by_side == 1:
        shift.work()
    else:
        shift.work_in_lanes()
    tell(shift.session.summary())
    return shift.session


class _Shift:
    """Hands out units in their order and writes down what came of them; may be asked from several threads."""

    def __init__(
        self,
        units: Sequence[Unit],
        store: ResultStore,
        workplace: "Workplace",
        clock: Clock,
        stop: Callable[[], bool],
        tell: Say,
    ) -> None:
        self.session = Session()
        self._store, self._workplace, self._clock, self._tell = store, workplace, clock, tell
        self._left = threading.Event()  # the process is on its way out
        self._stop: Callable[[], bool] = lambda: stop() or self._left.is_set()
        self._units = units
        self._open = dict(enumerate(units))
        self._shared = SharedStages(units)
        self._lock = threading.Condition()  # told of every stage that is made and of every unit that has ended
        self._claims = Claims(workplace.cache)
        self._over = False  # no more units are handed out; those that run go on

    def work(self) -> None:
        """Run units until there are none left or time is up."""
        while (taken := self._take()) is not None:
            number, unit, claim = taken
            with claim:
                self._work_on(number, unit)

    def _work_on(self, number: int, unit: Unit) -> None:
        started = time.monotonic()
        try:
            line = self._run(number, unit)
        except Interrupted as stopped:
            self._put_back(number, stopped)
        except Exception as error:
            # One unit that cannot be run says nothing about the others.
            self._failed(number, error)
        else:
            self._done(number, line, time.monotonic() - started)

    def work_in_lanes(self) -> None:
        """The same by several threads at once."""
        from splitpu.config.schema import EngineConfig
        from splitpu.engine.hardware import Hardware
        from splitpu.engine.parallel_runs import in_lanes

        device = Hardware.choose(self._workplace.device, EngineConfig()).device
        lanes = self._workplace.side_by_side
        for ended in in_lanes([self.work] * lanes, device, lanes, when_left=self._left.set):
            ended.answer  # noqa: B018 (an error of the harness itself is raised here)

    def _take(self) -> tuple[int, Unit, ExitStack] | None:
        with self._lock:
            self._skip_done()
            while self._open and not self._over:
                stopped, entry = self._stop(), self._next()
                if entry is None and not stopped:
                    self._wait_for_others()
                    self._skip_done()
                    continue
                number, unit = entry or next(iter(self._open.items()))
                if stopped or not self._clock.fits(unit):
                    self._over = True
                    left = f"{max(self._clock.left(), 0):.0f} s are left, too little for"
                    self._tell(f"{'stopped before' if stopped else left} the next unit: {unit}")
                    break
                claim = self._claims.take(unit)
                self._skip_done()  # another process may have ended the unit just before it could be claimed
                if claim is not None and number in self._open:
                    del self._open[number]
                    self._shared.begin(number)
                    self._tell(f"[{number + 1}/{len(self._units)}] {unit}")
                    return number, unit, claim
                if claim is not None:
                    claim.close()
                elif number in self._open:
                    self._tell(f"[{number + 1}/{len(self._units)}] another process is at it: {unit}")
                    self.session.left.append(self._open.pop(number))
            self._leave_the_rest()
            return None

    def _wait_for_others(self) -> None:
        """Let go of the lock for a while. Runs must not be told meanwhile that they share the device with this lane."""
        from splitpu.engine.parallel_runs import standing_by

        with standing_by():
            self._lock.wait(_LOOK_AGAIN)

    def _skip_done(self) -> None:
        """Leave out what is done, by this process or another."""
        self._store.refresh()
        for number, unit in list(self._open.items()):
            if self._store.find(unit) is not None:
                self.session.skipped.append(self._open.pop(number))

    def _next(self) -> tuple[int, Unit] | None:
        """The first in order of those that need no stage another thread is still to make; None if all do.

        Such a unit is left for later: a thread that takes it up stands and waits, while others may become ready.
        """
        return next((entry for entry in self._open.items() if not self._shared.would_wait(entry[0])), None)

    def _run(self, number: int, unit: Unit) -> Line:
        from splitpu.reproduce.unit_runs import run_unit

        tell = self._tell_of(number)

        def begun(stage: str) -> None:
            with self._lock:
                self._shared.reached(number, stage)
                self._lock.notify_all()

        observer = _observer(self._clock, self._stop, begun, tell)
        return run_unit(unit, self._workplace, observer, lambda text: tell(f"    note: {text}"))

    def _ended(self, number: int) -> Unit:
        self._shared.end(number)
        self._lock.notify_all()
        return self._units[number]

    def _leave_the_rest(self) -> None:
        if self._over:
            self.session.left += self._open.values()
            self._open.clear()

    def _put_back(self, number: int, stopped: Interrupted) -> None:
        with self._lock:
            self._over = True
            self.session.left.append(self._ended(number))
        self._tell_of(number)(f"    {stopped}")

    def _failed(self, number: int, error: Exception) -> None:
        with self._lock:
            self.session.failed.append((self._ended(number), str(error)))
        told = f"    failed: {error}" if isinstance(error, SplitPUError) else traceback.format_exc()
        self._tell_of(number)(told)

    def _done(self, number: int, line: Line, seconds: float) -> None:
        with self._lock:
            unit = self._ended(number)
            self._clock.took(unit, seconds)
            self._store.add(unit, line)
            self.session.done.append(unit)
        self._tell_of(number)(f"    {_in_words(line)}")

    def _tell_of(self, number: int) -> Say:
        """Among several units at once every line says which one it is about."""
        if self._workplace.side_by_side == 1:
            return self._tell
        return lambda text: self._tell(f"[{number + 1}] {text.strip()}")


def smoke(chosen: "Iterable[Experiment]", folder: Path, device: str = "cpu", tell: Say = say) -> Session:
    """Run experiments and every method in them for one tiny unit, and render what came out; all is kept in `folder`."""
    from splitpu.reproduce.pages import render
    from splitpu.reproduce.unit_runs import Workplace
    from splitpu.reproduce.units import smoke_units

    store = ResultStore(folder / "results")
    units = smoke_units(chosen)
    session = run_units(units, store, Workplace(folder / "stages", device), tell=tell)
    render(store, folder / "docs", smoke=True)
    return session


def _observer(clock: Clock, stop: Callable[[], bool], begun: Say, tell: Say) -> "Observer":
    """Tells of every stage and stops in time. Defined here so that rendering alone needs no torch."""
    from splitpu.engine.stage import Observer, Stage, StageOutcome

    class Foreman(Observer):
        def __init__(self) -> None:
            self.restored = 0

        def stage_started(self, stage: Stage, done: int) -> None:
            self.restored = done
            begun(stage.name)

        def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
            epochs = len(outcome.history)
            if self.restored >= epochs:
                tell(f"    {stage.name}: from the cache")
            else:
                seconds = sum(record.seconds for record in outcome.history)
                tell(f"    {stage.name}: {epochs} epochs, {seconds:.1f} s")

        def should_stop(self) -> bool:
            return clock.left() <= 0 or stop()

    return Foreman()


def _in_words(line: Line) -> str:
    """One line for people.

    >>> _in_words({"accuracy": 91.6, "base_accuracy": 91.0, "seconds": 120.0, "wall_seconds": 80.0})
    'accuracy 91.60, base 91.00, 120 s of training, 80 s here'
    """
    return (
        f"accuracy {line['accuracy']:.2f}, base {line['base_accuracy']:.2f}, {line['seconds']:.0f} s of training, "
        f"{line['wall_seconds']:.0f} s here"
    )
