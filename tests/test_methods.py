"""Every method on digits: better than taking the unlabelled for negatives, resumable to the bit, deterministic."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from method_tools import RIVALS, SECTIONS, budget, settings, weights
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from splitpu.config.schema import Config, TeacherName
from splitpu.data.pudata import HeldOut, PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.stage import Observer, Stage
from splitpu.errors import Interrupted
from splitpu.methods.registry import METHODS, find_method
from splitpu.model import Model
from splitpu.training import Training, train


def fitted(data: PUData, prior: float, config: Config, **options: Any) -> Training:
    needed = find_method(config.method).needs_prior
    return train(data, prior=prior if needed else None, config=config, backbone="mlp", device="cpu", **options)


def accuracy(training: Training, held_out: HeldOut) -> float:
    hardware = Hardware.choose("cpu", training.model.config.engine)
    return float(((training.model.decision(held_out.features, hardware) > 0) == held_out.truth).mean())


def same(one: Training, other: Training) -> bool:
    """Bit for bit."""
    mine, theirs = weights(one), weights(other)
    return one.model.final.threshold == other.model.final.threshold and all(
        torch.equal(mine[name], theirs[name]) for name in mine | theirs
    )


# --- learning ---


@pytest.fixture(scope="module")
def naive(hundred_digits: tuple[PUData, HeldOut, float]) -> float:
    data, held_out, prior = hundred_digits
    return accuracy(fitted(data, prior, settings(data, "naive", 12)), held_out)


@pytest.mark.parametrize("method", ["split-pu", *RIVALS])
def test_better_than_naive(hundred_digits: tuple[PUData, HeldOut, float], naive: float, method: str) -> None:
    data, held_out, prior = hundred_digits
    config = settings(data, method, 12, "rounds=1", "student.epochs=12")
    assert accuracy(fitted(data, prior, config), held_out) > naive + 0.1


def test_the_oracle_is_better_still(hundred_digits: tuple[PUData, HeldOut, float]) -> None:
    data, held_out, prior = hundred_digits
    assert accuracy(fitted(data, prior, settings(data, "supervised", 12)), held_out) > 0.95


# --- being interrupted, and coming out the same ---


class Counting(Observer):
    """Counts steps, and stops after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.steps, self.stop_after = 0, stop_after
        self.stages: list[str] = []

    def stage_started(self, stage: Stage, done: int) -> None:
        self.stages.append(stage.name)

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        self.steps += 1

    def should_stop(self) -> bool:
        return self.stop_after is not None and self.steps >= self.stop_after


@pytest.mark.parametrize("method", METHODS)
def test_resumed_is_bitwise_uninterrupted(few_digits: PUData, tmp_path: Path, method: str) -> None:
    config = settings(few_digits, method, 5, f"{SECTIONS.get(method, 'base')}.optimiser.average=0.9")
    counting = Counting()
    whole = fitted(few_digits, 0.5, config, observer=counting)
    assert same(whole, fitted(few_digits, 0.5, config)), "not deterministic"
    # In the middle of an epoch, once early and once late in what is left.
    for share in (0.5, 0.35):
        stopping = Counting(stop_after=round(share * counting.steps))
        with pytest.raises(Interrupted):
            fitted(few_digits, 0.5, config, observer=stopping, checkpoints=tmp_path)
    again = Counting()
    resumed = fitted(few_digits, 0.5, config, observer=again, checkpoints=tmp_path)
    assert 0 < again.steps < 0.6 * counting.steps, "nothing was resumed"
    assert same(whole, resumed)
    timeless = [[replace(record, seconds=0.0) for record in run.result.history] for run in (whole, resumed)]
    assert timeless[0] == timeless[1]
    assert not same(whole, fitted(few_digits, 0.5, config, seed=1))


def test_one_oracle_serves_whichever_rows_are_labelled(few_digits: PUData, tmp_path: Path) -> None:
    others = replace(few_digits, labelled=np.roll(few_digits.labelled, 7))
    wrong = replace(few_digits, truth=np.roll(few_digits.truth, 1))
    config = settings(few_digits, "supervised", 2, "threshold=half")
    chosen = settings(few_digits, "supervised", 2, "selection.held_out=0.2")
    trained = []
    for data, how in ((few_digits, config), (others, config), (wrong, config), (few_digits, chosen), (others, chosen)):
        counting = Counting()
        training = train(data, prior=0.5, config=how, backbone="mlp", observer=counting, checkpoints=tmp_path)
        trained.append((training, counting.steps))
    (first, _), (second, steps) = trained[:2]
    assert steps == 0 and same(first, second)
    # Other labels are another oracle; and where labelled rows choose the epoch, it matters which they are.
    assert all(steps > 0 for _, steps in trained[2:])


# --- fit for capture: nothing inside a step may wait for a value, or have a shape that depends on one ---


class NoHostReads(TorchDispatchMode):
    """Refuses every operation that a captured CUDA graph could not hold."""

    forbidden = (
        torch.ops.aten._local_scalar_dense.default,  # item(), float(), bool()
        torch.ops.aten.nonzero.default,
        torch.ops.aten.masked_select.default,
        torch.ops.aten.lift_fresh.default,  # torch.tensor(...), a copy from the host
        torch.ops.aten.randperm.default,
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in self.forbidden, func
        if func is torch.ops.aten.index.Tensor:
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "shape depends on a mask"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", [*RIVALS, "naive", "supervised"])
def test_a_step_never_asks_the_host(few_digits: PUData, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    run, guarded = Engine.run, []

    def run_guarded(engine: Engine, stage: Stage) -> Any:
        step = stage.task.step

        def guarded_step(*words: Any) -> dict[str, Tensor]:
            guarded.append(stage.name)
            with NoHostReads():
                return step(*words)

        stage.task.step = guarded_step  # type: ignore[method-assign]
        return run(engine, stage)

    monkeypatch.setattr(Engine, "run", run_guarded)
    fitted(few_digits, 0.5, settings(few_digits, method, 3))
    assert guarded


# --- as the teacher of Split-PU ---


@pytest.mark.parametrize("teacher", [name for name in get_args(TeacherName) if name != "risk"])
def test_any_method_can_be_the_teacher(few_digits: PUData, tmp_path: Path, teacher: str) -> None:
    config = settings(few_digits, "split-pu", 2, "rounds=1", f"base.method={teacher}", *budget(teacher, 2))
    training = fitted(few_digits, 0.5, config)
    alone = train(few_digits, prior=0.5, config=settings(few_digits, teacher, 2), backbone="mlp")
    assert len(training.result.rounds) == 1
    assert torch.equal(training.result.base.logits, alone.result.base.logits)
    # An ensemble is saved and found again beside the single network that it taught.
    training.model.save(tmp_path)
    loaded, hardware = Model.load(tmp_path), training.hardware
    for which in ("base", "final"):
        scores = [model.decision(few_digits.features, hardware, which=which) for model in (training.model, loaded)]
        assert np.array_equal(*scores)


@pytest.mark.parametrize("method", ["naive", "supervised", "nnpu"])
def test_strong_views_of_the_base_are_seen_by_whatever_is_trained_as_it_says(
    hundred_digits: tuple[PUData, HeldOut, float], method: str
) -> None:
    data, _, prior = hundred_digits
    strong = ("base.views=strong", "views.cutout=0.5")
    weak, other = (fitted(data, prior, settings(data, method, 1, *more)) for more in (("views.cutout=0.5",), strong))
    assert not torch.equal(weak.result.final.logits, other.result.final.logits)
