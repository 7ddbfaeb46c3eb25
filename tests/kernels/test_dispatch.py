"""The kernels compute what torch's layers compute: outputs, gradients and running statistics.

Steps by our own kernels are those of torch: on a GPU, and in Triton's interpreter without one.
"""

import importlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from triton_tools import needs_interpreter, needs_triton, run_interpreted

from splitpu.config.schema import OptimiserConfig
from splitpu.engine.optimiser import FusedOptimiser
from splitpu.errors import SplitPUWarning
from splitpu.kernels import dispatch as trial
from splitpu.kernels.batch_norm import normalise
from splitpu.kernels.convolution import matrix_convolution
from splitpu.kernels.dispatch import allow_kernels, kernels_allowed, last_rows, lie_alike
from splitpu.networks.build import build_network

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("channels", "outputs", "side", "padding"), [(3, 5, 3, 1), (1, 16, 5, 2), (4, 3, 3, 0), (24, 10, 1, 0)]
)
def test_matrix_convolution_is_the_convolution(
    channels: int, outputs: int, side: int, padding: int, stride: int, layout: torch.memory_format
) -> None:
    batch = torch.randn(6, channels, 11, 9).to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(outputs, channels, side, side).to(memory_format=layout).requires_grad_()
    expected = functional.conv2d(batch, weight, stride=stride, padding=padding)
    upstream = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, (batch, weight), upstream)
    found = matrix_convolution(batch, weight, stride, padding)
    gradients = torch.autograd.grad(found, (batch, weight), upstream)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-3, rtol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_the_gradient_of_the_last_rows_keeps_the_layout() -> None:
    batch = torch.randn(5, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    weights = torch.randn(2, 3, 4, 4)
    (expected,) = torch.autograd.grad((batch[-2:] * weights).sum(), batch)
    (found,) = torch.autograd.grad((last_rows(batch, 2) * weights).sum(), batch)
    torch.testing.assert_close(found, expected)
    assert found.stride() == batch.stride()


def test_without_a_gpu_the_layer_itself_runs() -> None:
    layer, batch, added = nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 5)
    allow_kernels(layer, True)
    torch.testing.assert_close(normalise(layer, batch, added=added), functional.relu(layer(batch) + added))
    torch.testing.assert_close(normalise(layer, batch, relu=False), layer(batch))


def compare_fused_norm(device: str, dtype: torch.dtype, tolerance: float) -> None:
    """Forward, backward and running statistics against torch in double precision."""
    from splitpu.kernels import batch_norm_triton as norm_relu_triton
    from splitpu.kernels.batch_norm import _FusedNormalise

    norm_relu_triton._PROGRAMS = 4 if device == "cpu" else norm_relu_triton._PROGRAMS  # several tiles a program

    for channels, side, relu, with_added in [
        (5, 7, True, False),
        (96, 9, True, True),
        (10, 4, False, False),
        (16, 36, True, False),
    ]:
        generator = torch.Generator().manual_seed(channels)
        values = torch.randn(6, channels, side, side, generator=generator) * 2 + torch.arange(channels)[:, None, None]
        added = torch.randn(values.shape, generator=generator) if with_added else None
        upstream = torch.randn(values.shape, generator=generator)
        layer = nn.BatchNorm2d(channels)
        nn.init.normal_(layer.weight, generator=generator)
        nn.init.normal_(layer.bias, generator=generator)
        reference = nn.BatchNorm2d(channels).double()
        reference.load_state_dict(layer.state_dict())
        layer.to(device)

        def rounded(tensor: Tensor) -> Tensor:
            moved = tensor.to(device, dtype).to(memory_format=torch.channels_last)
            return moved.requires_grad_()

        inputs = [rounded(t) for t in (values, added) if t is not None]
        batch, extra = inputs[0], inputs[1] if with_added else None
        found = _FusedNormalise.apply(batch, layer.weight, layer.bias, extra, layer, relu)
        found.backward(rounded(upstream).detach())
        exact = [t.detach().cpu().double().requires_grad_() for t in inputs]
        expected = reference(exact[0]) + (exact[1] if with_added else 0)
        if relu:
            # The same side of zero as in the lower precision, where rounding decides.
            expected = torch.where(found.detach().cpu() > 0, expected, 0.0)
        expected.backward(rounded(upstream).detach().cpu().double())
        close = {"atol": tolerance, "rtol": tolerance, "check_dtype": False, "check_device": False}
        torch.testing.assert_close(found.detach().cpu().double(), expected, **close)
        for one, other in zip([*inputs, *layer.parameters()], [*exact, *reference.parameters()], strict=True):
            scale = float(other.grad.abs().max())
            torch.testing.assert_close(one.grad.cpu().double() / scale, other.grad / scale, **close)
        for name, buffer in layer.named_buffers():
            torch.testing.assert_close(buffer.cpu().double(), dict(reference.named_buffers())[name].double(), **close)


@needs_cuda
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_fused_norm_on_cuda(dtype: torch.dtype, tolerance: float) -> None:
    compare_fused_norm("cuda", dtype, tolerance)


@needs_cuda
@pytest.mark.parametrize("name", ["cnn13", "resnet18"])
def test_networks_are_as_exact_with_kernels_as_without_on_cuda(name: str) -> None:
    def logit_and_gradient(half: bool, allowed: bool) -> list[Tensor]:
        torch.manual_seed(0)
        network = build_network(name, (32, 32, 3)).cuda().to(memory_format=torch.channels_last)
        allow_kernels(network, allowed)
        batch = torch.randn(256, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            logit = network(batch).logit.float()
        logit.square().mean().backward()
        return [logit.detach(), *(p.grad for p in network.parameters() if p.grad is not None)]

    exact, plain, fused = (logit_and_gradient(*which) for which in ((False, False), (True, False), (True, True)))
    for number, truth in enumerate(exact):
        if float(truth.norm()) < 1e-6:
            continue
        plain_error, fused_error = (float((one[number] - truth).norm() / truth.norm()) for one in (plain, fused))
        assert fused_error < 1.5 * plain_error + 0.01, (number, plain_error, fused_error)


@needs_interpreter
def test_fused_norm_in_the_interpreter() -> None:
    run_interpreted("import test_dispatch as t, torch; t.compare_fused_norm('cpu', torch.float32, 1e-4)")


@needs_interpreter
@pytest.mark.parametrize("cases", ["fused_cases_triton"])
def test_every_kernel_in_the_interpreter(cases: str) -> None:
    run_interpreted(f"import {cases}; {cases}.compare_all('cpu')")


@needs_cuda
@needs_triton
@pytest.mark.parametrize("cases", ["fused_cases_triton"])
def test_every_kernel_on_cuda(cases: str) -> None:
    importlib.import_module(cases).compare_all("cuda")


class TestTrial:
    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_FAMILIES", "_FOUND"):
            monkeypatch.setattr(trial, name, {})
        monkeypatch.setattr(trial, "_SAID", set())

    def test_what_does_not_run_is_said_once(self) -> None:
        attempts: list[str] = []

        @trial.family("good")
        def good(device: torch.device) -> bool:
            attempts.append("good")
            return True

        @trial.family("broken")
        def broken(device: torch.device) -> bool:
            raise RuntimeError("no compiler\nand more of it")

        @trial.family("wrong")
        def wrong(device: torch.device) -> bool:
            return False

        device = torch.device("cpu")
        with pytest.warns(SplitPUWarning, match=r"\(broken, wrong: no compiler; their results are wrong\)") as said:
            assert trial.runs_on(device, "good")
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not trial.runs_on(device, "broken")
            assert not trial.runs_on(device, "wrong")
            assert trial.runs_on(device, "good")
        assert attempts == ["good"]

    def test_what_fails_to_compile_later_is_given_up_once(self) -> None:
        @trial.family("good")
        def good(device: torch.device) -> bool:
            return True

        class OutOfResources(Exception):
            __module__ = "triton.runtime.errors"

        device, too_large = torch.device("cpu"), OutOfResources("shared memory\nRequired: more")
        assert not trial.any_kernel_runs_on(device)  # not tried yet
        assert trial.runs_on(device, "good") and trial.any_kernel_runs_on(device)
        assert not trial.give_up_kernels(device, RuntimeError("something else"))
        assert trial.give_up_kernels(device, too_large) and not trial.any_kernel_runs_on(device)
        with pytest.warns(SplitPUWarning, match=r"\(good: shared memory\)") as said:
            assert not trial.runs_on(device, "good") and not trial.runs_on(device, "good")
        assert len(said) == 1
        assert not trial.give_up_kernels(device, too_large)  # it cannot be the kernels again

    def test_who_does_not_want_to_wait_goes_without_kernels_and_alone(self) -> None:
        may_end, device = threading.Event(), torch.device("cpu")

        @trial.family("slow")
        def slow(device: torch.device) -> bool:
            return may_end.wait(10)

        with ThreadPoolExecutor(1) as elsewhere:
            patient = elsewhere.submit(trial.runs_on, device, "slow")
            with trial.without_waiting():
                assert not trial.runs_on(device, "slow")
                assert not patient.done()  # threads do not hear of one another's impatience
                may_end.set()
                assert patient.result(10)
                assert trial.runs_on(device, "slow")  # what is known needs no waiting
        assert trial.runs_on(device, "slow")


class TestFusedOptimiser:
    @pytest.mark.parametrize(
        ("config", "peer"),
        [
            (OptimiserConfig(name="adam", weight_decay=1e-2, beta1=0.5), torch.optim.Adam),
            (OptimiserConfig(name="adamw", weight_decay=1e-2), torch.optim.AdamW),
            (OptimiserConfig(name="sgd", momentum=0.9, weight_decay=1e-2), torch.optim.SGD),
            (OptimiserConfig(name="sgd", momentum=0.0), torch.optim.SGD),
        ],
    )
    def test_it_is_bitwise_torchs_own(self, config: OptimiserConfig, peer: type[torch.optim.Optimizer]) -> None:
        torch.manual_seed(0)
        ours = nn.Sequential(
            nn.Linear(5, 7), nn.Linear(7, 3).double(), nn.Linear(2, 2)
        )  # the last never gets a gradient
        theirs = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3).double(), nn.Linear(2, 2))
        theirs.load_state_dict(ours.state_dict())
        how = {"momentum": config.momentum} if config.name == "sgd" else {"betas": (config.beta1, config.beta2)}
        own = FusedOptimiser(list(ours.parameters()), config, config.rate)
        other = peer(theirs.parameters(), lr=config.rate, weight_decay=config.weight_decay, fused=True, **how)
        for step in range(4):
            rate = config.rate / (step + 1)
            for network, optimiser in ((ours, own), (theirs, other)):
                optimiser.param_groups[0]["lr"] = rate
                optimiser.zero_grad()
                inputs = torch.linspace(-1, 1, 20).view(4, 5) * (step + 1)
                network[1](network[0](inputs).double()).square().mean().backward()
                optimiser.step()
        for one, same in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, same)
        state, expected = own.state_dict()["state"], other.state_dict()["state"]
        kept = {number: {k: t for k, t in entries.items() if t is not None} for number, entries in expected.items()}
        kept = {number: entries for number, entries in kept.items() if entries}
        assert state.keys() == kept.keys()
        for number, entries in kept.items():
            assert state[number].keys() == entries.keys()
            assert all(torch.equal(state[number][key], tensor) for key, tensor in entries.items())


def test_allow_kernels_in_short() -> None:
    layer = nn.BatchNorm2d(3)
    allow_kernels(layer, True)
    assert kernels_allowed(layer)


def test_lie_alike_in_short() -> None:
    weight = torch.zeros(2, 3, 4, 4)
    assert (
        lie_alike(weight, torch.ones(2, 3, 4, 4)),
        lie_alike(weight, weight.to(memory_format=torch.channels_last)),
    ) == (True, False)
