"""The loop and what it stands on: plans, rates, averages, checkpoints, early stop.

What the engine does where the fast way fails: captures, kernels, memory; and what it says it did.
"""

import dataclasses
import gc
import platform
import resource
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_tools import CPU, FEATURES, engine, network, same, stage, weights
from stopping import StopAt
from torch import Tensor, nn

from splitpu.config.schema import EngineConfig, OptimiserConfig
from splitpu.engine import hardware as hardware_module
from splitpu.engine.checkpoint import CheckpointStore, StageState
from splitpu.engine.distributed import World
from splitpu.engine.hardware import Hardware, blocks_kept, check_device
from splitpu.engine.inference import _chunk_size, training_logits
from splitpu.engine.loop import Engine
from splitpu.engine.optimiser import average_weight_at, rate_at
from splitpu.engine.stage import EpochRecord, Pool, epoch_plan, kind_of, proportional_count, steps_per_epoch
from splitpu.engine.step import Step
from splitpu.errors import InputError, Interrupted, SplitPUWarning
from splitpu.kernels import dispatch as trial
from splitpu.kernels.dispatch import kernels_allowed


class TestPlans:
    def test_an_epoch_shows_every_row_of_the_leading_pool_at_most_once(self) -> None:
        pools = {"big": Pool(np.arange(100, 160), 16), "small": Pool(np.array([1, 2, 3]), 4)}
        steps = steps_per_epoch(pools, "big")
        plan = epoch_plan(pools, steps, seed=1, device=CPU)
        assert steps == 3
        assert plan["big"].shape == (3, 16)
        assert len(set(plan["big"].flatten().tolist())) == 48
        counts = torch.bincount(plan["small"].flatten(), minlength=4)[1:]
        assert counts.tolist() == [4, 4, 4]  # twelve places for three rows: each comes once before any comes again

    def test_epochs_differ_and_repeat(self) -> None:
        pools = {"rows": Pool(np.arange(50), 10)}
        one, again, other = (epoch_plan(pools, 5, seed, CPU)["rows"] for seed in (1, 1, 2))
        assert torch.equal(one, again)
        assert not torch.equal(one, other)

    def test_a_pool_smaller_than_a_batch_still_gives_a_step(self) -> None:
        assert steps_per_epoch({"rows": Pool(np.arange(3), 8)}, "rows") == 1


class TestRates:
    def test_cosine_falls_to_nearly_nothing_and_warm_up_rises(self) -> None:
        config = OptimiserConfig(rate=1.0, schedule="cosine", warmup=0.1)
        rates = [rate_at(config, step, 100) for step in range(100)]
        assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
        assert max(rates) == pytest.approx(1.0)
        assert all(later < earlier for earlier, later in pairwise(rates[10:]))
        assert rates[-1] < 0.001

    def test_the_average_forgets_its_start_and_then_moves_slowly(self) -> None:
        assert average_weight_at(0.999, 0) == pytest.approx(0.9)
        assert average_weight_at(0.999, 10**6) == pytest.approx(0.001)


class TestLoop:
    def test_it_learns_and_records_every_term(self) -> None:
        module = network()
        outcome = engine().run(stage(module, epochs=30, rate=1e-2))
        assert [record.epoch for record in outcome.history] == list(range(1, 31))
        assert outcome.history[-1].terms["loss"] < 0.5 * outcome.history[0].terms["loss"]
        assert set(outcome.history[0].terms) == {"loss", "rows"}
        assert not module.training

    def test_the_users_random_state_is_left_alone(self) -> None:
        module = network()
        before = torch.get_rng_state()
        engine().run(stage(module, epochs=1))
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("optimiser", [{"name": "adam", "average": 0.9}, {"name": "sgd", "momentum": 0.9}])
    def test_an_interrupted_stage_goes_on_bitwise(self, tmp_path: Path, optimiser) -> None:
        whole = network()
        engine().run(stage(whole, **optimiser))
        with pytest.raises(Interrupted):
            engine(tmp_path, StopAt(2)).run(stage(network(), **optimiser))
        resumed = network()
        outcome = engine(tmp_path).run(stage(resumed, **optimiser))
        assert same(weights(whole), weights(resumed))
        assert len(outcome.history) == 4

    def test_a_finished_stage_is_not_trained_again(self, tmp_path: Path) -> None:
        first = network()
        engine(tmp_path).run(stage(first))
        untrained = network()
        outcome = engine(tmp_path, StopAt(0)).run(stage(untrained))  # one step would raise
        assert same(weights(first), weights(untrained))
        assert len(outcome.history) == 4

    def test_a_finished_stage_is_scored_by_the_kernels_that_trained_it(self, tmp_path: Path) -> None:
        for _ in ("trained", "taken from the store"):
            one, module = engine(tmp_path), network()
            one.hardware = replace(one.hardware, kernels=True)
            one.run(stage(module))
            assert kernels_allowed(module)

    def test_a_loss_that_is_no_number_ends_the_stage_in_words(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"stage plain .* epoch \d of 4 \(nan\): lower .*optimiser.rate, look"):
            engine(tmp_path).run(stage(network(), rate=1e30))
        assert len(list(tmp_path.iterdir())) <= 1  # epochs before it may be saved, this one is not

    def test_a_student_that_went_wrong_is_left_to_those_who_train_it_again(self) -> None:
        wild = replace(stage(network(), rate=1e30), name="round1.student")
        assert not np.isfinite(engine().run(wild).history[-1].terms["loss"])

    def test_another_setting_finds_no_old_result(self, tmp_path: Path) -> None:
        engine(tmp_path).run(stage(network()))
        with pytest.raises(Interrupted):
            engine(tmp_path, StopAt(0)).run(stage(network(), rate=0.5))

    def test_a_network_that_was_changed_finds_no_old_weights(self, tmp_path: Path) -> None:
        engine(tmp_path).run(stage(network()))
        wider = network()
        wider.head = nn.Sequential(nn.Linear(256, 8), nn.Linear(8, 1))
        outcome = engine(tmp_path).run(stage(wider, epochs=4))
        assert len(outcome.history) == 4
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_damaged_checkpoint_counts_as_none(self, tmp_path: Path) -> None:
        whole = network()
        engine(tmp_path).run(stage(whole))
        (file,) = tmp_path.iterdir()
        file.write_bytes(file.read_bytes()[:-100])
        again = network()
        engine(tmp_path).run(stage(again))
        assert same(weights(whole), weights(again))

    def test_a_checkpoint_of_another_version_counts_as_none(self, tmp_path: Path) -> None:
        plain = stage(network())
        with_new_field = EpochRecord("plain", 1, 4, 0.1, 0.1, {"loss": 1.0})
        with_new_field.__dict__["not known yet"] = 1
        store = CheckpointStore(tmp_path)
        store.save(plain, StageState(1, True, [with_new_field], {}))
        assert store.load(plain) is None
        assert len(engine(tmp_path).run(plain).history) == 4

    def test_a_network_that_fails_to_predict_is_left_as_it_was(self) -> None:
        module, here = network().train(), engine()
        module.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            training_logits(module, here.rows, here.views, here.hardware)
        assert module.training

    def test_after_epoch_can_stop_and_its_memory_survives(self, tmp_path: Path) -> None:
        def stop_after_two(record: EpochRecord, memory: dict[str, Tensor]) -> bool:
            memory["seen"] = torch.tensor(record.epoch)
            return record.epoch == 2

        for _ in range(2):  # trained, then taken from the store
            outcome = engine(tmp_path).run(stage(network(), after_epoch=stop_after_two))
            assert len(outcome.history) == 2
            assert int(outcome.memory["seen"]) == 2

    @pytest.mark.parametrize("pieces", [0, 2])
    def test_a_stage_that_ended_before_its_time_is_not_kept(self, pieces: int) -> None:
        running, module = engine(), network()
        running.pieces = pieces
        running.run(stage(module, after_epoch=lambda *_: True))
        kept = weakref.ref(module)
        del module
        gc.collect()
        assert kept() is None

    def test_averaged_weights_get_batch_norm_statistics_of_their_own(self) -> None:
        module = network()
        engine().run(stage(module, epochs=3, rate=1e-2, average=0.9))
        norm = next(layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d))
        inputs = torch.from_numpy(FEATURES)
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
        linear = module.first[0]
        seen = linear(inputs).mean(0)
        assert torch.allclose(norm.running_mean, seen, atol=0.15)
        assert norm.momentum == pytest.approx(0.1)


class TestHardware:
    def test_unknown_devices_are_refused_in_words(self) -> None:
        with pytest.raises(InputError, match="not one torch knows"):
            Hardware.choose("quantum", EngineConfig())
        for known_to_torch in ("mps", "meta", "xpu"):
            with pytest.raises(InputError, match=f"'{known_to_torch}' is not one that splitpu computes on"):
                Hardware.choose(known_to_torch, EngineConfig())

    def test_a_gpu_beyond_the_last_is_refused_in_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(InputError, match=r"'cuda:2' was asked for but torch sees 2 GPU\(s\)"):
            check_device("cuda:2")
        check_device("cuda:1")

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
    def test_a_missing_gpu_is_named(self) -> None:
        with pytest.raises(InputError, match="no GPU"):
            Hardware.choose("cuda", EngineConfig())

    def test_a_thread_limit_ends_with_its_block(self) -> None:
        before = torch.get_num_threads()
        with Hardware.choose("cpu", EngineConfig(threads=before + 1)).thread_limit():
            assert torch.get_num_threads() == before + 1
        assert torch.get_num_threads() == before

    @pytest.mark.parametrize(("load", "others", "busy"), [(0.3, 5, 0), (4.0, 0, 0), (4.0, 1, 1), (1.0, 3, 1)])
    def test_the_load_average_counts_only_as_far_as_others_run_now(
        self, monkeypatch: pytest.MonkeyPatch, load: float, others: int, busy: int
    ) -> None:
        monkeypatch.setattr(hardware_module.os, "getloadavg", lambda: (load, load, load))
        monkeypatch.setattr(hardware_module, "_others_running", lambda: others)
        assert hardware_module._busy_cores() == busy

    @pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
    def test_memory_is_kept_from_step_to_step(self) -> None:
        def faults_of_ten_blocks() -> int:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(10):
                torch.ones(12_000_000)  # 48 MB: above the limit of the allocator's own adjustment
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        usual = faults_of_ten_blocks()
        with blocks_kept():
            faults_of_ten_blocks()  # until every block has found a place that it fits into
            kept = faults_of_ten_blocks()
        assert kept < 0.3 * usual

    def test_more_processes_than_gpus_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        one_gpu = Hardware(torch.device("cuda"), bf16=True, capture=True, threads=1)
        with pytest.raises(InputError, match=r"more processes than the 1 GPU.*--nproc-per-node"):
            one_gpu.within(World(rank=1, size=2))


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


def test_chunk_size_in_short() -> None:
    assert [_chunk_size(rows, 3072, torch.device("cuda")) for rows in (50_000, 10, 0)] == [5000, 10, 1]


def test_rate_at_in_short() -> None:
    assert (rate_at(OptimiserConfig(rate=1.0), 0, 100), round(rate_at(OptimiserConfig(rate=1.0), 50, 100), 3)) == (
        1.0,
        0.5,
    )
    halving = OptimiserConfig(rate=1.0, schedule="halving", halvings=2.5)
    assert [rate_at(halving, step, 100) for step in (39, 40, 79, 80)] == [1.0, 0.5, 0.5, 0.25]
    warmed = OptimiserConfig(rate=1.0, schedule="constant", warmup=0.1)
    assert [rate_at(warmed, step, 15) for step in (0, 1)] == pytest.approx([2 / 3, 1.0])


def test_proportional_count_in_short() -> None:
    assert (proportional_count(1000, 50_000, 512), proportional_count(20_000, 200, 200)) == (10, 200)


def test_kind_of_in_short() -> None:
    assert (kind_of("round2.student.member3.again1"), kind_of("base.member2")) == ("student", "base")
