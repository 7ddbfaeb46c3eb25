"""A step that does not fit is taken again in less memory, and computes the same."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_tools import engine as engine_of
from engine_tools import same, stage, weights
from stopping import StopAt
from torch import Tensor, nn

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.data.pudata import PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.inference import _forward
from splitpu.engine.low_memory import LighterForward, rows_go_alone
from splitpu.errors import InputError, Interrupted, SplitPUWarning
from splitpu.losses import nnpu_risk
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.networks.build import build_network
from splitpu.training import Runtime, TrainSpec, profile_of, train


class Small(Backbone):
    """A network that treats rows one by one, on a device with room for so many of them at a time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.feature_dim = room, 8
        self.first, self.second, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.failures = 0

    def forward(self, batch: Tensor) -> Outputs:
        if len(batch) > self.room:
            self.failures += 1
            raise torch.OutOfMemoryError("no room")
        low = torch.tanh(self.first(batch))
        high = torch.tanh(self.second(low))
        return Outputs(low, high, self.head(high).squeeze(1))


class Crowded(nn.Module):
    """A layer for which there is room only if what the backward pass needs is taken away meanwhile."""

    def forward(self, batch: Tensor) -> Tensor:
        if torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            raise torch.OutOfMemoryError("no room")
        return batch


def small(room: int = 10**6) -> Small:
    torch.manual_seed(0)
    return Small(room)


def mixing(*, crowded: bool) -> nn.Module:
    """A network with batch norms."""
    torch.manual_seed(0)
    network = build_network("mlp", (5,))
    network.rest = nn.Sequential(network.rest, Crowded() if crowded else nn.Identity())
    return network


def run_quietly(engine, stage):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        engine.run(stage)
    return [str(one.message) for one in heard if one.category is SplitPUWarning]


@pytest.mark.parametrize(("room", "pieces"), [(8, 2), (4, 4)])  # of 16 rows a step
def test_rows_that_do_not_fit_go_through_in_pieces(room: int, pieces: int) -> None:
    whole, split = small(), small(room)
    engine_of().run(stage(whole, average=0.9))
    engine = engine_of()
    said = run_quietly(engine, stage(split, average=0.9))
    assert (
        len(said) == 1 and f"ran out of memory in stage plain: it continues more slowly with {pieces} pieces" in said[0]
    )
    assert engine.describe() == f"eager/fp32/resident/{pieces} pieces"
    assert split.failures == pieces.bit_length() - 1  # one for every halving, and none once a way was found
    for name, tensor in weights(whole).items():
        assert torch.allclose(tensor, split.state_dict()[name], atol=1e-6), name


def test_batch_norms_see_the_whole_batch_and_count_it_once() -> None:
    roomy, crowded = mixing(crowded=False), mixing(crowded=True)
    engine_of().run(stage(roomy))
    engine = engine_of()
    said = run_quietly(engine, stage(crowded))
    assert len(said) == 1 and "activations on host" in said[0]
    assert engine.describe().endswith("/activations on host")
    assert same(weights(roomy), weights(crowded))  # bitwise, running statistics included


def test_what_failed_half_way_leaves_no_trace() -> None:
    class FailsLater(Small):
        """Runs out of memory in the third epoch, when weights, optimiser and average have moved."""

        def forward(self, batch: Tensor) -> Outputs:
            self.failures += 1
            if self.failures == 9 and len(batch) == 16:  # three steps an epoch: the last of the third
                raise torch.OutOfMemoryError("no room")
            return super().forward(batch)

    whole = small()
    engine_of().run(stage(whole, average=0.9))
    torch.manual_seed(0)
    late = FailsLater(10**6)
    engine = engine_of()
    assert len(run_quietly(engine, stage(late, average=0.9))) == 1
    for name, tensor in weights(whole).items():
        assert torch.allclose(tensor, late.state_dict()[name], atol=1e-6), name
    assert [record.epoch for record in engine.history] == [1, 2, 3, 4]


def test_a_run_in_pieces_is_resumed_bitwise(tmp_path: Path) -> None:
    whole, resumed = small(4), small(4)
    run_quietly(engine_of(), stage(whole, average=0.9))
    with pytest.raises(Interrupted):
        run_quietly(engine_of(tmp_path, StopAt(2)), stage(small(4), average=0.9))
    run_quietly(engine_of(tmp_path), stage(resumed, average=0.9))
    assert same(weights(whole), weights(resumed))


def test_when_nothing_helps_the_sentence_says_what_to_lower() -> None:
    with pytest.raises(InputError, match=re.escape("ran out of memory in stage plain with 16 rows per step: lower")):
        engine_of().run(stage(small(0)))


def test_gradients_of_a_risk_that_is_no_sum_over_rows_are_those_of_the_whole_batch() -> None:
    network = small().double()
    rows = torch.randn(13, 5, dtype=torch.float64)

    def gradients() -> list[Tensor]:
        network.zero_grad()
        outputs = network(rows)
        risk = nnpu_risk(outputs.logit[:4], outputs.logit[4:], 0.7)
        (risk.objective + outputs.low.square().mean() + outputs.high.std()).backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    whole = gradients()
    with LighterForward(network, 5, rows).active():
        in_pieces = gradients()
    assert all(torch.allclose(one, other, rtol=1e-12) for one, other in zip(whole, in_pieces, strict=True))
    assert "forward" not in vars(network)


def test_whether_rows_go_alone_is_tried_and_leaves_nothing_behind() -> None:
    alone, dropping, norms = small(), small(), build_network("mlp", (5,))
    dropping.second = nn.Sequential(dropping.second, nn.Dropout(0.5))
    rows = torch.randn(6, 5)
    before, state = weights(norms), torch.get_rng_state()
    assert [rows_go_alone(network, rows) for network in (alone, dropping, norms)] == [True, False, False]
    assert same(before, weights(norms)) and torch.equal(state, torch.get_rng_state())


def test_pieces_can_be_asked_for() -> None:
    random = np.random.default_rng(0)
    data = PUData.from_arrays(random.normal(size=(60, 5)), np.arange(60) % 6 == 0)
    settings = ["rounds=1", "base.epochs=1", "split.max_epochs=1", "student.epochs=1", "engine.threads=1"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether the split reached tau is not the question
        engines = [
            train(
                data,
                TrainSpec(
                    prior=0.5,
                    config=apply_overrides(preset("default", profile_of(data)), [*settings, "engine.pieces=3"]),
                    backbone=network,
                ),
                Runtime(device="cpu"),
            ).engine
            for network in (small(60), "mlp")
        ]
    assert engines == ["eager/fp32/resident/3 pieces", "eager/fp32/resident/activations on host"]


def test_scoring_halves_what_does_not_fit() -> None:
    rows = torch.randn(11, 5)
    hardware = Hardware.choose("cpu", preset("default").engine)
    assert torch.allclose(_forward(small(3), rows, hardware), _forward(small(), rows, hardware), atol=1e-6)
    with pytest.raises(torch.OutOfMemoryError):
        _forward(small(0), rows, hardware)
