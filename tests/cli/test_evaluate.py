"""`prior` and `evaluate` on folders, tables and .npy files: the words of `fit`, in the form of the training data."""

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_do, run_cli, tiny_arrays, write_npz
from fault_tools import forge
from image_tools import small_folders, write_pictures
from PIL import Image

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over folders, one over .npy files and one over a table, beside their data."""
    folder = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLITPU_CACHE", str(folder / "cache"))
        write_arrays(folder)
        images = small_folders(folder)
        arrays = ["--positives", folder / "p.npy", "--unlabelled", folder / "u.npy"]
        table = [folder / "t.csv", "--label", "state", "--positive-label", "ill"]
        for name, words in (("images", images), ("arrays", arrays), ("table", table)):
            words = ["fit", *words, "--prior", 0.5, "--quiet", "--out", folder / f"{name}-run", *TINY]
            must_do(*words)
    return folder


@pytest.fixture(autouse=True)
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of the runs."""
    monkeypatch.setenv("SPLITPU_CACHE", str(place / "cache"))


def write_arrays(folder: Path) -> None:
    """The same rows as .npy files and as tables."""
    arrays = tiny_arrays()
    labelled, truth = arrays["s"] == 1, arrays["y_test"] == 1
    np.save(folder / "p.npy", arrays["X"][labelled])
    np.save(folder / "u.npy", arrays["X"][~labelled])
    np.save(folder / "tp.npy", arrays["X_test"][truth])
    np.save(folder / "tn.npy", arrays["X_test"][~truth])
    write_table(folder / "t.csv", arrays["X"], np.where(labelled, "ill", ""))
    write_table(folder / "test.csv", arrays["X_test"], np.where(truth, "ill", "well"))


def write_table(path: Path, rows: Any, states: Any) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{number}" for number in range(rows.shape[1])), "state"])
        writer.writerows([*row.tolist(), state] for row, state in zip(rows, states, strict=True))


def evaluated(capsys: Capture, *words: object) -> dict[str, Any]:
    code, out, err = run_cli(capsys, "evaluate", *words, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capsys: Capture, *words: object) -> str:
    code, out, err = run_cli(capsys, *words)
    assert code == 2 and out == "" and err.startswith("splitpu: ") and err.count("\n") == 1, err
    return err


# ------------------------------------------------------------------------------------------------------- with the truth


def test_test_folders_arrays_and_tables(place: Path, capsys: Capture) -> None:
    images = evaluated(capsys, place / "images-run", "--test", place / "test-pos", place / "test-neg")
    assert images["rows"] == 16 and {model["model"] for model in images["models"]} == {"base", "final"}
    arrays = evaluated(capsys, place / "arrays-run", "--test", place / "tp.npy", place / "tn.npy")
    table = evaluated(capsys, place / "table-run", "--test", place / "test.csv")
    assert arrays["rows"] == table["rows"] == 40
    assert arrays["models"][1]["accuracy"] > 0.9 and table["models"][1]["accuracy"] > 0.9


def test_endings_in_capitals(place: Path, tmp_path: Path, capsys: Capture) -> None:
    arrays = tiny_arrays()
    np.savez(tmp_path / "test.npz", X_test=arrays["X_test"], y_test=arrays["y_test"])
    (tmp_path / "test.npz").rename(tmp_path / "TEST.NPZ")
    shutil.copy(place / "tp.npy", tmp_path / "TP.NPY")
    assert evaluated(capsys, place / "arrays-run", tmp_path / "TEST.NPZ")["rows"] == 40
    assert evaluated(capsys, place / "arrays-run", "--test", tmp_path / "TP.NPY", place / "tn.npy")["rows"] == 40
    assert "does not say which rows are labelled" in refused(capsys, "fit", tmp_path / "TP.NPY")
    assert "NO.NPZ does not exist" in refused(capsys, "fit", tmp_path / "NO.NPZ")


def test_positives_and_negatives_are_not_mixed_up(place: Path, capsys: Capture) -> None:
    one, other = (
        evaluated(capsys, place / "arrays-run", "--test", place / first, place / second)["models"][1]["roc_auc"]
        for first, second in (("tp.npy", "tn.npy"), ("tn.npy", "tp.npy"))
    )
    assert one == pytest.approx(1 - other) and one > 0.9


def test_swapped_truth_is_noticed(place: Path, tmp_path: Path, capsys: Capture) -> None:
    for first, second, noticed in (("tp.npy", "tn.npy", False), ("tn.npy", "tp.npy", True)):
        _, _, err = run_cli(capsys, "evaluate", place / "arrays-run", "--test", place / first, place / second)
        assert ("are the labels swapped? --test takes the positives first" in err) == noticed
    swapped = write_npz(tmp_path / "swapped.npz", y_test=1 - tiny_arrays()["y_test"])
    words = ["fit", swapped, "--prior", 0.5, "--rounds", 0, "--json", "--quiet", "--out", tmp_path / "run", *TINY]
    _, out, err = run_cli(capsys, *words)
    assert "are the labels swapped?" in err and any("swapped" in one for one in json.loads(out)["warnings"])


def test_how_a_table_is_read_is_said(place: Path, capsys: Capture) -> None:
    """Its label column may be the truth, which nothing in it tells."""
    _, _, err = run_cli(capsys, "evaluate", place / "table-run", place / "test.csv")
    assert "test.csv is read as labelled and unlabelled rows: by its column 'state', 20 are labelled positive" in err
    assert "give the table as --test" in err
    _, _, err = run_cli(capsys, "evaluate", place / "table-run", "--test", place / "test.csv")
    assert "is read as" not in err


def test_test_images_of_another_size_are_brought_into_the_form_of_the_model(
    place: Path, tmp_path: Path, capsys: Capture
) -> None:
    for name, share in (("pos", 1.0), ("neg", 0.0)):
        for path in write_pictures(tmp_path / name, 4, share, seed=7000):
            Image.open(path).resize((20, 12)).convert("L").save(path)
    (tmp_path / "neg" / "image0003.png").write_bytes(b"")
    (tmp_path / "neg" / "notes.txt").write_text("x")
    for number in range(20):
        Image.new("L", (8, 8), number).save(tmp_path / "neg" / f"more{number}.png")
    words = [place / "images-run", "--test", tmp_path / "pos", tmp_path / "neg"]
    code, out, err = run_cli(capsys, "evaluate", *words, "--json")
    assert code == 0 and json.loads(out)["rows"] == 27
    assert "neg/image0003.png is empty" in err and "1 .txt" in err


# ----------------------------------------------------------------------------------------------------- rows seen before


def told_of(capsys: Capture, *words: object) -> list[str]:
    """What is said of rows that the run was trained on."""
    code, _, err = run_cli(capsys, "evaluate", *words)
    assert code == 0, err
    return [line for line in err.splitlines() if "training rows of this model" in line]


def test_files_of_the_training_are_not_taken_for_new_ones(place: Path, tmp_path: Path, capsys: Capture) -> None:
    run, negative = place / "images-run", place / "test-neg"
    own = json.loads((run / "request.json").read_text())["source"]["folders"]
    known, others = Path(own["positives"][0]), own["unlabelled"][0]
    count = len(list(known.iterdir()))
    (said,) = told_of(capsys, run, "--test", known, negative)
    assert f"{count} of the {count} images in {known} are training rows" in said and str(negative) not in said
    shutil.copytree(place / "test-pos", tmp_path / "mixed")
    for number, path in enumerate(sorted(known.iterdir())[:2]):
        shutil.copy(path, tmp_path / "mixed" / f"copy{number}.png")
    (tmp_path / "linked").symlink_to(known)
    (said,) = told_of(capsys, run, "--positives", tmp_path / "mixed", "--unlabelled", negative)
    assert f"note: 2 of the 10 images in {tmp_path / 'mixed'} are training rows" in said
    (said,) = told_of(capsys, run, "--test", tmp_path / "linked", negative)
    assert f"{count} of the {count} images" in said
    assert told_of(capsys, run, "--test", place / "test-pos", negative) == []
    code, _, err = run_cli(capsys, "evaluate", run, "--positives", known, "--unlabelled", others)
    assert code == 2 and "no figures without known truth" in err


def test_rows_of_the_training_are_not_taken_for_new_ones(place: Path, tmp_path: Path, capsys: Capture) -> None:
    arrays = tiny_arrays()
    half = np.arange(len(arrays["X"])) % 2 == 0
    write_table(tmp_path / "half.csv", arrays["X"][half], np.where(arrays["s"][half] == 1, "ill", "well"))
    labelled = int(arrays["s"][half].sum())
    (said,) = told_of(capsys, place / "table-run", "--test", tmp_path / "half.csv")
    assert f"{labelled} of the {labelled} given positives and {40 - labelled} of the {40 - labelled} given neg" in said
    (said,) = told_of(capsys, place / "arrays-run", "--test", place / "p.npy", place / "tn.npy")
    assert "given positives are training rows" in said and "negatives" not in said
    np.savez(tmp_path / "new.npz", X=arrays["X"], s=np.roll(arrays["s"], 1))
    assert "unlabelled rows are training rows" in told_of(capsys, place / "arrays-run", tmp_path / "new.npz")[0]
    assert told_of(capsys, place / "table-run", "--test", place / "test.csv") == []
    assert told_of(capsys, place / "arrays-run", "--test", place / "tp.npy", place / "tn.npy") == []


def _moved(before: str, after: str, request: dict[str, Any]) -> Any:
    return json.loads(json.dumps(request).replace(before, after))


def test_runs_whose_training_rows_are_gone_can_be_judged(place: Path, tmp_path: Path, capsys: Capture) -> None:
    for name in ("images", "arrays"):
        shutil.copytree(place / f"{name}-run", tmp_path / name)
        forge(tmp_path / name / "request.json", lambda request: _moved(str(place), str(place / "gone"), request))
    assert told_of(capsys, tmp_path / "images", "--test", place / "test-pos", place / "test-neg") == []
    assert told_of(capsys, tmp_path / "arrays", "--test", place / "p.npy", place / "tn.npy") == []


# ---------------------------------------------------------------------------------------------------- without the truth


def test_estimates_from_labelled_and_unlabelled_rows(place: Path, capsys: Capture) -> None:
    sides = ["--positives", place / "test-pos", "--unlabelled", place / "test-neg"]
    images = evaluated(capsys, place / "images-run", *sides)
    arrays = evaluated(capsys, place / "arrays-run", "--positives", place / "tp.npy", "--unlabelled", place / "u.npy")
    assert (images["rows"], arrays["rows"]) == (16, 86)
    assert all("truth" in found["note"] for found in (images, arrays))
    assert list(arrays["figures"])[:5] == ["roc_auc", "accuracy", "f1", "precision", "recall"]
    assert arrays["figures"]["accuracy"]["always_negative"] == 0.5 and arrays["figures"]["accuracy"]["naive"] is None


def test_rows_that_a_network_was_trained_on_give_no_figures(place: Path, capsys: Capture) -> None:
    for words in (["table-run", "t.csv"], ["table-run"], ["arrays-run"], ["images-run"]):
        said = refused(capsys, "evaluate", *(place / word for word in words))
        assert "trained on all labelled rows" in said and "--set selection.held_out=0.2" in said


def test_prior_from_folders_arrays_and_tables(place: Path, tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "pos", 30, 1.0)
    write_pictures(tmp_path / "unl", 90, 0.4, seed=500)
    (tmp_path / "unl" / "image0007.png").write_bytes(b"x")
    ways = (
        ["--positives", tmp_path / "pos", "--unlabelled", tmp_path / "unl"],
        ["--positives", place / "p.npy", "--unlabelled", place / "u.npy"],
        [place / "t.csv", "--label", "state", "--positive-label", "ill"],
    )
    values = []
    for words in ways:
        code, out, err = run_cli(capsys, "prior", *words, "--json")
        assert code == 0, err
        values.append(json.loads(out)["value"])
        assert ("image0007.png" in err) == (words is ways[0])
    assert all(0.2 < value < 0.8 for value in values), values
    assert values[1] == pytest.approx(values[2], abs=0.1)  # the same rows in another order


# --------------------------------------------------------------------------------------------------------- .npy and fit


def test_predict_one_image(place: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "predict", place / "images-run", place / "unl" / "image0003.png")
    assert code == 0, err
    _, all_of_them, _ = run_cli(capsys, "predict", place / "images-run", place / "unl")
    (alone,), among = (list(csv.DictReader(text.splitlines())) for text in (out, all_of_them))
    same = next(line for line in among if line["name"] == alone["name"] == "image0003.png")
    assert float(alone["probability"]) == pytest.approx(float(same["probability"]), abs=1e-4)
    (tmp_path / "x.png").write_bytes(b"")
    assert "is empty" in refused(capsys, "predict", place / "images-run", tmp_path / "x.png")


def test_npy_files_give_the_rows_their_names(place: Path) -> None:
    with (place / "arrays-run" / "scores.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines if line["labelled"] == "1"] == [f"p.npy:{row}" for row in range(14)]
    assert lines[14]["name"] == "u.npy:0" and len(lines) == 80


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        (["fit", "--positives", "p.npy"], "--unlabelled is missing"),
        (["fit", "u.npy"], "give .npy files as --positives and --unlabelled"),
        (["fit", "--positives", "p.npy", "--unlabelled", "unl"], "either arrays or folders"),
        (["fit", "--positives", "p.npy", "--unlabelled", "none.npy"], "does not exist"),
        (["fit", "--positives", "p.npy", "--unlabelled", "u.npy", "./p.npy"], "p.npy is given twice"),
        (["fit", "--positives", "p.npy", "--unlabelled", "wide.npy"], "make all in the same way"),
        (["fit", "--positives", "p.npy", "--unlabelled", "u.npy", "--test", "tp.npy"], "two .npy files"),
        (["fit", "--positives", "p.npy", "--unlabelled", "u.npy", "--size", "8"], "for folders of images"),
        (["prior", "--positives", "p.npy", "--unlabelled", "u.npy", "--test", "p.npy", "u.npy"], "--test is for fit"),
        (["prior"], "needs DATA"),
        (["evaluate", "arrays-run", "--test", "tp.npy"], "two folders or .npy files"),
        (["evaluate", "arrays-run", "--test", "test-pos", "test-neg"], "trained on rows of 4 features"),
        (["evaluate", "arrays-run", "--test", "test.csv"], "--label"),
        (["evaluate", "table-run", "t.csv", "--test", "test.csv"], "leave out DATA"),
        (["evaluate", "table-run", "--test", "test.csv", "--label", "kind"], "no column 'kind'"),
        (["evaluate", "images-run", "--test", "tp.npy", "tn.npy"], "trained on images"),
        (["evaluate", "images-run", "unl"], "give --test POSITIVES NEGATIVES"),
        (["fit", "unl/image0000.png"], "is one image"),
        (
            ["fit", "--positives", "pos", "--unlabelled", "unl", "--backbone", "resnet", "--quiet"],
            "did you mean 'resnet18'",
        ),
        (["fit", "--positives", "pos", "--unlabelled", "unl", "--quiet", "--weights", "none.pth"], "no file none.pth"),
        (["predict", "arrays-run", "unl/image0000.png"], "unl/image0000.png: give it arrays"),
        (["predict", "images-run", "none.png"], "does not exist"),
        (["predict", "images-run", "unl", "--out", "unl"], "is a folder: name a file"),
    ],
)
def test_wrong_words(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], saying: str
) -> None:
    monkeypatch.chdir(place)
    np.save("wide.npy", np.zeros((30, 9)))
    before = set(os.listdir(place))
    monkeypatch.setattr("splitpu.cli.train.prior_for", lambda *_, **__: pytest.fail("refused only after the prior"))
    assert saying in refused(capsys, *words)
    assert set(os.listdir(place)) == before


def test_test_rows_that_are_trained_on_are_told_of_by_fit_as_well(place: Path, tmp_path: Path, capsys: Capture) -> None:
    arrays = tiny_arrays()
    known, rest = arrays["X"][arrays["truth"]][:20], arrays["X_test"][arrays["y_test"] == 0]
    np.save(tmp_path / "tp.npy", known)
    np.savez(tmp_path / "a.npz", **arrays | {"X_test": np.r_[known, rest], "y_test": np.r_[[1] * 20, [0] * len(rest)]})
    write_table(tmp_path / "test.csv", np.r_[known, rest], ["ill"] * 20 + ["well"] * len(rest))
    sides = ["--positives", place / "p.npy", "--unlabelled", place / "u.npy"]
    table = [place / "t.csv", "--label", "state", "--positive-label", "ill"]
    quick = ["--prior", 0.5, "--quiet", "--rounds", 0, *TINY]
    for number, words in enumerate(
        (
            [tmp_path / "a.npz"],
            [*sides, "--test", tmp_path / "tp.npy", place / "tn.npy"],
            [*table, "--test", tmp_path / "test.csv"],
        )
    ):
        _, _, err = run_cli(capsys, "fit", *words, "--out", tmp_path / str(number), *quick)
        assert "20 of the 40 test rows are also training rows, so the test figures flatter" in err
    _, _, err = run_cli(capsys, "fit", *table, "--test", place / "test.csv", "--out", tmp_path / "new", *quick)
    assert "training rows" not in err


@pytest.mark.parametrize(("run", "moved"), [("images-run", "unl"), ("arrays-run", "p.npy"), ("table-run", "t.csv")])
def test_data_that_are_no_longer_there_are_not_called_mistyped(
    place: Path, capsys: Capture, run: str, moved: str
) -> None:
    (place / moved).rename(place / "elsewhere")
    try:
        said = [refused(capsys, command, place / run) for command in ("evaluate", "sensitivity")]
    finally:
        (place / "elsewhere").rename(place / moved)
    assert all(f"are no longer at {place / moved}: put them back there" in one for one in said)
    assert "or give other rows to judge by" in said[0] and "other rows" not in said[1]


def test_positives_collected_apart_are_no_part_of_the_sample(place: Path, capsys: Capture) -> None:
    """All test positives are labelled, and 26 of 66 unlabelled rows are positive: only `case-control` knows of them."""
    sides = ("--positives", place / "tp.npy", "--unlabelled", place / "u.npy")
    apart = evaluated(capsys, place / "arrays-run", *sides, "--scenario", "case-control")
    as_trained = evaluated(capsys, place / "arrays-run", *sides)
    assert apart["false_positive_rate"] < as_trained["false_positive_rate"]  # the same calls, of fewer negatives
    assert "run says" in refused(capsys, "evaluate", place / "arrays-run", "--scenario", "case-control")
    truth = ("--test", place / "tp.npy", place / "tn.npy", "--scenario", "case-control")
    assert "has its truth" in refused(capsys, "evaluate", place / "arrays-run", *truth)
