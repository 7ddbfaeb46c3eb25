"""Several runs side by side on one device: each in a worker, a thread with a CUDA stream of its own.

On a GPU the host only enqueues captured steps, so threads are enough. On a CPU there is nothing to gain.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from splitpu.data.preprocessing import Preprocessing
from splitpu.data.sparse_rows import is_sparse
from splitpu.engine.rows import Residence, RowStore
from splitpu.types import Array

_Answer = TypeVar("_Answer")
_KEPT = 2  # sets of rows that are remembered; those in use live on without it
_thread = threading.local()  # in a worker's thread: the workers it belongs to


class _ActiveWorkers:
    """Counts the workers that have something to do at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active = 0

    def count(self, more: int) -> None:
        with self._lock:
            self.active += more


def runs_at_once() -> int:
    """How many runs share the device at the moment, the one that asks included."""
    workers: _ActiveWorkers | None = getattr(_thread, "workers", None)
    return 1 if workers is None else workers.active


@contextmanager
def idle_worker() -> Iterator[None]:
    """Inside the block the worker that asks waits for work, and has no share of the device."""
    workers: _ActiveWorkers | None = getattr(_thread, "workers", None)
    if workers is None:
        yield
        return
    workers.count(-1)
    try:
        yield
    finally:
        workers.count(1)


def in_worker_threads(
    jobs: Sequence[Callable[[], _Answer]], device: torch.device, when_left: Callable[[], None] = lambda: None
) -> list[_Answer]:
    """Do all jobs at once, each in a worker; gives their answers in order, or raises the first error once all ended."""
    # A single job is done by the caller's own thread. If the caller is interrupted while it waits, `when_left` is
    # called and has to make the jobs end.
    if len(jobs) <= 1:
        return [job() for job in jobs]
    if device.type == "cuda":
        # By its number, because a new thread begins on the first GPU, whichever the caller is on.
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.synchronize(device)  # what was prepared on the usual stream must be there for every worker
    workers = _ActiveWorkers()

    def enter_stream() -> None:
        _thread.workers = workers
        if device.type == "cuda":
            torch.cuda.set_device(device.index or 0)
            torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]

    def work_off(job: Callable[[], _Answer]) -> _Answer:
        workers.count(1)
        try:
            return job()
        finally:
            workers.count(-1)
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()  # others read the outcome on streams of their own

    with ThreadPoolExecutor(len(jobs), "worker", initializer=enter_stream) as threads:
        futures = [threads.submit(work_off, job) for job in jobs]
        try:
            wait(futures)
        except BaseException:
            when_left()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


class SharedRows:
    """Rows that several runs use: one copy on the device, and read through once for what preprocessing remembers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], tuple[RowStore, Preprocessing]] = {}

    def __reduce__(self) -> tuple[type["SharedRows"], tuple[()]]:
        return SharedRows, ()  # another process has a memory of its own

    def of(self, features: Array, device: torch.device, residence: Residence) -> tuple[RowStore, Preprocessing]:
        """The rows of these features, the same for everybody who asks with the same memory."""
        place: tuple[object, ...]
        if is_sparse(features):
            place = features.tocsr().data.ctypes.data, features.tocsr().indptr.ctypes.data
        else:
            place = features.ctypes.data, features.strides
        key = (*place, features.shape, features.dtype.str, str(device), residence)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                found = RowStore(features, device, residence), Preprocessing.fit(features)
                if device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()
            self._kept[key] = found  # the last one used is the last one dropped
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
            return found
