"""One seed in, as many independent streams out as there are places that draw."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# Torch has one generator a device for the whole process, and captures one graph at a time with it. Runs in several
# threads take turns: whoever seeds it, draws from it without a generator of their own, or captures, holds this.
TORCHS_OWN = threading.RLock()


def derive_seed(seed: int, *place: object) -> int:
    """Give a place its own stream, so that no draw depends on how many others came before it.

    >>> derive_seed(0, "base", 3) == derive_seed(0, "base", 3)
    True
    >>> derive_seed(0, "base", 3) == derive_seed(0, "base", 4)
    False
    """
    text = "/".join(map(str, (seed, *place)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


@contextmanager
def seeded(seed: int, *place: object) -> Iterator[None]:
    """Seed torch's global generators inside the block and give the user's state back afterwards.

    Others wait meanwhile, so the block should be short: for a whole stage there is `StageDraws`.
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with TORCHS_OWN, torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive_seed(seed, *place))
        yield


class StageDraws:
    """A stage's own random streams, for whatever draws from torch's default generators, as dropout does.

    So a stage draws the same whether or not others train at the same time, and the user's generators stay as they are.
    A graph captured with these streams draws from them at every replay, without having to take a turn.
    """

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
        with TORCHS_OWN, self._lent_on_gpu():
            self._lending = True
            before = torch.get_rng_state()
            torch.set_rng_state(self._on_host)
            try:
                yield
            finally:
                self._on_host = torch.get_rng_state()
                torch.set_rng_state(before)
                self._lending = False

    @contextmanager
    def _lent_on_gpu(self) -> Iterator[None]:
        if self._on_gpu is None:
            yield
            return
        everybodys = torch.cuda.default_generators[self._gpu]
        before = everybodys.graphsafe_get_state()
        everybodys.graphsafe_set_state(self._on_gpu)
        try:
            yield
        finally:
            everybodys.graphsafe_set_state(before)
