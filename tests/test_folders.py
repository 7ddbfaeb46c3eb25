"""Folders of images: which files are found and in which order, and bad ones, none of which is lost silently."""

import csv
import json
import os
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import numpy as np
import pytest
from cli_tools import TINY, run_cli
from image_tools import break_in_place, picture, small_folders, write_pictures
from PIL import Image

from splitpu.data.images.folders import FolderSource, read_folders, read_images, read_labels
from splitpu.data.images.scan import find_images
from splitpu.errors import InputError

pytestmark = pytest.mark.usefixtures("cache")

Capture = pytest.CaptureFixture[str]


# -------------------------------------------------------------------------------------------------------------- folders


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
    for lines_before in ("name,label\n", "\n\nname,label\n", 'name,label,"said\nby"\n'):
        labels.write_text(f"{lines_before}a/image0000.png,maybe\n")
        with pytest.raises(InputError, match=f"line {lines_before.count(chr(10)) + 1} of"):
            read_labels(labels)


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


def test_too_many_bad_files_stop_the_run(tmp_path: Path, capsys: Capture) -> None:
    folders = small_folders(tmp_path)
    for path in sorted((tmp_path / "unl").iterdir())[:7]:
        path.write_bytes(b"")
    code, _, err = run_cli(capsys, "fit", *folders, "--prior", 0.6, "--out", tmp_path / "run", *TINY)
    assert code == 2 and "7 of 48 image files" in err and "10%" in err and not (tmp_path / "run").exists()


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


SPREADSHEETS = [
    "name;label\na, b.png;1\nc.png;\n",
    '"a, b.png",1\nc.png,0\n',
    "ward;name;label\nnorth;a, b.png;1\n;c.png;\n;;\n; ;\n",
]


@pytest.mark.parametrize("content", SPREADSHEETS)
def test_names_of_images_from_any_spreadsheet(tmp_path: Path, content: str) -> None:
    (tmp_path / "names.csv").write_text(content)
    assert read_labels(tmp_path / "names.csv") == [("a, b.png", True), ("c.png", False)]


@pytest.mark.parametrize(("on_disk", "in_list"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_names_that_look_the_same_are_the_same(
    tmp_path: Path, on_disk: Literal["NFC", "NFD"], in_list: Literal["NFC", "NFD"]
) -> None:
    write_pictures(tmp_path / "all", 4, 0.5)
    name = "s\xfcd/M\xfcller.png"
    file = tmp_path / "all" / normalize(on_disk, name)
    file.parent.mkdir()
    (tmp_path / "all" / "image0000.png").rename(file)
    names = tmp_path / "names.csv"
    for written in (name, f"all/{name}"):
        names.write_text(f"name,label\n{normalize(in_list, written)},1\nimage0001.png,1\n", encoding="utf-8")
        source = FolderSource(unlabelled=(str(tmp_path / "all"),), labels=str(names))
        assert read_folders(source).labelled.sum() == 2


def test_names_that_no_file_has_come_with_the_form_they_should_have(tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "all", 4, 0.5)
    for content, form in (("file|positive\n0000.png|1\n", "every line is"), ("file;positive\n0000.png;1\n", "write")):
        (tmp_path / "names.csv").write_text(content)
        _, _, err = run_cli(capsys, "fit", tmp_path / "all", "--labels", tmp_path / "names.csv", "--prior", 0.5)
        assert f"{form} name,label" in err


def test_files_to_judge_by_are_not_called_training_files(tmp_path: Path) -> None:
    write_pictures(tmp_path / "known", 4, 1.0)
    write_pictures(tmp_path / "others", 16, 0.5, seed=100)
    (tmp_path / "others" / "broken.png").write_bytes(b"")
    source = FolderSource(positives=(str(tmp_path / "known"),), unlabelled=(str(tmp_path / "others"),))
    trained = read_folders(source)
    judged = read_folders(source, spec=trained.train.spec)
    assert "1 training file was skipped" in trained.warnings[0] and "1 given file was skipped" in judged.warnings[0]


def test_folders_of_which_no_file_can_be_read(tmp_path: Path) -> None:
    for folder, count in (("one", 1), ("three", 3)):
        for path in write_pictures(tmp_path / folder, count, 1.0):
            path.write_text("no picture")
    with pytest.raises(InputError, match=r"^none of the image files in \S+one can be used \(image0000.png is not a"):
        read_images([tmp_path / "one"])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InputError, match=r"^none of the 3 image files in \S+three can be used"):
            read_images([tmp_path / "three"])


def test_the_tenth_that_may_be_bad_is_one_of_each_side(tmp_path: Path) -> None:
    positives = write_pictures(tmp_path / "pos", 12, 1.0)
    write_pictures(tmp_path / "unl", 88, 0.5, seed=1000)
    sides = {"positives": (str(tmp_path / "pos"),), "unlabelled": (str(tmp_path / "unl"),)}
    positives[0].write_bytes(b"")
    assert read_folders(FolderSource(**sides)).labelled.sum() == 11
    for path in positives[1:4]:
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"4 of 12 image files in \S+pos cannot be used"):
        read_folders(FolderSource(**sides))


def test_positives_that_a_list_names_and_that_cannot_be_read(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "all", 60, 0.5)
    labels = tmp_path / "names.csv"
    labels.write_text("".join(f"{path.name},1\n" for path in pictures[:12]))
    for path in pictures[:4]:
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"4 of 12 files named in \S+names.csv with label 1 cannot be used"):
        read_folders(FolderSource(unlabelled=(str(tmp_path / "all"),), labels=str(labels)))


def test_names_in_a_list_may_have_the_given_folder_in_front(tmp_path: Path) -> None:
    write_pictures(tmp_path / "scans", 3, 1.0)
    labels = tmp_path / "names.csv"
    source = FolderSource(unlabelled=(str(tmp_path / "scans"),), labels=str(labels))
    for name in ("scans/image0001.png", "./scans/image0001.png", f"{tmp_path}/scans/image0001.png"):
        labels.write_text(f"{name},1\n")
        assert read_folders(source).labelled.tolist() == [False, True, False]
    labels.write_text("others/image0001.png,1\n")
    with pytest.raises(InputError, match=r"others/image0001\.png\): .* such as image0000\.png\.$"):
        read_folders(source)
