"""What cannot be written: a full disk spoils nothing, and a reader that went away is no error."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_tools import TINY, must_refuse, run_cli, write_npz

from splitpu.cli import main

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
    saying = f"disk is full.*--resume {out}$"
    must_refuse(capsys, "fit", data, "--prior", 0.5, "--out", out, "--quiet", *TINY, saying=saying)
    assert not list(out.rglob(".*tmp*"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert run_cli(capsys, "fit", "--resume", out, "--quiet")[0] == 0
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
@pytest.mark.parametrize(("seeds", "again"), [([], "splitpu info"), (["--seeds", "0,1"], "splitpu fit --resume")])
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
