"""The warm-up: without labels, shared by all who may share it, resumed to the bit, and a better start than none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import tiny_arrays, write_npz
from sklearn.linear_model import LogisticRegression

from splitpu import SplitPUClassifier, VPUClassifier, load_named
from splitpu.cli import main
from splitpu.config.parse import apply_overrides
from splitpu.config.presets import DataProfile, preset
from splitpu.config.schema import Config
from splitpu.data.pudata import PUData
from splitpu.engine.stage import EpochRecord, Observer, Stage
from splitpu.errors import InputError, Interrupted
from splitpu.methods.context import Context
from splitpu.methods.warmup import warmed_up, warmup_views
from splitpu.training import Runtime, TrainSpec, open_context, profile_of, train

ROWS = 400
QUICK = ("warmup.epochs=3", "base.epochs=1", "split.max_epochs=1", "student.epochs=1", "rounds=1")
WARMED = ("warmup.name=simclr", *QUICK)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    named = load_named("digits")
    return named.features_train[:ROWS], named.truth_train[:ROWS]


def draw(digits: tuple[np.ndarray, np.ndarray], labelled: int = 40, seed: int = 0, **more: object) -> PUData:
    features, truth = digits
    chosen = np.random.default_rng(seed).choice(np.flatnonzero(truth), labelled, replace=False)
    return PUData.from_arrays(features, np.isin(np.arange(len(features)), chosen), channels="last", **more)


def configured(data: PUData, *overrides: str) -> Config:
    return apply_overrides(preset("default", profile_of(data)), [*WARMED, *overrides])


def opened(data: PUData, *overrides: str, folder: Path | None = None, seed: int = 0, prior: float = 0.5) -> Context:
    config = configured(data, *overrides)
    return open_context(
        data, TrainSpec(prior=prior, config=config, seed=seed), Runtime(device="cpu", checkpoints=folder)
    )


class Watcher(Observer):
    """Notes what was restored and what was trained; stops where it is told to."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.restored: dict[str, int] = {}
        self.records: list[EpochRecord] = []
        self.stop_after = stop_after

    def stage_started(self, stage: Stage, done: int) -> None:
        self.restored[stage.name] = done

    def epoch_done(self, record: EpochRecord) -> None:
        self.records.append(record)

    def should_stop(self) -> bool:
        return self.stop_after is not None and len(self.records) >= self.stop_after


# ------------------------------------------------------------------------------------------------------------- identity


def test_one_warm_up_serves_every_draw_of_labels_every_prior_and_both_scenarios(digits, tmp_path: Path) -> None:
    first = warmed_up(opened(draw(digits), folder=tmp_path)).warm_start
    others = (
        opened(draw(digits, labelled=20, seed=5), folder=tmp_path),
        opened(draw(digits, scenario="case-control"), folder=tmp_path, prior=0.3),
        opened(draw(digits), "student.epochs=9", "views.brightness=0.1", "warmup.student=false", folder=tmp_path),
    )
    for context in others:
        watcher = context.engine.observer = Watcher()
        found = warmed_up(context).warm_start
        assert first is not None and found is not None and found.key == first.key
        assert watcher.restored == {"warmup": 3}  # nothing was trained
        assert all(torch.equal(found.weights[name], tensor) for name, tensor in first.weights.items())
    assert len(list(tmp_path.glob("warmup-*"))) == 1


@pytest.mark.parametrize("change", ["rows", "seed", "warmup.temperature=0.2", "warmup.views.zoom=0.1"])
def test_what_the_warm_up_depends_on_makes_another(digits, tmp_path: Path, change: str) -> None:
    warmed_up(opened(draw(digits), folder=tmp_path))
    if change == "rows":
        features = digits[0].copy()
        features[0, 0, 0, 0] += 1
        context = opened(draw((features, digits[1])), folder=tmp_path)
    elif change == "seed":
        context = opened(draw(digits), folder=tmp_path, seed=1)
    else:
        context = opened(draw(digits), change, folder=tmp_path)
    warmed_up(context)
    assert len(list(tmp_path.glob("warmup-*"))) == 2


def test_labels_do_not_change_a_weight(digits) -> None:
    one, other = (warmed_up(opened(draw(digits, seed=seed))).warm_start for seed in (0, 1))
    assert one is not None and other is not None
    assert all(torch.equal(other.weights[name], tensor) for name, tensor in one.weights.items())


def test_keys_of_stages_that_do_not_start_from_it_stay_what_they_were(digits) -> None:
    cold = opened(draw(digits), "warmup.name=none")
    warm = warmed_up(opened(draw(digits), "warmup.split=false"))
    name = "round1.split"
    assert warm.identity(name, "split") == cold.identity(name, "split")
    assert warm.identity("base", "base") != cold.identity("base", "base")
    assert warm.identity("round1.student", "student") != cold.identity("round1.student", "student")


# ------------------------------------------------------------------------------------------------------ starting points


@pytest.mark.parametrize("kept_cold", [(), ("base",), ("split",), ("student",)])
def test_networks_start_from_it_where_they_are_told_to(digits, kept_cold: tuple[str, ...]) -> None:
    warm = warmed_up(opened(draw(digits), *(f"warmup.{name}=false" for name in kept_cold)))
    cold = opened(draw(digits), "warmup.name=none")
    assert warm.warm_start is not None
    places = {"base": "base", "split": "round1.split", "student": "round2.student"}
    for kind, place in places.items():
        ours, drawn = (context.fresh_network(place).state_dict() for context in (warm, cold))
        start = drawn if kind in kept_cold else {**drawn, **warm.warm_start.weights}
        assert all(torch.equal(ours[name], tensor) for name, tensor in start.items()), kind


def test_the_head_is_drawn_for_every_place(digits) -> None:
    warm = warmed_up(opened(draw(digits)))
    assert warm.warm_start is not None
    names = set(warm.fresh_network("base").state_dict())
    assert {name for name in names if name not in warm.warm_start.weights} == {"head.weight", "head.bias"}
    heads = [warm.fresh_network(place).state_dict()["head.weight"] for place in ("base", "round1.student")]
    assert not torch.equal(*heads)


def test_no_warm_up_asked_for_none_made(digits) -> None:
    context = opened(draw(digits), "warmup.name=none")
    assert warmed_up(context) is context and context.engine.history == []


def test_what_must_not_be_mirrored_is_not_mirrored_here(digits) -> None:
    assert not warmup_views(opened(draw(digits))).flip  # the preset for few images
    assert warmup_views(opened(draw(digits), "views.flip=true")).flip
    assert not warmup_views(opened(draw(digits), "views.flip=true", "warmup.views.flip=false")).flip


# ------------------------------------------------------------------------------------------------------------ the stage


def test_stopped_and_resumed_it_is_bitwise_the_same(digits, tmp_path: Path) -> None:
    data = draw(digits)
    config = configured(data)
    whole = train(data, TrainSpec(prior=0.5, config=config), Runtime(device="cpu", checkpoints=tmp_path / "whole"))
    with pytest.raises(Interrupted, match="during warmup, epoch 3"):
        train(
            data,
            TrainSpec(prior=0.5, config=config),
            Runtime(device="cpu", checkpoints=tmp_path / "parts", observer=Watcher(2)),
        )
    watcher = Watcher()
    resumed = train(
        data,
        TrainSpec(prior=0.5, config=config),
        Runtime(device="cpu", checkpoints=tmp_path / "parts", observer=watcher),
    )
    assert watcher.restored["warmup"] == 2
    assert [record.stage for record in watcher.records][:4] == ["warmup"] * 3 + ["base"]
    for name, tensor in whole.model.final.network.state_dict().items():
        assert torch.equal(resumed.model.final.network.state_dict()[name], tensor), name


def test_it_learns_what_tells_digits_apart(digits) -> None:
    """A linear model on few true labels does better on the warmed-up features than on those of random weights."""
    context = opened(draw(digits), "warmup.epochs=12", "warmup.batch_size=64")
    warm = warmed_up(context)
    records = context.engine.history
    assert records[-1].terms["loss"] < records[0].terms["loss"] - 0.5
    assert 0.5 < records[-1].terms["alignment"] <= 1

    def accuracy(of: Context) -> float:
        with torch.no_grad():
            features = of.fresh_network("base").eval()(of.engine.views.plain(torch.from_numpy(digits[0]))).high.numpy()
        fitted = LogisticRegression(max_iter=500).fit(features[:40], digits[1][:40])
        return float(fitted.score(features[40:], digits[1][40:]))

    assert accuracy(warm) > accuracy(context) + 0.02


@pytest.mark.parametrize("classifier", [SplitPUClassifier, VPUClassifier])
def test_vectors_and_other_methods_through_the_estimator(classifier, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = np.arange(120) % 2 == 0
    X = generator.normal(size=(120, 4)) + 2.0 * truth[:, None]
    labelled = truth & (np.arange(120) < 60)
    quick = {"warmup.epochs": 2, "base.epochs": 2, "student.epochs": 2, "split.max_epochs": 2, "vpu.epochs": 2}
    fitted = classifier(prior=0.5, warmup="simclr", config=quick, random_state=0).fit(X, labelled)
    assert [line["stage"] for line in fitted.history_][:2] == ["warmup", "warmup"]
    assert fitted.model_.config.warmup.name == "simclr"
    fitted.save(tmp_path)
    loaded = classifier.load(tmp_path)
    assert loaded.model_.config.warmup == fitted.model_.config.warmup
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))
    cold = classifier(prior=0.5, config=quick, random_state=0).fit(X, labelled)
    assert cold.history_[0]["stage"] != "warmup"
    assert not np.array_equal(cold.decision_function(X), fitted.decision_function(X))


def test_a_warm_up_that_does_not_exist_is_refused(digits) -> None:
    data = draw(digits)
    with pytest.raises(InputError, match=r"warmup\.name = 'simclrr' is not one of 'none', 'simclr'; did you mean"):
        SplitPUClassifier(prior=0.5, warmup="simclrr").fit(data.features, data.labelled)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_on_a_gpu_it_is_what_it_is_uncaptured(digits) -> None:
    def warm_start(capture: str) -> torch.Tensor:
        data = draw(digits)
        config = configured(data, f"engine.capture={capture}", "engine.precision=fp32")
        context = open_context(data, TrainSpec(prior=0.5, config=config), Runtime(device="cuda"))
        start = warmed_up(context).warm_start
        assert start is not None and context.engine.describe().startswith("graph" if capture == "auto" else "eager")
        return torch.cat([weights.flatten().float() for weights in start.weights.values()])

    captured, uncaptured, again = (warm_start(capture) for capture in ("auto", "off", "off"))
    # Sums of a GPU in float32 have no fixed order, so that two warm-ups differ, whatever runs them.
    scatter = float((again - uncaptured).abs().max())
    torch.testing.assert_close(captured, uncaptured, rtol=1e-2, atol=max(1e-3, 4 * scatter))


def test_fewer_rows_than_a_batch(digits) -> None:
    data = draw((digits[0][:40], digits[1][:40]), labelled=4)
    context = warmed_up(opened(data, "warmup.batch_size=512"))
    assert len(context.engine.history) == 3 and np.isfinite(context.engine.history[-1].terms["loss"])


# ------------------------------------------------------------------------------------------------ command line, presets


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=200, features=6))
    out = tmp_path / "run"
    settings = [f"--set={setting}" for setting in QUICK]
    assert main(["fit", str(data), "--prior", "0.5", "--warmup", "simclr", "--out", str(out), *settings]) == 0
    assert "warmup: epoch 3/3" in capsys.readouterr().err
    result = json.loads((out / "result.json").read_text())
    assert result["warmup"] == "simclr" and result["seconds"]["warmup"] > 0
    page = (out / "report.html").read_text()
    assert "simclr, 3 epochs without labels, for base and split and student" in page
    assert "cosine between two views of a row" in page and "[warmup.optimiser]" in page
    assert json.loads((out / "model.json").read_text())["config"]["warmup"]["epochs"] == 3
    stages = [json.loads(line)["stage"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert stages[:4] == ["warmup"] * 3 + ["base"]


def test_the_record_preset_warms_up_whatever_the_data() -> None:
    for kind, rows in (("images", 50_000), ("images", 1000), ("vectors", 50_000)):
        profile = DataProfile(kind, rows, 100)
        record, default = preset("record", profile), preset("default", profile)
        assert record.warmup.name == "simclr" and default.warmup.name == "none"
        if rows == 1000 or kind == "vectors":
            assert replace(record, warmup=default.warmup) == default
