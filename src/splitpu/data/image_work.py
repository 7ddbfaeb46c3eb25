"""Many image files at a time: read by several processes, each result in its place."""

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from splitpu.data.image_headers import Headers
from splitpu.data.images import BadImage, Header, Remark
from splitpu.data.readers import Reader, RowSpec, Watch
from splitpu.errors import InputError

MOST_PROCESSES = 16
CHECKSUM_BYTES = 16  # of the pixels of an image

Task = tuple[int, list[Any]]  # the row of the first source, and the sources: paths, or what else the reader takes
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: the checksum of its pixels, or the reason why there are none."""

    checksum: bytes = b""
    reason: str | None = None
    remarks: tuple[Remark, ...] = ()


Outcomes = Generator[Outcome, None, None]


def read_headers(reader: Reader, sources: Sequence[Any], watch: Watch | None = None) -> Headers:
    """The header of each source, or the reason why it has none."""
    found = _in_parallel(reader, partial(_headers_of, reader=reader), sources, f"looking at {reader.store}", watch)
    return Headers.collect(found, len(sources))


def decode_all(
    reader: Reader, sources: Sequence[Any], spec: RowSpec, pixels: Path, watch: Watch | None = None
) -> Outcomes:
    """Decode every source into its row of the file `pixels`; outcomes come in order, once their row is written.

    Close it to stop the work before its end.
    """
    work = partial(_decode_rows, reader=reader, spec=spec, pixels=str(pixels), rows=len(sources))
    return _in_parallel(reader, work, sources, "decoding", watch)


def process_count(files: int, fewest: int) -> int:
    """One process a core, as far as there is work for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if files < fewest else min(cores, MOST_PROCESSES)


def _headers_of(task: Task, *, reader: Reader) -> list[Header | str]:
    found: list[Header | str] = []
    for source in task[1]:
        try:
            found.append(reader.header(source))
        except BadImage as error:
            found.append(str(error))
    return found


def _decode_rows(task: Task, *, reader: Reader, spec: RowSpec, pixels: str, rows: int) -> list[Outcome]:
    first, sources = task
    room = np.memmap(pixels, spec.dtype, mode="r+", shape=(rows, *spec.shape))
    outcomes = []
    for row, source in enumerate(sources, start=first):
        try:
            decoded, remarks = reader.decode(source, spec)
        except BadImage as error:
            outcomes.append(Outcome(reason=str(error)))
            continue
        room[row] = decoded
        checksum = hashlib.blake2b(decoded.tobytes(), digest_size=CHECKSUM_BYTES).digest()
        outcomes.append(Outcome(checksum=checksum, remarks=tuple(remarks)))
    return outcomes


def _in_parallel(
    reader: Reader, work: Callable[[Task], list[Result]], sources: Sequence[Any], what: str, watch: Watch | None
) -> Generator[Result, None, None]:
    step = reader.files_a_task
    tasks = [(start, list(sources[start : start + step])) for start in range(0, len(sources), step)]
    done = 0
    for results in _mapped(work, tasks, process_count(len(sources), reader.fewest_for_processes)):
        yield from results
        done += len(results)
        if watch is not None:
            watch(what, done, len(sources))


def _mapped(work: Callable[[Task], list[Result]], tasks: list[Task], processes: int) -> Iterator[list[Result]]:
    if processes == 1:
        yield from map(work, tasks)
        return
    # Fresh processes, because a copy of one in which torch runs threads may hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin_process)
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
            "a process that reads images was killed, perhaps as memory ran out: free some or remove the largest files."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_process() -> None:
    _without_chatter()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A command that is killed cannot end its processes, which would wait for work, and hold its output, forever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _without_chatter() -> None:
    """The C libraries behind pillow write to standard error about files that we report on ourselves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
