"""Many image files at a time: read by several processes, each result in its place."""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from splitpu.data.image_headers import Headers
from splitpu.data.images import BadImage, Header, ImageSpec, decode, read_header
from splitpu.errors import InputError

FILES_A_TASK = 32
FEWEST_FOR_PROCESSES = 512  # below this, starting processes takes longer than they save
MOST_PROCESSES = 16
CHECKSUM_BYTES = 16  # of the pixels of an image

Watch = Callable[[str, int, int], None]
Task = tuple[int, list[str]]  # the row of the first file, and the files
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: the checksum of its pixels, or the reason why there are none."""

    checksum: bytes = b""
    reason: str | None = None


Outcomes = Generator[Outcome, None, None]


def read_headers(paths: Sequence[str], watch: Watch | None = None) -> Headers:
    """The header of each file, or the reason why it has none."""
    return Headers.collect(_in_parallel(_headers_of, paths, "looking at images", watch), len(paths))


def decode_all(paths: Sequence[str], spec: ImageSpec, pixels: Path, watch: Watch | None = None) -> Outcomes:
    """Decode every file into its row of the file `pixels`; outcomes come in order, once their row is written.

    Close it to stop the work before its end.
    """
    return _in_parallel(partial(_decode_rows, spec=spec, pixels=str(pixels), rows=len(paths)), paths, "decoding", watch)


def process_count(files: int) -> int:
    """One process a core, as far as there is work for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if files < FEWEST_FOR_PROCESSES else min(cores, MOST_PROCESSES)


def _headers_of(task: Task) -> list[Header | str]:
    found: list[Header | str] = []
    for path in task[1]:
        try:
            found.append(read_header(path))
        except BadImage as error:
            found.append(str(error))
    return found


def _decode_rows(task: Task, *, spec: ImageSpec, pixels: str, rows: int) -> list[Outcome]:
    first, paths = task
    room = np.memmap(pixels, spec.dtype, mode="r+", shape=(rows, *spec.shape))
    outcomes = []
    for row, path in enumerate(paths, start=first):
        try:
            decoded = decode(path, spec)
        except BadImage as error:
            outcomes.append(Outcome(reason=str(error)))
            continue
        room[row] = decoded
        outcomes.append(Outcome(checksum=hashlib.blake2b(decoded.tobytes(), digest_size=CHECKSUM_BYTES).digest()))
    return outcomes


def _in_parallel(
    work: Callable[[Task], list[Result]], paths: Sequence[str], what: str, watch: Watch | None
) -> Generator[Result, None, None]:
    tasks = [(start, list(paths[start : start + FILES_A_TASK])) for start in range(0, len(paths), FILES_A_TASK)]
    done = 0
    for results in _mapped(work, tasks, process_count(len(paths))):
        yield from results
        done += len(results)
        if watch is not None:
            watch(what, done, len(paths))


def _mapped(work: Callable[[Task], list[Result]], tasks: list[Task], processes: int) -> Iterator[list[Result]]:
    if processes == 1:
        yield from map(work, tasks)
        return
    # Fresh processes, because a copy of one in which torch runs threads may hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_without_chatter)
    begun = False
    try:
        for results in pool.map(work, tasks):
            begun = True
            yield results
    except BrokenProcessPool as error:
        if not begun:  # none could be started, as where Python reads its program from a pipe
            yield from map(work, tasks)
            return
        raise InputError(
            "a process that reads images was killed, perhaps for want of memory: free some or remove the largest files."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _without_chatter() -> None:
    """The C libraries behind pillow write to standard error about files that we report on ourselves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
