"""Calibrated probabilities: what can have them, and that a model keeps them, exported or not."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import TINY, run_cli, tiny_arrays, write_npz
from selection_tools import PRIOR, WILD, pu_data, trained

from splitpu import DistPUClassifier, InputError, SplitPUClassifier, VPUClassifier
from splitpu.config.parse import config_from_dict
from splitpu.config.schema import Config
from splitpu.engine.hardware import Hardware
from splitpu.evaluation.calibration import PUCalibrator, sigmoid
from splitpu.onnx_export import CalibrationMap
from splitpu.training import with_calibration

Capture = pytest.CaptureFixture[str]


def test_what_cannot_be_calibrated_is_told_so_in_the_words_it_was_asked_for():
    X, s = (tiny_arrays(rows=180)[name] for name in ("X", "s"))
    with pytest.raises(InputError, match=r"'dist-pu' does not use held-out rows.*\(platt\): leave out calibration, or"):
        DistPUClassifier(prior=PRIOR, calibration="platt").fit(X, s)
    with pytest.raises(InputError, match=r"calibration \(platt\) needs the prior.*give it, or leave out calibration"):
        VPUClassifier(prior=None, calibration="platt").fit(X, s)


def test_asking_for_calibration_sets_rows_aside():
    config = with_calibration(Config(), "platt")
    assert config.selection.held_out == 0.2 and config.selection.criterion == "none"
    kept = with_calibration(config_from_dict({"selection.held_out": 0.4}), "isotonic")
    assert kept.selection.held_out == 0.4 and kept.selection.criterion == "accuracy"
    assert with_calibration(Config(), None) == Config()


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_calibrated_classifier_is_kept_whole(method, tmp_path: Path):
    arrays = tiny_arrays(rows=180)
    X, s = arrays["X"], arrays["s"]
    options = {"prior": PRIOR, "config": {"base.epochs": 6}, "rounds": 0, "random_state": 0}
    fitted = SplitPUClassifier(calibration=method, **options).fit(X, s)
    calibrator = fitted.model_.calibration
    assert calibrator is not None and calibrator.method == method
    probabilities = fitted.predict_proba(X)[:, 1]
    assert ((probabilities > 0.5) == fitted.predict(X)).all()
    uncalibrated = replace(fitted.model_, calibration=None).decision(
        X.astype(np.float32), Hardware.choose("cpu", Config().engine)
    )
    assert np.array_equal(uncalibrated + fitted.model_.final.threshold > fitted.threshold_, fitted.predict(X) == 1)
    fitted.save(tmp_path / "model")
    assert sorted(path.suffix for path in (tmp_path / "model").iterdir()) == [".json", ".safetensors"]
    assert np.array_equal(SplitPUClassifier.load(tmp_path / "model").predict_proba(X)[:, 1], probabilities)
    plain = SplitPUClassifier(
        **options | {"config": {"base.epochs": 6, "selection.held_out": 0.2, "selection.criterion": "none"}}
    )
    assert not np.allclose(plain.fit(X, s).predict_proba(X)[:, 1], probabilities)  # the same network, uncalibrated
    assert np.allclose(calibrator.probability(plain.decision_function(X)), probabilities, atol=2e-6)


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_exported_map_is_the_calibrator(method):
    rng = np.random.default_rng(0)
    known, others = rng.normal(2, 1, 80), np.r_[rng.normal(2, 1, 100), rng.normal(-2, 1, 200)]
    calibrator = PUCalibrator.fit(known, others, 0.4, method=method)
    asked = np.r_[np.linspace(-8, 8, 101), known[:5]]
    exported, answers = (one.numpy() for one in CalibrationMap(calibrator)(torch.tensor(asked)))
    assert np.array_equal(answers, calibrator.decision(asked) > 0)
    assert np.array_equal(answers, asked > calibrator.cut())
    assert np.allclose(exported, calibrator.probability(asked), atol=1e-4)
    assert np.allclose(sigmoid(calibrator.decision(asked)), calibrator.probability(asked), atol=2e-6)
    again = PUCalibrator.from_dict(json.loads(json.dumps(calibrator.to_dict())))
    assert np.array_equal(again.probability(asked), calibrator.probability(asked))


def test_exported_model_is_calibrated(tmp_path: Path):
    pytest.importorskip("onnxruntime")
    from splitpu.onnx_export import export_onnx

    model = trained(WILD | {"selection.calibration": "isotonic"}).model
    done = export_onnx(model, tmp_path / "model.onnx")  # refuses to write a file that differs from the model
    import onnxruntime

    rows = pu_data().features[:20].astype(np.float32)
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    exported = session.run(["probability"], {"rows": rows})[0]
    decision = model.decision(rows, Hardware.choose("cpu", Config().engine))
    assert np.allclose(exported, sigmoid(decision), atol=1e-4)


def test_calibration_and_choice_on_the_command_line(tmp_path: Path, capsys: Capture):
    data = write_npz(tmp_path / "pu.npz", **tiny_arrays(rows=180))
    words = ["fit", data, "--prior", PRIOR, "--rounds", 1, "--json", "--quiet", "--out", tmp_path / "run", *TINY]
    code, out, _ = run_cli(capsys, *words, "--calibration", "platt", "--set", "selection.held_out=0.25")
    result = json.loads(out)
    assert code == 0 and result["selection"]["calibration"]["method"] == "platt"
    assert result["selection"]["best"].keys() == {"base", "round1.student"}
    assert result["selection"]["best"]["base"].keys() == {"figure", "epoch", "averaged"}
    page, aside = (tmp_path / "run" / "report.html").read_text(), result["selection"]
    assert "by which the probabilities were calibrated (platt)" in page
    assert f"{aside['positives']} of the labelled and {aside['unlabelled']} of the unlabelled" in page
    assert '"held_out"' in (tmp_path / "run" / "metrics.jsonl").read_text()
    code, out, _ = run_cli(capsys, "predict", tmp_path / "run", data, "--json")
    scores = np.array([row["probability"] for row in json.loads(out)["scores"]])
    stored = json.loads((tmp_path / "run" / "model.json").read_text())["calibration"]
    fitted = SplitPUClassifier.load(tmp_path / "run")
    assert code == 0 and stored == result["selection"]["calibration"]
    assert np.allclose(scores, fitted.predict_proba(tiny_arrays(rows=180)["X"])[:, 1], atol=1e-5)
    with (tmp_path / "run" / "scores.csv").open() as file:
        written = [float(line["probability"]) for line in csv.DictReader(file)]
    assert np.allclose(scores[: len(written)], written, atol=1e-4) and len(written) == 180
    arrays = tiny_arrays(rows=180) | {"truth": None, "X_test": None, "y_test": None}
    words[1], words[-1 - len(TINY)] = write_npz(tmp_path / "pu.npz", **arrays), tmp_path / "without truth"
    assert run_cli(capsys, *words, "--set", "selection.held_out=0.25")[0] == 0
    code, out, _ = run_cli(capsys, "evaluate", tmp_path / "without truth", "--json")
    assert code == 0 and json.loads(out)["positives"] == 8 and "kept out of the training" in json.loads(out)["note"]
    code, _, err = run_cli(capsys, *words, "--calibration", "beta")
    assert code == 2 and "calibration" in err
