"""A step of several real processes, whose gradients torch's DDP exchanges, is that of one; see `shared_step_cases`."""

import json
import subprocess
import sys
from pathlib import Path

from cli_tools import tiny_arrays, write_npz
from process_tools import ENVIRONMENT, PATIENCE_WITH_SEVERAL

CASES = Path(__file__).with_name("shared_step_cases.py")


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
    assert f"another process of this run has died; continue with: splitpu fit --resume {out}" in done.stderr
