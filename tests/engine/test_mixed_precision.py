"""Weights that are cast at once give what autocast gives, bit by bit."""

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from engine_tools import engine, same, stage, weights
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from splitpu.config.schema import OptimiserConfig
from splitpu.engine.checkpoint import module_tensors, restore_in_place
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.mixed_precision import HalfCopies, HalfWeights
from splitpu.engine.optimiser import FusedOptimiser
from splitpu.kernels.dispatch import allow_kernels
from splitpu.methods.student_loss import feature_predictor
from splitpu.networks.backbones import Backbone, Ensemble, Outputs
from splitpu.networks.build import build_network

IN_HALF = {"device_type": "cpu", "dtype": torch.bfloat16, "cache_enabled": False}


class Counted(TorchDispatchMode):
    """Counts torch's operations, those on the way back included."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def built(name: str, shape: tuple[int, ...]) -> nn.ModuleDict:
    """A network and a head, as a student has them."""
    torch.manual_seed(0)
    network = build_network(name, shape).to(memory_format=torch.channels_last)
    return nn.ModuleDict({"network": network, "head": feature_predictor(network.feature_dim)})


def gradients(module: nn.ModuleDict, batch: Tensor, *, halved: bool) -> dict[str, Tensor | None]:
    """Of a loss that needs two calls of the network and one of the head, and not every weight."""
    with torch.autocast(**IN_HALF), HalfWeights(module).active() if halved else nullcontext():
        first, second = module["network"](batch), module["network"](batch * 2)
        loss = (first.high - module["head"](second.high)).square().mean() + second.low.square().mean()
    loss.backward()
    return {name: weight.grad for name, weight in module.named_parameters()}


@pytest.mark.parametrize(
    ("name", "shape"), [("cnn-small", (8, 8, 3)), ("cnn13", (8, 8, 3)), ("resnet18", (8, 8, 3)), ("mlp", (5,))]
)
def test_it_is_bitwise_what_autocast_computes(name: str, shape: tuple[int, ...]) -> None:
    batch = torch.randn(6, *shape) if len(shape) == 1 else torch.randn(6, 3, 8, 8).to(memory_format=torch.channels_last)
    plain, halved = built(name, shape), built(name, shape)
    expected, found = gradients(plain, batch, halved=False), gradients(halved, batch, halved=True)
    assert [name for name, gradient in found.items() if gradient is None] == [
        name for name, gradient in expected.items() if gradient is None
    ]
    assert any(gradient is None for gradient in found.values())  # the classifier, which the loss does not need
    for key, gradient in expected.items():
        assert gradient is None or torch.equal(found[key], gradient), key
    assert same(weights(plain), weights(halved))
    assert all(
        isinstance(weight, nn.Parameter)
        for layer in halved.modules()
        for weight in layer._parameters.values()
        if weight is not None
    )
    assert not any("forward" in vars(layer) for layer in halved.modules())


def test_all_weights_and_all_gradients_are_cast_at_once_and_no_gradient_is_copied_again() -> None:
    network, batch = build_network("mlp", (5,)), torch.randn(6, 5)
    counts = {}
    for halved in (True, False):
        network.zero_grad(set_to_none=True)
        with Counted() as counted:
            with torch.autocast(**IN_HALF), HalfWeights(network).active() if halved else nullcontext():
                loss = network(batch).logit.square().mean()
            loss.backward()
        counts[halved] = counted.counts
    weights_cast = 5  # four layers, one of them with a bias
    assert counts[True]["_foreach_copy_"] == 2 and counts[False]["_foreach_copy_"] == 0
    assert counts[False]["_to_copy"] - counts[True]["_to_copy"] == 2 * weights_cast
    for copying in ("clone", "copy_", "new_empty_strided"):
        assert counts[True][copying] == counts[False][copying]


def test_copies_are_made_again_when_and_only_when_weights_have_changed() -> None:
    network = nn.Linear(3, 2)
    weights_of, copies = list(network.parameters()), HalfCopies()

    def up_to_date() -> bool:
        return all(torch.equal(copies.by_weight[one], one.bfloat16()) for one in weights_of)

    def moved_by(name: str) -> None:
        optimiser = FusedOptimiser(weights_of, OptimiserConfig(name=name), 0.1)
        network(torch.ones(1, 3)).sum().backward()
        optimiser.step()

    changes = [
        lambda: restore_in_place(module_tensors(network), {k: t + 1 for k, t in module_tensors(network).items()}),
        lambda: network.load_state_dict({name: 2 * tensor for name, tensor in network.state_dict().items()}),
        lambda: torch._foreach_copy_([one.detach() for one in weights_of], [torch.zeros(2, 3), torch.ones(2)]),
        lambda: moved_by("adam"),
        lambda: moved_by("sgd"),
    ]
    copies.of(weights_of)
    assert up_to_date()
    for change in changes:
        change()
        assert not up_to_date()
        copies.refresh()
        assert up_to_date()
        with Counted() as counted:
            copies.refresh()
            assert copies.of(weights_of)[0] is copies.by_weight[weights_of[0]]
        assert not counted.counts


class Curious(Backbone):
    """A network of a user's, which looks at its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim, self.seen = 4, set[torch.dtype]()
        self.body, self.head = nn.Sequential(nn.Linear(5, 4), nn.ReLU()), nn.Linear(4, 1)

    def forward(self, batch: Tensor) -> Outputs:
        self.seen |= {weight.dtype for weight in self.parameters()}
        high = self.body(batch)
        return Outputs(high, high, self.head(high).squeeze(1))


def test_networks_of_the_users_are_left_alone_and_members_are_not() -> None:
    curious = Curious()
    with torch.autocast(**IN_HALF), HalfWeights(curious).active():
        curious(torch.randn(3, 5))
    assert curious.seen == {torch.float32}
    ensemble = Ensemble([build_network("mlp", (5,)), Curious()])
    assert [type(part).__name__ for part in HalfWeights(ensemble)._places] == ["MLP"]


def test_weights_are_back_in_their_place_after_an_error() -> None:
    network = build_network("mlp", (5,))
    before = dict(network.named_parameters())
    with torch.autocast(**IN_HALF), pytest.raises(RuntimeError), HalfWeights(network).active():
        network(torch.randn(3, 7))
    assert all(weight is before[name] for name, weight in network.named_parameters())
    assert "forward" not in vars(network)


class RowByRow(Curious):
    """Of our own kind, so to speak, and without anything that mixes rows."""

    reads_weights_when_called = True


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("kind", ["mlp", "row by row"])
def test_trainings_are_bitwise_the_same(kind: str, pieces: int) -> None:
    def trained(*, kernels: bool) -> tuple[nn.Module, Engine]:
        torch.manual_seed(0)
        network = build_network("mlp", (5,)) if kind == "mlp" else RowByRow()
        one = engine()
        one.hardware = Hardware(torch.device("cpu"), bf16=True, capture=False, threads=1, kernels=kernels)
        one.pieces = pieces
        one.run(stage(network, average=0.9))
        return network, one

    plain, halved = trained(kernels=False)[0], trained(kernels=True)[0]
    assert same(weights(plain), weights(halved))
    if kind == "row by row":
        assert plain.seen == {torch.float32} and torch.bfloat16 in halved.seen  # what was compared was not the same


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda_it_is_one_kernel_each_way() -> None:
    torch.manual_seed(0)
    network = build_network("cnn13", (32, 32, 3)).cuda().to(memory_format=torch.channels_last)
    allow_kernels(network, True)
    batch = torch.randn(64, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    kernels, gradients = {}, {}
    for halved in (False, True, False, True):  # what is only done once is done the first time
        network.zero_grad(set_to_none=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            in_half = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
            with in_half, HalfWeights(network).active() if halved else nullcontext():
                loss = network(batch).logit.float().square().mean()
            loss.backward()
            torch.cuda.synchronize()
        kernels[halved] = Counter({event.key: event.count for event in seen.key_averages()})
        gradients[halved] = {name: weight.grad for name, weight in network.named_parameters()}
    at_once = sum(count for name, count in kernels[True].items() if "multi_tensor_apply" in name)
    assert at_once == 2
    assert kernels[True].total() <= kernels[False].total() - 20
    for name, gradient in gradients[False].items():
        assert float((gradients[True][name] - gradient).norm()) <= 0.02 * float(gradient.norm()) + 1e-6, name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda_the_optimiser_makes_both_kernels_unnecessary() -> None:
    torch.manual_seed(0)
    network = build_network("cnn13", (32, 32, 3)).cuda().to(memory_format=torch.channels_last)
    allow_kernels(network, True)
    batch = torch.randn(64, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    rate = torch.tensor(1e-3, device="cuda")
    optimiser = FusedOptimiser(list(network.parameters()), OptimiserConfig(), rate, kernels=True)
    half = HalfWeights(network, optimiser)
    for _ in range(3):  # the first makes the copies
        optimiser.zero_grad()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False), half.active():
                loss = network(batch).logit.float().square().mean()
            loss.backward()
            optimiser.step()
            torch.cuda.synchronize()
    counts = Counter({event.key: event.count for event in seen.key_averages()})
    assert not any("multi_tensor_apply" in name for name in counts)
    assert (counts["_move_note_gradients"], counts["_move_weights"]) == (1, 1)
    assert all(torch.equal(copy, weight.bfloat16()) for weight, copy in half.copies.by_weight.items())
