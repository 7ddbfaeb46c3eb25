"""One seed in, as many independent streams out as there are places that draw."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
    """Seed torch's global generators inside the block and give the user's state back afterwards."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive_seed(seed, *place))
        yield
