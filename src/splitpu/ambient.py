"""Torch as it is by itself, whatever the user made of it for their own work."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_CHANGING = threading.Lock()
_USERS_DTYPE: list[torch.dtype] = []  # one for every block that is open; the first is the user's own


@contextmanager
def usual_torch() -> Iterator[None]:
    """Inside the block tensors are made as float32 on the CPU and gradients recorded, where nothing else is said.

    Afterwards all is as the user had it: another default dtype, a default device, `no_grad` or `inference_mode`.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":  # not always: every call in such a block takes longer
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(float32_by_default())
        yield


@contextmanager
def float32_by_default() -> Iterator[None]:
    """The default dtype is the whole process's. Blocks of several threads may overlap: the last puts it back."""
    with _CHANGING:
        _USERS_DTYPE.append(_USERS_DTYPE[0] if _USERS_DTYPE else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        with _CHANGING:
            users = _USERS_DTYPE.pop()
            if not _USERS_DTYPE:
                torch.set_default_dtype(users)
