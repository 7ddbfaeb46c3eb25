"""What somebody meets who uses the command line for the first time: wrong words, wrong files, and Ctrl-C."""

import csv
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_tools import TINY, run_cli, tiny_arrays, write_npz
from image_tools import write_pictures

from splitpu import preset
from splitpu.cli import main
from splitpu.cli.fit import show_result
from splitpu.cli.pace import LongRun
from splitpu.data import PUData
from splitpu.data.tables import TableSource, read_table_data
from splitpu.engine.stage import EpochRecord
from splitpu.errors import InputError
from splitpu.evaluation import find_worthlessness
from splitpu.methods.student import _never_learned
from splitpu.runs.folder import RunFolder

Capture = pytest.CaptureFixture[str]


def write_table(path: Path, positive: str, other: str, *, truth: bool = False, extra: bool = False) -> Path:
    """Tiny rows with labels in the user's own words; `extra` is filled in for labelled rows only."""
    arrays = tiny_arrays()
    rows, labels = (arrays["X_test"], arrays["y_test"]) if truth else (arrays["X"], arrays["s"])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x0", "x1", "x2", "x3", *(["biopsy"] if extra else []), "state"])
        for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
            biopsy = [str(2010 + number % 7) if label else ""] if extra else []
            writer.writerow([*row.tolist(), *biopsy, positive if label else other])
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over a table whose labels are yes and no, and one over arrays."""

    folder = tmp_path_factory.mktemp("first use")
    write_table(folder / "yes no.csv", "yes", "no")
    write_table(folder / "test 1 0.csv", "1", "0", truth=True)
    write_npz(folder / "a.npz", X_test=None, y_test=None, truth=None, names=None)
    table = [folder / "yes no.csv", "--label", "state", "--positive-label", "yes"]
    for name, words in (("table", table), ("arrays", [folder / "a.npz"])):
        asked = ["fit", *words, "--prior", 0.5, "--quiet", "--out", folder / name, "--rounds", 1, *TINY]
        assert main([str(word) for word in asked]) == 0
    return folder


# ------------------------------------------------------------------------------------------------------- tables


def test_a_test_table_in_other_words_is_no_table_of_negatives(place: Path, capsys: Capture) -> None:
    asked = ["evaluate", place / "table", "--test", place / "test 1 0.csv"]
    code, out, err = run_cli(capsys, *asked)
    assert (code, out) == (2, "") and "never holds 'yes' but '0', '1'" in err and "--positive-label" in err
    code, out, _ = run_cli(capsys, *asked, "--positive-label", "1")
    assert code == 0 and "50.0 % of the test rows are positive" in out


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("yes", "no"), "such as --positive-label yes"),
        (("ill", "healthy"), "such as --positive-label ill"),
        (("a b", ""), "such as --positive-label 'a b'"),
        (("0.7", "0.2"), "holds '0.2', '0.7'"),
        (("gut", "schlecht"), "--positive-label which of them means positive."),
    ],
)
def test_labels_in_words_are_never_turned_round(tmp_path: Path, words: tuple[str, str], advice: str) -> None:
    path = write_table(tmp_path / "t.csv", *words)
    with pytest.raises(InputError, match="--positive-label") as raised:
        read_table_data(TableSource(path=str(path), label="state"))
    assert advice in str(raised.value) and f"such as --positive-label {words[1] or '0'}" not in str(raised.value)


def test_misspelt_labels_and_columns(place: Path, capsys: Capture) -> None:
    table = place / "yes no.csv"
    _, _, err = run_cli(capsys, "fit", table, "--label", "state", "--positive-label", "Yes")
    assert "never holds 'Yes' but 'no', 'yes'" in err
    _, _, err = run_cli(capsys, "fit", table, "--label", "stat")
    assert "did you mean 'state'?" in err


def test_a_column_that_only_labelled_rows_have_is_named(tmp_path: Path, capsys: Capture) -> None:
    leaking = write_table(tmp_path / "t.csv", "1", "0", extra=True)
    plain = write_table(tmp_path / "u.csv", "1", "0")
    said = {
        path.name: read_table_data(TableSource(path=str(path), label="state")).warnings for path in (leaking, plain)
    }
    assert said["u.csv"] == () and len(said["t.csv"]) == 1
    assert "column 'biopsy' alone tells every labelled row" in said["t.csv"][0]
    code, _, err = run_cli(capsys, "fit", leaking, "--label", "state", "--quiet", "--out", tmp_path / "run")
    assert code == 2 and "column 'biopsy' alone" in err  # before the sentence about the prior it makes impossible


def read_notes(path: Path, content: str) -> tuple[str, ...]:
    path.write_text(content)
    return read_table_data(TableSource(path=str(path), label="s")).warnings


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path: Path, delimiter: str) -> None:
    lines = [f"{number},5{delimiter}a,{number % 2}{delimiter}{number % 3 // 2}" for number in range(12)]
    (tmp_path / "t.csv").write_text("\n".join([delimiter.join(("x", "kind", "s")), *lines]))
    found = read_table_data(TableSource(path=str(tmp_path / "t.csv"), label="s"))
    assert found.recipe.feature_names == ("x", "kind = a,0", "kind = a,1")
    assert found.features[:3, 0].tolist() == [0.5, 1.5, 2.5]


def test_numbers_spoilt_by_a_word_are_told(tmp_path: Path) -> None:
    lines = [f"{number / 4},{int(number < 3)}" for number in range(12)]
    assert read_notes(tmp_path / "a.csv", "\n".join(["x,s", *lines])) == ()
    (note,) = read_notes(tmp_path / "b.csv", "\n".join(["x,s", *lines, "<5,0"]))
    assert "column 'x' holds numbers but also '<5'" in note


def test_a_numbering_of_the_rows_is_told(tmp_path: Path) -> None:
    lines = [f"{100 + number},{number % 7},{int(number % 5 == 0)}" for number in range(30)]
    (note,) = read_notes(tmp_path / "t.csv", "\n".join(["nr,x,s", *lines]))
    assert "column 'nr' looks like a numbering of the rows" in note


# -------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--prior", "30%"), "'30%' is no share; give a number between 0 and 1, such as 0.3, or auto"),
        (("--prior", "0,3"), "'0,3' is no share"),
        (("--seed", "x"), "'x' is no whole number"),
        (("--rounds", "1.5"), "'1.5' is no whole number"),
        (("other.npz",), "other.npz is one word too many: splitpu fit --help"),
        (("--epochs", "3"), "--set base.epochs=20"),
        (("--members", "3"), "--members is a setting: give it as --set members=..."),
        (("--student.epochs=3",), "--student.epochs is a setting: give it as --set student.epochs=..."),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(
    capsys: Capture, words: tuple[str, ...], sentence: str, place: Path
) -> None:
    code, _, err = run_cli(capsys, "fit", place / "a.npz", *words)
    assert code == 2 and sentence in err and err.count("\n") == 1
    assert "Literal" not in err and "literal" not in err


def test_a_command_without_settings_does_not_speak_of_them(capsys: Capture) -> None:
    for words in (("predict", "run", "rows.npy", "--epochs", "3"), ("hard", "run", "--members", "3")):
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and f"splitpu {words[0]} --help" in err and "--set" not in err


def test_every_command_has_its_place_in_the_help(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "--help")
    assert out.index("demo") < out.index(" fit ") < out.index("predict") < out.index("compare") < out.index("reproduce")
    assert "Commands" not in out  # which is where those go that nobody thought of


def test_the_help_says_where_a_run_goes(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "fit", "--help")
    assert "runs/DATA-DATE-TIME" in out


def test_the_help_names_every_input_that_can_be_scored(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "predict", "--help")
    assert "one image" in " ".join(out.split())


def test_a_device_that_is_not_there_is_noticed_first(place: Path, capsys: Capture) -> None:
    for words in ((), ("--seeds", "0,1")):
        _, _, err = run_cli(capsys, "fit", place / "a.npz", "--device", "gpu", *words)
        assert err.startswith("splitpu: device 'gpu'") and "prior" not in err


def test_scores_are_not_written_under_a_wrong_ending(place: Path, capsys: Capture, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", tiny_arrays()["X"])
    code, _, err = run_cli(capsys, "predict", place / "arrays", tmp_path / "new.npy", "--out", tmp_path / "s.xlsx")
    assert code == 2 and ".csv or .parquet" in err and not (tmp_path / "s.xlsx").exists()


def test_experiments_are_listed_without_a_name(capsys: Capture, tmp_path: Path) -> None:
    code, out, _ = run_cli(capsys, "reproduce", "--list", "--results", tmp_path)
    assert code == 0 and "main " in out and "of   6 units done  Number of rounds" in out
    assert "--list alone" in run_cli(capsys, "reproduce", "--dry-run")[2]


# --------------------------------------------------------------------------------------------------------- runs


def test_the_folder_of_several_seeds_is_not_called_unfinished(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "seed3").mkdir()
    (tmp_path / "seeds.json").write_text('{"seeds": [3]}')
    for words in (("predict", tmp_path, "a.npy"), ("info", tmp_path), ("export", tmp_path, "m.onnx")):
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and "several seeds: name one of them" in err and "seed3" in err


def test_an_unfinished_run_is_to_be_continued_not_begun_anew(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "request.json").write_text("{}")
    _, _, err = run_cli(capsys, "predict", tmp_path, "a.npy")
    assert f"splitpu fit --resume {tmp_path}" in err


def test_a_folder_that_another_run_took_meanwhile(place: Path, tmp_path: Path) -> None:
    run = RunFolder(place / "arrays")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "request.json").touch()
    with pytest.raises(InputError, match="another run has taken it meanwhile"):
        RunFolder.create(tmp_path / "taken", run.request(), run.config())
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_rows_of_the_training_flatter_under_any_name(place: Path, capsys: Capture) -> None:
    _, _, err = run_cli(capsys, "evaluate", place / "arrays", place / "a.npz")
    assert "trained on, which flatters it" in err
    other = write_npz(place / "b.npz", X=tiny_arrays(seed=1)["X"], X_test=None, y_test=None, truth=None, names=None)
    _, _, err = run_cli(capsys, "evaluate", place / "arrays", other)
    assert "flatters" not in err


def test_a_finished_run_says_where_the_hard_samples_are(place: Path, capsys: Capture) -> None:
    run = RunFolder(place / "table")
    hard = run.read_result()["rounds"][-1]["hard"]
    _, out, _ = run_cli(capsys, "info", run.path)
    assert hard > 0 and f"{hard} unlabelled samples, named in {run.split} and shown in the report" in out


def test_a_model_that_learned_nothing_is_found_out_without_truth(tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "same.npz", X=np.ones((80, 4)), X_test=None, y_test=None, truth=None, names=None)
    run = tmp_path / "run"
    code, _, err = run_cli(capsys, "fit", data, "--prior", 0.5, "--quiet", "--out", run, "--rounds", 1, *TINY)
    assert (
        code == 0 and err.count("round 1 student: the model gives every row the same score") == 2
    )  # when, and at the end
    assert any("do not rely on it" in warning for warning in RunFolder(run).read_result()["warnings"])


@pytest.mark.parametrize(
    ("labelled", "shift", "prior", "found"),
    [(40, 0, 0.3, True), (40, 1, 0.3, False), (3, 0, 0.3, False), (40, 0, 0.95, False)],
)
def test_no_better_than_chance_is_said_where_it_would_show(
    labelled: int, shift: float, prior: float, found: bool
) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(shift, 1, labelled), random.normal(0, 1, 300)
    assert bool(find_worthlessness(positive, unlabelled, prior)) == found


@pytest.mark.parametrize(
    ("moved", "saying"), [(0, None), (9, "nearly all unlabelled rows positive"), (-9, "next to nothing positive")]
)
def test_without_a_prior_a_model_that_says_the_same_of_all_rows_is_found(moved: float, saying: str | None) -> None:
    random = np.random.default_rng(0)
    positive, unlabelled = random.normal(moved + 1, 1, 40), random.normal(moved, 1, 300)
    found = find_worthlessness(positive, unlabelled, None)
    assert found is None if saying is None else saying in str(found)


def test_a_run_without_a_prior_that_calls_everything_positive_is_found_out(tmp_path: Path, capsys: Capture) -> None:
    rows = np.random.default_rng(0).normal(size=(480, 5)).astype(np.float32)
    data = write_npz(
        tmp_path / "noise.npz", X=rows, s=np.arange(480) < 80, X_test=None, y_test=None, truth=None, names=None
    )
    words = ["fit", data, "--method", "vpu", "--prior", "none", "--set", "vpu.epochs=3", "--quiet"]
    code, _, err = run_cli(capsys, *words, "--out", tmp_path / "run")
    assert code == 0 and "VPU: the model calls nearly all unlabelled rows positive" in err


def test_a_model_not_to_be_relied_on_is_named_at_the_end(place: Path, capsys: Capture) -> None:
    run = RunFolder(place / "table")
    result = run.read_result()
    show_result(run, {**result, "warnings": ["column 'a' is empty.", _never_learned("round1.student")]}, json=False)
    out, err = capsys.readouterr()
    assert "notes   2, all in the report" in out
    assert err.startswith("note: round1.student: after 3 attempts") and err.count("\n") == 1


def test_what_cannot_be_scored_is_not_called_a_broken_npz(place: Path, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "0.dcm").write_bytes(b"DICM")
    _, _, err = run_cli(capsys, "predict", place / "arrays", tmp_path / "0.dcm")
    assert "of no kind that can be scored" in err and "npz file" not in err


def test_names_that_no_file_has_come_with_the_form_they_should_have(tmp_path: Path, capsys: Capture) -> None:
    write_pictures(tmp_path / "all", 4, 0.5)
    for content, form in (("file|positive\n0000.png|1\n", "every line is"), ("file;positive\n0000.png;1\n", "write")):
        (tmp_path / "names.csv").write_text(content)
        _, _, err = run_cli(capsys, "fit", tmp_path / "all", "--labels", tmp_path / "names.csv", "--prior", 0.5)
        assert f"{form} name,label" in err


# ---------------------------------------------------------------------------------------------------- processes


def test_names_that_the_terminal_cannot_show(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "läuft"
    run.symlink_to(place / "arrays")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "splitpu", "info", run], capture_output=True, env=plain, check=False)
    assert done.returncode == 0 and rb"l\xe4uft" in done.stdout and b"Traceback" not in done.stderr


@pytest.mark.parametrize(("seconds", "restored", "said"), [(0.5, 0, 0), (90.0, 0, 1), (90.0, 7, 1)])
def test_a_run_that_takes_long_says_so_once_and_early(seconds: float, restored: int, said: int) -> None:
    config = preset("default")
    data = PUData.from_arrays(np.zeros((60, 96, 96)), np.arange(60) < 20)
    told: list[str] = []
    pace = LongRun(config, data, told.append, backbone="auto", from_files=True)
    pace.stage_started(SimpleNamespace(name="base"), restored)  # type: ignore[arg-type]
    for epoch in range(restored + 1, 41):
        pace.epoch_done(EpochRecord("base", epoch, 40, seconds, 1e-3, {}))
        assert len(told) == (said if epoch >= restored + 2 else 0)
    pace.stage_started(SimpleNamespace(name="round1.split"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("round1.split", 2, 40, 1000.0, 1e-3, {}))
    assert len(told) == said
    assert not told or (" hours; " in told[0] and "--size 64" in told[0])


@pytest.mark.parametrize(
    ("side", "backbone", "from_files", "rounds", "advice"),
    [
        (32, "cnn13", True, 2, "Faster: a smaller network (--backbone cnn-small) or a single round (--rounds 1)."),
        (32, "auto", True, 2, "Faster: a single round (--rounds 1)."),  # which is the smaller network for so few
        (96, "cnn-small", True, 1, "Faster: smaller images (--size 64)."),
        (96, "cnn-small", False, 1, "stopped (Ctrl-C) and resumed."),  # --size is for folders
    ],
)
def test_a_long_run_is_told_only_what_would_make_it_shorter(
    side: int, backbone: str, from_files: bool, rounds: int, advice: str
) -> None:
    data = PUData.from_arrays(np.zeros((60, side, side), np.uint8), np.arange(60) < 20)
    told: list[str] = []
    config = dataclasses.replace(preset("default"), rounds=rounds)
    pace = LongRun(config, data, told.append, backbone=backbone, from_files=from_files)
    pace.stage_started(SimpleNamespace(name="base"), 0)  # type: ignore[arg-type]
    pace.epoch_done(EpochRecord("base", 2, 40, 90.0, 1e-3, {}))
    assert told[0].endswith(advice)
