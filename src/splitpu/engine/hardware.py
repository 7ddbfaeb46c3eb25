"""What the arithmetic runs on, and how: chosen once, stated in the result."""

import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch

from splitpu.config.schema import EngineConfig
from splitpu.engine.world import World
from splitpu.errors import InputError


@dataclass(frozen=True)
class Hardware:
    """The device and the precision of one run, and the processes it is shared among."""

    device: torch.device
    bf16: bool
    capture: bool
    threads: int
    world: World = field(default_factory=World)

    @classmethod
    def choose(cls, device: str, config: EngineConfig) -> "Hardware":
        """Take the fastest correct choice this machine offers, unless the configuration forbids it."""
        chosen = _device(device)
        on_gpu = chosen.type == "cuda"
        bf16 = config.precision == "bf16" or (config.precision == "auto" and on_gpu and torch.cuda.is_bf16_supported())
        return cls(
            device=chosen,
            bf16=bf16,
            capture=on_gpu and config.capture == "auto",
            threads=config.threads or _sensible_threads(),
        )

    def within(self, world: World) -> "Hardware":
        """The same among several processes: each has a GPU of its own, and what they exchange cannot be captured."""
        if world.size == 1:
            return self
        device = self.device
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
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
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def describe(self) -> str:
        """Name the device as a person would."""
        times = f", {self.world.size} processes" if self.world.size > 1 else ""
        if self.device.type == "cuda":
            return f"{torch.cuda.get_device_name(self.device)}{times}"
        return f"{platform.machine()} CPU, {self.threads} thread{'s' if self.threads > 1 else ''}{times}"


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r} is not one torch knows; use 'auto', 'cpu' or 'cuda'.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for but torch sees no GPU here; use device='cpu' or 'auto'.")
    return device


def _sensible_threads() -> int:
    """All idle cores: a thread that shares its core with another program makes every step wait for it."""
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(1, min(cores - busy, 16))
