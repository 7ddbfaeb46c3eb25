"""Units of the paper's tables as a grid of runs, with what only these need: a limit of time, claims among processes
that share a cache, and an order in which no worker waits for a stage that another one is training."""

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import SplitPUError
from splitpu.reproduce import unit_runs
from splitpu.reproduce.declared import Experiment
from splitpu.reproduce.store import Line, ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import Unit, place_of, shareable_stages, smoke_units
from splitpu.runs.grid import Executor, Fate, Grid, InTurn, Progress, Results, Schedule
from splitpu.utils.files import Taken, disk_errors_in_words, held_alone
from splitpu.utils.text import say
from splitpu.utils.warnings import Note

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
        return float("inf") if self._end is None else self._end - self._now()

    def fits(self, unit: Unit) -> bool:
        """Whether a unit can be expected to end in time; the first is always tried, and all if time is to be filled."""
        if self.left() <= 0 or self._fill:
            return self.left() > 0
        # What nothing like it has been run of takes as much longer than guessed as other things did.
        return self._longest.get(self._like(unit), self._slowest * unit.guessed_seconds) <= self.left()

    def took(self, unit: Unit, seconds: float) -> None:
        like = self._like(unit)
        self._longest[like] = max(self._longest.get(like, 0.0), seconds)
        self._slowest = max(self._slowest, seconds / unit.guessed_seconds)
        self._bases.add(_base_of(unit))

    def _like(self, unit: Unit) -> tuple[str, str, bool]:
        return unit.recipe, unit.method, _base_of(unit) not in self._bases


def _base_of(unit: Unit) -> tuple[str, str, str, int, int]:
    return unit.work, unit.data, unit.recipe, unit.positives, unit.seed


@dataclass(frozen=True)
class UnitRun:
    """A unit of the plan at the place where it is run."""

    number: int
    unit: Unit
    workplace: Workplace

    @property
    def name(self) -> str:
        return str(self.unit)

    def run(self, observer: Observer, note: Note) -> Line:
        return unit_runs.run_unit(self.unit, self.workplace, observer, note)


def run_units(
    units: Sequence[Unit],
    store: ResultStore,
    workplace: Workplace,
    *,
    minutes: float | None = None,
    fill: bool = False,
    stop: Callable[[], bool] = lambda: False,
    tell: Note = say,
    executor: Executor | None = None,
) -> Grid[UnitRun]:
    """Run what is not done yet until all is done or time is up. An interrupted unit goes on from its checkpoints."""
    grid = Grid(
        [UnitRun(number, unit, workplace) for number, unit in enumerate(units)],
        _StoredResults(store),
        schedule=UnitSchedule(units, Clock(minutes, fill=fill)),
        progress=_Lines(len(units), executor is None, tell),
    )
    grid.run(executor or InTurn(), stop)
    done, skipped, failed, left = map(len, (grid.done, grid.skipped, grid.failed, grid.left))
    later = " The same command goes on from here." if left else ""
    tell(f"{done} units run, {skipped} were done before, {failed} failed, {left} are left.{later}")
    return grid


class _StoredResults(Results[UnitRun]):
    """The result lines, to which other processes may add as well."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def refresh(self) -> None:
        self._store.refresh()

    def find(self, unit: UnitRun) -> Line | None:
        return self._store.find(unit.unit)

    def add(self, unit: UnitRun, result: Line) -> None:
        self._store.add(unit.unit, result)


class UnitSchedule(Schedule[UnitRun]):
    """Begins what fits into the time, what no other process is at, and what needs no stage that is being made."""

    def __init__(self, units: Sequence[Unit], clock: Clock) -> None:
        self._clock = clock
        self._stages = cache(lambda number: shareable_stages(units[number]))
        self._ahead: dict[int, dict[int, str]] = {}  # what the units that run, by their number, are still to make

    def is_ready(self, unit: UnitRun) -> bool:
        ahead = {name for names in self._ahead.values() for name in names.values()}
        return not ahead or ahead.isdisjoint(self._stages(unit.number).values())

    def why_not(self, unit: UnitRun) -> str:
        return "" if self._clock.fits(unit.unit) else f"{max(self._clock.left(), 0):.0f} s are left, too little for"

    def claim(self, unit: UnitRun) -> ExitStack | None:
        """By a lock file beside the stages."""
        folder, claim = unit.workplace.cache / "claims", ExitStack()
        try:
            with disk_errors_in_words(folder):
                folder.mkdir(parents=True, exist_ok=True)
                name = hashlib.sha256(unit.unit.work_key.encode()).hexdigest()[:32]
                claim.enter_context(held_alone(folder / name))
        except Taken:
            return None
        return claim

    def started(self, unit: UnitRun) -> None:
        self._ahead[unit.number] = self._stages(unit.number)

    def reached(self, unit: UnitRun, stage: str) -> None:
        here, ahead = place_of(stage), self._ahead[unit.number]
        self._ahead[unit.number] = {place: name for place, name in ahead.items() if place >= here}

    def ended(self, unit: UnitRun, seconds: float | None) -> None:
        del self._ahead[unit.number]
        if seconds is not None:
            self._clock.took(unit.unit, seconds)

    def out_of_time(self) -> bool:
        return self._clock.left() <= 0


class _Lines(Progress[UnitRun]):
    """A line for every unit and every stage of it; among several units at once each says which one it is about."""

    def __init__(self, units: int, in_turn: bool, tell: Note) -> None:
        self._units, self._in_turn, self._tell = units, in_turn, tell

    def stage_done(self, unit: UnitRun, stage: str, history: Sequence[EpochRecord], restored: int) -> None:
        epochs, seconds = len(history), sum(record.seconds for record in history)
        trained = "from the cache" if restored >= epochs else f"{epochs} epochs, {seconds:.1f} s"
        self._tell_of(unit, f"    {stage}: {trained}")

    def note(self, unit: UnitRun, text: str) -> None:
        self._tell_of(unit, f"    note: {text}")

    def became(self, unit: UnitRun, what: Fate, detail: Any = None) -> None:
        match what:
            case "started":
                self._tell(f"[{unit.number + 1}/{self._units}] {unit.name}")
            case "elsewhere":
                self._tell(f"[{unit.number + 1}/{self._units}] another process is at it: {unit.name}")
            case "not begun":
                self._tell(f"{detail} the next unit: {unit.name}")
            case "done":
                found = f"accuracy {detail['accuracy']:.2f}, base {detail['base_accuracy']:.2f}"
                times = f"{detail['seconds']:.0f} s of training, {detail['wall_seconds']:.0f} s here"
                self._tell_of(unit, f"    {found}, {times}")
            case "failed" if not isinstance(detail, SplitPUError):
                self._tell_of(unit, "".join(traceback.format_exception(detail)))
            case _:
                self._tell_of(unit, f"    {'failed: ' if what == 'failed' else ''}{detail}")

    def _tell_of(self, unit: UnitRun, text: str) -> None:
        self._tell(text if self._in_turn else f"[{unit.number + 1}] {text.strip()}")


def smoke(chosen: Iterable[Experiment], folder: Path, device: str = "cpu", tell: Note = say) -> Grid[UnitRun]:
    """Run experiments and every method in them for one tiny unit, and render what came out; all is kept in `folder`."""
    from splitpu.reproduce.pages import render

    store = ResultStore(folder / "results", smoke=True)
    session = run_units(smoke_units(chosen), store, Workplace(folder / "stages", device), tell=tell)
    render(store, folder / "docs")
    return session
