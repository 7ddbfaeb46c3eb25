"""Commands in processes of their own, to be watched, stopped and killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
PATIENCE = 60  # seconds
PATIENCE_WITH_SEVERAL = 120  # a busy machine needs a while to start three processes

Moment = Callable[[Path], bool]


def start_python(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def start(*words: object) -> subprocess.Popen[str]:
    return start_python("-m", "splitpu", *words)


def wait_for(moment: Moment, out: Path, process: subprocess.Popen[str]) -> bool:
    """Whether the moment came before the process ended."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        if moment(out):
            return True
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.0005)
    return False
