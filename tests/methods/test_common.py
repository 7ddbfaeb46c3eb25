"""Several networks in place of one: what they say together, what they are built of, and that they travel."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import TINY, run_cli, tiny_arrays, write_npz

from splitpu import InputError, SplitPUClassifier
from splitpu.config.parse import apply_overrides
from splitpu.config.presets import preset
from splitpu.config.schema import Config
from splitpu.data.public.datasets import load_named
from splitpu.data.public.named_set import make_pu, true_prior
from splitpu.data.pudata import PUData
from splitpu.methods.registry import sections_in_use
from splitpu.networks.backbones import Ensemble
from splitpu.onnx_export import export_onnx
from splitpu.training import Runtime, Training, TrainSpec, profile_of, train

QUICK = ["base.epochs=2", "student.epochs=2", "split.max_epochs=2", "split.tau=0.01", "engine.threads=1", "rounds=1"]


@pytest.fixture(scope="module")
def digits() -> PUData:
    return make_pu(load_named("digits"), 100, seed=0)[0]


def config_with(data: PUData, *more: str) -> Config:
    return apply_overrides(preset("default", profile_of(data)), [*QUICK, *more])


def trained(data: PUData, *more: str, checkpoints: Path | None = None) -> Training:
    prior = true_prior(load_named("digits"))
    return train(
        data, TrainSpec(prior=prior, config=config_with(data, *more), backbone="mlp"), Runtime(checkpoints=checkpoints)
    )


def test_members_differ_and_speak_with_their_mean_probability(digits: PUData) -> None:
    base = trained(digits, "members=3").result.base
    assert isinstance(base.network, Ensemble)
    rows = torch.as_tensor(np.asarray(digits.features[:50]), dtype=torch.float32).flatten(1)
    with torch.no_grad():
        each = torch.stack([torch.sigmoid(member(rows).logit) for member in base.network.members])
        together = torch.sigmoid(base.network(rows).logit)
    assert torch.allclose(together, each.mean(0), atol=1e-6)
    assert (each.std(0) > 1e-3).any()


def test_the_first_member_is_the_network_of_a_run_with_one(digits: PUData, tmp_path: Path) -> None:
    alone = trained(digits, "method=nnpu", checkpoints=tmp_path)
    several = trained(digits, "method=nnpu", "members=2", checkpoints=tmp_path)
    assert isinstance(several.result.final.network, Ensemble)
    first = several.result.final.network.members[0].state_dict()
    assert all(torch.equal(first[name], value) for name, value in alone.result.final.network.state_dict().items())


@pytest.mark.parametrize("method", ["split-pu", "nnpu", "upu", "naive"])
def test_methods_with_a_base_section_can_have_members(digits: PUData, method: str) -> None:
    training = trained(digits, "members=2", f"method={method}")
    for teacher in (training.result.base, training.result.final):
        assert isinstance(teacher.network, Ensemble) and len(teacher.network.members) == 2


def test_an_estimator_with_members_is_the_same_after_saving(digits: PUData, tmp_path: Path) -> None:
    settings = dict(setting.split("=") for setting in QUICK if not setting.startswith("rounds"))
    config = {name: float(value) if "." in value else int(value) for name, value in settings.items()}
    model = SplitPUClassifier(prior=0.5, config={**config, "members": 2}, rounds=1, random_state=0, backbone="mlp")
    model.fit(digits.features, digits.labelled.astype(int))
    model.save(tmp_path / "model")
    again = SplitPUClassifier.load(tmp_path / "model")
    rows = digits.features[:20]
    assert np.array_equal(model.predict_proba(rows), again.predict_proba(rows))


def test_a_run_with_members_says_so_and_its_model_travels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = write_npz(tmp_path / "rows.npz"), tmp_path / "run"
    words = ["--out", out, "--prior", "0.5", "--quiet", *TINY, "--rounds", "1", "--set", "members=2"]
    assert run_cli(capsys, "fit", rows, *words)[0] == 0
    assert "mlp, an ensemble of 2 members" in (out / "report.html").read_text()
    code, shown, _ = run_cli(capsys, "info", out)
    assert code == 0 and "members   2" in shown
    code, shown, _ = run_cli(capsys, "info", out, "--json")
    assert json.loads(shown)["result"]["members"] == 2
    np.save(tmp_path / "new.npy", tiny_arrays()["X"])
    assert run_cli(capsys, "predict", out, tmp_path / "new.npy", "--out", tmp_path / "said.csv")[0] == 0
    said, scored = ((tmp_path / "said.csv").read_text(), (out / "scores.csv").read_text())
    probabilities = [[float(line.split(",")[-2]) for line in text.splitlines()[1:]] for text in (said, scored)]
    assert probabilities[0] == pytest.approx(probabilities[1], abs=1e-5)


def test_a_model_with_members_as_onnx(digits: PUData, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    training = trained(digits, "members=2")
    export_onnx(training.model, tmp_path / "model.onnx")
    rows = np.asarray(digits.features[:50], dtype=np.float32)
    (said,) = runtime.InferenceSession(tmp_path / "model.onnx").run(["probability"], {"rows": rows})
    ours = training.result.final.probabilities[:50].numpy()
    assert said == pytest.approx(ours, abs=1e-4)


def test_methods_of_one_network_refuse_members(digits: PUData) -> None:
    with pytest.raises(InputError, match="members=2 cannot be used with method 'vpu': leave it out, or choose"):
        trained(digits, "members=2", "method=vpu")


def test_one_member_leaves_no_trace_in_what_names_a_run() -> None:
    assert "members" not in sections_in_use(Config())
    assert "members" in sections_in_use(Config(members=3))
