"""What the engine does where the fast way fails: captures, kernels, memory; and what it says it did."""

import dataclasses
from pathlib import Path

import pytest
import torch
from engine_tools import CPU, engine, network, same, stage, weights
from torch import nn

from splitpu.engine.loop import Engine
from splitpu.engine.step import Step
from splitpu.errors import SplitPUWarning
from splitpu.kernels import dispatch as trial


def test_a_step_without_kernels_that_lacks_memory_is_forgiven_before_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine()
    step = Step(stage(network()), one.rows, one.views, one.hardware)
    compute, attempts = step._compute, []

    def with_too_little_memory_at_first() -> None:
        attempts.append(getattr(trial._WAITING, "never", False))
        if len(attempts) == 1:
            raise torch.OutOfMemoryError("no room")
        compute()

    monkeypatch.setattr(step, "_compute", with_too_little_memory_at_first)
    step._warm_up()
    assert attempts == [True, False] and step.optimiser.state


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors ..."),
            "operation not permitted when stream is capturing",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."),
            "it ran out of memory",
        ),
        (TypeError("an unhashable type"), "an unhashable type"),
    ],
    ids=["refused", "memory", "anything"],
)
def test_a_step_that_cannot_be_captured_is_taken_all_the_same_with_one_warning(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_half_way(step: Step) -> None:
        step._warm_up()  # which moves weights
        raise error

    def trained() -> tuple[Engine, nn.Module]:
        one, module = engine(), network()
        one.hardware = dataclasses.replace(one.hardware, capture=True)
        one.run(stage(network(), average=0.9))
        one.run(stage(module, epochs=3, average=0.9))
        return one, module

    plain = network()
    engine().run(stage(plain, epochs=3, average=0.9))
    monkeypatch.setattr(Step, "_capture", fail_half_way)
    with pytest.warns(SplitPUWarning) as said:
        one, module = trained()
    (warning,) = said  # of two stages
    assert f"({why})" in str(warning.message)
    assert same(weights(module), weights(plain))
    assert one.describe() == "eager/fp32/resident"


class CompilationError(Exception):
    """As the kernels' compiler raises it."""

    __module__ = "triton.compiler.errors"


@pytest.mark.parametrize("failing", [1, 5])
def test_kernels_that_do_not_compile_for_an_uncaptured_step_are_left_out(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, calls = Step._compute, [0]

    def compute_with_kernels(step: Step) -> None:
        compute(step)  # which moves weights
        calls[0] += 1
        if calls[0] == failing:
            raise CompilationError("not for this shape")

    plain, module, one = network(), network(), engine()
    engine().run(stage(plain))
    one.hardware = dataclasses.replace(one.hardware, kernels=True)
    monkeypatch.setattr(trial, "_FOUND", {CPU: dict.fromkeys(trial._FAMILIES, "")})
    monkeypatch.setattr(Step, "_compute", compute_with_kernels)
    one.run(stage(module))
    assert same(weights(module), weights(plain))
    assert one.describe() == "eager/fp32/resident"  # and not fused


def test_kernels_that_do_not_compile_for_a_step_are_left_out_and_it_is_captured_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Replay:
        def __init__(self, step: Step) -> None:
            self.replay = step._compute

    def capture(step: Step) -> None:
        step._warm_up()  # which moves weights
        if trial.any_kernel_runs_on(CPU):
            raise CompilationError("not for this shape")
        step._graph = Replay(step)  # type: ignore[assignment]

    plain, module, one = network(), network(), engine()
    engine().run(stage(plain))
    one.hardware = dataclasses.replace(one.hardware, capture=True, kernels=True)
    monkeypatch.setattr(trial, "_FOUND", {CPU: dict.fromkeys(trial._FAMILIES, "")})
    monkeypatch.setattr(Step, "_capture", capture)
    one.run(stage(module))
    assert same(weights(module), weights(plain))
    assert one.describe() == "graph/fp32/resident"  # and not fused


def test_what_is_stated_is_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = engine(tmp_path), engine(tmp_path)
    for one in (first, again):
        one.run(stage(network()))
    assert first.describe() == "eager/fp32/resident"
    assert again.describe() == "stored/fp32/resident"  # it took no step
    first.hardware = dataclasses.replace(first.hardware, kernels=True)
    for why_not, stated in (("", "eager/fp32/resident/fused"), ("no compiler", "eager/fp32/resident")):
        monkeypatch.setattr(trial, "_FOUND", {CPU: {"batch-norm": why_not}})
        assert first.describe() == stated
