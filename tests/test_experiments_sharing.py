"""Which stages units share, and that no lane stands and waits for another's while there is other work."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiment_tools import made_up, units_of

from splitpu.engine.parallel_runs import runs_at_once
from splitpu.reproduce import unit_runs as running
from splitpu.reproduce.runner import SharedStages, run_units, shareable_stages
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import Unit


def drawn(name: str, recipe: str = "default", *, positives: tuple[int, ...] = (1000,), seed: int = 0) -> list[Unit]:
    return units_of(name, recipe=recipe, positives=positives, seeds=[seed])


def stages(unit: Unit) -> list[str]:
    return [name for _, name in shareable_stages(unit)]


def test_students_that_differ_share_base_and_split() -> None:
    one, other = drawn("rho")[:2]
    assert stages(one)[:2] == stages(other)[:2]
    assert stages(one)[2] != stages(other)[2]


def test_splits_that_differ_share_the_base_alone() -> None:
    one, other = drawn("tau")[:2]
    assert stages(one)[0] == stages(other)[0]
    assert set(stages(one)[1:]).isdisjoint(stages(other)[1:])


def test_numbers_of_labels_share_the_warm_up_alone() -> None:
    one, other = drawn("main", "record", positives=(500, 1000))
    assert stages(one)[0] == stages(other)[0]
    assert set(stages(one)[1:]).isdisjoint(stages(other)[1:])


def test_seeds_recipes_and_held_out_rows_share_nothing() -> None:
    usual = stages(drawn("main")[0])
    for unit in (*drawn("main", seed=1), *drawn("main", "paper"), *drawn("recipe-choice")):
        assert set(usual).isdisjoint(stages(unit))


def test_a_watched_student_is_nobody_elses() -> None:
    figure, table = drawn("spr", "paper")[0], drawn("main", "paper")[0]
    assert stages(figure)[:2] == stages(table)[:2]
    assert stages(figure)[2] != stages(table)[2]


def test_whoever_shares_waits_until_the_stage_is_made() -> None:
    shared = SharedStages([*drawn("rho")[:2], *drawn("main", seed=1)])
    shared.begin(0)
    assert shared.would_wait(1)
    assert not shared.would_wait(2)
    for stage in ("base", "round1.split", "round1.split.again1"):
        shared.reached(0, stage)
        assert shared.would_wait(1)
    shared.reached(0, "round1.student")
    assert not shared.would_wait(1)
    shared.begin(1)
    shared.end(0)
    shared.end(1)
    assert not any(map(shared.would_wait, range(3)))


def test_more_rounds_wait_for_the_student_of_the_first() -> None:
    shared = SharedStages([*drawn("rounds", "paper"), *drawn("main", "paper")])
    shared.begin(0)
    shared.reached(0, "round1.student")
    assert shared.would_wait(1)
    shared.reached(0, "round2.split")
    assert not shared.would_wait(1)


def test_lanes_take_up_a_unit_as_soon_as_what_it_shares_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first unit trains its student until the second, which shares its base and split, is under way."""
    units = [*drawn("rho")[:2], *drawn("main", seed=1)]
    begun = {str(unit): threading.Event() for unit in units}
    order: list[str] = []

    def run_unit(unit: Unit, workplace: Workplace, observer: Any, note: Any) -> dict[str, Any]:
        order.append(str(unit))
        begun[str(unit)].set()
        for name in ("base", "round1.split", "round1.student"):
            observer.stage_started(SimpleNamespace(name=name), 0)
            if unit is units[0] and name == "base":
                assert begun[str(units[2])].wait(20)
            if unit is units[0] and name == "round1.student":
                assert begun[str(units[1])].wait(20)
        return made_up(unit, 90.0)

    monkeypatch.setattr(running, "run_unit", run_unit)
    place = Workplace(tmp_path / "stages", "cpu", side_by_side=2)
    session = run_units(units, ResultStore(tmp_path / "results"), place, tell=lambda text: None)
    assert len(session.done) == 3 and not session.failed
    assert order == [str(units[0]), str(units[2]), str(units[1])]


def test_a_lane_without_a_unit_that_is_ready_waits_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All units share a base: no lane begins one of them, only to stand still, before it is made.

    Meanwhile the device is not shared: the seconds of a run are divided by those who share it.
    """
    units = drawn("rho")[:3]
    base_is_made = threading.Event()
    too_early: list[str] = []
    at_once: list[int] = []

    def run_unit(unit: Unit, workplace: Workplace, observer: Any, note: Any) -> dict[str, Any]:
        if unit is units[0]:
            time.sleep(0.2)  # in which the other lanes look for something to do
            for _ in range(2000):  # until both of them wait
                at_once.append(runs_at_once())
                if at_once[-1] == 1:
                    break
                time.sleep(0.01)
            base_is_made.set()
        elif not base_is_made.is_set():
            too_early.append(str(unit))
        observer.stage_started(SimpleNamespace(name="round1.student"), 0)
        return made_up(unit, 90.0)

    monkeypatch.setattr(running, "run_unit", run_unit)
    place = Workplace(tmp_path / "stages", "cpu", side_by_side=3)
    session = run_units(units, ResultStore(tmp_path / "results"), place, tell=lambda text: None)
    assert len(session.done) == 3 and not too_early
    assert at_once[-1] == 1
