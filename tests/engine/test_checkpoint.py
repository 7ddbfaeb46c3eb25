"""A run that is killed at any moment goes on to bitwise the same model; one that is asked to stop does so cleanly."""

import json
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cli_tools import TINY, must_do, run_cli, tiny_arrays, write_npz
from process_tools import PATIENCE, Moment, start, wait_for
from safetensors.torch import load_file
from torch import nn

from splitpu.cli import main
from splitpu.config.schema import OptimiserConfig
from splitpu.engine.checkpoint import CheckpointStore, StageState, under
from splitpu.engine.stage import EpochRecord, Stage

SETTINGS = [
    *("--prior", "0.5", "--quiet"),
    *("--set", "base.epochs=5"),
    *("--set", "split.max_epochs=4"),
    *("--set", "split.tau=1.0"),
    *("--set", "student.epochs=5"),
    *("--set", "student.optimiser.average=0.9"),  # the weight average has to survive as well
    *("--set", "engine.threads=1"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows enough that an epoch takes some tens of milliseconds."""
    return write_npz(tmp_path_factory.mktemp("data") / "rows.npz", **tiny_arrays(rows=4000, features=16))


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main(["fit", str(data), "--out", str(out), *SETTINGS]) == 0
    return out


def epochs_done(stage: str, count: int) -> Moment:
    """After `count` epochs of a stage have been noted."""

    def reached(out: Path) -> bool:
        try:
            return (out / "metrics.jsonl").read_text().count(f'"stage": "{stage}"') >= count
        except OSError:
            return False

    return reached


def writing_checkpoint(stage: str) -> Moment:
    """While the stage's checkpoint is half written, after it has been there once."""

    def reached(out: Path) -> bool:
        names = [path.name for path in (out / "checkpoints").glob("*")] if (out / "checkpoints").exists() else []
        return any(n.startswith(stage) for n in names) and any(n.startswith(".") for n in names)

    return reached


def folder_made(out: Path) -> bool:
    return (out / "request.json").exists()


def same_model(one: Path, other: Path) -> bool:
    files = ("model.safetensors", "model.json", "split.csv")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in files)


def test_killed_again_and_again_it_ends_with_the_same_model(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    moments = [
        folder_made,
        epochs_done("base", 2),
        writing_checkpoint("base"),
        epochs_done("round1.split", 2),
        writing_checkpoint("round1.student"),
        epochs_done("round2.student", 3),
    ]
    hits = 0
    words: list[object] = ["fit", data, "--out", out, *SETTINGS]
    for moment in moments:
        process = start(*words)
        if wait_for(moment, out, process):
            time.sleep(random.uniform(0, 0.02))
            process.kill()
            hits += 1
        process.communicate(timeout=PATIENCE)
        if hits:
            words = ["resume", out, "--quiet"]
    assert hits >= 4 and not (out / "result.json").exists()
    process = start(*words)
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    assert same_model(out, uninterrupted)
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in uninterrupted.iterdir())
    assert _without_times(out) == _without_times(uninterrupted)


def test_killed_in_a_second_attempt_and_in_a_second_member(tmp_path: Path) -> None:
    """Labelled positives that count for everything: every student says yes to all, and the base stays the model."""
    arrays = tiny_arrays(rows=2000, features=6)
    rows = write_npz(tmp_path / "rows.npz", **arrays | {"X": arrays["X"] - 2.1 * arrays["truth"][:, None]})
    words: list[object] = ["fit", rows, *SETTINGS, "--rounds", "2", "--set", "members=2"]
    words += ["--set", "student.positive_weight=100", "--set", "student.optimiser.rate=0.3"]
    out, whole = tmp_path / "run", tmp_path / "whole"
    must_do(*words, "--out", whole)
    words += ["--out", out]
    for moment in (epochs_done("round1.student.again1", 2), epochs_done("round2.student.member2", 2)):
        process = start(*words)
        assert wait_for(moment, out, process)
        process.kill()
        process.communicate(timeout=PATIENCE)
        words = ["resume", out, "--quiet"]
    must_do(*words)
    assert same_model(out, whole) and _without_times(out) == _without_times(whole)
    one, other = (json.loads((run / "result.json").read_text()) for run in (out, whole))
    assert one["warnings"] == other["warnings"] and any("member2" in warning for warning in one["warnings"])
    assert one["final"] == other["final"] == "base" and [found["taken"] for found in one["rounds"]] == [False, False]
    weights = load_file(out / "model.safetensors")
    in_base = {name: tensor for name, tensor in weights.items() if name.startswith("base/")}
    assert in_base and all(weights[name.replace("base/", "final/")].equal(tensor) for name, tensor in in_base.items())


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_it_says_how_to_go_on(
    data: Path, uninterrupted: Path, tmp_path: Path, sent: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    process = start("fit", data, "--out", out, *SETTINGS)
    assert wait_for(epochs_done("round1.student", 1), out, process)
    process.send_signal(sent)
    printed, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code and printed == ""
    assert said.splitlines()[-1] == f"stopped; continue with: splitpu resume {out}"
    assert "Traceback" not in said and not list(out.rglob(".*tmp*"))
    code, shown, _ = run_cli(capsys, "info", out)
    assert code == 0 and "unfinished" in shown and "round1.student" in shown
    assert run_cli(capsys, "fit", data, "--out", out, *SETTINGS)[0] == 2  # never overwritten
    assert run_cli(capsys, "resume", out, "--quiet")[0] == 0
    assert same_model(out, uninterrupted)


@pytest.mark.parametrize("seeds", [(), ("--seeds", "0,1")])
def test_control_c_as_soon_as_there_is_a_run_says_how_to_go_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seeds: list[str]
) -> None:
    out = tmp_path / "run"

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(
            "splitpu.cli.several_runs._train_and_show" if seeds else "splitpu.cli.train.train_and_show", interrupted
        )
        code, _, said = run_cli(capsys, "fit", data, "--out", out, *SETTINGS, *seeds)
    assert (code, said) == (130, f"stopped; continue with: splitpu resume {out}\n")
    with monkeypatch.context() as patched:
        patched.setattr("splitpu.cli.train.begin_asked", interrupted)
        code, _, said = run_cli(capsys, "fit", data, "--out", tmp_path / "never", *SETTINGS)
    assert code == 130 and "before there was anything to keep" in said


def test_finished_but_killed_before_the_result_was_written(
    data: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("splitpu.runs.run.write_report", die)
        with pytest.raises(Killed):
            main(["fit", str(data), "--out", str(out), *SETTINGS])
    assert main(["resume", str(out), "--quiet"]) == 0
    assert same_model(out, uninterrupted)


def test_a_damaged_checkpoint_is_trained_again(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("fit", data, "--out", out, *SETTINGS)
    assert wait_for(epochs_done("round1.split", 1), out, process)
    process.kill()
    process.communicate()
    (checkpoint,) = (out / "checkpoints").glob("base-*.safetensors")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    assert main(["resume", str(out), "--quiet"]) == 0
    assert same_model(out, uninterrupted)


def test_epochs_that_tell_how_many_runs_shared_the_device_are_read(tmp_path: Path) -> None:
    """As they did while several runs could share a GPU: nothing of such a stage is trained again."""
    module = nn.Linear(2, 1)
    stage = Stage("base", SimpleNamespace(module=module), {}, "rows", 2, OptimiserConfig(), {})
    store = CheckpointStore(tmp_path)
    record = EpochRecord("base", 1, 2, 3.0, 0.1, {"loss": 0.5})
    tensors = under("module", module.state_dict())
    with pytest.MonkeyPatch.context() as then:
        then.setattr(EpochRecord, "to_dict", lambda one: one.__dict__ | {"side_by_side": 5})
        store.save(stage, StageState(1, False, [record], tensors))
        store.flush()
    found = store.load(stage)
    assert found is not None and found.history == [record] and torch.equal(found.section("module")["bias"], module.bias)


def test_a_run_goes_on_in_the_precision_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 255, (80, 8, 8, 1)).astype(np.uint8)
    rows, out = write_npz(tmp_path / "rows.npz", X=images, X_test=None, y_test=None), tmp_path / "run"
    words = ["fit", str(rows), "--prior", "0.5", "--quiet", *TINY]
    monkeypatch.setattr("splitpu.engine.hardware._cpu_has_bf16", lambda: False)
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patched:
        patched.setattr("splitpu.runs.run.write_report", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main([*words, "--out", str(out)])
    assert json.loads((out / "request.json").read_text())["precision"] == "fp32"
    monkeypatch.setattr("splitpu.engine.hardware._cpu_has_bf16", lambda: True)
    assert main(["resume", str(out), "--quiet"]) == 0
    assert same_model(out, tmp_path / "whole")
    assert json.loads((out / "result.json").read_text())["engine"] == "stored/fp32/resident"  # every stage was finished


def test_changed_data_cannot_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=6000)), tmp_path / "run"
    process = start("fit", rows, "--out", out, *SETTINGS)
    assert wait_for(epochs_done("base", 1), out, process)
    process.kill()
    process.communicate()
    write_npz(rows, **tiny_arrays(rows=6000, seed=1))
    code, _, said = run_cli(capsys, "resume", out)
    assert code == 2 and "changed since the run began" in said


def test_the_seed_decides(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    words = ["fit", str(data), *SETTINGS]
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    assert main([*words, "--out", str(tmp_path / "other"), "--seed", "1"]) == 0
    assert same_model(tmp_path / "again", uninterrupted)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / "other", uninterrupted)]
    assert weights[0] != weights[1]


def _without_times(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "sha256")} for line in lines]


def test_an_unfinished_run_is_to_be_continued_not_begun_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "request.json").write_text("{}")
    _, _, err = run_cli(capsys, "predict", tmp_path, "a.npy")
    assert f"splitpu resume {tmp_path}" in err
