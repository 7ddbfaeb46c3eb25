"""Calibration by P and U: probabilities come nearer to frequencies, and what cannot be calibrated is refused.

Calibrated probabilities: what can have them, and that a model keeps them, exported or not.

Hard samples of a calibrated run: teacher and student on one scale, in one order wherever somebody may look.
"""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import TINY, run_cli, tiny_arrays, write_npz
from evaluation_tools import SHIFT, pu_sample, scores
from selection_tools import PRIOR as ASIDE_PRIOR
from selection_tools import WILD, pu_data, trained

from splitpu import DistPUClassifier, InputError, SplitPUClassifier, VPUClassifier
from splitpu.cli import main
from splitpu.cli.inspect import HardSample, hard_samples
from splitpu.config.parse import config_from_dict
from splitpu.config.schema import Config
from splitpu.engine.hardware import Hardware
from splitpu.evaluation.calibration import PUCalibrator, monotone_spread, reliability, sigmoid
from splitpu.evaluation.diagnostics import find_degeneracies
from splitpu.evaluation.held_out import nnpu_value, pu_criterion
from splitpu.evaluation.metrics import evaluate_pu
from splitpu.methods import split_pu as student
from splitpu.model import Model
from splitpu.onnx_export import CalibrationMap
from splitpu.runs.folder import RunFolder
from splitpu.training import with_calibration


def true_error(probability: np.ndarray, truth: np.ndarray) -> float:
    bins = np.clip((probability * 10).astype(int), 0, 9)
    return sum(
        (bins == b).mean() * abs(probability[bins == b].mean() - truth[bins == b].mean()) for b in np.unique(bins)
    )


@pytest.mark.parametrize("scenario", ["single-training-set", "case-control"])
@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_calibration_improves_reliability(method, scenario):
    prior = 0.4
    rng = np.random.default_rng(0)
    # Overconfident by a factor; off centre, too, where the method can mend that.
    offset = 0.0 if method == "temperature" else 2.0
    centre = np.log(prior / (1 - prior)) / (2 * SHIFT)

    def distorted(values: np.ndarray) -> np.ndarray:
        return 8 * (values + centre) + offset

    positive, unlabelled = (distorted(x) for x in pu_sample(prior, 400, 4000, scenario, rng))
    fresh = [distorted(values) for values in scores(4000, 6000, rng)]
    truth, decision = np.arange(10_000) < 4000, np.concatenate(fresh)
    plain = PUCalibrator("temperature").probability(decision)
    fitted = PUCalibrator.fit(positive, unlabelled, prior, method=method, scenario=scenario)
    calibrated = fitted.probability(decision)
    assert true_error(calibrated, truth) < 0.5 * true_error(plain, truth)
    assert true_error(calibrated, truth) < 0.05
    order = np.argsort(decision)
    assert (np.diff(calibrated[order]) >= -1e-12).all()


@pytest.mark.parametrize("seed", range(6))
def test_with_a_slope_at_its_bound_the_offset_is_still_the_best(seed):
    """Fewer positives among the unlabelled than the prior says: the loss falls for ever as the slope grows."""
    rng = np.random.default_rng(seed)
    positive, population = rng.normal(2, size=40), rng.normal(size=400) + np.where(np.arange(400) < 130, 2, -2)
    fitted = PUCalibrator.fit(positive, population, 0.4, scenario="case-control")
    assert fitted.slope == 5
    assert fitted.probability(population).mean() == pytest.approx(0.4, abs=1e-4)


def test_reliability_sees_overconfidence():
    prior, rng = 0.4, np.random.default_rng(0)
    centre = np.log(prior / (1 - prior)) / (2 * SHIFT)
    honest, boastful = (PUCalibrator("temperature", slope=2 * SHIFT * factor) for factor in (1, 8))
    positive, unlabelled = (x + centre for x in pu_sample(prior, 500, 5000, "case-control", rng))
    errors = [
        reliability(one.probability(positive), one.probability(unlabelled), prior, scenario="case-control").error
        for one in (honest, boastful)
    ]
    assert errors[0] < 0.04 < errors[1]


def test_bad_calibration():
    with pytest.raises(InputError, match="temperature, platt or isotonic"):
        PUCalibrator.fit([1.0], [0.0], 0.5, method="beta")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give at least one"):
        PUCalibrator.fit([], [0.0], 0.5)
    with pytest.raises(InputError, match="NaN or infinite"):
        PUCalibrator.fit([1.0, np.nan], [0.0], 0.5)
    with pytest.raises(InputError, match="300 of the 400 rows are labelled"):
        PUCalibrator.fit(np.ones(300), np.zeros(100), 0.5)
    with pytest.raises(InputError, match="outside 0 to 1"):
        reliability([3.0], [-2.0, 1.0], 0.5)


def test_an_isotonic_map_of_equal_decisions_is_level():
    found = PUCalibrator.fit([1.0, 1.0], [1.0, 1.0, 1.0], 0.5, method="isotonic")
    np.testing.assert_allclose(found.decision(np.array([0.0, 1.0, 2.0])), 0.0, atol=1e-9)


def test_an_isotonic_map_on_one_side_of_a_half_cuts_nowhere():
    knots = np.array([-1.0, 1.0])
    low, high = (PUCalibrator("isotonic", knots=knots, heights=np.array(ends)) for ends in ([0.1, 0.5], [0.6, 0.9]))
    assert (low.cut(), high.cut()) == (np.inf, -np.inf)


@pytest.mark.parametrize("judge", [find_degeneracies, pu_criterion, nnpu_value, evaluate_pu, PUCalibrator.fit])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([0.9, np.nan], "hold NaN or infinite values"),
        ([], r"the shape \(0,\): give at least one"),
        ([[0.9, 0.8]], r"the shape \(1, 2\): give at least one, as a flat array"),
        (["high"], "are not numbers: give what decision_function returns"),
    ],
)
def test_decisions_that_cannot_be_judged(judge, given, sentence):
    fine = [0.2, -0.1, 0.9, -0.3]
    for both in ((given, fine), (fine, given)):
        with pytest.raises(InputError, match=f"the decisions on .*{sentence}"):
            judge(*both, 0.6)


def test_what_else_cannot_be_judged():
    fine = [0.2, 0.1, 0.9, 0.3]
    with pytest.raises(InputError, match="the probabilities on unlabelled rows hold NaN"):
        reliability(fine, [0.5, np.nan], 0.7)
    with pytest.raises(InputError, match="scenario='some' is unknown"):
        find_degeneracies(fine, fine, 0.6, scenario="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the decisions on held-out positives have the shape"):
        find_degeneracies(fine, [-0.5, *fine], 0.6, held_out_positive=[])


Capture = pytest.CaptureFixture[str]


def test_what_cannot_be_calibrated_is_told_so_in_the_words_it_was_asked_for():
    X, s = (tiny_arrays(rows=180)[name] for name in ("X", "s"))
    with pytest.raises(InputError, match=r"'dist-pu' does not use held-out rows.*\(platt\): leave out calibration, or"):
        DistPUClassifier(prior=ASIDE_PRIOR, calibration="platt").fit(X, s)
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
    options = {"prior": ASIDE_PRIOR, "config": {"base.epochs": 6}, "rounds": 0, "random_state": 0}
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
    words = ["fit", data, "--prior", ASIDE_PRIOR, "--rounds", 1, "--json", "--quiet", "--out", tmp_path / "run", *TINY]
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


ROWS, PRIOR = 240, 0.6
SETTINGS = {"selection.held_out": 0.3, "selection.criterion": "none"}
METHODS = ("temperature", "platt", "isotonic")


def overlapping() -> dict[str, np.ndarray]:
    """Rows of which many are doubtful."""
    arrays = tiny_arrays(rows=ROWS)
    return {"X": arrays["X"] - 2 * arrays["truth"][:, None], "s": arrays["s"]}


def fit(place: Path, method: str) -> Path:
    data = write_npz(place / "rows.npz", **overlapping(), names=None, truth=None, X_test=None, y_test=None)
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    how = ["--prior", str(PRIOR), "--rounds", "1", "--calibration", method, "--quiet", *TINY, *settings]
    assert main(["fit", str(data), "--out", str(place / "run"), *how]) == 0
    return place / "run"


@pytest.fixture(scope="module", params=METHODS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(tmp_path_factory.mktemp("calibrated"), request.param)


def samples_of(run: Path) -> list[HardSample]:
    folder = RunFolder(run)
    return hard_samples(folder, folder.read_result())


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def bases_own(run: Path) -> np.ndarray:
    """What the base model, which taught the only round, decides of all rows by itself."""
    hardware = Hardware.choose("cpu", Config().engine)
    return Model.load(run).decision(overlapping()["X"].astype(np.float32), hardware, which="base")


def shown_in_the_report(run: Path) -> list[int]:
    page = (run / "report.html").read_text()
    gallery = page[page.index("<h3>Hardest</h3>") : page.index("<h3>Easiest</h3>")]
    return [int(row) for row in re.findall(r"row (\d+)", gallery)]


def test_the_teachers_probability_goes_through_the_same_map(run: Path) -> None:
    calibrator = PUCalibrator.from_dict(json.loads((run / "model.json").read_text())["calibration"])
    decided, samples = bases_own(run), samples_of(run)
    expected = sigmoid(calibrator.decision(decided))
    rows = [sample.index for sample in samples]
    assert len(rows) > 10 and not np.allclose(expected[rows], sigmoid(decided[rows]), atol=0.02)
    assert [sample.teacher_probability for sample in samples] == pytest.approx(expected[rows], abs=1e-4)
    assert all(sample.why.startswith("taught positive") == (decided[sample.index] > 0) for sample in samples)
    for line in lines_of(run / "split.csv"):
        assert float(line["teacher_probability"]) == pytest.approx(expected[int(line["index"])], abs=1e-4)
        assert (line["taught"] == "positive") == (decided[int(line["index"])] > 0)
    assert "calibrated by the map of the final model" in (run / "report.html").read_text()


def test_the_order_is_that_of_the_shown_probabilities(run: Path) -> None:
    said, taught = (
        np.array([getattr(sample, name) for sample in samples_of(run)])
        for name in ("probability", "teacher_probability")
    )
    doubt = np.abs(taught - said) + 0.5 - np.abs(said - 0.5)
    assert (np.diff(doubt) <= 0).all() and doubt[0] > doubt[-1]


def test_command_report_and_python_have_the_same_samples_in_the_same_order(run: Path, capsys: Capture) -> None:
    listed = [sample["index"] for sample in json.loads(run_cli(capsys, "hard", run, "--json")[1])["samples"]]
    assert listed == [sample.index for sample in samples_of(run)]
    assert shown_in_the_report(run) == listed[:24]
    quick = {"base.epochs": 2, "split.max_epochs": 2, "student.epochs": 2, "split.tau": 0.01, "engine.threads": 1}
    method = RunFolder(run).config().selection.calibration
    arrays = overlapping()
    fitted = SplitPUClassifier(prior=PRIOR, config=quick | SETTINGS, rounds=1, calibration=method, random_state=0)
    fitted.fit(arrays["X"], arrays["s"])
    last = fitted.rounds_[-1]
    assert last.doubtful_rows.tolist() == listed
    stayed = last.student_probabilities if last.taken else last.teacher_probabilities
    assert np.allclose(stayed, fitted.predict_proba(arrays["X"])[:, 1], atol=1e-5)


def test_where_the_student_was_not_taken_the_teacher_is_the_final_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student, "_learned", lambda *_: False)
    run = fit(tmp_path, "platt")
    samples = samples_of(run)
    assert len(samples) > 10
    assert all(sample.teacher_probability == sample.probability for sample in samples)
    assert shown_in_the_report(run) == [sample.index for sample in samples][:24]


def test_monotone_spread_in_short() -> None:
    found = monotone_spread(np.array([0.0, 4.0]), np.array([6.0, 2.0]), 0.25)
    assert [part.tolist() for part in found] == [[0.0, 1.0], [1.0, 0.0]]
