"""Several runs side by side on one device: each in a lane, a thread with a stream of its own.

On a GPU the host only enqueues captured steps, so one thread a run keeps the device busy, and kernels of one run that
wait for memory overlap with those of another that compute. On a CPU there is nothing to gain, and one lane is the rule.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar

import numpy.typing as npt
import torch

from splitpu.data.preprocessing import Preprocessing
from splitpu.engine.rows import RowStore

_Answer = TypeVar("_Answer")
_KEPT = 2  # sets of rows that are remembered; those in use live on without it
_lane = threading.local()  # in a lane's thread: the crew it belongs to


class Ended(Generic[_Answer]):
    """How one job ended: with an answer, or with an error that kept none of the others from ending."""

    def __init__(self, answer: _Answer | None, error: Exception | None) -> None:
        self._answer, self.error = answer, error

    @property
    def answer(self) -> _Answer:
        """What the job gave; if it failed, its error is raised here."""
        if self.error is not None:
            raise self.error
        return self._answer  # type: ignore[return-value]


class _Crew:
    """Counts the jobs that are being done at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.at_work = 0

    def __enter__(self) -> None:
        self.count(1)
        _lane.crew = self

    def __exit__(self, *_: object) -> None:
        del _lane.crew
        self.count(-1)

    def count(self, more: int) -> None:
        with self._lock:
            self.at_work += more


def runs_at_once() -> int:
    """How many runs share the device at the moment, the one that asks included.

    >>> runs_at_once()
    1
    """
    crew: _Crew | None = getattr(_lane, "crew", None)
    return 1 if crew is None else crew.at_work


@contextmanager
def standing_by() -> Iterator[None]:
    """Inside the block the lane that asks waits for work, and has no share of the device."""
    crew: _Crew | None = getattr(_lane, "crew", None)
    if crew is None:
        yield
        return
    crew.count(-1)
    try:
        yield
    finally:
        crew.count(1)


def sensible_lanes(device: torch.device, jobs: int) -> int:
    """All at once on a GPU, one after the other on a CPU.

    >>> sensible_lanes(torch.device("cpu"), 5), sensible_lanes(torch.device("cuda"), 5)
    (1, 5)
    """
    return jobs if device.type == "cuda" else 1


def in_lanes(
    jobs: Sequence[Callable[[], _Answer]],
    device: torch.device,
    lanes: int,
    when_left: Callable[[], None] = lambda: None,
) -> list[Ended[_Answer]]:
    """Do all jobs, at most `lanes` of them at once, and say of each how it ended, in the order they were given.

    If the caller is interrupted while it waits, `when_left` is called and has to make the jobs end.
    """
    if lanes <= 1:
        return [_ended(job) for job in jobs]
    if device.type == "cuda":
        # By its number, because a new thread begins on the first GPU, whichever the caller is on.
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.synchronize(device)  # what was prepared on the usual stream must be there for every lane
    crew = _Crew()
    with ThreadPoolExecutor(lanes, "lane", initializer=lambda: _enter_lane(device)) as threads:
        futures = [threads.submit(_ended_on, device, job, crew) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            when_left()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _enter_lane(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def _ended_on(device: torch.device, job: Callable[[], _Answer], crew: _Crew) -> Ended[_Answer]:
    with crew:
        ended = _ended(job)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # others read the outcome on streams of their own
    return ended


def _ended(job: Callable[[], _Answer]) -> Ended[_Answer]:
    try:
        return Ended(job(), None)
    except Exception as error:
        return Ended(None, error)


class SharedRows:
    """Rows that several runs use: one copy on the device, and read through once for what preprocessing remembers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], tuple[RowStore, Preprocessing]] = {}

    def of(
        self, features: npt.NDArray[Any], device: torch.device, residence: Literal["auto", "device", "host"]
    ) -> tuple[RowStore, Preprocessing]:
        """The rows of these features, the same for everybody who asks with the same memory."""
        key = (features.ctypes.data, features.shape, features.strides, features.dtype.str, str(device), residence)
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
