"""A finished run: what its files hold, and how the samples and figures in them are chosen.

Commands on a run that is there: it is never overwritten, and damage is named.
"""

import csv
import io
import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz
from fault_tools import forge

from splitpu.cli.inspect import _why
from splitpu.config.schema import WarmupConfig
from splitpu.data.array_files import NpzSource
from splitpu.data.pudata import PUData
from splitpu.evaluation.metrics import most_doubtful
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid_folders import in_words, seeds_in_words, warnings_in_words
from splitpu.runs.report_data import _warmup_in_words, middle_slice, surest
from splitpu.runs.results import expected_positive_share

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
    words = ["fit", "digits", "--labelled", 50, "--prior", "true", "--rounds", 1, "--quiet", *TINY]
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
        loaded = NpzSource(path=str(write_npz(tmp_path / "tiny.npz", s=given))).load()
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


Capture = pytest.CaptureFixture[str]


# -------------------------------------------------------------------------------------------------------- existing runs


def test_a_finished_run_is_never_overwritten(finished: Path, capsys: Capture) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    must_refuse(
        capsys, "fit", finished.parent / "tiny.npz", "--prior", 0.5, "--out", finished, saying="finished run.*--out"
    )
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_resuming_a_finished_run_only_says_so(finished: Path, capsys: Capture) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    code, out, err = run_cli(capsys, "resume", finished)
    assert code == 0 and "finished already" in err and str(finished / "report.html") in out
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_resume_takes_no_other_options(finished: Path, capsys: Capture) -> None:
    must_refuse(capsys, "resume", finished, "--seed", 1, saying="--seed.* splitpu resume --help lists the options")
    must_refuse(capsys, "fit", "--resume", finished, saying="continue a run with: splitpu resume RUN")


def test_out_may_not_be_a_file_or_lie_below_one(here: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", data, saying="choose another --out")
    must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", data / "run", saying="choose another --out")


def test_without_out_the_run_is_named_after_the_data(here: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "cells.npz")
    code, out, _ = run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 0, "--json", "--quiet", *TINY)
    assert code == 0
    assert re.fullmatch(r"runs/cells-\d{8}-\d{6}", json.loads(out)["run"])


# ---------------------------------------------------------------------------------------------------------- model files


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copied"))


def test_a_model_file_cut_short(copied: Path, capsys: Capture) -> None:
    weights = copied / "model.safetensors"
    for length in (0, 5, 1000, weights.stat().st_size - 1):
        weights.write_bytes(weights.read_bytes()[:length])
        must_refuse(capsys, "evaluate", copied, saying=r"model\.safetensors cannot be read \(.*; copy the run")


def test_a_model_of_another_version(copied: Path, capsys: Capture) -> None:
    forge(copied / "model.json", {"format": 99})
    must_refuse(capsys, "evaluate", copied, saying="format 99")


def test_a_description_cut_short(copied: Path, capsys: Capture) -> None:
    (copied / "model.json").write_text((copied / "model.json").read_text()[:100])
    must_refuse(capsys, "evaluate", copied, saying=r"model\.json cannot be read")


def test_a_missing_model(copied: Path, capsys: Capture) -> None:
    (copied / "model.json").unlink()
    must_refuse(capsys, "evaluate", copied, saying=r"model\.json cannot be read \(it is missing\)")
    (copied / "model.safetensors").unlink()
    must_refuse(capsys, "resume", copied, saying=r"model\.json .*missing.*; copy the run folder again")


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_finished_run_is_not_called_finished_with_half_a_model(copied: Path, capsys: Capture, name: str) -> None:
    whole = (copied / name).read_bytes()
    (copied / name).write_bytes(whole[: len(whole) // 2])
    told = [must_refuse(capsys, *words, saying=rf"{re.escape(name)} .*; copy the run folder again, or train a new run")
            for words in (("resume", copied), ("evaluate", copied))]  # fmt: skip
    assert told[0] == told[1]


# ---------------------------------------------------------------------------------------------- predict, evaluate, info


def test_predict_writes_csv_to_standard_output(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    rows = tiny_arrays()
    np.savez(tmp_path / "new.npz", X=rows["X"], names=rows["names"])
    code, out, _ = run_cli(capsys, "predict", finished, tmp_path / "new.npz")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and len(lines) == len(rows["X"])
    assert lines[3]["index"] == "3" and lines[3]["name"] == "sample-3"
    assert all((float(line["probability"]) > 0.5) == (line["decision"] == "1") for line in lines)


def test_predict_gives_the_same_from_npy_into_a_file(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    features = tiny_arrays()["X"]
    np.save(tmp_path / "new.npy", features)
    np.savez(tmp_path / "new.npz", X=features)
    code, out, _ = run_cli(capsys, "predict", finished, tmp_path / "new.npy", "--out", tmp_path / "scores.csv")
    assert code == 0 and "80 rows" in out
    _, printed, _ = run_cli(capsys, "predict", finished, tmp_path / "new.npz")
    assert (tmp_path / "scores.csv").read_text() == printed


def test_predict_speaks_the_labels_of_the_training_data(here: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz", s=np.where(tiny_arrays()["s"], 1, -1))
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 0, "--out", "run", "--quiet", *TINY)[0] == 0
    _, out, _ = run_cli(capsys, "predict", "run", data, "--json")
    answer = json.loads(out)
    assert {score["decision"] for score in answer["scores"]} == {-1, 1}
    assert answer["positive"] == sum(score["decision"] == 1 for score in answer["scores"])


@pytest.mark.parametrize("shape", [(5, 3), (5, 5), (5, 2, 2), (5,), (0, 4)])
def test_predict_refuses_another_shape(finished: Path, tmp_path: Path, capsys: Capture, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "new.npy", np.zeros(shape))
    must_refuse(
        capsys, "predict", finished, tmp_path / "new.npy", "--out", tmp_path / "scores.csv", saying=r"new\.npy h"
    )
    assert not (tmp_path / "scores.csv").exists()


def test_evaluate_agrees_with_the_result_of_the_run(finished: Path, capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "evaluate", finished, "--json")
    answer, result = json.loads(out), json.loads((finished / "result.json").read_text())
    assert code == 0
    assert answer["models"][0]["accuracy"] == result["models"][0]["test"]["accuracy"]
    assert answer["models"][1]["roc_auc"] == pytest.approx(result["models"][-1]["test"]["roc_auc"])
    _, table, _ = run_cli(capsys, "evaluate", finished)
    assert "base" in table and "final" in table and "prior" in table


def test_evaluate_on_other_rows(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    rows = tiny_arrays(seed=5)
    np.savez(tmp_path / "other.npz", X=rows["X"], y=rows["truth"])
    code, out, _ = run_cli(capsys, "evaluate", finished, tmp_path / "other.npz", "--json")
    assert code == 0 and json.loads(out)["rows"] == 80
    np.savez(tmp_path / "no_truth.npz", X=rows["X"])
    must_refuse(capsys, "evaluate", finished, tmp_path / "no_truth.npz", saying="no rows with true labels")
    must_refuse(capsys, "evaluate", finished, "digits", saying="trained on vectors")


def test_the_truth_of_training_rows_makes_no_test_rows(tmp_path: Path, capsys: Capture) -> None:
    truth = tiny_arrays()["truth"]
    data = write_npz(tmp_path / "all.npz", X_test=None, y_test=None, truth=None, y=truth.astype(int))
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--out", tmp_path / "a run", "--quiet", *TINY)[0] == 0
    must_refuse(capsys, "evaluate", tmp_path / "a run", saying="trained on all labelled rows")


def test_a_truth_that_is_turned_round(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "round.npz", truth=~tiny_arrays()["truth"])
    must_refuse(capsys, "fit", data, "--prior", 0.5, saying="14 of the 14 rows labelled positive are negative")
    words = write_npz(tmp_path / "words.npz", s=np.where(tiny_arrays()["s"] == 1, "ill", "?"))
    must_refuse(capsys, "fit", words, "--prior", 0.5, saying="'s' in .* holds words: save 1")


def test_files_of_a_run_links_and_pipes_are_not_replaced(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "new.npy", np.zeros((3, 4)))
    own = finished / "scores.csv"
    must_refuse(capsys, "predict", finished, tmp_path / "new.npy", "--out", own, saying="is a file of the run")
    must_refuse(capsys, "hard", finished, "--out", finished / "split.csv", saying="is a file of the run")
    os.mkfifo(tmp_path / "pipe")
    read, write = os.pipe()
    (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{write}")  # as /dev/stdout is, whose pipe has no path
    for pipe in ("pipe", "stdout"):
        must_refuse(
            capsys, "predict", finished, tmp_path / "new.npy", "--out", tmp_path / pipe, saying=f"{pipe} is a device"
        )
    os.close(read)
    os.close(write)
    (tmp_path / "meant.csv").write_text("old")
    (tmp_path / "link").symlink_to("meant.csv")
    assert run_cli(capsys, "predict", finished, tmp_path / "new.npy", "--out", tmp_path / "link")[0] == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "meant.csv").read_text().startswith("index,")
    assert (tmp_path / "pipe").is_fifo()


def test_decisions_are_numbers_wherever_they_are_listed(finished: Path, capsys: Capture) -> None:
    listed = json.loads(run_cli(capsys, "hard", finished, "--json")[1])
    assert {type(sample["decision"]) for sample in listed["samples"]} == {int}


def test_commands_to_be_copied_are_quoted(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(finished, tmp_path / "a run")
    out = "".join(run_cli(capsys, "info", tmp_path / "a run")[1].split())
    assert f"splitpuhard'{tmp_path / 'arun'}'" in out
    (tmp_path / "a run" / "result.json").unlink()
    code, _, err = run_cli(capsys, "predict", tmp_path / "a run", tmp_path / "none.npy")
    assert code == 2 and f"splitpu resume '{tmp_path / 'a run'}'" in err


def test_evaluate_with_one_class_only(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "ones.npz", X_test=np.zeros((5, 4)), y_test=np.ones(5))
    code, out, _ = run_cli(capsys, "evaluate", finished, tmp_path / "ones.npz", "--json")
    assert code == 0 and json.loads(out)["models"][0]["roc_auc"] is None
    assert run_cli(capsys, "evaluate", finished, tmp_path / "ones.npz")[0] == 0


def test_info(finished: Path, capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "info", "--json")
    assert code == 0 and {"torch", "device", "sets"} <= set(json.loads(out))
    assert run_cli(capsys, "info")[0] == 0
    code, out, _ = run_cli(capsys, "info", finished)
    assert code == 0 and "finished" in out and "round 2 student" in out and "auto: mlp" in out
    _, out, _ = run_cli(capsys, "info", finished, "--json")
    assert json.loads(out)["result"]["prior"] == 0.5


def test_data_commands(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "cache"))
    _, out, _ = run_cli(capsys, "data", "list", "--json")
    states = {entry["name"]: entry["state"] for entry in json.loads(out)["sets"]}
    assert states["digits"] == "comes with scikit-learn" and states["cifar10"] == "not downloaded"
    code, out, _ = run_cli(capsys, "data", "get", "breast-cancer", "--json")
    assert code == 0 and json.loads(out)["training_rows"] == 426


def test_scores_are_not_written_under_a_wrong_ending(finished: Path, capsys: Capture, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", tiny_arrays()["X"])
    code, _, err = run_cli(capsys, "predict", finished, tmp_path / "new.npy", "--out", tmp_path / "s.xlsx")
    assert code == 2 and ".csv or .parquet" in err and not (tmp_path / "s.xlsx").exists()


def test_what_cannot_be_scored_is_not_called_a_broken_npz(finished: Path, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "0.dcm").write_bytes(b"DICM")
    _, _, err = run_cli(capsys, "predict", finished, tmp_path / "0.dcm")
    assert "is not of a kind that can be scored" in err and "npz file" not in err


def test_rows_of_the_training_give_no_figures_under_any_name(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    without_truth = {"X_test": None, "y_test": None, "truth": None, "names": None}
    same = write_npz(tmp_path / "a.npz", **without_truth)
    must_refuse(capsys, "evaluate", finished, same, saying="trained on all labelled rows")
    other = write_npz(tmp_path / "b.npz", X=tiny_arrays(seed=1)["X"], **without_truth)
    code, _, err = run_cli(capsys, "evaluate", finished, other)
    assert code == 0 and "flatter" not in err


def test_middle_slice_in_short() -> None:
    assert middle_slice(np.array([[[[1]]], [[[2]]], [[[3]]], [[[0]]]])).item() == 2


def test_warmup_in_words_in_short() -> None:
    assert (
        _warmup_in_words(WarmupConfig(name="simclr", split=False))
        == "simclr, 100 epochs without labels, for base and student"
    )


def test_why_in_short() -> None:
    assert (_why(True, False, True), _why(True, False, False)) == (
        "taught positive, learned negative",
        "taught positive, learned negative; now negative",
    )
    assert _why(True, True, True) == "taught positive, learned positive, but less surely than others"


def test_warnings_in_words_in_short() -> None:
    assert warnings_in_words({"warnings": [{"warning": "no test rows", "seeds": [0, 1]}]}) == [
        "seeds 0, 1: no test rows"
    ]


def test_seeds_in_words_in_short() -> None:
    assert (seeds_in_words([3]), seeds_in_words([3, 0])) == ("seed 3", "seeds 3, 0")


def test_in_words_in_short() -> None:
    assert (in_words("accuracy", {"mean": 0.931, "sd": 0.004}), in_words("f1", {"mean": 0.9, "sd": 0.012})) == (
        "93.1±0.4",
        "0.900±.012",
    )
