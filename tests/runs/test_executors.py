"""A grid of units: whoever starts them, what is done stays done, and no unit spoils another."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from splitpu.engine.stage import Observer
from splitpu.errors import InputError, Interrupted, SomeRunsFailed
from splitpu.runs.grid import Executor, Fate, Grid, InTurn, Progress, Results, Schedule
from splitpu.utils.warnings import Note


class Backwards:
    """A toy executor, which knows nothing of what it starts."""

    def run(self, grid: Grid[Any]) -> None:
        for job in reversed(list(grid)):
            job()


class Elsewhere:
    """Runs the unit where the grid cannot see it, as a cluster does, and only brings back what came of it."""

    def run(self, grid: Grid[Any]) -> None:
        for job in grid:
            found: list[Any] = []
            worker = threading.Thread(target=self._work, args=(job.unit, found))
            worker.start()
            worker.join()
            job.done(found[0])

    @staticmethod
    def _work(unit: Any, found: list[Any]) -> None:
        try:
            found.append(unit.run(Observer(), lambda _: None))
        except Exception as error:
            found.append(error)


class InThreads:
    """Asks the grid from three threads, each of which takes units in turn, as that of a cluster does."""

    def run(self, grid: Grid[Any]) -> None:
        with ThreadPoolExecutor(3) as threads:
            for future in [threads.submit(InTurn().run, grid) for _ in range(3)]:
                future.result()


EXECUTORS: list[Executor] = [InTurn(), InThreads(), Backwards(), Elsewhere()]
IDS = ["in turn", "in threads", "backwards", "elsewhere"]


@dataclass(frozen=True)
class Squared:
    name: str

    def run(self, observer: Observer, note: Note) -> int:
        return int(self.name) ** 2


@dataclass(frozen=True)
class Counting:
    """A unit that counts to ten, one step at a time, and remembers how far it came."""

    name: str
    reached: dict[str, int]
    fails: bool = False

    def run(self, observer: Observer, note: Note) -> int:
        note(f"begins at {self.reached.get(self.name, 0)}")
        while self.reached.get(self.name, 0) < 10:
            if observer.should_stop():
                raise Interrupted(f"stopped at {self.reached.get(self.name, 0)}")
            if self.fails:
                raise RuntimeError("no luck today")
            self.reached[self.name] = self.reached.get(self.name, 0) + 1
        return 10


class Kept(Results[Counting]):
    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def find(self, unit: Counting) -> int | None:
        return self.found.get(unit.name)

    def add(self, unit: Counting, result: int) -> None:
        self.found[unit.name] = result


class Heard(Progress[Counting]):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, unit: Counting, text: str) -> None:
        self.lines.append(f"{unit.name} {text}")

    def became(self, unit: Counting, what: Fate, detail: Any = None) -> None:
        if what == "not begun":
            self.lines.append(f"{detail} {unit.name}")


def counting(names: str = "abc", fails: str = "", reached: dict[str, int] | None = None) -> list[Counting]:
    shared = {} if reached is None else reached
    return [Counting(name, shared, name in fails) for name in names]


@pytest.mark.parametrize("executor", EXECUTORS, ids=IDS)
def test_whoever_starts_them_results_are_in_the_order_of_the_units(executor: Executor) -> None:
    assert Grid([Squared(str(number)) for number in range(5)]).run(executor).results() == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("executor", EXECUTORS, ids=IDS)
def test_one_that_fails_does_not_lose_the_others(executor: Executor) -> None:
    kept, reached = Kept(), dict[str, int]()
    session = Grid(counting(fails="b", reached=reached), kept).run(executor)
    with pytest.raises(SomeRunsFailed, match=r"^b failed \(no luck today\); finished: a, c\.$") as some:
        session.results()
    assert some.value.finished == {0: 10, 2: 10} and list(some.value.failed) == [1]
    assert sorted(kept.found) == ["a", "c"]
    again = Grid(counting(reached=reached), kept).run(executor)
    assert (again.done, sorted(again.skipped)) == ({1: 10}, [0, 2]) and len(kept.found) == 3


@pytest.mark.parametrize("executor", EXECUTORS[:-1], ids=IDS[:-1])
def test_what_was_stopped_goes_on_where_it_was(executor: Executor) -> None:
    """The first unit that comes to four steps asks all to stop; none of them loses what it has."""
    kept, reached, heard = Kept(), dict[str, int](), Heard()
    stop: Callable[[], bool] = lambda: max(reached.values(), default=0) >= 4  # noqa: E731
    session = Grid(counting(reached=reached), kept, progress=heard).run(executor, stop)
    assert sorted(session.left) == [0, 1, 2] and not session.failed and not kept.found
    with pytest.raises(Interrupted, match="stopped at"):
        session.results()
    before, heard.lines[:] = dict(reached), []
    assert max(before.values()) < 10
    assert Grid(counting(reached=reached), kept, progress=heard).run(executor).results() == [10, 10, 10]
    assert sorted(heard.lines) == [f"{name} begins at {before.get(name, 0)}" for name in "abc"]


def test_nothing_is_begun_after_a_request_to_stop() -> None:
    heard = Heard()
    session = Grid(counting(), progress=heard).run(InTurn(), lambda: True)
    assert session.left == [0, 1, 2] and heard.lines == ["stopped before a"]
    with pytest.raises(Interrupted, match="stopped before a"):
        session.results()


def test_an_interruption_beats_a_failure() -> None:
    reached: dict[str, int] = {}
    session = Grid(counting(fails="a", reached=reached)).run(InTurn(), lambda: reached.get("b", 0) >= 4)
    assert list(session.failed) == [0] and session.left == [1, 2]
    with pytest.raises(Interrupted):
        session.results()


@pytest.mark.parametrize("executor", EXECUTORS[:2], ids=IDS[:2])
def test_a_result_that_cannot_be_kept_ends_the_grid(executor: Executor) -> None:
    class Full(Kept):
        def add(self, unit: Counting, result: int) -> None:
            raise InputError("the disk is full")

    with pytest.raises(InputError, match="the disk is full"):
        Grid(counting(), Full()).run(executor)


def test_a_schedule_says_which_unit_may_begin_and_when_no_more_may() -> None:
    class LastFirst(Schedule[Counting]):
        begun: list[str] = []  # noqa: RUF012

        def is_ready(self, unit: Counting) -> bool:
            return unit.name != "a" or len(self.begun) == 2

        def why_not(self, unit: Counting) -> str:
            return "too late for" if unit.name == "a" else ""

        def started(self, unit: Counting) -> None:
            self.begun.append(unit.name)

    heard, schedule = Heard(), LastFirst()
    session = Grid(counting(), schedule=schedule, progress=heard).run(InTurn())
    assert schedule.begun == ["b", "c"] and session.left == [0] and heard.lines[-1] == "too late for a"
