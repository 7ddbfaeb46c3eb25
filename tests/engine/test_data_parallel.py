"""Several processes compute what one does; when one of them dies the run can go on.

A step of several real processes, whose gradients torch's DDP exchanges, is that of one; see `shared_step_cases`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_tools import tiny_arrays, write_npz
from process_tools import ENVIRONMENT, PATIENCE_WITH_SEVERAL, start_python
from safetensors.torch import load_file

from splitpu.cli import main
from splitpu.engine.distributed import World
from splitpu.errors import InputError, RankLost

# Plain gradient descent: Adam divides by the size of a gradient, so where that is next to nothing its steps show the
# order in which sums were taken, just as two threads instead of one do.
SETTINGS = [
    *("--prior", "0.5", "--quiet", "--rounds", "1"),
    *("--set", "base.epochs=2", "--set", "base.batch_size=33"),  # no even share for two processes
    # A tau that the first epoch reaches: a temporary network that learned nothing would be trained with larger steps.
    *("--set", "split.max_epochs=2", "--set", "split.batch_size=33", "--set", "split.tau=0.2"),
    *("--set", "student.epochs=2", "--set", "student.batch_size=33"),
    *("--set", "base.optimiser.name=sgd", "--set", "base.optimiser.rate=0.02"),
    *("--set", "student.optimiser.name=sgd", "--set", "student.optimiser.rate=0.02"),
    *("--set", "student.optimiser.average=0.9"),  # with batch-norm statistics taken anew at the end
    *("--set", "engine.threads=1"),
    *("--set", "members=2"),
    *("--set", "engine.precision=fp32"),  # rounding to fewer digits would hide what sharing the work changes
]
WARMED = [
    *("--warmup", "simclr", "--set", "warmup.epochs=2", "--set", "warmup.batch_size=33"),
    *("--set", "warmup.optimiser.rate=0.01"),
]
STREAMED = ["--set", "engine.residence=host"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TOLERANCE = 1e-4


def start(*words: object) -> subprocess.Popen[str]:
    return start_python(*TORCHRUN, "-m", "splitpu", *words)


def tiny_images() -> dict[str, Any]:
    """Noise with a bright square in every other image."""
    random = np.random.default_rng(0)
    truth = np.arange(101) % 2 == 0
    images = random.integers(0, 150, (101, 8, 8, 3)).astype(np.uint8)
    images[truth, 2:6, 2:6] += 100
    return {"X": images, "s": (truth & (np.arange(101) % 6 == 0)).astype(int)}


def largest_difference(one: Path, other: Path) -> float:
    first, second = (load_file(run / "model.safetensors") for run in (one, other))
    assert first.keys() == second.keys()
    return max(float((first[name].double() - second[name].double()).abs().max()) for name in first)


@pytest.mark.parametrize("kind", ["vectors", "images", "streamed images"])
def test_two_processes_end_with_the_model_of_one(kind: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.npz"
    if kind != "vectors":
        np.savez(rows, **tiny_images())
    else:
        write_npz(rows, **tiny_arrays(rows=203, features=5))
    settings = [*SETTINGS, *(WARMED if kind == "images" else []), *(STREAMED if kind == "streamed images" else [])]
    together = start("fit", rows, "--out", tmp_path / "two", *settings, "--json")
    assert main(["fit", str(rows), "--out", str(tmp_path / "one"), *settings]) == 0
    printed, said = together.communicate(timeout=PATIENCE_WITH_SEVERAL)
    assert together.returncode == 0, said
    result = json.loads(printed)  # and nobody else wrote to the standard output
    assert result["device"].endswith("2 processes")
    assert ("streamed" in result["engine"]) == (kind == "streamed images")
    assert largest_difference(tmp_path / "one", tmp_path / "two") < TOLERANCE
    one, two = (_lines(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two)
    for line, other in zip(one, two, strict=True):
        assert line["stage"] == other["stage"] and line.get("agreement") == other.get("agreement")
        assert line["terms"] == pytest.approx(other["terms"], abs=TOLERANCE)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_leaves_a_run_that_goes_on(victim: int, tmp_path: Path) -> None:
    rows, out = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=600, features=5)), tmp_path / "run"
    long = [*SETTINGS, "--set", "student.epochs=8", "--set", "split.max_epochs=1", "--set", "base.epochs=1"]
    process = start("fit", rows, "--out", out, *long)
    _wait_for_stage(out, "round1.student", process)
    os.kill(_rank(process, victim), signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_WITH_SEVERAL)
    assert process.returncode != 0 and not (out / "result.json").exists()
    assert f"another process of this run has died; continue with: splitpu resume {out}" in said
    if victim == 1:
        process = start("resume", out, "--quiet")
        assert process.communicate(timeout=PATIENCE_WITH_SEVERAL) and process.returncode == 0
    else:  # the run goes on alone
        assert main(["resume", str(out), "--quiet"]) == 0
        assert main(["fit", str(rows), "--out", str(tmp_path / "whole"), *long]) == 0
        assert _lines(out)[-1]["terms"] == pytest.approx(_lines(tmp_path / "whole")[-1]["terms"], abs=0.01)


@pytest.mark.parametrize("words", [["fit"], ["fit", "--seeds", "0,1"], ["compare"]], ids=" ".join)
def test_what_is_wrong_is_said_once(words: list[str], tmp_path: Path) -> None:
    process = start(*words, tmp_path / "nowhere.npz", "--out", tmp_path / "run", *SETTINGS)
    _, said = process.communicate(timeout=PATIENCE_WITH_SEVERAL)
    assert process.returncode != 0 and said.count("splitpu: ") == 1
    assert not (tmp_path / "run").exists()


def test_parts_cover_everything_once() -> None:
    for count in range(9):
        for size in range(1, 5):
            parts = [range(*World(rank, size).share(count)) for rank in range(size)]
            assert [row for part in parts for row in part] == list(range(count))


def _lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _wait_for_stage(out: Path, stage: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_WITH_SEVERAL
    metrics = out / "metrics.jsonl"
    while not (metrics.exists() and f'"stage": "{stage}"' in metrics.read_text()):
        assert process.poll() is None, "it ended before the moment came"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _rank(torchrun: subprocess.Popen[str], rank: int) -> int:
    """The process number of one of the processes that torchrun started."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"\nPPid:\t{torchrun.pid}\n" in (folder / "status").read_text():
                settings = (folder / "environ").read_bytes().split(b"\0")
                if f"RANK={rank}".encode() in settings:
                    return int(folder.name)
        except OSError:  # it ended meanwhile
            continue
    raise AssertionError(f"there is no process of rank {rank}")


REFUSED = """NCCL error in: NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"""


@pytest.mark.parametrize(
    ("error", "becomes", "words"),
    [
        (REFUSED, InputError, "Duplicate GPU detected : rank 0 and rank 1"),
        (
            "[gloo/transport/tcp/pair.cc:534] Connection closed by peer",
            RankLost,
            "another process of this run has ended",
        ),
        ("shapes differ", RuntimeError, "shapes differ"),
    ],
)
def test_what_broke_is_told_apart(
    error: str, becomes: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: torch.Tensor) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr("torch.distributed.all_reduce", fails)
    with pytest.raises(becomes, match=words):
        World(0, 2).add_up(torch.zeros(1))


CASES = Path(__file__).parents[1] / "helpers" / "shared_step_cases.py"


def run(processes: int, *words: object) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launch, str(CASES), *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=PATIENCE_WITH_SEVERAL)


def test_three_processes_have_the_gradients_of_one() -> None:
    done = run(3, "steps")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["apart"] < 1e-9  # six steps one after the other, in double precision
    assert found["without"] == ["reported.weight", "reported.bias", "unused.weight", "unused.bias"]
    assert found["kept"] == 0, "what a stage left behind stays in memory"
    sentence = "the network does not use the same weights in every step"
    assert [said.startswith(sentence) for said in found["said"]] == [True, True]
    assert found["whole"] and found["read"] == [2] * 8 + [1] * 20, "a row that is in one batch is read by one process"
    assert found["all stream"] == [True, False]
    assert "reducer.cpp" not in done.stderr, "torch has something to say about how it is used"


def test_a_process_killed_on_the_way_back_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    rows, out = write_npz(tmp_path / "rows.npz", **tiny_arrays(rows=203, features=5)), tmp_path / "run"
    settings = ["--prior", 0.5, "--quiet", "--method", "nnpu", "--set", "base.epochs=2", "--set", "base.batch_size=33"]
    done = run(2, "dying", "fit", rows, "--out", out, *settings)
    assert done.returncode != 0 and "lost on the way back" in done.stdout
    assert f"another process of this run has died; continue with: splitpu resume {out}" in done.stderr
