"""A finished run: what its files hold, and how the samples and figures in them are chosen."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, tiny_arrays, write_npz

from splitpu.data.pudata import PUData
from splitpu.evaluation.metrics import most_doubtful
from splitpu.runs.folder import RunFolder
from splitpu.runs.report_data import surest
from splitpu.runs.request import Source
from splitpu.runs.results import expected_positive_share
from splitpu.runs.sources import load_source

# ------------------------------------------------------------------------------------------------------ a finished run


def test_a_finished_run_has_all_its_files_and_no_others(finished: Path) -> None:
    expected = {"config.toml", "request.json", "metrics.jsonl", "scores.csv", "split.csv", "result.json", "report.html"}
    assert {path.name for path in finished.iterdir()} == expected | {"model.safetensors", "model.json"}


def test_scores_are_those_that_predict_gives(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = tiny_arrays()
    np.savez(tmp_path / "again.npz", X=arrays["X"], names=arrays["names"])
    _, printed, _ = run_cli(capsys, "predict", finished, tmp_path / "again.npz")
    with (finished / "scores.csv").open() as file:
        lines = list(csv.DictReader(file))
    again = list(csv.DictReader(printed.splitlines()))
    assert [line["labelled"] for line in lines] == [str(label) for label in arrays["s"]]
    assert [(line["name"], line["decision"]) for line in lines] == [(line["name"], line["decision"]) for line in again]
    difference = [
        abs(float(line["probability"]) - float(other["probability"])) for line, other in zip(lines, again, strict=True)
    ]
    assert max(difference) < 1e-4  # training scores in float32, predict in float64


def test_files_can_be_read_by_those_whom_the_umask_allows(finished: Path) -> None:
    assert len({path.stat().st_mode for path in finished.iterdir()}) == 1


def test_config_holds_the_number_of_threads(finished: Path) -> None:
    assert tomllib.loads((finished / "config.toml").read_text())["engine"]["threads"] == 1


def test_metrics_have_every_epoch_and_term(finished: Path) -> None:
    lines = RunFolder(finished).read_metrics()
    stages = [line["stage"] for line in lines]
    assert list(dict.fromkeys(stages)) == ["base", "round1.split", "round1.student", "round2.split", "round2.student"]
    assert all("loss" in line["terms"] and line["seconds"] >= 0 for line in lines)


def test_split_says_of_every_unlabelled_row_and_round_where_it_went(finished: Path) -> None:
    with (finished / "split.csv").open() as file:
        lines = list(csv.DictReader(file))
    unlabelled = int((tiny_arrays()["s"] == 0).sum())
    assert len(lines) == 2 * unlabelled
    assert {line["set"] for line in lines} <= {"easy", "hard"}
    assert all(line["name"] == f"sample-{line['index']}" for line in lines)
    assert all(0 <= float(line["teacher_probability"]) <= 1 for line in lines)


def test_result_says_what_came_out_and_how(finished: Path) -> None:
    result = RunFolder(finished).read_result()
    assert [model["model"] for model in result["models"]] == ["base", "round 1 student", "round 2 student"]
    assert all(0 <= model["test"]["accuracy"] <= 1 for model in result["models"])
    assert result["rounds"][0]["easy"] + result["rounds"][0]["hard"] == result["unlabelled"]
    assert set(result["rounds"][0]["noise"]) <= {"easy", "hard", "all"}
    assert {"python", "torch", "numpy", "scikit-learn", "splitpu"} <= set(result["versions"])
    assert set(result["seconds"]) == {line["stage"] for line in RunFolder(finished).read_metrics()}
    assert result["prior"] == 0.5 and result["seed"] == 0 and result["scenario"] == "single-training-set"


def test_report_shows_the_samples_by_name(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "sample-" in page and "feature " in page and page.rstrip().endswith("</html>")


def test_images_are_shown_as_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "digits"
    words = ["fit", "digits", "--positives", 50, "--prior", "true", "--rounds", 1, "--quiet", *TINY]
    code, *_ = run_cli(capsys, *words, "--out", out)
    assert code == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") >= 24


def test_without_rounds_and_without_test_rows_a_run_is_complete_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_npz(tmp_path / "bare.npz", X_test=None, y_test=None, names=None, truth=None)
    out = tmp_path / "run"
    code, *_ = run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 0, "--out", out, *TINY)
    assert code == 0
    result = RunFolder(out).read_result()
    assert result["models"][0]["test"] is None and result["rounds"] == []
    assert (out / "split.csv").read_text().count("\n") == 1


def test_checkpoints_stay_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    code, *_ = run_cli(
        capsys, "fit", data, "--prior", 0.5, "--out", tmp_path / "run", "--keep-checkpoints", "--rounds", 0, *TINY
    )
    assert code == 0 and list((tmp_path / "run" / "checkpoints").glob("base-*.safetensors"))


def test_labels_keep_their_names(tmp_path: Path) -> None:
    labels = tiny_arrays()["s"]
    for given, classes in ((labels, (0, 1)), (np.where(labels, 1, -1), (-1, 1)), (labels == 1, (False, True))):
        loaded = load_source(Source(npz=str(write_npz(tmp_path / "tiny.npz", s=given))))
        assert loaded.classes == classes


# -------------------------------------------------------------------------------------------------------------- pieces


def test_expected_share_depends_on_the_scenario() -> None:
    features, labels = np.zeros((10, 1)), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert expected_positive_share(PUData.from_arrays(features, labels), 0.7) == pytest.approx(0.5)
    apart = PUData.from_arrays(features, labels, scenario="case-control")
    assert expected_positive_share(apart, 0.7) == 0.7


def test_surest_fills_up_from_the_other_class() -> None:
    student = np.array([0.9, 0.99, 0.8, 0.1])
    everyone = np.ones(4, dtype=bool)
    assert surest(student, everyone, 3).tolist() == [1, 0, 3]
    assert surest(student, everyone, 10).tolist() == [1, 0, 2, 3]
    assert surest(student, ~everyone, 10).tolist() == []


def test_most_doubtful_looks_at_the_chosen_only() -> None:
    teacher, student = np.array([1.0, 0.5, 0.9]), np.array([0.0, 0.5, 0.9])
    assert most_doubtful(teacher, student, np.array([False, True, True]), 5).tolist() == [1, 2]
