"""The model as an ONNX file, and networks with their batch norms folded away."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_tools import TINY, must_do, run_cli, write_npz
from estimator_tools import TINY as TINY_SETTINGS
from estimator_tools import tiny
from torch import Tensor, nn

from splitpu.cli import main
from splitpu.config.schema import EngineConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.engine.hardware import Hardware
from splitpu.errors import InputError, MissingExtraError
from splitpu.estimators.classifiers import SplitPUClassifier
from splitpu.evaluation.calibration import PUCalibrator
from splitpu.model import Model
from splitpu.networks.backbones import Ensemble, folded
from splitpu.networks.build import build_network
from splitpu.networks.custom import as_backbone
from splitpu.onnx_export import RawToProbability, export_onnx

onnxruntime = pytest.importorskip("onnxruntime")


def with_life(network: nn.Module) -> nn.Module:
    """Batch norms that have seen something: fresh ones fold into nothing."""
    torch.manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", (7,)), ("cnn-small", (8, 8, 1)), ("cnn13", (16, 16, 3)), ("resnet18", (16, 16, 3))],
)
def test_folding_changes_nothing_but_the_number_of_layers(name: str, shape: tuple[int, ...]) -> None:
    network = with_life(build_network(name, shape))
    simple = folded(network)
    assert not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in simple.modules())
    assert any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules())
    batch = torch.randn(5, *(shape if len(shape) == 1 else (shape[2], shape[0], shape[1])))
    with torch.no_grad():
        exact, same = network(batch), simple(batch)
    for one, other in zip(exact, same, strict=True):
        assert float((one - other).abs().max()) <= 1e-5 * max(1.0, float(one.abs().max()))


def test_a_batch_norm_after_anything_else_stays() -> None:
    network = with_life(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 1)))
    simple = folded(network)
    assert isinstance(simple[2], nn.BatchNorm1d)
    rows = torch.randn(9, 4)
    assert torch.equal(simple(rows), network(rows))


def test_weights_that_are_used_twice_stay() -> None:
    shared = nn.Linear(4, 4)
    network = with_life(nn.Sequential(shared, nn.BatchNorm1d(4), nn.ReLU(), shared))
    rows = torch.randn(9, 4)
    assert torch.equal(folded(network)(rows), network(rows))


@contextmanager
def small_files_only(most: int) -> Iterator[None]:
    """The system refuses to write files beyond this many bytes."""
    resource = pytest.importorskip("resource")  # Windows has none
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def scores(model: Model, rows: Any) -> Any:
    decision = model.decision(rows, Hardware.choose("cpu", EngineConfig(threads=1)))
    return 1 / (1 + np.exp(-decision))


def test_the_command_writes_a_file_that_gives_our_probabilities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, 8, 8, 1)).astype(np.uint8)
    data, run, file = tmp_path / "rows.npz", tmp_path / "run", tmp_path / "model.onnx"
    np.savez(data, X=images, s=(np.arange(60) % 3 == 0).astype(int))
    assert main(["fit", str(data), "--out", str(run), "--prior", "0.6", "--quiet", "--rounds", "1", *TINY]) == 0
    code, printed, said = run_cli(capsys, "export", run, file)
    assert code == 0 and "uint8, (count, 8, 8, 1)" in printed and said == ""
    session = onnxruntime.InferenceSession(str(file))
    model = Model.load(run)
    for count in (1, 7, 60):
        probability, decision = session.run(["probability", "decision"], {"rows": images[:count]})
        expected = scores(model, images[:count])
        assert np.abs(probability - expected).max() < 1e-4
        clear = np.abs(expected - 0.5) > 1e-4
        assert np.array_equal(decision[clear], expected[clear] > 0.5)
    assert run_cli(capsys, "export", run)[0] == 0 and (run / "model.onnx").is_file()  # there is no other format
    with small_files_only(2000):
        code, _, said = run_cli(capsys, "export", run, tmp_path / "too-large.onnx")
    assert code == 2 and "the disk is full" in said  # which has nothing to do with the network
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "rows.npz", "run"]


def test_vectors_and_ensembles_can_be_written(tmp_path: Path) -> None:
    data, run = write_npz(tmp_path / "rows.npz"), tmp_path / "run"
    assert main(["fit", str(data), "--out", str(run), "--prior", "0.5", "--quiet", "--rounds", "0", *TINY]) == 0
    model = Model.load(run)
    members = [with_life(build_network("mlp", (4,))) for _ in range(2)]
    ensemble = type(model.final)(Ensemble(members).eval(), 0.3)
    several = type(model)(ensemble, model.base, "mlp", model.preprocessing, model.config, 0.5, (0, 1))
    for number, one in enumerate((model, several)):
        done = export_onnx(one, tmp_path / f"{number}.onnx")
        assert done.dtype == "float32" and done.difference < 1e-4
        rows = np.load(data)["X"].astype(np.float32)
        found = onnxruntime.InferenceSession(str(done.path)).run(["probability"], {"rows": rows})[0]
        assert np.abs(found - scores(one, rows)).max() < 1e-4


class OwnTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low = self.first(batch).relu()
        return low, low, self.head(low)


TAPPED = {"backbone": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), "layers": ("0", "1")}


@pytest.mark.parametrize(
    "how",
    [
        TAPPED,
        TAPPED | {"config": TINY_SETTINGS | {"members": 2}},
        {"backbone": OwnTuple},
        {"calibration": "platt"},
        {"calibration": "isotonic"},
    ],
)
def test_networks_of_ones_own_and_calibrated_ones_can_be_written(
    tmp_path: Path, vectors: Any, how: dict[str, Any]
) -> None:
    X, s, _ = vectors
    fitted = tiny(rounds=0, **how).fit(X, s)
    done = export_onnx(fitted.model_, tmp_path / "own.onnx")
    probability, decision = asked(done.path, X)
    assert np.abs(probability - fitted.predict_proba(X)[:, 1]).max() < 1e-4
    clear = np.abs(fitted.decision_function(X)) > 1e-4
    assert np.array_equal(decision[clear], fitted.predict(X)[clear] == 1)
    assert np.isfinite(fitted.decision_function(X)).all()  # the model itself still has its features


def test_numbers_far_from_nought_are_taken_as_float64(tmp_path: Path, vectors: Any) -> None:
    X, s, _ = vectors
    far = X.astype(np.float64) + 1e8
    fitted = tiny(rounds=0).fit(far, s)
    done = export_onnx(fitted.model_, tmp_path / "far.onnx")
    assert done.dtype == "float64"
    assert np.abs(asked(done.path, far)[0] - fitted.predict_proba(far)[:, 1]).max() < 1e-4


def test_decisions_next_to_the_threshold_are_those_of_the_model() -> None:
    preprocessing = Preprocessing.fit(np.array([[-1.0], [1.0]], np.float32))
    whole = RawToProbability(as_backbone(OneNumber(), (1,)), preprocessing, 0.0, None)
    probability, decision = whole(torch.tensor([[1e-9], [-1e-9]]))
    assert probability.tolist() == [0.5, 0.5] and decision.tolist() == [True, False]
    platt = RawToProbability(as_backbone(OneNumber(), (1,)), preprocessing, 0.0, PUCalibrator("platt", 2.0, 1e-12))
    assert platt(torch.tensor([[0.0]]))[1].tolist() == [True]


class OneNumber(nn.Module):
    """Its logit is the row itself."""

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return batch, batch, batch[:, 0]


class CountsRows(OwnTuple):
    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high, logit = super().forward(batch)
        return low, high, logit.reshape(len(batch), 1)


class AsksForValues(OwnTuple):
    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return super().forward(batch if float(batch.detach().sum()) > 0 else batch + 1)


@pytest.mark.parametrize("backbone", [CountsRows, AsksForValues])
def test_what_cannot_be_written_is_said_in_plain_words(
    tmp_path: Path, vectors: Any, backbone: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    fitted = tiny(rounds=0, backbone=backbone).fit(*vectors[:2])
    with pytest.raises(InputError, match="this network cannot be written as ONNX") as raised:
        export_onnx(fitted.model_, tmp_path / "own.onnx")
    assert "\x1b" not in str(raised.value) and not list(tmp_path.iterdir())


def asked(path: Path, rows: Any) -> Any:
    session = onnxruntime.InferenceSession(str(path))
    return session.run(["probability", "decision"], {"rows": rows})


def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli(capsys, "export", tmp_path)[0] == 2
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    preprocessing = Preprocessing.fit(np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    model: Any = type("Fake", (), {"preprocessing": preprocessing})()
    with pytest.raises(MissingExtraError, match=r"splitpu\[onnx\]"):
        export_onnx(model, tmp_path / "model.onnx")


def test_an_exported_table_is_not_said_to_take_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    rows = [f"{row % 7},{'abc'[row % 3]},{int(row % 6 == 0)}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,kind,s", *rows]))
    asked = ["fit", tmp_path / "t.csv", "--label", "s", "--prior", 0.5, "--quiet", "--out", tmp_path / "run", *TINY]
    must_do(*asked, "--rounds", 1)
    code, out, _ = run_cli(capsys, "export", tmp_path / "run")
    assert code == 0 and "(count, 4), the table's columns as numbers, made as `inputs` in model.json says" in out


def test_images_with_numbers_between_bytes_are_taken_as_such(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = random.uniform(0, 0.7, (60, 8, 8, 1)).astype(np.float32)
    images[:, 0, 0, 0], images[:, 7, 7, 0] = 0, 255  # on the scale of bytes, and none
    fitted = tiny(backbone="cnn-small").fit(images, np.arange(60) % 3 == 0)
    fitted.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    exported = export_onnx(again, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (probability, *_) = session.run(None, {session.get_inputs()[0].name: images})
    assert exported.dtype == "float32"
    np.testing.assert_allclose(np.ravel(probability), fitted.predict_proba(images)[:, 1], atol=1e-5)


def test_learners_reckon_in_double_precision_there_as_here(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)).astype(np.float32) + (np.arange(200) < 70)[:, None]
    labelled = np.arange(200) < 30
    model = SplitPUClassifier(learner="kernel", prior=0.35, random_state=0).fit(rows, labelled).model_
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (said,) = session.run(["probability"], {"rows": rows})
    np.testing.assert_allclose(said, scores(model, rows), atol=1e-6)
