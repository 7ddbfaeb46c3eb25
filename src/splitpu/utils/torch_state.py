"""Torch as it is by itself, whatever the user made of it for their own work; one seed, as many streams as draw."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

_CHANGING = threading.Lock()
_USERS_DTYPE: list[torch.dtype] = []  # one for every block that is open; the first is the user's own
# Torch has one generator a device for the whole process, and captures one graph at a time with it. Runs in several
# threads take turns: whoever seeds it, draws from it without a generator of their own, or captures, holds this.
TORCH_STATE_LOCK = threading.RLock()


@contextmanager
def usual_torch() -> Iterator[None]:
    """Inside the block tensors are float32 on the CPU and gradients recorded, unless said; then all is as it was."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):  # autocast is chosen by the run, whatever it is called inside of
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
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


def derive_seed(seed: int, *place: object) -> int:
    """Give a place its own stream, so that no draw depends on how many others came before it."""
    text = "/".join(map(str, (seed, *place)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


@contextmanager
def seeded(seed: int, *place: object) -> Iterator[None]:
    """Seed torch's global generators inside a short block, as others wait (else `StageDraws`); then give all back."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with TORCH_STATE_LOCK, torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive_seed(seed, *place))
        yield


class StageDraws:
    """A stage's own random streams, for whatever draws from torch's default generators, as dropout does.

    So a stage draws the same whether or not others train at the same time, and the user's generators stay as they are.
    A graph captured with these streams draws from them at every replay, without having to take a turn."""

    def __init__(self, device: torch.device) -> None:
        self._lending = False
        self._on_host: Tensor = torch.Generator().get_state()
        self._on_gpu: torch.Generator | None = None
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own generators exist from here on
            self._gpu = torch.cuda.current_device() if device.index is None else device.index
            self._on_gpu = torch.Generator(torch.device("cuda", self._gpu))

    def seed(self, seed: int) -> None:
        """Begin a stream, as `torch.manual_seed` does for everybody."""
        self._on_host = torch.Generator().manual_seed(seed).get_state()
        if self._on_gpu is not None:
            self._on_gpu.manual_seed(seed)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside the block these streams take the place of torch's generators; blocks may be nested."""
        if self._lending:
            yield
            return
        with TORCH_STATE_LOCK, ExitStack() as after:
            if self._on_gpu is not None:
                everybodys = torch.cuda.default_generators[self._gpu]
                after.callback(everybodys.graphsafe_set_state, everybodys.graphsafe_get_state())
                everybodys.graphsafe_set_state(self._on_gpu)
            self._lending = True
            before = torch.get_rng_state()
            torch.set_rng_state(self._on_host)
            try:
                yield
            finally:
                self._on_host = torch.get_rng_state()
                torch.set_rng_state(before)
                self._lending = False
