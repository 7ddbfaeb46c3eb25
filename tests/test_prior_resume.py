"""An estimate of the prior that is stopped or killed goes on with the same command, and leaves nothing when it ends."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli
from process_tools import PATIENCE, wait_for
from stopping import StopAt

import splitpu.prior.network_scores as networks
from splitpu.cli import main
from splitpu.data.pudata import PUData
from splitpu.engine.checkpoint import CheckpointStore
from splitpu.errors import DiskError, InputError, Interrupted
from splitpu.runs.prior_stage import kept_until_known

Capture = pytest.CaptureFixture[str]
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
        return any(place.glob("**/.prior-*/checkpoints/prior.fold2.cleaned*"))
    except FileNotFoundError:  # a folder that went while it was looked into: the next look tells
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_estimate_goes_on_with_the_same_command(
    how: signal.Signals, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fit", str(whole.parent / "rows.npz"), *ASKED]
    process = start_again(*words)
    assert wait_for(second_network_begun, tmp_path, process)
    process.send_signal(how)
    _, err = process.communicate(timeout=PATIENCE)
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how
        assert err.endswith(
            "stopped while the prior was being estimated; run the same command to continue from there\n"
        )
    assert [path.name[:7] for path in Path("runs").iterdir()] == [".prior-"]
    capsys.readouterr()
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "an estimate of these rows was stopped; it continues from there" in said
    (run,) = Path("runs").iterdir()
    found, expected = (json.loads((place / "request.json").read_text()) for place in (run, whole))
    assert found["prior_estimate"] == expected["prior_estimate"] and found["prior"] == expected["prior"]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_of_several_seeds_known_estimates_wait_for_the_others(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fit", str(whole.parent / "rows.npz"), *ASKED, "--seeds", "0,1", "--out", "deep/both"]
    process = start_again(*words)
    assert wait_for(second_estimate_begun, tmp_path, process)
    process.send_signal(signal.SIGINT)
    assert "run the same command to continue from there" in process.communicate(timeout=PATIENCE)[1]
    assert sorted(path.name[-6:] for path in Path("deep").iterdir()) == ["-seed0", "-seed1"]
    done = {path: path.stat().st_mtime_ns for path in Path("deep").glob("*-seed0/checkpoints/*")}
    trained_again = []
    monkeypatch.setattr(CheckpointStore, "save", recording(CheckpointStore.save, trained_again))
    capsys.readouterr()
    assert main(words) == 0 and done
    assert capsys.readouterr().err.count("an estimate of these rows was stopped; it continues from there") == 2
    assert not {path.name for path in done} & set(trained_again)
    assert [path.name for path in Path("deep").iterdir()] == ["both"]
    assert (Path("deep/both/seed0/model.safetensors")).read_bytes() == (whole / "model.safetensors").read_bytes()


def second_estimate_begun(place: Path) -> bool:
    return any(place.glob("deep/.prior-*-seed1/checkpoints/*.safetensors"))


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


def test_two_at_the_same_estimate_do_not_share_a_folder(tmp_path: Path) -> None:
    arrays = photographs(30)
    data, found = PUData.from_arrays(arrays["X"], arrays["s"]), []

    def second() -> None:
        with kept_until_known(data, 0, tmp_path) as folder:
            found.append(folder)

    with kept_until_known(data, 0, tmp_path) as folder:
        assert folder is not None
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert folder.parent.is_dir()
        with kept_until_known(data, 1, tmp_path) as other:
            assert other != folder
    assert found == [None] and not list(tmp_path.iterdir())
    with kept_until_known(PUData.from_arrays(np.zeros((9, 2)), np.arange(9) < 3), 0, tmp_path) as nothing:
        assert nothing is None
    with pytest.raises(InputError), kept_until_known(data, 0, tmp_path):
        raise InputError("no estimate")
    assert not list(tmp_path.iterdir())
    with pytest.raises(DiskError), kept_until_known(data, 0, tmp_path):
        raise DiskError("no room for more of it; free some space and resume")
    assert [path.name[:7] for path in tmp_path.iterdir()] == [".prior-"]
    (tmp_path / "file").write_text("where nothing can be kept")
    with kept_until_known(data, 0, tmp_path / "file") as nothing:
        assert nothing is None
