"""The runner of unattended benchmarks: nothing is done twice, nothing finished is lost, and time is kept."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SCRIPT = """
import argparse, os, sys, time
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from case_runner import add_options, run_cases

def work(case):
    with open({log!r}, "a") as file:
        file.write(f"{{case['number']}}\\n")
    Path({log!r} + ".pid").write_text(str(os.getpid()))
    if case["number"] == 7:
        raise ValueError("seven is broken")
    time.sleep(60 if case["number"] == 9 else 0)
    return {{"square": case["number"] ** 2}}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers")
    add_options(parser)
    options = parser.parse_args()
    cases = [{{"number": int(number)}} for number in options.numbers.split(",")]
    print([line["square"] for line in run_cases(cases, work, options, on_gpu=lambda case: case["number"] < 2)])
"""


def command(folder: Path, *words: str) -> list[str]:
    script = folder / "squares.py"
    script.write_text(SCRIPT.format(benchmarks=str(BENCHMARKS), log=str(folder / "log")))
    return [sys.executable, str(script), *words, "--out", str(folder / "done.jsonl")]


def run(folder: Path, *words: str) -> tuple[str, str]:
    done = subprocess.run(command(folder, *words), capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def worked_on(folder: Path) -> list[int]:
    return sorted(int(line) for line in (folder / "log").read_text().split())


def test_cases_are_done_once_and_broken_ones_again(tmp_path: Path):
    printed, told = run(tmp_path, "1,2,3,7", "--jobs", "2")
    assert printed == "[1, 4, 9]" and "seven is broken" in told and worked_on(tmp_path) == [1, 2, 3, 7]
    with (tmp_path / "done.jsonl").open("a") as file:
        file.write('{"case": {"number": 4}, "squ')  # a process was killed while writing
    printed, told = run(tmp_path, "1,2,3,4,7")
    assert printed == "[1, 4, 9, 16]" and "3 of 5 cases are done already" in told
    assert worked_on(tmp_path) == [1, 2, 3, 4, 7, 7]
    assert run(tmp_path, "1,4,8", "--only-show")[0] == "[1, 16]"


def test_when_time_is_up_the_rest_is_left(tmp_path: Path):
    started = time.monotonic()
    printed, told = run(tmp_path, "3,9", "--jobs", "2", "--minutes", "0.1")
    assert printed == "[9]" and "1 cases are left" in told and time.monotonic() - started < 50
    assert [json.loads(line)["case"] for line in (tmp_path / "done.jsonl").read_text().splitlines()] == [{"number": 3}]


def test_a_killed_benchmark_leaves_nobody_behind(tmp_path: Path):
    note = tmp_path / "log.pid"
    with subprocess.Popen(command(tmp_path, "9"), stderr=subprocess.DEVNULL) as benchmark:
        assert soon(lambda: note.exists() and note.read_text() != "")
        benchmark.kill()
    worker = int(note.read_text())
    assert soon(lambda: not alive(worker))


def soon(happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and nobody has asked how
