"""The optimiser's kernels against torch's: run on a GPU, or without one in Triton's interpreter."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from stopping import StopAt
from test_mixed_precision import Counted
from torch import Tensor, nn

from splitpu.config.schema import OptimiserConfig, ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.engine import optimiser as fused_optimiser
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.optimiser import FusedOptimiser
from splitpu.engine.rows import RowStore
from splitpu.engine.stage import Observer, Pool, Stage
from splitpu.engine.step import Step
from splitpu.errors import Interrupted
from splitpu.kernels.optimiser_step import Moved, WeightMover, can_be_moved
from splitpu.networks.backbones import Backbone, Outputs
from splitpu.views import Views

CONFIGS = (
    OptimiserConfig(name="adam", weight_decay=1e-2, beta1=0.5, beta2=0.99),
    OptimiserConfig(name="adamw", weight_decay=1e-1, rate=1e-2),
    OptimiserConfig(name="adam", beta1=0.0),
    OptimiserConfig(name="sgd", weight_decay=1e-2, rate=0.1),
)


move_weights = WeightMover.move


def move_as_a_gpu(self: WeightMover, all_moved: Sequence[Moved], rate: float | Tensor) -> None:
    """Triton's interpreter cuts off digits where a GPU rounds; else copies are what they should be."""
    move_weights(self, all_moved, rate)
    for moved in all_moved:
        if moved.copy is not None and not moved.weight.is_cuda:
            cut_off = (moved.weight.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
            assert torch.equal(moved.copy, cut_off)
            moved.copy.copy_(moved.weight)


@contextmanager
def by_kernels() -> Iterator[mock.Mock]:
    """Also where there is no GPU; what it gives knows how often weights were moved."""
    moves = mock.patch.object(WeightMover, "move", autospec=True, side_effect=move_as_a_gpu)
    with mock.patch.object(fused_optimiser, "weights_can_be_moved_on", return_value=True), moves as counted:
        yield counted


def some_weights(device: str, more: int) -> list[nn.Parameter]:
    """Smaller and larger than a block, in either layout, one of them double; with 64 more, too many for one kernel."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    large, small = (drawn(*shape).to(memory_format=torch.channels_last) for shape in ((24, 24, 3, 3), (12, 3, 3, 3)))
    tensors = [
        drawn(5, 7),
        large,
        drawn(10, 130, 1, 1),
        drawn(2048),
        drawn(1030),
        drawn(1),
        drawn(3, 3).double(),
        small,
    ]
    tensors += [drawn(3 + number) for number in range(more)]
    return [nn.Parameter(tensor) for tensor in tensors]


def gradient_of(number: int, weight: Tensor, step: int) -> Tensor | None:
    """In the weight's layout; some begin in the middle of another tensor, one is small beyond reason, one is none."""
    if number == 5 and step == 0:
        return None  # the first step of this one is the second of the others
    drawn = torch.randn(weight.numel() + 1, generator=torch.Generator().manual_seed(100 * number + step))
    flat = drawn.to(weight.device, weight.dtype)[number % 2 :][: weight.numel()] * (1e-12 if number == 4 else 0.1)
    return flat.as_strided(weight.shape, weight.stride(), flat.storage_offset())


def compare_rules(device: str) -> None:
    """Weights and states after some steps; some gradients in half precision, the rate a number or a tensor."""
    for config in CONFIGS:
        more = 64 if config is CONFIGS[0] else 1
        parameters = {ours: some_weights(device, more) for ours in (True, False)}
        optimisers = {ours: FusedOptimiser(parameters[ours], config, 1.0, kernels=ours) for ours in (True, False)}
        copied = [weight for weight in parameters[True][::2] if weight.dtype == torch.float32]
        optimisers[True].half_copies = {weight: weight.detach().bfloat16() for weight in copied}
        with by_kernels() as moves:
            for step in range(3):
                for ours, optimiser in optimisers.items():
                    rate = config.rate / (step + 1)
                    optimiser.param_groups[0]["lr"] = rate if step % 2 else torch.tensor(rate, device=device)
                    take_step(optimiser, parameters[ours], step, ours=ours)
        assert moves.call_count == 3
        for one, other in zip(*parameters.values(), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-6 * config.rate)
        for weight, copy in optimisers[True].half_copies.items():
            assert torch.equal(copy, weight.bfloat16())
        states = [optimiser.state_dict()["state"] for optimiser in optimisers.values()]
        assert states[0].keys() == states[1].keys()
        for number, entries in states[1].items():
            assert states[0][number].keys() == entries.keys()
            for name, tensor in entries.items():
                # Gradients nearly cancel in some averages; nothing cancels in squares. Torch works out the decay of
                # squares, 1 - 0.999, in single precision: that is 1.3e-5 off, and ours is not.
                smallest = 2e-8 if name == "exp_avg" else 1e-30
                torch.testing.assert_close(states[0][number][name], tensor, rtol=2e-5, atol=smallest)


def take_step(optimiser: FusedOptimiser, parameters: list[nn.Parameter], step: int, *, ours: bool) -> None:
    """Gradients in half precision are those of full precision, rounded."""
    optimiser.zero_grad()
    for number, parameter in enumerate(parameters):
        gradient = gradient_of(number, parameter, step)
        if gradient is None:
            continue
        if number % 3 == 0 and parameter.dtype == torch.float32:
            half = gradient.bfloat16()
            if ours:
                assert optimiser.takes(parameter, half)
                assert not optimiser.takes(parameter, half)  # a second one is autograd's
                continue
            gradient = half.float()
        parameter.grad = gradient
    optimiser.step()


def compare_what_can_be_moved(device: str) -> None:
    """What lies in memory as the weights do."""
    weight = torch.zeros(4, 6, 3, 3, device=device)
    assert can_be_moved(weight, torch.zeros_like(weight)) and can_be_moved(weight, weight.bfloat16())
    assert not can_be_moved(weight, weight.to(memory_format=torch.channels_last))
    assert not can_be_moved(weight, weight.half()) and not can_be_moved(weight.double(), weight.double())
    assert not can_be_moved(weight, torch.zeros(1, device=device).expand(weight.shape))
    pointwise = torch.zeros(4, 6, 1, 1, device=device)
    assert can_be_moved(pointwise, pointwise.to(memory_format=torch.channels_last))


class Twice(Backbone):
    """Small, mixes no rows, and of the kind whose weights are cast at once."""

    reads_weights_when_called = True

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim = 4
        self.body, self.head, self.unused = nn.Sequential(nn.Linear(5, 4), nn.ReLU()), nn.Linear(4, 1), nn.Linear(2, 2)

    def forward(self, batch: Tensor) -> Outputs:
        high = self.body(batch)
        return Outputs(high, high, self.head(high).squeeze(1))


class TwoCalls:
    """A task in which every weight has the gradients of two calls of the network, or of one."""

    def __init__(self, module: nn.Module, calls: int) -> None:
        self.module, self.calls = module, calls

    def step(self, batch, views, generator) -> dict[str, Tensor]:
        seen = views.weak(batch["rows"].raw, generator)
        losses = [(self.module(seen * (1 + call)).logit.float() - seen[:, 0]).square() for call in range(self.calls)]
        return {"loss": torch.stack(losses).mean()}


def trained(
    device: str, *, kernels: bool, calls: int = 1, folder: Path | None = None, observer: Observer | None = None
) -> dict[str, Tensor]:
    """The weights after some epochs in half precision, on a GPU by captured steps; an epoch starts where one ended."""
    torch.manual_seed(0)
    network = Twice().to(device)
    features = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
    on_gpu = device == "cuda"
    place = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    hardware = Hardware(place, bf16=True, capture=on_gpu, threads=1, kernels=kernels)
    views = Views(Preprocessing.fit(features), ViewsConfig(), place)
    rows, store = RowStore(features, place), CheckpointStore(folder)
    engine = Engine(rows, views, hardware, seed=3, store=store, observer=observer or Observer())
    optimiser = OptimiserConfig(rate=1e-2, weight_decay=1e-2, average=0.9)
    pools = {"rows": Pool(np.arange(48), 16)}
    stage = Stage("plain", TwoCalls(network, calls), pools, "rows", epochs=3, optimiser=optimiser, identity={})
    engine.run(stage)
    return {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}


def same_weights(found: dict[str, Tensor], expected: dict[str, Tensor], device: str) -> None:
    """Up to what rounding does in nine steps; a GPU may round half precision in another place for other steps."""
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5 if device == "cpu" else 2e-3)


def compare_trainings(device: str) -> None:
    """With the gradients of one call and of two, and of weights that no loss knows."""
    for calls in (1, 2):
        with by_kernels() as moves:
            ours = trained(device, kernels=True, calls=calls)
        # Of one call as it is, of two their sum in full precision.
        kinds = {moved.gradient.dtype for call in moves.call_args_list for moved in call.args[1]}
        assert kinds == {torch.bfloat16 if calls == 1 else torch.float32}
        same_weights(ours, trained(device, kernels=False, calls=calls), device)


def count_copies(device: str) -> None:
    """After the first step no step copies weights or gradients into another precision; only numbers of rows."""
    counts, run = [], Step.run

    def counted_run(self: Step, *given: Any) -> None:
        with Counted() as counted:
            run(self, *given)
        counts.append(counted.counts["_foreach_copy_"])

    with by_kernels(), mock.patch.object(Step, "run", counted_run):
        trained(device, kernels=True)
    assert counts == [2, *[1] * 8]  # captured steps, too: what was done to capture them has been undone before


def compare_resumed(device: str) -> None:
    """A run that is begun with the kernels can be ended without them, and the other way round."""
    whole = trained(device, kernels=False)
    for first in (True, False):
        with tempfile.TemporaryDirectory() as folder, by_kernels():
            try:
                trained(device, kernels=first, folder=Path(folder), observer=StopAt(1))
                raise AssertionError("it was not interrupted")
            except Interrupted:
                resumed = trained(device, kernels=not first, folder=Path(folder))
        same_weights(resumed, whole, device)


CASES = (compare_what_can_be_moved, compare_rules, compare_trainings, count_copies, compare_resumed)


def compare_all(device: str) -> None:
    """Every case, one after the other."""
    for case in CASES:
        case(device)
