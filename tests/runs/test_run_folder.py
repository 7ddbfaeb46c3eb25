"""The run folder: there whole or not at all, held by one process at a time, and never overwritten."""

import errno
import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from cli_tools import TINY, must_refuse, run_cli, tiny_arrays, write_npz

from splitpu.config.schema import Config
from splitpu.data.array_files import NpzSource
from splitpu.data.public.datasets import NamedSource
from splitpu.engine.stage import EpochRecord
from splitpu.errors import DiskFull, InputError
from splitpu.runs import run as fitting
from splitpu.runs.folder import Request, RunFolder, load_request
from splitpu.runs.grid_folders import SeedsFolder
from splitpu.training import MetricsFile, Runtime
from splitpu.utils.files import disk_errors_in_words, replacing, write_text
from splitpu.utils.reading import write_sealed


def a_request(**changes: object) -> Request:
    fields = {
        "source": NpzSource(path="/nowhere/data.npz"),
        "fingerprint": "abc",
        "prior": 0.5,
        "preset": "default",
        "backbone": "auto",
        "seed": 0,
        "device": "cpu",
        "precision": "fp32",
    }
    return Request(**(fields | changes))  # type: ignore[arg-type]


def test_runs_that_begin_within_one_second_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("splitpu.runs.folder.datetime", Frozen)
    found = []
    for _ in range(3):
        found.append(RunFolder.free_path(None, "a.b"))
        found[-1].mkdir(parents=True)
    assert [path.name for path in found] == ["a.b-20260301-120000", "a.b-20260301-120000-2", "a.b-20260301-120000-3"]


class Frozen(datetime):
    @classmethod
    def now(cls, tz: object = None) -> "Frozen":
        return cls(2026, 3, 1, 12)


def test_a_request_comes_back_the_same(tmp_path: Path) -> None:
    request = a_request(source=NamedSource(name="digits", positives=50, draw_seed=3, scenario="case-control"))
    write_sealed(tmp_path / "request.json", request.to_dict())
    assert Request.read(tmp_path / "request.json") == request


@pytest.mark.parametrize("text", ["", "{", "{}", '{"source": {"what": 1}}', "[]"])
def test_a_damaged_request_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(text)
    with pytest.raises(InputError, match="cannot be read"):
        Request.read(tmp_path / "request.json")


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("splitpu.utils.files.os.rename", refuse)
    with pytest.raises(InputError, match="disk is full"):
        RunFolder.create(tmp_path / "runs" / "new", a_request(), Config())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_at_once_is_told_of_by_the_name_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: str) -> None:
        raise DiskFull(f"{path} could not be written")

    monkeypatch.setattr("splitpu.runs.folder.write_text", refuse)
    with pytest.raises(DiskFull, match=f"full: {tmp_path / 'new'} could not be written; free some space"):
        RunFolder.create(tmp_path / "new", a_request(), Config())
    with pytest.raises(DiskFull, match=f"full: {tmp_path / 'new'} could not be written; free some space"):
        SeedsFolder.create(tmp_path / "new", [0], lambda path, _: RunFolder.create(path, a_request(), Config()))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_used_and_a_full_one_not(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "letter.txt").write_text("dear reader")
    assert RunFolder.free_path(empty, "x") == empty
    RunFolder.create(empty, a_request(), Config())
    with pytest.raises(InputError, match="splitpu resume"):
        RunFolder.free_path(empty, "x")
    with pytest.raises(InputError, match="not an empty folder"):
        RunFolder.free_path(full, "x")
    with pytest.raises(InputError, match="choose another --out"):
        RunFolder.create(full, a_request(), Config())
    assert [path.name for path in full.iterdir()] == ["letter.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", a_request(), Config())
    with folder.locked(), pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
        pass
    with folder.locked():
        pass


def test_a_run_that_may_only_be_read_is_not_sent_to_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there already is gone on with where it is; the refusal is stood in for, as root is refused nothing."""
    folder = RunFolder.create(tmp_path / "run", a_request(), Config())

    def refused(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "open", refused)
    advice = r"run may not be written \(Permission denied\); make it writable, or go on with a copy in another place"
    with pytest.raises(InputError, match=advice), folder.locked():
        pass


def test_a_lock_on_a_file_that_was_removed_meanwhile_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    folder, usual = RunFolder.create(tmp_path / "run", a_request(), Config()), fcntl.flock

    def late(*given: object) -> None:
        """Whoever held it ends between our opening the file and our locking it."""
        monkeypatch.setattr(fcntl, "flock", usual)
        folder.lock_file.unlink()
        usual(*given)

    monkeypatch.setattr(fcntl, "flock", late)
    with folder.locked(), pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
        pass
    assert not folder.lock_file.exists()


def test_a_finished_run_is_neither_trained_nor_written_again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two commands resume it, and the slower one comes to its lock when the other one is done."""
    folder, notes = RunFolder(finished), list[str]()
    request, before = folder.request(), {path: path.stat().st_mtime_ns for path in finished.iterdir()}
    monkeypatch.setattr(fitting, "train", lambda *_, **__: pytest.fail("trained again"))
    result = fitting.carry_out(folder, request, load_request(request), runtime=Runtime(), note=notes.append)
    assert result == folder.read_result() and "been finished by another process" in notes[0]
    assert {path: path.stat().st_mtime_ns for path in finished.iterdir()} == before


def test_a_run_is_tidied_up_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the checkpoints of whoever goes on with it next could be taken away."""
    data, out, usual, refused = write_npz(tmp_path / "tiny.npz"), tmp_path / "run", RunFolder.tidy, list[Path]()

    def tidy(folder: RunFolder, *, keep_checkpoints: bool) -> None:
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
        refused.append(folder.path)
        usual(folder, keep_checkpoints=keep_checkpoints)

    monkeypatch.setattr(RunFolder, "tidy", tidy)
    assert run_cli(capsys, "fit", data, "--prior", 0.5, "--rounds", 0, "--out", out, *TINY)[0] == 0
    (out / "checkpoints").mkdir()  # as a process leaves it that was killed at its very end
    assert run_cli(capsys, "resume", out)[0] == 0
    assert refused == [out, out] and not (out / "checkpoints").exists()


def test_a_disk_that_fills_up_before_the_first_checkpoint_leaves_the_run_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(*_: object, **__: object) -> None:
        with disk_errors_in_words(out / "checkpoints"):
            raise OSError(28, "No space left on device")

    data, out = write_npz(tmp_path / "tiny.npz"), tmp_path / "run"
    saying = f"disk is full: {out}/checkpoints could not .*some space and continue with: splitpu resume {out}$"
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "train", no_room)
        must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", out, "--quiet", *TINY, saying=saying)
    assert run_cli(capsys, "resume", out, "--quiet")[0] == 0


def test_a_torn_last_line_of_the_metrics_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = MetricsFile(folder.metrics)
    metrics.epoch_done(EpochRecord("base", 1, 2, 0.1, 1e-3, {"loss": float("nan")}))
    metrics.epoch_done(EpochRecord("base", 2, 2, 0.1, 1e-3, {"loss": 0.5}))
    with folder.metrics.open("a") as file:
        file.write('{"stage": "ba')
    lines = folder.read_metrics()
    assert [line["epoch"] for line in lines] == [1, 2] and lines[0]["terms"]["loss"] is None


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "tiny.npz")
    source = NpzSource(path=str(path))
    request = a_request(source=source, fingerprint=source.load().data.fingerprint())
    load_request(request)
    write_npz(path, X=tiny_arrays(seed=1)["X"])
    with pytest.raises(InputError, match="changed since the run began"):
        load_request(request)


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder is a folder, but a file is to be written there"):
        write_text(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_result_of_an_unfinished_run_cannot_be_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", a_request(), Config())
    assert folder.state == "unfinished"
    with pytest.raises(InputError, match="splitpu resume"):
        folder.read_result()
    folder.result.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        folder.read_result()
    assert json.loads(folder.request_file.read_text())["prior"] == 0.5


def test_looking_at_a_place_leaves_nothing_there(tmp_path: Path) -> None:
    assert RunFolder.free_path(tmp_path / "a" / "b", "x") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_run_took_meanwhile(finished: Path, tmp_path: Path) -> None:
    run = RunFolder(finished)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "request.json").touch()
    with pytest.raises(InputError, match="another run has taken it meanwhile"):
        RunFolder.create(tmp_path / "taken", run.request(), run.config())
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
