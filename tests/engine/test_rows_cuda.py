"""Runs on a GPU share the rows, and each has draws of its own. Skipped where there is no GPU."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_training import SEEDS
from torch import nn

from splitpu import load_named, make_pu
from splitpu.data.pudata import PUData
from splitpu.engine.rows import SharedRows
from splitpu.utils.torch_state import StageDraws

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")


@pytest.fixture(scope="module")
def draws() -> list[PUData]:
    digits = load_named("digits")
    return [make_pu(digits, 50, seed)[0] for seed in SEEDS]


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
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(replayed, range(3), [barrier] * 3))
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
