"""Runs with a pretrained network that is tuned, here a tiny one of random weights: trained, stopped, saved, compared;
students that start from their teachers, and those that are taken only if they rank better out of fold."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import must_do, must_refuse, run_cli, write_npz
from network_tools import LITE, with_small_lite
from stopping import StopAt

from splitpu import NNPUClassifier, PUData, SplitPUClassifier, TrainSpec, preset, profile_of, train
from splitpu.config.parse import apply_overrides
from splitpu.config.schema import Config
from splitpu.errors import InputError, Interrupted
from splitpu.methods import split_pu
from splitpu.methods.split_pu import _out_of_fold, run_split_pu
from splitpu.model import Model
from splitpu.networks import encoders
from splitpu.networks.backbones import Ensemble
from splitpu.prior.estimate import prior_for
from splitpu.training import Runtime, Training, open_context

NAME = f"tuned:{LITE}"
QUICK = ["base.epochs=2", "student.epochs=2", "split.max_epochs=2", "split.tau=0.01", "engine.threads=1"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_small_lite(monkeypatch, tmp_path)


def pictures(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    truth = np.arange(count) % 2 == 0
    images = np.random.default_rng(0).integers(0, 120, (count, 32, 32, 1))
    images[truth, 8:24, 8:24] += 90
    return images.astype(np.uint8), truth


IMAGES, TRUTH = pictures()
DATA = PUData.from_arrays(IMAGES, TRUTH & (np.arange(60) % 3 == 0))


def configured(*more: str, data: PUData = DATA) -> Config:
    return apply_overrides(preset("default", profile_of(data, NAME)), [*QUICK, *more])


def trained(*more: str, checkpoints: Path | None = None, stop: int | None = None) -> Training:
    observer = None if stop is None else StopAt(stop)
    runtime = Runtime(device="cpu", checkpoints=checkpoints, observer=observer)
    return train(DATA, TrainSpec(config=configured(*more), prior=0.5, backbone=NAME), runtime)


def weights(training: Training) -> dict[str, torch.Tensor]:
    return training.model.final.network.state_dict() | {
        f"base/{name}": one for name, one in training.model.base.network.state_dict().items()
    }


def test_the_settings_are_those_of_networks_that_are_tuned() -> None:
    usual, tuned = (preset("default", profile_of(DATA, backbone)) for backbone in ("auto", NAME))
    assert (usual.student.start, usual.selection.folds, usual.base.optimiser.weight_decay) == ("fresh", 0, 0.0)
    assert (tuned.student.start, tuned.selection.folds, tuned.base.optimiser.weight_decay) == ("teacher", 2, 1.0)
    assert tuned.student.label_views == usual.student.label_views  # what is not said anew stays


@pytest.mark.parametrize("more", [[], ["method=nnpu"], ["members=2", "selection.folds=0"], ["method=dist-pu"]])
def test_saved_and_read_back_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    short = ["dist_pu.epochs=1", "dist_pu.warmup_epochs=1"]
    training = trained(*more, *short)
    assert training.model.network_name == NAME
    assert isinstance(training.model.final.network, Ensemble) == ("members=2" in more)
    training.model.save(tmp_path / "model")
    monkeypatch.setattr(encoders, "_lite_files", lambda name: [])
    said = training.model.decision_function(IMAGES, device="cpu")
    assert np.array_equal(Model.load(tmp_path / "model").decision_function(IMAGES, device="cpu"), said)
    assert said.std() > 0


def test_a_stopped_training_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole = trained("selection.folds=2")
    with pytest.raises(Interrupted):
        trained("selection.folds=2", checkpoints=tmp_path, stop=1)  # in the second epoch of the base
    assert list(tmp_path.iterdir())
    again = trained("selection.folds=2", checkpoints=tmp_path)
    first, second = weights(whole), weights(again)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [one.terms for one in whole.result.history] == [one.terms for one in again.result.history]


def test_a_student_can_start_from_its_teacher() -> None:
    still = ["selection.folds=0", "student.optimiser.rate=1e-9", "student.optimiser.weight_decay=0"]
    result = trained(*still, "members=2").result
    base, student = (one.network.state_dict() for one in (result.base, result.rounds[0].student))
    assert all(torch.allclose(base[name], student[name], atol=1e-6) for name in base)
    fresh = trained(*still, "student.start=fresh").result.rounds[0].student.network
    assert float(fresh.head.weight.detach().abs().max()) < 1e-6  # as every fresh head of a tuned network


class TestOutOfFold:
    def test_every_row_is_scored_by_networks_that_did_not_see_it(self) -> None:
        config = configured("selection.folds=3")
        context = open_context(DATA, TrainSpec(config=config, prior=0.5, backbone=NAME))
        scores = _out_of_fold(context)
        assert scores.shape == (1, 2, 60) and scores.std(axis=2).min() > 0
        assert context.engine.history == []
        alone = context.without(np.array([3, 4]), 1)
        assert set(DATA.taught) - set(alone.data.taught) == {3, 4} and alone.config.selection.folds == 0

    def test_nobody_is_judged_without_rounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(split_pu, "_out_of_fold", None)
        assert trained("rounds=0", "selection.folds=2").result.rounds == ()

    @pytest.mark.parametrize(("better", "taken"), [(1.0, True), (0.0, False)])
    def test_a_student_is_taken_only_if_it_ranks_better(
        self, monkeypatch: pytest.MonkeyPatch, better: float, taken: bool
    ) -> None:
        noise = np.random.default_rng(0).normal(size=(1, 2, 60))
        noise[0, 0] += 4 * better * DATA.labelled
        monkeypatch.setattr(split_pu, "_out_of_fold", lambda context: noise)
        context = open_context(DATA, TrainSpec(config=configured("selection.folds=2"), prior=0.5, backbone=NAME))
        if taken:
            assert run_split_pu(context).rounds[0].taken
            return
        with pytest.warns(match=r"out of fold .* not clearly better .* is not taken"):
            result = run_split_pu(context)
        assert not result.rounds[0].taken and result.final is result.base


def test_the_prior_is_that_of_frozen_features() -> None:
    images, truth = pictures(120)
    data = PUData.from_arrays(images, truth & (np.arange(120) % 4 == 0))
    tuned, frozen = (prior_for("split-pu", "auto", data, backbone=name) for name in (NAME, LITE))
    assert tuned.value == frozen.value


@pytest.mark.parametrize("setting", ["warmup.name=simclr", "initialisation=kaiming"])
def test_other_starts_are_refused(setting: str) -> None:
    with pytest.raises(InputError, match="starts from pretrained weights"):
        TrainSpec(config=configured(setting), prior=0.5, backbone=NAME).checked_for(DATA)


def test_it_exports(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    from splitpu.onnx_export import export_onnx

    images = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 1), dtype=np.uint8)  # which it is shown smaller
    data = PUData.from_arrays(images, DATA.labelled[:40])
    model = train(data, TrainSpec(config=configured("rounds=0"), prior=0.5, backbone=NAME)).model
    assert export_onnx(model, tmp_path / "model.onnx").difference < 1e-4


def test_classifiers_take_it_and_travel() -> None:
    quick = {"base.epochs": 2, "student.epochs": 1, "split.max_epochs": 1, "split.tau": 0.01, "selection.folds": 0}
    for kind in (SplitPUClassifier, NNPUClassifier):
        fitted = kind(prior=0.5, backbone=NAME, config=quick, device="cpu", random_state=0).fit(IMAGES, DATA.labelled)
        assert fitted.model_.config.base.optimiser.weight_decay == 1.0
        copied = pickle.loads(pickle.dumps(fitted))
        assert np.array_equal(copied.predict_proba(IMAGES), fitted.predict_proba(IMAGES))


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, truth = pictures(120)
    labelled = (truth & (np.arange(120) % 4 == 0)).astype(int)
    rows = write_npz(tmp_path / "rows.npz", X=images, s=labelled, truth=truth, X_test=IMAGES, y_test=TRUTH, names=None)
    quick = [word for one in (*QUICK, "selection.folds=0") for word in ("--set", one)]
    run, asked = tmp_path / "run", [rows, "--features", "tuned", "--device", "cpu", *quick]
    must_do("fit", *asked, "--out", run)
    assert "features: frozen for the prior" in capsys.readouterr().err
    request = json.loads((run / "request.json").read_text())
    assert request["backbone"] == NAME and request["prior_source"].startswith("estimated")
    must_do("predict", run, rows, "--out", tmp_path / "said.csv", "--device", "cpu")
    both = ["--method", "split-pu,nnpu", "--seeds", "0", "--prior", "0.5", "--out", tmp_path / "both", "--json"]
    _, told, _ = run_cli(capsys, "compare", *asked, *both)
    assert [one["method"] for one in json.loads(told)["methods"]] == ["split-pu", "nnpu"]
    must_refuse(capsys, "compare", rows, "--features", "frozen", saying="give --features tuned")
    other = ["--features", "tuned", "--backbone", "timm:resnet18"]
    must_refuse(capsys, "fit", rows, *other, saying=r"cannot be tuned.*--features frozen")
