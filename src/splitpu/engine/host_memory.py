"""Host memory that a step frees is kept for the next one.

The usual allocator on Linux gives every block above 32 MB back to the system as soon as it is free, and gets it anew
page by page in the next step: up to a quarter of a step with images on a CPU. Nothing of this changes a result.
"""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# From glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_INSIDE = {
    _MMAP_MAX: 0,
    _TRIM_THRESHOLD: 2**31 - 1,  # the most that a C integer holds
}
# Any choice switches glibc's own adjustment off for good, so afterwards its limits are those it would end up at.
_AFTERWARDS = {_TRIM_THRESHOLD: 2**26, _MMAP_THRESHOLD: 2**25, _MMAP_MAX: 65536}


@contextmanager
def blocks_kept() -> Iterator[None]:
    """Inside the block free memory stays with this process, which gets slightly larger; afterwards it is given back."""
    choose = _glibc("mallopt")
    if choose is None:
        yield
        return
    for option, value in _INSIDE.items():
        choose(option, value)
    try:
        yield
    finally:
        for option, value in _AFTERWARDS.items():
            choose(option, value)
        give_back = _glibc("malloc_trim")
        if give_back is not None:
            give_back(0)


def _glibc(name: str) -> Callable[..., int] | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
