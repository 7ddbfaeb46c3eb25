"""Every method on digits: better than taking the unlabelled for negatives, resumable to the bit, deterministic.

What a method needs and says of itself, and the settings that suit it.

Where the right answer is known: two Gaussians, of which every consistent PU loss has to find the true posterior.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from method_tools import LEARNERS, METHODS, RIVALS, SECTIONS, budget, settings, weights
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from splitpu.config.parse import apply_overrides
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import METHOD_NAMES, Config, TeacherName
from splitpu.data.pudata import HeldOut, PUData
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.optimiser import build_optimiser, rate_at
from splitpu.engine.stage import Observer, Stage
from splitpu.errors import InputError, Interrupted
from splitpu.losses import logistic_loss, nnpu_risk, upu_risk
from splitpu.methods.dan import adversarial_value
from splitpu.methods.pubn import pubn_risk
from splitpu.methods.registry import find_method, sections_in_use, uses_learners
from splitpu.methods.vpu import variational_loss
from splitpu.model import Model
from splitpu.training import Runtime, Training, TrainSpec, train


def fitted(data: PUData, prior: float, config: Config, **options: Any) -> Training:
    needed = find_method(config.method).needs_prior
    spec = TrainSpec(prior=prior if needed else None, config=config, backbone="mlp", seed=options.pop("seed", 0))
    return train(data, spec, Runtime(device="cpu", **options))


def accuracy(training: Training, held_out: HeldOut) -> float:
    hardware = Hardware.choose("cpu", training.model.config.engine)
    return float(((training.model.decision(held_out.features, hardware) > 0) == held_out.truth).mean())


def same(one: Training, other: Training) -> bool:
    """Bit for bit."""
    mine, theirs = weights(one), weights(other)
    return one.model.final.threshold == other.model.final.threshold and all(
        torch.equal(mine[name], theirs[name]) for name in mine | theirs
    )


# --- learning ---


@pytest.fixture(scope="module")
def naive(hundred_digits: tuple[PUData, HeldOut, float]) -> float:
    data, held_out, prior = hundred_digits
    return accuracy(fitted(data, prior, settings(data, "naive", 12)), held_out)


@pytest.mark.parametrize("method", ["split-pu", *RIVALS])
def test_better_than_naive(hundred_digits: tuple[PUData, HeldOut, float], naive: float, method: str) -> None:
    data, held_out, prior = hundred_digits
    config = settings(data, method, 12, "rounds=1", "student.epochs=12")
    assert accuracy(fitted(data, prior, config), held_out) > naive + 0.1


def test_the_oracle_is_better_still(hundred_digits: tuple[PUData, HeldOut, float]) -> None:
    data, held_out, prior = hundred_digits
    assert accuracy(fitted(data, prior, settings(data, "supervised", 12)), held_out) > 0.95


# --- being interrupted, and coming out the same ---


class Counting(Observer):
    """Counts steps, and stops after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.steps, self.stop_after = 0, stop_after
        self.stages: list[str] = []

    def stage_started(self, stage: Stage, done: int) -> None:
        self.stages.append(stage.name)

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        self.steps += 1

    def should_stop(self) -> bool:
        return self.stop_after is not None and self.steps >= self.stop_after


@pytest.mark.parametrize("method", [name for name in METHODS if name not in LEARNERS])
def test_resumed_is_bitwise_uninterrupted(few_digits: PUData, tmp_path: Path, method: str) -> None:
    config = settings(few_digits, method, 5, f"{SECTIONS.get(method, 'base')}.optimiser.average=0.9")
    counting = Counting()
    whole = fitted(few_digits, 0.5, config, observer=counting)
    assert same(whole, fitted(few_digits, 0.5, config)), "not deterministic"
    # In the middle of an epoch, once early and once late in what is left.
    for share in (0.5, 0.35):
        stopping = Counting(stop_after=round(share * counting.steps))
        with pytest.raises(Interrupted):
            fitted(few_digits, 0.5, config, observer=stopping, checkpoints=tmp_path)
    again = Counting()
    resumed = fitted(few_digits, 0.5, config, observer=again, checkpoints=tmp_path)
    assert 0 < again.steps < 0.6 * counting.steps, "nothing was resumed"
    assert same(whole, resumed)
    timeless = [[replace(record, seconds=0.0) for record in run.result.history] for run in (whole, resumed)]
    assert timeless[0] == timeless[1]
    assert not same(whole, fitted(few_digits, 0.5, config, seed=1))


def test_one_oracle_serves_whichever_rows_are_labelled(few_digits: PUData, tmp_path: Path) -> None:
    others = replace(few_digits, labelled=np.roll(few_digits.labelled, 7))
    wrong = replace(few_digits, truth=np.roll(few_digits.truth, 1))
    config = settings(few_digits, "supervised", 2, "threshold=half")
    chosen = settings(few_digits, "supervised", 2, "selection.held_out=0.2")
    trained = []
    for data, how in ((few_digits, config), (others, config), (wrong, config), (few_digits, chosen), (others, chosen)):
        counting = Counting()
        training = train(
            data, TrainSpec(prior=0.5, config=how, backbone="mlp"), Runtime(observer=counting, checkpoints=tmp_path)
        )
        trained.append((training, counting.steps))
    (first, _), (second, steps) = trained[:2]
    assert steps == 0 and same(first, second)
    # Other labels are another oracle; and where labelled rows choose the epoch, it matters which they are.
    assert all(steps > 0 for _, steps in trained[2:])


# --- fit for capture: nothing inside a step may wait for a value, or have a shape that depends on one ---


class NoHostReads(TorchDispatchMode):
    """Refuses every operation that a captured CUDA graph could not hold."""

    forbidden = (
        torch.ops.aten._local_scalar_dense.default,  # item(), float(), bool()
        torch.ops.aten.nonzero.default,
        torch.ops.aten.masked_select.default,
        torch.ops.aten.lift_fresh.default,  # torch.tensor(...), a copy from the host
        torch.ops.aten.randperm.default,
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in self.forbidden, func
        if func is torch.ops.aten.index.Tensor:
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "shape depends on a mask"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", [*RIVALS, "naive", "supervised"])
def test_a_step_never_asks_the_host(few_digits: PUData, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    run, guarded = Engine.run, []

    def run_guarded(engine: Engine, stage: Stage) -> Any:
        step = stage.task.step

        def guarded_step(*words: Any) -> dict[str, Tensor]:
            guarded.append(stage.name)
            with NoHostReads():
                return step(*words)

        stage.task.step = guarded_step  # type: ignore[method-assign]
        return run(engine, stage)

    monkeypatch.setattr(Engine, "run", run_guarded)
    fitted(few_digits, 0.5, settings(few_digits, method, 3))
    assert guarded


# --- as the teacher of Split-PU ---


@pytest.mark.parametrize("teacher", [name for name in get_args(TeacherName) if name != "risk"])
def test_any_method_can_be_the_teacher(few_digits: PUData, tmp_path: Path, teacher: str) -> None:
    config = settings(few_digits, "split-pu", 2, "rounds=1", f"base.method={teacher}", *budget(teacher, 2))
    training = fitted(few_digits, 0.5, config)
    alone = train(few_digits, TrainSpec(prior=0.5, config=settings(few_digits, teacher, 2), backbone="mlp"))
    assert len(training.result.rounds) == 1
    assert torch.equal(training.result.base.logits, alone.result.base.logits)
    # An ensemble is saved and found again beside the single network that it taught.
    training.model.save(tmp_path)
    loaded, hardware = Model.load(tmp_path), training.hardware
    for which in ("base", "final"):
        scores = [model.decision(few_digits.features, hardware, which=which) for model in (training.model, loaded)]
        assert np.array_equal(*scores)


@pytest.mark.parametrize("method", ["naive", "supervised", "nnpu"])
def test_strong_views_of_the_base_are_seen_by_whatever_is_trained_as_it_says(
    hundred_digits: tuple[PUData, HeldOut, float], method: str
) -> None:
    data, _, prior = hundred_digits
    strong = ("base.views=strong", "views.cutout=0.5")
    weak, other = (fitted(data, prior, settings(data, method, 1, *more)) for more in (("views.cutout=0.5",), strong))
    assert not torch.equal(weak.result.final.logits, other.result.final.logits)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].needs_prior])
def test_a_method_that_needs_the_prior_says_so(few_digits: PUData, method: str) -> None:
    with pytest.raises(InputError, match=f"'{method}' needs the prior.*such as 'vpu'"):
        train(few_digits, TrainSpec(prior=None, config=settings(few_digits, method, 1)))


def test_the_oracle_refuses_data_without_truth(few_digits: PUData) -> None:
    blind = replace(few_digits, truth=None)
    for config in (
        settings(few_digits, "supervised", 1),
        settings(few_digits, "split-pu", 1, "base.method=supervised"),
    ):
        with pytest.raises(InputError, match="'supervised' learns from the true label of every training row"):
            train(blind, TrainSpec(prior=0.5, config=config))


def test_a_prior_only_moves_the_threshold_of_methods_that_do_without(few_digits: PUData) -> None:
    for method in ("vpu", "dan", "p3mix", "naive"):
        config = settings(few_digits, method, 2)
        without, given = (
            train(few_digits, TrainSpec(prior=prior, config=config, backbone="mlp")) for prior in (None, 0.4)
        )
        assert all(torch.equal(a, b) for a, b in zip(weights(without).values(), weights(given).values(), strict=True))
        rate = float((given.result.final.probabilities > 0.5).double().mean())
        assert rate == pytest.approx(0.4, abs=0.01)
        assert without.model.prior is None and given.model.prior == 0.4


def test_every_name_in_the_configuration_is_a_method() -> None:
    assert set(METHOD_NAMES) == set(METHODS)
    assert set(get_args(TeacherName)) == {"risk", *METHODS} - {"split-pu", "nnpu", "upu", *LEARNERS}
    with pytest.raises(InputError, match="did you mean 'nnpu'"):
        find_method("nnPU")


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_says_what_it_is(method: Any) -> None:
    module, _, name = method.home.partition(":")
    assert callable(getattr(importlib.import_module(f"splitpu.methods.{module}"), name))
    assert all(text and "\n" not in text for text in (method.summary, method.assumes, method.citation))
    assert set(method.sections) <= set(preset("default").__dataclass_fields__)


def test_only_sections_in_use_decide() -> None:
    taught = apply_overrides(Config(), ["base.method=dist-pu"])
    assert "dist_pu" in sections_in_use(taught) and "vpu" not in sections_in_use(taught)


def test_small_data_get_settings_of_their_own() -> None:
    small, large = (preset("default", DataProfile("images", rows, 100)) for rows in (1000, 50_000))
    assert large.vpu == Config().vpu and large.dist_pu == Config().dist_pu
    assert small.vpu.batch_size < large.vpu.batch_size and small.vpu.optimiser.rate > large.vpu.optimiser.rate
    assert preset("paper", DataProfile("images", 1000, 100)).vpu == Config().vpu


def test_an_epoch_is_not_chosen_by_a_handful_of_labels() -> None:
    shares = [preset("default", DataProfile("images", 50_000, labelled)).vpu.held_out for labelled in (49, 50)]
    assert shares == [0.0, 0.2]


def test_the_optimiser_is_told_its_memory() -> None:
    vpu = Config().vpu.optimiser
    optimiser = build_optimiser(torch.nn.Linear(2, 1), vpu, torch.device("cpu"))
    assert optimiser.param_groups[0]["betas"] == (0.5, 0.99)
    # Halved after 20 and 40 of 50 epochs.
    assert [rate_at(vpu, epoch, 50) / vpu.rate for epoch in (0, 19, 20, 39, 40, 49)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


# N(1, 1) is positive, N(-1, 1) negative: the true logit of x is 2 x + log(prior / (1 - prior)).
PRIOR, SLOPE = 0.4, 2.0
OFFSET = float(np.log(PRIOR / (1 - PRIOR)))


def quantiles(mean: float, count: int) -> Tensor:
    """A sample without chance: the middles of equal shares."""
    return torch.from_numpy(norm(mean).ppf((np.arange(count) + 0.5) / count))


P = quantiles(1, 4000)
X = torch.cat([quantiles(1, 4000), quantiles(-1, 6000)])  # two in five are positive
SCORES = [torch.sigmoid(SLOPE * x + OFFSET) for x in (P, X)]

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic nnPU": lambda p, x: nnpu_risk(p, x, PRIOR, surrogate=logistic_loss).objective,
    "PUbN": lambda p, x: torch.stack(pubn_risk(p, x, *SCORES, PRIOR, border=0.3)).sum(),
    "VPU": variational_loss,
}


def minimised(loss: Callable[[Tensor], Tensor], start: list[float]) -> NDArray[np.float64]:
    def with_slope(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = torch.from_numpy(at).requires_grad_()
        value = loss(weights)
        (slope,) = torch.autograd.grad(value, weights)
        return value.item(), slope.numpy()

    found: NDArray[np.float64] = minimize(with_slope, start, jac=True, tol=1e-9).x
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_the_least_loss_is_at_the_true_posterior(name: str) -> None:
    found = minimised(lambda w: LOSSES[name](w[0] * P + w[1], w[0] * X + w[1]), [0.5, 0.0])
    assert found == pytest.approx([SLOPE, OFFSET], abs=0.02)


@pytest.mark.parametrize("risk", [upu_risk, nnpu_risk])
def test_the_least_risk_is_at_the_true_border(risk: Callable[..., object]) -> None:
    steep = 20.0  # so that the sigmoid loss nearly counts errors
    (border,) = minimised(lambda b: risk(steep * (P - b), steep * (X - b), PRIOR).objective, [0.5])  # type: ignore[attr-defined]
    assert border == pytest.approx(-OFFSET / SLOPE, abs=0.01)


def test_nobody_gains_by_leaving_the_true_posterior_in_the_adversarial_game() -> None:
    # There the rows that are picked are spread as P is, and the adversary can do no better than to say one half.
    network = torch.tensor([SLOPE, OFFSET], dtype=torch.float64, requires_grad=True)
    adversary = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def value() -> Tensor:
        return adversarial_value(adversary[0] * P + adversary[1], adversary[0] * X + adversary[1], network @ features)

    features = torch.stack([X, torch.ones_like(X)])
    for one in torch.autograd.grad(value(), (network, adversary)):
        assert one.abs().max() < 2e-3
    assert value().item() == pytest.approx(-2 * np.log(2))
    # Elsewhere somebody does: of rows picked with a lower slope the adversary can tell P.
    with torch.no_grad():
        network[0] = 1.0
    assert torch.autograd.grad(value(), adversary)[0].abs().max() > 0.1


def test_uses_learners_in_short() -> None:
    assert (
        uses_learners(Config(method="split-pu", learner="auto")),
        uses_learners(Config(method="vpu", learner="auto")),
    ) == (True, False)
