"""Runs on frozen features, from folders to the model and back, with a tiny encoder of random weights."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from network_tools import TINY as NAME
from network_tools import with_tiny_encoder

from splitpu import PUData, SplitPUClassifier, TrainSpec, preset, train
from splitpu.cli import main
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError
from splitpu.methods import frozen_features
from splitpu.methods.frozen_features import backbone_for, balanced_head
from splitpu.model import Model
from splitpu.networks import encoders
from splitpu.networks.build import choose_network, chosen_backbone
from splitpu.networks.efficientnet_lite import SIZES, EfficientNetLite
from splitpu.networks.embeddings import volume_slices
from splitpu.prior.estimate import prior_for


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_tiny_encoder(monkeypatch, tmp_path / "cache")


def pictures(count: int, share: float, seed: int, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    truth = np.arange(count) < share * count
    images = draw.integers(0, 120, (count, 32, 32, channels))
    images[truth, 8:24, 8:24] += 90
    return images.astype(np.uint8), truth


def test_heads_in_folds_can_be_watched(timm: None) -> None:
    """Of thousands of pictures they take longer than anybody likes to wait without a word."""
    images, truth = pictures(60, 0.5, 0)
    seen: list[tuple[object, ...]] = []
    data = PUData.from_arrays(images, truth & (np.arange(60) % 2 == 0))
    found = frozen_features.frozen_choice(data, NAME, 0, partial(_note, seen))
    assert seen == [("heads judged", fold, 5) for fold in range(5)]
    assert frozen_features.frozen_choice(data, NAME, 0) is found  # asked again, not made again


@pytest.mark.parametrize("channels", [1, 3])
def test_the_model_says_the_same_alone(timm: None, tmp_path: Path, channels: int) -> None:
    images, truth = pictures(80, 0.5, 0, channels)
    labelled = truth & (np.arange(80) % 2 == 0)
    data = PUData.from_arrays(images, labelled)
    prior = prior_for("split-pu", "auto", data, backbone=NAME)
    spec = TrainSpec(config=preset("default"), prior=prior.value, prior_interval=prior.interval, backbone=NAME)
    training = train(data, spec)
    assert training.model.network_name == NAME and training.result.rounds and 0.3 < float(prior.value or 0) < 0.8
    training.model.save(tmp_path)
    new, new_truth = pictures(40, 0.5, 1, channels)
    said = training.model.decision_function(new, device="cpu")
    assert np.array_equal(Model.load(tmp_path).decision_function(new, device="cpu"), said)
    assert ((said > 0) == new_truth).mean() > 0.9
    # Encoder and head together say what the head says of the embeddings that were kept.
    found = frozen_features.frozen_choice(data, NAME, 0)
    network = training.result.base.network
    slope, offset = network.head.line.tolist()
    kept = slope * frozen_features.frozen_scores(found.fit.base_head, found.features) + offset
    threshold = training.model.base.threshold
    hardware = Hardware.choose("cpu", training.model.config.engine)
    assert np.allclose(training.model.decision(images, hardware, which="base"), kept - threshold, atol=1e-5)


def test_from_folders_to_figures(timm: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    images, truth = pictures(90, 0.5, 0)
    for number, (picture, positive) in enumerate(zip(images, truth, strict=True)):
        test, labelled = number % 3 == 0, positive and number % 3 == 1
        name = ("test-p" if positive else "test-n") if test else "p" if labelled else "u"
        (tmp_path / name).mkdir(exist_ok=True)
        image.fromarray(picture).save(tmp_path / name / f"{number}.png")
    run, folders = str(tmp_path / "run"), [str(tmp_path / name) for name in ("p", "u", "test-p", "test-n")]
    asked = ["fit", "--positives", folders[0], "--unlabelled", folders[1], "--test", *folders[2:], "--out", run]
    assert main([*asked, "--backbone", NAME, "--features", "frozen", "--device", "cpu"]) == 0
    assert "frozen" in capsys.readouterr().err
    assert main(["predict", run, folders[2], "--out", str(tmp_path / "said.csv"), "--device", "cpu"]) == 0
    assert main(["evaluate", run, "--test", *folders[2:], "--device", "cpu"]) == 0
    assert (tmp_path / "run" / "report.html").exists() and (tmp_path / "said.csv").exists()
    told = json.loads((tmp_path / "run" / "result.json").read_text())["learners"]
    assert all(line["seconds"] > 0 for line in told)  # embeddings and heads, as "0.0 s of training" would be wrong
    assert [one["learner"] for one in told if one["chosen"]] == ["student"]  # whose scores lie in two groups
    untested = [*asked[:5], "--out", f"{run}-untested", "--prior", "0.5", "--backbone", NAME, "--features", "frozen"]
    assert main([*untested, "--device", "cpu"]) == 0  # judged by heads that had not seen the row
    figures = json.loads(Path(f"{run}-untested", "result.json").read_text())["figures"]
    assert figures["accuracy"]["low"] > 0.6 and main(["evaluate", f"{run}-untested"]) == 0
    capsys.readouterr()
    assert main(["export", run]) == 2 and "pass on the run folder" in capsys.readouterr().err


def test_volumes_and_the_classifier(timm: None) -> None:
    images, truth = pictures(60, 0.5, 0)
    volumes = np.stack([images, np.zeros_like(images), images], axis=1)
    labelled = truth & (np.arange(60) % 2 == 0)
    fitted = SplitPUClassifier(prior=0.5, backbone=NAME, device="cpu", random_state=0).fit(volumes, labelled)
    assert (fitted.predict(volumes) == truth).mean() > 0.9


def test_what_cannot_be_frozen_is_refused(timm: None) -> None:
    images, truth = pictures(40, 0.5, 0)
    data = PUData.from_arrays(images, truth)
    spec = TrainSpec(config=replace(preset("default"), method="nnpu"), prior=0.6, backbone=NAME)
    with pytest.raises(InputError, match="method 'nnpu'"):
        spec.checked_for(data)
    with pytest.raises(InputError, match="vectors"):
        chosen_backbone("auto", "frozen", (5,), 40, on_cpu=True)
    with pytest.raises(InputError, match="no pretrained weights"):
        chosen_backbone("cnn13", "frozen", (32, 32, 3), 40, on_cpu=True)
    with pytest.raises(InputError, match="frozen or tuned, not trained"):
        chosen_backbone(NAME, "trained", (32, 32, 3), 40, on_cpu=True)


@pytest.mark.parametrize(
    ("rows", "on_cpu", "installed", "expected"),
    [
        (540, True, True, "efficientnet-lite0"),
        (540, True, False, "auto"),
        (540, False, True, "efficientnet-lite0"),
        (540, False, False, "auto"),
        (2_000, False, True, "auto"),
        (4_200, True, True, "efficientnet-lite0"),
        (5_000, True, True, "auto"),
    ],
)
def test_the_default_for_few_images(
    monkeypatch: pytest.MonkeyPatch, rows: int, on_cpu: bool, installed: bool, expected: str
) -> None:
    monkeypatch.setattr("splitpu.networks.build.weights_installed", lambda: installed)
    assert chosen_backbone("auto", None, (64, 64, 3), rows, on_cpu=on_cpu) == expected


def test_thousands_of_small_pictures_are_embedded_where_classes_lie_apart(
    timm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitpu.networks.build.weights_installed", lambda: True)
    monkeypatch.setattr("splitpu.networks.build.USUAL_ENCODER", NAME)
    for module in ("networks.build", "methods.frozen_features"):
        monkeypatch.setattr(f"splitpu.{module}.FEW_IMAGES", 90)
    images, truth = pictures(120, 0.5, 0)
    labelled = truth & (np.arange(120) % 3 == 0)
    for given, expected in ((images, NAME), (images[::-1].copy() // 2 + images // 2, "auto")):
        data = PUData.from_arrays(given, labelled)
        seen: list[tuple[object, ...]] = []
        found = backbone_for("auto", None, data, 0, on_cpu=True, watch=partial(_note, seen))
        assert found == expected and {what for what, *_ in seen} == {"embedding", "heads judged"}
        assert [backbone_for("auto", one, data, 0, on_cpu=True) for one in ("frozen", "trained")] == [NAME, "auto"]
        assert backbone_for("auto", None, data, 0, on_cpu=False) == "auto"
    prior = prior_for("split-pu", "auto", PUData.from_arrays(images, labelled), backbone=NAME)
    assert prior.source == "estimated by the gap between scores" and prior.interval is not None
    assert prior.value == pytest.approx(0.5, abs=0.03) and prior.interval[0] <= 0.5 <= prior.interval[1]


def _note(seen: list[tuple[object, ...]], *told: object) -> None:
    seen.append(told)


def test_small_pictures_and_volumes_are_looked_at_in_less_time(
    timm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = encoders.Encoder("lite", EfficientNetLite(SIZES["efficientnet-lite0"]), 224, (0.5,) * 3, (0.5,) * 3, 608)
    monkeypatch.setattr(frozen_features, "usual_encoder", lambda name: made)
    seen = {shape: frozen_features.encoder_for("lite", shape) for shape in ((28, 28, 1), (96, 96, 3), (40, 64, 64, 1))}
    assert [asked.size for asked, _ in seen.values()] == [112, 224, 112]
    assert [(plan.weak, plan.slices) for _, plan in seen.values()] == [(0, 0), (3, 0), (1, 16)]
    volume = np.arange(1, 41, dtype=np.uint8)[:, None, None, None]
    assert volume_slices(volume, 16).ravel().tolist()[::15] == [1, 40]


def test_auto_looks_at_the_hardware() -> None:
    assert choose_network((28, 28, 1), 4_200, on_cpu=True) == "cnn-small"
    assert choose_network((28, 28, 1), 4_200) == "cnn13"
    assert not encoders.is_encoder("cnn13")


@pytest.mark.parametrize("count", [60, 90])  # among the rows, and among the features
def test_both_ways_to_solve_for_the_head_agree(count: int) -> None:
    draw = np.random.default_rng(0)
    rows, labelled = draw.normal(size=(count, 40)), np.arange(count) < count // 3
    weight, target = np.where(labelled, 1.5, 0.75), np.where(labelled, 1.0, -1.0)
    table = np.column_stack([rows, np.ones(count)])
    normal = (table * weight[:, None]).T @ table + np.diag([3.0 * 40] * 40 + [0.0])
    by_hand = np.linalg.solve(normal, table.T @ (weight * target))
    slope, bias = balanced_head(rows, labelled, 3.0)
    assert np.allclose(slope, by_hand[:40]) and bias == pytest.approx(by_hand[40])
