"""The command line: every mistake is one sentence and code 2, and leaves nothing behind.

Words on the command line: wrong ones are answered with the right ones, and things are called the same everywhere.

What the library says in Python's words is said in options on the command line.
"""

import errno
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_do, must_refuse, run_cli, tiny_arrays, write_npz

from splitpu.cli import by_control_c
from splitpu.cli.display import _widths, note_line, notes_in_report, print_table, shortest_list, title_of
from splitpu.cli.options import as_options
from splitpu.cli.progress import BarDisplay, LineDisplay, ProgressDisplay, terms_in_words
from splitpu.cli.several_runs import parse_methods, parse_seeds
from splitpu.cli.train import if_settings_do_nothing
from splitpu.config.schema import Config
from splitpu.engine.stage import EpochRecord

Capture = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "splitpu"]


# ------------------------------------------------------------------------------------------------------------- bad data


def _with_nan() -> Any:
    features = tiny_arrays()["X"]
    features[7, 1], features[11, 0] = np.nan, np.inf
    return features


BAD_ARRAYS: list[tuple[str, dict[str, Any], str]] = [
    ("no positives", {"s": np.zeros(80, int)}, "no row as labelled positive"),
    ("all positives", {"s": np.ones(80, int)}, "all 80 rows"),
    ("one positive", {"s": np.eye(1, 80, dtype=int)[0]}, "only 1 row"),
    ("not finite", {"X": _with_nan()}, r"bad\.npz: X holds .* 2 of 80 rows \(row 7, 11\)"),
    ("label outside the conventions", {"s": np.arange(80) % 3}, r"bad\.npz holds the values 0, 1, 2: save 1 for"),
    ("two other labels", {"s": 2.0 * tiny_arrays()["s"]}, r"'s' in \S+bad\.npz .* 0, 2: .* s=\(labels == 2\)\.astype"),
    ("other labels of test rows", {"y_test": np.arange(40) % 2 + 1}, r"'y_test' in \S+bad\.npz holds the values 1, 2"),
    ("labels of another length", {"s": tiny_arrays()["s"][:-1]}, r"bad\.npz: s has 79 entries but X has 80 rows"),
    ("one kind of label of another length", {"s": np.ones(3)}, "s has 3 entries but X has 80 rows"),
    ("no labels", {"s": None}, "no array 's'"),
    ("text for features", {"X": np.array([["a"]] * 80)}, r"bad\.npz: X has dtype"),
    ("objects", {"X": np.array([[None]] * 80, dtype=object)}, "Python objects"),
    ("test rows of another shape", {"X_test": np.zeros((40, 5))}, "X_test"),
    ("truth of the test rows missing", {"y_test": None}, "X_test.*without"),
    ("names of another length", {"names": np.array(["a"])}, "names"),
]


@pytest.mark.parametrize(("changes", "saying"), [case[1:] for case in BAD_ARRAYS], ids=[case[0] for case in BAD_ARRAYS])
def test_bad_arrays(here: Path, tmp_path: Path, capsys: Capture, changes: dict[str, Any], saying: str) -> None:
    data = write_npz(tmp_path / "bad.npz", **changes)
    must_refuse(capsys, "fit", data, "--prior", 0.5, *TINY, saying=saying)
    assert list(here.iterdir()) == []


BAD_OPTIONS: list[tuple[list[object], str]] = [
    (["--prior", 0], "--prior 0 "),
    (["--prior", 1.5], "--prior 1.5"),
    (["--prior", "nan"], "--prior nan"),
    (["--prior", 0.1], "already labelled"),
    (["--prior", 0.5, "--preset", "papre"], "did you mean 'paper'"),
    (["--prior", 0.5, "--backbone", "mpl"], "did you mean 'mlp'"),
    (["--prior", 0.5, "--backbone", "resnet18"], "needs images"),
    (["--prior", 0.5, "--set", "student.epoch=3"], "did you mean 'student.epochs'"),
    (["--prior", 0.5, "--set", "rounds"], "key=value"),
    (["--prior", 0.5, "--config", "nowhere.toml"], "nowhere.toml"),
    (["--prior", 0.5, "--device", "abacus"], "abacus"),
    (["--prior", 0.5, "--seed", -1], "--seed -1"),
    (["--prior", 0.5, "--labelled", 5], "--labelled is for named sets; in .*tiny.npz the array 's'"),
    (["--prior", 0.5, "--rounds", -1], "rounds"),
    (["--prior", 0.5, "--rounds", 1.5], "rounds"),
    (["--prior", "much"], "--prior"),
    (["--prior", 0.5, "--scenario", "both"], "case-control"),
    (["--prior", 0.5, "--otu", "x"], "Did you mean --out"),
]


@pytest.mark.parametrize(
    ("options", "saying"), BAD_OPTIONS, ids=[" ".join(map(str, o)) or "none" for o, _ in BAD_OPTIONS]
)
def test_bad_options(here: Path, tmp_path: Path, capsys: Capture, options: list[object], saying: str) -> None:
    must_refuse(capsys, "fit", write_npz(tmp_path / "tiny.npz"), *options, saying=saying)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        (["fit", "digts", "--labelled", 50], "digits"),
        (["fit", "digits"], "--labelled 50"),
        (["fit", "digits", "--labelled", 0], "--labelled 0 leaves nothing"),
        (["fit", "digits", "--labelled", 10_000], "--labelled 10000 is too many"),
        (["fit", "missing.npz", "--prior", 0.5], "missing.npz"),
        (["fit"], "needs DATA"),
        (["fti"], "fit"),
        (["resume", "nowhere"], "nowhere"),
        (["predict", "nowhere", "x.npz"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["info", "nowhere"], "nowhere"),
        (["data", "get", "imagenet"], "imagenet"),
    ],
)
def test_unknown_names(here: Path, capsys: Capture, words: list[object], saying: str) -> None:
    must_refuse(capsys, *words, saying=saying)
    assert list(here.iterdir()) == []


def test_damaged_files(here: Path, tmp_path: Path, capsys: Capture) -> None:
    whole = write_npz(tmp_path / "tiny.npz").read_bytes()
    for number, content in enumerate([b"", b"not a zip", whole[: len(whole) // 2], whole[:-20]]):
        path = tmp_path / f"damaged{number}.npz"
        path.write_bytes(content)
        must_refuse(capsys, "fit", path, "--prior", 0.5, saying="damaged")
    scrambled = bytearray(whole)
    scrambled[200:260] = b"\xff" * 60
    (tmp_path / "scrambled.npz").write_bytes(scrambled)
    must_refuse(capsys, "fit", tmp_path / "scrambled.npz", "--prior", 0.5, saying="scrambled")
    assert list(here.iterdir()) == []


def test_a_bad_configuration_file_is_named(here: Path, tmp_path: Path, capsys: Capture) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[student]\nepochz = 3\n")
    data = write_npz(tmp_path / "tiny.npz")
    must_refuse(capsys, "fit", data, "--prior", 0.5, "--config", settings, saying="settings.toml.*student.epochs")


# --------------------------------------------------------------------------------------------------- settings and notes


def test_warnings_are_notes_and_are_kept(here: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    settings = [word if word != "split.tau=0.01" else "split.tau=1.0" for word in TINY]
    code, out, err = run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 1, "--quiet", "--json", *settings)
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert code == 0 and len(notes) == len(err.splitlines()) == 1
    assert json.loads(out)["warnings"] == [notes[0].removeprefix("note: ")]


def test_precedence_of_settings(here: Path, tmp_path: Path, capsys: Capture) -> None:
    import tomllib

    (tmp_path / "settings.toml").write_text("rounds = 0\n[base]\nepochs = 3\nbatch_size = 64\n")
    data = write_npz(tmp_path / "tiny.npz")
    words = ["--config", tmp_path / "settings.toml", "--set", "base.epochs=2", "--preset", "paper"]
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--out", "run", "--quiet", *words)[0] == 0
    used = tomllib.loads(Path("run/config.toml").read_text())
    assert (
        used["base"]["epochs"] == 2 and used["base"]["batch_size"] == 64 and used["base"]["optimiser"]["rate"] == 1e-4
    )


# ------------------------------------------------------------------------------------------------------- real processes


def in_process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment, **options
    )


def test_help_is_there_without_torch() -> None:
    code = (
        "import sys; from splitpu.cli import main; code = main(['fit', '--help']);"
        "heavy = {'torch', 'numpy', 'sklearn', 'scipy'} & set(sys.modules); sys.exit(code or bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--prior" in done.stdout


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["data", "--help"]])
def test_questions_are_answered_with_code_0(words: list[str], capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, *words)
    assert code == 0 and out.strip()


def test_mistakes_in_a_real_process(tmp_path: Path) -> None:
    for words in (["fit", "nothing.npz"], ["fitt"], ["fit", "--otu"]):
        done = in_process(*words, cwd=tmp_path)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("splitpu: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_json_is_all_that_standard_output_gets(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    done = in_process("fit", data, "--prior", 0.5, "--json", "--rounds", 0, *TINY, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["prior"] == 0.5
    assert "base: epoch 2/2" in done.stderr


def test_bars_on_a_terminal(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    ours, theirs = pty.openpty()
    words = ["fit", str(data), "--prior", "0.5", "--rounds", "1", "--out", str(tmp_path / "run"), *TINY]
    settings = [word if word != "split.tau=0.01" else "split.tau=1.0" for word in words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([*COMMAND, *settings], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b"".join(_until_closed(ours)).decode()
    assert process.wait(60) == 0
    assert "base" in shown and "round1.student" in shown and "epoch 2/2" in shown and "loss" in shown
    assert "note: round1.split" in shown
    assert "\x1b[?25h" in shown  # the cursor is visible again


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(descriptor, 65536)
        except OSError:  # what Linux gives when the other end is closed
            block = b""
        if not block:
            os.close(descriptor)
            return
        yield block


def test_a_place_that_may_not_be_written_is_noticed_before_the_prior(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system is stood in for: those who may do everything, as in containers, are refused by none."""
    data, mkdir = write_npz(tmp_path / "a.npz", X_test=None, y_test=None, truth=None), Path.mkdir

    def refused(path: Path, *args: object, **options: object) -> None:
        if tmp_path in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        mkdir(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refused)
    for command in (["fit"], ["fit", "--seeds", "0,1"], ["compare"]):
        out = tmp_path / "deep" / "run"
        code, _, err = run_cli(capsys, *command, data, "--out", out)
        assert code == 2 and "run may not be written (Read-only file system); choose another place" in err
        assert "prior" not in err


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over arrays without test rows, and these arrays beside it."""
    folder = tmp_path_factory.mktemp("words")
    data = write_npz(folder / "a.npz", X_test=None, y_test=None, truth=None, names=None)
    asked = ["fit", data, "--prior", 0.5, "--quiet", "--out", folder / "first", "--rounds", 1, *TINY]
    must_do(*asked)
    return folder / "first"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--prior", "30%"), "'30%' is not a share; give a number between 0 and 1, such as 0.3, or auto"),
        (("--prior", "0,3"), "'0,3' is not a share"),
        (("--seed", "x"), "'x' is not a whole number"),
        (("--seed", "-1"), "--seed -1 is negative: give a whole number, 0 or more"),
        (("--rounds", "1.5"), "'1.5' is not a whole number"),
        (("other.npz",), "other.npz is one word too many: splitpu fit --help"),
        (("--epochs", "3"), "--set base.epochs=20"),
        (("--members", "3"), "--members is a setting: give it as --set members=..."),
        (("--student.epochs=3",), "--student.epochs is a setting: give it as --set student.epochs=..."),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(
    capsys: Capture, words: tuple[str, ...], sentence: str, run: Path
) -> None:
    code, _, err = run_cli(capsys, "fit", run.parent / "a.npz", *words)
    assert code == 2 and sentence in err and err.count("\n") == 1
    assert "Literal" not in err and "literal" not in err


def test_an_estimate_takes_the_same_seeds_as_a_run(capsys: Capture, run: Path) -> None:
    must_refuse(capsys, "prior", run.parent / "a.npz", "--seed", "-1", saying="--seed -1 is negative")


def test_a_command_without_settings_does_not_speak_of_them(capsys: Capture) -> None:
    for words in (("predict", "run", "rows.npy", "--epochs", "3"), ("hard", "run", "--members", "3")):
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and f"splitpu {words[0]} --help" in err and "--set" not in err


def test_two_folders_are_answered_with_the_options_for_them(tmp_path: Path, capsys: Capture) -> None:
    for name in ("confirmed", "scans", "more"):
        (tmp_path / name).mkdir()
    sides = "give folders as --positives FOLDER --unlabelled FOLDER"
    folders = [tmp_path / name for name in ("confirmed", "scans", "more")]
    must_refuse(capsys, "fit", *folders[:2], saying=f"scans is one word too many: {sides}")
    must_refuse(capsys, "prior", *folders, saying=f"more are words too many: {sides}")


def test_settings_in_a_row_are_told_apart(run: Path, capsys: Capture) -> None:
    words = ("fit", run.parent / "a.npz", "--set", "base.epochs=5", "base.batch_size=8")
    must_refuse(capsys, *words, saying="base.batch_size=8 is one word too many: write --set before every single")


def test_settings_that_do_nothing_are_told(run: Path, capsys: Capture, tmp_path: Path) -> None:
    words = ["fit", run.parent / "a.npz", "--prior", 0.5, "--quiet", *TINY]
    _, _, err = run_cli(capsys, *words, "--out", tmp_path / "n", "--method", "nnpu", "--rounds", 3)
    (said,) = [line for line in err.splitlines() if "have no effect" in line]
    assert "--set student.epochs=2" in said and "--rounds 3" in said and "base.epochs" not in said
    _, _, err = run_cli(capsys, *words, "--out", tmp_path / "s", "--rounds", 1)
    assert "no effect" not in err
    words = ["compare", run.parent / "a.npz", "--prior", 0.5, "--quiet", "--method", "nnpu,naive", "--seeds", 0]
    words += ["--set", "base.epochs=2", "--set", "vpu.epochs=2", "--out", tmp_path / "c"]
    _, _, err = run_cli(capsys, *words)
    assert "--set vpu.epochs=2 has no effect: nnpu, naive read the settings in base, selection" in err
    words[words.index("nnpu,naive")] = "nnpu,vpu"
    _, _, err = run_cli(capsys, *words)
    assert "no effect" not in err


def test_a_bound_that_is_no_share_is_called_by_its_option(run: Path, capsys: Capture) -> None:
    must_refuse(capsys, "sensitivity", run, "--highest", 30, saying="--highest 30 is not a share")


def test_one_word_is_not_words(run: Path, capsys: Capture) -> None:
    must_refuse(capsys, "evaluate", run, "--test", "a.npy", saying=r"but got 1\.")


def test_a_device_that_is_not_there_is_noticed_first(run: Path, capsys: Capture) -> None:
    for words in ((), ("--seeds", "0,1")):
        _, _, err = run_cli(capsys, "fit", run.parent / "a.npz", "--device", "gpu", *words)
        assert err.startswith("splitpu: device 'gpu'") and "prior" not in err


def test_a_table_that_is_not_there_is_not_asked_for_its_columns(tmp_path: Path, capsys: Capture) -> None:
    must_refuse(capsys, "fit", tmp_path / "patient.csv", saying="patient.csv does not exist: check the path")


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path: Path, capsys: Capture) -> None:
    for words in (("fit", tmp_path / "a.xlsx", "--label", "s"), ("prior", tmp_path / "a.XLS")):
        must_refuse(capsys, *words, saying="is a spreadsheet: save its sheet as CSV in UTF-8")


def test_a_table_in_a_text_file_is_not_called_a_broken_npz(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.txt").write_text("x\ts\n1\t1\n")
    saying = r"a\.txt is not of a kind that can be read: .* has to be called \.csv"
    must_refuse(capsys, "fit", tmp_path / "a.txt", saying=saying)
    saying = r"--label is for \.csv and \.parquet tables, which .*a\.txt is not by its name"
    must_refuse(capsys, "fit", tmp_path / "a.txt", "--label", "s", saying=saying)


def test_a_folder_of_runs_says_which_there_are(run: Path, capsys: Capture) -> None:
    must_refuse(
        capsys, "info", run.parent, saying=r"is not a run folder: .*; name one of the runs in it, such as .*first\."
    )


def test_every_command_has_its_place_in_the_help(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "--help")
    assert out.index("demo") < out.index(" fit ") < out.index("predict") < out.index("compare") < out.index("reproduce")
    assert "Commands" not in out  # which is where those go that nobody thought of


def test_the_help_says_where_a_run_goes(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "fit", "--help")
    assert "runs/DATA-DATE-TIME" in out


def test_figures_are_called_the_same_in_every_table(run: Path, capsys: Capture) -> None:
    code, estimated, said = run_cli(capsys, "evaluate", run)  # of networks that were trained on all of its rows
    assert code == 2 and estimated == "" and "no figures without known truth" in said
    _, shown, _ = run_cli(capsys, "info", run)
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


def test_names_that_the_terminal_cannot_show(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "läuft"
    link.symlink_to(run)
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "splitpu", "info", link], capture_output=True, env=plain, check=False)
    assert done.returncode == 0 and rb"l\xe4uft" in done.stdout and b"Traceback" not in done.stderr


def test_the_help_names_every_input_that_can_be_scored(capsys: Capture) -> None:
    _, out, _ = run_cli(capsys, "predict", "--help")
    assert "one image" in " ".join(out.split())


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_no_column_vanishes_where_the_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    row = {"model": "round 1 student", "accuracy": 0.9314, "f1": 0.8, "average_precision": 0.7, "roc_auc": 0.6123}
    print_table([row | {"positive_rate_unlabelled": 0.3}], [*row, "positive_rate_unlabelled"])
    out = capsys.readouterr().out
    assert all(cell in out for cell in ("round 1 student", "93.1 %", "0.8000", "0.7000", "0.6123", "30.0 %"))
    assert len({len(line) for line in out.splitlines()}) == 1  # a table still, of which the terminal breaks the lines


@pytest.mark.parametrize("command", ["predict", "prior", "evaluate", "hard"])
def test_commands_of_one_process_are_refused_to_torchrun(
    command: str, run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    must_refuse(capsys, command, run, saying=f"splitpu {command} works in one process: start it without torchrun")


@pytest.mark.parametrize(
    ("size", "sentence"),
    [("two", "WORLD_SIZE is 'two', which is not a number"), ("2", "one of 2 processes, which cannot meet .*RANK")],
)
def test_processes_that_torchrun_did_not_start(
    size: str, sentence: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.delenv("RANK", raising=False)
    must_refuse(capsys, "fit", write_npz(tmp_path / "tiny.npz"), "--prior", 0.5, saying=sentence)


def test_an_empty_variable_says_nothing(run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "")
    assert run_cli(capsys, "info", run)[0] == 0


def test_help_is_there_for_several_processes_too(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run_cli(capsys, "--help")[0] == 0


def test_advice_on_the_command_line_names_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "a.npz", X_test=None, y_test=None, truth=None)
    said = must_refuse(capsys, "fit", data, "--prior", "0.1", saying=r"^splitpu: --prior 0\.1 expects 8 positives")
    assert "--scenario case-control if" in said and "=" not in said


@pytest.mark.parametrize("display", [ProgressDisplay, LineDisplay, BarDisplay])
def test_notes_name_options_wherever_they_are_shown(
    display: type[ProgressDisplay], capsys: pytest.CaptureFixture[str]
) -> None:
    display().note("few are labelled:\n give prior=0.3")
    assert capsys.readouterr().err == "note: few are labelled: give --prior 0.3\n"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("give it (prior='auto'), or", "give it (--prior auto), or"),
        ("raise it above prior=0.25.", "raise it above --prior 0.25."),
        ("use device='cuda:1'.", "use --device cuda:1."),
        ("/data/prior=0.3/x.csv is empty", "/data/prior=0.3/x.csv is empty"),
        ("a-prior=0.3.csv is empty", "a-prior=0.3.csv is empty"),
    ],
)
def test_only_arguments_are_translated(sentence: str, expected: str) -> None:
    assert as_options(sentence) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "x.csv"], "train is not a command; did you mean splitpu fit?"),
        (["score"], "did you mean splitpu predict?"),
        (["version"], "did you mean splitpu --version?"),
        (["fitt"], "did you mean splitpu fit?"),
        (["banana"], "banana is not a command of splitpu; there are demo, fit, resume, predict"),
        (["data", "lst"], "did you mean splitpu data list?"),
        (
            ["reproduce", "rho"],
            "rho is not a command of splitpu reproduce: run an experiment with splitpu reproduce run",
        ),
        (["reproduce", "--render"], "did you mean splitpu reproduce render?"),
    ],
)
def test_commands_of_other_names_are_answered_with_ours(capsys: Capture, words: list[str], sentence: str) -> None:
    assert sentence in must_refuse(capsys, *words, saying="")


def test_if_settings_do_nothing_in_short() -> None:
    assert if_settings_do_nothing([Config(method="nnpu")], ["base.epochs=5", "student.epochs=5"], 3) == (
        "--set student.epochs=5, --rounds 3 have no effect: nnpu reads the settings in base, selection"
    )


def test_parse_seeds_in_short() -> None:
    assert parse_seeds("3,0") == (3, 0)


def test_parse_methods_in_short() -> None:
    assert parse_methods("vpu, nnpu") == ("vpu", "nnpu")


def test_terms_in_words_in_short() -> None:
    assert (
        terms_in_words(EpochRecord("base", 1, 2, 0.1, 1e-3, {"loss": 0.51234, "recall": 0.9}))
        == "loss 0.512  recall 0.9"
    )


def test_note_line_in_short() -> None:
    assert note_line("the prior was not given:\n  give prior=0.3") == "note: the prior was not given: give --prior 0.3"


def test_title_of_in_short() -> None:
    assert (title_of("roc_auc"), title_of("recall"), title_of("recall@50")) == (
        "ROC AUC",
        "recall",
        "recall in the top 50",
    )


def test_widths_in_short() -> None:
    assert (
        _widths([("name", ["a"]), ("called positive", ["31.4 %"])], 80),
        _widths([("called positive", ["31.4 %"])], 5),
    ) == ([4, 15], [8])


def test_shortest_list_in_short() -> None:
    assert list(shortest_list(dict.fromkeys(["roc_auc", "lift@5", "lift@10", "lift@20"], 1.0))) == [
        "roc_auc",
        "lift@10",
    ]


def test_notes_in_report_in_short() -> None:
    assert (notes_in_report(["column 'a' is empty"]), notes_in_report([])) == ({"notes": "1, all in the report"}, {})


def test_by_control_c_in_short() -> None:
    assert (by_control_c(KeyboardInterrupt()), by_control_c(RuntimeError("a mistake"))) == (True, False)
