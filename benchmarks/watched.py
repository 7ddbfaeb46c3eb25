"""Commands of splitpu in processes of their own, watched from outside: how much memory, how soon the first step."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_SECONDS_BETWEEN_LOOKS = 0.1

# Runs the command line as it is, but stops at the first step and says when that was.
_UNTIL_FIRST_STEP = """
import gc, json, os, sys, time
from splitpu.cli import main

freeze = gc.freeze  # what a command calls when it has imported everything

def say_and_stop(*_):
    with open("/proc/self/schedstat") as file:
        waited = int(file.read().split()[1]) / 1e9
    print(json.dumps({"now": time.time(), "cpu": time.process_time(), "waited": waited}), flush=True)
    os._exit(0)

def prepare():
    freeze()
    from splitpu.engine.step import Step
    Step.run = say_and_stop

if __name__ == "__main__":  # not in the processes that decode images
    gc.freeze = prepare
    main()
"""


@dataclass
class Peak:
    """The most at any look, in kB. Shared pages count once in `together`, and for every process in `resident`."""

    together: int = 0  # of all processes, proportional: the sum is what they hold of the machine's memory
    resident: int = 0  # the sum of what every process shows as its own resident memory
    largest: int = 0  # the largest resident memory of one process
    processes: int = 0

    def look(self, pids: list[int]) -> None:
        """Read what the system says of these processes."""
        found = [memory for memory in map(_memory, pids) if memory]
        self.together = max(self.together, sum(memory["Pss"] for memory in found))
        self.resident = max(self.resident, sum(memory["Rss"] for memory in found))
        self.largest = max(self.largest, max((memory["Rss"] for memory in found), default=0))
        self.processes = max(self.processes, len(found))

    def in_megabytes(self) -> dict[str, int]:
        """For people."""
        return {
            "all processes together": self.together // 1024,
            "sum of resident memory": self.resident // 1024,
            "largest process": self.largest // 1024,
            "processes": self.processes,
        }


def splitpu(words: list[str]) -> list[str]:
    """The command line in a process of its own."""
    return [sys.executable, "-m", "splitpu", *words]


def peak_memory(words: list[str]) -> Peak:
    """Run a command to its end."""
    peak = Peak()
    with subprocess.Popen(splitpu(words), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak.look(_family(process.pid))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    if process.returncode != 0:
        raise SystemExit(f"splitpu {' '.join(words)} ended with {process.returncode}")
    return peak


def first_step(words: list[str]) -> dict[str, float]:
    """Seconds from the start of the process, Python's own start included, until the first step begins.

    `waited` of them other programs had the processor: on an idle machine the start would take that much less.
    """
    began = time.time()
    driver = ["-c", _UNTIL_FIRST_STEP, *words]
    said = subprocess.run([sys.executable, *driver], capture_output=True, text=True, check=True).stdout
    found = json.loads(said.splitlines()[-1])
    seconds = {"wall": found["now"] - began, "cpu": found["cpu"], "waited": found["waited"]}
    return {name: round(value, 2) for name, value in seconds.items()}


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    members = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
            members += [member for child in children for member in _family(int(child))]
    except OSError:  # it has ended meanwhile
        pass
    return members


def _memory(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {line.split()[0].rstrip(":"): int(line.split()[1]) for line in lines}
