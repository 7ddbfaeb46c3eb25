"""Folders of images: from files to an answer, and nothing lost silently on the way."""

import csv
import dataclasses
import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, run_cli
from image_tools import bomb, break_in_place, picture, small_folders, write_pictures
from PIL import Image
from rich.console import Console

from splitpu.cli.inputs import DataOptions, source_asked
from splitpu.cli.progress import BarDisplay
from splitpu.data import image_cache
from splitpu.data.folders import FolderSource, read_folders, read_images, read_labels
from splitpu.data.image_headers import Headers, choose_spec
from splitpu.data.images import BadImage, Header, ImageSpec, decode, read_header
from splitpu.data.scanning import find_images
from splitpu.engine.file_rows import FileRows
from splitpu.errors import InputError
from splitpu.runs.request import Source

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SPLITPU_CACHE", str(folder))
    return folder


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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_upright(tmp_path: Path, orientation: int) -> None:
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
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    spec = spec_of(tmp_path / "a.png")
    assert spec.shape == (6, 4, 1)
    np.testing.assert_array_equal(decode(tmp_path / "a.png", spec)[..., 0], upright)


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
    monkeypatch.setattr("splitpu.data.image_work.process_count", lambda *_: 2)
    together = read_images([tmp_path / "a"])
    assert together.files == alone.files and together.skipped == alone.skipped
    np.testing.assert_array_equal(together.pixels, alone.pixels)


# ------------------------------------------------------------------------------------------------------------ folders


def test_names_and_order(tmp_path: Path) -> None:
    write_pictures(tmp_path / "one" / "deep", 2, 1.0)
    write_pictures(tmp_path / "two", 1, 1.0)
    (tmp_path / "two" / ".hidden.png").write_bytes(b"")
    (tmp_path / "two" / "notes.txt").write_text("x")
    found = find_images([tmp_path / "two", tmp_path / "one"])
    assert [file.name for file in found.files] == [
        "two/image0000.png",
        "one/deep/image0000.png",
        "one/deep/image0001.png",
    ]
    assert [(entry.name, entry.bad) for entry in found.skipped] == [("two/notes.txt", False)]


def test_a_link_upwards_does_not_move_images_to_another_side(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pos", 2, 1.0)
    write_pictures(tmp_path / "unl", 3, 0.0)
    for name, target in (("up", ".."), ("across", "../unl"), ("self", ".")):
        os.symlink(target, tmp_path / "pos" / name)
    found = find_images([tmp_path / "pos", tmp_path / "unl"])
    assert [file.folder for file in found.files] == [0, 0, 1, 1, 1]
    assert [entry.name for entry in found.skipped] == ["pos/across", "pos/self", "pos/up"]


def test_overlapping_folders_are_refused(tmp_path: Path) -> None:
    write_pictures(tmp_path / "all" / "pos", 3, 1.0)
    source = FolderSource(positives=(str(tmp_path / "all" / "pos"),), unlabelled=(str(tmp_path / "all"),))
    with pytest.raises(InputError, match="lies inside"):
        read_folders(source)


def test_the_same_picture_on_both_sides_is_told(tmp_path: Path) -> None:
    pos, unl = write_pictures(tmp_path / "pos", 4, 1.0), write_pictures(tmp_path / "unl", 9, 0.5, seed=50)
    Image.open(pos[1]).save(tmp_path / "unl" / "copy.tif")  # the same pixels in another file format
    test = write_pictures(tmp_path / "tp", 2, 1.0, seed=90) + write_pictures(tmp_path / "tn", 2, 0.0, seed=95)
    test[3].write_bytes(unl[5].read_bytes())
    found = read_folders(
        FolderSource(
            positives=(str(tmp_path / "pos"),),
            unlabelled=(str(tmp_path / "unl"),),
            test=(str(tmp_path / "tp"), str(tmp_path / "tn")),
        )
    )
    assert found.duplicates == (("pos/image0001.png", "unl/copy.tif"), ("unl/image0005.png", "tn/image0001.png"))
    assert "pos/image0001.png = unl/copy.tif" in found.warnings[0] and "test" in found.warnings[1]


def test_label_file(tmp_path: Path) -> None:
    write_pictures(tmp_path / "all" / "a", 3, 1.0)
    write_pictures(tmp_path / "all" / "b", 3, 0.0, seed=9)
    labels = tmp_path / "names.csv"

    def labelled() -> list[bool]:
        source = FolderSource(unlabelled=(str(tmp_path / "all"),), labels=str(labels))
        return read_folders(source).labelled.tolist()

    labels.write_text("name,label\na/image0000.png,1\nb/image0002.png,1\nb/image0001.png,0\n")
    assert labelled() == [True, False, False, False, False, True]
    labels.write_text("a/image0000.png,1\n")
    assert labelled() == [True] + [False] * 5
    labels.write_text("name,label\nimage0000.png,1\n")
    with pytest.raises(InputError, match="2 images"):
        labelled()
    (tmp_path / "all" / "a" / "image0002.png").rename(tmp_path / "all" / "a" / "only.png")
    for second in ("a/only.png", "only.png"):
        labels.write_text(f"name,label\na/only.png,1\n{second},0\n")
        with pytest.raises(InputError, match=f"gives '{second}' both labels"):
            labelled()
    labels.write_text("name,label\nnobody.png,1\n")
    with pytest.raises(InputError, match=r"nobody\.png"):
        labelled()
    labels.write_text("name,label\na/image0000.png,maybe\n")
    with pytest.raises(InputError, match="line 2"):
        read_labels(labels)


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over folders, beside them."""
    from splitpu.cli import main

    place = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLITPU_CACHE", str(place / "cache"))
        words = ["fit", *small_folders(place), "--test", place / "test-pos", place / "test-neg"]
        words += ["--prior", 0.6, "--out", place / "run", "--quiet", *TINY]
        assert main([str(word) for word in words]) == 0
    return place


def test_fit_on_folders(trained: Path) -> None:
    result = json.loads((trained / "run" / "result.json").read_text())
    assert (result["rows"], result["labelled"], result["test_rows"], result["skipped_files"]) == (60, 12, 16, 0)
    split = list(csv.DictReader((trained / "run" / "split.csv").open()))
    assert split[0]["name"] == "unl/image0000.png"
    assert "unl/image0" in (trained / "run" / "report.html").read_text()
    assert not (trained / "run" / "skipped.csv").exists()
    model = json.loads((trained / "run" / "model.json").read_text())
    assert model["inputs"] == {"kind": "images", "height": 8, "width": 8, "channels": 3, "depth": 8}


def test_evaluate_and_info_of_a_run_on_folders(trained: Path, capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "evaluate", trained / "run", "--json")
    assert code == 0 and json.loads(out)["rows"] == 16
    code, out, _ = run_cli(capsys, "info", trained / "run", "--json")
    assert code == 0 and str(trained / "pos") in json.loads(out)["data"]


def test_predict_on_a_folder(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    new = write_pictures(tmp_path / "new", 20, 0.5, seed=4000)
    new[19].write_bytes(b"")
    out = tmp_path / "scores.csv"
    words = ["predict", trained / "run", tmp_path / "new", "--out", out, "--top", 3, "--copy-to", tmp_path / "look"]
    code, _, err = run_cli(capsys, *words)
    assert code == 0 and "image0019.png is empty" in err
    scores = list(csv.DictReader(out.open()))
    assert len(scores) == 19 and scores[0]["name"] == "image0000.png"
    assert "image0019.png" in (tmp_path / "scores.skipped.csv").read_text()
    best = max(scores, key=lambda line: float(line["probability"]))
    laid_out = sorted(path.name for path in (tmp_path / "look").iterdir())
    assert len(laid_out) == 3 and laid_out[0] == f"1_{float(best['probability']):.3f}_{best['name']}"
    assert (tmp_path / "look" / laid_out[0]).read_bytes() == (tmp_path / "new" / best["name"]).read_bytes()
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "not an empty folder" in err
    words[-1] = tmp_path / "links"
    assert run_cli(capsys, *words, "--link")[0] == 0
    assert all(path.is_symlink() and path.is_file() for path in (tmp_path / "links").iterdir())
    assert run_cli(capsys, "predict", trained / "run", tmp_path / "new", "--strict")[0] == 2


def test_scores_do_not_depend_on_the_way_in(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "new", 6, 0.5, seed=4000)
    pixels = np.stack([picture(number < 3, 4000 + number) for number in range(6)])
    np.savez(tmp_path / "new.npz", X=pixels)
    printed = [run_cli(capsys, "predict", trained / "run", tmp_path / way)[1] for way in ("new", "new.npz")]
    by_files, by_array = ([line["probability"] for line in csv.DictReader(text.split("\n"))] for text in printed)
    assert by_files == by_array


def test_a_resumed_run_reads_the_folders_again(tmp_path: Path, capsys: Capture) -> None:
    words = ["fit", *small_folders(tmp_path), "--prior", 0.6, "--out", tmp_path / "run", "--quiet", *TINY]
    assert run_cli(capsys, *words, "--size", "8x6")[0] == 0
    (tmp_path / "run" / "result.json").unlink()
    assert run_cli(capsys, "fit", "--resume", tmp_path / "run", "--quiet")[0] == 0
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "unl" / "image0003.png").unlink()
    code, _, err = run_cli(capsys, "fit", "--resume", tmp_path / "run", "--quiet")
    assert code == 2 and "changed since" in err


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        (["--positives", "pos"], "--unlabelled has to name"),
        (["--unlabelled", "unl"], "no image is labelled"),
        (["--positives", "nowhere", "--unlabelled", "unl"], "nowhere does not exist"),
        (["--positives", "pos", "--unlabelled", "unl/image0000.png"], "is not a folder"),
        (["--positives", "pos", "--unlabelled", "empty"], "there are no unlabelled PNG, JPEG, TIFF or WebP files in"),
        (["--positives", "empty", "--unlabelled", "unl"], "there are no labelled positive PNG"),
        (["--positives", "pos", "--unlabelled", "unl", "--test", "test-pos"], "two folders"),
        (["--positives", "pos", "--unlabelled", "unl", "--size", "big"], "--size big"),
        (["--positives", "pos", "--unlabelled", "unl", "--size", "1"], "out of range"),
        (["--positives", "pos", "--unlabelled", "unl", "--label", "s"], "for tables"),
        (["--positives", "pos", "--unlabelled", "unl", "--labels", "none.csv"], r"none\.csv"),
        (["digits", "--positives", "50", "--size", "8"], "for folders"),
        (["digits", "--positives", "1.5"], "1.5"),
    ],
)
def test_wrong_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], saying: str
) -> None:
    small_folders(tmp_path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    code, _, err = run_cli(capsys, "fit", *words, "--prior", 0.6, "--quiet", *TINY)
    assert code == 2 and err.startswith("splitpu: ") and err.count("\n") == 1, err
    assert saying.replace("\\", "") in err


# ------------------------------------------------------------------------------------------------------------ bad files


def test_a_thousand_images_of_which_fifty_are_broken(tmp_path: Path, capsys: Capture) -> None:
    pos, unl = write_pictures(tmp_path / "pos", 100, 1.0), write_pictures(tmp_path / "unl", 900, 0.4, seed=5000)
    broken = [*pos[3:100:10], *unl[7:900:22][:40]]
    assert len(broken) == 50
    for way, path in enumerate(broken):
        break_in_place(path, way)
    folders = ["--positives", tmp_path / "pos", "--unlabelled", tmp_path / "unl", "--prior", 0.5, "--quiet"]
    quick = ["--method", "nnpu", "--set", "base.epochs=1", "--set", "engine.threads=1"]
    code, _, err = run_cli(capsys, "fit", *folders, *quick, "--out", tmp_path / "run")
    assert code == 0 and "50 training files were skipped" in err, err
    listed = list(csv.DictReader((tmp_path / "run" / "skipped.csv").open()))
    assert sorted(line["name"] for line in listed) == sorted(str(path.relative_to(tmp_path)) for path in broken)
    assert all(line["why"] for line in listed)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["rows"], result["skipped_files"]) == (950, 50) and "50 training files" in result["warnings"][0]
    code, _, err = run_cli(capsys, "fit", *folders, *quick, "--strict", "--out", tmp_path / "strict")
    assert code == 2 and not (tmp_path / "strict").exists()
    assert err.count("\n") == 1 and "pos/image0003.png is empty" in err


def test_strict_names_the_first_bad_file_in_order(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "a", 40, 1.0)
    break_in_place(paths[20], 0)  # found at the first look
    Image.fromarray(picture(True, 1, side=64)).save(tmp_path / "whole.jpg")
    paths[10].write_bytes((tmp_path / "whole.jpg").read_bytes()[:-300])  # found only when it is decoded
    for _ in range(2):
        with pytest.raises(InputError, match=r"image0010\.png"):
            read_images([tmp_path / "a"], strict=True)
        assert len(read_images([tmp_path / "a"]).skipped) == 2


@pytest.mark.parametrize(("ways", "first"), [({10: 0, 20: 5}, 10), ({10: 5, 20: 0}, 10), ({10: 9, 11: 3}, 10)])
def test_strict_knows_the_first_whether_links_or_contents_are_bad(
    tmp_path: Path, ways: dict[int, int], first: int
) -> None:
    paths = write_pictures(tmp_path / "a", 40, 1.0)
    for number, way in ways.items():
        break_in_place(paths[number], way)
    with pytest.raises(InputError, match=rf"image00{first}\.png"):
        read_images([tmp_path / "a"], strict=True)


def test_a_bar_that_is_broken_off_gives_the_cursor_back(capsys: Capture) -> None:
    display = BarDisplay()
    display._live.console = Console(stderr=True, force_terminal=True)
    with suppress(InputError), display.watching() as watch:
        watch("decoding", 1, 2)
        raise InputError("x")
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    err = capsys.readouterr().err
    assert hidden in err and err.rindex(shown) > err.rindex(hidden)


def test_too_many_bad_files_stop_the_run(tmp_path: Path, capsys: Capture) -> None:
    folders = small_folders(tmp_path)
    for path in sorted((tmp_path / "unl").iterdir())[:7]:
        path.write_bytes(b"")
    code, _, err = run_cli(capsys, "fit", *folders, "--prior", 0.6, "--out", tmp_path / "run", *TINY)
    assert code == 2 and "7 of 60 image files" in err and "10%" in err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["digits", "--positives", "5000"], ["--positives", "5000", "digits"]])
def test_a_number_of_positives_is_still_understood(capsys: Capture, words: list[str]) -> None:
    code, _, err = run_cli(capsys, "fit", *words, "--quiet")
    assert code == 2 and "positives=5000 is too many" in err


def test_a_folder_may_be_called_like_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "50", 2, 1.0)
    write_pictures(tmp_path / "unl", 2, 1.0)
    monkeypatch.chdir(tmp_path)
    asked = DataOptions(positives=["50"], unlabelled=["unl"])
    source = source_asked(asked, seed=0, scenario="case-control")
    assert source.folders is not None and source.folders.positives == (str(tmp_path / "50"),)
    assert Source.from_dict(json.loads(json.dumps(dataclasses.asdict(source)))) == source


def test_pixels_are_read_past_the_map_and_pages_given_back(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", 5, 1.0)
    pixels = read_images([tmp_path / "a"]).pixels
    # Memory that stays flat rests on both: rows come from the file itself, and whole passes give its pages back.
    assert FileRows.of(pixels) is not None
    assert isinstance(pixels, np.memmap) and pixels.mode == "r"


def test_gaps_that_bad_files_leave_are_closed(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "a", 60, 1.0)
    whole = np.array(read_images([tmp_path / "a"]).pixels)
    bad = [0, 7, 8, 58]
    for position in bad:  # good at the first look, broken when decoded
        Image.fromarray(picture(True, 1, side=64)).save(paths[position], "JPEG")
        paths[position].write_bytes(paths[position].read_bytes()[:-300])
    found = read_images([tmp_path / "a"], size=(8, 8))
    assert [entry.name for entry in found.skipped] == [paths[position].name for position in bad]
    np.testing.assert_array_equal(found.pixels, np.delete(whole, bad, axis=0))
    assert len(found.checksums) == len(found.files) == 56


def test_files_of_other_kinds_are_told(tmp_path: Path, capsys: Capture) -> None:
    folders = small_folders(tmp_path)
    for number in range(3):
        Image.fromarray(picture(True, number)).save(tmp_path / "unl" / f"{number}.bmp")
    (tmp_path / "unl" / "notes").write_text("x")
    quick = ["--prior", 0.6, "--method", "nnpu", "--set", "base.epochs=1", "--out", tmp_path / "run"]
    code, _, err = run_cli(capsys, "fit", *folders, *quick)
    assert code == 0 and "3 .bmp, 1 without ending" in err and "skipped.csv lists every file" in err
    assert "data: 12 labelled and 48 unlabelled rows; 8 x 8 x 3 pixels and channels\n" in err
    for path in (tmp_path / "unl").glob("*.png"):
        path.unlink()
    with pytest.raises(InputError, match=r"only 3 \.bmp, 1 without ending: give the folders"):
        read_images([tmp_path / "unl"])


def test_sizes_are_told(tmp_path: Path, capsys: Capture) -> None:
    folders = small_folders(tmp_path)
    Image.new("RGB", (1, 3000)).save(tmp_path / "unl" / "tall.png")
    Image.new("RGB", (1, 1)).save(tmp_path / "unl" / "dot.PNG")
    quick = [
        "--prior",
        0.6,
        "--method",
        "nnpu",
        "--set",
        "base.epochs=1",
        "--backbone",
        "mlp",
        "--out",
        tmp_path / "run",
    ]
    for _ in range(2):  # the cache remembers it
        code, _, err = run_cli(capsys, "fit", *folders, *quick)
        assert code == 0 and "32 x 32 x 3 pixels and channels, made from images of 1 x 1 to 3000 x 8" in err
        quick[-1] = tmp_path / "second"


@pytest.mark.parametrize("name", ["a b", "ü✓", "new\nline", "[red]x", "-x", "50%", "c\udcff"])
def test_folders_and_files_of_any_name(tmp_path: Path, capsys: Capture, name: str) -> None:
    write_pictures(tmp_path / name / "pos", 4, 1.0)
    write_pictures(tmp_path / name / "unl", 12, 0.5, seed=100)
    (tmp_path / name / "unl" / "image0000.png").rename(tmp_path / name / "unl" / f"{name}.png")
    (tmp_path / name / "unl" / "image0001.png").write_bytes(b"")
    words = ["--positives", tmp_path / name / "pos", "--unlabelled", tmp_path / name / "unl", "--out", tmp_path / "run"]
    quick = ["--prior", 0.6, "--set", "rounds=1", *TINY]
    code, _, err = run_cli(capsys, "fit", *words, *quick)
    assert code == 0, err
    with (tmp_path / "run" / "scores.csv").open(newline="") as file:
        names = [line["name"] for line in csv.DictReader(file)]
    assert len(names) == 15 and any(name.replace("\udcff", "\\xff") in one for one in names)
    assert run_cli(capsys, "predict", tmp_path / "run", tmp_path / name / "unl", "--out", tmp_path / "s.csv")[0] == 0


def test_the_same_folder_twice(tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "pos", 4, 1.0)
    (tmp_path / "link").symlink_to(tmp_path / "pos")
    for other in ("pos", "link", "../" + tmp_path.name + "/pos"):
        words = ["--positives", tmp_path / "pos", "--unlabelled", tmp_path / other, "--prior", 0.5]
        code, _, err = run_cli(capsys, "fit", *words)
        assert code == 2 and "same folder" in err and err.count("\n") == 1
