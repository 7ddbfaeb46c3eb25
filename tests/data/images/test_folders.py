"""Folders of images: which files are found and in which order, and bad ones, none of which is lost silently.

Folders of images on the command line: from files to an answer, whatever the folders are called.
"""

import csv
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import numpy as np
import pytest
from cli_tools import TINY, must_do, run_cli
from image_tools import break_in_place, picture, small_folders, write_pictures
from PIL import Image
from rich.console import Console

from splitpu.cli.inspect import ToReview, lay_out
from splitpu.cli.options import DataWords
from splitpu.cli.progress import BarDisplay
from splitpu.data.images.decode import Header, Headers, choose_spec
from splitpu.data.images.folders import FolderSource, parse_size, read_folders, read_images, read_labels
from splitpu.data.images.scan import Skipped, find_images, skipped_in_words
from splitpu.data.sources import parse_source, source_from_dict
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
        return read_folders(source).data.labelled.tolist()

    labels.write_text("name,label\na/image0000.png,1\nb/image0002.png,1\nb/image0001.png,0\n")
    assert labelled() == [True, False, False, False, False, True]
    labels.write_text("a/image0000.png,1\na/image0002.png,1\n")
    assert labelled() == [True, False, True] + [False] * 3
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
        assert read_folders(source).data.labelled.sum() == 2


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
    judged = read_folders(source, spec=read_images([tmp_path / "known"]).spec)
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
    assert read_folders(FolderSource(**sides)).data.labelled.sum() == 11
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
        labels.write_text(f"{name},1\nimage0002.png,1\n")
        assert read_folders(source).data.labelled.tolist() == [False, True, True]
    labels.write_text("others/image0001.png,1\n")
    with pytest.raises(InputError, match=r"others/image0001\.png\): .* such as image0000\.png\.$"):
        read_folders(source)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over folders, beside them."""
    place = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLITPU_CACHE", str(place / "cache"))
        words = ["fit", *small_folders(place), "--test", place / "test-pos", place / "test-neg"]
        words += ["--prior", 0.6, "--out", place / "run", "--quiet", *TINY]
        must_do(*words)
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


def test_a_list_of_skipped_files_goes_with_its_scores(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    new, listing = write_pictures(tmp_path / "new", 12, 0.5, seed=4000), tmp_path / "scores.skipped.csv"
    whole = new[3].read_bytes()
    new[3].write_bytes(b"")
    words = ["predict", trained / "run", tmp_path / "new", "--out", tmp_path / "scores.csv"]
    assert run_cli(capsys, *words)[0] == 0 and listing.exists()
    new[3].write_bytes(whole)
    assert run_cli(capsys, *words)[0] == 0 and not listing.exists()
    listing.write_text("a list of somebody else\n")
    assert run_cli(capsys, *words)[0] == 0 and listing.exists()


def test_samples_with_long_names_in_any_letters_are_laid_out(tmp_path: Path) -> None:
    name = f"{'文' * 60}/{'字' * 70}.png"
    source = tmp_path / "picture.png"
    source.write_bytes(b"picture")
    assert lay_out(tmp_path / "look", [ToReview(str(source), name, 0.5)], link=False) == 1
    [laid] = (tmp_path / "look").iterdir()
    assert laid.name.startswith("1_0.500_文") and laid.name.endswith(f"__{'字' * 70}.png")
    assert 250 < len(os.fsencode(laid.name)) <= 255


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
    assert run_cli(capsys, "resume", tmp_path / "run", "--quiet")[0] == 0
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "unl" / "image0003.png").unlink()
    code, _, err = run_cli(capsys, "resume", tmp_path / "run", "--quiet")
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
        (["digits", "--labelled", "50", "--size", "8"], "for folders"),
        (
            ["digits", "--positives", "pos"],
            "digits is a named set, which --positives does not go with: say with --labelled 50",
        ),
        (["rows.npz", "--positives", "pos"], "rows.npz is a file, and --positives names folders"),
        (["rows.npz", "--unlabelled", "unl"], "rows.npz is a file, and --unlabelled names folders"),
        (["digits", "--labelled", "1.5"], "1.5"),
    ],
)
def test_wrong_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], saying: str
) -> None:
    small_folders(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.npz").touch()
    monkeypatch.chdir(tmp_path)
    code, _, err = run_cli(capsys, "fit", *words, "--prior", 0.6, "--quiet", *TINY)
    assert code == 2 and err.startswith("splitpu: ") and err.count("\n") == 1, err
    assert saying.replace("\\", "") in err


def test_a_bar_that_is_broken_off_gives_the_cursor_back(capsys: Capture) -> None:
    display = BarDisplay()
    display._live.console = Console(stderr=True, force_terminal=True)
    with suppress(InputError), display.watching() as watch:
        watch("decoding", 1, 2)
        raise InputError("x")
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    err = capsys.readouterr().err
    assert hidden in err and err.rindex(shown) > err.rindex(hidden)


# ------------------------------------------------------------------------------------------------------ names and sizes


@pytest.mark.parametrize("words", [["digits", "--positives", "50"], ["--positives", "50", "digits"]])
def test_a_number_is_not_taken_for_a_folder(capsys: Capture, words: list[str]) -> None:
    code, _, err = run_cli(capsys, "fit", *words, "--quiet")
    assert code == 2 and "--positives 50 names no folder or file" in err and "give --labelled 50." in err


def test_a_folder_may_be_called_like_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "50", 2, 1.0)
    write_pictures(tmp_path / "unl", 2, 1.0)
    monkeypatch.chdir(tmp_path)
    asked = DataWords(positives=["50"], unlabelled=["unl"])
    source = parse_source(asked.as_words(scenario="case-control"))
    assert isinstance(source, FolderSource) and source.positives == (str(tmp_path / "50"),)
    assert source_from_dict(json.loads(json.dumps(source.to_dict()))) == source


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
    shown = name.replace("\udcff", "\\xff").replace("\n", "\\n")
    assert len(names) == 15 and any(shown in one for one in names)
    assert run_cli(capsys, "predict", tmp_path / "run", tmp_path / name / "unl", "--out", tmp_path / "s.csv")[0] == 0


def test_the_same_folder_twice(tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "pos", 4, 1.0)
    (tmp_path / "link").symlink_to(tmp_path / "pos")
    for other in ("pos", "link", "../" + tmp_path.name + "/pos"):
        words = ["--positives", tmp_path / "pos", "--unlabelled", tmp_path / other, "--prior", 0.5]
        code, _, err = run_cli(capsys, "fit", *words)
        assert code == 2 and "same folder" in err and err.count("\n") == 1


def test_choose_spec_in_short() -> None:
    photo, thumbnail = Header(bytes(32), 480, 640, False, 8), Header(bytes(32), 100, 90, True, 8)
    assert [choose_spec(Headers.collect(some, len(some))).shape for some in ([photo], [photo, thumbnail])] == [
        (96, 128, 3),
        (128, 128, 3),
    ]


def test_parse_size_in_short() -> None:
    assert (parse_size("64"), parse_size("48x64")) == ((64, 64), (48, 64))


def test_skipped_in_words_in_short() -> None:
    assert skipped_in_words([Skipped("a.png", "is empty")], "test") == ["1 test file was skipped: a.png is empty."]
