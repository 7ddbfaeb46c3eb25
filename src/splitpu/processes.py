"""How many processes were started for one run, as the environment tells; known before torch is loaded."""

import os

from splitpu.errors import InputError


def started_together() -> int:
    """How many processes `torchrun` started, this one included; 1 without it.

    >>> started_together()
    1
    """
    told = os.environ.get("WORLD_SIZE") or "1"
    try:
        return int(told)
    except ValueError:
        raise InputError(
            f"the environment variable WORLD_SIZE is {told!r}, which is not a number of processes: unset it, or start "
            "several processes with torchrun."
        ) from None
