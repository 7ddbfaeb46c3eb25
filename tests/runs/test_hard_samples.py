"""`splitpu hard`: the hard samples of a run as a list, and their files to look at."""

import csv
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli, write_npz
from fault_tools import forge, vouch
from image_tools import small_folders

from splitpu.cli import main
from splitpu.cli.inspect import ToReview, lay_out
from splitpu.errors import InputError
from splitpu.runs.folder import RunFolder
from splitpu.runs.report_data import SHOWN as IN_THE_REPORT

ASKED = ["--prior", "0.6", "--quiet", *TINY]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs over folders of images and over arrays, the latter with a method that knows no hard samples, too."""
    place = tmp_path_factory.mktemp("hard")
    words = [str(word) for word in small_folders(place)]
    assert main(["fit", *words, "--out", str(place / "run"), *ASKED]) == 0
    data = str(write_npz(place / "rows.npz", names=None))
    assert main(["fit", data, "--out", str(place / "arrays"), *ASKED]) == 0
    assert main(["fit", data, "--out", str(place / "nnpu"), "--method", "nnpu", *ASKED]) == 0
    assert main(["fit", data, "--out", str(place / "base"), "--rounds", "0", *ASKED]) == 0
    return place


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_they_are_those_of_the_last_split_with_the_final_models_probability(place: Path, capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "hard", place / "run", "--json")
    found = json.loads(out)
    split = [line for line in lines_of(place / "run" / "split.csv") if line["set"] == "hard"]
    last = {int(line["index"]): line for line in split if line["round"] == "2"}
    scores = {int(line["index"]): line for line in lines_of(place / "run" / "scores.csv")}
    assert code == 0 and found["round"] == 2 and found["hard"] == len(found["samples"]) == len(last) > 3
    assert {sample["index"] for sample in found["samples"]} == set(last)
    for sample in found["samples"]:
        assert sample["name"] == last[sample["index"]]["name"] == scores[sample["index"]]["name"]
        assert sample["probability"] == float(scores[sample["index"]]["probability"])
        taught = "positive" if float(last[sample["index"]]["teacher_probability"]) > 0.5 else "negative"
        assert sample["why"].startswith(f"taught {taught}, learned ")
        hard_in = [line["round"] for line in split if int(line["index"]) == sample["index"]]
        assert sample["rounds"] == " ".join(hard_in)


def test_the_most_doubtful_come_first_as_in_the_report(place: Path, capsys: Capture) -> None:
    samples = json.loads(run_cli(capsys, "hard", place / "run", "--json")[1])["samples"]
    said = np.array([sample["probability"] for sample in samples])
    taught = np.array([sample["teacher_probability"] for sample in samples])
    doubt = np.abs(taught - said) + 0.5 - np.abs(said - 0.5)
    assert (np.diff(doubt) <= 1e-5).all() and doubt[0] > doubt[-1]
    page = (place / "run" / "report.html").read_text()
    gallery = page[page.index("<h3>Hardest</h3>") : page.index("<h3>Easiest</h3>")]
    places = [gallery.index(f'title="{sample["name"]}"') for sample in samples[: min(8, IN_THE_REPORT)]]
    assert places == sorted(places)


def test_table_and_file(place: Path, capsys: Capture, tmp_path: Path) -> None:
    code, out, err = run_cli(capsys, "hard", place / "run")
    assert code == 0 and "20 of 24 hard samples" in out and "--top 24 shows all" in err
    code, out, err = run_cli(capsys, "hard", place / "arrays", "--top", 1)
    assert code == 0 and "row " in out and "learned" in out
    code, out, _ = run_cli(capsys, "hard", place / "run", "--top", 3, "--out", tmp_path / "hard.csv")
    assert code == 0 and "3 of 24 hard samples among 48" in out
    samples = json.loads(run_cli(capsys, "hard", place / "run", "--json", "--top", 3)[1])["samples"]
    assert [line["name"] for line in lines_of(tmp_path / "hard.csv")] == [sample["name"] for sample in samples]


@pytest.mark.parametrize("link", [False, True])
def test_files_to_look_at(place: Path, capsys: Capture, tmp_path: Path, link: bool) -> None:
    words = ["hard", place / "run", "--top", 3, "--copy-to", tmp_path / "look", *(["--link"] if link else [])]
    code, _, err = run_cli(capsys, *words)
    assert code == 0 and "the 3 most doubtful samples are in" in err
    samples = json.loads(run_cli(capsys, "hard", place / "run", "--json", "--top", 3)[1])["samples"]
    laid_out = sorted((tmp_path / "look").iterdir())
    for rank, (path, sample) in enumerate(zip(laid_out, samples, strict=True), start=1):
        assert path.name == f"{rank}_{sample['probability']:.3f}_{sample['name'].replace('/', '__')}"
        assert path.is_symlink() == link and path.read_bytes() == (place / sample["name"]).read_bytes()
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "not an empty folder" in err


def test_what_cannot_be_listed_or_laid_out_is_one_sentence(place: Path, capsys: Capture, tmp_path: Path) -> None:
    shutil.copytree(place / "arrays", tmp_path / "unfinished")
    (tmp_path / "unfinished" / "result.json").unlink()
    shutil.copytree(place / "arrays", tmp_path / "torn")
    (tmp_path / "torn" / "split.csv").unlink()
    look = ["--copy-to", tmp_path / "look"]
    wrong = {
        "no finished run": [tmp_path / "unfinished"],
        "split.csv cannot be read": [tmp_path / "torn"],
        "method 'nnpu', which does not tell hard samples": [place / "nnpu"],
        "has no rounds": [place / "base"],
        "is for runs from folders": [place / "arrays", *look],
        "--link goes with --copy-to": [place / "run", "--link"],
        "--top 0": [place / "run", "--top", 0],
        "an ending that cannot be used": [place / "run", "--out", tmp_path / "hard.xlsx"],
        "there is no run folder": [tmp_path / "nowhere"],
    }
    for sentence, words in wrong.items():
        code, out, err = run_cli(capsys, "hard", *words)
        assert code == 2 and out == "" and sentence in err and err.count("\n") == 1, err
    assert not (tmp_path / "look").exists()


@pytest.mark.parametrize("kept", [0.0, 0.5, -1])
def test_lists_of_a_run_that_are_cut_short(place: Path, capsys: Capture, tmp_path: Path, kept: float) -> None:
    for name in ("split.csv", "scores.csv"):
        run = tmp_path / name.partition(".")[0]
        shutil.copytree(place / "arrays", run)
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: int(kept * len(whole))] if kept >= 0 else whole[:-4])
        if kept < 0 and name == "scores.csv":
            continue  # the last row may be an easy one
        code, out, err = run_cli(capsys, "hard", run)
        assert code == 2 and out == "" and name in err and "copy the run folder again" in err, err


def test_files_that_have_moved_are_named_and_nothing_is_written(place: Path, capsys: Capture, tmp_path: Path) -> None:
    words = ["hard", place / "run", "--top", 3, "--copy-to", tmp_path / "look", "--out", tmp_path / "hard.csv"]
    first = json.loads(run_cli(capsys, "hard", place / "run", "--json", "--top", 1)[1])["samples"][0]["name"]
    (place / first).rename(place / "elsewhere.png")
    code, _, err = run_cli(capsys, *words)
    (place / "elsewhere.png").rename(place / first)
    assert code == 2 and f"1 of 3 hard samples are no longer where the run found them ({first})" in err
    (place / "unl").rename(place / "gone")
    code, _, err = run_cli(capsys, *words)
    (place / "gone").rename(place / "unl")
    assert code == 2 and "no longer at" in err and "check the path" not in err and list(tmp_path.iterdir()) == []


def test_patients_are_folders_and_those_known_by_number_stay_so(place: Path, capsys: Capture, tmp_path: Path) -> None:
    run = Path(shutil.copytree(place / "run", tmp_path / "run"))
    sides = {side: [str(tmp_path / side)] for side in ("positives", "unlabelled")}
    forge(run / "request.json", lambda request: request["source"]["folders"].update(sides))
    names = [line["name"] for line in lines_of(run / "split.csv")]
    for name in ("split.csv", "scores.csv"):
        text = (run / name).read_text()
        for old in names:
            text = text.replace(f",{old},", f",unlabelled/case{old[-7:-4]},")
        (run / name).write_text(text)
    vouch(run)
    for patient in (tmp_path / "positives" / "known", *(tmp_path / "unlabelled" / f"case{n:03d}" for n in range(48))):
        patient.mkdir(parents=True)
        (patient / "slice1.dcm").write_bytes(bytes(128) + b"DICM" + patient.name.encode())
    words = ["hard", run, "--top", 2, "--copy-to", tmp_path / "look"]
    assert run_cli(capsys, *words)[0] == 0
    laid_out = sorted((tmp_path / "look").iterdir())
    assert len(laid_out) == 2 and (laid_out[0] / "slice1.dcm").read_bytes().decode()[132:] == laid_out[0].name[-7:]
    shutil.rmtree(tmp_path / "look")
    chosen = laid_out[0].name[-7:]
    for name in ("split.csv", "scores.csv"):
        (run / name).write_text((run / name).read_text().replace(chosen, "patient-0001"))
    vouch(run)
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "unlabelled/patient-0001 is known only by its number" in err


def test_a_patient_is_laid_out_without_what_no_reader_takes(tmp_path: Path) -> None:
    patient = tmp_path / "all" / "Fall Ä 1"
    (patient / "deep").mkdir(parents=True)
    (patient / "deep" / "slice").write_bytes(b"a")
    (patient / "lost").symlink_to("nowhere")
    (patient / "deep" / "circle").symlink_to(patient)
    os.mkfifo(patient / "pipe")
    lay_out(tmp_path / "look", [ToReview(str(patient), "Fall Ä 1", 0.5)], link=False)
    laid_out = [str(path.relative_to(tmp_path / "look")) for path in (tmp_path / "look").rglob("*") if path.is_file()]
    assert laid_out == ["1_0.500_Fall Ä 1/deep/slice"]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES])
def test_a_patient_that_cannot_be_laid_out_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    (tmp_path / "patient").mkdir()
    (tmp_path / "patient" / "slice").write_bytes(b"a")

    def refused(path: str, target: Path) -> None:
        raise OSError(reason, os.strerror(reason), path)

    monkeypatch.setattr(shutil, "copyfile", refused)
    sentence = "the disk is full: .*look could not" if reason == errno.ENOSPC else "slice may not be read .* --link"
    with pytest.raises(InputError, match=sentence):
        lay_out(tmp_path / "look", [ToReview(str(tmp_path / "patient"), "patient", 0.5)], link=False)
    assert [path.name for path in tmp_path.iterdir()] == ["patient"]


def test_a_folder_that_cannot_be_filled_is_not_left_half_full(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"a")
    samples = [ToReview(str(tmp_path / name), name, 0.5) for name in ("a.png", "lost.png")]
    with pytest.raises((InputError, OSError)):
        lay_out(tmp_path / "look", samples, link=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_patient_in_one_file_keeps_its_ending(tmp_path: Path) -> None:
    for name in ("one.nii.gz", "two.nii"):
        (tmp_path / name).write_bytes(name.encode())
    samples = [ToReview(str(tmp_path / "one.nii.gz"), "one", 0.9), ToReview(str(tmp_path / "two.nii"), "two.nii", 0.5)]
    lay_out(tmp_path / "look", samples, link=False)
    assert sorted(path.name for path in (tmp_path / "look").iterdir()) == ["1_0.900_one.nii.gz", "2_0.500_two.nii"]


def test_hard_ones_that_were_learned_but_not_surely_are_told_from_the_others(place: Path, capsys: Capture) -> None:
    """With a share of the positives only, the network has learned some hard samples as it was taught."""
    settings = ("--set", "split.surest_positives=0.5", "--set", "split.tau=0.01")
    words = ["fit", place / "rows.npz", "--out", place / "surest", *ASKED, *settings]
    assert run_cli(capsys, *words)[0] == 0
    samples = json.loads(run_cli(capsys, "hard", place / "surest", "--json")[1])["samples"]
    learned = {
        line["index"]: line["learned"] for line in lines_of(place / "surest" / "split.csv") if line["round"] == "2"
    }
    unsure = [sample for sample in samples if ", but less surely than others" in sample["why"]]
    assert unsure and all(sample["teacher_probability"] > 0.5 for sample in unsure)
    for sample in samples:
        taught = "positive" if sample["teacher_probability"] > 0.5 else "negative"
        assert (sample in unsure) == (learned[str(sample["index"])] == taught)
    page = (place / "surest" / "report.html").read_text()
    assert f"on {len(unsure)} of the hard ones they agree too" in page and "follows it less surely" in page
    usual = (place / "arrays" / "report.html").read_text()
    assert "A sample is easy where the two agree, and hard elsewhere." in usual and "less surely" not in usual


def test_a_calibrated_probability_is_the_same_everywhere(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitpu.methods.split_pu._kept_back", lambda context, teacher, student, *_: student)
    settings = ("--set", "selection.held_out=0.2", "--set", "selection.calibration=platt")
    assert run_cli(capsys, "fit", place / "rows.npz", "--out", place / "calibrated", *ASKED, *settings)[0] == 0
    scores = {line["index"]: line["probability"] for line in lines_of(place / "calibrated" / "scores.csv")}
    last = [line for line in lines_of(place / "calibrated" / "split.csv") if line["round"] == "2"]
    shown, known = (
        [float(line["student_probability"]) for line in last],
        [float(scores[line["index"]]) for line in last],
    )
    assert shown == pytest.approx(known, abs=1e-4) and len(shown) > 10


def test_a_finished_run_says_where_the_hard_samples_are(place: Path, capsys: Capture) -> None:
    run = RunFolder(place / "arrays")
    hard = run.read_result()["rounds"][-1]["hard"]
    _, out, _ = run_cli(capsys, "info", run.path)
    assert hard > 0 and f"{hard} unlabelled samples, named in {run.split} and shown in the report" in out
