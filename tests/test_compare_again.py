"""A comparison that was begun before: nothing is trained twice, lost or mixed, whoever else works on it."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import must_do, run_cli
from compare_tools import ASKED, METHODS, lines_of, no_training
from process_tools import PATIENCE, start, wait_for

from splitpu.cli import main
from splitpu.errors import InputError
from splitpu.runs import run as fitting
from splitpu.runs.folder import RunFolder
from splitpu.runs.grid import ComparisonFolder

Capture = pytest.CaptureFixture[str]


def test_methods_and_seeds_can_be_added(compared: Path, compared_rows: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(compared, tmp_path / "all")
    before = (tmp_path / "all/nnpu/seed0/result.json").stat().st_mtime_ns
    words = ["compare", compared_rows, "--method", "naive,upu", "--seeds", "0,4", "--out", tmp_path / "all", *ASKED]
    code, out, _ = run_cli(capsys, *words, "--json")
    assert code == 0 and [one["method"] for one in json.loads(out)["methods"]] == ["naive", "upu"]
    assert {("naive", 4), ("upu", 0), ("upu", 4), ("nnpu", 0)} <= set(lines_of(tmp_path / "all"))
    assert (tmp_path / "all/nnpu/seed0/result.json").stat().st_mtime_ns == before


def test_lines_that_a_kill_left_unwritten_are_written_from_the_runs(
    compared: Path, compared_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(compared, tmp_path / "all")
    before = lines_of(compared)
    (tmp_path / "all/runs.jsonl").write_text(json.dumps(before["nnpu", 0]) + "\n")
    monkeypatch.setattr(fitting, "train", no_training)
    assert (
        main(["compare", str(compared_rows), *METHODS, "--seeds", "0,3", "--out", str(tmp_path / "all"), *ASKED]) == 0
    )
    assert lines_of(tmp_path / "all") == before


def test_two_processes_do_not_work_on_one_comparison(compared: Path, compared_rows: Path, capsys: Capture) -> None:
    with RunFolder(compared).locked():
        code, _, err = run_cli(capsys, "compare", compared_rows, *METHODS, "--seeds", "0", "--out", compared, *ASKED)
    assert code == 2 and "another process is working on" in err


def test_of_two_commands_started_together_one_writes_nothing(
    compared_rows: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "all"
    out.mkdir()
    words = ["compare", compared_rows, "--method", "naive", "--seeds", "0", "--out", out, *ASKED]
    with RunFolder(out).locked():  # the other one has begun and not written anything yet
        code, _, err = run_cli(capsys, *words)
        assert code == 2 and "another process is working on" in err
        assert [path.name for path in out.iterdir()] == [".lock"]
    (out / ".lock").write_text("")  # as one leaves it that is killed at once
    assert run_cli(capsys, *words)[0] == 0 and not list(out.glob(".*"))


def test_a_comparison_is_read_when_nobody_else_can_write_it(
    compared_rows: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[bool]()

    def read_shared(folder: ComparisonFolder) -> None:
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
        held.append(True)
        usual(folder)

    usual = ComparisonFolder._read_shared
    monkeypatch.setattr(ComparisonFolder, "_read_shared", read_shared)
    for seeds in ("0", "0,1"):
        words = ["compare", compared_rows, "--method", "naive", "--seeds", seeds, "--out", tmp_path / "all", *ASKED]
        assert run_cli(capsys, *words)[0] == 0
    assert held == [True]


def test_other_settings_or_rows_are_not_mixed_in(
    compared: Path, compared_rows: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = [*METHODS, "--seeds", "0,3", "--out", compared]
    code, _, err = run_cli(capsys, "compare", compared_rows, *words, *ASKED, "--set", "base.epochs=3")
    assert code == 2 and "with another set of settings" in err
    code, _, err = run_cli(capsys, "compare", compared_rows, *words, "--prior", "0.6", *ASKED[2:])
    assert code == 2 and "with another prior" in err
    with np.load(compared_rows) as arrays:
        np.savez(tmp_path / "rows.npz", **{**arrays, "y_test": 1 - arrays["y_test"]})
    code, _, err = run_cli(capsys, "compare", tmp_path / "rows.npz", *words, *ASKED)
    assert code == 2 and "with another content of the test rows" in err
    for command in (["evaluate", compared], ["fit", "--resume", compared]):
        code, _, err = run_cli(capsys, *command)
        assert code == 2 and "holds a comparison: name one of its runs" in err


LONG = ["--method", "vpu,nnpu", "--seeds", "0", *ASKED, "--set", "vpu.epochs=2", "--set", "base.epochs=150"]
LONG += ["--set", "engine.checkpoint_every=25"]


@pytest.fixture(scope="module")
def uninterrupted(compared_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "all"
    assert main(["compare", str(compared_rows), *LONG, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_comparison_goes_on_where_it_was(
    how: signal.Signals, compared_rows: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # without --out the same command finds its folder by itself
    process = start("compare", compared_rows, *LONG)

    def inside_the_second_run(place: Path) -> bool:
        return any(file.read_text().count("\n") >= 3 for file in place.glob("runs/*/nnpu/seed0/metrics.jsonl"))

    assert wait_for(inside_the_second_run, tmp_path, process)
    process.send_signal(how)
    _, err = process.communicate(timeout=PATIENCE)
    if how == signal.SIGINT:
        assert process.returncode == 130 and "the same command to continue with what is in runs/compare-rows-" in err
    (folder,) = (tmp_path / "runs").iterdir()
    (first,) = lines_of(folder).values()
    assert first["method"] == "vpu" and not (folder / "nnpu/seed0/result.json").exists()
    assert main(["compare", str(compared_rows), *LONG]) == 0
    assert list((tmp_path / "runs").iterdir()) == [folder] and not list(folder.glob(".*"))
    assert len(lines_of(folder)) == 2 and lines_of(folder)["vpu", 0] == first
    for run in ("vpu/seed0", "nnpu/seed0"):
        found, whole = (place / run / "model.safetensors" for place in (folder, uninterrupted))
        assert found.read_bytes() == whole.read_bytes()


def test_a_run_that_fails_is_named_and_the_others_are_kept(
    compared_rows: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = fitting.train

    def train(*given: object, **options: Any) -> object:
        if options["config"].method == "naive":
            raise RuntimeError("no luck today")
        return usual(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "train", train)
    words = ["compare", compared_rows, "--method", "nnpu,naive", "--seeds", "0", "--out", tmp_path / "all", *ASKED]
    code, _, err = run_cli(capsys, *words)
    assert code == 2 and "naive, seed 0 failed (no luck today); finished: nnpu, seed 0; run the same command" in err
    assert list(lines_of(tmp_path / "all")) == [("nnpu", 0)]
    monkeypatch.setattr(fitting, "train", usual)
    must_do(*words)
    assert len(lines_of(tmp_path / "all")) == 2
