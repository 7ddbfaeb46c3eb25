"""Steps by our own kernels are those of torch: on a GPU, and in Triton's interpreter without one."""

import importlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from triton_tools import needs_interpreter, needs_triton, run_interpreted

from splitpu.config.schema import OptimiserConfig
from splitpu.engine.optimiser import FusedOptimiser
from splitpu.errors import SplitPUWarning
from splitpu.kernels import dispatch as trial

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_interpreter
@pytest.mark.parametrize("cases", ["fused_cases_triton", "optimiser_cases_triton"])
def test_every_kernel_in_the_interpreter(cases: str) -> None:
    run_interpreted(f"import {cases}; {cases}.compare_all('cpu')")


@needs_cuda
@needs_triton
@pytest.mark.parametrize("cases", ["fused_cases_triton", "optimiser_cases_triton"])
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
