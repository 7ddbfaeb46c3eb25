"""Folders that are whole or not there, and locks, among real processes that are killed for real."""

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from process_tools import start_python

from splitpu.errors import InputError
from splitpu.utils import files as drafts
from splitpu.utils.files import Taken, check_free, drafted, held_alone

HOLDER = """
import sys, time
from pathlib import Path
from splitpu.{module} import {name}
with {name}(Path(sys.argv[1])):
    print("inside", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process_in(module: str, name: str, place: Path):
    process = start_python("-c", HOLDER.format(module=module, name=name), place)
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
    with another_process_in("drafts", "drafted", other):
        pass
    with another_process_in("drafts", "drafted", done):
        pass
    dead = drafts_of(done)
    with another_process_in("drafts", "drafted", done):
        alive = drafts_of(done) - dead
        assert len(alive) == 1
        with drafted(done) as draft:
            (draft / "part").touch()
            assert drafts_of(done) == alive | {draft.name}
        assert [path.name for path in done.iterdir()] == ["part"]
    assert drafts_of(other)  # which is somebody else's


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
    with another_process_in("locks", "held_alone", lock), pytest.raises(Taken), held_alone(lock):
        pass
    with held_alone(lock):
        assert lock.exists()
    assert not lock.exists()


def test_a_drive_without_locks_is_worked_on_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (tmp_path / ".done.0123abcd.tmp").mkdir()
    with held_alone(tmp_path / "lock"), drafted(tmp_path / "done"):
        pass
    assert (tmp_path / "done").is_dir()
    assert drafts_of(tmp_path / "done")  # whether somebody works on it cannot be found out
