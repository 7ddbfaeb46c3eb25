"""Ctrl-C before there is a run: a word and the exit code that a shell expects, whatever it meets.

A command's own process starts quickly, and what it leaves out changes nothing in the model.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import TINY, run_cli, write_npz

from splitpu.cli import main


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.8])
def test_control_c_before_the_training(tmp_path: Path, seconds: float) -> None:
    data = write_npz(tmp_path / "a.npz", X_test=None, y_test=None, truth=None, names=None)
    # Set anew, since what a shell starts in the background is told to overlook Ctrl-C, and tests may be such.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; import splitpu.cli as c; print('up', flush=True); raise SystemExit(c.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "fit", data, "--out", tmp_path / "never"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err and not (tmp_path / "never").exists()
    assert process.returncode == 130 and err.endswith("interrupted before there was anything to keep\n")


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError("a mistake")])
def test_control_c_while_a_class_is_made(
    cause: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python 3.11 makes a RuntimeError of whatever is raised there."""

    def wrapped(*words: object, **how: object) -> int:
        raise RuntimeError("Error calling __set_name__") from cause

    monkeypatch.setattr("splitpu.cli.app.app", wrapped)
    if isinstance(cause, KeyboardInterrupt):
        assert main(["info"]) == 130 and "interrupted" in capsys.readouterr().err
    else:
        with pytest.raises(RuntimeError, match="__set_name__"):
            main(["info"])


def test_control_c_that_a_library_swallowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As numpy does while it is being imported: what fails next is for lack of its parts."""

    def half_imported(*words: object, **how: object) -> int:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        raise AttributeError("module 'numpy' has no attribute 'subtract'")

    monkeypatch.setattr("splitpu.cli.app.app", half_imported)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["info"]) == 130 and "interrupted" in capsys.readouterr().err
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# The command line as it is started by `splitpu`, and afterwards what it brought in.
RUN_AND_LOOK = """
import gc, json, sys
from splitpu.cli import main

code = main()
heavy = [name for name in ("torch._dynamo", "sympy", "PIL") if name in sys.modules]
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
