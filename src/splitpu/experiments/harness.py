"""Running many units: what is done is skipped, what fails is told, and the time limit is kept."""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from splitpu.errors import Interrupted, SplitPUError
from splitpu.experiments.store import Line, ResultStore
from splitpu.experiments.units import Unit

if TYPE_CHECKING:
    from splitpu.engine.stage import Observer
    from splitpu.experiments.running import Workplace

RESERVE = 5.0  # seconds before the limit that belong to writing and leaving

Say = Callable[[str], None]


def say(text: str) -> None:
    """Progress goes to standard error, at once."""
    print(text, file=sys.stderr, flush=True)


class Clock:
    """How much time there is, and whether the next unit fits into it, judged by those before."""

    def __init__(self, minutes: float | None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = None if minutes is None else now() + 60 * minutes - RESERVE
        # Seconds of a method's units that had a base to train, and of those that had none.
        self._longest: dict[tuple[str, bool], float] = {}
        self._bases: set[tuple[str, str, str, int, int]] = set()

    def left(self) -> float:
        """Seconds until the limit."""
        return float("inf") if self._end is None else self._end - self._now()

    def fits(self, unit: Unit) -> bool:
        """Whether a unit can be expected to end in time; the first one is always tried."""
        if self.left() <= 0:
            return False
        expected = self._longest.get(self._like(unit), max(self._longest.values(), default=0.0))
        return expected <= self.left()

    def took(self, unit: Unit, seconds: float) -> None:
        """Remember how long a unit was."""
        like = self._like(unit)
        self._longest[like] = max(self._longest.get(like, 0.0), seconds)
        self._bases.add(_base_of(unit))

    def _like(self, unit: Unit) -> tuple[str, bool]:
        return unit.method, _base_of(unit) not in self._bases


def _base_of(unit: Unit) -> tuple[str, str, str, int, int]:
    return unit.work, unit.data, unit.recipe, unit.positives, unit.seed


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
    stop: Callable[[], bool] = lambda: False,
    tell: Say = say,
) -> Session:
    """Run what is not done yet until all is done or time is up. An interrupted unit goes on from its checkpoints."""
    session, clock = Session(), Clock(minutes)
    for number, unit in enumerate(units):
        if store.find(unit) is not None:
            session.skipped.append(unit)
            continue
        if stop() or not clock.fits(unit):
            session.left += [unit for unit in units[number:] if store.find(unit) is None]
            tell(f"{max(clock.left(), 0):.0f} s are left, too little for the next unit: {unit}")
            break
        tell(f"[{number + 1}/{len(units)}] {unit}")
        started = time.monotonic()
        try:
            line = _run(unit, workplace, clock, stop, tell)
        except Interrupted as stopped:
            session.left += [unit for unit in units[number:] if store.find(unit) is None]
            tell(f"    {stopped}")
            break
        except Exception as error:
            # One unit that cannot be run says nothing about the others.
            session.failed.append((unit, str(error)))
            tell(f"    failed: {error}" if isinstance(error, SplitPUError) else traceback.format_exc())
            continue
        clock.took(unit, time.monotonic() - started)
        store.add(unit, line)
        session.done.append(unit)
        tell(f"    {_in_words(line)}")
    tell(session.summary())
    return session


def smoke(folder: Path, device: str = "cpu", tell: Say = say) -> Session:
    """Run every experiment for one tiny unit, and render what came out; everything is kept in `folder`."""
    from splitpu.experiments.declared import experiments
    from splitpu.experiments.rendering import render
    from splitpu.experiments.running import Workplace
    from splitpu.experiments.units import smoke_units

    store = ResultStore(folder / "results")
    units = smoke_units(experiments().values())
    session = run_units(units, store, Workplace(folder / "stages", device), tell=tell)
    render(store, folder / "docs", smoke=True)
    return session


def _run(unit: Unit, workplace: "Workplace", clock: Clock, stop: Callable[[], bool], tell: Say) -> Line:
    from splitpu.experiments.running import run_unit

    return run_unit(unit, workplace, _observer(clock, stop, tell), lambda text: tell(f"    note: {text}"))


def _observer(clock: Clock, stop: Callable[[], bool], tell: Say) -> "Observer":
    """Tells of every stage and stops in time. Defined here so that rendering alone needs no torch."""
    from splitpu.engine.stage import Observer, Stage, StageOutcome

    class Foreman(Observer):
        def __init__(self) -> None:
            self.restored = 0

        def stage_started(self, stage: Stage, done: int) -> None:
            self.restored = done

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
