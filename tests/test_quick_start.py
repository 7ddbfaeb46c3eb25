"""A command's own process starts quickly, and what it leaves out changes nothing in the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import TINY, run_cli, write_npz

# The command line as it is started by `splitpu`, and afterwards what it brought in.
RUN_AND_LOOK = """
import gc, json, sys
from splitpu.cli import main

code = main()
heavy = [name for name in ("torch._dynamo", "sympy", "pandas", "PIL") if name in sys.modules]
print(json.dumps({"code": code, "heavy": heavy, "collecting": gc.isenabled()}))
"""


def test_a_run_of_its_own_leaves_out_what_it_does_not_need_and_gives_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", write_npz(tmp_path / "a.npz"), "--prior", 0.5, "--quiet", "--json", *TINY]
    words += ["--set", "base.optimiser.name=adamw", "--set", "student.optimiser.name=adam"]  # and the split has SGD
    command = [sys.executable, "-c", RUN_AND_LOOK, *map(str, [*words, "--out", tmp_path / "own"])]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert json.loads(said) == {"code": 0, "heavy": [], "collecting": True}
    assert run_cli(capsys, *words, "--out", tmp_path / "here")[0] == 0  # with torch as everybody else has it
    own, here = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("own", "here"))
    assert own == here
