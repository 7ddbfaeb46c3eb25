"""Several runs at once: the same as one by one, sharing rows and stages, none disturbing another."""

import json
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from splitpu import load_named, make_pu, preset, train, train_side_by_side
from splitpu.config.parse import apply_overrides
from splitpu.config.schema import EngineConfig
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.parallel_runs import SharedRows, in_lanes, runs_at_once
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.errors import InputError, Interrupted, SomeRunsFailed, SplitPUWarning
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.runner import run_units
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import smoke_units
from splitpu.training import Training
from splitpu.utils.torch_state import StageDraws, seeded
from splitpu.utils.warnings import collected_warnings

SEEDS = (0, 1, 2)
PRIOR = 0.49
CPU = torch.device("cpu")
TINY = apply_overrides(
    preset("default"),
    [
        *("base.epochs=2", "split.max_epochs=1", "split.tau=0.01", "student.epochs=1", "rounds=1"),
        *("student.optimiser.average=0.9", "engine.threads=1"),
    ],
)


class Dropping(nn.Module):
    """A network that draws from torch's own generator while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(64, 16), nn.Dropout(0.5)
        self.second, self.head = nn.Linear(16, 8), nn.Linear(8, 1)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low = torch.relu(self.first(batch.flatten(1)))
        high = torch.relu(self.second(self.drop(low)))
        return low, high, self.head(high)


@pytest.fixture(scope="module")
def draws() -> list[PUData]:
    digits = load_named("digits")
    return [make_pu(digits, 50, seed)[0] for seed in SEEDS]


def model_bytes(training: Training, folder: Path) -> bytes:
    training.model.save(folder)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("backbone", ["cnn-small", Dropping], ids=["cnn-small", "dropout"])
def test_at_once_is_bitwise_one_by_one(draws: list[PUData], tmp_path: Path, backbone: Any) -> None:
    alone = [
        train(data, prior=PRIOR, config=TINY, seed=seed, backbone=backbone, device="cpu")
        for data, seed in zip(draws, SEEDS, strict=True)
    ]
    expected = [model_bytes(one, tmp_path / f"alone{n}") for n, one in enumerate(alone)]
    assert len(set(expected)) == len(SEEDS)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for at_once in (1, 3):
        together = train_side_by_side(
            draws, seeds=SEEDS, prior=PRIOR, config=TINY, backbone=backbone, device="cpu", at_once=at_once
        )
        found = [model_bytes(one, tmp_path / f"{at_once}-{n}") for n, one in enumerate(together)]
        assert found == expected, f"{at_once} at once"
    assert torch.equal(torch.get_rng_state(), before)


def test_settings_instead_of_seeds(draws: list[PUData]) -> None:
    settings = [apply_overrides(TINY, ["method=nnpu", f"base.epochs={epochs}"]) for epochs in (1, 2)]
    found = train_side_by_side(draws[0], seeds=(0, 0), prior=PRIOR, config=settings, device="cpu", at_once=2)
    assert [len(one.result.history) for one in found] == [1, 2]
    with pytest.raises(InputError, match="config has 2 entries for 3 seeds"):
        train_side_by_side(draws[0], seeds=SEEDS, prior=PRIOR, config=settings, device="cpu")


def test_rows_are_shared(draws: list[PUData]) -> None:
    shared = SharedRows()
    stores = [shared.of(data.features, CPU, "auto")[0] for data in draws]
    assert stores[0] is stores[1] is stores[2]
    other = shared.of(draws[0].features.copy(), CPU, "auto")[0]
    assert other is not stores[0]


class FailsLater(Observer):
    def epoch_done(self, record: EpochRecord) -> None:
        raise RuntimeError("the disk is on fire")


def test_one_failure_names_itself_and_stops_nobody(draws: list[PUData]) -> None:
    observers = [Observer(), FailsLater(), Observer()]
    with pytest.raises(
        SomeRunsFailed, match=r"seed 1 failed \(the disk is on fire\); finished: seed 0, seed 2"
    ) as error:
        train_side_by_side(
            draws, seeds=SEEDS, prior=PRIOR, config=TINY, backbone=Dropping, at_once=3, observers=observers
        )
    assert sorted(error.value.finished) == [0, 2] and isinstance(error.value.finished[2], Training)


class AsksToStop(Observer):
    def __init__(self, asked: threading.Event, *, after_base: bool) -> None:
        self.asked, self.after_base = asked, after_base

    def stage_done(self, stage: Any, outcome: Any) -> None:
        if self.after_base:
            self.asked.set()

    def should_stop(self) -> bool:
        return self.asked.is_set()


def test_stopping_stops_all_and_all_go_on(draws: list[PUData], tmp_path: Path) -> None:
    asked = threading.Event()
    how: dict[str, Any] = {"seeds": SEEDS, "prior": PRIOR, "config": TINY, "device": "cpu", "backbone": Dropping}
    observers = [AsksToStop(asked, after_base=seed == 0) for seed in SEEDS]
    with pytest.raises(Interrupted):
        train_side_by_side(draws, **how, at_once=3, checkpoints=tmp_path / "stages", observers=observers)
    assert list((tmp_path / "stages").glob("base-*"))
    gone_on = train_side_by_side(draws, **how, at_once=3, checkpoints=tmp_path / "stages")
    for number, (one, data) in enumerate(zip(gone_on, draws, strict=True)):
        alone = train(data, prior=PRIOR, config=TINY, seed=SEEDS[number], backbone=Dropping, device="cpu")
        assert model_bytes(one, tmp_path / f"on{number}") == model_bytes(alone, tmp_path / f"alone{number}")


# -------------------------------------------------------------------------------------------------- what torch has once


def at_the_same_time(*jobs: Any) -> list[Any]:
    return [ended.answer for ended in in_lanes(jobs, CPU, len(jobs))]


def test_every_job_knows_how_many_are_at_work() -> None:
    both = threading.Barrier(2)

    def first() -> int:
        both.wait(20)
        found = runs_at_once()
        both.wait(20)
        return found

    def second() -> list[int]:
        both.wait(20)
        found = [runs_at_once()]
        both.wait(20)
        for _ in range(2000):  # until the first has ended
            if runs_at_once() == 1:
                break
            time.sleep(0.01)
        return [*found, runs_at_once()]

    assert at_the_same_time(first, second) == [2, [2, 1]]
    assert runs_at_once() == 1


def test_an_epoch_says_how_many_runs_shared_the_device(draws: list[PUData]) -> None:
    met = threading.Barrier(2)

    class Meets(Observer):
        """Neither goes beyond the first epoch before both have trained it."""

        def stage_started(self, stage: Stage, done: int) -> None:
            if stage.name == "base":
                met.wait(60)

        def epoch_done(self, record: EpochRecord) -> None:
            if record.stage == "base" and record.epoch == 1:
                met.wait(60)

    how: dict[str, Any] = {"prior": PRIOR, "config": TINY, "device": "cpu"}
    observers = [Meets(), Meets()]
    found = train_side_by_side(draws[:2], seeds=SEEDS[:2], **how, at_once=2, observers=observers)
    for one in found:
        first = one.result.history[0]
        assert first.side_by_side == 2 and first.device_seconds == first.seconds / 2
        assert first.to_dict()["side_by_side"] == 2
    alone = train(draws[0], seed=0, **how).result.history[0]
    assert alone.device_seconds == alone.seconds and "side_by_side" not in alone.to_dict()


def test_initial_weights_do_not_mix() -> None:
    def drawn(seed: int) -> list[Tensor]:
        found = []
        for place in range(50):
            with seeded(seed, place):
                found.append(torch.cat([torch.rand(1000) for _ in range(5)]))
        return found

    together = at_the_same_time(*(lambda seed=seed: drawn(seed) for seed in range(4)))
    for seed, found in enumerate(together):
        assert all(torch.equal(a, b) for a, b in zip(found, drawn(seed), strict=True))


def test_a_stage_draws_from_streams_of_its_own() -> None:
    def drawn(seed: int) -> Tensor:
        draws = StageDraws(CPU)
        draws.seed(seed)
        found = []
        for _ in range(50):
            with draws.lent():
                first = nn.functional.dropout(torch.ones(250))
                with draws.lent():
                    found.append(torch.cat([first, nn.functional.dropout(torch.ones(250))]))
        return torch.stack(found)

    together = at_the_same_time(*(lambda seed=seed: drawn(seed) for seed in range(4)))
    torch.manual_seed(3)
    pairs = [[nn.functional.dropout(torch.ones(250)) for _ in range(2)] for _ in range(50)]
    expected = torch.stack([torch.cat(pair) for pair in pairs])
    assert torch.equal(together[3], expected)


def test_every_thread_hears_its_own_warnings() -> None:
    barrier = threading.Barrier(3)

    def warned(name: str) -> list[str]:
        with collected_warnings(lambda _: None) as given:
            for _ in range(20):
                barrier.wait()
                warnings.warn(name, SplitPUWarning, stacklevel=1)
        return given

    usual = warnings.showwarning
    heard = at_the_same_time(*(lambda name=name: warned(name) for name in "abc"))
    assert heard == [["a"] * 20, ["b"] * 20, ["c"] * 20]
    assert warnings.showwarning is usual
    with pytest.warns(SplitPUWarning, match="afterwards"):
        warnings.warn("afterwards", SplitPUWarning, stacklevel=1)


def test_thread_limits_that_overlap_leave_the_number_as_it_was() -> None:
    before = torch.get_num_threads()
    one, two = (Hardware.choose("cpu", EngineConfig(threads=n)).thread_limit() for n in (before + 1, before + 2))
    one.__enter__()
    two.__enter__()
    assert torch.get_num_threads() == before + 2
    one.__exit__(None, None, None)
    assert torch.get_num_threads() == before + 2
    two.__exit__(None, None, None)
    assert torch.get_num_threads() == before


# -------------------------------------------------------------------------------------------------------------- harness


def test_units_at_once_give_the_lines_of_units_in_a_row(tmp_path: Path) -> None:
    names = {"main", "rho"}  # of the same base
    units = [unit for unit in smoke_units(experiments().values()) if unit.experiment.name in names]
    lines: dict[int, list[dict[str, Any]]] = {}
    said: list[str] = []
    for at_once in (1, 3):
        place = Workplace(tmp_path / f"stages{at_once}", "cpu", side_by_side=at_once)
        said.clear()
        session = run_units(units, ResultStore(tmp_path / f"results{at_once}"), place, tell=said.append)
        assert len(session.done) == len(units) and not session.failed
        texts = [(tmp_path / f"results{at_once}" / f"{u.experiment.name}.jsonl").read_text() for u in units]
        lines[at_once] = [json.loads(text) for text in texts]
    assert sum("base: 2 epochs" in text for text in said) == 1  # the others found it
    for alone, together in zip(lines[1], lines[3], strict=True):
        assert alone["metrics"] == together["metrics"] and alone["rounds"] == together["rounds"]
        assert "side_by_side" not in alone and together["side_by_side"] == 3
        assert alone["device_seconds"] == alone["seconds"]
        assert together["device_seconds"] <= together["seconds"]
    assert np.isfinite([line["accuracy"] for line in lines[3]]).all()


def test_units_at_once_stop_together_and_go_on(tmp_path: Path) -> None:
    units = [u for u in smoke_units(experiments().values()) if u.experiment.name in {"main", "base-upu"}]
    place = Workplace(tmp_path / "stages", "cpu", side_by_side=2)
    said: list[str] = []
    stop = lambda: any("round1.split" in text for text in said)  # noqa: E731
    session = run_units(units, ResultStore(tmp_path / "results"), place, stop=stop, tell=said.append)
    assert set(map(str, session.left)) == set(map(str, units)) and not session.failed
    store = ResultStore(tmp_path / "results")
    session = run_units(units, store, replace(place, side_by_side=1), tell=said.append)
    assert len(session.done) == len(units)
    # What was trained at once counts with its share, though the units ended one by one.
    assert all("side_by_side" not in line for line in store.lines.values())
    assert all(line["device_seconds"] < line["seconds"] for line in store.lines.values())
