"""Torch's DDP over a real NCCL connection, of one process as there is one GPU. Skipped without a GPU.

What several processes compute together is tested on the CPU (`test_shared_step.py`). This is the same code on a GPU:
buckets of gradients there, NCCL's exchange of them, and kernels that read gradients out of the middle of a bucket."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from shared_step_cases import TwiceTask, descend, difference, some_rows, take_plain_step, take_shared_step
from test_data_parallel import tiny_images
from torch import distributed as dist

from splitpu import preset, train
from splitpu.config.parse import apply_overrides
from splitpu.data.pudata import PUData
from splitpu.engine.data_parallel import SharedStep
from splitpu.engine.step import Step
from splitpu.training import Runtime, Training, TrainSpec

DEVICE, BACKEND = "cuda", "nccl"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def connection() -> Iterator[None]:
    dist.init_process_group(BACKEND, store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_gradients_are_those_of_a_plain_way_back() -> None:
    torch.manual_seed(0)
    plain = TwiceTask(torch.float64, DEVICE)
    shared = copy.deepcopy(plain)
    for _ in range(2):  # two stages that train the same weights
        step = SharedStep(shared)
        for _ in range(3):  # buckets are put in order after the first
            batch = some_rows(13, torch.float64, DEVICE)
            terms = take_plain_step(plain, batch), take_shared_step(step, batch)
            assert {name: term.item() for name, term in terms[0].items()} == pytest.approx(
                {name: term.item() for name, term in terms[1].items()}, abs=1e-9
            )
            assert difference(plain, shared) < 1e-9
            descend(plain)
            descend(shared)


def test_a_whole_training_ends_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # whose rounding grows from step to step
    alone = trained()
    usual, exchanged = Step.__init__, []

    def like_one_of_several(step: Step, *given: Any, **more: Any) -> None:
        usual(step, *given, **more)
        step._shared = SharedStep(step.stage.task)
        exchanged.append(step.stage.name)

    monkeypatch.setattr(Step, "__init__", like_one_of_several)
    together = trained()
    assert exchanged == ["base", "round1.student"]
    first, second = (one.result.final.network.state_dict() for one in (alone, together))
    assert first.keys() == second.keys()
    for name in first:
        assert torch.allclose(first[name].double(), second[name].double(), rtol=5e-3, atol=5e-3), name
    for line, other in zip(alone.result.history, together.result.history, strict=True):
        assert line.terms["loss"] == pytest.approx(other.terms["loss"], rel=1e-3)


def trained() -> Training:
    """Eagerly, as a captured step exchanges nothing, and with no decision on the way that rounding could turn over."""
    given = tiny_images()
    settings = ["engine.precision=fp32", "engine.capture=off", "rounds=1", "split.enabled=false"]
    settings += ["student.labels=soft", "student.consistency=all", "student.hard_loss=dual"]
    for stage in ("base", "student"):
        settings += [f"{stage}.epochs=3", f"{stage}.batch_size=33"]
        settings += [f"{stage}.optimiser.name=sgd", f"{stage}.optimiser.rate=0.02", f"{stage}.optimiser.momentum=0"]
    data = PUData.from_arrays(given["X"], given["s"] == 1, channels="last")
    config = apply_overrides(preset("default"), settings)
    return train(data, TrainSpec(prior=0.5, config=config, seed=0, backbone="cnn-small"), Runtime(device=DEVICE))
