"""What the arithmetic runs on, and how: chosen once, stated in the result."""

import ctypes
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch

from splitpu.config.schema import EngineConfig
from splitpu.engine.distributed import World
from splitpu.errors import InputError

# From glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_INSIDE = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1}  # the most that a C integer holds
# Any choice switches glibc's own adjustment off for good, so afterwards its limits are those it would end up at.
_AFTERWARDS = {_TRIM_THRESHOLD: 2**26, _MMAP_THRESHOLD: 2**25, _MMAP_MAX: 65536}
_LIMITING = threading.Lock()
_LIMITS: list[int] = []  # numbers of CPU threads: the one before all, then that of every block that is open
_MOST_THREADS = 16
_LOOKS, _BETWEEN_LOOKS = 7, 0.002  # seconds; how often to look at what other programs do, when a number is chosen
USUAL = EngineConfig()
_THREADS_WERE_USED: list[bool] = []  # not empty once this process had more than one, which a fork leaves behind
_FORKED: list[bool] = []


@contextmanager
def blocks_kept() -> Iterator[None]:
    """Inside the block host memory that a step frees is kept for the next one; afterwards it is given back."""
    # The usual allocator on Linux gives every block above 32 MB back to the system as soon as it is free, and gets it
    # anew page by page in the next step: up to a quarter of a step with images on a CPU. No result depends on it.
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    glibc = ctypes.CDLL(None)
    for option, value in _INSIDE.items():
        glibc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _AFTERWARDS.items():
            glibc.mallopt(option, value)
        glibc.malloc_trim(0)


@dataclass(frozen=True)
class Hardware:
    """The device and the precision of one run, and the processes it is shared among."""

    device: torch.device
    bf16: bool
    capture: bool
    threads: int
    kernels: bool = False
    world: World = field(default_factory=World)

    @classmethod
    def choose(
        cls, device: str, config: EngineConfig = USUAL, *, trains_images: bool = False, whatever_else_runs: bool = False
    ) -> "Hardware":
        """Take the fastest correct choice this machine offers, unless the configuration forbids it.

        On a CPU only the convolutions of a training gain from half precision (`trains_images`); scores of a finished
        model are computed in full. Sums depend on the number of threads, so a caller that does not store this number
        with the result asks for one that is the same `whatever_else_runs`: then the same seed gives the same model."""
        chosen = check_device(device)
        on_gpu = chosen.type == "cuda"
        has_bf16 = torch.cuda.is_bf16_supported() if on_gpu else trains_images and _cpu_has_bf16()
        bf16 = config.precision == "bf16" or (config.precision == "auto" and has_bf16)
        capture, kernels = (on_gpu and choice == "auto" for choice in (config.capture, config.kernels))
        return cls(chosen, bf16, capture, config.threads or _sensible_threads(whatever_else_runs), kernels)

    def within(self, world: World) -> "Hardware":
        """The same choices among several processes: each has its own GPU, and steps that exchange are not captured."""
        if world.size == 1:
            return self
        device = self.device
        if device.type == "cuda":
            number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if number >= there:
                wrong = f"torchrun started more processes than the {there} GPU(s) that torch sees here"
                raise InputError(f"{wrong}: lower --nproc-per-node to one process for each GPU.")
            device = torch.device("cuda", number)
            torch.cuda.set_device(device)
        return replace(self, device=device, capture=False, world=world)

    def autocast(self) -> AbstractContextManager[object]:
        """Mixed precision where it was chosen. The weight cache stays off: it does not survive graph capture."""
        if not self.bf16:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16, cache_enabled=False)

    @contextmanager
    def thread_limit(self) -> Iterator[None]:
        """Use the chosen number of CPU threads inside the block only."""
        # The number is the whole process's. Blocks of several threads may overlap, and the last to leave puts it back.
        with _LIMITING:
            if not _LIMITS:
                _LIMITS.append(torch.get_num_threads())
            _LIMITS.append(self.threads)
            _use_threads(self.threads)
        try:
            yield
        finally:
            with _LIMITING:
                _LIMITS.reverse()
                _LIMITS.remove(self.threads)  # the latest of this number
                _LIMITS.reverse()
                _use_threads(_LIMITS[-1])
                if len(_LIMITS) == 1:
                    _LIMITS.clear()

    def current_gpu(self) -> AbstractContextManager[object]:
        """Inside the block the chosen GPU is the thread's own: Triton runs kernels there, wherever the rows lie."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def describe(self) -> str:
        times = f", {self.world.size} processes" if self.world.size > 1 else ""
        if self.device.type == "cuda":
            return f"{torch.cuda.get_device_name(self.device)}{times}"
        return f"{platform.machine()} CPU, {self.threads} thread{'s' if self.threads > 1 else ''}{times}"


def _use_threads(number: int) -> None:
    if number > 1:
        _THREADS_WERE_USED[:] = [True]
    torch.set_num_threads(1 if _FORKED else number)


def _after_fork() -> None:
    """A copy of a process has none of its threads, and OpenMP would wait for them for ever: it works with one."""
    if _THREADS_WERE_USED or torch.get_num_threads() > 1:
        _FORKED.append(True)
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_device(name: str) -> torch.device:
    """The device of that name; one that is not there is refused, before anything long is begun."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"device {name!r} is not one torch knows; use 'auto', 'cpu' or 'cuda'.") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not one that splitpu computes on; use 'auto', 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for but torch sees no GPU here; use device='cpu' or 'auto'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise InputError(f"device {name!r} was asked for but torch sees {there} GPU(s) here, counted from cuda:0.")
    return device


def _cpu_has_bf16() -> bool:
    """Whether there are instructions for it: without them it is far slower than float32."""
    supported = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile")]
    return any(ask() for ask in supported if ask is not None)


def _sensible_threads(whatever_else_runs: bool = False) -> int:
    """All cores, or all idle ones: a thread that shares its core with another program makes every step wait for it."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if told.isdecimal() and int(told):  # not what torch has now, which the caller may have changed for other work
        return min(int(told), _MOST_THREADS)
    return max(1, min(_cores() - (0 if whatever_else_runs else _busy_cores()), _MOST_THREADS))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _busy_cores() -> int:
    # The load average remembers a minute, this program's own last training among it, so it is believed only as far as
    # what runs at this moment agrees.
    remembered = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    if remembered == 0:
        return 0
    try:
        return min(remembered, statistics.median_high(_others_running() for _ in range(_LOOKS)))
    except (OSError, ValueError, IndexError):  # not Linux
        return remembered


def _others_running() -> int:
    time.sleep(_BETWEEN_LOOKS)
    with open("/proc/loadavg", encoding="ascii") as file:
        running = int(file.read().split()[3].partition("/")[0])  # threads that run or wait for a core, system-wide
    return max(0, running - 1)  # without this one
