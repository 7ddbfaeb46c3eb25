"""Every method on digits: better than taking the unlabelled for negatives, resumable to the bit, deterministic."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from cli_tools import run_cli, tiny_arrays, write_npz
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from splitpu.config import Config, DataProfile, MethodName, TeacherName, apply_overrides, preset
from splitpu.data import HeldOut, PUData, load_named, make_pu, true_prior
from splitpu.engine.hardware import Hardware
from splitpu.engine.loop import Engine
from splitpu.engine.optimise import build_optimiser, rate_at
from splitpu.engine.stage import Observer, Stage
from splitpu.errors import InputError, Interrupted
from splitpu.methods.registry import METHODS, find_method, sections_in_use
from splitpu.models import Model
from splitpu.training import Training, profile_of, train

RIVALS = [name for name in METHODS if name not in ("split-pu", "naive", "supervised")]
SECTIONS = {"vpu": "vpu", "dan": "dan", "pubn": "pubn", "self-pu": "self_pu", "p3mix": "p3mix", "puupl": "puupl"}
SECTIONS |= {"dist-pu": "dist_pu"}
SETTINGS = [
    *("engine.threads=1", "views.flip=false", "views.crop_padding=0.1"),
    *("split.max_epochs=2", "split.tau=0.01", "student.epochs=2"),
]


def budget(method: str, epochs: int) -> list[str]:
    """So many epochs for every stage of the method, in batches that a few hundred rows have some of."""
    section = SECTIONS.get(method, "base")
    more = {
        "base": ["base.optimiser.rate=3e-3"],
        "pubn": [f"pubn.score_epochs={epochs}"],
        "puupl": ["puupl.rounds=2", "puupl.per_round=100"],
        "dist_pu": [f"dist_pu.warmup_epochs={epochs}"],
    }
    sizes = [f"{section}.epochs={epochs}", f"{section}.batch_size=64", f"{section}.positives_per_batch=16"]
    return [*sizes, *more.get(section, [])]


def settings(data: PUData, method: str, epochs: int, *more: str) -> Config:
    start = preset("default", profile_of(data))
    return apply_overrides(start, [*SETTINGS, *budget(method, epochs), f"method={method}", *more])


@pytest.fixture(scope="module")
def digits() -> tuple[PUData, HeldOut, float]:
    """Even against odd, 100 labelled."""
    named = load_named("digits")
    return *make_pu(named, 100, seed=0), true_prior(named)


@pytest.fixture(scope="module")
def few(digits: tuple[PUData, HeldOut, float]) -> PUData:
    """Some of the digits, for everything that is not about learning."""
    data = digits[0]
    chosen = np.r_[data.positives[:40], data.unlabelled[:260]]
    assert data.truth is not None
    return PUData.from_arrays(data.features[chosen], data.labelled[chosen], truth=data.truth[chosen], channels="last")


def fitted(data: PUData, prior: float, config: Config, **options: Any) -> Training:
    needed = find_method(config.method).needs_prior
    return train(data, prior=prior if needed else None, config=config, backbone="mlp", device="cpu", **options)


def accuracy(training: Training, held_out: HeldOut) -> float:
    hardware = Hardware.choose("cpu", training.model.config.engine)
    return float(((training.model.decision(held_out.features, hardware) > 0) == held_out.truth).mean())


def weights(training: Training) -> dict[str, Tensor]:
    return training.model.final.network.state_dict()


def same(one: Training, other: Training) -> bool:
    """Bit for bit."""
    mine, theirs = weights(one), weights(other)
    return one.model.final.threshold == other.model.final.threshold and all(
        torch.equal(mine[name], theirs[name]) for name in mine | theirs
    )


# --- learning ---


@pytest.fixture(scope="module")
def naive(digits: tuple[PUData, HeldOut, float]) -> float:
    data, held_out, prior = digits
    return accuracy(fitted(data, prior, settings(data, "naive", 12)), held_out)


@pytest.mark.parametrize("method", ["split-pu", *RIVALS])
def test_better_than_naive(digits: tuple[PUData, HeldOut, float], naive: float, method: str) -> None:
    data, held_out, prior = digits
    config = settings(data, method, 12, "rounds=1", "student.epochs=12")
    assert accuracy(fitted(data, prior, config), held_out) > naive + 0.1


def test_the_oracle_is_better_still(digits: tuple[PUData, HeldOut, float]) -> None:
    data, held_out, prior = digits
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


@pytest.mark.parametrize("method", METHODS)
def test_resumed_is_bitwise_uninterrupted(few: PUData, tmp_path: Path, method: str) -> None:
    config = settings(few, method, 5, f"{SECTIONS.get(method, 'base')}.optimiser.average=0.9")
    counting = Counting()
    whole = fitted(few, 0.5, config, observer=counting)
    assert same(whole, fitted(few, 0.5, config)), "not deterministic"
    # In the middle of an epoch, once early and once late in what is left.
    for share in (0.5, 0.35):
        stopping = Counting(stop_after=round(share * counting.steps))
        with pytest.raises(Interrupted):
            fitted(few, 0.5, config, observer=stopping, checkpoints=tmp_path)
    again = Counting()
    resumed = fitted(few, 0.5, config, observer=again, checkpoints=tmp_path)
    assert 0 < again.steps < 0.6 * counting.steps, "nothing was resumed"
    assert same(whole, resumed)
    timeless = [[replace(record, seconds=0.0) for record in run.result.history] for run in (whole, resumed)]
    assert timeless[0] == timeless[1]
    assert not same(whole, fitted(few, 0.5, config, seed=1))


def test_one_oracle_serves_whichever_rows_are_labelled(few: PUData, tmp_path: Path) -> None:
    others = replace(few, labelled=np.roll(few.labelled, 7))
    wrong = replace(few, truth=np.roll(few.truth, 1))
    config = settings(few, "supervised", 2, "threshold=half")
    chosen = settings(few, "supervised", 2, "selection.held_out=0.2")
    trained = []
    for data, how in ((few, config), (others, config), (wrong, config), (few, chosen), (others, chosen)):
        counting = Counting()
        training = train(data, prior=0.5, config=how, backbone="mlp", observer=counting, checkpoints=tmp_path)
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
def test_a_step_never_asks_the_host(few: PUData, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
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
    fitted(few, 0.5, settings(few, method, 3))
    assert guarded


# --- what a method needs ---


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].needs_prior])
def test_a_method_that_needs_the_prior_says_so(few: PUData, method: str) -> None:
    with pytest.raises(InputError, match=f"'{method}' needs the prior.*such as 'vpu'"):
        train(few, prior=None, config=settings(few, method, 1))


def test_the_oracle_refuses_data_without_truth(few: PUData) -> None:
    blind = replace(few, truth=None)
    for config in (settings(few, "supervised", 1), settings(few, "split-pu", 1, "base.method=supervised")):
        with pytest.raises(InputError, match="'supervised' learns from the true label of every training row"):
            train(blind, prior=0.5, config=config)


def test_a_prior_only_moves_the_threshold_of_methods_that_do_without(few: PUData) -> None:
    for method in ("vpu", "dan", "p3mix", "naive"):
        config = settings(few, method, 2)
        without, given = (train(few, prior=prior, config=config, backbone="mlp") for prior in (None, 0.4))
        assert all(torch.equal(a, b) for a, b in zip(weights(without).values(), weights(given).values(), strict=True))
        rate = float((given.result.final.probabilities > 0.5).double().mean())
        assert rate == pytest.approx(0.4, abs=0.01)
        assert without.model.prior is None and given.model.prior == 0.4


def test_every_name_in_the_configuration_is_a_method() -> None:
    assert set(get_args(MethodName)) == set(METHODS)
    assert set(get_args(TeacherName)) == {"risk", *METHODS} - {"split-pu", "nnpu", "upu"}
    with pytest.raises(InputError, match="did you mean 'nnpu'"):
        find_method("nnPU")


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_says_what_it_is(method: Any) -> None:
    assert callable(method._function())
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


# --- as the teacher of Split-PU ---


@pytest.mark.parametrize("teacher", [name for name in get_args(TeacherName) if name != "risk"])
def test_any_method_can_be_the_teacher(few: PUData, tmp_path: Path, teacher: str) -> None:
    config = settings(few, "split-pu", 2, "rounds=1", f"base.method={teacher}", *budget(teacher, 2))
    training = fitted(few, 0.5, config)
    alone = train(few, prior=0.5, config=settings(few, teacher, 2), backbone="mlp")
    assert len(training.result.rounds) == 1
    assert torch.equal(training.result.base.logits, alone.result.base.logits)
    # An ensemble is saved and found again beside the single network that it taught.
    training.model.save(tmp_path)
    loaded, hardware = Model.load(tmp_path), training.hardware
    for which in ("base", "final"):
        scores = [model.decision(few.features, hardware, which=which) for model in (training.model, loaded)]
        assert np.array_equal(*scores)


# --- on the command line ---


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = run_cli(capsys, "methods")
    assert code == 0 and all(method.summary in shown and method.citation in shown for method in METHODS.values())
    listed = json.loads(run_cli(capsys, "methods", "--json")[1])["methods"]
    assert [one["name"] for one in listed] == list(METHODS)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "split-pu"])
def test_a_run_of_any_method(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    out, data = tmp_path / "run", write_npz(tmp_path / "rows.npz")
    prior = [] if method == "vpu" else ["--prior", "0.5" if METHODS[method].needs_prior else "none"]
    few_epochs = [word for setting in [*SETTINGS[:1], *budget(method, 2)] for word in ("--set", setting)]
    words = ["fit", data, "--method", method, "--out", out, "--quiet", *prior, *few_epochs]
    code, shown, said = run_cli(capsys, *words)
    assert code == 0, said
    result = json.loads((out / "result.json").read_text())
    assert result["method"] == method and result["rounds"] == [] and len(result["models"]) == 1
    assert (result["prior"] is None) == (prior == ["--prior", "none"])
    assert result["models"][0]["model"] == METHODS[method].title and result["models"][0]["test"]["accuracy"] is not None
    page = (out / "report.html").read_text()
    assert f"The {METHODS[method].title} model" in page and 'id="split"' not in page
    figures = json.loads(run_cli(capsys, "evaluate", out, "--json")[1])["models"]
    assert [one["model"] for one in figures] == [METHODS[method].title]
    assert figures[0]["accuracy"] == result["models"][0]["test"]["accuracy"]
    code, shown, _ = run_cli(capsys, "info", out)
    assert code == 0 and method in shown


def test_an_estimate_serves_methods_that_learn_without_a_prior(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word about the prior a run of VPU can be judged without truth, and its prior be varied."""
    data = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=240) | {"X_test": None, "y_test": None, "truth": None})
    words = ["fit", data, "--method", "vpu", "--set", "vpu.epochs=3", *("--set", "engine.threads=1")]
    code, shown, said = run_cli(capsys, *words, "--out", tmp_path / "run", "--json")
    result = json.loads(shown)
    low, high = result["prior_interval"]
    assert code == 0 and low < result["prior"] < high and result["prior_source"] == "estimated by consensus"
    assert "prior: being estimated" in said
    assert f"95 % interval {low:.3g} to {high:.3g}" in (tmp_path / "run/report.html").read_text()
    code, shown, _ = run_cli(capsys, "evaluate", tmp_path / "run", "--json")
    assert code == 0 and json.loads(shown)["figures"]["accuracy"]["value"] > 0.8
    code, shown, _ = run_cli(capsys, "sensitivity", tmp_path / "run", "--json", "--steps", "3")
    rates = [row["positive_rate_unlabelled"] for row in json.loads(shown)["rows"]]
    assert code == 0 and rates == sorted(rates)
    code, _, said = run_cli(capsys, *words, "--prior", "none", "--out", tmp_path / "without", "--quiet")
    assert code == 0 and json.loads((tmp_path / "without/result.json").read_text())["prior"] is None
    assert "was trained without a prior" in run_cli(capsys, "sensitivity", tmp_path / "without")[2]
    code, _, said = run_cli(capsys, "fit", data, "--prior", "none", "--out", tmp_path / "no", "--quiet")
    assert code == 2 and "method 'split-pu' needs the prior" in said and not (tmp_path / "no").exists()


def test_wrong_method_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "rows.npz")
    code, _, said = run_cli(capsys, "fit", data, "--method", "vpuu", "--out", tmp_path / "run")
    assert code == 2 and "did you mean 'vpu'" in said
    code, _, said = run_cli(capsys, "fit", data, "--method", "vpu", "--set", "vpu.epoch=2")
    assert code == 2 and "did you mean 'vpu.epochs'" in said


@pytest.mark.parametrize("method", ["naive", "supervised", "nnpu"])
def test_strong_views_of_the_base_are_seen_by_whatever_is_trained_as_it_says(
    digits: tuple[PUData, HeldOut, float], method: str
) -> None:
    data, _, prior = digits
    strong = ("base.views=strong", "views.cutout=0.5")
    weak, other = (fitted(data, prior, settings(data, method, 1, *more)) for more in (("views.cutout=0.5",), strong))
    assert not torch.equal(weak.result.final.logits, other.result.final.logits)
