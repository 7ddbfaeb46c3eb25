"""Whether a family of kernels runs here: tried out once a device, with one warning for each that does not."""

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from splitpu.errors import SplitPUWarning

Attempt = Callable[[torch.device], bool]

_FAMILIES: dict[str, Attempt] = {}
_TRYING = threading.Lock()
_FOUND: dict[torch.device, dict[str, str]] = {}  # why a family does not run; nothing if it does


def family(name: str) -> Callable[[Attempt], Attempt]:
    """Register a tiny case, which says whether the kernels of that name came out right.

    It should take the kernels as training does, in half precision: then nothing is compiled for it alone.
    """

    def register(attempt: Attempt) -> Attempt:
        _FAMILIES[name] = attempt
        return attempt

    return register


def runs_on(device: torch.device, name: str) -> bool:
    """Whether that family runs on this device: the compiler may be missing, or too old for it.

    All are tried at once when the first is asked for, because compilers are other processes, which can work side by
    side. A step is taken a few times before it is captured, so this never happens inside a capture.
    """
    with _TRYING:
        first_time = device not in _FOUND
        if first_time:
            with ThreadPoolExecutor(len(_FAMILIES), thread_name_prefix="kernels") as threads:
                reasons = threads.map(lambda attempt: _failure(device, attempt), _FAMILIES.values())
            _FOUND[device] = dict(zip(_FAMILIES, reasons, strict=True))
    if first_time:
        for other, reason in _FOUND[device].items():
            if reason:
                message = f"the {other} kernels do not run here ({reason}); torch's own are used, a little slower."
                warnings.warn(message, SplitPUWarning, stacklevel=4)
    return not _FOUND[device][name]


def _failure(device: torch.device, attempt: Attempt) -> str:
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return "" if attempt(device) else "their results are wrong"
    except Exception as error:  # whatever a compiler may raise: torch's own operations are always there
        return str(error).splitlines()[0] if str(error) else type(error).__name__
