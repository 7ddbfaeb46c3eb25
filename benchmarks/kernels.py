"""Where the time of a step goes: kernels by group, looked at while the engine trains."""

import time
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from splitpu.engine.stage import Observer, Stage

# The first group whose word is in a kernel's name has it; names are those of torch, cuDNN and cuBLAS, and our own.
GROUPS = {
    "optimiser": ("multi_tensor", "adam", "sgd", "foreach", "_move_"),
    "batch-norm": ("batch_norm", "batchnorm", "bn_fw", "bn_bw", "_bn_", "_add_up_", "_finish_", "_apply"),
    "our views": ("_view",),
    "our losses": ("_label_", "_pu_risk", "_cosines", "_squared_difference", "_difference_gradient"),
    "convolution": (
        "_strided_gradient",
        "_patch_values",
        "conv",
        "cudnn",
        "wgrad",
        "dgrad",
        "fprop",
        "implicit",
        "nhwc",
        "nchw",
        "xmma_f",
        "xmma_d",
        "xmma_w",
    ),
    "matrix product": ("gemm", "nvjet", "cublas", "addmm", "splitk", "aten::mm"),
    "gather, views' draws": ("index", "gather", "scatter", "distribution", "random", "catarray", "aten::cat", "flip"),
    "copies": ("memcpy", "memset", "copy"),
    "reductions": ("reduce", "aten::sum", "aten::mean"),
    "element-wise": ("elementwise", "vectorized", "unrolled", "aten::"),
}


def group_of(kernel: str) -> str:
    """The group of a kernel by its name.

    >>> group_of("void at::native::batch_norm_backward_reduce_kernel"), group_of("sm90_xmma_wgrad_implicit_gemm_bf16")
    ('batch-norm', 'convolution')
    """
    lowered = kernel.lower()
    return next((group for group, words in GROUPS.items() if any(word in lowered for word in words)), "other")


class ProfiledSteps(Observer):
    """Profiles some steps of each named stage, after some that are not counted."""

    def __init__(self, stages: tuple[str, ...], skip: int, steps: int, device: torch.device, shown: int = 15) -> None:
        self.stages, self.skip, self.steps, self.device, self.shown = stages, skip, steps, device, shown
        self.found: dict[str, dict[str, Any]] = {}
        self._profiler: profile | None = None
        self._started = 0.0

    def step_done(self, stage: Stage, epoch: int, step: int, steps: int) -> None:
        """Begin and end at the right steps of the first epoch."""
        if stage.name not in self.stages or epoch > 0:
            return
        first = min(self.skip, steps // 3)
        if step == first:
            self._wait()
            on_gpu = self.device.type == "cuda"
            self._profiler = profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU])
            self._profiler.__enter__()
            self._started = time.perf_counter()
        elif self._profiler is not None and step == min(first + self.steps, steps - 1):
            self._wait()
            wall = time.perf_counter() - self._started
            self._profiler.__exit__(None, None, None)
            self.found[stage.name] = self._by_group(self._profiler, step - first, wall)
            self._profiler = None

    def should_stop(self) -> bool:
        """Enough is known."""
        return set(self.stages) <= set(self.found)

    def _by_group(self, seen: profile, steps: int, wall: float) -> dict[str, Any]:
        wanted = DeviceType.CUDA if self.device.type == "cuda" else DeviceType.CPU
        totals: dict[str, float] = {}
        names: dict[str, float] = {}
        counts: dict[str, float] = {}
        for event in seen.key_averages():
            if event.device_type != wanted:
                continue
            spent = event.self_device_time_total if wanted == DeviceType.CUDA else event.self_cpu_time_total
            milliseconds = spent / 1e3 / steps
            totals[group_of(event.key)] = totals.get(group_of(event.key), 0.0) + milliseconds
            names[event.key[:100]] = names.get(event.key[:100], 0.0) + milliseconds
            counts[event.key[:100]] = counts.get(event.key[:100], 0.0) + event.count / steps
        largest = sorted(names, key=lambda name: -names[name])[: self.shown]
        return {
            "steps": steps,
            "wall_ms_a_step": 1e3 * wall / steps,
            "kernel_ms_a_step": sum(totals.values()),
            "ms_a_step": dict(sorted(totals.items(), key=lambda entry: -entry[1])),
            "kernels_a_step": sum(counts.values()),
            "largest": {f"{round(counts[name])} x {name}": names[name] for name in largest},
        }

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
