"""Several runs at once on a GPU: captured, with their own draws, sharing the rows. Skipped where there is none."""

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_training import PRIOR, SEEDS, Dropping
from torch import nn

from splitpu import load_named, make_pu, preset, train, train_side_by_side
from splitpu.config.parse import apply_overrides
from splitpu.data.pudata import PUData
from splitpu.engine.parallel_runs import SharedRows, in_lanes
from splitpu.training import Runtime, Training, TrainSpec
from splitpu.utils.torch_state import StageDraws

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
SHORT = apply_overrides(
    preset("default"), ["base.epochs=6", "split.max_epochs=4", "split.tau=0.5", "student.epochs=6", "rounds=1"]
)


@pytest.fixture(scope="module")
def draws() -> list[PUData]:
    digits = load_named("digits")
    return [make_pu(digits, 50, seed)[0] for seed in SEEDS]


def losses(training: Training) -> list[float]:
    return [record.terms["loss"] for record in training.result.history if record.stage == "base"]


@pytest.mark.parametrize("backbone", ["cnn-small", Dropping], ids=["cnn-small", "dropout"])
def test_cuda_at_once_is_one_by_one_within_tolerance(draws: list[PUData], backbone: Any) -> None:
    spec, gpu = TrainSpec(prior=PRIOR, config=SHORT, backbone=backbone), Runtime(device="cuda")
    alone = [train(data, replace(spec, seed=seed), gpu) for data, seed in zip(draws, SEEDS, strict=True)]
    together = train_side_by_side(draws, spec, seeds=SEEDS, runtime=gpu)
    for one, other in zip(alone, together, strict=True):
        assert one.engine == other.engine and one.engine.startswith("graph/bf16/resident")
        # The rounding of the first epoch has not grown yet: another stream of draws would be far outside.
        assert losses(other)[0] == pytest.approx(losses(one)[0], rel=2e-3)
        assert losses(other) == pytest.approx(losses(one), rel=0.1)


def test_cuda_a_captured_graph_keeps_its_own_draws() -> None:
    """Dropout inside a graph follows the stage's stream, whatever happens to torch's own in between."""
    ones = torch.ones(4096, device=GPU)
    torch.cuda.synchronize()

    def replayed(seed: int, barrier: threading.Barrier | None = None) -> list[torch.Tensor]:
        draws, stream = StageDraws(GPU), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with draws.lent(), torch.cuda.stream(stream):
            nn.functional.dropout(ones)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                dropped = nn.functional.dropout(ones)
        draws.seed(seed)
        found = []
        with torch.cuda.stream(stream):
            for _ in range(20):
                if barrier is not None:
                    barrier.wait()
                graph.replay()
                found.append(dropped.clone())
            stream.synchronize()
        return found

    alone = [replayed(seed) for seed in range(3)]
    barrier = threading.Barrier(3)
    jobs = [lambda seed=seed: replayed(seed, barrier) for seed in range(3)]
    together = [ended.answer for ended in in_lanes(jobs, GPU, 3)]
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(alone[0][0], alone[0][1]) and not torch.equal(alone[0][0], alone[1][0])


def test_cuda_torchs_own_generator_is_given_back() -> None:
    torch.cuda.manual_seed(11)
    expected = torch.rand(5, device=GPU)
    torch.cuda.manual_seed(11)
    draws = StageDraws(GPU)
    draws.seed(5)
    with draws.lent():
        torch.rand(1000, device=GPU)
    assert torch.equal(torch.rand(5, device=GPU), expected)


def test_cuda_rows_are_on_the_device_once(draws: list[PUData]) -> None:
    shared = SharedRows()
    first = shared.of(draws[0].features, GPU, "device")
    before = torch.cuda.memory_allocated()
    stores = [shared.of(data.features, GPU, "device") for data in draws]
    assert all(store is first for store in stores) and torch.cuda.memory_allocated() == before


def test_cuda_many_captures_while_others_train(draws: list[PUData]) -> None:
    """Eight runs of many short stages: every capture meets others that replay, allocate, copy and evaluate."""
    config = apply_overrides(SHORT, ["rounds=3", "base.epochs=2", "student.epochs=2", "split.max_epochs=2"])
    data = [draws[seed % len(draws)] for seed in range(8)]
    found = train_side_by_side(
        data, TrainSpec(prior=PRIOR, config=config), seeds=range(8), runtime=Runtime(device="cuda")
    )
    assert all(one.engine.startswith("graph/bf16/resident") for one in found)
    assert all(torch.isfinite(one.result.final.logits).all() for one in found)
