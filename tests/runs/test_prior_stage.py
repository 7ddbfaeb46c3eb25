"""The estimated prior in classifiers, run folders and commands.

An estimate is the first stage of a run: stopped or killed it is resumed with the run, and it leaves nothing behind.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz
from process_tools import PATIENCE, wait_for
from stopping import StopAt

import splitpu.prior.network_scores as networks
from splitpu import SplitPUClassifier, SplitPUWarning
from splitpu.cli import main
from splitpu.cli.evaluate import _checkpoints_of
from splitpu.data.pudata import PUData
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.errors import DiskError, InputError, Interrupted

Capture = pytest.CaptureFixture[str]


def test_classifier_with_automatic_prior():
    arrays = tiny_arrays(rows=240)
    quick = {"base.epochs": 2, "student.epochs": 2, "split.tau": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SplitPUWarning)
        fitted = SplitPUClassifier(config=quick, rounds=1, random_state=0).fit(arrays["X"], arrays["s"])
    assert abs(fitted.prior_ - 0.5) < 0.1 and fitted.prior_source_ == "estimated by the order of scores"
    low, high = fitted.prior_interval_
    assert low < fitted.prior_ < high
    given = SplitPUClassifier(prior=0.5, config=quick, rounds=0, random_state=0).fit(arrays["X"], arrays["s"])
    assert given.prior_source_ == "given" and given.prior_interval_ is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on rows without any truth, its prior estimated."""
    from splitpu.cli import main

    place = tmp_path_factory.mktemp("prior")
    arrays = tiny_arrays(rows=240)
    data = write_npz(place / "pu.npz", **arrays | {"X_test": None, "y_test": None, "truth": None})
    assert main(["fit", str(data), "--out", str(place / "run"), "--quiet", "--rounds", "1", *TINY]) == 0
    return place / "run"


def test_run_folder_tells_where_the_prior_comes_from(run: Path):
    result = json.loads((run / "result.json").read_text())
    assert result["prior_source"] == "estimated by the order of scores"
    assert result["prior_interval"][0] < result["prior"] < result["prior_interval"][1]
    assert result["prior_estimate"]["table"][0]["name"] == "the order of scores"
    page = (run / "report.html").read_text()
    assert "the order of scores" in page and 'id="prior"' in page


def write_few(place: Path, **changes: object) -> Path:
    """Rows of which too few are labelled for an estimate."""
    few = tiny_arrays(rows=240)
    few["s"] = np.where(np.cumsum(few["s"]) <= 5, few["s"], 0)
    return write_npz(place / "few.npz", **few | changes)


NO_PRIOR = "no prior could be estimated, so the training goes on without one: 5 labelled positives are too few"
VPU = ["--method", "vpu", "--set", "vpu.epochs=2", "--set", "engine.threads=1"]


@pytest.mark.parametrize("tested", [True, False])
def test_that_no_prior_could_be_estimated_is_kept_with_the_run(tested: bool, tmp_path: Path, capsys: Capture):
    run = tmp_path / "run"
    data = write_few(tmp_path, **{} if tested else {"X_test": None, "y_test": None})
    code, out, said = run_cli(capsys, "fit", data, *VPU, "--out", run)
    assert code == 0 and said.count(NO_PRIOR) == 1 and "none could be estimated" in out
    result = json.loads((run / "result.json").read_text())
    assert (result["prior"], result["prior_source"]) == (None, "none could be estimated")
    assert [one.startswith(NO_PRIOR) for one in result["warnings"]].count(True) == 1
    page = (run / "report.html").read_text()
    assert page.count(NO_PRIOR) == 1 and "<dd><bdi>none could be estimated</bdi></dd>" in page
    code, out, _ = run_cli(capsys, "info", run)
    assert code == 0 and "none could be estimated" in out and f"{len(result['warnings'])}, all in the report" in out
    code, out, said = run_cli(capsys, "evaluate", run)
    if tested:
        assert code == 0 and "none could be estimated; 50.0 % of the test rows are positive" in out
    else:  # what the run was refused is not the way out
        assert code == 2 and "--prior 0.3, say), as none could be estimated" in said and "--prior auto" not in said
    said = must_refuse(capsys, "sensitivity", run, saying="as none could be estimated: the report says why")
    assert "--prior auto" not in said


@pytest.mark.parametrize(("asked", "warning"), [([], NO_PRIOR), (["--prior", 0.5], "5 labelled positives are few")])
def test_runs_of_a_comparison_keep_what_was_told_of_their_prior(
    asked: list[object], warning: str, tmp_path: Path, capsys: Capture
):
    words = ["compare", write_few(tmp_path), "--seeds", "0", *asked, "--out", tmp_path / "all", *TINY, *VPU[2:]]
    assert run_cli(capsys, *words, "--method", "vpu")[0] == 0
    code, out, _ = run_cli(capsys, *words, "--method", "vpu,naive")  # a method that is added has it from the folder
    assert code == 0 and ("none could be estimated" in out) == (not asked)
    for method in ("vpu", "naive"):
        kept = json.loads((tmp_path / "all" / method / "seed0" / "result.json").read_text())["warnings"]
        assert [one.startswith(warning) for one in kept].count(True) == 1


def test_what_is_told_before_there_is_a_run_is_kept_with_it(tmp_path: Path, capsys: Capture):
    data = write_few(tmp_path)
    code, _, said = run_cli(capsys, "fit", data, "--prior", "0.5", "--rounds", "0", *TINY, "--out", tmp_path / "run")
    (warned,) = [one for one in json.loads((tmp_path / "run" / "result.json").read_text())["warnings"] if "few" in one]
    assert code == 0 and warned.startswith("5 labelled positives are few") and warned.split(":")[0] in said
    assert "5 labelled positives are few" in (tmp_path / "run" / "report.html").read_text()


def test_prior_command(run: Path, capsys: Capture):
    data = run.parent / "pu.npz"
    code, out, _ = run_cli(capsys, "prior", data, "--json")
    answer = json.loads(out)
    assert code == 0 and abs(answer["value"] - 0.5) < 0.1
    assert {"km2", "tice", "penl1"} <= {row["name"] for row in answer["table"]}
    assert all(row["low"] < row["value"] < row["high"] for row in answer["table"])
    code, out, _ = run_cli(capsys, "prior", data)
    words = " ".join(out.split())
    assert code == 0 and "recommended" in words and "consensus" in words and "random draw" in words
    assert "fit finds it by itself" in words and "cannot be noticed" in words


def test_sensitivity_command(run: Path, capsys: Capture):
    code, out, _ = run_cli(capsys, "sensitivity", run, "--lowest", 0.3, "--highest", 0.7, "--steps", 5, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0 and len(rows) == 5
    rates = [row["positive_rate_unlabelled"] for row in rows]
    assert rates == sorted(rates) and rates[0] < rates[-1]
    own = json.loads((run / "result.json").read_text())["prior"]
    assert next(row for row in rows if row["prior"] == own)["changed_decisions"] <= 1
    code, out, _ = run_cli(capsys, "sensitivity", run, "--steps", 2, "--refit", "--json")
    assert code == 0 and json.loads(out)["refit"] is True
    assert run_cli(capsys, "sensitivity", run)[0] == 0
    code, _, err = run_cli(capsys, "sensitivity", run, "--lowest", 0.01)
    assert code == 2 and "labelled positive already: give more than" in err


def test_evaluation_without_truth(run: Path, capsys: Capture):
    must_refuse(capsys, "evaluate", run, saying="trained on all labelled rows.*selection.held_out=0.2.*--test")
    must_refuse(capsys, "evaluate", run, run.parent / "pu.npz", "--json", saying="no figures without known truth")


NAMED = ["fit", "breast-cancer", "--labelled", 60, "--rounds", 0, *TINY]


def test_of_named_sets_an_estimate_is_the_default_too(tmp_path: Path, capsys: Capture):
    code, out, err = run_cli(capsys, *NAMED, "--json", "--out", tmp_path / "run")
    result = json.loads(out)
    assert (
        code == 0
        and abs(result["prior"] - 0.373) < 0.08
        and result["prior_source"] == "estimated by the order of scores"
    )
    low, high = result["prior_interval"]
    assert low < result["prior"] < high and result["prior"] != 159 / 426
    said = f"prior: {result['prior']:.4g} (95 % interval {low:.3g} to {high:.3g}), estimated by the order of scores; "
    assert said + "the set's true share is 0.373 (--prior true takes it)" in " ".join(err.split())


@pytest.mark.parametrize(
    ("scenario", "share"), [("single-training-set", 159 / 426), ("case-control", (159 - 60) / (426 - 60))]
)
def test_of_named_sets_the_true_share_can_be_asked_for(tmp_path: Path, capsys: Capture, scenario: str, share: float):
    words = [*NAMED, "--prior", "true", "--scenario", scenario]
    code, out, err = run_cli(capsys, *words, "--out", tmp_path / "run")
    words = f"{share:.4g}, the true share in the set"
    assert code == 0 and f"prior: {words}" in err and f"{words} (expects" in out
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["prior"] == share and result["prior_interval"] is None
    assert result["prior_source"] == "the true share in the set"
    assert words in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize("more", [[], ["--seeds", "0,1"]], ids=["one seed", "seeds"])
def test_of_data_of_ones_own_nobody_knows_the_true_share(tmp_path: Path, capsys: Capture, more: list[str]):
    data = write_npz(tmp_path / "own.npz")
    said = must_refuse(capsys, "fit", data, "--prior", "True", "--out", tmp_path / "run", *more, saying="own.npz: give")
    assert "--prior true is for named sets" in said and "leave --prior out to have it estimated" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["fit", "prior"])
def test_an_estimate_that_rows_are_too_few_for_is_not_announced(command: str, tmp_path: Path, capsys: Capture):
    data = write_npz(tmp_path / "pu.npz", s=np.arange(80) > 0, X_test=None, y_test=None, truth=None)
    must_refuse(capsys, command, data, saying="^splitpu: 1 unlabelled row is too few to estimate the prior from")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "vpu", "--set", "members=3"], "members=3 cannot be used with method 'vpu'"),
        (["--set", "base.method=supervised"], "'supervised' learns from the true label of every training row"),
        (["--set", "selection.calibration=platt"], "selection.calibration=platt needs rows"),
        (["--method", "dist-pu", "--calibration", "platt"], "'dist-pu' does not use held-out rows"),
    ],
)
def test_impossible_settings_are_refused_before_the_prior_is_estimated(
    words: list[str], sentence: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("splitpu.cli.train.prior_for", lambda *_, **__: pytest.fail("estimated"))
    data = write_npz(tmp_path / "pu.npz", X_test=None, y_test=None, truth=None)
    must_refuse(capsys, "fit", data, "--out", tmp_path / "run", "--quiet", *words, saying=sentence)
    assert not (tmp_path / "run").exists()


ASKED = ["--method", "nnpu", "--device", "cpu", *TINY]
EPOCHS = {"WARM_UP": 1, "CLEANED": 3, "MOST_TIMES": 1}
# What a shell starts in the background is told to overlook Ctrl-C, and tests may be such.
COMMAND = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import splitpu.prior.network_scores as networks
vars(networks).update({EPOCHS})
from splitpu.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module", autouse=True)
def few_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in EPOCHS.items():
            patch.setattr(networks, name, value)
        yield


def photographs(rows: int = 90) -> dict[str, Any]:
    """Just too large for classical learners; two thirds are bright above, half of those are labelled."""
    images = np.random.default_rng(0).normal(size=(rows, 29, 28, 1)).astype(np.float32)
    images[: rows * 2 // 3, :14] += 1.5
    return {"X": images, "s": (np.arange(rows) < rows // 3).astype(int)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped, beside its rows."""
    place = tmp_path_factory.mktemp("whole")
    np.savez(place / "rows.npz", **photographs())
    assert main(["fit", str(place / "rows.npz"), *ASKED, "--out", str(place / "run")]) == 0
    return place / "run"


def start_again(*words: object) -> "subprocess.Popen[str]":
    """The command in a process of its own, in the working directory of the test."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def second_network_begun(place: Path) -> bool:
    try:
        return any(place.glob("**/checkpoints/prior.fold2.cleaned*"))
    except FileNotFoundError:  # a folder that went while it was looked into: the next look tells
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_estimate_is_resumed_with_its_run(
    how: signal.Signals, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    process = start_again("fit", whole.parent / "rows.npz", *ASKED)
    assert wait_for(second_network_begun, tmp_path, process)
    process.send_signal(how)
    _, err = process.communicate(timeout=PATIENCE)
    (run,) = Path("runs").iterdir()
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how
        assert err.endswith(f"stopped; continue with: splitpu resume {run}\n")
    stored = json.loads((run / "request.json").read_text())
    assert (stored["prior"], stored["prior_source"], stored["prior_estimate"]) == (None, "to be estimated", None)
    code, out, _ = run_cli(capsys, "info", run)
    assert code == 0 and re.search("^prior +to be estimated$", out, re.MULTILINE)
    must_refuse(capsys, "predict", run, whole.parent / "rows.npz", saying="holds an unfinished run")
    done = [path.name for path in (run / "checkpoints").glob("prior.fold1.*")]
    trained_again: list[str] = []
    monkeypatch.setattr(CheckpointStore, "save", recording(CheckpointStore.save, trained_again))
    capsys.readouterr()
    assert main(["resume", str(run)]) == 0
    said = capsys.readouterr().err
    assert "an estimate of these rows was stopped; it continues from there" in said
    assert done and trained_again and not set(done) & set(trained_again)
    assert list(Path("runs").iterdir()) == [run]
    found, expected = (json.loads((place / "request.json").read_text()) for place in (run, whole))
    assert found["prior_estimate"] == expected["prior_estimate"] and found["prior"] == expected["prior"]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_estimates_of_several_seeds_are_resumed_with_their_runs(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    process = start_again("fit", whole.parent / "rows.npz", *ASKED, "--seeds", "0,1", "--out", "deep/both")
    assert wait_for(second_estimate_begun, tmp_path, process)
    process.send_signal(signal.SIGINT)
    assert "continue with: splitpu resume deep/both" in process.communicate(timeout=PATIENCE)[1]
    first, second = (json.loads(Path(f"deep/both/seed{seed}/request.json").read_text()) for seed in (0, 1))
    assert first["prior"] is not None and second["prior_source"] == "to be estimated"
    done = [path.name for path in Path("deep/both/seed1/checkpoints").glob("prior.fold1.plain*")]
    trained_again: list[str] = []
    monkeypatch.setattr(CheckpointStore, "save", recording(CheckpointStore.save, trained_again))
    capsys.readouterr()
    assert main(["resume", "deep/both"]) == 0 and done
    assert capsys.readouterr().err.count("an estimate of these rows was stopped; it continues from there") == 1
    assert not set(done) & set(trained_again)
    assert [path.name for path in Path("deep").iterdir()] == ["both"]
    assert (Path("deep/both/seed0/model.safetensors")).read_bytes() == (whole / "model.safetensors").read_bytes()


def second_estimate_begun(place: Path) -> bool:
    return any(place.glob("deep/both/seed1/checkpoints/prior.fold1.cleaned*"))


def test_estimates_of_a_comparison_go_on_with_the_same_command(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", str(whole.parent / "rows.npz"), *ASKED, "--seeds", "0", "--out", "all"]
    process = start_again(*words)
    assert wait_for(second_network_begun, tmp_path, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)[1]
    assert said.endswith("stopped while the prior was being estimated; run the same command to continue from there\n")
    capsys.readouterr()
    assert main(words) == 0
    assert "an estimate of these rows was stopped; it continues from there" in capsys.readouterr().err
    kept = json.loads(Path("all/nnpu/seed0/request.json").read_text())
    assert kept["prior"] == json.loads((whole / "request.json").read_text())["prior"]
    assert not Path("all/checkpoints").exists()


def recording(save: Any, names: list[str]) -> Any:
    """The same, and the names of the files are written down."""

    def recorded(store: CheckpointStore, stage: Any, state: Any) -> None:
        path = store._path(stage)
        names.extend([] if path is None else [path.name])
        save(store, stage, state)

    return recorded


def test_networks_that_are_done_are_not_trained_again(tmp_path: Path) -> None:
    arrays = photographs()
    data = PUData.from_arrays(arrays["X"], arrays["s"])

    def scores(**how: Any) -> tuple[list[float], ...]:
        found = networks.network_scores(data, **{"seed": 0, "device": "cpu", "network": "cnn-small"} | how)
        return found.plain.tolist(), found.cleaned.tolist()

    whole = scores()
    with pytest.raises(Interrupted):
        scores(observer=StopAt(2), checkpoints=tmp_path)  # only the second part is so long
    assert scores(checkpoints=tmp_path) == whole
    done = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(done) == 8 and scores(checkpoints=tmp_path) == whole
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == done
    assert scores(seed=1, checkpoints=tmp_path) != whole


def test_nothing_is_left_where_there_can_be_no_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = photographs()
    arrays["X"][30:] -= 9  # whatever is labelled is bright, and nothing else
    np.savez("rows.npz", **arrays)
    must_refuse(capsys, "fit", "rows.npz", "--device", "cpu", "--quiet", *TINY, saying="nothing to tell apart|prior")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_the_prior_command_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", **photographs())
    assert run_cli(capsys, "prior", "rows.npz", "--device", "cpu")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_two_at_the_same_estimate_do_not_share_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path))
    arrays = photographs(30)
    data, found = PUData.from_arrays(arrays["X"], arrays["s"]), []

    def left() -> list[str]:
        return [path.name for path in (tmp_path / "priors").iterdir()]

    def second() -> None:
        with _checkpoints_of(data, 0) as folder:
            found.append(folder)

    with _checkpoints_of(data, 0) as folder:
        assert folder is not None
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert folder.parent.is_dir()
        with _checkpoints_of(data, 1) as other:
            assert other != folder
    assert found == [None] and not left()
    with _checkpoints_of(PUData.from_arrays(np.zeros((9, 2)), np.arange(9) < 3), 0) as nothing:
        assert nothing is None
    with pytest.raises(InputError), _checkpoints_of(data, 0):
        raise InputError("no estimate")
    assert not left()
    with pytest.raises(DiskError), _checkpoints_of(data, 0):
        raise DiskError("no room for more of it; free some space and resume")
    assert len(left()) == 1
    (tmp_path / "file").write_text("where nothing can be kept")
    monkeypatch.setenv("SPLITPU_CACHE", str(tmp_path / "file"))
    with _checkpoints_of(data, 0) as nothing:
        assert nothing is None
