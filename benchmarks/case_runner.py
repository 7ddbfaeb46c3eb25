"""Runs many independent cases unattended: several at a time, in a given time, and never one that is done already.

Every finished case is one line of a JSON-lines file, written at once, so a benchmark that is cut off goes on where it
was when the same command is given again, on this machine or another. Needs nothing but the standard library.
"""

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any

Key = dict[str, Any]  # what names a case: plain values only
Work = Callable[[Key], dict[str, Any]]  # a function of a module, so that other processes find it

_POLL_SECONDS = 0.2


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options every such benchmark has."""
    parser.add_argument("--out", type=Path, help="JSON lines, one a case; cases that it holds are not run again")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes for the cases that need no GPU")
    parser.add_argument("--minutes", type=float, default=0, metavar="M", help="stop after so long; 0 = never")
    parser.add_argument("--only-show", action="store_true", help="run nothing, print the tables of what is done")


def run_cases(
    cases: Sequence[Key], work: Work, options: argparse.Namespace, *, on_gpu: Callable[[Key], bool] = lambda key: False
) -> list[dict[str, Any]]:
    """Run what is not done yet and give the lines of all the cases asked for, whenever they were run.

    Cases for the GPU go one after the other through a process of their own, while the other ones share `jobs` more.
    """
    done = {_name(line["case"]): line for line in read_lines(options.out)}
    missing = [] if options.only_show else [case for case in cases if _name(case) not in done]
    if missing:
        print(f"{len(cases) - len(missing)} of {len(cases)} cases are done already", file=sys.stderr, flush=True)
    queues = [[case for case in missing if on_gpu(case)], [case for case in missing if not on_gpu(case)]]
    for line in _finished(queues, (1, max(options.jobs, 1)), work, options.minutes):
        done[_name(line["case"])] = line
        if options.out:
            _append(options.out, line)
    return [done[_name(case)] for case in cases if _name(case) in done]


def read_lines(path: Path | None) -> list[dict[str, Any]]:
    """The cases of a file; a last line that a killed process left unfinished does not count."""
    if path is None or not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print aligned columns."""
    all_rows = [list(columns), *map(list, rows)]
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(columns))]
    print(f"\n{title}")
    for row in all_rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def met(reached: bool) -> str:
    """A goal's outcome, a missed one in capitals so that nobody overlooks it."""
    return "met" if reached else "MISSED"


def _finished(
    queues: Sequence[list[Key]], processes: Sequence[int], work: Work, minutes: float
) -> Iterable[dict[str, Any]]:
    """Results as they come, until none is left or the time is up; what runs then is given up."""
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    pools, running = [], []
    try:
        for cases, count in zip(queues, processes, strict=True):
            if cases:
                pools.append(_pool(min(count, len(cases)), with_gpu=cases is queues[0]))
                running += [(case, pools[-1].apply_async(_timed, (work, case))) for case in cases]
        while running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            ready = [pair for pair in running if pair[1].ready()]
            running = [pair for pair in running if not pair[1].ready()]
            yield from filter(None, (_line(case, result) for case, result in ready))
        if running:
            print(f"time is up: {len(running)} cases are left for the next time", file=sys.stderr, flush=True)
    finally:
        for pool in pools:
            pool.terminate()


def _pool(count: int, *, with_gpu: bool) -> Pool:
    # Spawned, not forked: a process that has used a GPU or threads must not be copied. One thread each: they are many.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    return multiprocessing.get_context("spawn").Pool(count, _begin, (with_gpu, os.getpid()))


def _begin(with_gpu: bool, parent: int) -> None:
    if not with_gpu:  # before anything has looked for one: dozens of processes on one GPU would be in each other's way
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A benchmark that is killed must not leave processes behind that go on for half an hour."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def _timed(work: Work, case: Key) -> dict[str, Any]:
    started = time.perf_counter()
    found = work(case)
    return {"case": case, **found, "case_seconds": round(time.perf_counter() - started, 2)}


def _line(case: Key, result: "AsyncResult[dict[str, Any]]") -> dict[str, Any] | None:
    """The case's line; a case that broke is told and not kept, so that it is tried again the next time."""
    words = " ".join(f"{value}" for value in case.values())
    try:
        line = result.get()
    except Exception as error:
        print(f"{words}: FAILED, {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None
    print(f"{words}: {line.get('in_words', 'done')} in {line['case_seconds']:.1f} s", file=sys.stderr, flush=True)
    return line


def _append(path: Path, line: dict[str, Any]) -> None:
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("" if whole else "\n") + json.dumps(line, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _name(case: Key) -> str:
    return json.dumps(case, sort_keys=True)
