"""The run folder: what is written, when it counts as finished, and that nothing is ever overwritten."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz

from splitpu.config import Config
from splitpu.data import PUData
from splitpu.engine.stage import EpochRecord, Observer
from splitpu.errors import InputError
from splitpu.evaluation.doubtful import most_doubtful
from splitpu.files import disk_errors_in_words, replacing, write_text
from splitpu.runs import Request, RunFolder, Source, fitting
from splitpu.runs.observers import MetricsFile
from splitpu.runs.page import surest
from splitpu.runs.sources import load_request, load_source
from splitpu.runs.summary import expected_positive_share


def a_request(**changes: object) -> Request:
    fields = {
        "source": Source(npz="/nowhere/data.npz"),
        "fingerprint": "abc",
        "prior": 0.5,
        "preset": "default",
        "backbone": "auto",
        "seed": 0,
        "device": "cpu",
    }
    return Request(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over tiny vectors with test rows, names and truth."""
    from splitpu.cli import main

    place = tmp_path_factory.mktemp("runs")
    data = write_npz(place / "tiny.npz")
    assert main(["fit", str(data), "--prior", "0.5", "--out", str(place / "run"), "--quiet", *TINY]) == 0
    return place / "run"


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


# --------------------------------------------------------------------------------------------------- the folder itself


def test_a_request_comes_back_the_same() -> None:
    request = a_request(source=Source(named="digits", positives=50, draw_seed=3, scenario="case-control"))
    assert Request.from_json(request.to_json(), Path("request.json")) == request


@pytest.mark.parametrize("text", ["", "{", "{}", '{"source": {"what": 1}}', "[]"])
def test_a_damaged_request_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be understood"):
        Request.from_json(text, Path("request.json"))


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("splitpu.runs.folder.os.rename", refuse)
    with pytest.raises(InputError, match="disk is full"):
        RunFolder.create(tmp_path / "runs" / "new", a_request(), Config())
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_used_and_a_full_one_not(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "letter.txt").write_text("dear reader")
    assert RunFolder.free_path(empty, "x") == empty
    RunFolder.create(empty, a_request(), Config())
    with pytest.raises(InputError, match="--resume"):
        RunFolder.free_path(empty, "x")
    with pytest.raises(InputError, match="not an empty folder"):
        RunFolder.free_path(full, "x")
    with pytest.raises(InputError, match="choose another --out"):
        RunFolder.create(full, a_request(), Config())
    assert [path.name for path in full.iterdir()] == ["letter.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", a_request(), Config())
    with folder.locked(), pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
        pass
    with folder.locked():
        pass


def test_a_lock_on_a_file_that_was_removed_meanwhile_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    folder, usual = RunFolder.create(tmp_path / "run", a_request(), Config()), fcntl.flock

    def late(*given: object) -> None:
        """Whoever held it ends between our opening the file and our locking it."""
        monkeypatch.setattr(fcntl, "flock", usual)
        folder.lock_file.unlink()
        usual(*given)

    monkeypatch.setattr(fcntl, "flock", late)
    with folder.locked(), pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
        pass
    assert not folder.lock_file.exists()


def test_a_finished_run_is_neither_trained_nor_written_again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two commands resume it, and the slower one comes to its lock when the other one is done."""
    folder, notes = RunFolder(finished), list[str]()
    request, before = folder.request(), {path: path.stat().st_mtime_ns for path in finished.iterdir()}
    monkeypatch.setattr(fitting, "train", lambda *_, **__: pytest.fail("trained again"))
    result = fitting.carry_out(folder, request, load_request(request), observer=Observer(), note=notes.append)
    assert result == folder.read_result() and "was finished by another process" in notes[0]
    assert {path: path.stat().st_mtime_ns for path in finished.iterdir()} == before


def test_a_run_is_tidied_up_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the checkpoints of whoever goes on with it next could be taken away."""
    data, out, usual, refused = write_npz(tmp_path / "tiny.npz"), tmp_path / "run", RunFolder.tidy, list[Path]()

    def tidy(folder: RunFolder, *, keep_checkpoints: bool) -> None:
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
        refused.append(folder.path)
        usual(folder, keep_checkpoints=keep_checkpoints)

    monkeypatch.setattr(RunFolder, "tidy", tidy)
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 0, "--out", out, *TINY)[0] == 0
    assert run_cli(capsys, "fit", "--resume", out)[0] == 0
    assert refused == [out, out] and not (out / "checkpoints").exists()


def test_a_disk_that_fills_up_before_the_first_checkpoint_leaves_the_run_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(*_: object, **__: object) -> None:
        with disk_errors_in_words(out / "checkpoints"):
            raise OSError(28, "No space left on device")

    data, out = write_npz(tmp_path / "tiny.npz"), tmp_path / "run"
    saying = f"disk is full: {out}/checkpoints could not .*free some space and go on with: splitpu fit --resume {out}$"
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "train", no_room)
        must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", out, "--quiet", *TINY, saying=saying)
    assert run_cli(capsys, "fit", "--resume", out, "--quiet")[0] == 0


def test_a_torn_last_line_of_the_metrics_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = MetricsFile(folder.metrics)
    metrics.epoch_done(EpochRecord("base", 1, 2, 0.1, 1e-3, {"loss": float("nan")}))
    metrics.epoch_done(EpochRecord("base", 2, 2, 0.1, 1e-3, {"loss": 0.5}))
    with folder.metrics.open("a") as file:
        file.write('{"stage": "ba')
    lines = folder.read_metrics()
    assert [line["epoch"] for line in lines] == [1, 2] and lines[0]["terms"]["loss"] is None


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "tiny.npz")
    source = Source(npz=str(path))
    request = a_request(source=source, fingerprint=load_source(source).data.fingerprint())
    load_request(request)
    write_npz(path, X=tiny_arrays(seed=1)["X"])
    with pytest.raises(InputError, match="changed since the run began"):
        load_request(request)


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


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder is a folder, and a file was to be written there"):
        write_text(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_result_of_an_unfinished_run_cannot_be_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", a_request(), Config())
    assert folder.state == "unfinished"
    with pytest.raises(InputError, match="--resume"):
        folder.read_result()
    folder.result.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        folder.read_result()
    assert json.loads(folder.request_file.read_text())["prior"] == 0.5


def test_looking_at_a_place_leaves_nothing_there(tmp_path: Path) -> None:
    assert RunFolder.free_path(tmp_path / "a" / "b", "x") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_run_took_meanwhile(finished: Path, tmp_path: Path) -> None:
    run = RunFolder(finished)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "request.json").touch()
    with pytest.raises(InputError, match="another run has taken it meanwhile"):
        RunFolder.create(tmp_path / "taken", run.request(), run.config())
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
