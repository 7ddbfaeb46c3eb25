"""Folders of patients: which files become rows, what is told of the others, and who is never named."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pydicom
import pytest
from cli_tools import TINY, run_cli
from image_tools import write_pictures
from pydicom.data import get_testdata_file
from volume_tools import scan, write_series

from splitpu.data.images.folders import FolderSource, read_folders, read_images
from splitpu.data.volumes.reader import VolumeReader, holds_volumes
from splitpu.errors import InputError

pytestmark = pytest.mark.usefixtures("cache")
SECRETS = ("Nobody", "Special", "HOSP-4711", "HOSP4711", "19610407", "Secret Lane", "Quack", "Hidden Hosp", "ACC998877")


# --- folders of patients ---


def make_patients(place: Path, count: int, share: float, seed: int, **options) -> None:
    for at in range(count):
        write_series(place / f"case{at:02d}", scan(at < share * count, seed + at, slices=2 + at % 3), **options)


def test_folders_of_patients_become_filled_up_rows_and_are_cached(tmp_path, cache) -> None:
    make_patients(tmp_path / "pos", 3, 1.0, 0)
    make_patients(tmp_path / "unl", 4, 0.5, 100)
    source = FolderSource(positives=(str(tmp_path / "pos"),), unlabelled=(str(tmp_path / "unl"),))
    found = read_folders(source)
    assert found.train.pixels.shape == (7, 4, 12, 12, 1) and found.train.pixels.dtype == np.uint8
    there = found.train.pixels.any(axis=(2, 3, 4)).sum(axis=1)
    assert there.tolist() == [2, 3, 4, 2, 3, 4, 2] and found.labelled.sum() == 3
    assert found.train.names[:2] == ("pos/case00", "pos/case01") and not found.warnings
    for path in (tmp_path / "pos").rglob("IM*"):  # the second time nothing is read: pixels come from the cache
        os.chmod(path, 0o000)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.raw")}
    assert np.array_equal(read_folders(source).train.pixels, found.train.pixels)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.raw")} == before
    two = read_folders(FolderSource(**{**source.__dict__, "slices": 2, "size": (6, 8)})) if os.geteuid() == 0 else None
    assert two is None or two.train.pixels.shape == (7, 2, 6, 8, 1)


def test_a_patient_on_both_sides_is_not_called_a_picture(tmp_path) -> None:
    make_patients(tmp_path / "pos", 2, 1.0, 0)
    make_patients(tmp_path / "unl", 4, 0.5, 0)
    source = FolderSource(positives=(str(tmp_path / "pos"),), unlabelled=(str(tmp_path / "unl"),))
    (warning,) = read_folders(source).warnings
    assert warning.startswith("2 patients are both labelled positive and unlabelled (pos/case00 = unl/case00")


def test_bad_files_are_listed_and_strict_stops(tmp_path) -> None:
    for at in range(12):
        write_series(tmp_path / "unl" / f"case{at:02d}", scan(False, at, slices=5))
    case = tmp_path / "unl" / "case03"
    (case / "IM0001").write_bytes((case / "IM0001").read_bytes()[:-40])  # cut short
    (case / "IM0002").write_bytes(b"")
    (case / "notes.txt").write_text("not an image")
    shutil.copy(get_testdata_file("test-SR.dcm"), case / "report.dcm")
    beheaded = pydicom.dcmread(case / "IM0000")
    del beheaded.Rows
    beheaded.save_as(tmp_path / "unl" / "case05" / "beheaded")
    (tmp_path / "unl" / "case04" / "junk.dcm").write_bytes(b"this is no DICOM file, whatever it is called" * 9)
    (tmp_path / "unl" / "case99").mkdir()
    (tmp_path / "unl" / "README").write_text("about these data")
    rows = read_images([tmp_path / "unl"])
    bad = {entry.name: entry.why for entry in rows.skipped if entry.bad}
    assert len(rows.files) == 12 and set(bad) == {
        "case03/IM0001",
        "case03/IM0002",
        "case04/junk.dcm",
        "case05/beheaded",
        "case99",
    }
    assert bad["case03/IM0002"] == "is empty (0 bytes)" and "patient without slices" in bad["case99"]
    fine = {entry.name for entry in rows.skipped if not entry.bad}
    assert fine == {"case03/notes.txt", "case03/report.dcm", "README"}
    assert rows.pixels[3].any(axis=(1, 2, 3)).sum() == 3
    told = " ".join(rows.in_words("training"))
    assert "5 training files were skipped" in told and "1 (is no patient's folder and no NIfTI file)" in told
    with pytest.raises(InputError, match="case03/IM0002 is empty"):  # the first in order, though case99 is known first
        read_images([tmp_path / "unl"], strict=True)
    (tmp_path / "unl" / "an empty one").mkdir()
    with pytest.raises(InputError, match="an empty one is a patient without slices"):
        read_images([tmp_path / "unl"], strict=True)
    for empty in ("an empty one", "case99"):
        (tmp_path / "unl" / empty).rmdir()
    for at in (5, 6):
        for path in (tmp_path / "unl" / f"case{at:02d}").iterdir():
            path.write_bytes(b"gone")
    with pytest.raises(InputError, match="2 of 12 patients"):
        read_images([tmp_path / "unl"])


def test_volumes_are_told_from_pictures(tmp_path) -> None:
    write_series(tmp_path / "patients" / "a", scan(True, 0))
    (tmp_path / "empty").mkdir()
    assert holds_volumes([tmp_path / "empty", tmp_path / "patients"]) and not holds_volumes([tmp_path / "empty"])
    with pytest.raises(InputError, match="a folder of its own"):
        holds_volumes([tmp_path / "patients" / "a"])
    with pytest.raises(InputError, match="--series is for volumes"):
        read_folders(FolderSource(positives=(str(tmp_path / "empty"),), unlabelled=(), series="T1"))


# --- who the patients are ---


def all_bytes(*folders: Path) -> bytes:
    return b"\0".join(
        str(path).encode() + b"\0" + (path.read_bytes() if path.is_file() else b"")
        for folder in folders
        for path in sorted(folder.rglob("*"))
    )


def test_fit_predict_and_evaluate_never_say_who_a_patient_is(tmp_path, cache, capsys) -> None:
    make_patients(tmp_path / "pos", 4, 1.0, 0)
    make_patients(tmp_path / "unl", 12, 0.5, 100)
    make_patients(tmp_path / "test-pos", 3, 1.0, 200)
    make_patients(tmp_path / "test-neg", 3, 0.0, 300)
    shutil.move(tmp_path / "unl" / "case05", tmp_path / "unl" / "NOBODY_Special_MRI")
    shutil.move(tmp_path / "pos" / "case01", tmp_path / "pos" / "hosp-4711")
    (tmp_path / "unl" / "case07" / "Nobody-Special.dcm").write_bytes(b"")  # even a file that cannot be read
    write_series(tmp_path / "unl" / "case08", scan(False, 9, slices=1), description="scout of nobody special")
    words = ["--positives", tmp_path / "pos", "--unlabelled", tmp_path / "unl"]
    test = ["--test", tmp_path / "test-pos", tmp_path / "test-neg"]
    small = ["--set", "base.batch_size=8", "--set", "student.batch_size=8", "--set", "base.epochs=1", "--rounds", "1"]
    run = tmp_path / "run"
    code, out, err = run_cli(capsys, "fit", *words, *test, "--prior", "0.6", "--size", "8", *TINY, *small, "--out", run)
    assert code == 0, err
    told = out + err
    review = ["--top", 11, "--copy-to", tmp_path / "look"]
    code, out, err = run_cli(capsys, "predict", run, tmp_path / "unl", "--out", tmp_path / "scores.csv", *review)
    assert code == 0, err
    told += out + err + " ".join(path.name for path in (tmp_path / "look").iterdir())
    patients = sorted((tmp_path / "look").iterdir())
    assert len(patients) == 11 and all(any(patient.iterdir()) for patient in patients)
    code, out, err = run_cli(capsys, "evaluate", run, "--json")
    assert code == 0 and json.loads(out)["rows"] == 6
    told += out + err
    for one in ("one.png", "one.nii.gz"):
        (tmp_path / one).write_bytes(b"")
        code, out, err = run_cli(capsys, "predict", run, tmp_path / one)
        assert code == 2 and "give" in err and f"{one} is one" in err
    code, out, err = run_cli(capsys, "predict", run, tmp_path / "unl" / "case03")
    assert code == 2 and "give each patient a folder of its own" in err
    model = json.loads((run / "model.json").read_text())
    assert model["network"] == "slices-resnet18" and model["inputs"]["kind"] == "volumes"
    scores = (tmp_path / "scores.csv").read_text().splitlines()
    assert len(scores) == 13 and scores[1].startswith("0,patient-0001,") and scores[2].startswith("1,case00,")
    assert "the name or number of their patient" in told
    written = all_bytes(run, cache) + (tmp_path / "scores.csv").read_bytes() + told.encode()
    written += b"".join(path.read_bytes() for path in tmp_path.glob("scores*.csv"))
    plain = written.lower()
    for secret in SECRETS:
        assert secret.lower().encode() not in plain, secret
    for uid in {str(pydicom.dcmread(path).SOPInstanceUID) for path in (tmp_path / "pos").rglob("IM*")}:
        assert uid.encode() not in written
    assert len(written) > 10_000


def test_a_patient_that_cannot_be_used_is_not_named_either(tmp_path) -> None:
    make_patients(tmp_path / "unl", 11, 0.5, 0)
    shutil.move(tmp_path / "unl" / "case02", tmp_path / "unl" / "HOSP-4711")
    for path in (tmp_path / "unl" / "HOSP-4711").iterdir():
        stored = pydicom.dcmread(path)
        stored.SeriesDescription = "Nobody Special T2"
        stored.save_as(path)
    (tmp_path / "unl" / "case03" / "hosp-4711.dcm").symlink_to("nowhere")
    for strict in (False, True):
        try:
            rows = read_images([tmp_path / "unl"], reader=VolumeReader("T1"), strict=strict)
            told = repr([*rows.skipped, *rows.warnings, *rows.names])
        except InputError as error:
            told = str(error)
            assert strict
        assert "patient-0001 has no series whose description contains 'T1'" in told or not strict
        assert "HOSP" not in told.upper() and "nobody" not in told.lower()


def test_labels_may_name_a_folder_that_is_not_written(tmp_path) -> None:
    make_patients(tmp_path / "unl", 4, 0.5, 0)
    shutil.move(tmp_path / "unl" / "case02", tmp_path / "unl" / "HOSP-4711")
    (tmp_path / "labels.csv").write_text("name,label\nHOSP-4711,1\ncase00,1\n")
    source = FolderSource(unlabelled=(str(tmp_path / "unl"),), labels=str(tmp_path / "labels.csv"))
    found = read_folders(source)
    assert found.labelled.tolist() == [True, True, False, False]  # capitals come first in the order of names
    assert found.train.names == ("patient-0001", "case00", "case01", "case03")


def test_no_patient_of_the_series_asked_for(tmp_path) -> None:
    make_patients(tmp_path / "unl", 3, 0.5, 100)
    with pytest.raises(InputError, match=r"^no series in \S+unl has a .* contains 'nosuch' \(there are: 'T1 AX'\)"):
        read_images([tmp_path / "unl"], reader=VolumeReader("nosuch"))


def test_only_a_training_is_told_to_choose_a_series(tmp_path) -> None:
    make_patients(tmp_path / "unl", 3, 0.5, 100)
    write_series(tmp_path / "unl" / "case01", scan(False, 9, slices=1), description="scout", names="SC{:04d}")
    rows = read_images([tmp_path / "unl"])
    assert "several series" in rows.warnings[0] and rows.warnings[0].endswith(": choose with --series.")
    again = read_images([tmp_path / "unl"], spec=rows.spec)  # as predict, which has no such option
    assert again.warnings[0].endswith(": as in the training, where fit --series chooses one.")
    chosen = read_images([tmp_path / "unl"], reader=VolumeReader("T1"))
    later = read_images([tmp_path / "unl"], spec=chosen.spec)
    assert not any("several series" in warning for warning in (*chosen.warnings, *later.warnings))


def test_patients_whose_slices_have_gaps_are_named(tmp_path) -> None:
    for name in ("whole", "gaps"):
        paths = write_series(tmp_path / "unl" / name, scan(False, 9, slices=8))
    paths[4].unlink()
    rows = read_images([tmp_path / "unl"])
    assert rows.warnings[0].startswith("1 patient has larger distances") and "(gaps lacks 1 of 8)" in rows.warnings[0]


def test_pictures_are_no_patients(tmp_path) -> None:
    make_patients(tmp_path / "unl", 3, 0.5, 100)
    spec = read_images([tmp_path / "unl"]).spec
    write_pictures(tmp_path / "pictures" / "inside", 3, 0.5)
    with pytest.raises(InputError, match="pictures holds images, but the model was trained on volumes"):
        read_images([tmp_path / "pictures"], spec=spec)


def test_volumes_none_of_which_can_be_read(tmp_path) -> None:
    for name in ("a.nii", "b.nii.gz"):
        (tmp_path / name).write_text("no volume")
    with pytest.raises(InputError, match=r"^none of the 2 patients in \S+ can be used \(a\.nii is a patient without"):
        read_images([tmp_path])
