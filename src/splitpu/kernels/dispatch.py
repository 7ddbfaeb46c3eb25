"""Whether kernels may be used and run here: by a mark on a network's layers, so that runs in one process do not disturb
each other, and by trying out every family once a device. Also how tensors lie in memory, which kernels depend on."""

import importlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from splitpu.utils.warnings import warn_where_called

_MARK = "may_use_kernels"
_KINDS = (nn.BatchNorm2d, nn.Conv2d)
Attempt = Callable[[torch.device], bool]

_FAMILIES: dict[str, Attempt] = {}
_TRYING = threading.Lock()
_FOUND: dict[torch.device, dict[str, str]] = {}  # why a family does not run; nothing if it does
_SAID: set[torch.device] = set()
_WAITING = threading.local()  # `never` inside `without_waiting`


def allow_kernels(module: nn.Module, allowed: bool) -> None:
    """Mark every layer that there is a kernel for, and the module itself; what has no mark is computed by torch."""
    for layer in module.modules():
        if layer is module or isinstance(layer, _KINDS):
            layer.__dict__[_MARK] = allowed


def kernels_allowed(layer: nn.Module) -> bool:
    """Whether this layer, or a module as a whole, has been marked."""
    return bool(layer.__dict__.get(_MARK, False))


@cache
def triton_kernels(name: str) -> Any:
    """The kernels of that module, which is imported only where there is a GPU."""
    return importlib.import_module(f"splitpu.kernels.{name}_triton")


def family(name: str) -> Callable[[Attempt], Attempt]:
    """Register a tiny case, which says whether the kernels of that name came out right.

    It should take the kernels as training does, in half precision: then nothing is compiled for it alone. It must not
    draw from torch's own generators, which belong to whoever trains meanwhile."""

    def register(attempt: Attempt) -> Attempt:
        _FAMILIES[name] = attempt
        return attempt

    return register


def prepare(device: torch.device) -> None:
    """Begin to try out all families on a GPU, in a thread: meanwhile rows can be read and networks be built."""
    device = _numbered(device)

    def try_ahead() -> None:
        with suppress(RuntimeError):  # the process may end before it has begun
            _tried(device)

    threading.Thread(target=try_ahead, name="kernels", daemon=True).start()


@contextmanager
def without_waiting() -> Iterator[None]:
    """Inside the block, in this thread, kernels that are still being compiled count as if they did not run."""
    # For a step whose outcome nobody needs: it makes the libraries load what they load only once, meanwhile.
    _WAITING.never = True
    try:
        yield
    finally:
        _WAITING.never = False


def runs_on(device: torch.device, name: str) -> bool:
    """Whether that family runs on this device: the compiler may be missing, or too old for it."""
    # All are tried when the first is asked for, unless that has begun before. A step is taken a few times before it is
    # captured, so this never happens inside a capture.
    if getattr(_WAITING, "never", False) and device not in _FOUND:
        return False
    found = _tried(device)
    with _TRYING:
        failed = {} if device in _SAID else {other: reason for other, reason in found.items() if reason}
        _SAID.add(device)
    if failed:
        names, reasons = ", ".join(failed), "; ".join(dict.fromkeys(failed.values()))
        instead = "torch's own operations are used, a little slower"
        warn_where_called(f"kernels do not run here ({names}: {reasons}); {instead}.")
    return not found[name]


def any_kernel_runs_on(device: torch.device) -> bool:
    """Whether some family was tried on this device and runs there; to say afterwards what was used, without waiting."""
    return any(not reason for reason in _FOUND.get(_numbered(device), {}).values())


def give_up_kernels(device: torch.device, error: Exception) -> bool:
    """Count all kernels as not running there, with one warning, if it was their compiler that raised the error."""
    # A tiny case says nothing about every shape: a smaller GPU may lack the shared memory that a larger one asks for.
    # False if that was not it, or nothing is left to give up.
    if not any(kind.__module__.partition(".")[0] == "triton" for kind in type(error).__mro__):
        return False
    device = _numbered(device)
    with _TRYING:
        if all(_FOUND.get(device, {}).values()):  # the step was without them already
            return False
        _FOUND[device] = dict.fromkeys(_FAMILIES, _in_a_line(error))
        _SAID.discard(device)
    return True


def _tried(device: torch.device) -> dict[str, str]:
    """Side by side, because most of a compiler's work is done by other processes."""

    def failure(attempt: Attempt) -> str:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            return "" if attempt(device) else "their results are wrong"
        except Exception as error:  # whatever a compiler may raise: torch's own operations are always there
            return _in_a_line(error)

    with _TRYING:
        if device not in _FOUND:
            with ThreadPoolExecutor(len(_FAMILIES), thread_name_prefix="kernels") as threads:
                reasons = threads.map(failure, _FAMILIES.values())
            _FOUND[device] = dict(zip(_FAMILIES, reasons, strict=True))
        return _FOUND[device]


def _numbered(device: torch.device) -> torch.device:
    """As tensors say it: with the number of the GPU."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def _in_a_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def lie_alike(first: Tensor, second: Tensor) -> bool:
    """Whether both are dense and in the same order in memory; the stride of a dimension of one is nothing to go by."""
    dense = first.is_contiguous() or (first.ndim == 4 and first.is_contiguous(memory_format=torch.channels_last))
    if not dense or first.shape != second.shape:
        return False
    strides = zip(first.shape, first.stride(), second.stride(), strict=True)
    return all(size == 1 or one == other for size, one, other in strides)


def last_rows(batch: Tensor, count: int) -> Tensor:
    """`batch[-count:]`, whose gradient comes back in the memory layout of the whole batch."""
    # Torch's own slice answers with a gradient in the standard layout; adding that to a channels-last one takes as long
    # as several convolutions.
    rows: Tensor = _LastRows.apply(batch, count)  # type: ignore[no-untyped-call]
    return rows


class _LastRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: Tensor, count: int) -> Tensor:
        ctx.shape, ctx.strides, ctx.count = batch.shape, batch.stride(), count
        return batch[len(batch) - count :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        whole = torch.empty_strided(ctx.shape, ctx.strides, dtype=gradients[0].dtype, device=gradients[0].device)
        first = ctx.shape[0] - ctx.count
        whole[:first].zero_()
        whole[first:].copy_(gradients[0])
        return whole, None
