"""On what a benchmark ran, so that its figures can be compared."""

import os
import platform
from typing import Any

import torch

from splitpu.runs.folder import source_commit, versions


def machine() -> dict[str, Any]:
    """Hardware and versions."""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        # A copy of the tree on another machine has no history, or an old one: there the caller says which it is.
        "commit": os.environ.get("SPLITPU_COMMIT") or source_commit(),
        **versions(),
    }


def in_words() -> str:
    """The same in one line, to stand beside what is printed."""
    found = machine()
    where = f"{found['gpu']}, {found['processor']}" if found["gpu"] else found["processor"]
    return f"{where}, {found['cores']} cores, torch {found['torch']}, commit {found['commit']}"


def peak_memory_mb() -> float:
    """The most memory this program has had. `ru_maxrss` would count the program that started it as well."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
