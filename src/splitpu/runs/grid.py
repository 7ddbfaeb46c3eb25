"""One grid of runs: behind `fit --seeds`, `compare` and `reproduce`. A grid hands out its units, leaves out those that
are done, goes on after one that failed, and stops where it is asked to; an executor only starts what it is handed, in
turn or on other machines. Neither knows what a unit computes."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

from splitpu.engine.stage import CountedEpochs, EpochRecord, Observer, Stage, StageOutcome
from splitpu.errors import Interrupted, SomeRunsFailed
from splitpu.utils.warnings import Note

_LOOK_AGAIN = 1.0  # seconds; a stop from outside wakes nobody who waits
Fate = Literal["started", "done", "failed", "interrupted", "elsewhere", "not begun"]


class Unit(Protocol):
    """A run with a result, that goes on where it was if it was stopped."""

    @property
    def name(self) -> str:
        """As progress lines and failures call it."""

    def run(self, observer: Observer, note: Note) -> Any:
        """Bring it to its end; the observer says when to stop, which ends it with `Interrupted`."""


AUnit = TypeVar("AUnit", bound=Unit)


class Results(Generic[AUnit]):
    """Where results are kept for the next time; this one keeps nothing."""

    def refresh(self) -> None:
        """Look for what others have added since."""

    def find(self, unit: AUnit) -> Any | None:
        """The unit's result if it is done."""
        return None

    def add(self, unit: AUnit, result: Any) -> None:
        """Keep a result. An error here ends the grid, as the next results could not be kept either."""


class Schedule(Generic[AUnit]):
    """Which unit may begin, and when no more may; this one lets all begin in their order.

    All but `out_of_time` are asked and told under the lock of the grid."""

    def is_ready(self, unit: AUnit) -> bool:
        """Whether it can begin now, or has to wait for one that runs."""
        return True

    def why_not(self, unit: AUnit) -> str:
        """Why neither this unit nor any after it may begin; empty if it may."""
        return ""

    def claim(self, unit: AUnit) -> ExitStack | None:
        """Hold the unit until the stack is closed; None if another process has it."""
        return ExitStack()

    def started(self, unit: AUnit) -> None:
        """The unit is handed out."""

    def reached(self, unit: AUnit, stage: str) -> None:
        """The unit has begun a stage."""

    def ended(self, unit: AUnit, seconds: float | None) -> None:
        """The unit has ended, after so many seconds if it came to its end."""

    def out_of_time(self) -> bool:
        """Whether those that run have to stop."""
        return False


class Progress(Generic[AUnit]):
    """What is told of the units of a grid; this one is silent."""

    def stage_done(self, unit: AUnit, stage: str, history: Sequence[EpochRecord], restored: int) -> None:
        """A stage of it is done, of whose epochs so many were there before."""

    def watch(self, what: str, done: int, of: int) -> None:
        """How far the stage is that a unit is in."""

    def note(self, unit: AUnit, text: str) -> None:
        """It has something to say."""

    def became(self, unit: AUnit, what: Fate, detail: Any = None) -> None:
        """What became of it: done has its result, failed and interrupted their exception, not begun the reason.

        Of one that is not begun neither are those after it."""


class Executor(Protocol):
    """Starts units and does nothing else: takes a job from the grid whenever it has room for one, and calls it.

    One that runs units elsewhere, as `RayCluster` does, has `job.unit` run there and tells `job.done` what came of
    it, be it an exception. One of your own, such as `for job in reversed(list(grid)): job()` in its `run`, is given to
    `Grid(units).run`."""

    def run(self, grid: "Grid[Any]") -> None:
        """Start everything that the grid hands out, and come back when all has ended."""


class InTurn:
    """One unit after the other, here."""

    def run(self, grid: "Grid[Any]") -> None:
        """Take the next one when the last has ended."""
        for job in grid:
            job()


class Grid(Generic[AUnit]):
    """Hands out units in their order and writes down what came of each, which is known by its number.

    It may be asked from several threads."""

    def __init__(
        self,
        units: Sequence[AUnit],
        results: Results[AUnit] | None = None,
        *,
        schedule: Schedule[AUnit] | None = None,
        progress: Progress[AUnit] | None = None,
    ) -> None:
        self.units, self._open = units, dict(enumerate(units))
        self.done: dict[int, Any] = {}  # with the result; as all of these in the order in which it came
        self.skipped: list[int] = []  # done before
        self.failed: dict[int, Exception] = {}
        self.left: list[int] = []
        self.interrupted: Interrupted | None = None  # what the first unit said that was asked to stop
        self.progress: Progress[AUnit] = progress or Progress()
        self._results: Results[AUnit] = results or Results()
        self._schedule: Schedule[AUnit] = schedule or Schedule()
        self._stop: Callable[[], bool] = lambda: False
        self._lock = threading.Condition()  # told of every stage that begins and of every unit that has ended
        self._left = threading.Event()  # the process is on its way out
        self._over = False  # no more units are handed out; those that run go on

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator["Job[AUnit]"]:
        return self

    def __next__(self) -> "Job[AUnit]":
        """Hand out the next unit, waiting until there is one that can begin."""
        with self._lock:
            self._skip_done()
            while self._open and not self._over:
                stopped = self.stopping()
                # One that is not ready is left for later: a worker that took it would wait, while others may be ready.
                number = next((number for number, unit in self._open.items() if self._schedule.is_ready(unit)), None)
                if number is None and not stopped:
                    self._lock.wait(_LOOK_AGAIN)
                    self._skip_done()
                    continue
                number = next(iter(self._open)) if number is None else number
                reason = "stopped before" if stopped else self._schedule.why_not(self.units[number])
                if reason:
                    self._over = True
                    self.progress.became(self.units[number], "not begun", reason)
                elif (job := self._taken(number)) is not None:
                    return job
            if self._over:
                self.left += self._open
                self._open.clear()
        raise StopIteration

    def run(self, executor: Executor, stop: Callable[[], bool] = lambda: False) -> "Grid[AUnit]":
        """Have all units started that are not done, until somebody answers `stop` with yes."""
        self._stop = stop
        try:
            executor.run(self)
        except BaseException:
            self.stop()
            raise
        return self

    def results(self) -> list[Any]:
        """All that were made, in the order of the units, or an error that names those that failed."""
        if self.left:
            raise self.interrupted or Interrupted(f"stopped before {self.units[self.left[0]].name}.")
        if self.failed:
            failed, finished = dict(sorted(self.failed.items())), dict(sorted(self.done.items()))
            reasons = "; ".join(f"{self.units[number].name} failed ({error})" for number, error in failed.items())
            others = ", ".join(self.units[number].name for number in finished) or "none"
            raise SomeRunsFailed(f"{reasons}; finished: {others}.", failed, finished) from next(iter(failed.values()))
        return [self.done[number] for number in sorted(self.done)]

    def stop(self) -> None:
        """Begin no more units, and have those that run stop."""
        self._left.set()

    def stopping(self) -> bool:
        """Whether somebody wants the grid to stop."""
        return self._left.is_set() or self._stop()

    def must_stop(self) -> bool:
        """Whether units that run have to."""
        return self._schedule.out_of_time() or self.stopping()

    def reached(self, unit: AUnit, stage: str) -> None:
        """A unit has begun a stage, for which others may have waited."""
        with self._lock:
            self._schedule.reached(unit, stage)
            self._lock.notify_all()

    def ended(self, number: int, end: Any, seconds: float) -> None:
        """Write down how a unit ended: with a result or with an exception."""
        unit, failed = self.units[number], isinstance(end, Exception)
        with self._lock:
            self._schedule.ended(unit, None if failed else seconds)
            self._lock.notify_all()
            fate: Fate = "interrupted" if isinstance(end, Interrupted) else "failed" if failed else "done"
            if isinstance(end, Interrupted):
                self._over = True
                self.interrupted = self.interrupted or end
                self.left.append(number)
            elif failed:
                self.failed[number] = end  # a unit that cannot be run says nothing about the others
            else:
                self._results.add(unit, end)
                self.done[number] = end
        self.progress.became(unit, fate, end)

    def _taken(self, number: int) -> "Job[AUnit] | None":
        unit, claim = self.units[number], self._schedule.claim(self.units[number])
        self._skip_done()  # another process may have ended the unit just before it could be claimed
        if number not in self._open:
            if claim is not None:
                claim.close()
            return None
        del self._open[number]
        if claim is None:
            self.progress.became(unit, "elsewhere")
            self.left.append(number)
            return None
        self._schedule.started(unit)
        self.progress.became(unit, "started")
        return Job(self, number, unit, claim)

    def _skip_done(self) -> None:
        """Leave out what is done, by this process or another."""
        self._results.refresh()
        for number, unit in list(self._open.items()):
            if self._results.find(unit) is not None:
                del self._open[number]
                self.skipped.append(number)


class Job(CountedEpochs, Generic[AUnit]):
    """A unit that was handed out: called where it is to run here, told of its end where it runs elsewhere.

    It tells the grid how far the unit is, and the unit when to stop."""

    def __init__(self, grid: Grid[AUnit], number: int, unit: AUnit, claim: ExitStack) -> None:
        super().__init__(grid.progress.watch, grid.must_stop, f"{unit.name}  ")
        self.unit = unit
        self._grid, self._number, self._claim, self._restored = grid, number, claim, 0
        self._began = time.monotonic()

    def __call__(self) -> None:
        """Run the unit here; only what is no `Exception`, such as Ctrl-C, is raised."""
        with self._claim:
            try:
                end = self.unit.run(self, partial(self._grid.progress.note, self.unit))
            except Exception as error:
                end = error
            self.done(end)

    def done(self, end: Any) -> None:
        """It came to its end: a result, or the exception that it failed with or was `Interrupted` by."""
        with self._claim:
            self._grid.ended(self._number, end, time.monotonic() - self._began)

    def stage_started(self, stage: Stage, done: int) -> None:
        self._restored = done
        self._grid.reached(self.unit, stage.name)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        self._grid.progress.stage_done(self.unit, stage.name, outcome.history, self._restored)
