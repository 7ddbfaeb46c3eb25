"""What a scientist with a hospital's export and a folder of scans met, from a first look to the last command."""

import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_tools import TINY, must_refuse, run_cli, write_npz
from image_tools import write_pictures

from splitpu.cli import main
from splitpu.cli.output import print_table
from splitpu.config import config_from_dict
from splitpu.data import PUData
from splitpu.data.cache import working_folder
from splitpu.data.file_labels import read_labels
from splitpu.data.folders import FolderSource, read_folders
from splitpu.data.tables import TableSource, read_table_data
from splitpu.errors import InputError
from splitpu.prior.network_scores import _made_small
from splitpu.runs.folder import RunFolder

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run in it, over arrays without test rows."""
    folder = tmp_path_factory.mktemp("scientist")
    data = write_npz(folder / "a.npz", X_test=None, y_test=None, truth=None, names=None)
    asked = ["fit", data, "--prior", 0.5, "--quiet", "--out", folder / "runs" / "first", "--rounds", 1, *TINY]
    assert main([str(word) for word in asked]) == 0
    return folder / "runs"


# ------------------------------------------------------------------------------------------------------- the export


def read_export(path: Path, rows: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and names of features of a table as a hospital's system writes it."""
    path.write_text("\n".join(["nr;value;seen;s", *rows]))
    found = read_table_data(TableSource(path=str(path), label="s"))
    return found.warnings, found.recipe.feature_names


def test_decimal_commas_spoilt_by_a_word_are_told(tmp_path: Path) -> None:
    rows = [f"P{row};{row},5;{1 + row % 9}.3.2023;{int(row < 3)}" for row in range(30)]
    notes, _ = read_export(tmp_path / "a.csv", [*rows, "P99;n.b.;1.1.2023;0"])
    assert any("column 'value' holds numbers but also 'n.b.'" in note for note in notes), notes


def test_a_new_table_without_the_word_has_the_same_categories(tmp_path: Path) -> None:
    rows = [f"P{row};{row % 3},5;{1 + row % 9}.3.2023;{int(row < 3)}" for row in range(30)]
    _, spoilt = read_export(tmp_path / "a.csv", [*rows, "P99;n.b.;1.1.2023;0"])
    assert {"value = 0.5", "value = 1.5", "value = n.b."} <= set(spoilt)


@pytest.mark.parametrize("date", ["{0}.03.2023", "2023-03-{0:02}", "3/{0}/23", "2023-03-{0:02} 08:15:00"])
def test_dates_are_told_to_be_taken_for_categories(tmp_path: Path, date: str) -> None:
    rows = [f"P{row};{row % 5};{date.format(1 + row % 9)};{int(row < 3)}" for row in range(30)]
    notes, _ = read_export(tmp_path / "a.csv", rows)
    assert any("column 'seen' holds dates" in note for note in notes), notes


def test_a_table_that_is_not_there_is_not_asked_for_its_columns(tmp_path: Path, capsys: Capture) -> None:
    must_refuse(capsys, "fit", tmp_path / "patient.csv", saying="patient.csv does not exist: check the path")


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path: Path, capsys: Capture) -> None:
    for words in (("fit", tmp_path / "a.xlsx", "--label", "s"), ("prior", tmp_path / "a.XLS")):
        must_refuse(capsys, *words, saying="is a spreadsheet: save its sheet as CSV in UTF-8")


# -------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("split.epochs", r"'split\.max_epochs'\?"),
        ("epochs", r"one of 'base\.epochs', 'student\.epochs'"),
        ("student.epoch", r"'student\.epochs'\?"),
    ],
)
def test_a_key_is_looked_for_where_it_was_said_to_be(key: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"unknown key '{key}'; did you mean {meant}"):
        config_from_dict({key: 5})


def test_two_folders_are_answered_with_the_options_for_them(tmp_path: Path, capsys: Capture) -> None:
    for name in ("confirmed", "scans", "more"):
        (tmp_path / name).mkdir()
    sides = "give folders as --positives FOLDER --unlabelled FOLDER"
    folders = [tmp_path / name for name in ("confirmed", "scans", "more")]
    must_refuse(capsys, "fit", *folders[:2], saying=f"scans is one word too many: {sides}")
    must_refuse(capsys, "prior", *folders, saying=f"more are words too many: {sides}")


def test_settings_in_a_row_are_told_apart(runs: Path, capsys: Capture) -> None:
    words = ("fit", runs.parent / "a.npz", "--set", "base.epochs=5", "base.batch_size=8")
    must_refuse(capsys, *words, saying="base.batch_size=8 is one word too many: write --set before every single")


def test_settings_that_do_nothing_are_told(runs: Path, capsys: Capture, tmp_path: Path) -> None:
    words = ["fit", runs.parent / "a.npz", "--prior", 0.5, "--quiet", *TINY]
    _, _, err = run_cli(capsys, *words, "--out", tmp_path / "n", "--method", "nnpu", "--rounds", 3)
    (said,) = [line for line in err.splitlines() if "has no effect" in line]
    assert "--set student.epochs=2" in said and "--rounds 3" in said and "base.epochs" not in said
    _, _, err = run_cli(capsys, *words, "--out", tmp_path / "s", "--rounds", 1)
    assert "has no effect" not in err


def test_a_bound_that_is_no_share_is_called_by_its_option(runs: Path, capsys: Capture) -> None:
    must_refuse(capsys, "sensitivity", runs / "first", "--highest", 30, saying="--highest 30 is not a share")


@pytest.mark.parametrize("content", ["name;label\na, b.png;1\nc.png;\n", '"a, b.png",1\nc.png,0\n'])
def test_names_of_images_from_any_spreadsheet(tmp_path: Path, content: str) -> None:
    (tmp_path / "names.csv").write_text(content)
    assert read_labels(tmp_path / "names.csv") == [("a, b.png", True), ("c.png", False)]


def test_one_word_is_not_words(runs: Path, capsys: Capture) -> None:
    must_refuse(capsys, "evaluate", runs / "first", "--test", "a.npy", saying=r"but got 1 word\.")


def test_a_folder_of_runs_says_which_there_are(runs: Path, capsys: Capture) -> None:
    must_refuse(capsys, "info", runs, saying=r"is not a run folder: .*; name one of the runs in it, such as .*first\.")


# ------------------------------------------------------------------------------------------------------- the answers


def test_figures_are_called_the_same_in_every_table(runs: Path, capsys: Capture) -> None:
    _, estimated, _ = run_cli(capsys, "evaluate", runs / "first")
    assert "ROC AUC" in estimated and "F1" in estimated and "95 % interval" in estimated and " to 1" in estimated
    _, shown, _ = run_cli(capsys, "info", runs / "first")
    assert "called positive (of the unlabelled)" in shown
    assert [line.split()[0] for line in shown.splitlines()].count("prior") == 1


def test_words_stand_to_the_left_and_figures_to_the_right(capsys: Capture) -> None:
    rows = [{"name": "a", "what": "3 measurements of tumours"}, {"name": "b", "what": "8 x 8 images of digits"}]
    print_table(rows, ("name", "what"))
    assert "│ 8 x 8 images of digits    │" in capsys.readouterr().out
    print_table([{"figure": "F1", "wide interval of it": "0.7362 to 1.0000"}], ("figure", "wide interval of it"))
    assert "│    0.7362 to 1.0000 │" in capsys.readouterr().out


def test_a_table_of_long_paths_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = "scans/2023/Station Süd/Käthe Groß_270_a_second_time.png"
    why = "taught positive, learned negative; now negative"
    row = {"name": path, "probability": 0.9662, "teacher_probability": 0.5116, "rounds": "1 2", "why": why}
    print_table([row], list(row))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out
    for whole in ("probability", "teacher", "0.9662", "0.5116", "negative"):
        assert whole in out
    letters = "".join(line[1:].split("│")[0].strip() for line in out.splitlines() if line.startswith("│"))
    assert letters.replace(" ", "") == path.replace(" ", "")


def test_rows_that_cannot_be_written_to_are_made_small_without_a_warning() -> None:
    rows = np.arange(2 * 40 * 40, dtype=np.float32).reshape(2, 40, 40, 1)
    rows.setflags(write=False)
    torch.set_warn_always(True)  # torch would say it once a process only, perhaps in another test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small = _made_small(PUData(rows, np.array([True, False]), "single-training-set"), np.array([0, 1]))
    finally:
        torch.set_warn_always(False)
    assert small.features.shape == (2, 32, 32, 1)


def test_files_to_judge_by_are_not_called_training_files(tmp_path: Path) -> None:
    write_pictures(tmp_path / "known", 4, 1.0)
    write_pictures(tmp_path / "others", 16, 0.5, seed=100)
    (tmp_path / "others" / "broken.png").write_bytes(b"")
    source = FolderSource(positives=(str(tmp_path / "known"),), unlabelled=(str(tmp_path / "others"),))
    trained = read_folders(source)
    judged = read_folders(source, spec=trained.train.spec)
    assert "1 training file was skipped" in trained.warnings[0] and "1 given file was skipped" in judged.warnings[0]


def test_an_exported_table_is_not_said_to_take_its_columns(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("onnxruntime")
    rows = [f"{row % 7},{'abc'[row % 3]},{int(row % 6 == 0)}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,kind,s", *rows]))
    asked = ["fit", tmp_path / "t.csv", "--label", "s", "--prior", 0.5, "--quiet", "--out", tmp_path / "run", *TINY]
    assert main([str(word) for word in [*asked, "--rounds", 1]]) == 0
    code, out, _ = run_cli(capsys, "export", tmp_path / "run")
    assert code == 0 and "(count, 4), the table's columns as numbers, made as `inputs` in model.json says" in out


# --------------------------------------------------------------------------------------------------------- the place


def test_a_place_that_may_not_be_written_is_noticed_before_the_prior(
    runs: Path, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system is stood in for: those who may do everything, as in containers, are refused by none."""
    mkdir = Path.mkdir

    def refused(path: Path, *args: object, **options: object) -> None:
        if tmp_path in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        mkdir(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refused)
    for command in (["fit"], ["fit", "--seeds", "0,1"], ["compare"]):
        out = tmp_path / "deep" / "run"
        code, _, err = run_cli(capsys, *command, runs.parent / "a.npz", "--out", out)
        assert code == 2 and "run may not be written (Read-only file system); choose another place" in err
        assert "prior" not in err


def test_a_cache_that_cannot_be_written_is_said_without_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot be written \(Not a directory\)"),
        working_folder(tmp_path / "file" / "c"),
    ):
        pass


def test_looking_at_a_place_leaves_nothing_there(tmp_path: Path) -> None:
    assert RunFolder.free_path(tmp_path / "a" / "b", "x") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []
