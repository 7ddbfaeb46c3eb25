"""Folders that are whole or not there, and locks, among real processes that are killed for real.

What cannot be written: a full disk spoils nothing, and a reader that went away is no error.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, write_npz
from process_tools import start_python

from splitpu.cli import main
from splitpu.errors import InputError
from splitpu.utils import files as drafts
from splitpu.utils.files import Taken, check_free, drafted, ends_in, held_alone, in_a_command
from splitpu.utils.reading import checked, json_loads
from splitpu.utils.signals import started_together

HOLDER = """
import sys, time
from pathlib import Path
from splitpu.utils.files import {name}
with {name}(Path(sys.argv[1])):
    print("inside", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process_in(name: str, place: Path):
    process = start_python("-c", HOLDER.format(name=name), place)
    try:
        assert process.stdout is not None and process.stdout.readline() == "inside\n"
        yield process
    finally:
        process.kill()
        process.wait()


def drafts_of(folder: Path) -> set[str]:
    return {path.name for path in folder.parent.glob(f".{folder.name}.*.tmp")}


def test_a_killed_draft_is_cleared_away_and_one_that_is_being_made_is_not(tmp_path: Path) -> None:
    done, other = tmp_path / "done", tmp_path / "done too"
    with another_process_in("drafted", other):
        pass
    with another_process_in("drafted", done):
        pass
    dead = drafts_of(done)
    with another_process_in("drafted", done):
        alive = drafts_of(done) - dead
        assert len(alive) == 1
        with drafted(done) as draft:
            (draft / "part").touch()
            assert drafts_of(done) == alive | {draft.name}
        assert [path.name for path in done.iterdir()] == ["part"]
    assert not drafts_of(other)  # whoever comes next clears it away


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), drafted(tmp_path / "new" / "done") as draft:
        (draft / "nowhere" / "part").touch()
    assert not list((tmp_path / "new").iterdir())


def test_a_draft_that_was_taken_for_one_left_behind_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, seen = drafts.in_use, []

    @contextmanager
    def cleared_at_first(draft: Path) -> Any:
        seen.append(draft.name)
        if len(seen) == 1:
            shutil.rmtree(draft)
        with locked(draft) as alone:
            yield False if len(seen) == 2 else alone  # the second is just being cleared away

    monkeypatch.setattr(drafts, "in_use", cleared_at_first)
    with drafted(tmp_path / "done") as draft:
        assert seen.index(draft.name) == 2
        (draft / "part").touch()
    assert (tmp_path / "done" / "part").exists()


def test_what_a_link_points_to_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target in ("empty", "not there yet"):
        link = tmp_path / f"link to {target}"
        link.symlink_to(target)
        with drafted(link) as draft:
            (draft / "part").touch()
        assert link.is_symlink() and (tmp_path / target / "part").exists()


def test_folders_that_no_other_can_take_the_place_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for here in (Path(), tmp_path):
        with pytest.raises(InputError, match=r"folder that this command is run in.* --out a name inside it"):
            check_free(here, "--out")
    (tmp_path / "disk").mkdir()
    check_free(tmp_path / "disk", "--out")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "disk")
    with pytest.raises(InputError, match="disk is where a disk begins"):
        check_free(tmp_path / "disk", "--out")


def test_what_another_process_holds_is_taken_until_it_dies(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process_in("held_alone", lock), pytest.raises(Taken), held_alone(lock):
        pass
    with held_alone(lock):
        assert lock.exists()
    assert not lock.exists()


def test_a_file_that_a_killed_process_left_holds_nobody_up(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process_in("held_alone", lock) as holder:
        holder.kill()
        holder.wait()
        assert lock.exists()
        with held_alone(lock):
            pass
    assert not lock.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_drive_without_locks_is_worked_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (tmp_path / f".done.{'0123abcd' * 2}.tmp").mkdir()
    with held_alone(tmp_path / "lock"), drafted(tmp_path / "done"):
        pass
    assert (tmp_path / "done").is_dir() and not (tmp_path / "lock").exists()
    assert drafts_of(tmp_path / "done")  # whether somebody works on it cannot be found out


Capture = pytest.CaptureFixture[str]


def test_a_reader_that_goes_away_is_no_bug(finished: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "many.npy", np.zeros((20_000, 4)))
    done = subprocess.run(
        f"{sys.executable} -m splitpu predict {finished} {tmp_path / 'many.npy'} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("index") and done.stderr == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for very little; only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if not mounted or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_during_training_and_room_made_for_it(small_disk: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    out = small_disk / "run"
    saying = f"disk is full.*splitpu resume {out}$"
    must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", out, "--quiet", *TINY, saying=saying)
    assert not list(out.rglob(".*tmp*"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert run_cli(capsys, "resume", out, "--quiet")[0] == 0
    assert (out / "result.json").exists()


def test_a_disk_that_is_full_from_the_start(small_disk: Path, tmp_path: Path, capsys: Capture) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    (small_disk / "ballast").write_bytes(b"x" * 256 * 1024)
    must_refuse(
        capsys, "fit", data, "--prior", 0.5, "--out", small_disk / "run", "--quiet", *TINY, saying="disk is full"
    )
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_scores_on_a_full_disk(small_disk: Path, finished: Path, tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "many.npy", np.zeros((20_000, 4)))
    words = ["predict", finished, tmp_path / "many.npy", "--out", small_disk / "scores.csv"]
    must_refuse(capsys, *words, saying="disk is full.*free some space and run the command again\\.$")
    assert list(small_disk.iterdir()) == []


def test_a_file_that_may_not_grow_further(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "tiny.npz")
    words = " ".join(map(str, ["fit", data, "--prior", 0.5, "--out", tmp_path / "run", "--quiet", *TINY]))
    limited = f"ulimit -f 64; exec {sys.executable} -m splitpu {words}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "disk is full" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that takes nothing")
@pytest.mark.parametrize("words", [["info"], ["predict", "many.npy"], ["predict", "many.npy", "--json"]])
def test_an_answer_that_cannot_be_written(finished: Path, tmp_path: Path, words: list[str]) -> None:
    np.save(tmp_path / "many.npy", np.zeros((2000, 4), np.float32))
    command = [sys.executable, "-m", "splitpu", words[0], str(finished), *words[1:]]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("splitpu: the disk is full: standard output could not be written;")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that takes nothing")
@pytest.mark.parametrize(("seeds", "again"), [([], "splitpu info"), (["--seeds", "0,1"], "splitpu resume")])
def test_a_finished_run_that_could_not_be_told_of(tmp_path: Path, seeds: list[str], again: str) -> None:
    data, out = write_npz(tmp_path / "a.npz"), tmp_path / "run"
    words = ["fit", data, "--prior", 0.5, "--rounds", 1, "--quiet", "--out", out, *seeds, *TINY]
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "splitpu", *map(str, words)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    said = f"{out} is finished nevertheless; show it again with: {again} {out}\n"
    assert done.returncode == 2 and done.stderr.endswith(said) and "run the command again" not in done.stderr
    assert main([*again.split()[1:], str(out)]) == 0


@pytest.mark.parametrize("words", [["fit", "--help"], ["info", "RUN"], ["predict", "RUN", "few.npy"]])
def test_an_answer_that_nobody_reads(finished: Path, tmp_path: Path, words: list[str]) -> None:
    np.save(tmp_path / "few.npy", np.zeros((3, 4), np.float32))
    command = [sys.executable, "-m", "splitpu", *(str(finished) if word == "RUN" else word for word in words)]
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does after its first line
    unread = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writing)
    assert (unread.returncode, unread.stderr) == (141, "")
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_ends_in_in_short() -> None:
    assert (ends_in("scan.NII.GZ", ".nii", ".nii.gz"), ends_in(Path("rows.npy"), ".npz")) == (True, False)


def test_in_a_command_in_short() -> None:
    assert (in_a_command(Path("runs/first")), in_a_command(Path("my run"))) == ("runs/first", "'my run'")


def test_json_loads_in_short() -> None:
    with pytest.raises(ValueError, match="it holds the number inf, which cannot be computed with"):
        json_loads("[1e999]")


def test_checked_in_short() -> None:
    assert checked({"seeds": [0, 1]}, dict[str, list[int]]) == {"seeds": [0, 1]}
    with pytest.raises(ValueError, match=r"it\['seeds'\]\[1\] is '1', not a whole number"):
        checked({"seeds": [0, "1"]}, dict[str, list[int]])


def test_started_together_in_short() -> None:
    assert started_together() == 1
