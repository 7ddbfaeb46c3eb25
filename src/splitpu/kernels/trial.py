"""Whether a family of kernels runs here: tried out once a device, with one warning where it does not."""

import threading
import warnings
from collections.abc import Callable

import torch

from splitpu.errors import SplitPUWarning

_TRYING = threading.Lock()
_FOUND: dict[tuple[str, torch.device], bool] = {}


def runs_on(device: torch.device, family: str, attempt: Callable[[torch.device], bool]) -> bool:
    """Whether a tiny case came out right on this device: the compiler may be missing, or too old for it.

    A step is taken a few times before it is captured, so an attempt never happens inside a capture.

    >>> runs_on(torch.device("cpu"), "impossible", lambda device: True)
    True
    """
    with _TRYING:
        known = _FOUND.get((family, device))
        if known is None:
            known = _FOUND[family, device] = _attempted(device, family, attempt)
        return known


def _attempted(device: torch.device, family: str, attempt: Callable[[torch.device], bool]) -> bool:
    try:
        with torch.enable_grad():
            right = attempt(device)
        if right:
            return True
        reason = "their results are wrong"
    except Exception as error:  # whatever a compiler may raise: torch's own operations are always there
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    message = f"the {family} kernels do not run here ({reason}); torch's own operations are used, a little slower."
    warnings.warn(message, SplitPUWarning, stacklevel=4)
    return False
