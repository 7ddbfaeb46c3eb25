"""The command line: every mistake is one sentence and code 2, and leaves nothing behind."""

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
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz

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
    (["--prior", 0.5, "--positives", 5], "--positives is for named sets"),
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
        (["fit", "digts", "--positives", 50], "digits"),
        (["fit", "digits"], "--positives"),
        (["fit", "digits", "--positives", 0], "positives=0"),
        (["fit", "digits", "--positives", 10_000], "too many"),
        (["fit", "missing.npz", "--prior", 0.5], "missing.npz"),
        (["fit"], "needs DATA"),
        (["fti"], "fit"),
        (["fit", "--resume", "nowhere"], "nowhere"),
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
