"""One image file: its formats, sizes and orientations as pixels, and the cache they are kept in."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_tools import bomb, picture, write_pictures
from PIL import Image

from splitpu.data.images import cache as image_cache
from splitpu.data.images.decode import BadImage, Header, Headers, ImageSpec, choose_spec, decode, read_header
from splitpu.data.images.folders import read_images
from splitpu.engine.rows import FileRows
from splitpu.errors import DiskFull

pytestmark = pytest.mark.usefixtures("cache")


def spec_of(path: Path) -> ImageSpec:
    return choose_spec(Headers.collect([read_header(path)], 1))


# ------------------------------------------------------------------------------------------------------------ one image


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_lossless_formats_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(picture(True, 1)).save(path, **({"lossless": True} if suffix == "webp" else {}))
    assert spec_of(path) == ImageSpec(8, 8, 3, 8)
    np.testing.assert_array_equal(decode(path, spec_of(path)), picture(True, 1))


def test_jpeg_comes_back_nearly(tmp_path: Path) -> None:
    smooth = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=95)
    assert spec_of(tmp_path / "a.jpg").channels == 1
    assert np.abs(decode(tmp_path / "a.jpg", spec_of(tmp_path / "a.jpg"))[..., 0].astype(int) - smooth).max() < 6


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_kept(tmp_path: Path, suffix: str) -> None:
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000 + 7
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(deep).save(path)
    spec = spec_of(path)
    assert spec == ImageSpec(8, 8, 1, 16) and spec.dtype == np.float32
    np.testing.assert_array_equal(decode(path, spec)[..., 0], deep)
    as_bytes = decode(path, ImageSpec(8, 8, 3, 8))
    np.testing.assert_array_equal(as_bytes[..., 2], np.round(deep / 257))


def test_eight_bits_among_sixteen_are_put_on_the_same_scale(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.full((8, 8), 65535, np.uint16)).save(tmp_path / "b.png")
    rows = read_images([tmp_path])
    assert rows.spec.depth == 16 and rows.pixels.min() == rows.pixels.max() == 65535


def test_transparent_parts_are_laid_over_white(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:2, :, 3] = 255  # the upper half is black, the lower half is not there
    Image.fromarray(pixels).save(tmp_path / "a.png")
    decoded = decode(tmp_path / "a.png", spec_of(tmp_path / "a.png"))
    assert decoded.shape == (4, 4, 3) and (decoded[:2] == 0).all() and (decoded[2:] == 255).all()


def test_palettes_and_grey_with_alpha_and_two_levels(tmp_path: Path) -> None:
    colour = Image.fromarray(picture(True, 3))
    colour.convert("P").save(tmp_path / "p.png")
    colour.convert("LA").save(tmp_path / "la.png")
    colour.convert("1").save(tmp_path / "one.png")
    colour.convert("CMYK").save(tmp_path / "cmyk.jpg")
    assert [spec_of(tmp_path / name).channels for name in ("p.png", "la.png", "one.png", "cmyk.jpg")] == [3, 1, 1, 3]
    assert read_images([tmp_path]).pixels.shape == (4, 8, 8, 3)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_upright(tmp_path: Path, orientation: int, name: str) -> None:
    upright = np.arange(6 * 4, dtype=np.uint8).reshape(6, 4) * 10
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),  # is turned by 90 degrees clockwise for viewing
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / name, exif=exif, lossless=True)
    spec = spec_of(tmp_path / name)
    assert spec.shape[:2] == (6, 4)
    np.testing.assert_array_equal(decode(tmp_path / name, spec)[..., 0], upright)


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(BadImage, match="floating-point"):
        read_header(tmp_path / "a.tif")


def test_bomb(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(bomb())
    with pytest.raises(BadImage, match="million pixels"):
        read_header(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("sizes", "asked", "expected"),
    [
        ([(28, 28)] * 3, None, (28, 28)),
        ([(480, 640)] * 3, None, (96, 128)),
        ([(480, 640)] * 5000, None, (168, 224)),
        ([(480, 640), (640, 480)], None, (128, 128)),
        ([(480, 640), *[(640, 480)] * 4999], None, (224, 224)),
        ([(480, 640)] * 3, (224, 224), (224, 224)),
        ([(100, 200), (100, 110), (90, 90)], None, (96, 96)),
        ([(10, 20), (12, 12)], None, (32, 32)),
        ([(10, 20), (12, 12)], (48, 64), (48, 64)),
    ],
)
def test_size(sizes: list[tuple[int, int]], asked: tuple[int, int] | None, expected: tuple[int, int]) -> None:
    headers = [Header(bytes(32), height, width, False, 8) for height, width in sizes]
    spec = choose_spec(Headers.collect(headers, len(headers)), asked)
    assert (spec.height, spec.width) == expected


# ------------------------------------------------------------------------------------------------------------ the cache


def test_second_reading_decodes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "a", 5, 1.0)
    first = read_images([tmp_path / "a"])
    monkeypatch.setattr(image_cache, "read_headers", lambda *_: pytest.fail("files were read again"))
    second = read_images([tmp_path / "a"])
    assert isinstance(second.pixels, np.memmap) and second.names == first.names
    np.testing.assert_array_equal(first.pixels, second.pixels)


def test_touched_files_are_read_but_not_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_pictures(tmp_path / "a", 5, 1.0)
    first = read_images([tmp_path / "a"])
    os.utime(paths[0], (1, 1))
    monkeypatch.setattr(image_cache, "decode_all", lambda *_: pytest.fail("files were decoded again"))
    np.testing.assert_array_equal(read_images([tmp_path / "a"]).pixels, first.pixels)


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "a", 5, 1.0)
    read_images([tmp_path / "a"])
    Image.fromarray(picture(False, 77)).save(paths[2])
    np.testing.assert_array_equal(read_images([tmp_path / "a"]).pixels[2], picture(False, 77))


def test_damaged_cache_is_made_anew(tmp_path: Path, cache: Path) -> None:
    write_pictures(tmp_path / "a", 5, 1.0)
    first = np.array(read_images([tmp_path / "a"]).pixels)
    for pixels in cache.rglob("pixels.raw"):
        pixels.write_bytes(pixels.read_bytes()[:-1])
    np.testing.assert_array_equal(read_images([tmp_path / "a"]).pixels, first)


def test_cache_holds_no_names(tmp_path: Path, cache: Path) -> None:
    write_pictures(tmp_path / "Jane-Doe", 5, 1.0)
    read_images([tmp_path / "Jane-Doe"])
    for path in cache.rglob("*"):
        assert "Jane" not in path.name and (path.is_dir() or b"Jane" not in path.read_bytes())


def test_several_processes_give_the_same(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_pictures(tmp_path / "a", 70, 0.5)
    for number in range(7):
        paths[10 * number].write_bytes(b"")
    alone = read_images([tmp_path / "a"])
    monkeypatch.setenv("SPLITPU_CACHE", str(cache / "second"))
    monkeypatch.setattr("splitpu.data.images.cache.process_count", lambda *_: 2)
    together = read_images([tmp_path / "a"])
    assert together.files == alone.files and together.skipped == alone.skipped
    np.testing.assert_array_equal(together.pixels, alone.pixels)


READS_IN_TWO_PROCESSES = """
import time
from splitpu.data.images.cache import _mapped

def done(task):
    return ["done"]

if __name__ == "__main__":
    for found in _mapped(done, [(0, []), (1, [])], 2):
        print(*found, flush=True)
        time.sleep(60)
"""


def test_processes_end_when_the_command_is_killed(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS_IN_TWO_PROCESSES)
    program = [sys.executable, tmp_path / "reads.py"]
    command = subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True)
    assert command.stdout is not None and command.stdout.readline()
    command.kill()
    try:
        command.communicate(timeout=10)  # waits for all who could still write
    except subprocess.TimeoutExpired:
        os.killpg(command.pid, signal.SIGKILL)
        raise


def test_pixels_are_read_past_the_map_and_pages_given_back(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", 5, 1.0)
    pixels = read_images([tmp_path / "a"]).pixels
    # Memory that stays flat rests on both: rows come from the file itself, and whole passes give its pages back.
    assert FileRows.of(pixels) is not None
    assert isinstance(pixels, np.memmap) and pixels.mode == "r"


def test_a_cache_on_a_full_disk_is_called_that(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_pictures(tmp_path / "a", 3, 1.0)
    monkeypatch.setattr(image_cache, "_reserve", no_room)
    with pytest.raises(DiskFull, match=rf"^the disk is full: the cache folder {cache}/images could .* SPLITPU_CACHE"):
        read_images([tmp_path / "a"])
