"""Folders of images on the command line: from files to an answer, whatever the folders are called."""

import csv
import dataclasses
import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_do, run_cli
from image_tools import picture, small_folders, write_pictures
from PIL import Image
from rich.console import Console

from splitpu.cli.inspect import ToReview, lay_out
from splitpu.cli.options import DataOptions, source_asked
from splitpu.cli.progress import BarDisplay
from splitpu.errors import InputError
from splitpu.runs.request import Source

pytestmark = pytest.mark.usefixtures("cache")

Capture = pytest.CaptureFixture[str]


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
        (["digits", "--positives", "pos"], "digits is a named set, but --positives pos is not a number"),
        (["rows.npz", "--positives", "pos"], "rows.npz is a file, and --positives names folders"),
        (["rows.npz", "--unlabelled", "unl"], "rows.npz is a file, and --unlabelled names folders"),
        (["digits", "--positives", "1.5"], "1.5"),
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
