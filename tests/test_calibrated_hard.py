"""Hard samples of a calibrated run: teacher and student on one scale, in one order wherever somebody may look."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, tiny_arrays, write_npz

from splitpu import SplitPUClassifier
from splitpu.cli import main
from splitpu.config.schema import Config
from splitpu.engine.hardware import Hardware
from splitpu.evaluation.calibration import PUCalibrator, sigmoid
from splitpu.methods import split_pu as student
from splitpu.model import Model
from splitpu.runs.folder import RunFolder
from splitpu.runs.hard_samples import HardSample, hard_samples

ROWS, PRIOR = 240, 0.6
SETTINGS = {"selection.held_out": 0.3, "selection.criterion": "none"}
METHODS = ("temperature", "platt", "isotonic")

Capture = pytest.CaptureFixture[str]


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
    assert np.allclose(last.student_probabilities, fitted.predict_proba(arrays["X"])[:, 1], atol=1e-5)


def test_runs_that_kept_the_teachers_probability_as_it_was_taught_are_read_alike(run: Path, tmp_path: Path) -> None:
    old = shutil.copytree(run, tmp_path / "old")
    as_taught = sigmoid(bases_own(run))
    lines = lines_of(run / "split.csv")
    with (old / "split.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in lines[0] if name != "taught"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**line, "teacher_probability": f"{as_taught[int(line['index'])]:.6g}"} for line in lines)
    now, then = ({sample.index: sample for sample in samples_of(place)} for place in (run, old))
    assert now.keys() == then.keys()
    for index, sample in now.items():
        assert then[index].teacher_probability == pytest.approx(sample.teacher_probability, abs=1e-4)
        assert then[index].why == sample.why


def test_where_the_student_was_not_taken_the_teacher_is_the_final_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student, "_learned", lambda *_: False)
    run = fit(tmp_path, "platt")
    samples = samples_of(run)
    assert len(samples) > 10
    assert all(sample.teacher_probability == sample.probability for sample in samples)
    assert shown_in_the_report(run) == [sample.index for sample in samples][:24]


def test_a_calibration_that_cannot_be_understood_is_told_in_a_sentence(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    torn = shutil.copytree(run, tmp_path / "torn")
    result = json.loads((torn / "result.json").read_text())
    result["selection"]["calibration"] = {"curve": 3}
    (torn / "result.json").write_text(json.dumps(result))
    code, _, err = run_cli(capsys, "hard", torn)
    assert code == 2 and "result.json cannot be understood" in err and err.count("\n") == 1
