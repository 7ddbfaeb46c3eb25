"""Runs on other machines: a Ray cluster as an executor of the grid (`runs/grid.py`). Ray decides where and when a unit
runs. One whose machine is lost is begun again on another and goes on from the checkpoints in its folder, which is why
that folder has to be on a file system that all machines share."""

import os
import pickle
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from splitpu.config.schema import EngineConfig
from splitpu.engine.hardware import Hardware
from splitpu.engine.stage import Observer, Stage, StageOutcome
from splitpu.errors import InputError, Interrupted, MissingExtraError, SplitPUError
from splitpu.runs.grid import Grid, Job
from splitpu.utils.signals import StopRequest

LOCAL = "local"  # the address of a cluster that is started here, for this command alone
_LOSSES = 4  # of its worker, after which a unit is given up: by then the unit is what kills them
_LOOK_AGAIN = 0.5  # seconds


@dataclass(frozen=True)
class RayCluster:
    """Every unit as a task with its CPUs and its share of a GPU: `Grid(units).run(RayCluster("10.0.0.1:6379"))`.

    All units are handed over at once, so that a cluster that grows with its load sees the load. A unit is a dataclass;
    a field that several units share, such as their rows, goes to each machine once."""

    address: str = LOCAL
    cpus: float = 1
    gpus: float = 0
    shared: Path | None = None  # what every machine has to see at the same path

    @classmethod
    def for_runs(cls, address: str, shared: Path, device: str, threads: int, gpus: float | None = None) -> "RayCluster":
        """For runs that have so many threads (0: as suits this machine), and a GPU where there is one to share."""
        if gpus is not None and not gpus >= 0:
            raise InputError(f"--gpus-per-run {gpus:g} is not a share of a GPU: give a number such as 0.25")
        hardware = Hardware.choose(device, EngineConfig(threads=threads))
        usual = 1.0 if hardware.device.type == "cuda" else 0.0
        return cls(address, hardware.threads, usual if gpus is None else gpus, shared)

    def run(self, grid: Grid[Any]) -> None:
        """Hand over every unit that the grid hands out, and come back when all have ended."""
        if not len(grid):
            return
        with connected(self.address) as ray:
            self._check_room(ray)
            news, sent = _News(ray, grid), _Sent(ray)
            task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_LOSSES)(_carried_out)

            def see_to_units() -> None:
                for job in grid:
                    unit = job.unit
                    names = tuple(one.name for one in fields(unit))
                    parts = [sent.once(getattr(unit, name)) for name in names]
                    told = news.letterbox, news.number(unit), self.shared
                    self._wait(ray, task.remote(type(unit), names, told, *parts), job, grid, news)

            with ThreadPoolExecutor(len(grid), "unit") as threads:
                waiting = [threads.submit(see_to_units) for _ in range(len(grid))]
                try:
                    wait(waiting)
                except BaseException:  # such as a second Ctrl-C: the threads have to hear of it before they are left
                    grid.stop()
                    raise
            for one in waiting:
                one.result()

    def _wait(self, ray: Any, reference: Any, job: Job[Any], grid: Grid[Any], news: "_News") -> None:
        asked_to_stop = False
        while not ray.wait([reference], timeout=_LOOK_AGAIN)[0]:
            news.pass_on(wait=False)
            if grid.must_stop() and not asked_to_stop:
                asked_to_stop = True
                ray.cancel(reference)
        try:
            end = ray.get(reference)
        except ray.exceptions.TaskCancelledError:
            end = Interrupted(f"{job.unit.name}: stopped.")
        except ray.exceptions.RayTaskError as error:  # before the unit began: what it fails of itself is returned
            why = str(error).strip().rpartition("\n")[2]
            end = SplitPUError(f"it could not be begun in the Ray cluster ({why}): is splitpu installed on every node?")
        except ray.exceptions.RayError as error:
            why = str(error).strip().partition("\n")[0]
            end = SplitPUError(f"its worker in the Ray cluster was lost {_LOSSES + 1} times ({why})")
        news.pass_on(wait=True)  # what the unit has said comes before its end
        job.done(end)

    def _check_room(self, ray: Any) -> None:
        """What fits into no machine would wait without a word, for one that has room for it."""
        machines = [one["Resources"] for one in ray.nodes() if one["Alive"]]
        wanted = {"CPU": self.cpus, "GPU": self.gpus}
        if any(all(one.get(name, 0) >= count for name, count in wanted.items()) for one in machines):
            return
        there = "; ".join(f"{one.get('CPU', 0):g} CPUs and {one.get('GPU', 0):g} GPUs" for one in machines)
        wrong = f"a run takes {self.cpus:g} CPUs and {self.gpus:g} GPUs, and no machine of the Ray cluster has as many"
        raise InputError(f"{wrong} ({there}): give fewer with --set engine.threads=1 or --gpus-per-run 0.5")


def _carried_out(kind: type, names: tuple[str, ...], told: tuple[Any, int, Path | None], *parts: Any) -> Any:
    """Run a unit on the machine where Ray has put it; gives its result, or the exception that it ended with."""
    letterbox, number, shared = told
    observer = _Correspondent(letterbox, number)
    try:
        observer.post("begun", platform.node())
        if shared is not None and not shared.exists():
            raise InputError(
                f"{shared} is not there on {platform.node()}: runs on several machines need a folder that all of them "
                "see at the same path; give one on a shared file system with --out"
            )
        with StopRequest() as observer.stop:  # by which Ray's request to stop arrives
            return kind(**dict(zip(names, parts, strict=True))).run(observer, partial(observer.post, "note"))
    except Interrupted as stopped:
        return Interrupted(str(stopped))
    except Exception as error:
        if not isinstance(error, SplitPUError):
            error.add_note(f"on {platform.node()}:\n{traceback.format_exc()}")
        try:
            return pickle.loads(pickle.dumps(error))  # as it would arrive
        except Exception:
            return SplitPUError(f"{type(error).__name__}: {error}")
    finally:
        observer.delivered()


class _Correspondent(Observer):
    """Writes to the grid, which is in another process, how far a unit is."""

    def __init__(self, letterbox: Any, number: int) -> None:
        self._letterbox, self._number, self._restored, self._sent = letterbox, number, 0, list[Any]()
        self.stop = StopRequest()

    def post(self, what: str, *news: Any) -> None:
        # Not waited for: Ray lends the CPU of a task that waits to another one, and twice as many units would run.
        self._sent.append(self._letterbox.actor.put_nowait.remote((self._number, what, *news)))

    def delivered(self) -> None:
        """Come back when everything has arrived."""
        import ray

        ray.get(self._sent)

    def stage_started(self, stage: Stage, done: int) -> None:
        self._restored = done
        self.post("reached", stage.name)

    def stage_done(self, stage: Stage, outcome: StageOutcome) -> None:
        self.post("stage_done", stage.name, outcome.history, self._restored)

    def should_stop(self) -> bool:
        return self.stop.wanted()


class _News:
    """What the units write, passed on to the grid in the order in which it comes."""

    def __init__(self, ray: Any, grid: Grid[Any]) -> None:
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Where the command itself runs: whatever becomes of other machines, it is there as long as it is needed.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.letterbox = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self._grid, self._lock, self._begun = grid, threading.Lock(), set[int]()
        self._numbers = {id(unit): number for number, unit in enumerate(grid.units)}

    def number(self, unit: Any) -> int:
        return self._numbers[id(unit)]

    def pass_on(self, *, wait: bool) -> None:
        """Everything that has come; unless told to `wait`, nothing if another thread is at it."""
        if not self._lock.acquire(blocking=wait):
            return
        try:
            count = self.letterbox.qsize()
            for number, what, *news in self.letterbox.get_nowait_batch(count) if count else ():
                self._tell(self._grid.units[number], number, what, news)
        finally:
            self._lock.release()

    def _tell(self, unit: Any, number: int, what: str, news: list[Any]) -> None:
        match what:
            case "begun":
                if number in self._begun:
                    told = f"its worker was lost; it goes on from its last checkpoint on {news[0]}"
                    self._grid.progress.note(unit, told)
                self._begun.add(number)
            case "reached":
                self._grid.reached(unit, *news)
            case _:
                getattr(self._grid.progress, what)(unit, *news)


@dataclass
class _Sent:
    """What was given to Ray, which keeps one copy on each machine of whatever is given to it once."""

    ray: Any
    _references: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, part: Any) -> Any:
        """Words as they are; of anything else the reference, by which a task finds it."""
        if isinstance(part, str | int | float | None):
            return part
        with self._lock:
            if id(part) not in self._references:  # the part is kept, as its number means nothing after its end
                self._references[id(part)] = part, self.ray.put(part)
            return self._references[id(part)][1]


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, joined to the cluster at an address inside the block, or to one that is started here and then ended."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it tells its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as will be usual
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("runs on a cluster are started with Ray: pip install 'splitpu[cluster]'.") from error
    if ray.is_initialized():  # by the program that calls us, which will end it
        yield ray
        return
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        dashboard = False if address == LOCAL else None  # Ray is told of it only where it starts the cluster
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=dashboard)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0]
        raise InputError(
            f"there is no Ray cluster at {address} ({why}): give the address that `ray start --head` has printed, auto "
            "for the one on this machine, or --ray alone to start one for this command; where Ray says that a token is "
            "missing, copy the first machine's ~/.ray/auth_token here and set RAY_AUTH_MODE=token"
        ) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in heard.items():  # Ray's would end the process at once
            signal.signal(number, handler)
    try:
        with redirect_stdout(sys.stderr):  # where Ray tells of lost workers, among results that programs read
            yield ray
    finally:
        ray.shutdown()
